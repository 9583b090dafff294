//! Many workloads on several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::report::{Report, WorkloadReport};
use crate::run::{Options, Progress};

/// A workload to be explored.
pub(crate) struct Job<'a> {
    pub(crate) name: &'a str,
    pub(crate) explore: Box<dyn Fn() -> Vec<WorkloadReport> + Sync + 'a>,
}

/// Jobs of one kind.
pub(crate) struct Family<'a> {
    pub(crate) jobs: Vec<Job<'a>>,
    /// None of them begins later than so long after the first of all.
    pub(crate) until: Option<Duration>,
}

/// Does what the options choose of all families, in order. Threads that find no more of one go on with
/// the next, so that none waits for the longest.
pub(crate) fn run_families(
    families: Vec<Family<'_>>,
    options: &Options,
    progress: &Progress,
) -> Report {
    let start = Instant::now();
    let chosen: Vec<_> = families
        .iter()
        .flat_map(|family| chosen_of(family, options))
        .collect();
    progress.expect(chosen.len() as u64);
    let next = AtomicUsize::new(0);
    let left_out = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some((job, until)) = chosen.get(place) else {
                return;
            };
            if until.is_some_and(|until| start.elapsed() > until) {
                left_out.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let reports = (job.explore)();
            progress.done();
            done.lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .push((place, reports));
        }
    };
    std::thread::scope(|scope| {
        (1..options.threads.max(1)).for_each(|_| {
            scope.spawn(work);
        });
        work();
    });
    let mut done = done
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_by_key(|(place, _)| *place);
    let in_order_of_modes = |(_, mut reports): (_, Vec<WorkloadReport>)| {
        reports.sort_by_key(|report| report.mode.clone());
        reports
    };
    Report {
        workloads: done.into_iter().flat_map(in_order_of_modes).collect(),
        left_out: left_out.into_inner() as u64,
        seconds: start.elapsed().as_secs_f64(),
    }
}

/// The jobs of a family that the options name, of these those in their part; and when it ends.
fn chosen_of<'f, 'a>(
    family: &'f Family<'a>,
    options: &Options,
) -> impl Iterator<Item = (&'f Job<'a>, Option<Duration>)> {
    let named = family.jobs.iter().filter(|job| options.chooses(job.name));
    named
        .enumerate()
        .filter(|(place, _)| options.part.is_none_or(|part| part.has(*place)))
        .map(|(_, job)| (job, family.until))
}
