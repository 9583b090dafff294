//! Which schedules are tried.
//!
//! First come all orders in which the threads run one after the other. Then come all schedules that
//! preempt a thread once, then some that do so twice, and last some drawn at random that do so more
//! often. A thread is preempted before a fence, and before an access to a word that another thread
//! also uses: at other points, the states before and after differ in nothing that other threads or
//! a crash could see. The shared words are known from the runs so far.
//!
//! Runs with equal logs count as one run.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};

use vellum_media::{LINE_BYTES, Op};
use xxhash_rust::xxh3::Xxh3;

use super::ready::Ready;
use super::run::Run;
use super::schedule::Schedule;
use super::scheduler::{Access, Target, Trace, What};
use crate::record::RecordError;
use crate::shrink::spread;

/// How far to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most runs with one preemption; if there are more, an evenly spread selection.
    pub once: usize,
    /// Runs with two preemptions, drawn at random.
    pub twice: usize,
    /// Runs with three to five preemptions, drawn at random.
    pub often: usize,
}

/// The search over the runs of one workload.
pub(super) struct Search<'a> {
    ready: &'a Ready,
    words: Words,
    logs: HashSet<u64>,
    tried: HashSet<Schedule>,
    /// The number of runs, whether or not their logs were new.
    pub(crate) runs: u64,
}

/// A run with a new log.
pub(super) struct Found {
    pub(crate) schedule: Schedule,
    pub(crate) run: Run,
}

/// The threads that read each word, and those that change it: a bit for each.
#[derive(Default)]
struct Words(HashMap<(Target, u64), (u8, u8)>);

impl Words {
    fn note(&mut self, trace: &Trace) {
        for access in &trace.accesses {
            let thread = 1 << access.thread;
            for word in words_of(access) {
                let (seen, changed) = self.0.entry((access.place, word)).or_default();
                match access.what {
                    What::Store => *changed |= thread,
                    _ => *seen |= thread,
                }
            }
        }
    }

    /// Whether it may matter if this access or another thread comes first.
    fn matters(&self, access: &Access) -> bool {
        let others = !(1 << access.thread);
        let met = |word| {
            let known = self.0.get(&(access.place, word));
            known.is_some_and(|(seen, changed)| match access.what {
                What::Store => (seen | changed) & others != 0,
                _ => changed & others != 0,
            })
        };
        access.what == What::Fence || words_of(access).any(met)
    }
}

/// The words of an access; for a flush, those of its lines.
fn words_of(access: &Access) -> impl Iterator<Item = u64> {
    let unit = if access.what == What::Flush {
        LINE_BYTES
    } else {
        8
    };
    let first = access.at / unit * unit;
    let end = (access.at + access.len).next_multiple_of(unit);
    (first..if access.len == 0 { first } else { end }).step_by(8)
}

impl<'a> Search<'a> {
    pub(crate) fn new(ready: &'a Ready) -> Self {
        Self {
            ready,
            words: Words::default(),
            logs: HashSet::new(),
            tried: HashSet::new(),
            runs: 0,
        }
    }

    /// Executes all runs within `bounds`, and passes those with new logs to `each`, until that asks
    /// to stop.
    ///
    /// # Errors
    /// The setup fails.
    pub(crate) fn all(
        &mut self,
        bounds: &Bounds,
        seed: u64,
        each: &mut dyn FnMut(Found) -> bool,
    ) -> Result<(), RecordError> {
        let Some(orders) = self.orders(each)? else {
            return Ok(());
        };
        let Some(once) = self.once(&orders, bounds, each)? else {
            return Ok(());
        };
        let mut random = Random(seed);
        let twice = self.drawn(&once, bounds.twice, &mut random, each)?;
        let Some(mut longer) = twice else {
            return Ok(());
        };
        for rest in (0..3).rev() {
            let share = bounds.often.div_ceil(3);
            match self.drawn(&longer, share, &mut random, each)? {
                Some(next) if rest > 0 => longer = next,
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// Runs every order of the threads without a preemption; `None` if `each` asks to stop.
    fn orders(
        &mut self,
        each: &mut dyn FnMut(Found) -> bool,
    ) -> Result<Option<Vec<Tried>>, RecordError> {
        let threads = self.ready.workload.threads.len();
        let first = (0..threads).map(|thread| match thread {
            0 => Schedule::default(),
            _ => Schedule::default().and(0, thread),
        });
        let mut waiting: VecDeque<_> = first.collect();
        let mut orders = Vec::new();
        while let Some(schedule) = waiting.pop_front() {
            let Some(run) = self.try_one(&schedule)? else {
                continue;
            };
            for end in &run.trace.ends {
                if end.accesses > schedule.end() || schedule.0.is_empty() {
                    let others = end.left.iter().filter(|&&thread| thread != end.next);
                    waiting.extend(others.map(|&thread| schedule.and(end.accesses, thread)));
                }
            }
            orders.push(Tried::of(&schedule, &run));
            if !self.hand_on(schedule, run, each) {
                return Ok(None);
            }
        }
        Ok(Some(orders))
    }

    /// Runs every order with one preemption, or as many of these as are allowed.
    fn once(
        &mut self,
        orders: &[Tried],
        bounds: &Bounds,
        each: &mut dyn FnMut(Found) -> bool,
    ) -> Result<Option<Vec<Tried>>, RecordError> {
        let mut once = Vec::new();
        loop {
            let longer = orders.iter().flat_map(|order| order.longer(&self.words));
            let new: Vec<_> = longer
                .filter(|schedule| !self.tried.contains(schedule))
                .collect();
            let room = bounds.once.saturating_sub(once.len());
            if new.is_empty() || room == 0 {
                return Ok(Some(once));
            }
            for schedule in spread(new, room) {
                let Some(run) = self.try_one(&schedule)? else {
                    continue;
                };
                once.push(Tried::of(&schedule, &run));
                if !self.hand_on(schedule, run, each) {
                    return Ok(None);
                }
            }
        }
    }

    /// `count` schedules with one preemption more than those in `from`.
    fn drawn(
        &mut self,
        from: &[Tried],
        count: usize,
        random: &mut Random,
        each: &mut dyn FnMut(Found) -> bool,
    ) -> Result<Option<Vec<Tried>>, RecordError> {
        let mut tried = Vec::new();
        // Some are drawn twice.
        for _ in 0..4 * count {
            if tried.len() >= count || from.is_empty() {
                break;
            }
            let shorter = &from[random.below(from.len())];
            let longer = shorter.longer(&self.words);
            if longer.is_empty() {
                continue;
            }
            let schedule = &longer[random.below(longer.len())];
            let Some(run) = self.try_one(schedule)? else {
                continue;
            };
            tried.push(Tried::of(schedule, &run));
            if !self.hand_on(schedule.clone(), run, each) {
                return Ok(None);
            }
        }
        Ok(Some(tried))
    }

    /// Runs a schedule, unless it ran before.
    fn try_one(&mut self, schedule: &Schedule) -> Result<Option<Run>, RecordError> {
        if !self.tried.insert(schedule.clone()) {
            return Ok(None);
        }
        self.runs += 1;
        let run = self.ready.run(schedule)?;
        self.words.note(&run.trace);
        Ok(Some(run))
    }

    /// Passes a run to `each` if its log is new.
    fn hand_on(
        &mut self,
        schedule: Schedule,
        run: Run,
        each: &mut dyn FnMut(Found) -> bool,
    ) -> bool {
        !self.logs.insert(name(&run)) || each(Found { schedule, run })
    }
}

/// A schedule that ran.
struct Tried {
    schedule: Schedule,
    /// Accesses after its last switch, with their numbers.
    accesses: Vec<(u64, Access)>,
    /// For each thread, the number of accesses that all threads had made when it ended.
    ended: Vec<u64>,
}

impl Tried {
    fn of(schedule: &Schedule, run: &Run) -> Self {
        let all = (0..).zip(run.trace.accesses.iter().copied());
        let first = if schedule.0.is_empty() {
            0
        } else {
            schedule.end() + 1
        };
        Self {
            schedule: schedule.clone(),
            accesses: all.filter(|(number, _)| *number >= first).collect(),
            ended: run.trace.ended.clone(),
        }
    }

    /// The schedules that add one more preemption after the last one of this schedule.
    fn longer(&self, words: &Words) -> Vec<Schedule> {
        let mut longer = Vec::new();
        for (number, access) in &self.accesses {
            if !words.matters(access) {
                continue;
            }
            for (thread, &ended) in self.ended.iter().enumerate() {
                if thread != access.thread && ended > *number {
                    longer.push(self.schedule.and(*number, thread));
                }
            }
        }
        longer
    }
}

/// A hash of what a run left: each thread's changes of the pool, and the histories.
fn name(run: &Run) -> u64 {
    let mut hasher = Xxh3::new();
    for event in &run.log {
        event.thread.hash(&mut hasher);
        match event.op {
            Op::Store {
                at,
                after,
                non_temporal,
                ..
            } => (at, after, non_temporal).hash(&mut hasher),
            Op::Flush { line } => (0, line).hash(&mut hasher),
            Op::Fence => 1.hash(&mut hasher),
            Op::Marker(history) => (2, history).hash(&mut hasher),
            Op::Behind { .. } | Op::Release { .. } => {}
        }
    }
    (&run.panics, &run.trace.stuck).hash(&mut hasher);
    hasher.finish()
}

/// Splitmix64.
struct Random(u64);

impl Random {
    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}
