//! Budgets: which workloads are explored, and how many states of each.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use vellum::{MappingKind, NamespaceKind};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::run::Options;
use crate::threads::Bounds;
use crate::workload::Workload;
use crate::workloads::{
    elsewhere, evolved, logged_workloads, named_otherwise, pairs, random, sampled, triples,
    workloads,
};

/// How many workloads of each family are in the short budget: pairs and triples of operations;
/// random histories; pairs and histories on other mappings; all of these within other namespaces;
/// histories whose areas evolve; workloads on disks.
const SHORT: [usize; 7] = [125, 17, 5, 17, 15, 3, 392];
/// The index of the workloads on disks.
const ON_DISKS: usize = 6;
/// The number of workloads on disks in the long budget: each takes longer than most others.
const ON_DISKS_LONG: usize = 160;
/// The numbers of random histories in the long budget, and of those whose areas evolve.
const RANDOM_LONG: u64 = 150;
const EVOLVED_LONG: u64 = 60;

/// How much is explored. The first two name a fixed amount of work, so that two runs have the same
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Single operations and chosen sequences, a twentieth of those that other mappings and
    /// namespaces repeat, and a sample of the generated workloads: minutes.
    Short,
    /// Every workload, but only a sample of those on disks, with more states of each: about an hour
    /// on two processors.
    Long,
    /// As much as fits into this time after the options were created: the states of
    /// [`Short`](Self::Short), with generated workloads in an order drawn by the seed.
    Time(Duration),
}

/// One of several parts that together are everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The number of the part, from 1.
    pub number: usize,
    /// The number of parts.
    pub of: usize,
}

impl Budget {
    /// The options of this budget. Modes, threads, seed and names are for the caller to choose.
    pub fn options(self) -> Options {
        let options = Options {
            diagnose: true,
            ..Options::default()
        };
        match self {
            Self::Short => Options {
                states_per_point: 12,
                states_on_disks: 96,
                lazy_states: 4,
                points_in_order: 96,
                kills: 2,
                kill_states: 8,
                ignored_flushes: 2,
                ignored_flush_states: 8,
                nested_recoveries: [6, 2],
                nested_elsewhere: [1, 1],
                thread_states: 32,
                schedules: Bounds {
                    once: 10,
                    twice: 2,
                    often: 2,
                },
                lazy_schedules: 1,
                ..options
            },
            Self::Long => Options {
                states_per_point: 1280,
                states_alone: 4096,
                lazy_states: 64,
                points_in_order: 20480,
                kills: 12,
                kill_states: 64,
                ignored_flushes: 12,
                ignored_flush_states: 64,
                nested_states: 128,
                nested_recoveries: [16, 8],
                nested_elsewhere: [4, 2],
                schedules: Bounds {
                    once: usize::MAX,
                    twice: 50,
                    often: 30,
                },
                ..options
            },
            Self::Time(time) => Options {
                until: Instant::now().checked_add(time),
                ..Self::Short.options()
            },
        }
    }

    /// The workloads of this budget. If [`Options::only`] names some, they are chosen from all
    /// workloads.
    pub fn workloads(self, options: &Options) -> Vec<Workload> {
        let mut all = workloads();
        let mut generated = generated();
        match self {
            _ if !options.only.is_empty() => all.extend(generated.into_iter().flatten()),
            Self::Short => {
                thin_out(&mut all, options.seed);
                for (family, count) in generated.iter().zip(SHORT) {
                    all.extend(sampled(family, options.seed, count));
                }
            }
            Self::Long => {
                let on_disks = &mut generated[ON_DISKS];
                *on_disks = sampled(on_disks, options.seed, ON_DISKS_LONG);
                all.extend(generated.into_iter().flatten());
            }
            Self::Time(_) => {
                let mut generated = generated.concat();
                let draw = |one: &Workload| xxh3_64_with_seed(one.name.as_bytes(), options.seed);
                generated.sort_by_key(draw);
                all.extend(generated);
            }
        }
        all.retain(|workload| options.chooses(&workload.name));
        all
    }
}

/// All workloads except those of threads.
pub fn all_workloads() -> Vec<Workload> {
    workloads()
        .into_iter()
        .chain(generated().into_iter().flatten())
        .collect()
}

/// The complete families of [`SHORT`].
fn generated() -> [Vec<Workload>; 7] {
    let (pairs, random) = (pairs(), random(RANDOM_LONG));
    let elsewhere = [elsewhere(&pairs), elsewhere(&random)].concat();
    let triples = triples();
    let named = [&pairs, &triples, &random].map(|family| named_otherwise(family));
    let evolved = evolved(EVOLVED_LONG);
    [
        pairs,
        triples,
        random,
        elsewhere,
        named.concat(),
        evolved,
        logged_workloads(),
    ]
}

/// Leaves out nineteen in twenty of the workloads that also run on the default mapping and
/// namespace, drawn by the seed.
fn thin_out(all: &mut Vec<Workload>, seed: u64) {
    let usual: BTreeSet<String> = all
        .iter()
        .filter(|workload| {
            workload.mapping == MappingKind::default()
                && workload.namespace == NamespaceKind::default()
        })
        .map(|workload| workload.name.clone())
        .collect();
    all.retain(|workload| {
        let prefixes = [workload.mapping.name(), workload.namespace.name()];
        let is_again = prefixes.into_iter().any(|prefix| {
            let name = workload.name.strip_prefix(prefix);
            let usual_name = name.and_then(|name| name.strip_prefix('-'));
            usual_name.is_some_and(|name| usual.contains(name))
        });
        !is_again || xxh3_64_with_seed(workload.name.as_bytes(), seed).is_multiple_of(20)
    });
}

impl Part {
    /// Whether the chosen workload at index `place` is in this part.
    pub fn has(self, place: usize) -> bool {
        place % self.of.max(1) + 1 == self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_a_whole() {
        for place in 0..20 {
            let has = |number: &usize| {
                let part = Part {
                    number: *number,
                    of: 7,
                };
                part.has(place)
            };
            assert_eq!((1..=7).filter(has).count(), 1, "{place}");
        }
    }

    #[test]
    fn the_short_budget_has_every_operation_alone() {
        let chosen = Budget::Short.workloads(&Budget::Short.options());
        for alone in crate::single_operations() {
            assert!(chosen.contains(&alone), "{}", alone.name);
        }
        assert!(chosen.len() >= SHORT[0]);
    }
}
