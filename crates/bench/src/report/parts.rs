//! Figures as parts of other documents: for each figure a plot (SVG) and its numbers as a table
//! (Markdown), and the targets.

use std::fmt::Write as _;
use std::path::Path;

use super::{plot, utc, write_whole};
use crate::Result;
use crate::error::doing;
use crate::figure::{Figure, Point, number};
use crate::machine::Machine;
use crate::target::Target;

/// The content to write.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// The machine of the measurement.
    pub machine: &'a Machine,
    /// The figures.
    pub figures: &'a [Figure],
    /// The targets.
    pub targets: &'a [Target],
}

impl Parts<'_> {
    /// Writes `NAME.svg` and `NAME.md` for each figure, `targets.md` (rows of a table: what, found,
    /// asked, whether it was met) and `machine.md` into a directory, which is created if it is
    /// missing.
    ///
    /// # Errors
    /// A file cannot be written, or a figure cannot be drawn.
    pub fn write(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).map_err(doing(format!("make {}", dir.display())))?;
        for figure in self.figures {
            let name = &figure.name;
            write_whole(&dir.join(format!("{name}.svg")), &plot::alone(figure)?)?;
            write_whole(&dir.join(format!("{name}.md")), &table(figure))?;
        }
        let targets: String = self.targets.iter().map(row).collect();
        write_whole(&dir.join("targets.md"), &targets)?;
        write_whole(&dir.join("machine.md"), &measured_on(self.machine))
    }
}

fn measured_on(machine: &Machine) -> String {
    format!(
        "{machine}; {}; load {:.1} before, {:.1} after; medians of {} rounds\n",
        utc(machine.started_unix_seconds),
        machine.load_before,
        machine.load_after,
        machine.rounds
    )
}

fn row(target: &Target) -> String {
    let sign = if target.at_least { "≥" } else { "≤" };
    let verdict = if target.met { "met" } else { "**missed**" };
    let (value, bound) = (number(target.value), number(target.bound));
    let what = escaped(&target.what);
    format!("| {what} | {value} | {sign} {bound} | {verdict} |\n")
}

/// The numbers: a row for each series and a column for each label, or the other way round if that
/// is narrower.
fn table(figure: &Figure) -> String {
    let labels = figure.labels();
    let names: Vec<&str> = figure.series.iter().map(|series| &*series.name).collect();
    let cell = |series: usize, label: &str| {
        let point = figure.series[series].at(label);
        point.map_or_else(|| "–".to_owned(), cell)
    };
    let mut out = String::new();
    if labels.len() <= names.len() {
        line(&mut out, "", labels.iter().map(|&label| escaped(label)));
        rule(&mut out, labels.len());
        for (at, name) in names.iter().enumerate() {
            line(&mut out, name, labels.iter().map(|label| cell(at, label)));
        }
    } else {
        line(
            &mut out,
            &figure.x.title,
            names.iter().map(|&name| escaped(name)),
        );
        rule(&mut out, names.len());
        for &label in &labels {
            line(&mut out, label, (0..names.len()).map(|at| cell(at, label)));
        }
    }
    let has_counts = figure.series.iter().flat_map(|series| &series.points);
    let counted = has_counts.clone().any(|point| point.counts.is_some());
    let caption = escaped(&figure.y.caption());
    let brackets = if counted {
        "; in brackets probes of an operation"
    } else {
        ""
    };
    let _ = writeln!(out, "\n{}: {caption}{brackets}.", escaped(&figure.title));
    out
}

fn line(out: &mut String, head: &str, cells: impl Iterator<Item = String>) {
    let _ = write!(out, "| {} |", escaped(head));
    for cell in cells {
        let _ = write!(out, " {cell} |");
    }
    out.push('\n');
}

fn rule(out: &mut String, cells: usize) {
    out.push_str("|---|");
    out.push_str(&"---:|".repeat(cells));
    out.push('\n');
}

fn cell(point: &Point) -> String {
    let mut text = number(point.value);
    if let Some(counts) = point.counts {
        let _ = write!(text, " ({})", number(counts.probes));
    }
    text
}

/// Escapes text for a Markdown table.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Axis, CountsPerOp, Scale, Series, Shape};

    fn figure(labels: &[&str]) -> Figure {
        let mut points: Vec<_> = labels.iter().map(|&at| Point::exact(at, 1234.5)).collect();
        points[0].counts = Some(CountsPerOp {
            probes: 1.25,
            ..CountsPerOp::default()
        });
        Figure {
            name: "size-cold".into(),
            title: "Time against size".into(),
            claim: String::new(),
            found: Vec::new(),
            x: Axis::labels("Bytes"),
            y: Axis::of("time", "ns", Scale::Linear),
            shape: Shape::Lines,
            series: vec![
                Series {
                    name: "hash|fs".into(),
                    points,
                },
                Series {
                    name: "tree".into(),
                    points: Vec::new(),
                },
            ],
            marks: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_table_is_as_narrow_as_it_can_be() {
        let wide = "| Bytes | hash\\|fs | tree |\n|---|---:|---:|\n| 1 | 1234 (1.25) | – |\n\
                    | 2 | 1234 | – |\n| 3 | 1234 | – |\n\n\
                    Time against size: time [ns]; in brackets probes of an operation.\n";
        assert_eq!(table(&figure(&["1", "2", "3"])), wide);
        let narrow = "|  | 1 |\n|---|---:|\n| hash\\|fs | 1234 (1.25) |\n| tree | – |\n";
        assert!(table(&figure(&["1"])).starts_with(narrow));
    }

    #[test]
    fn targets_are_rows() {
        let text = row(&Target::at_most("probes", 1.31, 1.3));
        assert_eq!(text, "| probes | 1.31 | ≤ 1.30 | **missed** |\n");
    }

    #[test]
    fn every_figure_has_a_plot_and_a_table() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path().join("new");
        let parts = Parts {
            machine: &Machine::look(),
            figures: &[figure(&["1", "2"])],
            targets: &[],
        };
        parts.write(&at).expect("written");
        let svg = std::fs::read_to_string(at.join("size-cold.svg")).expect("a plot");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for file in ["size-cold.md", "targets.md", "machine.md"] {
            assert!(at.join(file).exists(), "{file}");
        }
    }
}
