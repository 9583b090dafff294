//! Rounds of every mapping at every place of a chart, and the chart that comes of them.

use super::bed::PEER;
use super::sample::Sample;
use crate::figure::{Axis, Chart, CountsPerOp, Point, Series, median};
use vellum::media::count::Counts;

/// A place on the horizontal axis.
#[derive(Clone, Debug)]
pub(super) struct Place {
    x: f64,
    label: Option<String>,
}

impl Place {
    /// Labels, side by side.
    pub(super) fn labelled(labels: &[&str]) -> Vec<Self> {
        let label = |(x, label): (usize, &&str)| Self {
            x: x as f64,
            label: Some((*label).to_owned()),
        };
        labels.iter().enumerate().map(label).collect()
    }
}

/// A chart that is being measured.
pub(super) struct Grid {
    title: String,
    x: Axis,
    y: Axis,
    sides: Vec<String>,
    places: Vec<Place>,
    /// By side and place, a sample for each round.
    samples: Vec<Vec<Vec<Sample>>>,
}

impl Grid {
    pub(super) fn new(
        title: &str,
        x: Axis,
        y: Axis,
        sides: impl IntoIterator<Item = String>,
        places: Vec<Place>,
    ) -> Self {
        let sides: Vec<String> = sides.into_iter().collect();
        Self {
            title: title.into(),
            samples: vec![vec![Vec::new(); places.len()]; sides.len()],
            x,
            y,
            sides,
            places,
        }
    }

    /// Notes what a side came to at a place in a round; round 0 warms up. Places that a side cannot be at
    /// are never noted.
    pub(super) fn note(&mut self, round: usize, side: usize, place: usize, sample: Sample) {
        if round > 0 {
            self.samples[side][place].push(sample);
        }
    }

    /// The chart.
    pub(super) fn chart(self) -> Chart {
        let peer = self.sides.iter().position(|side| side == PEER);
        let series = self.sides.iter().enumerate().map(|(side, name)| {
            let points = self.places.iter().enumerate().filter_map(|(at, place)| {
                let peer = peer.map(|peer| self.samples[peer][at].as_slice());
                point(place, &self.samples[side][at], peer.unwrap_or_default())
            });
            Series {
                name: name.clone(),
                points: points.collect(),
            }
        });
        Chart {
            series: series.collect(),
            title: self.title,
            x: self.x,
            y: self.y,
        }
    }
}

fn point(place: &Place, samples: &[Sample], peer: &[Sample]) -> Option<Point> {
    let values = || samples.iter().map(|sample| sample.value);
    let ratios = peer
        .iter()
        .zip(values())
        .map(|(peer, own)| peer.value / own);
    let mut counts = Counts::default();
    samples.iter().for_each(|sample| counts += sample.counts);
    let ops = samples.iter().map(|sample| sample.ops).sum();
    (!samples.is_empty()).then(|| Point {
        x: place.x,
        label: place.label.clone(),
        y: median(values().collect()),
        low: values().fold(f64::INFINITY, f64::min),
        high: values().fold(0.0, f64::max),
        rounds: samples.len(),
        peer_over: (!peer.is_empty()).then(|| median(ratios.collect())),
        counts: Some(CountsPerOp::new(counts, ops)),
    })
}

impl Chart {
    /// The point of a series at a place, by its label or number.
    pub(super) fn point(&self, series: &str, place: &str) -> Option<&Point> {
        let series = self.series.iter().find(|one| one.name == series)?;
        let is_there = |point: &&Point| match &point.label {
            Some(label) => label == place,
            None => point.x.to_string() == place,
        };
        series.points.iter().find(is_there)
    }
}
