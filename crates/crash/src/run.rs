//! What to explore, and the exploration of one workload.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use vellum_media::{Event, Op};

use crate::budget::Part;
use crate::diagnose::minimise;
use crate::explore::explore;
use crate::id::Mode;
use crate::ignored_flushes::explore_ignored_flushes;
use crate::jobs::{Family, Job, run_families};
use crate::kills::explore_kills;
use crate::memories::image_after;
use crate::mkfs::of_makings;
use crate::mutant::Mutant;
use crate::oracle::Oracle;
use crate::record::{Recorded, record};
use crate::report::{Counts, Report, WorkloadReport};
use crate::threads::{Bounds, all_thread_workloads, of_threads};
use crate::workload::{PoolKind, Step, Workload};
use crate::workloads::WorkloadFile;

/// How deep crashes of recoveries nest: a recovery, and the recovery after a crash of it.
pub(crate) const NESTED_DEPTH: usize = 2;

/// How to explore.
#[derive(Clone, Debug)]
pub struct Options {
    /// Crash models.
    pub modes: Vec<Mode>,
    /// States tried at a crash point: all of them, or a sample of this size if there are more.
    pub states_per_point: usize,
    /// The least number of states where a workload is a single operation.
    pub states_alone: usize,
    /// The least number of states where a workload is on disks.
    pub states_on_disks: usize,
    /// The number of states under [`Mode::Lazy`], which always samples.
    pub lazy_states: usize,
    /// The most crash points of a log that are tried under [`Mode::Eadr`], which has one at every
    /// store.
    pub points_in_order: usize,
    /// The most states tried at a crash point in each run of threads.
    pub thread_states: usize,
    /// The most moments of a workload at which a process is killed under [`Mode::Kill`].
    pub kills: usize,
    /// States tried at a crash point after a kill.
    pub kill_states: usize,
    /// The most syncs of a workload that are ignored under [`Mode::IgnoredFlushes`], one in each
    /// run.
    pub ignored_flushes: usize,
    /// States tried at a crash point after an ignored sync.
    pub ignored_flush_states: usize,
    /// States tried at a crash point of a recovery.
    pub nested_states: usize,
    /// The most recoveries of a workload whose crashes are explored: those after a crash of the
    /// workload, and those after a crash of such a recovery.
    pub nested_recoveries: [usize; NESTED_DEPTH],
    /// A lower limit of the same under [`Mode::Lazy`], [`Mode::Kill`] and [`Mode::IgnoredFlushes`],
    /// where recoveries begin from other images but do nothing different.
    pub nested_elsewhere: [usize; NESTED_DEPTH],
    /// The number of wrong states after which the exploration of a workload ends.
    pub wrong_states: u64,
    /// Reduces violations to as few lost lines and as short a workload as still show them.
    pub diagnose: bool,
    /// Schedules of workloads of threads.
    pub schedules: Bounds,
    /// The most of these schedules that are explored under [`Mode::Lazy`] too: schedules differ in
    /// what the threads do, while that model differs in what came before.
    pub lazy_schedules: usize,
    /// Seed of the samples.
    pub seed: u64,
    /// Threads.
    pub threads: usize,
    /// Workloads whose name contains one of these; empty: all.
    pub only: Vec<String>,
    /// Only this part of them.
    pub part: Option<Part>,
    /// No exploration continues after this instant: the one that is running then is cut short.
    pub until: Option<Instant>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            modes: Mode::ALL.to_vec(),
            states_per_point: 512,
            states_alone: 0,
            states_on_disks: 0,
            lazy_states: 32,
            points_in_order: 8192,
            thread_states: 256,
            kills: 8,
            kill_states: 32,
            ignored_flushes: 4,
            ignored_flush_states: 32,
            nested_states: 64,
            nested_recoveries: [16, 4],
            nested_elsewhere: [2, 1],
            wrong_states: 2000,
            diagnose: false,
            schedules: Bounds {
                once: usize::MAX,
                twice: 100,
                often: 30,
            },
            lazy_schedules: usize::MAX,
            seed: 1,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            only: Vec::new(),
            part: None,
            until: None,
        }
    }
}

impl Options {
    /// Whether the time is up.
    pub(crate) fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// States tried at a crash point of a workload on a pool of this kind.
    pub(crate) fn states_on(&self, pool_kind: PoolKind) -> usize {
        let least = match pool_kind {
            PoolKind::Memory | PoolKind::Narrow => 0,
            _ => self.states_on_disks,
        };
        self.states_per_point.max(least)
    }

    /// Whether the options choose the workload of this name.
    pub fn chooses(&self, name: &str) -> bool {
        chooses(&self.only, name)
    }
}

/// Whether a name contains one of these parts. Without parts, every name is chosen.
pub(crate) fn chooses(parts: &[String], name: &str) -> bool {
    parts.is_empty() || parts.iter().any(|part| name.contains(part))
}

/// A log to explore.
pub(crate) struct Subject<'a> {
    /// Its name in identifiers.
    pub(crate) name: String,
    pub(crate) mode: Mode,
    /// Decides what may be found.
    pub(crate) oracle: &'a dyn Oracle,
    /// The number of names and files that the arena can hold.
    pub(crate) cache_entries: u64,
    /// The durable bytes before the log.
    pub(crate) base: Vec<u8>,
    pub(crate) log: &'a [Event],
    /// The number of events after which exploring begins.
    pub(crate) skip: usize,
    /// The change that every log, also that of a recovery, goes through before it is crashed.
    pub(crate) change: Change<'a>,
}

/// Turns a log into another one with the same stores, after which a crash may leave something else.
#[derive(Clone, Copy, Default)]
pub(crate) enum Change<'a> {
    /// Logs stay as they are.
    #[default]
    None,
    /// They become the logs of a mutant.
    Mutant(&'a Mutant),
    /// This function changes them. Identifiers do not mention it.
    By(&'a (dyn Fn(&[Event]) -> Vec<Event> + Sync)),
}

impl<'a> From<Option<&'a Mutant>> for Change<'a> {
    fn from(mutant: Option<&'a Mutant>) -> Self {
        mutant.map_or(Self::None, Self::Mutant)
    }
}

impl Change<'_> {
    /// The mutant to name in identifiers.
    pub(crate) fn mutant(self) -> Option<Mutant> {
        match self {
            Self::Mutant(mutant) => Some(mutant.clone()),
            Self::None | Self::By(_) => None,
        }
    }

    /// The log to crash where `log` was recorded.
    pub(crate) fn of<'l>(self, log: &'l [Event]) -> Cow<'l, [Event]> {
        match self {
            Self::None => Cow::Borrowed(log),
            Self::Mutant(mutant) => Cow::Owned(mutant.rewrite(log)),
            Self::By(rewrite) => Cow::Owned(rewrite(log)),
        }
    }
}

impl Recorded {
    /// The events of the explored steps, from marker 0 to the last.
    pub fn explored_log(&self) -> &[Event] {
        &self.log[self.begin..]
    }

    /// The number of events in the explored log up to the return of the steps that other workloads
    /// cover.
    fn covered_events(&self) -> usize {
        let last = Op::Marker(self.workload.covered as u64);
        let events = self.explored_log().iter();
        match self.workload.covered {
            0 => 0,
            _ => events.take_while(|event| event.op != last).count() + 1,
        }
    }

    /// The pool before the explored steps, as its threads saw it.
    pub(crate) fn image_before(&self) -> Vec<u8> {
        image_after(&self.base, &self.log[..self.begin])
    }

    /// The log to explore under `mode`.
    pub(crate) fn subject(&self, mode: Mode) -> Subject<'_> {
        let covered = self.covered_events();
        let (base, log, skip) = match mode {
            Mode::Lazy => (self.base.clone(), &self.log[..], self.begin + covered),
            _ => (self.image_before(), self.explored_log(), covered),
        };
        Subject {
            name: self.workload.name.clone(),
            mode,
            oracle: &self.expected,
            cache_entries: self.cache_entries,
            base,
            log,
            skip,
            change: Change::None,
        }
    }
}

/// The progress of an exploration, for observers in other threads.
#[derive(Debug, Default)]
pub struct Progress {
    workloads: AtomicU64,
    workloads_done: AtomicU64,
    distinct: AtomicU64,
    violations: AtomicU64,
}

impl Progress {
    /// The numbers of workloads that were chosen, and that are done.
    pub fn workloads(&self) -> (u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&self.workloads), of(&self.workloads_done))
    }

    /// The number of different images judged so far.
    pub fn distinct(&self) -> u64 {
        self.distinct.load(Ordering::Relaxed)
    }

    /// The number of violations found so far.
    pub fn violations(&self) -> u64 {
        self.violations.load(Ordering::Relaxed)
    }

    /// Adds to the number of chosen workloads.
    pub(crate) fn expect(&self, workloads: u64) {
        self.workloads.fetch_add(workloads, Ordering::Relaxed);
    }

    /// Counts another finished workload.
    pub(crate) fn done(&self) {
        self.workloads_done.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, done: &Counts) {
        self.distinct.fetch_add(done.distinct, Ordering::Relaxed);
        self.violations
            .fetch_add(done.violations, Ordering::Relaxed);
    }
}

/// Explores the catalog.
pub fn run(options: &Options) -> Report {
    run_workloads(&crate::workloads(), options)
}

/// Explores `workloads`, as far as the options choose them.
pub fn run_workloads(workloads: &[Workload], options: &Options) -> Report {
    run_watched(workloads, options, &Progress::default())
}

/// Explores the formatting of pools, the workloads of threads, and sequences; reports to
/// `progress`. If the time is bounded, the workloads of threads begin in its first quarter.
pub fn run_all(workloads: &[Workload], options: &Options, progress: &Progress) -> Report {
    let threads = all_thread_workloads();
    let families = vec![
        of_makings(options, progress),
        of_threads(&threads, options, progress),
        of_sequences(workloads, options, progress),
    ];
    run_families(families, options, progress)
}

/// Explores the workloads of a file; reports to `progress`.
pub fn run_file(file: &WorkloadFile, options: &Options, progress: &Progress) -> Report {
    let families = vec![
        of_threads(&file.threads, options, progress),
        of_sequences(&file.sequences, options, progress),
    ];
    run_families(families, options, progress)
}

/// Explores `workloads`; reports to `progress`.
pub fn run_watched(workloads: &[Workload], options: &Options, progress: &Progress) -> Report {
    run_families(
        vec![of_sequences(workloads, options, progress)],
        options,
        progress,
    )
}

fn of_sequences<'a>(
    workloads: &'a [Workload],
    options: &'a Options,
    progress: &'a Progress,
) -> Family<'a> {
    let jobs = workloads.iter().map(|workload| Job {
        name: &workload.name,
        operations: operations_of(&workload.explored),
        explore: Box::new(|| explore_workload(workload, options, progress)),
    });
    Family {
        jobs: jobs.collect(),
        until: options.until,
    }
}

/// The kinds of the operations that these steps are.
pub(crate) fn operations_of<'s>(
    steps: impl IntoIterator<Item = &'s Step>,
) -> BTreeSet<&'static str> {
    steps.into_iter().map(Step::operation).collect()
}

fn explore_workload(
    workload: &Workload,
    options: &Options,
    progress: &Progress,
) -> Vec<WorkloadReport> {
    let recorded = match record(workload) {
        Ok(recorded) => recorded,
        Err(error) => {
            let operation = workload.explored.last().map_or("", Step::operation);
            return vec![WorkloadReport::not_run(&workload.name, &error, operation)];
        }
    };
    let is_alone = workload.explored.len() == 1;
    let least = if is_alone { options.states_alone } else { 0 };
    let options = &Options {
        states_per_point: options.states_on(workload.pool_kind).max(least),
        ..options.clone()
    };
    let modes = options.modes.iter();
    let modes = modes.filter(|mode| workload.pool_kind.is_crashed_as(**mode));
    let reports = modes.map(|&mode| {
        let mut report = explore_recorded(&recorded, mode, Change::None, options, progress);
        if options.diagnose && !options.is_over() {
            minimise(&mut report, workload, mode, options, Change::None);
        }
        report
    });
    reports.collect()
}

/// Explores a recorded workload, changed by `change`, under a crash model.
pub(crate) fn explore_recorded(
    recorded: &Recorded,
    mode: Mode,
    change: Change<'_>,
    options: &Options,
    progress: &Progress,
) -> WorkloadReport {
    let subject = Subject {
        change,
        ..recorded.subject(mode)
    };
    match mode {
        Mode::Kill => explore_kills(&subject, &recorded.expected, options, progress),
        Mode::IgnoredFlushes => {
            explore_ignored_flushes(&subject, &recorded.expected, options, progress)
        }
        Mode::X86 | Mode::Lazy | Mode::Eadr => explore(&subject, options, progress),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::LeftOut;

    fn in_no_time() -> Options {
        Options {
            until: Some(Instant::now()),
            ..Options::default()
        }
    }

    #[test]
    fn what_is_running_ends_with_the_time() {
        let workload = crate::find("create-append").unwrap();
        let (options, progress) = (in_no_time(), Progress::default());
        let modes = Mode::ALL.into_iter();
        let of_pool_kind = modes.filter(|&mode| workload.pool_kind.is_crashed_as(mode));
        let of_pool_kind = of_pool_kind.count();
        let reports = explore_workload(&workload, &options, &progress);
        assert_eq!(reports.len(), of_pool_kind);
        for report in reports {
            assert!(report.cut_short && !report.exhaustive, "{report:?}");
            assert_eq!(report.counts.distinct, 0, "{report:?}");
        }
        for family in [
            of_makings(&options, &progress),
            of_threads(&all_thread_workloads()[..1], &options, &progress),
        ] {
            let reports = (family.jobs[0].explore)();
            assert!(reports.iter().any(|report| report.cut_short), "{reports:?}");
            let distinct = |report: &WorkloadReport| report.counts.distinct;
            assert_eq!(reports.iter().map(distinct).sum::<u64>(), 0);
        }
    }

    /// One workload is left out, one is cut short, and one is done.
    #[test]
    fn what_there_was_no_time_for_is_named() {
        let done = |cut_short| WorkloadReport {
            operations: [(
                "link".to_owned(),
                Counts {
                    points: 1,
                    ..Counts::default()
                },
            )]
            .into(),
            cut_short,
            ..WorkloadReport::default()
        };
        let family = |operation, until, cut_short| Family {
            jobs: vec![Job {
                name: "",
                operations: ["link", operation].into(),
                explore: Box::new(move || vec![done(cut_short)]),
            }],
            until,
        };
        let families = vec![
            family("rename", None, false),
            family("chmod", None, true),
            family("unlink", Some(Instant::now()), false),
        ];
        let report = run_families(families, &Options::default(), &Progress::default());
        let mut all = report.summary();
        let counted = |link, others| {
            let names = [("chmod", others), ("link", link), ("unlink", others)];
            names.map(|(name, count)| (name.to_owned(), count)).into()
        };
        let unexplored: BTreeSet<_> = ["chmod", "unlink"].map(str::to_owned).into();
        let mut left_out = LeftOut {
            workloads: 1,
            cut_short: 1,
            operations: counted(2, 1),
            unexplored,
        };
        assert_eq!(all.left_out, left_out);
        let told = all.to_string();
        for words in [
            "1 workloads left out, 1 cut short; with chmod 1, link 2, unlink 1",
            "nothing was explored of chmod, unlink",
        ] {
            assert!(told.contains(words), "{told}");
        }
        // Another part of the same run explored some of it.
        let mut more = all.clone();
        more.operations[0].operation = "chmod".to_owned();
        all.add(more);
        left_out = LeftOut {
            workloads: 2,
            cut_short: 2,
            operations: counted(4, 2),
            unexplored: ["unlink".to_owned()].into(),
        };
        assert_eq!(all.left_out, left_out);
    }
}
