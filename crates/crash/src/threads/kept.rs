//! Runs of threads that are kept, to be explored in another form: as if a flush were missing.

use std::collections::BTreeSet;

use vellum_media::{Event, Site};

use super::explore::{Before, THREAD_SLOTS};
use super::oracle::Linear;
use super::search::{Bounds, Found, Search};
use super::workload::ThreadWorkload;
use crate::Options;
use crate::explore::Explorer;
use crate::record::RecordError;
use crate::report::WorkloadReport;
use crate::run::{Progress, Rewrite};
use crate::session::blank_image;

/// The runs of a workload under some schedules.
pub(crate) struct Kept {
    linear: Linear,
    before: Before,
    /// Logs by the names that identifiers give them.
    logs: Vec<(String, Vec<Event>)>,
}

impl Kept {
    /// Makes the runs within `bounds`.
    ///
    /// # Errors
    /// The setup does not work.
    pub(crate) fn record(
        workload: &ThreadWorkload,
        bounds: &Bounds,
        seed: u64,
    ) -> Result<Self, RecordError> {
        let (linear, blank) = (Linear::new(workload), blank_image(THREAD_SLOTS));
        let before = Before::of(workload, &linear, &blank)?;
        let mut logs = Vec::new();
        Search::new(workload, &linear, &blank).all(bounds, seed, &mut |found| {
            let Found { schedule, run } = found;
            logs.push((format!("{}!{schedule}", workload.name), run.log));
            true
        })?;
        Ok(Self {
            linear,
            before,
            logs,
        })
    }

    /// Where the runs flush, fence, or store past the cache.
    pub(crate) fn sites(&self) -> BTreeSet<Site> {
        let events = self.logs.iter().flat_map(|(_, log)| log);
        events.map(|event| event.site).collect()
    }

    /// Explores the logs that `rewrite` changes, as it changes them, up to the first that shows something wrong.
    pub(crate) fn explore(&self, rewrite: &Rewrite, options: &Options) -> WorkloadReport {
        let subject = self.before.subject(&self.linear, Some(rewrite));
        let progress = Progress::default();
        let mut explorer = Explorer::new(&subject, options, &progress);
        for (name, log) in &self.logs {
            if rewrite(log) != *log {
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
    use vellum_media::Op;

    use super::*;
    use crate::threads::thread_workloads;

    /// The log without what `site` makes durable.
    fn without(site: Site, log: &[Event]) -> Vec<Event> {
        let mut log = log.to_vec();
        log.retain_mut(|event| {
            if event.site == site
                && let Op::Store { non_temporal, .. } = &mut event.op
            {
                *non_temporal = false;
            }
            event.site != site || !matches!(event.op, Op::Flush { .. } | Op::Fence)
        });
        log
    }

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
        assert!(kept.sites().contains(&site), "{name}");
        let options = Options {
            states_per_point: 64,
            nested_recoveries: [0, 0],
            wrong_states: 1,
            ..Options::default()
        };
        kept.explore(&move |log| without(site, log), &options)
    }

    /// No sequence misses these: they are for the eyes of other threads.
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
        ];
        for (site, workload) in missed_by {
            let report = explored(workload, site);
            let found = !report.violations.is_empty();
            assert!(found, "{workload} without {}", sites::name(site));
        }
    }
}
