//! Explores the runs of a workload of threads.

use std::time::Instant;

use super::ready::Ready;
use super::search::Found;
use super::shrink::Trial;
use super::workload::ThreadWorkload;
use crate::Options;
use crate::explore::Explorer;
use crate::id::Mode;
use crate::jobs::{Family, Job, run_families};
use crate::record::RecordError;
use crate::report::{Counts, Report, WorkloadReport};
use crate::run::{Change, Progress, operations_of};

/// The crash models of threads. A model in which caches survive would show nothing that lines
/// arriving one by one do not.
const MODES: [Mode; 2] = [Mode::X86, Mode::Lazy];

/// Explores `workload` under the schedules that `options` bound, those with the fewest preemptions
/// first, up to the first that shows a violation. Returns a report for each crash model.
///
/// # Errors
/// The setup does not work.
fn explore_threads(
    workload: &ThreadWorkload,
    modes: &[Mode],
    options: &Options,
    progress: &Progress,
) -> Result<Vec<WorkloadReport>, RecordError> {
    let ready = Ready::new(workload.clone())?;
    let options = &Options {
        states_per_point: options
            .states_on(workload.pool_kind)
            .min(options.thread_states),
        ..options.clone()
    };
    let subjects: Vec<_> = modes
        .iter()
        .map(|&mode| ready.subject(mode, Change::None))
        .collect();
    let explorers = subjects.iter();
    let mut explorers: Vec<_> = explorers
        .map(|subject| Explorer::new(subject, options, progress))
        .collect();
    let mut fatal = Vec::new();
    let mut wrong = None;
    let mut explored = 0;
    let mut search = ready.search();
    search.all(&options.schedules, options.seed, &mut |found| {
        let Found { schedule, run } = found;
        let name = ready.name(&schedule);
        fatal.extend(ready.ends_badly(modes[0], &schedule, &run));
        let mut is_wrong = !fatal.is_empty();
        for (explorer, &mode) in explorers.iter_mut().zip(modes) {
            if mode == Mode::Lazy && explored >= options.lazy_schedules {
                continue;
            }
            explorer.explore(&name, &ready.log(mode, &run));
            is_wrong |= explorer.violations() > 0;
        }
        explored += 1;
        wrong = is_wrong.then_some(schedule);
        wrong.is_none() && !options.is_over()
    })?;
    let mut reports: Vec<_> = explorers.into_iter().map(Explorer::finish).collect();
    reports[0].cut_short |= wrong.is_none() && options.is_over();
    let more = Counts {
        schedules: search.runs,
        violations: fatal.len() as u64,
        ..Counts::default()
    };
    reports[0].counts += more;
    let of = workload.operation().to_owned();
    *reports[0].operations.entry(of).or_default() += more;
    reports[0].violations.extend(fatal);
    if let Some(schedule) = wrong
        && !options.is_over()
    {
        for (report, &mode) in reports.iter_mut().zip(modes) {
            let trial = Trial {
                mode,
                options,
                change: Change::None,
            };
            trial.explain(&ready, schedule.clone(), report)?;
        }
    }
    Ok(reports)
}

/// Explores every workload of threads that the options choose; reports to `progress`.
pub fn run_threads(options: &Options, progress: &Progress) -> Report {
    run_these_threads(&super::all_thread_workloads(), options, progress)
}

/// Explores those of `workloads` that the options choose; reports to `progress`.
pub fn run_these_threads(
    workloads: &[ThreadWorkload],
    options: &Options,
    progress: &Progress,
) -> Report {
    let families = vec![of_threads(workloads, options, progress)];
    run_families(families, options, progress)
}

/// The chosen workloads of threads under the chosen ones of two crash models: x86, and x86 with
/// lines lost that were left unflushed before. If the time is bounded, they begin in its first
/// quarter.
pub(crate) fn of_threads<'a>(
    workloads: &'a [ThreadWorkload],
    options: &'a Options,
    progress: &'a Progress,
) -> Family<'a> {
    let modes = MODES.into_iter();
    let modes: Vec<Mode> = modes.filter(|mode| options.modes.contains(mode)).collect();
    let explore = move |workload: &ThreadWorkload, modes: &[Mode]| {
        let done = explore_threads(workload, modes, options, progress);
        done.unwrap_or_else(|error| vec![not_run(workload, &error)])
    };
    let modes_of = |workload: &ThreadWorkload| {
        let is_of_it = |mode: &Mode| workload.pool_kind.is_crashed_as(*mode);
        modes.iter().copied().filter(is_of_it).collect::<Vec<_>>()
    };
    let is_any = |workload: &&ThreadWorkload| !modes_of(workload).is_empty();
    let jobs = workloads.iter().filter(is_any).map(|workload| {
        let modes = modes_of(workload);
        Job {
            name: &workload.name,
            operations: operations_of(workload.threads.iter().flatten()),
            explore: Box::new(move || explore(workload, &modes)),
        }
    });
    Family {
        jobs: jobs.collect(),
        until: options.until.map(|until| {
            let now = Instant::now();
            now + until.saturating_duration_since(now) / 4
        }),
    }
}

fn not_run(workload: &ThreadWorkload, error: &RecordError) -> WorkloadReport {
    let of = workload.operation();
    WorkloadReport::not_run(&workload.name, error, of)
}
