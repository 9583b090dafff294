//! Trying every mutant on the workloads that reach its site, until one shows what is wrong with it:
//! sequences, the makings of pools, and at last threads, for steps that only others miss.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use vellum::sites;
use vellum_media::{Event, Op, Site};

use crate::id::Mode;
use crate::kills::sites_after_kills;
use crate::mkfs::{Making, makings};
use crate::mutant::{FOR_LATER, Mutant};
use crate::record::{Recorded, record};
use crate::report::Violation;
use crate::run::{Change, Progress, explore_recorded};
use crate::threads::Trials;
use crate::{Options, Workload};

/// Which mutants, on which workloads, how thoroughly.
#[derive(Clone, Debug)]
pub struct MutateOptions {
    /// Sites whose names contain one of these; all, if there are none.
    pub only: Vec<String>,
    /// States tried at a crash point.
    pub states_per_point: usize,
    /// Recoveries of a workload whose crashes are explored.
    pub nested_recoveries: usize,
    /// Threads.
    pub threads: usize,
    /// No mutant is tried on a further workload after this time.
    pub time: Option<Duration>,
}

impl Default for MutateOptions {
    fn default() -> Self {
        Self {
            only: Vec::new(),
            states_per_point: 128,
            nested_recoveries: 64,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            time: None,
        }
    }
}

/// What became of the mutants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MutationReport {
    /// Sites in the source.
    pub sites: usize,
    /// Mutants tried.
    pub mutants: usize,
    /// Those that a crash gave away.
    pub caught: usize,
    /// Those that nothing gave away.
    pub missed: Vec<Missed>,
    /// By what each was caught.
    pub caught_by: Vec<Caught>,
    /// Seconds from begin to end.
    pub seconds: f64,
}

/// A mutant that was caught.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caught {
    /// The mutant.
    pub mutant: String,
    /// The crash that shows it.
    pub id: String,
    /// What was wrong then.
    pub violation: String,
}

/// A mutant that was not caught.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// The mutant.
    pub mutant: String,
    /// Workloads that it was tried on.
    pub tried: usize,
}

/// How far a run is, for whoever watches it from another thread.
#[derive(Debug, Default)]
pub struct MutationProgress {
    mutants: AtomicUsize,
    done: AtomicUsize,
    missed: AtomicUsize,
}

impl MutationProgress {
    /// Mutants there are, those that are done, and those of them that were missed. Nothing at first.
    pub fn counts(&self) -> [usize; 3] {
        [&self.mutants, &self.done, &self.missed].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Tries every mutant of the sites chosen on `workloads`.
pub fn mutate(
    workloads: &[Workload],
    options: &MutateOptions,
    progress: &MutationProgress,
) -> MutationReport {
    let start = Instant::now();
    let stage = Stage::new(workloads, options, start);
    let mutants = stage.mutants();
    progress.mutants.store(mutants.len(), Ordering::Relaxed);
    let outcomes = in_parallel(options.threads, &mutants, |&mutant| {
        let outcome = stage.try_mutant(mutant);
        progress.done.fetch_add(1, Ordering::Relaxed);
        if outcome.is_err() {
            progress.missed.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    });
    let (mut caught_by, mut missed) = (Vec::new(), Vec::new());
    for (mutant, outcome) in mutants.iter().zip(outcomes) {
        let mutant = mutant.to_string();
        match outcome {
            Ok(Violation {
                id, kind, detail, ..
            }) => caught_by.push(Caught {
                mutant,
                id,
                violation: format!("{kind}: {detail}"),
            }),
            Err(tried) => missed.push(Missed { mutant, tried }),
        }
    }
    MutationReport {
        sites: sites::ALL.len(),
        mutants: mutants.len(),
        caught: caught_by.len(),
        missed,
        caught_by,
        seconds: start.elapsed().as_secs_f64(),
    }
}

/// Does `work` for each of `items` on some threads; gives the results in the items' order.
fn in_parallel<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::default()).collect();
    let take = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (Some(item), Some(place)) = (items.get(at), results.get(at)) else {
                return;
            };
            let result = work(item);
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        }
    };
    std::thread::scope(|scope| {
        (1..threads.max(1)).for_each(|_| {
            scope.spawn(take);
        });
        take();
    });
    let done = |place: Mutex<Option<R>>| place.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().filter_map(done).collect()
}

/// What a workload's logs go through.
struct Reach {
    workload: usize,
    /// Events of the explored steps.
    events: usize,
    /// Sites of the explored steps.
    steps: BTreeSet<Site>,
    /// Sites of recoveries after crashes of the explored steps.
    recovery: BTreeSet<Site>,
    /// Sites of the processes that come after a kill.
    kills: BTreeSet<Site>,
    /// Fences behind which a step follows, in any of them.
    followed: BTreeSet<Site>,
}

/// Where a mutant may show.
#[derive(Clone, Copy)]
enum Place {
    /// In the explored steps.
    Steps,
    /// In the recoveries after crashes of them.
    Recovery,
    /// In the openings after kills in the middle of them.
    Kills,
}

impl Reach {
    fn sites(&self, place: Place) -> &BTreeSet<Site> {
        match place {
            Place::Steps => &self.steps,
            Place::Recovery => &self.recovery,
            Place::Kills => &self.kills,
        }
    }
}

struct Stage<'a> {
    workloads: &'a [Workload],
    options: &'a MutateOptions,
    start: Instant,
    recorded: Vec<OnceLock<Option<Arc<Recorded>>>>,
    /// The cheapest first.
    reaches: Vec<Reach>,
    makings: Vec<Making>,
    /// Threads beside each other, for what no sequence shows.
    trials: Trials,
}

impl<'a> Stage<'a> {
    fn new(workloads: &'a [Workload], options: &'a MutateOptions, start: Instant) -> Self {
        let mut stage = Self {
            workloads,
            options,
            start,
            recorded: workloads.iter().map(|_| OnceLock::new()).collect(),
            reaches: Vec::new(),
            makings: makings().unwrap_or_default(),
            trials: Trials::new(),
        };
        let all: Vec<usize> = (0..workloads.len()).collect();
        let mut reaches = in_parallel(options.threads, &all, |&at| stage.reach(at));
        reaches.sort_by_key(|reach| (reach.events, reach.workload));
        stage.reaches = reaches;
        stage
    }

    fn recorded(&self, workload: usize) -> Option<Arc<Recorded>> {
        let record = || Some(Arc::new(record(&self.workloads[workload]).ok()?));
        self.recorded[workload].get_or_init(record).clone()
    }

    /// Explores a workload as it is, a little, and looks which sites its logs name.
    fn reach(&self, workload: usize) -> Reach {
        let mut reach = Reach {
            workload,
            events: 0,
            steps: BTreeSet::new(),
            recovery: BTreeSet::new(),
            kills: BTreeSet::new(),
            followed: BTreeSet::new(),
        };
        let Ok(recorded) = record(&self.workloads[workload]) else {
            return reach;
        };
        let log = recorded.explored_log();
        reach.events = log.len();
        reach.steps = log.iter().map(|event| event.site).collect();
        let recovery = Mutex::new(BTreeSet::new());
        let followed = Mutex::new(BTreeSet::new());
        let watch = |seen: &[Event]| {
            let mut followed = followed.lock().unwrap_or_else(PoisonError::into_inner);
            followed.extend(fences_with_a_step_behind(seen));
            if seen.len() != log.len() || seen != log {
                let mut recovery = recovery.lock().unwrap_or_else(PoisonError::into_inner);
                recovery.extend(seen.iter().map(|event| event.site));
            }
            seen.to_vec()
        };
        let options = Options {
            states_per_point: 16,
            nested_states: 1,
            nested_recoveries: [self.options.nested_recoveries, 0],
            ..Options::default()
        };
        let (change, progress) = (Change::By(&watch), Progress::default());
        explore_recorded(&recorded, Mode::X86, change, &options, &progress);
        reach.kills = sites_after_kills(&recorded);
        reach.recovery = recovery
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        reach.followed = followed
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        reach
    }

    /// Fences with a step behind in some log.
    fn followed(&self) -> BTreeSet<Site> {
        let makings = self.makings.iter();
        let made = makings.flat_map(|making| fences_with_a_step_behind(&making.log));
        let reached = self.reaches.iter().flat_map(|reach| &reach.followed);
        reached.copied().chain(made).collect()
    }

    /// Every site without, and with its two steps swapped where it has any.
    fn mutants(&self) -> Vec<Mutant> {
        let only = &self.options.only;
        let chosen = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part));
        let mut followed = self.followed();
        followed.extend(FOR_LATER);
        let mutants = sites::ALL
            .iter()
            .filter(|(_, name)| chosen(name))
            .flat_map(|&(site, _)| {
                let swap = followed.contains(&site).then_some(Mutant::Swap(site));
                [Some(Mutant::Omit(site)), swap]
            });
        mutants.flatten().collect()
    }

    fn is_time_up(&self) -> bool {
        let time = self.options.time;
        time.is_some_and(|time| self.start.elapsed() > time)
    }

    /// Tries `mutant` on one workload after the other.
    ///
    /// # Errors
    /// How many did not show it.
    fn try_mutant(&self, mutant: Mutant) -> Result<Violation, usize> {
        let site = mutant.site();
        let mut tried = 0;
        let mut show = |found: Option<Violation>| {
            tried += usize::from(found.is_none());
            found
        };
        let places = [Place::Steps, Place::Recovery, Place::Kills].into_iter();
        let reaches = places.flat_map(|place| self.reaches.iter().map(move |of| (of, place)));
        let reaches = reaches.filter(|(of, place)| of.sites(*place).contains(&site));
        let mut sequences = reaches.take_while(|_| !self.is_time_up());
        let found = sequences.find_map(|(of, place)| show(self.try_on(mutant, of.workload, place)));
        let found = found.or_else(|| {
            let reaches = |making: &&Making| making.log.iter().any(|event| event.site == site);
            let mut makings = self.makings.iter().filter(reaches);
            makings.find_map(|making| {
                let options = self.explore_options(Place::Steps);
                let report = making.explore(Mode::X86, Some(mutant), &options);
                show(report.violations.into_iter().next())
            })
        });
        if let Some(violation) = found {
            return Ok(violation);
        }
        if self.is_time_up() {
            return Err(tried);
        }
        let beside = self.trials.find(mutant, self.options.states_per_point);
        beside.map_err(|beside| tried + beside)
    }

    /// How a mutant's logs are explored in order to see what becomes of one `place`.
    fn explore_options(&self, place: Place) -> Options {
        let states = self.options.states_per_point;
        let (states_per_point, recoveries) = match place {
            Place::Recovery => (states.min(16), self.options.nested_recoveries),
            Place::Steps | Place::Kills => (states, 0),
        };
        Options {
            states_per_point,
            nested_states: states,
            nested_recoveries: [recoveries, 0],
            kills: 32,
            kill_states: states,
            wrong_states: 1,
            ..Options::default()
        }
    }

    /// What the mutant does wrong in a workload.
    fn try_on(&self, mutant: Mutant, workload: usize, place: Place) -> Option<Violation> {
        let recorded = self.recorded(workload)?;
        let mode = match place {
            Place::Steps | Place::Recovery => Mode::X86,
            Place::Kills => Mode::Kill,
        };
        let (change, progress) = (Change::Mutant(mutant), Progress::default());
        let options = self.explore_options(place);
        let report = explore_recorded(&recorded, mode, change, &options, &progress);
        report.violations.into_iter().next()
    }
}

/// The fences between two steps of an operation.
fn fences_with_a_step_behind(log: &[Event]) -> BTreeSet<Site> {
    let mut found = BTreeSet::new();
    for part in log.split(|event| matches!(event.op, Op::Marker(_))) {
        // The last fence of each thread with a step in front, and whether a step is open behind it.
        let mut last: BTreeMap<u32, (Option<Site>, bool)> = BTreeMap::new();
        for event in part {
            let (fence, open) = last.entry(event.thread).or_default();
            if event.op != Op::Fence {
                *open = true;
            } else if std::mem::take(open) {
                found.extend(fence.replace(event.site));
            }
        }
    }
    found
}
