//! Linearizability of concurrent calls: whether some order explains their results (Wing and Gong,
//! "Testing and verifying concurrent objects", 1993).
//!
//! In such an order no call precedes one that had returned before it began, and each call, executed
//! alone after those before it, has its recorded result. A crash ends a history: calls in flight
//! may be in the order or not, and so may calls that the crash may undo.
//!
//! ```
//! use vellum_model::linear::{After, History, Specification};
//!
//! /// A number that is set, and read.
//! #[derive(Clone)]
//! struct Register(u32);
//!
//! enum Call {
//!     Set(u32),
//!     Saw(u32),
//! }
//!
//! impl Specification for Register {
//!     type Call = Call;
//!     type Key = u32;
//!
//!     fn after(&self, call: &Call) -> After<Self> {
//!         match *call {
//!             Call::Set(number) => After::Other(Register(number)),
//!             Call::Saw(number) if number == self.0 => After::Same,
//!             Call::Saw(_) => After::Nothing,
//!         }
//!     }
//!
//!     fn key(&self) -> u32 {
//!         self.0
//!     }
//! }
//!
//! let seen_in_turn = |one, other| {
//!     let calls = [(Call::Set(7), 0, 9), (Call::Saw(one), 1, 2), (Call::Saw(other), 3, 4)];
//!     History::of_intervals(calls).is_linearizable(&Register(0))
//! };
//! assert!(seen_in_turn(0, 7));
//! assert!(!seen_in_turn(7, 0));
//! ```

pub mod names;

use std::collections::HashSet;
use std::hash::Hash;
use std::ops::ControlFlow;

/// The sequential behaviour of calls: a state of the object.
pub trait Specification: Clone {
    /// A call with its result.
    type Call;
    /// Everything that distinguishes two states for later calls.
    type Key: Eq + Hash;

    /// The state after the call.
    fn after(&self, call: &Self::Call) -> After<Self>;

    /// Equal for two states in which all calls have the same results.
    fn key(&self) -> Self::Key;
}

/// The effect of a call on a state.
#[derive(Clone, Debug)]
pub enum After<S> {
    /// The call would have had another result here.
    Nothing,
    /// The same state.
    Same,
    /// Another state.
    Other(S),
}

/// A call, and the calls that must precede it.
#[derive(Clone, Debug)]
struct Placed<C> {
    call: C,
    /// The preceding calls, one bit each.
    before: u128,
}

/// Concurrent calls: at most 128.
#[derive(Clone, Debug)]
pub struct History<C> {
    calls: Vec<Placed<C>>,
    /// The calls that every order contains, one bit each.
    kept: u128,
}

impl<C> Default for History<C> {
    fn default() -> Self {
        Self {
            calls: Vec::new(),
            kept: 0,
        }
    }
}

impl<C> History<C> {
    /// Calls that all returned, with the times at which each began and ended. All times are
    /// different.
    pub fn of_intervals(calls: impl IntoIterator<Item = (C, u64, u64)>) -> Self {
        let (mut history, mut ends) = (Self::default(), Vec::new());
        for (call, begin, end) in calls {
            ends.push((begin, end));
            history.push(call, 0);
        }
        for (placed, (begin, _)) in history.calls.iter_mut().zip(&ends) {
            let before = (0..).zip(&ends).filter(|(_, (_, end))| end < begin);
            placed.before = before.fold(0, |bits, (number, _)| bits | 1 << number);
        }
        history.kept = history.all();
        history
    }

    /// Adds an optional call behind the calls of the bits `before`; returns its own bit.
    ///
    /// # Panics
    /// Panics at the 129th call.
    pub fn push(&mut self, call: C, before: u128) -> u128 {
        assert!(self.calls.len() < 128, "a history has at most 128 calls");
        self.calls.push(Placed { call, before });
        1 << (self.calls.len() - 1)
    }

    /// Makes the calls of these bits mandatory.
    pub fn keep(&mut self, calls: u128) {
        self.kept |= calls;
    }

    fn all(&self) -> u128 {
        (0..self.calls.len()).fold(0, |bits, number| bits | 1 << number)
    }

    /// Whether some order explains the results, from the state `start`.
    pub fn is_linearizable<S: Specification<Call = C>>(&self, start: &S) -> bool {
        self.endings(start, |_| ControlFlow::Break(())).is_break()
    }

    /// Calls `end` with the final states of the orders that explain the results, some of them more
    /// than once, until it breaks.
    pub fn endings<S: Specification<Call = C>>(
        &self,
        start: &S,
        end: impl FnMut(&S) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut search = Search {
            history: self,
            end,
            seen: HashSet::new(),
        };
        search.visit(start, 0)
    }
}

/// A depth-first search for orders.
struct Search<'h, S: Specification, E> {
    history: &'h History<S::Call>,
    end: E,
    /// The sets of done calls with the state after them, already visited.
    seen: HashSet<(u128, S::Key)>,
}

impl<S: Specification, E: FnMut(&S) -> ControlFlow<()>> Search<'_, S, E> {
    /// Continues from the state after the calls of the bits `done`.
    fn visit(&mut self, state: &S, mut done: u128) -> ControlFlow<()> {
        let next = self.next(state, &mut done);
        if !self.seen.insert((done, state.key())) {
            return ControlFlow::Continue(());
        }
        if self.history.kept & !done == 0 {
            (self.end)(state)?;
        }
        for (bit, state) in next {
            self.visit(&state, done | bit)?;
        }
        ControlFlow::Continue(())
    }

    /// Does every call that can come now and changes nothing, because later it would do no better.
    /// Returns the other possible calls, each with its bit and the state after it.
    fn next(&self, state: &S, done: &mut u128) -> Vec<(u128, S)> {
        let mut next = Vec::new();
        'again: loop {
            next.clear();
            for (number, placed) in self.history.calls.iter().enumerate() {
                let bit = 1 << number;
                if *done & bit != 0 || placed.before & !*done != 0 {
                    continue;
                }
                match state.after(&placed.call) {
                    After::Nothing => {}
                    After::Same => {
                        *done |= bit;
                        continue 'again;
                    }
                    After::Other(state) => next.push((bit, state)),
                }
            }
            return next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set of letters.
    #[derive(Clone, Default)]
    struct Letters(String);

    #[derive(Clone, Debug)]
    enum Call {
        Add(char),
        /// Adds a letter that was absent.
        AddNew(char),
        Saw(&'static str),
    }

    impl Specification for Letters {
        type Call = Call;
        type Key = String;

        fn after(&self, call: &Call) -> After<Self> {
            match *call {
                Call::AddNew(letter) if self.0.contains(letter) => After::Nothing,
                Call::Add(letter) if self.0.contains(letter) => After::Same,
                Call::Add(letter) | Call::AddNew(letter) => {
                    let mut letters: Vec<char> = self.0.chars().chain([letter]).collect();
                    letters.sort_unstable();
                    After::Other(Self(letters.into_iter().collect()))
                }
                Call::Saw(letters) if letters == self.0 => After::Same,
                Call::Saw(_) => After::Nothing,
            }
        }

        fn key(&self) -> String {
            self.0.clone()
        }
    }

    fn endings(history: &History<Call>) -> Vec<String> {
        let mut endings = Vec::new();
        let all = history.endings(&Letters::default(), |state| {
            endings.push(state.0.clone());
            ControlFlow::Continue(())
        });
        assert_eq!(all, ControlFlow::Continue(()));
        endings.sort();
        endings.dedup();
        endings
    }

    fn is_linearizable(calls: &[(Call, u64, u64)]) -> bool {
        History::of_intervals(calls.iter().cloned()).is_linearizable(&Letters::default())
    }

    #[test]
    fn concurrent_calls_come_in_any_order() {
        let beside = |seen| {
            let adds = [(Call::Add('a'), 0, 5), (Call::Add('b'), 1, 6)];
            let looks = [(Call::Saw(seen), 2, 7)];
            is_linearizable(&[&adds[..], &looks].concat())
        };
        assert!(["", "a", "b", "ab"].into_iter().all(beside));
        assert!(!beside("c"));
    }

    #[test]
    fn a_call_comes_behind_those_that_had_returned() {
        let calls = |begin| [(Call::AddNew('a'), 0, 3), (Call::Saw(""), begin, 9)];
        assert!(is_linearizable(&calls(1)));
        assert!(!is_linearizable(&calls(4)));
        let twice = [(Call::AddNew('a'), 0, 3), (Call::AddNew('a'), 1, 4)];
        assert!(!is_linearizable(&twice));
    }

    #[test]
    fn two_readers_agree_on_an_order() {
        let saw = |one, other| {
            let adds = [(Call::Add('a'), 0, 9), (Call::Add('b'), 1, 8)];
            let looks = [(Call::Saw(one), 2, 6), (Call::Saw(other), 3, 7)];
            is_linearizable(&[&adds[..], &looks].concat())
        };
        assert!(saw("a", "ab") && saw("", "b"));
        assert!(!saw("a", "b"));
    }

    #[test]
    fn a_call_in_flight_has_happened_or_not() {
        let mut history = History::default();
        let a = history.push(Call::Add('a'), 0);
        assert_eq!(endings(&history), ["", "a"]);
        let looked = history.push(Call::Saw("a"), 0);
        history.keep(looked);
        assert_eq!(endings(&history), ["a"], "somebody saw it");
        history.push(Call::Add('b'), a);
        assert_eq!(endings(&history), ["a", "ab"]);
    }

    #[test]
    fn a_dependent_call_needs_the_call_before_it() {
        let mut history = History::default();
        let a = history.push(Call::Add('a'), 0);
        history.push(Call::Add('b'), a);
        assert_eq!(endings(&history), ["", "a", "ab"]);
        history.keep(a);
        assert_eq!(endings(&history), ["a", "ab"]);
    }

    /// Without the memory of visited states this would try all orders of 20 calls.
    #[test]
    fn states_are_visited_once() {
        let letters = ('a'..='t').map(Call::Add);
        let calls = letters.map(|call| (call, 0, 100));
        let look = [(Call::Saw("nothing of it"), 101, 102)];
        let mut history = History::of_intervals(calls.take(12).chain(look));
        assert!(!history.is_linearizable(&Letters::default()));
        history.kept = 0;
        assert_eq!(endings(&history).len(), 1 << 12);
    }
}
