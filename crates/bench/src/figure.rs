//! Figures: measured values, compared with what a paper says, ready to be drawn.
//!
//! A figure is plain data, the same for every command. It has a horizontal axis of ordered labels
//! and a vertical axis of numbers. Each series has a value with its spread at some or all labels.

use serde::Serialize;
use vellum::media::count::Counts;

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The name on the command line, and which part of that figure this is: `block-size-random`.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// The paper's claim, with its place in the paper.
    pub claim: String,
    /// The findings, in sentences with numbers of this run.
    pub found: Vec<String>,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// How it is drawn.
    pub shape: Shape,
    /// The series, in the order of the legend.
    pub series: Vec<Series>,
    /// Events at labels, which plots show.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// An event while a figure was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// The label on the horizontal axis.
    pub at: String,
    /// The event.
    pub what: String,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// The quantity that it shows.
    pub title: String,
    /// The unit; empty for labels and ratios.
    pub unit: String,
    /// How numbers are placed on it.
    pub scale: Scale,
}

/// How numbers are placed on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Linear, from zero.
    Linear,
    /// Logarithmic; every value is above zero.
    Log,
}

/// How values are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Lines through points, where the horizontal axis is a quantity.
    Lines,
    /// Groups of bars, where the horizontal axis is a list.
    Bars,
}

/// A series of values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// The legend's text.
    pub name: String,
    /// The values, at most one for each label.
    pub points: Vec<Point>,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Its label on the horizontal axis.
    pub at: String,
    /// The value: the median of several rounds.
    pub value: f64,
    /// The least of the rounds.
    pub low: f64,
    /// The greatest of the rounds.
    pub high: f64,
    /// The ratio of a peer's value to this one, taken in the same rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_over: Option<f64>,
    /// What an operation did to memory, if that was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<CountsPerOp>,
}

/// What an operation did to memory, on average.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CountsPerOp {
    /// Lines of a structure that were accessed.
    pub probes: f64,
    /// Lines flushed.
    pub lines_flushed: f64,
    /// Fences.
    pub fences: f64,
    /// Bytes stored into the pool.
    pub pool_bytes_written: f64,
    /// Allocations.
    pub allocations: f64,
}

impl CountsPerOp {
    /// The averages for each of `ops` operations, from the total counts.
    pub fn new(counts: Counts, ops: u64) -> Self {
        let per_op = |count: u64| count as f64 / ops.max(1) as f64;
        Self {
            probes: per_op(counts.probes),
            lines_flushed: per_op(counts.lines_flushed),
            fences: per_op(counts.fences),
            pool_bytes_written: per_op(counts.pool_bytes_written),
            allocations: per_op(counts.allocations),
        }
    }
}

impl Axis {
    /// An axis of labels.
    pub fn labels(title: impl Into<String>) -> Self {
        Self::of(title, "", Scale::Linear)
    }

    /// An axis of numbers.
    pub fn of(title: impl Into<String>, unit: impl Into<String>, scale: Scale) -> Self {
        Self {
            title: title.into(),
            unit: unit.into(),
            scale,
        }
    }

    /// Title and unit.
    pub fn caption(&self) -> String {
        match self.unit.as_str() {
            "" => self.title.clone(),
            unit => format!("{} [{unit}]", self.title),
        }
    }
}

impl Point {
    /// A value without a spread.
    pub fn exact(at: impl Into<String>, value: f64) -> Self {
        Self {
            at: at.into(),
            value,
            low: value,
            high: value,
            peer_over: None,
            counts: None,
        }
    }

    /// A value with the least and the greatest.
    pub fn between(at: impl Into<String>, value: f64, [low, high]: [f64; 2]) -> Self {
        Self {
            low,
            high,
            ..Self::exact(at, value)
        }
    }

    /// The median of rounds, with the least and the greatest; `None` if there are no rounds.
    pub fn of_rounds(at: impl Into<String>, rounds: &[f64]) -> Option<Self> {
        let mut sorted = rounds.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            at: at.into(),
            value: median(&sorted),
            low: *sorted.first()?,
            high: *sorted.last()?,
            peer_over: None,
            counts: None,
        })
    }
}

impl Figure {
    /// The labels of the horizontal axis: each once, in the order in which the series first name
    /// them.
    pub fn labels(&self) -> Vec<&str> {
        let mut labels: Vec<&str> = Vec::new();
        for point in self.series.iter().flat_map(|series| &series.points) {
            if !labels.contains(&point.at.as_str()) {
                labels.push(&point.at);
            }
        }
        labels
    }

    /// The series of that name.
    pub fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }
}

impl Series {
    /// The value at a label.
    pub fn at(&self, label: &str) -> Option<&Point> {
        self.points.iter().find(|point| point.at == label)
    }
}

/// The median. For an even number of values it is the mean of the two in the middle; for none it is
/// zero.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (len, middle) if len % 2 == 0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
        (_, middle) => sorted[middle],
    }
}

/// The difference between the largest and the smallest value, as a fraction of the median.
pub(crate) fn spread(values: &[f64]) -> f64 {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    match median(values) {
        middle if middle > 0.0 => (most - least) / middle,
        _ => 0.0,
    }
}

/// Rounds to `digits` after the point; values that are not numbers become 0.
pub(crate) fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    let rounded = (value * scale).round() / scale;
    if rounded.is_finite() { rounded } else { 0.0 }
}

/// Bytes with a unit: `64 KiB`.
pub fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024 && value.is_multiple_of(1024) && unit + 1 < units.len() {
        value /= 1024;
        unit += 1;
    }
    format!("{value} {}", units[unit])
}

/// A number with three significant digits, or with all digits before the point.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 || size == 0.0 => format!("{value:.2}"),
        size if size >= 0.000_999_5 => format!("{value:.3}"),
        _ => format!("{value:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_become_a_median_between_the_extremes() {
        let point = Point::of_rounds("x", &[3.0, 1.0, 2.0]).expect("rounds");
        assert_eq!((point.low, point.value, point.high), (1.0, 2.0, 3.0));
        let point = Point::of_rounds("x", &[4.0, 1.0, 2.0, 3.0]).expect("rounds");
        assert_eq!((point.low, point.value, point.high), (1.0, 2.5, 4.0));
        assert_eq!(Point::of_rounds("x", &[]), None);
    }

    #[test]
    fn labels_keep_the_order_in_which_they_were_named() {
        let series = |name: &str, labels: &[&str]| Series {
            name: name.into(),
            points: labels.iter().map(|&at| Point::exact(at, 1.0)).collect(),
        };
        let figure = Figure {
            name: String::new(),
            title: String::new(),
            claim: String::new(),
            found: Vec::new(),
            x: Axis::labels("x"),
            y: Axis::of("time", "ns", Scale::Linear),
            shape: Shape::Bars,
            series: vec![series("a", &["2", "4"]), series("b", &["2", "3", "4"])],
            marks: Vec::new(),
            notes: Vec::new(),
        };
        assert_eq!(figure.labels(), ["2", "4", "3"]);
        assert!(figure.series("b").and_then(|b| b.at("3")).is_some());
        assert_eq!(figure.y.caption(), "time [ns]");
        assert_eq!(figure.x.caption(), "x");
    }

    #[test]
    fn medians_and_spreads() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(spread(&[]), 0.0);
        assert_eq!(spread(&[9.0, 10.0, 12.0]), 0.3);
        assert_eq!(round(f64::NAN, 1), 0.0);
        assert_eq!(round(1.25, 1), 1.3);
    }

    #[test]
    fn numbers_and_bytes_are_short() {
        assert_eq!(bytes(65_536), "64 KiB");
        assert_eq!(bytes(1000), "1000 B");
        assert_eq!(bytes(3 << 20), "3 MiB");
        assert_eq!(number(1234.5), "1234");
        assert_eq!(number(12.34), "12.3");
        assert_eq!(number(0.0), "0.00");
        assert_eq!(number(0.0123), "0.012");
    }
}
