//! The users of an object behind a handle: who may still look at it, and who frees it.
//!
//! Each call on a handle enters, and leaves when it ends. Closing never waits for calls: it lets
//! nobody in any more, and the last one out frees the object. So a handle that a thread closes in
//! the middle of another thread's call stays safe, and a number that was closed is refused, even if
//! its slot has another object by now.
//!
//! A call writes nothing that threads share. It names the slot in a *place* of its own thread, and
//! then looks whether the object is open:
//!
//! ```text
//!   a call:        place := slot;   light;   is the word open?
//!   at its end:    place := 0;      light;   is it closing? then end it
//!   closing:       word := closing; heavy;   does no place name the slot? then free it
//!   ending it:                      heavy;   the same
//! ```
//!
//! Light and heavy are a pair of asymmetric fences: as if both were full ones, but the heavy fence
//! does the work, by making all threads of the process execute one (`membarrier(2)`). So either the
//! call sees that the object is closing, or whoever looks behind the heavy fence sees its place. Of
//! several who leave at the same time, the one whose heavy fence comes last sees no place any more.
//!
//! Most handles are used by the thread that opened them, their *owner*, and closed by it. The first
//! other thread marks the word as shared, by a swap that orders itself. An object that is not
//! shared when its owner closes it needs no heavy fence: nobody else can have entered, and the
//! owner ends it, who knows its own places.
//!
//! ```text
//!   63             26   25       24        23     22              0
//!  +-----------------+--------+---------+------+-------------------+
//!  |   generation    | SHARED | CLOSING | OPEN |                   |
//!  +-----------------+--------+---------+------+-------------------+
//! ```
//!
//! A view keeps its file for longer than a call, and may be released by any thread, so it has a
//! *pin*, which is counted, and shares the object. A pin is taken within a call, so whoever finds
//! no place and then no pin knows that there are none.

use std::sync::atomic::{AtomicU64, Ordering};

/// Users may enter.
const OPEN: u64 = 1 << 23;
/// Nobody may enter any more, and the last one out frees the object.
const CLOSING: u64 = 1 << 24;
/// Not only the owner may be a user.
const SHARED: u64 = 1 << 25;
const GENERATION_SHIFT: u32 = 26;
/// A generation has this many bits.
pub(crate) const GENERATION_BITS: u32 = u64::BITS - GENERATION_SHIFT;
/// Makes a word that is free that of the next generation, open.
const NEXT: u64 = (1 << GENERATION_SHIFT) + OPEN;

/// An atomic word: of the processor, or of a model checker. Loads acquire, stores release, and
/// changes do both.
pub(crate) trait Word {
    fn load(&self) -> u64;
    fn store(&self, value: u64);
    /// Adds with wrapping.
    fn add(&self, value: u64) -> u64;
    fn swap(&self, current: u64, new: u64) -> Result<u64, u64>;
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    #[inline]
    fn store(&self, value: u64) {
        self.store(value, Ordering::Release);
    }

    #[inline]
    fn add(&self, value: u64) -> u64 {
        self.fetch_add(value, Ordering::AcqRel)
    }

    #[inline]
    fn swap(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }
}

/// The fences, and the places of all threads.
pub(crate) trait Threads {
    type Word: Word;
    /// The cheap fence of a call.
    fn light();
    /// The fence of those who close. Returns whether it happened.
    fn heavy() -> bool;
    /// Whether a place of any thread names the slot. Acquires.
    fn is_named(&self, slot: u64) -> bool;
    /// Whether a place of this thread names the slot.
    fn is_named_here(&self, slot: u64) -> bool;
}

/// Whether the caller has to free the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Left {
    Others,
    Last,
}

/// The calling thread, which asks about a slot.
pub(crate) struct Caller<'t, T> {
    pub(crate) threads: &'t T,
    /// The number of the thread; not 0.
    pub(crate) thread: u64,
    pub(crate) slot: u64,
}

#[derive(Default)]
pub(crate) struct Users<W> {
    word: W,
    /// The number of the thread that opened the object.
    owner: W,
    pins: W,
}

/// The word of an open object that is not shared.
const fn open_word(generation: u64) -> u64 {
    generation << GENERATION_SHIFT | OPEN
}

impl<W: Word> Users<W> {
    /// Lets users in, to an object that `owner` has put in its place. Returns its generation. The
    /// object before was freed, and only the caller may open the next.
    pub(crate) fn open(&self, owner: u64) -> u64 {
        self.owner.store(owner);
        let before = self.word.add(NEXT) >> GENERATION_SHIFT;
        before.wrapping_add(1) & (u64::MAX >> GENERATION_SHIFT)
    }

    /// Enters the object of this generation. Returns whether it is open: if not, the caller leaves
    /// at once.
    #[inline]
    pub(crate) fn enter<T: Threads<Word = W>>(
        &self,
        generation: u64,
        caller: &Caller<'_, T>,
        place: &W,
    ) -> bool {
        place.store(caller.slot);
        T::light();
        let open = open_word(generation);
        match self.word.load() {
            word if word == open | SHARED => true,
            word if word == open => self.owner.load() == caller.thread || self.share(open),
            _ => false,
        }
    }

    /// Marks an open object as shared. Fails if it is not open any more.
    #[cold]
    fn share(&self, open: u64) -> bool {
        let shared = self.word.swap(open, open | SHARED);
        shared.is_ok() || shared == Err(open | SHARED)
    }

    #[inline]
    pub(crate) fn leave<T: Threads<Word = W>>(&self, caller: &Caller<'_, T>, place: &W) -> Left {
        place.store(0);
        self.end_if_closing(caller)
    }

    /// Keeps the object beyond the call. The caller has entered.
    pub(crate) fn pin(&self) {
        // If it is closed meanwhile, then by another thread, which shares it.
        let word = self.word.load();
        let _ = self.word.swap(word & !SHARED, word | SHARED);
        self.pins.add(1);
    }

    pub(crate) fn unpin<T: Threads<Word = W>>(&self, caller: &Caller<'_, T>) -> Left {
        self.pins.add(u64::MAX);
        self.end_if_closing(caller)
    }

    #[inline]
    fn end_if_closing<T: Threads<Word = W>>(&self, caller: &Caller<'_, T>) -> Left {
        T::light();
        match self.word.load() & CLOSING {
            0 => Left::Others,
            _ => self.end(caller),
        }
    }

    /// Lets nobody in any more.
    ///
    /// # Errors
    /// Fails if the object of this generation is not open.
    pub(crate) fn close<T: Threads<Word = W>>(
        &self,
        generation: u64,
        caller: &Caller<'_, T>,
    ) -> Result<Left, ()> {
        let open = open_word(generation);
        loop {
            let word = self.word.load();
            if word & !SHARED != open {
                return Err(());
            }
            let shared = match self.owner.load() == caller.thread {
                true => word & SHARED,
                false => SHARED,
            };
            let closing = (open - OPEN) | CLOSING | shared;
            if self.word.swap(word, closing).is_ok() {
                return Ok(self.end(caller));
            }
        }
    }

    /// Ends an object that is closing, if nobody uses it and nobody else has ended it.
    #[cold]
    fn end<T: Threads<Word = W>>(&self, caller: &Caller<'_, T>) -> Left {
        let word = self.word.load();
        let is_used = match word & SHARED {
            0 => self.owner.load() != caller.thread || caller.threads.is_named_here(caller.slot),
            // Without the fence nobody knows who uses the object. It then stays for ever.
            _ => !T::heavy() || caller.threads.is_named(caller.slot) || self.pins.load() != 0,
        };
        if word & CLOSING == 0 || is_used {
            return Left::Others;
        }
        match self.word.swap(word, word & !(CLOSING | SHARED)) {
            Ok(_) => Left::Last,
            Err(_) => Left::Others,
        }
    }
}

#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, Ordering, fence};
    use loom::thread;

    use super::*;

    #[derive(Default)]
    struct Modelled(AtomicU64);

    impl Word for Modelled {
        fn load(&self) -> u64 {
            self.0.load(Ordering::Acquire)
        }

        fn store(&self, value: u64) {
            self.0.store(value, Ordering::Release);
        }

        fn add(&self, value: u64) -> u64 {
            self.0.fetch_add(value, Ordering::AcqRel)
        }

        fn swap(&self, current: u64, new: u64) -> Result<u64, u64> {
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            self.0.compare_exchange(current, new, success, failure)
        }
    }

    /// A place for each of three threads, and the one that runs.
    struct Places<'s>(&'s [Modelled; 3], usize);

    impl Threads for Places<'_> {
        type Word = Modelled;

        fn light() {
            fence(Ordering::SeqCst);
        }

        fn heavy() -> bool {
            fence(Ordering::SeqCst);
            true
        }

        fn is_named(&self, slot: u64) -> bool {
            self.0.iter().any(|place| place.load() == slot)
        }

        fn is_named_here(&self, slot: u64) -> bool {
            self.0[self.1].load() == slot
        }
    }

    /// A slot for an object. Loom reports an access beside one that changes it.
    #[derive(Default)]
    struct Slot {
        users: Users<Modelled>,
        places: [Modelled; 3],
        object: loom::cell::Cell<u64>,
    }

    const SLOT: u64 = 5;
    const FREED: u64 = u64::MAX;

    impl Slot {
        /// Puts an object there, as the first thread.
        fn put(&self, object: u64) -> u64 {
            self.object.set(object);
            self.users.open(1)
        }

        /// Runs `run` with a thread, 0 to 2, and its place.
        fn by<T>(
            &self,
            thread: usize,
            run: impl FnOnce(&Caller<'_, Places<'_>>, &Modelled) -> T,
        ) -> T {
            let caller = Caller {
                threads: &Places(&self.places, thread),
                thread: thread as u64 + 1,
                slot: SLOT,
            };
            run(&caller, &self.places[thread])
        }

        /// What a call does. Returns the object that it saw.
        fn call(&self, generation: u64, thread: usize) -> Option<u64> {
            self.by(thread, |caller, place| {
                let is_open = self.users.enter(generation, caller, place);
                let seen = is_open.then(|| self.object.get());
                self.free_if(self.users.leave(caller, place));
                seen
            })
        }

        fn close(&self, generation: u64, thread: usize) -> bool {
            let closed = self.by(thread, |caller, _| self.users.close(generation, caller));
            closed.is_ok_and(|left| {
                self.free_if(left);
                true
            })
        }

        fn free_if(&self, left: Left) {
            if left == Left::Last {
                assert_ne!(self.object.get(), FREED);
                self.object.set(FREED);
            }
        }
    }

    fn explore(run: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(run);
    }

    /// A slot with object 7, and its generation.
    fn open_slot() -> (Arc<Slot>, u64) {
        let slot = Arc::new(Slot::default());
        let generation = slot.put(7);
        (slot, generation)
    }

    fn spawn<T: 'static>(
        slot: &Arc<Slot>,
        run: impl FnOnce(&Slot) -> T + 'static,
    ) -> thread::JoinHandle<T> {
        let slot = Arc::clone(slot);
        thread::spawn(move || run(&slot))
    }

    /// The owner closes the object beside calls of two threads.
    #[test]
    fn calls_see_an_object_that_is_not_freed_and_the_last_one_frees_it() {
        explore(|| {
            let (slot, generation) = open_slot();
            let callers = [1, 2].map(|thread| {
                spawn(&slot, move |slot| {
                    let seen = slot.call(generation, thread);
                    assert!(seen.is_none_or(|seen| seen == 7));
                })
            });
            assert!(slot.close(generation, 0));
            for caller in callers {
                caller.join().unwrap();
            }
            assert_eq!(slot.object.get(), FREED);
            assert_eq!(slot.call(generation, 0), None);
        });
    }

    /// Another thread closes the object beside calls of the owner and of a third thread.
    #[test]
    fn another_thread_closes_beside_calls_of_the_owner() {
        explore(|| {
            let (slot, generation) = open_slot();
            let closer = spawn(&slot, move |slot| assert!(slot.close(generation, 1)));
            let caller = spawn(&slot, move |slot| {
                let seen = slot.call(generation, 2);
                assert!(seen.is_none_or(|seen| seen == 7));
            });
            let seen = slot.call(generation, 0);
            assert!(seen.is_none_or(|seen| seen == 7));
            closer.join().unwrap();
            caller.join().unwrap();
            assert_eq!(slot.object.get(), FREED);
        });
    }

    #[test]
    fn one_of_two_threads_closes_an_object() {
        explore(|| {
            let (slot, generation) = open_slot();
            let closer = spawn(&slot, move |slot| slot.close(generation, 1));
            let here = slot.close(generation, 0);
            assert!(here != closer.join().unwrap());
            assert_eq!(slot.object.get(), FREED);
        });
    }

    #[test]
    fn a_pin_keeps_an_object_and_any_thread_takes_it_away() {
        explore(|| {
            let (slot, generation) = open_slot();
            let closer = spawn(&slot, move |slot| assert!(slot.close(generation, 1)));
            let is_open = slot.by(0, |caller, place| {
                let is_open = slot.users.enter(generation, caller, place);
                if is_open {
                    slot.users.pin();
                }
                slot.free_if(slot.users.leave(caller, place));
                is_open
            });
            if is_open {
                let unpinner = spawn(&slot, |slot| {
                    assert_eq!(slot.object.get(), 7);
                    slot.by(2, |caller, _| slot.free_if(slot.users.unpin(caller)));
                });
                unpinner.join().unwrap();
            }
            closer.join().unwrap();
            assert_eq!(slot.object.get(), FREED);
        });
    }

    #[test]
    fn a_stale_handle_never_reaches_the_next_object() {
        explore(|| {
            let (slot, stale) = open_slot();
            assert!(slot.close(stale, 0));
            let caller = spawn(&slot, move |slot| {
                assert_eq!(slot.call(stale, 1), None);
                assert!(!slot.close(stale, 1));
            });
            let next = slot.put(8);
            assert_ne!(next, stale);
            assert_eq!(slot.call(next, 0), Some(8));
            assert!(slot.close(next, 0));
            caller.join().unwrap();
            assert_eq!(slot.object.get(), FREED);
        });
    }

    /// As `vellum_close` does, which looks at what it closes.
    #[test]
    fn an_owner_closes_within_a_call_beside_a_stale_handle() {
        explore(|| {
            let (slot, stale) = open_slot();
            assert!(slot.close(stale, 0));
            let caller = spawn(&slot, move |slot| assert_eq!(slot.call(stale, 1), None));
            let next = slot.put(8);
            slot.by(0, |caller, place| {
                assert!(slot.users.enter(next, caller, place));
                assert!(slot.close(next, 0));
                assert_eq!(slot.object.get(), 8);
                slot.free_if(slot.users.leave(caller, place));
            });
            caller.join().unwrap();
            assert_eq!(slot.object.get(), FREED);
        });
    }

    #[test]
    fn an_owner_closes_beside_another_thread_that_takes_its_pin_away() {
        explore(|| {
            let (slot, generation) = open_slot();
            slot.by(0, |caller, place| {
                assert!(slot.users.enter(generation, caller, place));
                slot.users.pin();
                slot.free_if(slot.users.leave(caller, place));
            });
            let unpinner = spawn(&slot, |slot| {
                assert_eq!(slot.object.get(), 7);
                slot.by(1, |caller, _| slot.free_if(slot.users.unpin(caller)));
            });
            assert!(slot.close(generation, 0));
            unpinner.join().unwrap();
            assert_eq!(slot.object.get(), FREED);
        });
    }

    #[test]
    fn generations_wrap_around() {
        loom::model(|| {
            let slot = Slot::default();
            let last = u64::MAX >> GENERATION_SHIFT;
            slot.users.word.add(last << GENERATION_SHIFT);
            assert_eq!(slot.put(7), 0);
            assert_eq!(slot.call(0, 1), Some(7));
            assert!(slot.close(0, 0));
            assert_eq!(slot.object.get(), FREED);
        });
    }
}
