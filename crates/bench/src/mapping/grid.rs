//! Rounds of every mapping at every place of a figure, and the figure that comes of them.

use vellum::media::count::Counts;

use super::bed::{PEER, Subject};
use super::sample::Sample;
use crate::figure::{Axis, CountsPerOp, Figure, Point, Scale, Series, Shape, median};

/// A figure that is being measured.
pub(super) struct Grid {
    figure: Figure,
    sides: Vec<String>,
    labels: Vec<String>,
    /// By side and label, a sample for each round.
    samples: Vec<Vec<Vec<Sample>>>,
}

impl Grid {
    /// Nanoseconds of an operation by things that stand side by side.
    pub(super) fn bars(name: &str, title: &str, x: &str, labels: &[&str]) -> Self {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        Self::new(name, title, Axis::labels(x), Shape::Bars, labels)
    }

    /// Nanoseconds of an operation by a quantity.
    pub(super) fn lines(name: &str, title: &str, x: Axis, labels: Vec<String>) -> Self {
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
                notes: Vec::new(),
            },
            sides: Vec::new(),
            labels,
            samples: Vec::new(),
        }
    }

    /// What the paper says, with the place in it.
    #[must_use]
    pub(super) fn claim(mut self, claim: &str) -> Self {
        self.figure.claim = claim.into();
        self
    }

    /// What a reader should know beside.
    #[must_use]
    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        self.figure.notes.push(note.into());
        self
    }

    /// Measures something else than the time of an operation.
    #[must_use]
    pub(super) fn of(mut self, y: Axis) -> Self {
        self.figure.y = y;
        self
    }

    /// Lets these take part.
    #[must_use]
    pub(super) fn sides(mut self, subjects: &[Subject]) -> Self {
        let names = subjects
            .iter()
            .map(|subject| subject.design.name().to_owned());
        self.sides = names.collect();
        let notes = subjects.iter().filter_map(Subject::shortcoming);
        self.figure.notes.extend(notes);
        self.samples = vec![vec![Vec::new(); self.labels.len()]; self.sides.len()];
        self
    }

    /// Notes what a side came to at a label in a round; round 0 warms up.
    pub(super) fn add(&mut self, round: usize, side: usize, label: usize, sample: Sample) {
        if round > 0 {
            self.samples[side][label].push(sample);
        }
    }

    /// The figure.
    pub(super) fn figure(mut self) -> Figure {
        let peer = self.sides.iter().position(|side| side == PEER);
        let series = self.sides.iter().zip(&self.samples).map(|(name, samples)| {
            let points = self.labels.iter().zip(samples).enumerate();
            let points = points.filter_map(|(at, (label, samples))| {
                let peer = peer.map(|peer| self.samples[peer][at].as_slice());
                point(label, samples, peer.unwrap_or_default())
            });
            Series {
                name: name.clone(),
                points: points.collect(),
            }
        });
        self.figure.series = series.collect();
        self.figure
    }
}

fn point(label: &str, samples: &[Sample], peer: &[Sample]) -> Option<Point> {
    let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    let ratios = peer.iter().zip(&values);
    let ratios: Vec<f64> = ratios.map(|(peer, own)| peer.value / own).collect();
    let mut counts = Counts::default();
    samples.iter().for_each(|sample| counts += sample.counts);
    let ops = samples.iter().map(|sample| sample.ops).sum();
    Some(Point {
        peer_over: (!ratios.is_empty()).then(|| median(&ratios)),
        counts: (ops > 0).then(|| CountsPerOp::new(counts, ops)),
        ..Point::of_rounds(label, &values)?
    })
}

/// The point of a series at a label.
pub(super) fn at<'f>(figure: &'f Figure, series: &str, label: &str) -> Option<&'f Point> {
    figure.series(series)?.at(label)
}

/// The greatest value of a series over its least: how much it depends on what is varied.
pub(super) fn dependence(figure: &Figure, series: &str) -> Option<f64> {
    let points = &figure.series(series)?.points;
    let values = || points.iter().map(|point| point.value);
    let least = values().fold(f64::INFINITY, f64::min);
    Some(values().fold(0.0, f64::max) / least)
}
