//! Tries every mutant on the workloads that reach its site, until one shows a violation: first
//! sequences, then the formatting of pools, and last threads, for steps whose absence only other
//! threads see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use vellum::sites;
use vellum_media::{Caller, Event, Op};

use crate::id::Mode;
use crate::kills::steps_after_kills;
use crate::location::{Location, Reached, Taken, steps_of};
use crate::mkfs::{Making, makings};
use crate::mutant::{Bounds, FOR_LATER, Mutant};
use crate::record::{Recorded, record};
use crate::report::Violation;
use crate::run::{Change, Progress, chooses, explore_recorded};
use crate::threads::Trials;
use crate::{Options, Workload};

/// For some sites, a workload that shows the missing step where a hundred others that reach it do
/// not. These are tried first. If one stops showing it, the search only takes longer.
const CATCHERS: [(&str, &str); 9] = [
    ("move/states", "adaptive-move-and-recycle"),
    ("move/over", "adaptive-evolve-merge"),
    ("move/over-durable", "adaptive-evolve-merge"),
    ("evict/durable", "evict-close"),
    ("recover/inherited-data", "write-over-word"),
    ("recover/inherited-durable", "unlink-device"),
    ("compact/next", "compact-symlink"),
    ("compact/next-durable", "compact-symlink"),
    ("write/after-data", "write-into-hole"),
];

/// Which mutants to try, on which workloads, and how thoroughly.
#[derive(Clone, Debug)]
pub struct MutateOptions {
    /// Steps and orders whose names contain one of these; empty: all. A name is the name of the
    /// site and, after a colon, the place in the source.
    pub only: Vec<String>,
    /// Workloads, also those of threads, whose names contain one of these; empty: all.
    pub workloads: Vec<String>,
    /// States tried at a crash point.
    pub states_per_point: usize,
    /// Recoveries of a workload whose crashes are explored.
    pub nested_recoveries: usize,
    /// For one in this many workloads, the recoveries are searched at once for steps to leave out.
    /// For the others this happens only for a mutant that nothing else catches.
    pub one_look_in: usize,
    /// Threads.
    pub threads: usize,
    /// After this time no workload is recorded any more, and no mutant is tried on a further one.
    pub time: Option<Duration>,
}

impl Default for MutateOptions {
    fn default() -> Self {
        Self {
            only: Vec::new(),
            workloads: Vec::new(),
            states_per_point: 128,
            nested_recoveries: 64,
            one_look_in: 1,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            time: None,
        }
    }
}

/// The outcome of a run over all mutants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MutationReport {
    /// Sites in the source.
    pub sites: usize,
    /// Lines of the source in which the workloads flush, fence, store past the cache, or rely on an
    /// order within a line.
    pub places: usize,
    /// Pairs of a site and a place: a line that serves several sites counts for each.
    pub steps: usize,
    /// Mutants tried.
    pub mutants: usize,
    /// Mutants that a crash exposed.
    pub caught: usize,
    /// Mutants that no crash exposed.
    pub missed: Vec<Missed>,
    /// What caught each mutant.
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
    /// The violation that it shows.
    pub violation: String,
}

/// A mutant that was not caught.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// The mutant.
    pub mutant: String,
    /// The number of workloads that it was tried on.
    pub tried: usize,
}

/// The progress of a run, for observers in other threads.
#[derive(Debug, Default)]
pub struct MutationProgress {
    mutants: AtomicUsize,
    done: AtomicUsize,
    missed: AtomicUsize,
}

impl MutationProgress {
    /// The numbers of mutants: all, finished, and missed. All are 0 at first.
    pub fn counts(&self) -> [usize; 3] {
        [&self.mutants, &self.done, &self.missed].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Tries every chosen mutant on `workloads`.
pub fn mutate(
    workloads: &[Workload],
    options: &MutateOptions,
    progress: &MutationProgress,
) -> MutationReport {
    let start = Instant::now();
    let mut workloads = workloads.to_vec();
    workloads.retain(|workload| chooses(&options.workloads, &workload.name));
    let stage = Stage::new(&workloads, options, start);
    let mutants = stage.mutants();
    progress.mutants.store(mutants.len(), Ordering::Relaxed);
    let of_site: Vec<&[Mutant]> = mutants
        .chunk_by(|a, b| a.location().site == b.location().site)
        .collect();
    let outcomes = in_parallel(options.threads, &of_site, |mutants| {
        let mut catchers = stage.known_catchers(mutants);
        let tried = mutants.iter().map(|mutant| {
            let outcome = stage.try_mutant(mutant, &mut catchers);
            progress.done.fetch_add(1, Ordering::Relaxed);
            if outcome.is_err() {
                progress.missed.fetch_add(1, Ordering::Relaxed);
            }
            outcome
        });
        tried.collect::<Vec<_>>()
    });
    let (mut caught_by, mut missed) = (Vec::new(), Vec::new());
    for (mutant, outcome) in mutants.iter().zip(outcomes.into_iter().flatten()) {
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
        places: places_of(&stage.steps).len(),
        steps: steps_in(&stage.steps),
        mutants: mutants.len(),
        caught: caught_by.len(),
        missed,
        caught_by,
        seconds: start.elapsed().as_secs_f64(),
    }
}

/// Runs `work` on each of `items` in several threads; returns the results in the order of the
/// items.
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

/// The steps that a workload's logs contain.
struct Reach {
    workload: usize,
    /// The number of events of the explored steps.
    events: usize,
    /// The persistent steps that the explored steps take.
    steps: Reached,
    /// Their fences that another step follows.
    followed: Reached,
    /// The steps after crashes of the workload, once they were looked at.
    after: OnceLock<After>,
}

/// The steps that are taken after crashes of a workload.
#[derive(Default)]
struct After {
    /// Steps of recoveries.
    recovery: Reached,
    /// Steps of the processes after a kill.
    kills: Reached,
    /// Fences of recoveries that another step follows.
    followed: Reached,
}

/// The phase in which a mutant can show.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// In the explored steps.
    Steps,
    /// In the recoveries after their crashes.
    Recovery,
    /// In the openings after kills in the middle of them.
    Kills,
}

impl Phase {
    const ALL: [Self; 3] = [Self::Steps, Self::Recovery, Self::Kills];
}

impl Reach {
    /// Whether a step is taken in a phase, as far as is known.
    fn has(&self, location: &Location, phase: Phase) -> bool {
        let after = self.after.get();
        match phase {
            Phase::Steps => location.is_among(&self.steps),
            Phase::Recovery => after.is_some_and(|after| location.is_among(&after.recovery)),
            Phase::Kills => after.is_some_and(|after| location.is_among(&after.kills)),
        }
    }

    fn all(&self) -> impl Iterator<Item = Taken> {
        let after = self.after.get().into_iter();
        let after = after.flat_map(|after| after.recovery.iter().chain(&after.kills));
        self.steps.iter().chain(after).copied()
    }

    fn followed(&self) -> impl Iterator<Item = Taken> {
        let after = self.after.get().into_iter();
        let after = after.flat_map(|after| &after.followed);
        self.followed.iter().chain(after).copied()
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
    /// Concurrent threads, for what no sequence shows.
    trials: Trials,
    /// Every step and order that some log contains.
    steps: BTreeSet<Taken>,
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
            trials: Trials::new(|name| chooses(&options.workloads, name)),
            steps: BTreeSet::new(),
        };
        let all: Vec<usize> = (0..workloads.len()).collect();
        let mut reaches = in_parallel(options.threads, &all, |&at| stage.reach(at));
        reaches.sort_by_key(|reach| (reach.events, reach.workload));
        stage.reaches = reaches;
        let looked: Vec<&Reach> = stage.reaches.iter().step_by(options.one_look_in).collect();
        in_parallel(options.threads, &looked, |reach| {
            stage.after(reach);
        });
        let all: Vec<usize> = (0..stage.trials.len()).collect();
        let beside = in_parallel(options.threads, &all, |&at| {
            let in_time = !stage.is_time_up();
            in_time.then(|| stage.trials.reached(at))
        });
        let made = stage.makings.iter().flat_map(|making| &making.log);
        let alone = stage.reaches.iter().flat_map(Reach::all);
        let all = steps_of(made)
            .chain(alone)
            .chain(beside.into_iter().flatten().flatten());
        stage.steps = all.collect();
        stage
    }

    fn recorded(&self, workload: usize) -> Option<Arc<Recorded>> {
        let record = || Some(Arc::new(record(&self.workloads[workload]).ok()?));
        self.recorded[workload].get_or_init(record).clone()
    }

    /// Finds the steps that a workload takes; none if the time is up.
    fn reach(&self, workload: usize) -> Reach {
        let mut reach = Reach {
            workload,
            events: 0,
            steps: Reached::new(),
            followed: Reached::new(),
            after: OnceLock::new(),
        };
        if self.is_time_up() {
            return reach;
        }
        let Ok(recorded) = record(&self.workloads[workload]) else {
            return reach;
        };
        let log = recorded.explored_log();
        reach.events = log.len();
        reach.steps = steps_of(log).collect();
        reach.followed = fences_with_a_step_behind(log);
        reach
    }

    /// Explores a workload briefly without a mutant, to find the steps that are taken after its
    /// crashes; none if the time is up.
    fn after<'r>(&self, reach: &'r Reach) -> &'r After {
        reach.after.get_or_init(|| {
            if self.is_time_up() {
                return After::default();
            }
            let recorded = record(&self.workloads[reach.workload]);
            recorded.map_or_else(|_| After::default(), |recorded| self.look_after(&recorded))
        })
    }

    fn look_after(&self, recorded: &Recorded) -> After {
        let log = recorded.explored_log();
        let seen = Mutex::new(After::default());
        let watch = |events: &[Event]| {
            if events != log {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.followed.extend(fences_with_a_step_behind(events));
                seen.recovery.extend(steps_of(events));
            }
            events.to_vec()
        };
        let options = Options {
            states_per_point: 16,
            nested_states: 0,
            nested_recoveries: [self.options.nested_recoveries, 0],
            ..Options::default()
        };
        let (change, progress) = (Change::By(&watch), Progress::default());
        explore_recorded(recorded, Mode::X86, change, &options, &progress);
        let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
        After {
            kills: steps_after_kills(recorded),
            ..seen
        }
    }

    /// Fences that another step follows in some log.
    fn followed(&self) -> Reached {
        let makings = self.makings.iter();
        let made = makings.flat_map(|making| fences_with_a_step_behind(&making.log));
        let reached = self.reaches.iter().flat_map(Reach::followed);
        let beside = (0..self.trials.len()).take_while(|_| !self.is_time_up());
        let beside = beside.flat_map(|at| self.trials.logs(at));
        let beside = beside.flat_map(fences_with_a_step_behind);
        reached.chain(made).chain(beside).collect()
    }

    /// The mutants: every step left out, every fence with the steps around it swapped where there
    /// are two, every order reversed. A site that nothing reaches has one mutant.
    fn mutants(&self) -> Vec<Mutant> {
        let chosen = |location: &Location| chooses(&self.options.only, &location.to_string());
        let followed = self.followed();
        let mut mutants = Vec::new();
        for &(site, _) in sites::ALL {
            let steps = self.steps.iter().filter(|step| step.0 == site);
            for &step in steps.clone() {
                let location = Location::at(step);
                if let (_, _, Some(distance)) = step {
                    mutants.push(Mutant::Turn(location, distance));
                    continue;
                }
                mutants.push(Mutant::Omit(location.clone()));
                if FOR_LATER.contains(&site) {
                    mutants.push(Mutant::Late(location));
                } else if followed.contains(&step) {
                    mutants.push(Mutant::Swap(location));
                }
            }
            if steps.count() == 0 {
                mutants.push(Mutant::Omit(site.into()));
            }
        }
        mutants.retain(|mutant| chosen(mutant.location()));
        mutants
    }

    /// The workloads and phases that are known to expose mutants of one site.
    fn known_catchers(&self, mutants: &[Mutant]) -> BTreeSet<(usize, Phase)> {
        let site = mutants
            .first()
            .map(|mutant| sites::name(mutant.location().site));
        let of_site = CATCHERS.iter().filter(|(of, _)| Some(*of) == site);
        let at = |name: &str| self.workloads.iter().position(|one| one.name == name);
        let workloads = of_site.filter_map(|(_, name)| at(name));
        workloads
            .flat_map(|at| Phase::ALL.map(|phase| (at, phase)))
            .collect()
    }

    fn is_time_up(&self) -> bool {
        let time = self.options.time;
        time.is_some_and(|time| self.start.elapsed() > time)
    }

    /// Tries `mutant` on one workload after the other, first on `catchers`, which exposed another
    /// mutant of the same site. Adds to them the one that exposes it.
    ///
    /// # Errors
    /// The mutant was not exposed; the error is the number of workloads that were tried.
    fn try_mutant(
        &self,
        mutant: &Mutant,
        catchers: &mut BTreeSet<(usize, Phase)>,
    ) -> Result<Violation, usize> {
        let location = mutant.location();
        let mut tried = 0;
        let mut show = |found: Option<Violation>| {
            tried += usize::from(found.is_none());
            found
        };
        let unknown = self.reaches.iter().filter(|of| of.after.get().is_none());
        let unknown: Vec<&Reach> = unknown.collect();
        let phases = Phase::ALL.into_iter();
        let reaches = phases.flat_map(|phase| self.reaches.iter().map(move |of| (of, phase)));
        let reaches = reaches.filter(|(of, phase)| of.has(location, *phase));
        let mut sequences: Vec<_> = reaches.map(|(of, phase)| (of.workload, phase)).collect();
        sequences.sort_by_key(|sequence| !catchers.contains(sequence));
        let sequences = sequences.into_iter();
        let mut sequences = sequences.take_while(|_| !self.is_time_up());
        let found = sequences.find_map(|sequence| {
            let found = show(self.try_on(mutant, sequence.0, sequence.1))?;
            catchers.insert(sequence);
            Some(found)
        });
        let found = found.or_else(|| {
            let reaches = |making: &&Making| making.log.iter().any(|event| location.is(event));
            let mut makings = self.makings.iter().filter(reaches);
            makings.find_map(|making| {
                let options = self.explore_options(Phase::Steps);
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
        let beside = match self.trials.find(mutant, self.options.states_per_point) {
            Ok(violation) => return Ok(violation),
            Err(beside) => beside,
        };
        let after = unknown.into_iter().flat_map(|of| {
            self.after(of);
            [Phase::Recovery, Phase::Kills].map(|phase| (of, phase))
        });
        let mut after = after.filter(|(of, phase)| of.has(location, *phase));
        let found = after.find_map(|(of, phase)| self.try_on(mutant, of.workload, phase));
        found.ok_or(tried + beside)
    }

    /// The options under which a mutant's logs are explored to see its effect in one `phase`.
    fn explore_options(&self, phase: Phase) -> Options {
        let states = self.options.states_per_point;
        let (states_per_point, recoveries) = match phase {
            Phase::Recovery => (states.min(16), self.options.nested_recoveries),
            Phase::Steps | Phase::Kills => (states, 0),
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

    /// The first violation that the mutant causes in a workload.
    fn try_on(&self, mutant: &Mutant, workload: usize, phase: Phase) -> Option<Violation> {
        let recorded = self.recorded(workload)?;
        let log = recorded.explored_log();
        if matches!(phase, Phase::Steps) && mutant.rewrite(log) == log {
            return None;
        }
        let mode = match phase {
            Phase::Steps | Phase::Recovery => Mode::X86,
            Phase::Kills => Mode::Kill,
        };
        let (change, progress) = (Change::Mutant(mutant), Progress::default());
        let options = self.explore_options(phase);
        let report = explore_recorded(&recorded, mode, change, &options, &progress);
        report.violations.into_iter().next()
    }
}

/// The lines of the source in which steps are taken.
fn places_of(steps: &BTreeSet<Taken>) -> BTreeSet<Caller> {
    steps.iter().map(|&(_, place, _)| place).collect()
}

/// The number of pairs of a site and a place.
fn steps_in(steps: &BTreeSet<Taken>) -> usize {
    let steps = steps.iter().map(|&(site, place, _)| (site, place));
    steps.collect::<BTreeSet<_>>().len()
}

/// The fences between two steps of an operation.
fn fences_with_a_step_behind(log: &[Event]) -> Reached {
    let mut found = Reached::new();
    let bounds = Bounds::of(log);
    // For each thread, its last fence with a step before it, and whether events follow that fence.
    let mut last: BTreeMap<u32, (Option<Taken>, bool)> = BTreeMap::new();
    for event in log {
        last.retain(|&thread, _| !bounds.is_between(event, thread));
        if let Op::Marker(_) = event.op {
            continue;
        }
        let (fence, open) = last.entry(event.thread).or_default();
        if event.op != Op::Fence {
            *open = true;
        } else if std::mem::take(open) {
            found.extend(fence.replace((event.site, event.place, None)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads;

    #[test]
    fn known_catchers_are_workloads_and_of_sites() {
        let workloads = workloads();
        for (site, name) in CATCHERS {
            assert!(
                sites::ALL.iter().any(|&(of, _)| sites::name(of) == site),
                "{site}"
            );
            assert!(workloads.iter().any(|one| one.name == name), "{name}");
        }
    }
}
