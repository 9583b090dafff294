//! The figures of a study that compares several designs, as JSON and as text.

use std::fmt::{self, Write as _};

use serde::Serialize;

use super::{Output, Page};
use crate::Result;
use crate::figure::{Figure, number};
use crate::machine::{Machine, load};
use crate::target::Target;

/// The description of a study.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct About {
    /// The headline of its page.
    pub(crate) title: &'static str,
    /// An introduction to all figures.
    pub(crate) introduction: &'static str,
    /// The baseline of ratios.
    pub(crate) baseline: &'static str,
}

/// The results of a study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The options and their values.
    pub settings: Vec<(&'static str, String)>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// The targets.
    pub targets: Vec<Target>,
    #[serde(skip)]
    about: About,
}

impl Report {
    pub(crate) fn new(
        about: About,
        machine: Machine,
        settings: Vec<(&'static str, String)>,
    ) -> Self {
        Self {
            machine,
            settings,
            figures: Vec::new(),
            targets: Vec::new(),
            about,
        }
    }

    /// Measures figures, one after the other, and adds their results.
    pub(crate) fn measure(
        mut self,
        outcomes: impl Iterator<Item = Result<Outcome>>,
    ) -> Result<Self> {
        for outcome in outcomes {
            let outcome = outcome?;
            self.figures.extend(outcome.figures);
            self.targets.extend(outcome.targets);
        }
        self.machine.load_after = load();
        Ok(self)
    }

    /// Prints the report, and writes the page and the tables that `output` asks for.
    ///
    /// # Errors
    /// Fails if a target is missed, or on an error of the operating system.
    pub fn publish(&self, output: &Output) -> Result<()> {
        let page = Page {
            title: self.about.title,
            introduction: self.about.introduction,
            machine: &self.machine,
            settings: self.settings.clone(),
            figures: &self.figures,
        };
        output.publish(self, &page, &self.targets)
    }
}

/// The result of a figure of the study.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) figures: Vec<Figure>,
    pub(crate) targets: Vec<Target>,
}

impl Outcome {
    /// Figures with their targets, which the first figure also describes.
    pub(crate) fn new(mut figures: Vec<Figure>, targets: Vec<Target>) -> Self {
        if let Some(first) = figures.first_mut() {
            first
                .found
                .splice(0..0, targets.iter().map(Target::to_string));
        }
        Self { figures, targets }
    }

    /// Appends another result.
    pub(crate) fn join(&mut self, other: Self) {
        self.figures.extend(other.figures);
        self.targets.extend(other.targets);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(
            f,
            "{}, {} cores, load {:.1} to {:.1}; medians of {} rounds, with the spread in percent; \
             in brackets the ratio of {} to this value; p: probes per operation",
            machine.cpu,
            machine.cores,
            machine.load_before,
            machine.load_after,
            machine.rounds,
            self.about.baseline
        )?;
        for figure in &self.figures {
            write_figure(f, figure)?;
            write_flushes(f, figure)?;
        }
        writeln!(f)?;
        for target in &self.targets {
            writeln!(f, "{target}")?;
        }
        Ok(())
    }
}

/// A figure as a table.
fn write_figure(f: &mut fmt::Formatter<'_>, figure: &Figure) -> fmt::Result {
    const NAME: usize = 14;
    const CELL: usize = 32;
    writeln!(
        f,
        "\n{}: {} by {}",
        figure.name,
        figure.y.caption(),
        figure.x.caption()
    )?;
    let labels = figure.labels();
    write!(f, "{:<NAME$}", "")?;
    for label in &labels {
        write!(f, "{label:>CELL$}")?;
    }
    writeln!(f)?;
    for series in &figure.series {
        write!(f, "{:<NAME$}", series.name)?;
        for point in labels.iter().map(|label| series.at(label)) {
            let mut cell = String::new();
            if let Some(point) = point {
                write!(cell, "{}", number(point.value))?;
                if point.high > point.low {
                    let spread = (point.high - point.low) / point.value * 100.0;
                    write!(cell, " {spread:.0}%")?;
                }
                if let Some(ratio) = point.peer_over {
                    write!(cell, " ({})", number(ratio))?;
                }
                if let Some(counts) = point.counts {
                    write!(cell, " {}p", number(counts.probes))?;
                }
            }
            write!(f, "{cell:>CELL$}")?;
        }
        writeln!(f)?;
    }
    for note in &figure.notes {
        writeln!(f, "  {note}")?;
    }
    Ok(())
}

/// Lines flushed and fences per operation, which don't depend on the machine.
fn write_flushes(f: &mut fmt::Formatter<'_>, figure: &Figure) -> fmt::Result {
    for series in &figure.series {
        let points = series.points.iter();
        let counted = points.filter_map(|point| Some((&point.at, point.counts?)));
        let flushed = counted.filter(|(_, counts)| counts.lines_flushed > 0.0);
        let each: Vec<String> = flushed
            .map(|(at, counts)| {
                let (lines, fences) = (counts.lines_flushed, counts.fences);
                format!("{at} {lines:.2} lines, {fences:.2} fences")
            })
            .collect();
        if !each.is_empty() {
            writeln!(f, "  {}: {}", series.name, each.join("; "))?;
        }
    }
    Ok(())
}
