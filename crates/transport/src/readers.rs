//! Which threads read `/dev/fuse`.
//!
//! A thread *reads* (it looks for requests, and serves those that are quick), is *away* (it serves
//! a request that may wait), or *rests*. As few read as are needed, most of the time one: an idle
//! thread that sleeps in a read is awakened for every request, on another processor, which costs
//! more than most requests do.
//!
//! * At least one reads, unless there is no other thread. A thread that leaves to serve what may
//!   wait has seen another that reads, or has *called* one that rests. A called thread counts as
//!   one that reads from the call on, so no two threads rely on it. If there is none to call, the
//!   request is *held* for the next thread that comes back, and the thread reads on. So no request
//!   waits for a thread that is blocked in the file system, except those that may block too.
//! * A held request is served. It is held only while a thread is away, and that one takes it when
//!   it comes back: both look at the list under one lock. Its memory is that of a request whose
//!   client waits for it.
//! * No call is lost. A thread rests by waiting on the condition under the lock, and a call is a
//!   count under that lock, at most the number of threads that rest. Whichever wakes takes it, or
//!   comes to rest before.
//! * If requests wait whenever the only thread looks, it calls one more, up to half of the
//!   processors: the clients need the others. One that finds nothing rests, if others read.
//! * Where others want the processors, all read: each is then scheduled for itself.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::pace::SLEEPS;

/// The threads of a connection. `H`: a held request.
pub(crate) struct Readers<H> {
    state: Mutex<State<H>>,
    called: Condvar,
    /// The most threads that read because many requests come.
    reading_max: usize,
}

struct State<H> {
    /// Called ones included.
    reading: usize,
    away: usize,
    /// Called ones included, until they wake.
    resting: usize,
    calls: usize,
    held: VecDeque<H>,
    /// Until then all read.
    taken_until: Option<Instant>,
    has_ended: bool,
}

/// What a thread does with a request that may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// It serves the request, and then calls [`Readers::come_back`].
    Away,
    /// It serves the request, and reads on: there is no other thread.
    Alone,
    /// It reads on. The request is held.
    Held,
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next<H> {
    Read,
    /// It serves a held request, and then calls [`Readers::come_back`].
    Serve(H),
    End,
}

impl<H> Readers<H> {
    /// Of a connection that one thread reads.
    pub(crate) fn new(processors: usize) -> Self {
        Self {
            state: Mutex::new(State {
                reading: 1,
                away: 0,
                resting: 0,
                calls: 0,
                held: VecDeque::new(),
                taken_until: None,
                has_ended: false,
            }),
            called: Condvar::new(),
            reading_max: (processors / 2).max(1),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<H>> {
        // Nothing panics while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread that reads has a request that may wait. `hold` copies it.
    pub(crate) fn leave(&self, hold: impl FnOnce() -> H) -> Leave {
        let mut state = self.state();
        if state.reading > 1 {
            state.reading -= 1;
        } else if state.resting > state.calls {
            // The called one reads in place of this one.
            state.calls += 1;
            self.called.notify_one();
        } else if state.away > 0 {
            state.held.push_back(hold());
            return Leave::Held;
        } else {
            return Leave::Alone;
        }
        state.away += 1;
        Leave::Away
    }

    /// A thread that was away has served its request.
    pub(crate) fn come_back(&self) -> Next<H> {
        let mut state = self.state();
        state.away -= 1;
        self.rest(state)
    }

    /// One more thread begins.
    pub(crate) fn begin(&self) -> Next<H> {
        self.rest(self.state())
    }

    /// A thread that reads has found nothing for a while. `is_taken`: others want its processor.
    pub(crate) fn pause(&self, is_taken: bool) -> Next<H> {
        let mut state = self.state();
        if state.has_ended {
            return Next::End;
        }
        let now = Instant::now();
        if is_taken {
            state.taken_until = Some(now + SLEEPS);
        }
        if state.taken_until.is_some_and(|until| now < until) {
            if state.resting > state.calls {
                state.reading += state.resting - state.calls;
                state.calls = state.resting;
                self.called.notify_all();
            }
            return Next::Read;
        }
        if state.reading == 1 {
            return Next::Read;
        }
        state.reading -= 1;
        self.rest(state)
    }

    /// A thread that reads cannot keep up.
    pub(crate) fn call_another(&self) {
        let mut state = self.state();
        if state.reading < self.reading_max && state.resting > state.calls {
            state.calls += 1;
            state.reading += 1;
            self.called.notify_one();
        }
    }

    /// The connection has ended. All threads end when they come here next.
    pub(crate) fn end(&self) {
        self.state().has_ended = true;
        self.called.notify_all();
    }

    /// Waits until the thread is called, unless a request is held.
    fn rest(&self, mut state: MutexGuard<'_, State<H>>) -> Next<H> {
        if let Some(held) = state.held.pop_front() {
            state.away += 1;
            return Next::Serve(held);
        }
        state.resting += 1;
        while state.calls == 0 && !state.has_ended {
            let waited = self.called.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.resting -= 1;
        if state.has_ended {
            return Next::End;
        }
        state.calls -= 1;
        Next::Read
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::{Scope, scope, yield_now};

    use super::*;

    impl Readers<u32> {
        fn leave_with(&self, request: u32) -> Leave {
            self.leave(|| request)
        }

        fn is(&self, reading: usize, away: usize, resting: usize) -> bool {
            let state = self.state();
            (state.reading, state.away, state.resting) == (reading, away, resting)
        }

        fn until(&self, reading: usize, away: usize, resting: usize) {
            while !self.is(reading, away, resting) {
                yield_now();
            }
        }
    }

    type Act = fn(&Readers<u32>) -> Next<u32>;

    /// A thread that begins and does what it is told, and tells what comes next.
    fn thread<'s>(
        scope: &'s Scope<'s, '_>,
        readers: &'s Readers<u32>,
    ) -> (Sender<Act>, Receiver<Next<u32>>) {
        let (does, told) = channel::<Act>();
        let (tells, next) = channel();
        scope.spawn(move || {
            let _ = tells.send(readers.begin());
            told.iter().try_for_each(|act| tells.send(act(readers)))
        });
        (does, next)
    }

    #[test]
    fn a_thread_without_others_serves_what_may_wait() {
        let readers = Readers::new(1);
        assert_eq!(readers.leave_with(1), Leave::Alone);
        assert_eq!(readers.pause(false), Next::Read);
        readers.call_another();
        assert!(readers.is(1, 0, 0));
        readers.end();
        assert_eq!(readers.pause(false), Next::End);
    }

    #[test]
    fn one_that_leaves_calls_one_that_rests() {
        let readers = Readers::new(2);
        scope(|scope| {
            let (does, next) = thread(scope, &readers);
            readers.until(1, 0, 1);
            assert_eq!(readers.leave_with(1), Leave::Away);
            assert_eq!(next.recv(), Ok(Next::Read));
            assert!(readers.is(1, 1, 0));
            // The first is away, and both requests of the second are held for it.
            does.send(|readers| {
                assert_eq!(readers.leave_with(2), Leave::Held);
                assert_eq!(readers.leave_with(3), Leave::Held);
                readers.pause(false)
            })
            .expect("a thread");
            assert_eq!(next.recv(), Ok(Next::Read));
            assert_eq!(readers.come_back(), Next::Serve(2));
            assert_eq!(readers.come_back(), Next::Serve(3));
            assert!(readers.is(1, 1, 0));
            // Then it rests until the second leaves.
            does.send(|readers| {
                readers.until(1, 0, 1);
                assert_eq!(readers.leave_with(4), Leave::Away);
                readers.until(1, 1, 0);
                readers.come_back()
            })
            .expect("a thread");
            assert_eq!(readers.come_back(), Next::Read);
            readers.until(1, 0, 1);
            readers.end();
            assert_eq!(next.recv(), Ok(Next::End));
        });
    }

    #[test]
    fn a_call_counts_before_the_called_one_wakes() {
        let readers = Readers::new(4);
        // It never wakes.
        readers.state().resting = 1;
        assert_eq!(readers.leave_with(1), Leave::Away);
        assert_eq!(readers.leave_with(2), Leave::Held);
        readers.call_another();
        assert_eq!(readers.state().calls, 1);
        // Another one that is to rest takes the call, once nothing is held.
        assert_eq!(readers.come_back(), Next::Serve(2));
        assert_eq!(readers.come_back(), Next::Read);
        assert!(readers.is(1, 0, 1));
    }

    #[test]
    fn all_read_where_others_want_the_processors() {
        let readers = Readers::new(2);
        scope(|scope| {
            let threads = [thread(scope, &readers), thread(scope, &readers)];
            readers.until(1, 0, 2);
            assert_eq!(readers.pause(true), Next::Read);
            for (does, next) in &threads {
                assert_eq!(next.recv(), Ok(Next::Read));
                does.send(|readers| readers.pause(false)).expect("a thread");
                assert_eq!(next.recv(), Ok(Next::Read));
            }
            assert!(readers.is(3, 0, 0));
            // Then they rest again, but for the last.
            readers.state().taken_until = None;
            for (does, _) in &threads {
                does.send(|readers| readers.pause(false)).expect("a thread");
            }
            readers.until(1, 0, 2);
            assert_eq!(readers.pause(false), Next::Read);
            readers.end();
        });
    }

    #[test]
    fn more_threads_read_while_many_requests_come() {
        let readers = Readers::new(4);
        scope(|scope| {
            let (does, next) = thread(scope, &readers);
            let (_, other) = thread(scope, &readers);
            readers.until(1, 0, 2);
            readers.call_another();
            // Half of the processors.
            readers.call_another();
            readers.until(2, 0, 1);
            // With another one that reads, nobody is called.
            assert_eq!(readers.leave_with(1), Leave::Away);
            assert!(readers.is(1, 1, 1));
            readers.end();
            assert_eq!(readers.come_back(), Next::End);
            let both = [next.recv(), other.recv()];
            for expected in [Next::Read, Next::End] {
                assert!(both.contains(&Ok(expected)), "{both:?}");
            }
            drop(does);
        });
    }
}
