//! Times of operations, and the disk requests that they cause.

use std::time::Instant;

use super::disk::{Disk, Requests};
use crate::Result;
use crate::figure::{Axis, Figure, Scale};
use crate::mapping::{Grid, Sample};
use crate::target::Target;
use crate::workloads::FileTree;

/// The counters: names, titles, units.
const REQUESTS: [(&str, &str, &str); 3] = [
    ("requests", "requests to the disk", "requests"),
    ("bytes", "bytes read and written by the disk", "KiB"),
    ("flushes", "flushes of the disk's cache", "flushes"),
];

/// A figure of times, together with those of requests.
pub(super) struct Grids {
    times: Grid,
    requests: Vec<Grid>,
    own: &'static str,
    peer: &'static str,
}

/// Measures what one side does in a round.
pub(super) struct Meter<'m> {
    pub(super) grids: &'m mut Grids,
    pub(super) disk: Option<&'m Disk>,
    pub(super) round: usize,
    pub(super) side: usize,
}

/// A figure's name, title and horizontal axis.
pub(super) struct Sheet {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) claim: &'static str,
    pub(super) note: String,
    /// A quantity, or things that are compared.
    pub(super) x: Option<Axis>,
    pub(super) labels: Vec<String>,
}

impl Sheet {
    /// A grid of sides with these names: sentences are about the first one, and ratios compare with
    /// `peer`.
    fn grid(&self, name: &str, title: &str, sides: &[&'static str], peer: &'static str) -> Grid {
        let labels: Vec<&str> = self.labels.iter().map(String::as_str).collect();
        let grid = match &self.x {
            Some(x) => Grid::lines(name, title, x.clone(), self.labels.clone()),
            None => Grid::bars(name, title, "operation", &labels),
        };
        let names = sides.iter().map(|&name| name.to_owned()).collect();
        grid.named(names, sides[0], peer)
    }
}

impl Grids {
    /// Grids for times, and for requests to the disk if it has counters.
    pub(super) fn new(
        sheet: &Sheet,
        sides: &[&'static str],
        peer: &'static str,
        disk: Option<&Disk>,
    ) -> Self {
        let times = sheet.grid(sheet.name, sheet.title, sides, peer);
        let requests = REQUESTS.iter().filter(|_| disk.is_some());
        let requests = requests.map(|&(kind, title, unit)| {
            let (name, title) = (
                format!("{}-{kind}", sheet.name),
                format!("{}: {title}", sheet.title),
            );
            sheet
                .grid(&name, &title, sides, peer)
                .of(Axis::of("of an operation", unit, Scale::Linear))
                .claim(sheet.claim)
                .note(
                    "All requests to the device, including those of other programs, until all \
                     changes were durable. Later checkpoints of a log or a journal are not \
                     included.",
                )
        });
        Self {
            times: times
                .of(Axis::of("time of an operation", "us", Scale::Log))
                .claim(sheet.claim)
                .note(sheet.note.clone()),
            requests: requests.collect(),
            own: sides[0],
            peer,
        }
    }

    /// The target that the peer takes at least `asked` times as long as our side.
    pub(super) fn faster(&self, label: &str, asked: f64) -> Option<Target> {
        let what = format!("{} over {}, {label}", self.peer, self.own);
        let ratio = self.times.over(self.peer, self.own, label)?;
        Some(Target::at_least(what, ratio, asked))
    }

    /// The target that our side takes at most `asked` times as long as the peer.
    pub(super) fn no_slower(&self, label: &str, asked: f64) -> Option<Target> {
        let what = format!("{} over {}, {label}", self.own, self.peer);
        let ratio = self.times.over(self.own, self.peer, label)?;
        Some(Target::at_most(what, ratio, asked))
    }

    /// The target that our side takes at least `asked` times as long at `label` as at `to`.
    pub(super) fn falls(&self, label: &str, to: &str, asked: f64) -> Option<Target> {
        let what = format!("{}, {label} over {to}", self.own);
        let ratio = self.times.over_labels(self.own, label, to)?;
        Some(Target::at_least(what, ratio, asked))
    }

    /// The target that our side takes at most `asked` times as long at `label` as at `to`.
    pub(super) fn flat(&self, label: &str, to: &str, asked: f64) -> Option<Target> {
        let what = format!("{}, {label} over {to}", self.own);
        let ratio = self.times.over_labels(self.own, label, to)?;
        Some(Target::at_most(what, ratio, asked))
    }

    pub(super) fn figures(self) -> Vec<Figure> {
        let all = std::iter::once(self.times).chain(self.requests);
        all.map(Grid::figure).collect()
    }
}

impl Meter<'_> {
    /// Measures `ops` operations at a label.
    pub(super) fn timed<P: FileTree>(
        &mut self,
        tree: &P,
        label: usize,
        ops: usize,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        // Earlier work must not disturb the measurement.
        tree.settle()?;
        let before = self.requests();
        let begin = Instant::now();
        work()?;
        let time = begin.elapsed();
        tree.sync()?;
        let asked = self.requests() - before;
        let per_op = |value: f64| Sample {
            value: value / ops as f64,
            ..Sample::default()
        };
        let (round, side) = (self.round, self.side);
        let time = per_op(time.as_secs_f64() * 1e6);
        self.grids.times.add(round, side, label, time);
        let asked = [
            asked.requests as f64,
            asked.bytes as f64 / 1024.0,
            asked.flushes as f64,
        ];
        for (grid, value) in self.grids.requests.iter_mut().zip(asked) {
            grid.add(round, side, label, per_op(value));
        }
        Ok(())
    }

    fn requests(&self) -> Requests {
        self.disk.and_then(Disk::requests).unwrap_or_default()
    }
}
