//! Runs of threads that are kept, to be explored later as if a step were missing.

use std::sync::OnceLock;

use vellum_media::Event;

use super::ready::Ready;
use super::search::{Bounds, Found};
use super::thread_workloads;
use super::workload::ThreadWorkload;
use crate::Options;
use crate::explore::Explorer;
use crate::id::Mode;
use crate::location::{Location, Reached, steps_of};
use crate::mutant::Mutant;
use crate::record::RecordError;
use crate::report::{Violation, WorkloadReport};
use crate::run::{Change, Progress};

/// Schedules of each workload in which a missing step is looked for.
const SCHEDULES: Bounds = Bounds {
    once: 48,
    twice: 40,
    often: 40,
};

/// Every workload of threads, run when it is first needed.
pub(crate) struct Trials {
    workloads: Vec<ThreadWorkload>,
    kept: Vec<OnceLock<Option<Kept>>>,
}

impl Trials {
    /// The workloads with chosen names. None has run yet.
    pub(crate) fn new(chooses: impl Fn(&str) -> bool) -> Self {
        let mut workloads = thread_workloads();
        workloads.retain(|workload| chooses(&workload.name));
        Self {
            kept: workloads.iter().map(|_| OnceLock::new()).collect(),
            workloads,
        }
    }

    /// The number of workloads.
    pub(crate) fn len(&self) -> usize {
        self.workloads.len()
    }

    /// The steps in the runs of a workload.
    pub(crate) fn reached(&self, workload: usize) -> Reached {
        let events = self.kept(workload).into_iter().flat_map(Kept::events);
        steps_of(events).collect()
    }

    /// The logs of the runs of a workload.
    pub(crate) fn logs(&self, workload: usize) -> impl Iterator<Item = &[Event]> {
        let logs = self.kept(workload).into_iter().flat_map(|kept| &kept.logs);
        logs.map(|(_, log)| &log[..])
    }

    /// The runs of a workload, if it runs at all.
    fn kept(&self, workload: usize) -> Option<&Kept> {
        let record = || Kept::record(&self.workloads[workload], &SCHEDULES, 1).ok();
        self.kept[workload].get_or_init(record).as_ref()
    }

    /// Looks for a violation in the logs of `mutant`, with `states` states a point.
    ///
    /// # Errors
    /// None was found; the error is the number of workloads that were tried.
    pub(crate) fn find(
        &self,
        mutant: &Mutant,
        states_per_point: usize,
    ) -> Result<Violation, usize> {
        let options = Options {
            states_per_point,
            nested_recoveries: [0, 0],
            wrong_states: 1,
            ..Options::default()
        };
        let mut tried = 0;
        let all = (0..self.len()).filter_map(|workload| self.kept(workload));
        for kept in all.filter(|kept| kept.reaches(mutant.location())) {
            tried += 1;
            let found = kept.explore(mutant, &options).violations;
            if let Some(violation) = found.into_iter().next() {
                return Ok(violation);
            }
        }
        Err(tried)
    }
}

/// The runs of a workload under some schedules.
struct Kept {
    ready: Ready,
    /// Logs with their names in identifiers.
    logs: Vec<(String, Vec<Event>)>,
}

impl Kept {
    /// Executes the runs within `bounds`.
    ///
    /// # Errors
    /// The setup fails.
    fn record(workload: &ThreadWorkload, bounds: &Bounds, seed: u64) -> Result<Self, RecordError> {
        let ready = Ready::new(workload.clone())?;
        let mut logs = Vec::new();
        ready.search().all(bounds, seed, &mut |found| {
            let Found { schedule, run } = found;
            logs.push((ready.name(&schedule), run.log));
            true
        })?;
        Ok(Self { ready, logs })
    }

    fn events(&self) -> impl Iterator<Item = &Event> {
        self.logs.iter().flat_map(|(_, log)| log)
    }

    /// Whether a run takes this step.
    fn reaches(&self, location: &Location) -> bool {
        self.events().any(|event| location.is(event))
    }

    /// Explores the logs that `mutant` changes, in their changed form, up to the first that shows a
    /// violation.
    fn explore(&self, mutant: &Mutant, options: &Options) -> WorkloadReport {
        let subject = self.ready.subject(Mode::X86, Change::Mutant(mutant));
        let progress = Progress::default();
        let mut explorer = Explorer::new(&subject, options, &progress);
        for (name, log) in &self.logs {
            if mutant.rewrite(log) != *log {
                explorer.explore(name, log);
            }
            if explorer.violations() > 0 {
                break;
            }
        }
        explorer.finish()
    }
}

#[cfg(test)]
mod tests {
    use vellum::sites;
    use vellum_media::Site;
    use vellum_testing::{own_source, slice};

    use super::*;

    /// Explores `name` as if `site` were missing.
    fn explored(name: &str, site: Site) -> WorkloadReport {
        let bounds = Bounds {
            once: usize::MAX,
            twice: 0,
            often: 0,
        };
        let all = thread_workloads();
        let workload = all.iter().find(|workload| workload.name == name);
        let kept = Kept::record(workload.expect("a workload"), &bounds, 1).unwrap();
        let mutant = Mutant::Omit(site.into());
        assert!(kept.reaches(mutant.location()), "{name}");
        let options = Options {
            states_per_point: 64,
            nested_recoveries: [0, 0],
            wrong_states: 1,
            ..Options::default()
        };
        kept.explore(&mutant, &options)
    }

    /// No sequence needs these steps, only the visibility to other threads.
    #[test]
    fn steps_that_only_other_threads_miss_are_missed() {
        let missed_by = [
            (sites::LIST_WORDS, "threads/create+list"),
            (sites::LIST_WORDS_DURABLE, "threads/create+list"),
            (sites::LIST_DEAD, "threads/unlink+list"),
            (sites::LIST_DEAD_DURABLE, "threads/unlink+list"),
            (sites::GROW_ROOT_DURABLE, "threads/create+create"),
            (sites::GROW_NEXT_DURABLE, "threads/create+create-growing"),
            (sites::RENAME_DISCARD_LIFE, "threads/rename+rename-same"),
            (
                sites::RENAME_DISCARD_LIFE_DURABLE,
                "threads/rename+rename-same",
            ),
            (sites::CUCKOO_LEAVE, "threads/cuckoo-move+punch"),
            (sites::CUCKOO_LEAVE_DURABLE, "threads/cuckoo-move+punch"),
            (sites::LEVEL_LEAVE_DURABLE, "threads/level-grow+punch"),
        ];
        let source = own_source!();
        let key = |(site, workload): &(_, _)| format!("{} {workload} {source}", sites::name(*site));
        for (site, workload) in slice(4, missed_by, key) {
            let report = explored(workload, site);
            let found = !report.violations.is_empty();
            assert!(found, "{workload} without {}", sites::name(site));
        }
    }
}
