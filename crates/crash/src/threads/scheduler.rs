//! Runs one thread at a time, and decides at which access it switches to another.
//!
//! The threads of a run announce each access to shared memory before they execute it. Only one
//! thread runs; the others are parked. So a [`Schedule`] alone determines the order of all
//! accesses, and the same schedule always results in the same run.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::schedule::{Schedule, Switch};

/// The number of consecutive waits after which the threads are considered deadlocked.
const WAITS_MAX: u64 = 20_000;
/// The number of accesses after which a run is considered endless.
const ACCESSES_MAX: u64 = 20_000_000;

/// Which memory an access is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Target {
    /// The pool.
    Pool,
    /// The arena.
    Arena,
}

/// The effect of an access that other threads can observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Reads memory.
    Load,
    /// May change it.
    Store,
    /// Starts writing lines back.
    Flush,
    /// Waits until they are durable.
    Fence,
}

/// An access to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) thread: usize,
    pub(crate) what: What,
    pub(crate) place: Target,
    pub(crate) at: u64,
    pub(crate) len: u64,
}

/// A thread ended, and another took over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// Accesses made so far, by all threads.
    pub(crate) accesses: u64,
    /// The threads that could have continued.
    pub(crate) left: Vec<usize>,
    /// The thread that continued.
    pub(crate) next: usize,
}

/// The record of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    /// Every access, in order.
    pub(crate) accesses: Vec<Access>,
    /// Each time that a thread ended while others were left.
    pub(crate) ends: Vec<End>,
    /// For each thread, the number of accesses that all threads had made when it ended.
    pub(crate) ended: Vec<u64>,
    /// Why the run was abandoned, if it was.
    pub(crate) stuck: Option<String>,
}

/// Schedules the threads of one run.
pub(crate) struct Scheduler {
    state: Mutex<State>,
    turns: Vec<Condvar>,
}

struct State {
    running: usize,
    alive: Vec<bool>,
    /// The remaining switches of the schedule, next first.
    switches: std::vec::IntoIter<Switch>,
    next: Option<Switch>,
    /// Waits since the last progress.
    waits: u64,
    trace: Trace,
}

thread_local! {
    static ME: RefCell<Option<(Arc<Scheduler>, usize)>> = const { RefCell::new(None) };
}

/// Thrown in the threads of an abandoned run.
struct GivenUp;

/// Announces an access of this thread, if it is scheduled: other threads may run first.
pub(crate) fn announce(what: What, place: Target, at: u64, len: u64) {
    ME.with_borrow(|me| {
        if let Some((scheduler, thread)) = me {
            scheduler.access(Access {
                thread: *thread,
                what,
                place,
                at,
                len,
            });
        }
    });
}

/// Announces that this thread waits for another. Returns `false` if it is not scheduled.
pub(crate) fn wait() -> bool {
    let me = ME.with_borrow(Clone::clone);
    let scheduled = me.is_some();
    if let Some((scheduler, thread)) = me {
        scheduler.wait(thread);
    }
    scheduled
}

impl Scheduler {
    /// A scheduler of `threads` threads.
    pub(crate) fn new(threads: usize, schedule: &Schedule) -> Arc<Self> {
        let mut switches = schedule.0.clone().into_iter();
        let mut state = State {
            running: 0,
            alive: vec![true; threads],
            next: switches.next(),
            switches,
            waits: 0,
            trace: Trace {
                ended: vec![0; threads],
                ..Trace::default()
            },
        };
        if let Some(first) = state.due() {
            state.running = first;
        }
        Arc::new(Self {
            state: Mutex::new(state),
            turns: (0..threads).map(|_| Condvar::new()).collect(),
        })
    }

    /// Runs `work` as thread `thread`, when it is scheduled. A panic in it ends only that thread.
    pub(crate) fn run<T>(
        self: &Arc<Self>,
        thread: usize,
        work: impl FnOnce() -> T,
    ) -> std::thread::Result<T> {
        let _leaving = Leaving(self, thread);
        ME.set(Some((Arc::clone(self), thread)));
        drop(self.until_turn(self.lock(), thread));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))
    }

    /// Something ended: the count of waits starts again.
    pub(crate) fn progress(&self) {
        self.lock().waits = 0;
    }

    /// Returns the record. All threads have ended.
    pub(crate) fn take_trace(&self) -> Trace {
        std::mem::take(&mut self.lock().trace)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn access(&self, access: Access) {
        let thread = access.thread;
        let mut state = self.lock();
        if let Some(next) = state.due().filter(|_| state.trace.stuck.is_none()) {
            state = self.hand_over(state, thread, next);
        }
        if state.trace.stuck.is_some() {
            return;
        }
        state.trace.accesses.push(access);
        if state.trace.accesses.len() as u64 > ACCESSES_MAX {
            self.give_up(state, format!("thread {thread} does not end"));
        }
    }

    fn wait(&self, thread: usize) {
        let mut state = self.lock();
        if state.trace.stuck.is_none() {
            state.waits += 1;
            if state.waits > WAITS_MAX {
                let left: Vec<_> = state.left().collect();
                self.give_up(state, format!("threads {left:?} wait for each other"));
                return;
            }
            let next = state.due().or_else(|| state.after(thread));
            state = self.hand_over(state, thread, next.unwrap_or(thread));
        }
        if state.trace.stuck.is_some() {
            drop(state);
            leave();
        }
    }

    /// Lets `next` run, and waits until this thread may run again.
    fn hand_over<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        thread: usize,
        next: usize,
    ) -> MutexGuard<'a, State> {
        if next != thread {
            state.running = next;
            self.turns[next].notify_one();
        }
        self.until_turn(state, thread)
    }

    fn until_turn<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        thread: usize,
    ) -> MutexGuard<'a, State> {
        let others = |state: &mut State| state.running != thread && state.trace.stuck.is_none();
        self.turns[thread]
            .wait_while(state, others)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets all threads run freely until they next wait, where they end.
    fn give_up(&self, mut state: MutexGuard<'_, State>, why: String) {
        state.trace.stuck = Some(why);
        self.turns.iter().for_each(Condvar::notify_one);
        drop(state);
        leave();
    }

    fn end(&self, thread: usize) {
        let mut state = self.lock();
        let accesses = state.trace.accesses.len() as u64;
        state.trace.ended[thread] = accesses;
        state.alive[thread] = false;
        state.waits = 0;
        let left: Vec<_> = state.left().collect();
        let Some(next) = state.due().or(left.first().copied()) else {
            return;
        };
        state.trace.ends.push(End {
            accesses,
            left,
            next,
        });
        state.running = next;
        self.turns[next].notify_one();
    }
}

/// Ends this thread, unless it is ending already.
fn leave() {
    if !std::thread::panicking() {
        resume_unwind(Box::new(GivenUp));
    }
}

/// Whether a thread ended because its run was abandoned.
pub(crate) fn was_given_up(panic: &(dyn std::any::Any + Send)) -> bool {
    panic.is::<GivenUp>()
}

/// Passes control on when a thread ends.
struct Leaving<'a>(&'a Scheduler, usize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        ME.set(None);
        self.0.end(self.1);
    }
}

impl State {
    /// The thread to which the schedule switches now, if it has a switch here and the thread has
    /// not ended.
    fn due(&mut self) -> Option<usize> {
        let now = self.trace.accesses.len() as u64;
        let mut chosen = None;
        while let Some(switch) = self.next.filter(|switch| switch.access <= now) {
            self.next = self.switches.next();
            chosen = Some(switch.thread);
        }
        chosen.filter(|&thread| self.alive.get(thread).is_some_and(|alive| *alive))
    }

    /// The next thread after `thread`, in a circle, that has not ended.
    fn after(&self, thread: usize) -> Option<usize> {
        let count = self.alive.len();
        let others = (1..count).map(|step| (thread + step) % count);
        others.into_iter().find(|&other| self.alive[other])
    }

    fn left(&self) -> impl Iterator<Item = usize> {
        let threads = self.alive.iter().enumerate();
        threads.filter_map(|(thread, alive)| alive.then_some(thread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs threads with this many accesses each under `schedule`; returns the thread of each
    /// access.
    fn order(accesses: &[u64], schedule: &str) -> Vec<usize> {
        let scheduler = Scheduler::new(accesses.len(), &schedule.parse().unwrap());
        std::thread::scope(|scope| {
            for (thread, &count) in accesses.iter().enumerate() {
                let scheduler = &scheduler;
                scope.spawn(move || {
                    let work =
                        || (0..count).for_each(|at| announce(What::Load, Target::Arena, at, 8));
                    assert!(scheduler.run(thread, work).is_ok());
                });
            }
        });
        let trace = scheduler.take_trace();
        trace.accesses.iter().map(|access| access.thread).collect()
    }

    #[test]
    fn threads_switch_where_the_schedule_says() {
        assert_eq!(order(&[2, 2], ""), [0, 0, 1, 1]);
        assert_eq!(order(&[2, 2], "0>1"), [1, 1, 0, 0]);
        assert_eq!(order(&[3, 3], "1>1,3>0"), [0, 1, 1, 0, 0, 1]);
        assert_eq!(order(&[1, 2, 1], "1>2"), [0, 2, 1, 1]);
        // A thread that has ended is not scheduled.
        assert_eq!(order(&[1, 2], "2>0"), [0, 1, 1]);
    }

    #[test]
    fn a_waiting_thread_lets_others_continue() {
        let scheduler = Scheduler::new(2, &Schedule::default());
        let done = std::sync::atomic::AtomicBool::new(false);
        let order = std::sync::atomic::Ordering::SeqCst;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let wait_for_it = || {
                    while !done.load(order) {
                        assert!(wait());
                    }
                };
                assert!(scheduler.run(0, wait_for_it).is_ok());
            });
            scope.spawn(|| assert!(scheduler.run(1, || done.store(true, order)).is_ok()));
        });
        assert_eq!(scheduler.take_trace().stuck, None);
        assert!(!wait(), "not scheduled any more");
    }

    #[test]
    fn threads_that_wait_for_each_other_are_abandoned() {
        let scheduler = Scheduler::new(2, &Schedule::default());
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let scheduler = &scheduler;
                scope.spawn(move || {
                    let forever = || while wait() {};
                    let panic = scheduler.run(thread, forever).unwrap_err();
                    assert!(was_given_up(&*panic));
                });
            }
        });
        let stuck = scheduler.take_trace().stuck;
        assert!(stuck.is_some_and(|why| why.contains("[0, 1]")));
    }
}
