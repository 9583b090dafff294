//! Figures as a page: a single file without network access and scripts. It has the plots as SVG,
//! the paper's claims with the findings, the numbers, the machine and the settings.

mod output;
mod parts;
mod plot;
mod study;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use crate::Result;
use crate::error::doing;
use crate::figure::{Figure, Point, number};
use crate::machine::Machine;

pub use output::Output;
pub(crate) use output::{note, print};
pub use parts::Parts;
pub use study::Report;
pub(crate) use study::{About, Outcome};

/// The style of the page, in light and in dark.
const STYLE: &str = include_str!("page.css");

/// The content of a page.
#[derive(Clone, Debug)]
pub struct Page<'a> {
    /// The headline.
    pub title: &'a str,
    /// An introduction to all figures.
    pub introduction: &'a str,
    /// The machine of the measurement.
    pub machine: &'a Machine,
    /// The settings in addition to those of the machine.
    pub settings: Vec<(&'a str, String)>,
    /// The figures.
    pub figures: &'a [Figure],
}

impl Page<'_> {
    /// Writes the page atomically.
    ///
    /// # Errors
    /// The file cannot be written, or a figure cannot be drawn.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_whole(path, &self.html()?)
    }

    /// Returns the page.
    ///
    /// # Errors
    /// A figure cannot be drawn.
    pub fn html(&self) -> Result<String> {
        let mut out = String::new();
        let title = escaped(self.title);
        let _ = write!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
             <h1>{title}</h1>\n<p>{}</p>\n",
            escaped(self.introduction)
        );
        self.contents(&mut out);
        self.setting(&mut out);
        for figure in self.figures {
            section(&mut out, figure)?;
        }
        out.push_str("</main>\n</body>\n</html>\n");
        Ok(out)
    }

    fn contents(&self, out: &mut String) {
        out.push_str("<nav><ul>\n");
        for figure in self.figures {
            let (name, title) = (escaped(&figure.name), escaped(&figure.title));
            let _ = writeln!(out, "<li><a href=\"#{name}\">{title}</a></li>");
        }
        out.push_str("</ul></nav>\n");
    }

    fn setting(&self, out: &mut String) {
        let machine = self.machine;
        let mut rows = vec![
            ("Machine", machine.to_string()),
            (
                "Load",
                format!(
                    "{:.2} before, {:.2} after",
                    machine.load_before, machine.load_after
                ),
            ),
            ("Started", utc(machine.started_unix_seconds)),
            ("Vellum", machine.version.clone()),
            ("Pool", pool_of(machine)),
            (
                "Rounds",
                format!("{}, medians; bars from least to greatest", machine.rounds),
            ),
        ];
        rows.extend(self.settings.iter().cloned());
        out.push_str("<h2 id=\"machine\">Machine and settings</h2>\n<table class=\"facts\">\n");
        for (name, value) in rows {
            let _ = writeln!(
                out,
                "<tr><th scope=\"row\">{}</th><td>{}</td></tr>",
                escaped(name),
                escaped(&value)
            );
        }
        out.push_str("</table>\n");
    }
}

/// Writes a file atomically.
fn write_whole(path: &Path, text: &str) -> Result<()> {
    let what = || format!("write {}", path.display());
    let dir = match path.parent() {
        Some(dir) if dir != Path::new("") => dir,
        _ => Path::new("."),
    };
    let mut file = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(dir)
        .map_err(doing(what()))?;
    file.write_all(text.as_bytes()).map_err(doing(what()))?;
    file.persist(path).map_err(doing(what()))?;
    Ok(())
}

/// The directory of the pools; also their size and medium, if these were the same for all.
fn pool_of(machine: &Machine) -> String {
    let (pool, instructions) = (&machine.pool, &machine.instructions);
    match machine.pool_bytes {
        0 => format!("in {pool} ({instructions})"),
        bytes => format!(
            "{} MiB in {pool} ({}, {instructions})",
            bytes >> 20,
            machine.media
        ),
    }
}

/// One figure: claim, findings, plot, notes, numbers.
fn section(out: &mut String, figure: &Figure) -> Result<()> {
    let _ = write!(
        out,
        "<section>\n<h2 id=\"{}\">{}</h2>\n<div class=\"beside\">\n\
         <div><h3>The paper</h3>\n<p>{}</p></div>\n<div><h3>Measured here</h3>\n<ul>\n",
        escaped(&figure.name),
        escaped(&figure.title),
        escaped(&figure.claim)
    );
    for found in &figure.found {
        let _ = writeln!(out, "<li>{}</li>", escaped(found));
    }
    out.push_str("</ul></div>\n</div>\n<figure>\n");
    out.push_str(&plot::svg(figure)?);
    out.push_str("</figure>\n");
    for note in &figure.notes {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escaped(note));
    }
    numbers(out, figure);
    out.push_str("</section>\n");
    Ok(())
}

fn numbers(out: &mut String, figure: &Figure) {
    let _ = write!(
        out,
        "<details><summary>Numbers: {}</summary>\n<div \
         class=\"wide\"><table>\n<thead><tr><th>{}</th>",
        escaped(&figure.y.caption()),
        escaped(&figure.x.caption())
    );
    for series in &figure.series {
        let _ = write!(out, "<th>{}</th>", escaped(&series.name));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for label in figure.labels() {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escaped(label));
        for series in &figure.series {
            let cell = series.at(label).map_or_else(|| "–".to_owned(), cell);
            let _ = write!(out, "<td>{cell}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div></details>\n");
}

/// A value with its spread; in brackets the ratio of a peer to it.
fn cell(point: &Point) -> String {
    let mut text = number(point.value);
    if point.low < point.high {
        let (low, high) = (number(point.low), number(point.high));
        let _ = write!(text, " <small>{low} to {high}</small>");
    }
    if let Some(ratio) = point.peer_over {
        let _ = write!(text, " ({})", number(ratio));
    }
    text
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// A time in UTC (the proleptic Gregorian calendar, with days counted from the first of March).
fn utc(unix_seconds: u64) -> String {
    let (days, seconds) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!(
        "{:04}-{month:02}-{day:02} {:02}:{:02} UTC",
        era * 400 + year + carry,
        seconds / 3600,
        seconds / 60 % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Axis, Mark, Scale, Series, Shape};

    fn figure(shape: Shape, scale: Scale) -> Figure {
        let points = |factor: f64| {
            ["1 KiB", "2 KiB", "4 KiB"]
                .into_iter()
                .zip(1..)
                .filter_map(|(at, n)| {
                    let value = factor * f64::from(n);
                    Point::of_rounds(at, &[value * 0.9, value, value * 1.2])
                })
                .collect()
        };
        Figure {
            name: "size".into(),
            title: "Time < size & \"such\"".into(),
            claim: "It grows.".into(),
            found: vec!["It grew.".into()],
            x: Axis::labels("Request"),
            y: Axis::of("Time", "ns", scale),
            shape,
            series: vec![
                Series {
                    name: "one".into(),
                    points: points(10.0),
                },
                Series {
                    name: "two".into(),
                    points: points(300.0),
                },
            ],
            marks: vec![Mark {
                at: "2 KiB".into(),
                what: "A mark".into(),
            }],
            notes: vec!["A note.".into()],
        }
    }

    fn page(figures: &[Figure]) -> String {
        let machine = Machine::look();
        let page = Page {
            title: "Figures",
            introduction: "All of them.",
            machine: &machine,
            settings: vec![("Files", "3".into())],
            figures,
        };
        page.html().expect("a page")
    }

    #[test]
    fn a_page_has_all_that_a_figure_says() {
        let html = page(&[
            figure(Shape::Lines, Scale::Log),
            figure(Shape::Bars, Scale::Linear),
        ]);
        for text in [
            "It grows.",
            "It grew.",
            "A note.",
            "A mark",
            "Time [ns]",
            "Request",
            "Linux",
            "<th scope=\"row\">Files</th><td>3</td>",
            "Time &lt; size &amp; &quot;such&quot;",
            "30.0 <small>27.0 to 36.0</small>",
            "900 <small>810 to 1080</small>",
        ] {
            assert!(html.contains(text), "{text}");
        }
        assert_eq!(html.matches("<svg").count(), 2);
        assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    }

    #[test]
    fn a_page_needs_neither_network_nor_scripts() {
        let html = page(&[figure(Shape::Bars, Scale::Log)]);
        let html = html.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for foreign in ["http:", "https:", "<script", "<link", "@import", "url("] {
            assert!(!html.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn a_figure_without_values_is_drawn() {
        for shape in [Shape::Lines, Shape::Bars] {
            for scale in [Scale::Linear, Scale::Log] {
                let mut figure = figure(shape, scale);
                figure.series.truncate(1);
                figure.series[0].points.clear();
                assert!(page(&[figure]).contains("</svg>"));
            }
        }
    }

    #[test]
    fn a_page_is_written_as_a_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let machine = Machine::look();
        let page = Page {
            title: "Figures",
            introduction: "",
            machine: &machine,
            settings: Vec::new(),
            figures: &[],
        };
        let path = dir.path().join("page.html");
        page.write(&path).expect("written");
        let text = std::fs::read_to_string(&path).expect("readable");
        assert!(text.ends_with("</html>\n"));
        assert!(page.write(&dir.path().join("missing/page.html")).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1);
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_763_999_999), "2025-11-24 15:59 UTC");
        assert_eq!(utc(4_107_542_399), "2100-02-28 23:59 UTC");
        assert_eq!(utc(4_107_542_400), "2100-03-01 00:00 UTC");
    }
}
