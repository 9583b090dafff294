//! Linearizability of calls that ran beside each other: whether some order explains what they
//! answered (Wing and Gong, "Testing and verifying concurrent objects", 1993).
//!
//! In such an order no call comes before one that had returned when it began, and each call, made
//! alone after those before it, answers what it answered. A crash cuts a history off: the calls in
//! flight are in the order or not, and what a crash may take back need not be.
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

/// What calls would do one after the other: a state of the object.
pub trait Specification: Clone {
    /// A call, with what it answered.
    type Call;
    /// All that tells two states apart for what may still be called.
    type Key: Eq + Hash;

    /// What the call leaves.
    fn after(&self, call: &Self::Call) -> After<Self>;

    /// Equal for two states in which the same calls answer the same.
    fn key(&self) -> Self::Key;
}

/// What a call leaves of a state.
#[derive(Clone, Debug)]
pub enum After<S> {
    /// It would have answered something else here.
    Nothing,
    /// The same state.
    Same,
    /// Another one.
    Other(S),
}

/// A call, and what has to come before it.
#[derive(Clone, Debug)]
struct Placed<C> {
    call: C,
    /// The calls, a bit each.
    before: u128,
}

/// Calls that ran beside each other: at most 128.
#[derive(Clone, Debug)]
pub struct History<C> {
    calls: Vec<Placed<C>>,
    /// Those that every order has, a bit each.
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
    /// Calls that all returned, with the moments at which each began and ended. At no moment there
    /// are two of these.
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

    /// Adds a call that an order may lack, behind those of the bits `before`; returns its own bit.
    ///
    /// # Panics
    /// If it is the 129th.
    pub fn push(&mut self, call: C, before: u128) -> u128 {
        assert!(self.calls.len() < 128, "a history has at most 128 calls");
        self.calls.push(Placed { call, before });
        1 << (self.calls.len() - 1)
    }

    /// Every order has the calls of these bits.
    pub fn keep(&mut self, calls: u128) {
        self.kept |= calls;
    }

    fn all(&self) -> u128 {
        (0..self.calls.len()).fold(0, |bits, number| bits | 1 << number)
    }

    /// Whether some order explains the answers, from `start`.
    pub fn is_linearizable<S: Specification<Call = C>>(&self, start: &S) -> bool {
        self.endings(start, |_| ControlFlow::Break(())).is_break()
    }

    /// Shows `end` the states that orders which explain the answers end with, some of them more
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

/// A search in depth for orders.
struct Search<'h, S: Specification, E> {
    history: &'h History<S::Call>,
    end: E,
    /// Calls that were done, and the state behind them.
    seen: HashSet<(u128, S::Key)>,
}

impl<S: Specification, E: FnMut(&S) -> ControlFlow<()>> Search<'_, S, E> {
    /// Goes on from a state behind the calls of the bits `done`.
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

    /// Does all that changes nothing and can come now, for later it would do no better. Returns
    /// what else can come, each with its bit and the state behind it.
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
        /// Adds a letter that was not there.
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
    fn calls_beside_each_other_come_in_any_order() {
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
    fn two_that_look_agree_on_an_order() {
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
    fn what_comes_behind_a_call_is_not_there_without_it() {
        let mut history = History::default();
        let a = history.push(Call::Add('a'), 0);
        history.push(Call::Add('b'), a);
        assert_eq!(endings(&history), ["", "a", "ab"]);
        history.keep(a);
        assert_eq!(endings(&history), ["a", "ab"]);
    }

    /// Without what was seen of states this would try all orders of 20 calls.
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
