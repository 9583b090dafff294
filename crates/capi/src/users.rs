//! The users of an object behind a handle: who may still look at it, and who frees it.
//!
//! Each call on a handle enters, and leaves when it ends. Closing never waits for calls: it lets
//! nobody in any more, and the last one out frees the object. So a handle that a thread closes in
//! the middle of another thread's call stays safe, and a number that was closed is refused, even if
//! its slot has another object by now.
//!
//! All of this is one word:
//!
//! ```text
//!   63                      26   25       24     23                 0
//!  +--------------------------+--------+------+----------------------+
//!  |        generation        |CLOSING | OPEN |        users         |
//!  +--------------------------+--------+------+----------------------+
//! ```
//!
//! It goes from free to open (with the next generation), to closing, and, once there are no users,
//! to free again. Somebody with a stale handle may enter for a moment, and leaves at once; if an
//! object is closed in this moment, that may be the one who frees it.

use std::sync::atomic::{AtomicU64, Ordering};

const USER: u64 = 1;
const USERS: u64 = OPEN - 1;
const OPEN: u64 = 1 << 24;
const CLOSING: u64 = 1 << 25;
const GENERATION_SHIFT: u32 = 26;
/// A generation has this many bits.
pub(crate) const GENERATION_BITS: u32 = u64::BITS - GENERATION_SHIFT;

/// An atomic word: of the processor, or of a model checker.
pub(crate) trait Word {
    fn load(&self) -> u64;
    /// Adds with wrapping. Acquires and releases.
    fn add(&self, value: u64) -> u64;
    /// Adds 1 when somebody enters. Acquires.
    fn enter(&self) -> u64;
    /// Subtracts 1 when somebody leaves. Releases.
    fn leave(&self) -> u64;
    /// Acquires and releases.
    fn swap(&self, current: u64, new: u64) -> Result<u64, u64>;
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }

    #[inline]
    fn add(&self, value: u64) -> u64 {
        self.fetch_add(value, Ordering::AcqRel)
    }

    #[inline]
    fn enter(&self) -> u64 {
        self.fetch_add(USER, Ordering::Acquire)
    }

    #[inline]
    fn leave(&self) -> u64 {
        self.fetch_sub(USER, Ordering::Release)
    }

    #[inline]
    fn swap(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed)
    }
}

/// Whether the caller was the last one out of a closed object, and has to free it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Left {
    Others,
    Last,
}

#[derive(Default)]
pub(crate) struct Users<W>(W);

/// The word of an open object without users.
const fn open_word(generation: u64) -> u64 {
    generation << GENERATION_SHIFT | OPEN
}

impl<W: Word> Users<W> {
    /// Lets users in, to an object that the caller has put in its place. Returns its generation.
    /// The object before was freed, and only the caller may open the next.
    pub(crate) fn open(&self) -> u64 {
        let before = self.0.add((1 << GENERATION_SHIFT) + OPEN) >> GENERATION_SHIFT;
        before.wrapping_add(1) & (u64::MAX >> GENERATION_SHIFT)
    }

    /// Enters the object of this generation.
    ///
    /// # Errors
    /// Fails if it is not open any more, or not yet.
    #[inline]
    pub(crate) fn enter(&self, generation: u64) -> Result<(), Left> {
        let open = open_word(generation);
        if self.0.load() & !USERS != open {
            return Err(Left::Others);
        }
        match self.0.enter() & !USERS == open {
            true => Ok(()),
            false => Err(self.leave()),
        }
    }

    /// Enters once more, beside somebody who has entered.
    pub(crate) fn enter_again(&self) {
        self.0.enter();
    }

    #[inline]
    pub(crate) fn leave(&self) -> Left {
        let before = self.0.leave();
        match before & CLOSING != 0 && before & USERS == USER {
            true => self.end(before - USER),
            false => Left::Others,
        }
    }

    /// Lets nobody in any more.
    ///
    /// # Errors
    /// Fails if the object of this generation is not open.
    pub(crate) fn close(&self, generation: u64) -> Result<Left, ()> {
        let mut word = self.0.load();
        loop {
            if word & !USERS != open_word(generation) {
                return Err(());
            }
            match self.0.swap(word, word - OPEN + CLOSING) {
                Ok(_) if word & USERS == 0 => return Ok(self.end(word - OPEN + CLOSING)),
                Ok(_) => return Ok(Left::Others),
                Err(found) => word = found,
            }
        }
    }

    /// Ends an object that is closing, whose word was `word` and without users, unless somebody has
    /// entered again, who then does it.
    #[cold]
    fn end(&self, word: u64) -> Left {
        match self.0.swap(word, word - CLOSING) {
            Ok(_) => Left::Last,
            Err(_) => Left::Others,
        }
    }
}

#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, Ordering};
    use loom::thread;

    use super::*;

    #[derive(Default)]
    struct Modelled(AtomicU64);

    impl Word for Modelled {
        fn load(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        fn add(&self, value: u64) -> u64 {
            self.0.fetch_add(value, Ordering::AcqRel)
        }

        fn enter(&self) -> u64 {
            self.0.fetch_add(USER, Ordering::Acquire)
        }

        fn leave(&self) -> u64 {
            self.0.fetch_sub(USER, Ordering::Release)
        }

        fn swap(&self, current: u64, new: u64) -> Result<u64, u64> {
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            self.0.compare_exchange(current, new, success, failure)
        }
    }

    /// A place for an object. Loom reports an access beside one that changes it.
    #[derive(Default)]
    struct Place {
        users: Users<Modelled>,
        object: loom::cell::Cell<u64>,
    }

    impl Place {
        fn put(&self, object: u64) -> u64 {
            self.object.set(object);
            self.users.open()
        }

        /// What a call does. Returns the object that it saw.
        fn call(&self, generation: u64) -> Option<u64> {
            match self.users.enter(generation) {
                Ok(()) => {
                    let seen = self.object.get();
                    self.free_if(self.users.leave());
                    Some(seen)
                }
                Err(left) => {
                    self.free_if(left);
                    None
                }
            }
        }

        fn close(&self, generation: u64) -> bool {
            let closed = self.users.close(generation);
            closed.is_ok_and(|left| {
                self.free_if(left);
                true
            })
        }

        fn free_if(&self, left: Left) {
            if left == Left::Last {
                self.object.set(FREED);
            }
        }
    }

    const FREED: u64 = u64::MAX;

    fn explore(run: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(run);
    }

    #[test]
    fn calls_see_an_object_that_is_not_freed_and_the_last_one_frees_it() {
        explore(|| {
            let place = Arc::new(Place::default());
            let generation = place.put(7);
            let caller = |_| {
                let place = Arc::clone(&place);
                thread::spawn(move || {
                    let seen = place.call(generation);
                    assert!(seen.is_none_or(|seen| seen == 7));
                })
            };
            let callers = [0, 1].map(caller);
            assert!(place.close(generation));
            for caller in callers {
                caller.join().unwrap();
            }
            assert_eq!(place.object.get(), FREED);
            assert_eq!(place.call(generation), None);
        });
    }

    #[test]
    fn one_of_two_threads_closes_an_object() {
        explore(|| {
            let place = Arc::new(Place::default());
            let generation = place.put(7);
            let closer = {
                let place = Arc::clone(&place);
                thread::spawn(move || place.close(generation))
            };
            let here = place.close(generation);
            assert!(here != closer.join().unwrap());
            assert_eq!(place.object.get(), FREED);
        });
    }

    #[test]
    fn a_stale_handle_never_reaches_the_next_object() {
        explore(|| {
            let place = Arc::new(Place::default());
            let stale = place.put(7);
            assert!(place.close(stale));
            let caller = {
                let place = Arc::clone(&place);
                thread::spawn(move || {
                    assert_eq!(place.call(stale), None);
                    assert!(!place.close(stale));
                })
            };
            let next = place.put(8);
            assert_ne!(next, stale);
            assert_eq!(place.call(next), Some(8));
            assert!(place.close(next));
            caller.join().unwrap();
            assert_eq!(place.object.get(), FREED);
        });
    }

    #[test]
    fn generations_wrap_around() {
        loom::model(|| {
            let users = Users::<Modelled>::default();
            let last = u64::MAX >> GENERATION_SHIFT;
            users.0.add(last << GENERATION_SHIFT);
            assert_eq!(users.open(), 0);
            assert_eq!(users.enter(0), Ok(()));
            assert_eq!(users.leave(), Left::Others);
            assert_eq!(users.close(0), Ok(Left::Last));
        });
    }
}
