//! Exploring the runs of a workload of threads.

use vellum_media::Op;

use super::oracle::Linear;
use super::run::{Run, run};
use super::schedule::Schedule;
use super::search::{Found, Search};
use super::workload::ThreadWorkload;
use crate::explore::Explorer;
use crate::id::{CrashId, Mode};
use crate::record::RecordError;
use crate::replay::{Replay, ReplayError, replay_subject};
use crate::report::{Counts, Kind, Report, Violation, WorkloadReport};
use crate::run::{Progress, Rewrite, run_each};
use crate::session::blank_image;
use crate::workload::Step;
use crate::{Options, Subject};

/// Thread slots of pools that threads run on: one more than there are threads.
pub(super) const THREAD_SLOTS: u32 = 4;

/// Explores `workload` under the schedules that `options` bound, fewest turns taken away first, up to the first that shows
/// something wrong.
///
/// # Errors
/// The setup does not work.
fn explore_threads(
    workload: &ThreadWorkload,
    options: &Options,
    progress: &Progress,
) -> Result<WorkloadReport, RecordError> {
    let (linear, blank) = (Linear::new(workload), blank_image(THREAD_SLOTS));
    let before = Before::of(workload, &linear, &blank)?;
    let subject = before.subject(&linear, None);
    let mut explorer = Explorer::new(&subject, options, progress);
    let mut search = Search::new(workload, &linear, &blank);
    let mut fatal = Vec::new();
    let mut wrong = None;
    let mut each = |Found { schedule, run }: Found| {
        let name = format!("{}!{schedule}", workload.name);
        fatal.extend(ends_badly(workload, &name, &run));
        explorer.explore(&name, &run.log);
        if explorer.violations() + fatal.len() > 0 {
            wrong = Some(schedule);
        }
        wrong.is_none()
    };
    search.all(&options.schedules, options.seed, &mut each)?;
    let mut report = explorer.finish();
    let more = Counts {
        schedules: search.runs,
        violations: fatal.len() as u64,
        ..Counts::default()
    };
    report.counts += more;
    let of = operation(workload).to_owned();
    *report.operations.entry(of).or_default() += more;
    report.violations.extend(fatal);
    if let Some(schedule) = wrong {
        let runs = |schedule: &Schedule| run(workload, &linear, &blank, schedule);
        let shorter = shorter(workload, &subject, options, &schedule, &runs)?;
        report.violations = shorter.unwrap_or(report.violations);
    }
    Ok(report)
}

/// What is wrong under a schedule that takes turns away less often than `schedule`, under which something is wrong; `None`: nothing is.
fn shorter(
    workload: &ThreadWorkload,
    subject: &Subject<'_>,
    options: &Options,
    schedule: &Schedule,
    runs: &dyn Fn(&Schedule) -> Result<Run, RecordError>,
) -> Result<Option<Vec<Violation>>, RecordError> {
    for left_out in 0..schedule.0.len() {
        let mut rest = schedule.clone();
        rest.0.remove(left_out);
        let run = runs(&rest)?;
        let name = format!("{}!{rest}", workload.name);
        let progress = Progress::default();
        let mut explorer = Explorer::new(subject, options, &progress);
        explorer.explore(&name, &run.log);
        let mut wrong = explorer.finish().violations;
        wrong.extend(ends_badly(workload, &name, &run));
        if !wrong.is_empty() {
            let shorter = shorter(workload, subject, options, &rest, runs)?;
            return Ok(Some(shorter.unwrap_or(wrong)));
        }
    }
    Ok(None)
}

/// What every run of a workload begins with.
pub(super) struct Before {
    name: String,
    cache_entries: u64,
    image: Vec<u8>,
}

impl Before {
    /// Runs `workload` once to see.
    pub(super) fn of(
        workload: &ThreadWorkload,
        linear: &Linear,
        blank: &[u8],
    ) -> Result<Self, RecordError> {
        let first = run(workload, linear, blank, &Schedule::default())?;
        Ok(Self::of_run(workload, blank, &first))
    }

    fn of_run(workload: &ThreadWorkload, blank: &[u8], run: &Run) -> Self {
        let mut image = blank.to_vec();
        for event in &run.setup {
            if let Op::Store { at, after, .. } = event.op {
                image[at as usize..at as usize + 8].copy_from_slice(&after.to_ne_bytes());
            }
        }
        Self {
            name: workload.name.clone(),
            cache_entries: workload.cache_entries,
            image,
        }
    }

    /// Logs that begin there, whose calls `linear` knows; `rewrite` is what they go through.
    pub(super) fn subject<'a>(
        &self,
        linear: &'a Linear,
        rewrite: Option<&'a Rewrite>,
    ) -> Subject<'a> {
        Subject {
            name: self.name.clone(),
            mode: Mode::X86,
            oracle: linear,
            cache_entries: self.cache_entries,
            base: self.image.clone(),
            log: &[],
            skip: 0,
            rewrite,
        }
    }
}

/// What went wrong in a run without any crash, that no order of answers shows.
fn ends_badly(workload: &ThreadWorkload, name: &str, run: &Run) -> Vec<Violation> {
    let stuck = run.trace.stuck.iter().map(|why| (Kind::Stuck, why));
    let panics = run.panics.iter().map(|text| (Kind::Panic, text));
    let id = CrashId {
        mode: Mode::X86,
        workload: name.to_owned(),
        cuts: Vec::new(),
    };
    stuck
        .chain(panics)
        .map(|(kind, detail)| {
            Violation::of_run(&id.to_string(), kind, detail.clone(), operation(workload))
        })
        .collect()
}

/// Repeats a run, and the crash of it that `id` names.
///
/// # Errors
/// There is no such workload, or it has no such crash.
pub(crate) fn replay_threads(id: &CrashId) -> Result<Replay, ReplayError> {
    let (name, schedule) = id.workload.split_once('!').unwrap_or((&id.workload, ""));
    let unknown = || ReplayError::NoWorkload(id.workload.clone());
    let all = super::thread_workloads();
    let workload = all.iter().find(|workload| workload.name == name);
    let workload = workload.ok_or_else(unknown)?;
    let schedule = schedule.parse().map_err(|()| unknown())?;
    let (linear, blank) = (Linear::new(workload), blank_image(THREAD_SLOTS));
    let run = run(workload, &linear, &blank, &schedule)?;
    let before = Before::of_run(workload, &blank, &run);
    let subject = Subject {
        log: &run.log,
        ..before.subject(&linear, None)
    };
    let mut replay = replay_subject(&subject, id)?;
    let bad = ends_badly(workload, &id.workload, &run).into_iter();
    replay
        .wrong
        .extend(bad.map(|violation| (violation.kind, violation.detail)));
    Ok(replay)
}

/// Explores every workload of threads that the options choose, under the x86 model if they choose
/// it; tells `progress` how far it is.
pub fn run_threads(options: &Options, progress: &Progress) -> Report {
    if !options.modes.contains(&Mode::X86) {
        return Report::default();
    }
    let explore = |workload: &ThreadWorkload| {
        let done = explore_threads(workload, options, progress);
        vec![done.unwrap_or_else(|error| not_run(workload, &error))]
    };
    let all = super::thread_workloads();
    run_each(&all, |workload| &workload.name, explore, options, progress)
}

fn not_run(workload: &ThreadWorkload, error: &RecordError) -> WorkloadReport {
    let of = operation(workload);
    let violation = Violation::of_run(&workload.name, Kind::Outcome, error.to_string(), of);
    WorkloadReport::failed(&workload.name, Mode::X86.name(), violation)
}

/// What a workload without a crash counts for.
fn operation(workload: &ThreadWorkload) -> &'static str {
    let first = workload.threads[0].first();
    first.map_or("nothing", Step::operation)
}

#[cfg(test)]
mod tests {
    use vellum::sites;
    use vellum_media::Event;

    use super::*;
    use crate::mutant::Mutant;
    use crate::threads::{Bounds, thread_workloads};

    /// Runs of a creation beside a listing, as if the listing flushed nothing.
    #[test]
    fn a_schedule_loses_switches_that_it_does_not_need() {
        let all = thread_workloads();
        let is_it = |workload: &&ThreadWorkload| workload.name == "threads/create+list";
        let workload = all.iter().find(is_it).unwrap();
        let (linear, blank) = (Linear::new(workload), blank_image(THREAD_SLOTS));
        let before = Before::of(workload, &linear, &blank).unwrap();
        let rewrite = |log: &[Event]| Mutant::Omit(sites::LIST_WORDS).rewrite(log);
        let subject = before.subject(&linear, Some(&rewrite));
        let (options, progress) = (Options::default(), Progress::default());
        let bounds = Bounds {
            once: usize::MAX,
            twice: 0,
            often: 0,
        };
        let mut wrong = None;
        let mut each = |Found { schedule, run }: Found| {
            let mut explorer = Explorer::new(&subject, &options, &progress);
            explorer.explore(&workload.name, &run.log);
            if explorer.violations() > 0 {
                wrong = Some(schedule);
            }
            wrong.is_none()
        };
        let mut search = Search::new(workload, &linear, &blank);
        search.all(&bounds, 1, &mut each).unwrap();
        let runs = |schedule: &Schedule| run(workload, &linear, &blank, schedule);
        let wrong = wrong.expect("a schedule that shows it");
        let mut longer = Schedule::default().and(1, 0).and(2, 0);
        longer.0.extend(&wrong.0);
        let shorter = shorter(workload, &subject, &options, &longer, &runs).unwrap();
        let shorter = shorter.expect("switches that change nothing");
        let id = format!("x86:{}!{wrong}@", workload.name);
        assert!(!shorter.is_empty(), "{longer}");
        let is_short = |violation: &Violation| violation.id.starts_with(&id);
        assert!(shorter.iter().all(is_short), "{shorter:?}");
    }
}
