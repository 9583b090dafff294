//! Explores many workloads on several threads.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::report::{LeftOut, Report, WorkloadReport};
use crate::run::{Options, Progress};

/// A workload to explore.
pub(crate) struct Job<'a> {
    pub(crate) name: &'a str,
    /// The kinds of operations whose crashes it explores.
    pub(crate) operations: BTreeSet<&'static str>,
    pub(crate) explore: Box<dyn Fn() -> Vec<WorkloadReport> + Sync + 'a>,
}

/// Jobs of one kind.
pub(crate) struct Family<'a> {
    pub(crate) jobs: Vec<Job<'a>>,
    /// No job of the family begins after this instant.
    pub(crate) until: Option<Instant>,
}

/// Runs the chosen jobs of all families, in order. A thread that finds no more jobs of one family
/// goes on with the next, so that none waits for the longest job.
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
    let done = Mutex::new(Vec::new());
    let left_out = Mutex::new(LeftOut::default());
    let leave_out = |job: &Job<'_>, is_begun| {
        let mut left_out = left_out.lock().unwrap_or_else(PoisonError::into_inner);
        left_out.note(&job.operations, is_begun);
    };
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some((job, until)) = chosen.get(place) else {
                return;
            };
            if until.is_some_and(|until| Instant::now() >= until) {
                leave_out(job, false);
                continue;
            }
            let reports = (job.explore)();
            if reports.iter().any(|report| report.cut_short) {
                leave_out(job, true);
            }
            progress.done();
            done.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((place, reports));
        }
    };
    std::thread::scope(|scope| {
        (1..options.threads.max(1)).for_each(|_| {
            scope.spawn(work);
        });
        work();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    let in_order_of_modes = |(_, mut reports): (_, Vec<WorkloadReport>)| {
        reports.sort_by_key(|report| report.mode.clone());
        reports
    };
    Report {
        workloads: done.into_iter().flat_map(in_order_of_modes).collect(),
        left_out: left_out
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner),
        seconds: start.elapsed().as_secs_f64(),
    }
}

/// The jobs of a family that the options choose by name and part; and when the family ends.
fn chosen_of<'f, 'a>(
    family: &'f Family<'a>,
    options: &Options,
) -> impl Iterator<Item = (&'f Job<'a>, Option<Instant>)> {
    let named = family.jobs.iter().filter(|job| options.chooses(job.name));
    named
        .enumerate()
        .filter(|(place, _)| options.part.is_none_or(|part| part.has(*place)))
        .map(|(_, job)| (job, family.until))
}
