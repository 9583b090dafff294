//! The table of handles. A handle is a number: the index of a slot, and the generation of what the
//! slot holds. Each call finds its objects here, so a number that was closed, or never opened, is
//! an error.
//!
//! Nothing here takes a lock: a child of `fork` can use the table whatever the threads of its
//! parent were doing. Slots are never returned to the operating system.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::failure::{Failure, Result};
use crate::objects::Object;
use crate::threads::Here;
use crate::users::{Caller, GENERATION_BITS, Left, Users};
use crate::vellum_handle;

const INDEX_BITS: u32 = 20;
const SLOTS_OF_CHUNK: usize = 256;
const CHUNKS: usize = HANDLES_MAX / SLOTS_OF_CHUNK;
/// Handles that can be open at once.
const HANDLES_MAX: usize = 1 << INDEX_BITS;

// A handle is never negative.
const _: () = assert!(INDEX_BITS + GENERATION_BITS < 63);

#[repr(align(64))]
struct Slot {
    users: Users<AtomicU64>,
    object: UnsafeCell<MaybeUninit<Object>>,
    index: u32,
    /// The free slot behind this one, while it is free: its index plus 1.
    next_free: AtomicU32,
}

// SAFETY: `object` is written while its slot is free, by the one who took the slot from the list of
// free ones, and freed by the one who is the last one out (`Users`). In between it is only shared,
// and objects can be shared and sent (asserted below).
#[expect(unsafe_code, reason = "the table is what C's threads share")]
unsafe impl Sync for Slot {}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Object>();
};

struct Table {
    chunks: [AtomicPtr<Slot>; CHUNKS],
    /// Slots that were ever used.
    used: AtomicU32,
    /// The first free slot: its index plus 1, below a number that each change raises.
    free: AtomicU64,
}

static TABLE: Table = Table {
    chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
    used: AtomicU32::new(0),
    free: AtomicU64::new(0),
};

/// The object behind a handle, for the time of a call. It lives until this is dropped, also if the
/// handle is closed meanwhile: the thread names the slot in one of its places (`users`).
pub(crate) struct Held {
    slot: &'static Slot,
    thread: Here,
    place: &'static AtomicU64,
    /// The place is this thread's.
    _of_this_thread: PhantomData<*const ()>,
}

impl Deref for Held {
    type Target = Object;

    #[inline]
    fn deref(&self) -> &Object {
        self.slot.object()
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        let caller = self.slot.caller(&self.thread);
        self.slot
            .free_if(self.slot.users.leave(&caller, self.place));
    }
}

/// The object behind a handle, for as long as another object needs it, in any thread.
pub(crate) struct Pinned(&'static Slot);

impl Held {
    /// Keeps the object beyond the call.
    pub(crate) fn pin(&self) -> Pinned {
        self.slot.users.pin();
        Pinned(self.slot)
    }
}

impl Deref for Pinned {
    type Target = Object;

    fn deref(&self) -> &Object {
        self.0.object()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let thread = Here::get();
        self.0.free_if(self.0.users.unpin(&self.0.caller(&thread)));
    }
}

impl Slot {
    fn caller<'t>(&self, threads: &'t Here) -> Caller<'t, Here> {
        Caller {
            threads,
            thread: threads.number(),
            slot: ptr::from_ref(self).addr() as u64,
        }
    }

    /// The object. The caller has entered, or has a pin.
    #[inline]
    #[expect(unsafe_code, reason = "the object is there as long as this user is")]
    fn object(&self) -> &Object {
        // SAFETY: `Held` and `Pinned` call this, and are made for a slot that was open, so the
        // object was written before. Nobody frees it while they are there.
        unsafe { (*self.object.get()).assume_init_ref() }
    }

    #[inline]
    fn free_if(&self, left: Left) {
        if left == Left::Last {
            self.free();
        }
    }

    /// Drops the object. The caller is the last one out.
    #[cold]
    #[expect(unsafe_code, reason = "the last one out frees the object")]
    fn free(&self) {
        // SAFETY: the slot was open, so it has an object; it is closed and has no user but this
        // one, of whom there is one only (`Left::Last`).
        unsafe { (*self.object.get()).assume_init_drop() };
        TABLE.give_back(self);
    }
}

/// Puts an object behind a new handle.
///
/// # Errors
/// Fails with `EMFILE` if there are too many.
pub(crate) fn insert(object: Object) -> Result<vellum_handle> {
    let slot = TABLE.take()?;
    put(slot, object);
    let generation = slot.users.open(Here::get().number());
    Ok((generation << INDEX_BITS | u64::from(slot.index)) as vellum_handle)
}

#[expect(unsafe_code, reason = "a slot without users gets its object")]
fn put(slot: &Slot, object: Object) {
    // SAFETY: the slot is free, and was taken from the list of free ones by this thread alone.
    unsafe { (*slot.object.get()).write(object) };
}

/// Finds the object behind a handle.
///
/// # Errors
/// Fails with `EBADF` if there is none.
#[inline]
pub(crate) fn get(handle: vellum_handle) -> Result<Held> {
    let (slot, generation) = find(handle).ok_or(Failure::NO_HANDLE)?;
    let thread = Here::get();
    let place = thread.free_place().ok_or(Failure::NO_PLACE)?;
    let caller = slot.caller(&thread);
    let is_open = slot.users.enter(generation, &caller, place);
    // If it is not open, nobody looks at it: dropping it leaves.
    let held = Held {
        slot,
        thread,
        place,
        _of_this_thread: PhantomData,
    };
    match is_open {
        true => Ok(held),
        false => Err(Failure::NO_HANDLE),
    }
}

/// Ends a handle. Its object is dropped now, or when the last call on it ends.
///
/// # Errors
/// Fails with `EBADF` if it is not open.
pub(crate) fn close(handle: vellum_handle) -> Result<()> {
    let (slot, generation) = find(handle).ok_or(Failure::NO_HANDLE)?;
    let left = slot.users.close(generation, &slot.caller(&Here::get()));
    slot.free_if(left.map_err(|()| Failure::NO_HANDLE)?);
    Ok(())
}

#[inline]
fn find(handle: vellum_handle) -> Option<(&'static Slot, u64)> {
    let number = handle as u64;
    if number >> (INDEX_BITS + GENERATION_BITS) != 0 {
        return None;
    }
    let index = number as usize % HANDLES_MAX;
    let slot = TABLE.slot(index)?;
    Some((slot, number >> INDEX_BITS))
}

impl Table {
    #[inline]
    #[expect(unsafe_code, reason = "chunks are never freed")]
    fn slot(&self, index: usize) -> Option<&'static Slot> {
        let chunk = self.chunks[index / SLOTS_OF_CHUNK].load(Ordering::Acquire);
        // SAFETY: a chunk has this many slots, and is never freed.
        let slot = |chunk: *mut Slot| unsafe { &*chunk.add(index % SLOTS_OF_CHUNK) };
        (!chunk.is_null()).then(|| slot(chunk))
    }

    /// Takes a slot that has no object.
    fn take(&self) -> Result<&'static Slot> {
        let mut free = self.free.load(Ordering::Acquire);
        while let Some(index) = (free as u32).checked_sub(1) {
            let Some(slot) = self.slot(index as usize) else {
                break;
            };
            let next = slot.next_free.load(Ordering::Relaxed);
            let new = (free >> 32).wrapping_add(1) << 32 | u64::from(next);
            match self.swap_free(free, new) {
                Ok(_) => return Ok(slot),
                Err(found) => free = found,
            }
        }
        self.take_unused()
    }

    fn swap_free(&self, from: u64, to: u64) -> std::result::Result<u64, u64> {
        self.free
            .compare_exchange_weak(from, to, Ordering::AcqRel, Ordering::Acquire)
    }

    fn take_unused(&self) -> Result<&'static Slot> {
        let raise = |used: u32| ((used as usize) < HANDLES_MAX).then_some(used + 1);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let index = self.used.fetch_update(set, fetch, raise);
        let index = index.map_err(|_| Failure::TOO_MANY_HANDLES)? as usize;
        self.make_chunk(index / SLOTS_OF_CHUNK);
        self.slot(index).ok_or(Failure::TOO_MANY_HANDLES)
    }

    /// Makes a chunk, unless another thread did.
    #[expect(unsafe_code, reason = "a chunk that was not needed is freed again")]
    fn make_chunk(&self, number: usize) {
        let place = &self.chunks[number];
        if !place.load(Ordering::Acquire).is_null() {
            return;
        }
        let first = number * SLOTS_OF_CHUNK;
        let slots = (first..first + SLOTS_OF_CHUNK).map(|index| Slot {
            users: Users::default(),
            object: UnsafeCell::new(MaybeUninit::uninit()),
            index: index as u32,
            next_free: AtomicU32::new(0),
        });
        let chunk = Box::into_raw(slots.collect::<Box<[Slot]>>());
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let made = place.compare_exchange(ptr::null_mut(), chunk.cast(), success, failure);
        if made.is_err() {
            // SAFETY: it came from a box above, and nobody else has seen it.
            drop(unsafe { Box::from_raw(chunk) });
        }
    }

    fn give_back(&self, slot: &Slot) {
        let mut free = self.free.load(Ordering::Relaxed);
        loop {
            slot.next_free.store(free as u32, Ordering::Relaxed);
            let new = (free >> 32).wrapping_add(1) << 32 | u64::from(slot.index + 1);
            match self.swap_free(free, new) {
                Ok(_) => return,
                Err(found) => free = found,
            }
        }
    }
}
