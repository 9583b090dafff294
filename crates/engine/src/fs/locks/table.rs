//! The table of locks in the arena: a header, buckets, and records of 64 bytes.
//!
//! The records of a file are in the chain of its bucket, held locks and waiting requests together;
//! other files may share the bucket. Bucket locks protect chains. The lock of waits protects all
//! that concerns waiting, and is taken before bucket locks; only its holder may have two of these.
//! So requests that nobody is in the way of take one bucket lock. Each lock names the thread slot
//! of its holder, and is never held while somebody sleeps.
//!
//! A file that was locked since its cachelet is in use has [`flag::LOCKED`], so that closing any
//! other file takes no lock.

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use vellum_media::{Memories, Memory};

use super::{HeldLock, LockKind, LockOwner, LockRange};
use crate::core::Core;
use crate::core::cachelet::{Cachelet, flag};
use crate::core::slots::{Op, pause};

/// Word offsets in the table's header.
pub(super) mod header {
    /// The free list: the first record, and a tag that makes each state of the list unique.
    pub(in super::super) const FREE: u64 = 0;
    /// Records that were ever used.
    pub(in super::super) const FRESH: u64 = 8;
    /// The lock of waits: 0 or its holder.
    pub(in super::super) const WAITS_LOCK: u64 = 64;
    /// The list of waiting records, as [`super::word::STATE`] continues it.
    pub(in super::super) const FIRST_WAITING: u64 = 72;
    /// The last number given to a handle.
    pub(in super::super) const HANDLES: u64 = 128;
    /// Its size.
    pub(in super::super) const BYTES: u64 = 192;
}

/// Word offsets in a bucket.
pub(super) mod bucket {
    /// Its lock: 0 or the holder.
    pub(in super::super) const LOCK: u64 = 0;
    /// The first record of the chain.
    pub(in super::super) const FIRST: u64 = 8;
    /// Its size.
    pub(in super::super) const BYTES: u64 = 64;
}

/// Word offsets in a record.
pub(super) mod word {
    /// The next record of the chain or of the free list.
    pub(in super::super) const NEXT: u64 = 0;
    /// The inode number.
    pub(in super::super) const INO: u64 = 8;
    /// The inode's generation (high half), and the bits of [`super::tag`].
    pub(in super::super) const TAG: u64 = 16;
    /// The first byte.
    pub(in super::super) const FIRST: u64 = 24;
    /// The last byte.
    pub(in super::super) const LAST: u64 = 32;
    /// The owner's number.
    pub(in super::super) const OWNER: u64 = 40;
    /// The process that made the request (low half), and the number of what cancels its wait.
    pub(in super::super) const PROCESS: u64 = 48;
    /// Waiting requests: the state (low half), and the next waiting record.
    pub(in super::super) const STATE: u64 = 56;
    /// The size of a record.
    pub(in super::super) const BYTES: u64 = 64;
}

/// Bits of [`word::TAG`].
pub(super) mod tag {
    /// An exclusive lock.
    pub(in super::super) const EXCLUSIVE: u64 = 1;
    /// A lock of the whole file (`flock`).
    pub(in super::super) const WHOLE: u64 = 2;
    /// The owner is a process.
    pub(in super::super) const OF_PROCESS: u64 = 4;
    /// A waiting request.
    pub(in super::super) const WAITING: u64 = 8;
}

const RECORDS_PER_BUCKET: u64 = 4;
/// Bytes of a bucket and its share of records.
const GROUP_BYTES: u64 = bucket::BYTES + RECORDS_PER_BUCKET * word::BYTES;
/// A pool has as many records as its arena has space for entries, within these limits.
const RECORDS_MIN: u64 = 64;
const RECORDS_MAX: u64 = 1 << 16;

/// Bytes of the table, in an arena with space for this many entries.
pub(crate) fn arena_bytes(entries: u64) -> u64 {
    let records = entries.clamp(RECORDS_MIN, RECORDS_MAX);
    header::BYTES + records / RECORDS_PER_BUCKET * GROUP_BYTES
}

/// A file as locks name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    pub(super) ino: u64,
    pub(super) generation: u32,
}

/// What is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Bytes.
    Range,
    /// The file (`flock`). Meets no locks of ranges.
    Whole,
}

/// An owner by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    Process(u64),
    Handle(u64),
}

/// A lock, or a request for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) file: FileId,
    pub(super) class: Class,
    pub(super) kind: LockKind,
    pub(super) owner: Owner,
    pub(super) range: LockRange,
    /// The process that made the request.
    pub(super) process: u32,
    /// The number of what cancels its wait, or 0.
    pub(super) cancel: u32,
    pub(super) is_waiting: bool,
}

impl Record {
    pub(super) fn held(&self) -> HeldLock {
        HeldLock {
            kind: self.kind,
            range: self.range,
            owner: match self.owner {
                Owner::Process(number) => LockOwner::Process(number),
                Owner::Handle(_) => LockOwner::Handle,
            },
        }
    }

    /// Whether a held lock excludes this request.
    pub(super) fn conflicts(&self, held: &Self) -> bool {
        !held.is_waiting
            && held.class == self.class
            && held.owner != self.owner
            && (held.kind == LockKind::Exclusive || self.kind == LockKind::Exclusive)
            && held.range.overlaps(&self.range)
    }

    fn tag(&self) -> u64 {
        let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        u64::from(self.file.generation) << 32
            | bit(self.kind == LockKind::Exclusive, tag::EXCLUSIVE)
            | bit(self.class == Class::Whole, tag::WHOLE)
            | bit(matches!(self.owner, Owner::Process(_)), tag::OF_PROCESS)
            | bit(self.is_waiting, tag::WAITING)
    }
}

impl LockRange {
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether both together are one range.
    pub(super) fn touches(&self, other: &Self) -> bool {
        self.first <= other.last + 1 && other.first <= self.last + 1
    }
}

/// The table, in an operation. Whoever is given what it waits for is woken when this is dropped,
/// when no lock of the table is held.
pub(super) struct Table<'a, M: Memories> {
    pub(super) core: &'a Core<M>,
    /// The operation's name in locks.
    holder: u64,
    pub(super) woken: RefCell<SmallVec<[u32; 4]>>,
}

impl<M: Memories> Drop for Table<'_, M> {
    fn drop(&mut self) {
        for &index in self.woken.get_mut().iter() {
            let at = state_at(self.core, index);
            self.core.arena.wake(at);
        }
    }
}

/// The arena offset of a record.
pub(super) fn record_at<M: Memories>(core: &Core<M>, index: u32) -> u64 {
    let records = core.map.locks + header::BYTES + bucket_count(core) * bucket::BYTES;
    records + (u64::from(index) - 1) * word::BYTES
}

/// The arena offset of the word that a waiting thread sleeps on.
pub(super) fn state_at<M: Memories>(core: &Core<M>, index: u32) -> u64 {
    record_at(core, index) + word::STATE
}

fn bucket_count<M: Memories>(core: &Core<M>) -> u64 {
    (core.map.lock_bytes - header::BYTES) / GROUP_BYTES
}

/// Returns a record to the free list.
pub(super) fn free<M: Memories>(core: &Core<M>, index: u32) {
    let (at, next_at) = (
        core.map.locks + header::FREE,
        record_at(core, index) + word::NEXT,
    );
    let mut head = core.arena.load(at, Ordering::Acquire);
    loop {
        core.arena
            .store(next_at, head & 0xFFFF_FFFF, Ordering::Release);
        let new = head & !0xFFFF_FFFF | u64::from(index);
        match core.arena.compare_exchange(at, head, new) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// A number for a handle, never given before.
pub(super) fn number_handle<M: Memories>(core: &Core<M>) -> u64 {
    core.arena.fetch_add(core.map.locks + header::HANDLES, 1) + 1
}

impl<'a, M: Memories> Table<'a, M> {
    pub(super) fn new(op: &Op<'a, M>) -> Self {
        Self {
            core: op.core,
            holder: op.holder(),
            woken: RefCell::default(),
        }
    }

    pub(super) fn load(&self, at: u64) -> u64 {
        self.core.arena.load(at, Ordering::Acquire)
    }

    pub(super) fn store(&self, at: u64, value: u64) {
        self.core.arena.store(at, value, Ordering::Release);
    }

    pub(super) fn header_at(&self, word: u64) -> u64 {
        self.core.map.locks + word
    }

    pub(super) fn record_at(&self, index: u32) -> u64 {
        record_at(self.core, index)
    }

    pub(super) fn bucket_at(&self, file: FileId) -> u64 {
        let mixed =
            (file.ino ^ u64::from(file.generation) << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let bucket = mixed % bucket_count(self.core);
        self.header_at(header::BYTES) + bucket * bucket::BYTES
    }

    /// Takes one of the table's locks. Waits for the holder.
    pub(super) fn lock(&self, at: u64) -> TableLock<'a, M> {
        let mut tries = 0;
        while self
            .core
            .arena
            .compare_exchange(at, 0, self.holder)
            .is_err()
        {
            pause(&self.core.arena, &mut tries);
        }
        TableLock {
            core: self.core,
            at,
        }
    }

    pub(super) fn lock_waits(&self) -> TableLock<'a, M> {
        self.lock(self.header_at(header::WAITS_LOCK))
    }

    /// Allocates a record.
    pub(super) fn allocate(&self) -> Option<u32> {
        self.pop_free().or_else(|| self.fresh())
    }

    fn pop_free(&self) -> Option<u32> {
        let at = self.header_at(header::FREE);
        let mut head = self.load(at);
        while head as u32 != 0 {
            let next = self.load(self.record_at(head as u32) + word::NEXT) & 0xFFFF_FFFF;
            let new = (head >> 32).wrapping_add(1) << 32 | next;
            match self.core.arena.compare_exchange(at, head, new) {
                Ok(_) => return Some(head as u32),
                Err(now) => head = now,
            }
        }
        None
    }

    fn fresh(&self) -> Option<u32> {
        let at = self.header_at(header::FRESH);
        let mut used = self.load(at);
        while used < bucket_count(self.core) * RECORDS_PER_BUCKET {
            match self.core.arena.compare_exchange(at, used, used + 1) {
                Ok(_) => return Some(used as u32 + 1),
                Err(now) => used = now,
            }
        }
        None
    }

    pub(super) fn record(&self, index: u32) -> Record {
        let of = |word| self.load(self.record_at(index) + word);
        let (tag, number, process) = (of(word::TAG), of(word::OWNER), of(word::PROCESS));
        let has = |bit| tag & bit != 0;
        Record {
            file: FileId {
                ino: of(word::INO),
                generation: (tag >> 32) as u32,
            },
            class: match has(tag::WHOLE) {
                true => Class::Whole,
                false => Class::Range,
            },
            kind: match has(tag::EXCLUSIVE) {
                true => LockKind::Exclusive,
                false => LockKind::Shared,
            },
            owner: match has(tag::OF_PROCESS) {
                true => Owner::Process(number),
                false => Owner::Handle(number),
            },
            range: LockRange {
                first: of(word::FIRST),
                last: of(word::LAST),
            },
            process: process as u32,
            cancel: (process >> 32) as u32,
            is_waiting: has(tag::WAITING),
        }
    }

    /// Stores everything but [`word::NEXT`] and [`word::STATE`].
    pub(super) fn set_record(&self, index: u32, record: &Record) {
        let (Owner::Process(owner) | Owner::Handle(owner)) = record.owner;
        let process = u64::from(record.cancel) << 32 | u64::from(record.process);
        for (word, value) in [
            (word::INO, record.file.ino),
            (word::TAG, record.tag()),
            (word::FIRST, record.range.first),
            (word::LAST, record.range.last),
            (word::OWNER, owner),
            (word::PROCESS, process),
        ] {
            self.store(self.record_at(index) + word, value);
        }
    }

    /// Notes that a file has a record. The caller holds its bucket's lock.
    pub(super) fn note_locked(&self, file: Cachelet) {
        if !self.core.has_flag(file, flag::LOCKED) {
            self.core.raise_flag(file, flag::LOCKED);
        }
    }
}

/// Holds a lock of the table until dropped.
pub(super) struct TableLock<'a, M: Memories> {
    core: &'a Core<M>,
    at: u64,
}

impl<M: Memories> Drop for TableLock<'_, M> {
    fn drop(&mut self) {
        self.core.arena.store(self.at, 0, Ordering::Release);
    }
}
