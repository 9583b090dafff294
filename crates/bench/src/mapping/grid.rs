//! Rounds of every mapping at every label of a figure, and the resulting figure.

use vellum::media::count::Counts;

use super::sample::Sample;
use super::setting::{HASHFS, PEER, Subject};
use crate::figure::{Axis, CountsPerOp, Figure, Point, Scale, Series, Shape, median, number};
use crate::target::Target;

/// The target where mapping does not depend on what is varied: the most that the most expensive
/// label may take over the cheapest.
const FLAT: f64 = 1.1;

/// A figure that is being measured.
pub(crate) struct Grid {
    figure: Figure,
    /// The side that sentences are about, and the one that ratios compare with.
    own: &'static str,
    peer: &'static str,
    sides: Vec<String>,
    labels: Vec<String>,
    /// For each side and label, a sample for each round.
    samples: Vec<Vec<Vec<Sample>>>,
}

impl Grid {
    /// Nanoseconds of an operation for things that are compared.
    pub(crate) fn bars(name: &str, title: &str, x: &str, labels: &[&str]) -> Self {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        Self::new(name, title, Axis::labels(x), Shape::Bars, labels)
    }

    /// Nanoseconds of an operation against a quantity.
    pub(crate) fn lines(name: &str, title: &str, x: Axis, labels: Vec<String>) -> Self {
        Self::new(name, title, x, Shape::Lines, labels)
    }

    fn new(name: &str, title: &str, x: Axis, shape: Shape, labels: Vec<String>) -> Self {
        Self {
            figure: Figure {
                name: name.into(),
                title: title.into(),
                claim: String::new(),
                found: Vec::new(),
                x,
                y: Axis::of("time of an operation", "ns", Scale::Linear),
                shape,
                series: Vec::new(),
                marks: Vec::new(),
                notes: Vec::new(),
            },
            own: HASHFS,
            peer: PEER,
            sides: Vec::new(),
            labels,
            samples: Vec::new(),
        }
    }

    /// Sets the paper's claim, with its place in the paper.
    #[must_use]
    pub(crate) fn claim(mut self, claim: &str) -> Self {
        self.figure.claim = claim.into();
        self
    }

    /// Adds a note for the reader.
    #[must_use]
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.figure.notes.push(note.into());
        self
    }

    /// Sets a vertical axis other than the time of an operation.
    #[must_use]
    pub(crate) fn of(mut self, y: Axis) -> Self {
        self.figure.y = y;
        self
    }

    /// Sets the subjects as sides.
    #[must_use]
    pub(super) fn sides(mut self, subjects: &[Subject]) -> Self {
        let names = subjects
            .iter()
            .map(|subject| subject.design.name().to_owned());
        let notes = subjects.iter().filter_map(Subject::shortcoming);
        self.figure.notes.extend(notes);
        self.named(names.collect(), HASHFS, PEER)
    }

    /// Sets sides with these names; sentences are about `own`, and ratios compare with `peer`.
    #[must_use]
    pub(crate) fn named(
        mut self,
        sides: Vec<String>,
        own: &'static str,
        peer: &'static str,
    ) -> Self {
        (self.sides, self.own, self.peer) = (sides, own, peer);
        self.samples = vec![vec![Vec::new(); self.labels.len()]; self.sides.len()];
        self
    }

    /// Adds the result of a side at a label in a round; round 0 warms up.
    pub(crate) fn add(&mut self, round: usize, side: usize, label: usize, sample: Sample) {
        if round > 0 {
            self.samples[side][label].push(sample);
        }
    }

    fn samples_of(&self, side: &str) -> Option<&[Vec<Sample>]> {
        let side = self.sides.iter().position(|name| name == side)?;
        Some(&self.samples[side])
    }

    /// How much a side depends on what is varied: its greatest value over its least. Each value is
    /// the median over the rounds of its ratio to the first label in the same round, so that
    /// differences between rounds do not matter.
    pub(crate) fn dependence(&self, side: &str) -> Option<f64> {
        let samples = self.samples_of(side)?;
        let first = samples.first()?;
        let ratios: Vec<f64> = samples
            .iter()
            .filter_map(|samples| ratio(samples, first))
            .collect();
        let least = ratios.iter().copied().reduce(f64::min)?;
        let most = ratios.iter().copied().reduce(f64::max)?;
        Some(most / least)
    }

    /// The ratio of a side to another one at a label, in the same round.
    pub(crate) fn over(&self, side: &str, other: &str, label: &str) -> Option<f64> {
        let at = self.labels.iter().position(|known| known == label)?;
        let (side, other) = (self.samples_of(side)?, self.samples_of(other)?);
        ratio(&side[at], &other[at])
    }

    /// The ratio of a side's values at two labels, in the same round.
    pub(crate) fn over_labels(&self, side: &str, label: &str, other: &str) -> Option<f64> {
        let place = |label| self.labels.iter().position(|known| known == label);
        let samples = self.samples_of(side)?;
        ratio(&samples[place(label)?], &samples[place(other)?])
    }

    /// The ratio of a side's values at a label and at the first one, in the same round.
    pub(crate) fn over_first(&self, side: &str, label: &str) -> Option<f64> {
        let at = self.labels.iter().position(|known| known == label)?;
        let samples = self.samples_of(side)?;
        ratio(&samples[at], samples.first()?)
    }

    /// The same for the last label.
    pub(crate) fn last_over_first(&self, side: &str) -> Option<f64> {
        self.over_first(side, self.labels.last()?)
    }

    /// The value of a side at a label: the median over the rounds.
    pub(crate) fn middle(&self, side: &str, label: &str) -> Option<f64> {
        let at = self.labels.iter().position(|known| known == label)?;
        let samples = self.samples_of(side)?[at].iter();
        let values: Vec<f64> = samples.map(|sample| sample.value).collect();
        (!values.is_empty()).then(|| median(&values))
    }

    /// The difference between a side's values at the last and the first label: the median over the
    /// rounds.
    pub(crate) fn last_less_first(&self, side: &str) -> Option<f64> {
        let samples = self.samples_of(side)?;
        let rounds = samples.last()?.iter().zip(samples.first()?);
        let more: Vec<f64> = rounds
            .map(|(last, first)| last.value - first.value)
            .collect();
        (!more.is_empty()).then(|| median(&more))
    }

    /// The target that a side does not depend on what is varied. It names the probes, which no
    /// disturbance changes.
    pub(crate) fn flat(&self, side: &str, varied: &str, what: &str) -> Option<Target> {
        let probes = self.probes(side)?;
        let what = format!("{side}, dearest over cheapest {varied}, {what} ({probes} probes)");
        Some(Target::at_most(what, self.dependence(side)?, FLAT))
    }

    /// The least and the most probes of a side's operations.
    pub(crate) fn probes(&self, side: &str) -> Option<String> {
        let samples = self.samples_of(side)?.iter();
        range(samples.filter_map(|samples| Some(counts_of(samples)?.probes)))
    }

    /// The figure, with its findings in sentences.
    pub(crate) fn figure(mut self) -> Figure {
        let peer = self.samples_of(self.peer).unwrap_or_default();
        let series = self.sides.iter().zip(&self.samples).map(|(name, samples)| {
            let points = self.labels.iter().zip(samples).enumerate();
            let points = points.filter_map(|(at, (label, samples))| {
                point(
                    label,
                    samples,
                    peer.get(at).map(Vec::as_slice).unwrap_or_default(),
                )
            });
            Series {
                name: name.clone(),
                points: points.collect(),
            }
        });
        let series: Vec<Series> = series.collect();
        self.figure.series = series;
        let found = told(&self.figure, self.own, |side, label| {
            self.over(side, self.own, label)
        });
        self.figure.found = found;
        self.figure
    }
}

/// The median over the rounds of the ratios of these values to those of the same round.
fn ratio(samples: &[Sample], over: &[Sample]) -> Option<f64> {
    let ratios = samples.iter().zip(over);
    let ratios: Vec<f64> = ratios
        .map(|(sample, over)| sample.value / over.value)
        .collect();
    (!ratios.is_empty()).then(|| median(&ratios))
}

/// The counts of an operation, if there are any.
fn counts_of(samples: &[Sample]) -> Option<CountsPerOp> {
    let mut counts = Counts::default();
    samples.iter().for_each(|sample| counts += sample.counts);
    let ops = samples.iter().map(|sample| sample.ops).sum();
    (ops > 0).then(|| CountsPerOp::new(counts, ops))
}

fn point(label: &str, samples: &[Sample], peer: &[Sample]) -> Option<Point> {
    let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    Some(Point {
        peer_over: ratio(peer, samples),
        counts: counts_of(samples),
        ..Point::of_rounds(label, &values)?
    })
}

/// The point of a series at a label.
pub(crate) fn at<'f>(figure: &'f Figure, series: &str, label: &str) -> Option<&'f Point> {
    figure.series(series)?.at(label)
}

/// Describes a figure in sentences with numbers: the values of the series `own`, the ratios of
/// other series to it, and probes. `over` returns the ratio of a series' value at a label to that
/// of `own`.
pub(crate) fn told(
    figure: &Figure,
    own: &str,
    over: impl Fn(&str, &str) -> Option<f64>,
) -> Vec<String> {
    let mut told = Vec::new();
    let name = own;
    let Some(own) = figure.series(name) else {
        return told;
    };
    let by_value = |a: &&Point, b: &&Point| a.value.total_cmp(&b.value);
    let (least, most) = (
        own.points.iter().min_by(by_value),
        own.points.iter().max_by(by_value),
    );
    if let (Some(least), Some(most)) = (least, most) {
        told.push(format!(
            "{name}, {}: {} ({}) to {} ({}).",
            figure.y.caption(),
            number(least.value),
            least.at,
            number(most.value),
            most.at
        ));
    }
    let of_each = |what: &str, values: &dyn Fn(&Series) -> Option<String>| {
        let series = figure.series.iter();
        let each = series.filter_map(|series| Some(format!("{} {}", series.name, values(series)?)));
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| format!("{what}: {}.", each.join(", ")))
    };
    let labels = figure.labels();
    told.extend(of_each(&format!("Over {name}"), &|series| {
        let others = labels.iter().filter(|_| series.name != name);
        range(others.filter_map(|label| over(&series.name, label)))
    }));
    told.extend(of_each("Probes of an operation", &|series| {
        let points = series.points.iter();
        range(points.filter_map(|point| Some(point.counts?.probes)))
    }));
    told
}

/// The least and the greatest value; only one number if they are equal.
fn range(values: impl Iterator<Item = f64>) -> Option<String> {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let (least, most) = (number(*values.first()?), number(*values.last()?));
    Some(if least == most {
        least
    } else {
        format!("{least} to {most}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(values: [&[f64]; 3]) -> Grid {
        let labels = ["1", "2", "3"].map(String::from);
        let mut grid = Grid::lines("x", "X", Axis::labels("x"), labels.into());
        grid.sides = vec![HASHFS.into(), PEER.into()];
        grid.samples = vec![vec![Vec::new(); 3]; 2];
        for (label, values) in values.into_iter().enumerate() {
            for (round, &value) in values.iter().enumerate() {
                let counts = Counts {
                    probes: 2 + label as u64,
                    ..Counts::default()
                };
                let sample = Sample {
                    value,
                    ops: 2,
                    counts,
                };
                grid.add(round, 0, label, sample);
                let twice = Sample {
                    value: value * 2.0,
                    ..sample
                };
                grid.add(round, 1, label, twice);
            }
        }
        grid
    }

    /// Rounds that are slow as a whole do not show as a dependence; the first round does not count.
    #[test]
    fn dependence_is_of_values_of_the_same_round() {
        let flat = grid([
            &[9.0, 10.0, 30.0, 20.0],
            &[1.0, 10.0, 30.0, 20.0],
            &[5.0, 10.0, 30.0, 20.0],
        ]);
        assert_eq!(flat.dependence(HASHFS), Some(1.0));
        let steep = grid([
            &[1.0, 10.0, 30.0, 20.0],
            &[1.0, 5.0, 15.0, 19.0],
            &[1.0, 20.0, 60.0, 40.0],
        ]);
        assert_eq!(steep.dependence(HASHFS), Some(4.0));
        assert_eq!(steep.probes(HASHFS).as_deref(), Some("1.00 to 2.00"));
        assert_eq!(steep.dependence("radix"), None);
    }

    #[test]
    fn a_figure_is_described_in_sentences() {
        let figure = grid([&[1.0, 10.0], &[1.0, 40.0], &[1.0, 20.0]]).figure();
        assert_eq!(
            figure.found,
            [
                "hashfs, time of an operation [ns]: 10.0 (1) to 40.0 (2).",
                "Over hashfs: extent 2.00.",
                "Probes of an operation: hashfs 1.00 to 2.00, extent 1.00 to 2.00.",
            ]
        );
    }
}
