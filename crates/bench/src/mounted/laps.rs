//! From laps to rows: medians, spreads, ratios.

use super::report::{Ratio, Row};
use super::subjects::{Lap, Subject};
use crate::figure::{median, round, spread};

/// The laps of one piece of work.
pub(super) struct Laps {
    name: &'static str,
    what: String,
    /// The bytes that it moves, if it is a transfer.
    bytes: Option<u64>,
    /// For each subject, a lap of each round.
    of: Vec<Vec<Lap>>,
}

impl Laps {
    pub(super) fn new(name: &'static str, what: String, subjects: &[Subject]) -> Self {
        Self {
            name,
            what,
            bytes: None,
            of: subjects.iter().map(|_| Vec::new()).collect(),
        }
    }

    pub(super) fn moving(self, bytes: u64) -> Self {
        let bytes = Some(bytes);
        Self { bytes, ..self }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Adds a lap of a round; that of the first round does not count.
    pub(super) fn add(&mut self, round: usize, subject: usize, lap: Lap) {
        if round > 0 {
            self.of[subject].push(lap);
        }
    }

    /// A row for each subject.
    pub(super) fn rows(&self, subjects: &[Subject]) -> impl Iterator<Item = Row> {
        subjects.iter().zip(&self.of).map(|(subject, laps)| {
            let seconds = seconds(laps);
            let requests = laps.last().map(|lap| lap.requests.clone());
            let requests = requests.unwrap_or_default();
            let per_second = |bytes: u64| bytes as f64 / (1 << 20) as f64 / median(&seconds);
            Row {
                name: self.name.into(),
                what: self.what.clone(),
                subject: subject.name.clone(),
                door: subject.door.map(|door| door.name().into()),
                seconds: round(median(&seconds), 6),
                spread: round(spread(&seconds), 3),
                mib_per_second: self.bytes.map(|bytes| round(per_second(bytes), 1)),
                ratios: self.ratios(&seconds, subjects),
                requests: requests.values().sum(),
                requests_by_kind: requests,
            }
        })
    }

    /// The ratio of each peer to these seconds: the median over rounds.
    fn ratios(&self, of: &[f64], subjects: &[Subject]) -> Vec<Ratio> {
        let all = subjects.iter().zip(&self.of);
        let peers = all.filter(|(subject, _)| subject.door.is_none());
        let ratio = |(peer, laps): (&Subject, &Vec<Lap>)| {
            let pairs = seconds(laps).into_iter().zip(of);
            let of_rounds: Vec<f64> = pairs.map(|(peer, own)| peer / own).collect();
            Ratio {
                peer: peer.name.clone(),
                ratio: round(median(&of_rounds), 3),
            }
        };
        peers.map(ratio).collect()
    }
}

fn seconds(laps: &[Lap]) -> Vec<f64> {
    laps.iter().map(|lap| lap.seconds).collect()
}
