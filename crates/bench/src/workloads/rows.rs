//! The results of workloads: rows, and figures of them.

use std::fmt;

use serde::Serialize;

use crate::figure::{Axis, Figure, Point, Scale, Series, Shape, median, number};
use crate::variant::Variant;

/// The result of a workload on one side.
#[derive(Clone, Debug, Serialize)]
pub struct WorkloadRow {
    /// The figure.
    pub figure: &'static str,
    /// The workload, with its variant: `fileserver small`.
    pub workload: String,
    /// The side, as in legends.
    pub side: String,
    /// The pool's mapping and layout score; `None` for a peer.
    pub pool: Option<Variant>,
    /// The rule for reading the pool; `None` for a peer.
    pub rule: Option<&'static str>,
    /// Threads.
    pub threads: usize,
    /// Operations in a round.
    pub operations: u64,
    /// Operations per second: the median of the rounds. Time in which other programs used the
    /// processor does not count.
    pub ops_per_second: f64,
    /// The least and the greatest of the rounds.
    pub ops_per_second_spread: [f64; 2],
    /// This side's speed over that of the first peer in the same round: the median over the rounds.
    pub over_peer: Option<f64>,
    /// The same over the first side.
    pub over_first: f64,
    /// The fraction of time for finding blocks: the median; `None` for a peer.
    pub lookup_share: Option<f64>,
    /// The fraction of time for allocating and freeing blocks: the median; `None` for a peer.
    pub change_share: Option<f64>,
    /// Whether the page table of a file that stays open gave up, so that more of the file was read
    /// by search than the rule wanted.
    pub page_table_gave_up: bool,
}

impl WorkloadRow {
    /// The fraction of the time that the mapping takes.
    pub fn mapping_share(&self) -> Option<f64> {
        Some(self.lookup_share? + self.change_share?)
    }

    fn point(&self) -> Point {
        let spread = self.ops_per_second_spread;
        Point::between(self.workload.clone(), self.ops_per_second, spread)
    }
}

impl fmt::Display for WorkloadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [low, high] = self.ops_per_second_spread;
        write!(
            f,
            "{:<9} {:<18} {:<26} {:>9.0} op/s ({low:.0} to {high:.0})",
            self.figure, self.workload, self.side, self.ops_per_second
        )?;
        if let Some(ratio) = self.over_peer {
            write!(f, ", {ratio:.2} of the peer")?;
        }
        if let (Some(lookup), Some(change)) = (self.lookup_share, self.change_share) {
            let (lookup, change) = (lookup * 100.0, change * 100.0);
            write!(f, ", mapping {lookup:.1} % finding, {change:.1} % changing")?;
        }
        if self.page_table_gave_up {
            write!(f, ", a page table gave up")?;
        }
        Ok(())
    }
}

/// The measurements of a side, round by round.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds {
    pub(super) speeds: Vec<f64>,
    pub(super) lookup_shares: Vec<f64>,
    pub(super) change_shares: Vec<f64>,
    pub(super) operations: u64,
}

impl Rounds {
    /// The median over the rounds of these speeds over those of another side.
    pub(super) fn over(&self, other: &Self) -> f64 {
        let ratios = self.speeds.iter().zip(&other.speeds);
        let ratios: Vec<f64> = ratios.map(|(mine, theirs)| mine / theirs).collect();
        median(&ratios)
    }
}

/// A paper's claims about workloads, and the name of their figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    /// The figure's name.
    pub(crate) name: &'static str,
    /// Its title.
    pub(crate) title: &'static str,
    /// The paper's claim.
    pub(crate) claim: &'static str,
    /// A note for the reader.
    pub(crate) note: &'static str,
}

/// Two figures of the rows of one name: operations per second, and the share of mapping in the
/// time.
pub(crate) fn figure_of(about: About, rows: &[WorkloadRow]) -> Vec<Figure> {
    let rows: Vec<&WorkloadRow> = rows.iter().filter(|row| row.figure == about.name).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let figure = |name: String, title: String, y: Axis, found, series| Figure {
        name,
        title,
        claim: about.claim.into(),
        found,
        x: Axis::labels("Workload"),
        y,
        shape: Shape::Bars,
        series,
        marks: Vec::new(),
        notes: vec![about.note.into()],
    };
    vec![
        figure(
            about.name.into(),
            about.title.into(),
            Axis::of("Operations a second", "1/s", Scale::Log),
            speeds_found(&rows),
            by_side(&rows, |row| Some(row.point())),
        ),
        figure(
            format!("{}-share", about.name),
            format!("{}: time spent in mapping", about.title),
            Axis::of("Part of the time", "%", Scale::Linear),
            shares_found(&rows),
            by_side(&rows, |row| {
                let share = row.mapping_share()? * 100.0;
                Some(Point::exact(row.workload.clone(), share))
            }),
        ),
    ]
}

fn by_side(rows: &[&WorkloadRow], point: impl Fn(&WorkloadRow) -> Option<Point>) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let Some(point) = point(row) else { continue };
        match series.iter_mut().find(|series| series.name == row.side) {
            Some(series) => series.points.push(point),
            None => series.push(Series {
                name: row.side.clone(),
                points: vec![point],
            }),
        }
    }
    series
}

/// A sentence for each side that compares it with the first one over all workloads.
fn speeds_found(rows: &[&WorkloadRow]) -> Vec<String> {
    let Some(first) = rows.first() else {
        return Vec::new();
    };
    let sides = by_side(rows, |row| {
        Some(Point::exact(row.workload.clone(), row.over_first))
    });
    let others = sides.iter().filter(|series| series.name != first.side);
    let sentence = |series: &Series| {
        let by_ratio = |a: &&Point, b: &&Point| a.value.total_cmp(&b.value);
        let (least, most) = (
            series.points.iter().min_by(by_ratio)?,
            series.points.iter().max_by(by_ratio)?,
        );
        Some(format!(
            "{} executes {} ({}) to {} ({}) times the operations of {}.",
            series.name,
            number(least.value),
            least.at,
            number(most.value),
            most.at,
            first.side
        ))
    };
    let mut found: Vec<String> = others.filter_map(sentence).collect();
    let gave_up = rows.iter().filter(|row| row.page_table_gave_up);
    found.extend(gave_up.map(|row| {
        format!(
            "{}, {}: a page table gave up because the process had no areas left; the rest was \
             read by search.",
            row.side, row.workload
        )
    }));
    found
}

fn shares_found(rows: &[&WorkloadRow]) -> Vec<String> {
    let sides = by_side(rows, |row| {
        Some(Point::exact(
            row.workload.clone(),
            row.mapping_share()? * 100.0,
        ))
    });
    let sentence = |series: &Series| {
        let by_share = |a: &&Point, b: &&Point| a.value.total_cmp(&b.value);
        let (least, most) = (
            series.points.iter().min_by(by_share)?,
            series.points.iter().max_by(by_share)?,
        );
        Some(format!(
            "{}: {} % ({}) to {} % ({}).",
            series.name,
            number(least.value),
            least.at,
            number(most.value),
            most.at
        ))
    };
    let mut found: Vec<String> = sides.iter().filter_map(sentence).collect();
    let first = sides
        .iter()
        .find(|series| Some(&series.name) == rows.first().map(|row| &row.side));
    if let Some(first) = first {
        let most = first
            .points
            .iter()
            .map(|point| point.value)
            .fold(0.0, f64::max);
        found.push(format!(
            "A mapping that cost nothing would execute at most {} times the operations of {}.",
            number(1.0 / (1.0 - most.min(99.0) / 100.0)),
            first.name
        ));
    }
    found
}
