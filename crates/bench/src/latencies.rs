//! Latencies of single operations, and their percentiles.

use std::time::Duration;

use vellum::media::count::Counts;

use crate::mapping::Sample;

/// The number of steps by which times between two powers of two are distinguished.
const PARTS: usize = 32;

/// A histogram of latencies, with a resolution of 1/32.
#[derive(Clone, Default)]
pub(crate) struct Latencies(Vec<u64>);

impl Latencies {
    pub(crate) fn add(&mut self, time: Duration) {
        if self.0.is_empty() {
            self.0.resize(64 * PARTS, 0);
        }
        let ns = (time.as_nanos() as u64).max(1);
        let power = ns.ilog2();
        let part = ((u128::from(ns) * PARTS as u128) >> power) as usize - PARTS;
        self.0[power as usize * PARTS + part] += 1;
    }

    /// The time that this fraction of operations did not exceed.
    pub(crate) fn at(&self, part: f64) -> Sample {
        let ops: u64 = self.0.iter().sum();
        let mut left = (ops as f64 * part).ceil() as u64;
        let place = self.0.iter().position(|&count| {
            let is_here = left <= count;
            left = left.saturating_sub(count);
            is_here
        });
        let place = place.unwrap_or(0);
        let ns = (1_u64 << (place / PARTS)) as f64;
        Sample {
            value: ns * (1.0 + (place % PARTS) as f64 / PARTS as f64),
            ops,
            counts: Counts::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_have_a_resolution_of_a_32nd() {
        let mut latencies = Latencies::default();
        for ns in 1..=10_000 {
            latencies.add(Duration::from_nanos(ns));
        }
        for (part, expected) in [(0.5, 5000.0), (0.99, 9900.0), (1.0, 10_000.0)] {
            let found = latencies.at(part).value;
            assert!(
                (0.96..=1.0).contains(&(found / expected)),
                "{part}: {found}, not {expected}"
            );
        }
        assert_eq!(latencies.at(0.5).ops, 10_000);
    }
}
