//! Samples of many workloads that still contain every kind.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::workload::{Step, Workload};

/// At most `count` of `workloads`, in their order: chosen by `seed`, and evenly from all existing
/// sequences of kinds of operations.
pub fn sampled(workloads: &[Workload], seed: u64, count: usize) -> Vec<Workload> {
    let mut strata: BTreeMap<Vec<&str>, Vec<(u64, usize)>> = BTreeMap::new();
    for (place, workload) in workloads.iter().enumerate() {
        let kinds = workload.explored.iter().map(Step::operation).collect();
        let draw = xxh3_64_with_seed(workload.name.as_bytes(), seed);
        strata.entry(kinds).or_default().push((draw, place));
    }
    let mut rounds = Vec::new();
    for stratum in strata.values_mut() {
        stratum.sort_unstable();
        let in_turn = stratum.iter().enumerate();
        rounds.extend(in_turn.map(|(round, &(draw, place))| (round, draw, place)));
    }
    rounds.sort_unstable();
    let mut places: Vec<_> = rounds
        .iter()
        .take(count)
        .map(|&(_, _, place)| place)
        .collect();
    places.sort_unstable();
    places
        .into_iter()
        .map(|place| workloads[place].clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(name: &str, explored: &str) -> Workload {
        Workload::new(name, &[], &[explored])
    }

    #[test]
    fn every_kind_is_in_a_sample() {
        let mut all: Vec<_> = (0..50)
            .map(|i| workload(&format!("a{i}"), "sync"))
            .collect();
        all.push(workload("b", "maintain"));
        let some = sampled(&all, 1, 3);
        assert_eq!(some.len(), 3);
        assert_eq!(some[2].name, "b", "the order stays");
        assert_eq!(some, sampled(&all, 1, 3));
        assert_ne!(some, sampled(&all, 2, 3));
        assert_eq!(sampled(&all, 1, 100), all);
    }
}
