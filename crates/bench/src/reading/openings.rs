//! Reads files from their opening, so that the time includes the cost of page tables.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use vellum::reading::Rule;

use crate::figure::median;
use crate::variant::Variant;

/// The most times that a file is read after it was opened.
const READINGS_MAX: u64 = 32;
/// The smallest file: reading a clock between two readings must not affect the time.
pub(super) const FILE_MIN_BYTES: u64 = 1 << 20;

/// A number of readings of a file right after its opening.
#[derive(Clone, Debug, Serialize)]
pub struct Opening {
    /// The pool's mapping and layout score.
    #[serde(flatten)]
    pub variant: Variant,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Times that the file was read through.
    pub readings: u64,
    /// Nanoseconds from before the opening to the end of the last reading, by rule: the median over
    /// the rounds.
    pub ns: BTreeMap<&'static str, f64>,
    /// That time over the better one of search and of a page table at once: the median over the
    /// rounds.
    pub over_best: BTreeMap<&'static str, f64>,
    /// Nanoseconds by rule and round.
    #[serde(skip)]
    times: BTreeMap<&'static str, Vec<f64>>,
}

impl Opening {
    pub(super) fn new(variant: Variant, file_bytes: u64, readings: u64) -> Self {
        Self {
            variant,
            file_bytes,
            readings,
            ns: BTreeMap::new(),
            over_best: BTreeMap::new(),
            times: BTreeMap::new(),
        }
    }

    /// 1, 2, 4, ... readings, of at most `most_bytes` together.
    pub(super) fn all(variant: Variant, file_bytes: u64, most_bytes: u64) -> Vec<Self> {
        let most = (most_bytes / file_bytes).clamp(1, READINGS_MAX);
        let readings = std::iter::successors(Some(1), |readings| Some(readings * 2));
        let readings = readings.take_while(|&readings| readings <= most);
        readings
            .map(|readings| Self::new(variant, file_bytes, readings))
            .collect()
    }

    /// Adds a round; round 0 warms up.
    pub(super) fn note(&mut self, round: u64, rule: Rule, time: Duration) {
        if round > 0 {
            let times = self.times.entry(rule.name()).or_default();
            times.push(time.as_nanos() as f64);
        }
    }

    pub(super) fn finished(mut self) -> Self {
        let of = |rule: Rule| self.times.get(rule.name()).cloned().unwrap_or_default();
        let (search, mmu) = (of(Rule::Search), of(Rule::Mmu));
        let best = search.iter().zip(&mmu).map(|(a, b)| a.min(*b));
        let best: Vec<f64> = best.collect();
        for (&rule, times) in &self.times {
            let ratios: Vec<f64> = times.iter().zip(&best).map(|(a, b)| a / b).collect();
            self.ns.insert(rule, median(times));
            self.over_best.insert(rule, median(&ratios));
        }
        self
    }
}

/// The worst ratio of a rule to the better path.
pub(super) fn worst<'o>(openings: &[&'o Opening], rule: Rule) -> Option<(f64, &'o Opening)> {
    let all = openings.iter();
    let all = all.filter_map(|opening| Some((*opening.over_best.get(rule.name())?, *opening)));
    all.max_by(|a, b| a.0.total_cmp(&b.0))
}

#[cfg(test)]
mod tests {
    use vellum::MappingKind;

    use super::*;

    const VARIANT: Variant = Variant {
        mapping: MappingKind::HashFs,
        layout_score: 850,
    };

    #[test]
    fn a_rule_is_compared_with_the_better_path_of_the_same_round() {
        let mut opening = Opening::new(VARIANT, 1 << 20, 4);
        for (round, [search, mmu, layout]) in
            [[1, 1, 99], [100, 200, 150], [900, 400, 500], [30, 10, 20]]
                .into_iter()
                .enumerate()
        {
            let mut note = |rule, ns| opening.note(round as u64, rule, Duration::from_nanos(ns));
            note(Rule::Search, search);
            note(Rule::Mmu, mmu);
            note(Rule::Layout, layout);
        }
        let opening = opening.finished();
        assert_eq!(opening.over_best["layout"], 1.5);
        assert_eq!(opening.ns["layout"], 150.0);
        let better = Opening {
            over_best: BTreeMap::from([("layout", 1.2)]),
            ..opening.clone()
        };
        let (ratio, which) = worst(&[&better, &opening], Rule::Layout).expect("two");
        assert_eq!((ratio, which.over_best["layout"]), (1.5, 1.5));
        assert!(worst(&[&better], Rule::Threshold).is_none());
    }

    #[test]
    fn readings_double_up_to_what_may_be_read() {
        let readings = |file, most| -> Vec<u64> {
            let all = Opening::all(VARIANT, file, most);
            all.iter().map(|opening| opening.readings).collect()
        };
        assert_eq!(readings(4, 32), [1, 2, 4, 8]);
        assert_eq!(readings(64, 32), [1]);
        assert_eq!(readings(1, 1 << 40), [1, 2, 4, 8, 16, 32]);
    }
}
