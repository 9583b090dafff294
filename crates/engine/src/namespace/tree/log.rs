//! Directory logs at run time: locking, reading a block, appending, growing.

use std::sync::atomic::Ordering;

use vellum_layout::{
    BLOCK_BYTES, ChunkKind, Inode, LogExtentHead, LogOwner, LogPosition, NameRecord,
    RECORD_MAX_BYTES, RecordKind, Records, SLOT_BYTES, TargetWord,
};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent, Site};
use zerocopy::{FromBytes, IntoBytes};

use super::Name;
use super::radix::Leaf;
use crate::core::Core;
use crate::core::cachelet::{Cachelet, field, flag};
use crate::core::slots::{Op, pause};
use crate::durability::journal::Record;
use crate::error::{Error, Location, Result};
use crate::namespace::{COOKIE_MAX, FIRST_COOKIE};
use crate::sites;

/// Position of the lock's holder in the cachelet's tail word.
const HOLDER_AT: u32 = 48;
const PLACE: u64 = (1 << HOLDER_AT) - 1;

/// A block of a log, copied out of the pool.
pub(super) struct Block {
    pub(super) slot: u64,
    pub(super) head: LogExtentHead,
    pub(super) bytes: Box<[u8; BLOCK_BYTES as usize]>,
}

impl Block {
    /// The records of a block of `owner`'s log, up to its tail if the tail is in the block.
    pub(super) fn records(&self, owner: LogOwner, tail: LogPosition) -> Records<'_> {
        let tail = Some(tail).filter(|tail| tail.slot() == self.slot);
        Records::of(&self.bytes, self.slot, owner, tail)
    }
}

impl<M: Memories> Core<M> {
    /// Pool offset of a position in a log.
    pub(super) fn record_at(&self, place: LogPosition) -> u64 {
        self.geometry.slot_at(place.slot()) + place.byte()
    }

    /// The directory with inode number `ino`, as its log names its owner.
    pub(super) fn log_owner(&self, ino: u64) -> LogOwner {
        let generation = self.identity_on_pool(ino).generation();
        LogOwner {
            slot: ino,
            generation,
        }
    }

    /// Pool offset of the word of a directory's inode that holds the tail of its log.
    pub(super) fn tail_at(&self, ino: u64) -> u64 {
        self.geometry.slot_at(ino) + Inode::DETAIL
    }

    /// The tail of a log, from the directory's inode.
    ///
    /// # Errors
    /// Fails if the word is not a sound position.
    pub(super) fn tail_on_pool(&self, ino: u64) -> Result<LogPosition> {
        let tail = LogPosition(self.word(self.tail_at(ino)));
        if tail == LogPosition::NONE
            || tail.is_sound() && self.kind_of_slot(tail.slot()) == Some(ChunkKind::Blocks)
        {
            return Ok(tail);
        }
        Err(Error::damaged(
            "tail of a directory log",
            Location::Inode(ino),
        ))
    }

    /// Slot of the first block of a log, or 0.
    pub(super) fn log_root(&self, ino: u64) -> u64 {
        self.word(self.geometry.slot_at(ino) + Inode::ROOT)
    }

    /// Reads and checks the head of a block of a log.
    pub(super) fn records_head(&self, slot: u64, owner: LogOwner) -> Result<LogExtentHead> {
        let at = self.slot_at(slot)?;
        let mut head = LogExtentHead::of_records(0, owner, 0);
        self.pool.read(at, head.as_mut_bytes());
        self.check_records_head(slot, owner, &head)?;
        Ok(head)
    }

    fn check_records_head(&self, slot: u64, owner: LogOwner, head: &LogExtentHead) -> Result<()> {
        let damaged = |what| Err(Error::damaged(what, Location::Slot(slot)));
        if self.kind_of_slot(slot) != Some(ChunkKind::Blocks)
            || !slot.is_multiple_of(BLOCK_BYTES / SLOT_BYTES)
        {
            return damaged("directory log block in a wrong place");
        }
        if !head.is_sound_of_records(slot, owner) {
            return damaged("directory log block unsound");
        }
        if !(FIRST_COOKIE..=COOKIE_MAX).contains(&head.base_cookie) {
            return damaged("cookies of a directory log block");
        }
        Ok(())
    }

    /// Reads a block of a log, without verifying its records.
    pub(super) fn read_block(&self, slot: u64, owner: LogOwner) -> Result<Block> {
        let at = self.slot_at(slot)?;
        let mut bytes = Box::new([0; BLOCK_BYTES as usize]);
        self.pool.read(at, &mut bytes[..]);
        let head = LogExtentHead::read_from_prefix(&bytes[..]);
        let (head, _) =
            head.map_err(|_| Error::damaged("directory log block", Location::Slot(slot)))?;
        self.check_records_head(slot, owner, &head)?;
        Ok(Block { slot, head, bytes })
    }

    /// Calls `each` for the blocks of a log from `root` on, in order.
    pub(super) fn for_each_block(
        &self,
        root: u64,
        owner: LogOwner,
        each: &mut dyn FnMut(&Block) -> Result<()>,
    ) -> Result<()> {
        let (mut slot, mut seen) = (root, 0);
        while slot != 0 {
            let block = self.read_block(slot, owner)?;
            each(&block)?;
            slot = block.head.next;
            seen += 1;
            if seen > self.geometry.meta_slots() {
                return Err(runs_in_a_circle(owner.slot));
            }
        }
        Ok(())
    }

    /// The tail of a directory's log, from its cachelet in this mount.
    pub(super) fn tail(&self, dir: Cachelet) -> LogPosition {
        LogPosition(self.get(dir, field::TAIL) & PLACE)
    }
}

pub(super) fn runs_in_a_circle(owner: u64) -> Error {
    Error::damaged("directory log runs in a circle", Location::Inode(owner))
}

/// A record that was written behind the tail.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draft {
    pub(super) place: LogPosition,
    /// Pool offset.
    pub(super) at: u64,
    pub(super) checksum: u32,
}

impl Draft {
    /// Binds a journal record to this one.
    pub(super) fn witness(&self, record: &mut Record) {
        record.witness(self.at, self.checksum);
    }
}

/// The contents of a record without name and position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) kind: RecordKind,
    pub(super) target: TargetWord,
    /// Generation of the inode.
    pub(super) generation: u32,
    pub(super) cookie: u64,
    pub(super) hash: u32,
    /// The time, in nanoseconds since 1970.
    pub(super) now: i64,
}

impl Told {
    /// A record that `file` gets the name `name`.
    pub(super) fn came<M: Memories>(
        core: &Core<M>,
        name: Name<'_>,
        file: Cachelet,
        cookie: u64,
        now: i64,
    ) -> Self {
        Self {
            kind: RecordKind::Came,
            target: TargetWord::new(core.ino(file), core.kind(file)),
            generation: core.identity(file).generation(),
            cookie,
            hash: name.hash,
            now,
        }
    }

    /// A record that the name was removed whose record lies at pool offset `at`.
    pub(super) fn went<M: Memories>(core: &Core<M>, kind: RecordKind, at: u64, now: i64) -> Self {
        let check = core.word(at + NameRecord::NAME_WORD);
        Self {
            kind,
            target: TargetWord(core.word(at + NameRecord::TARGET)),
            generation: check as u32,
            cookie: core.word(at + NameRecord::COOKIE),
            hash: (check >> 32) as u32,
            now,
        }
    }

    pub(super) fn record(&self) -> NameRecord {
        NameRecord {
            kind: self.kind as u8,
            reserved: 0,
            name_len: 0,
            checksum: 0,
            target: self.target.0,
            time: self.now,
            cookie: self.cookie,
            generation: self.generation,
            name_hash: self.hash,
        }
    }
}

/// The locked names of a directory: nobody else changes them. Records are appended through this,
/// because behind the tail there is space for one writer. NOVA holds the inode's lock for it.
///
/// The lock is in the cachelet's tail word and names the thread slot. The locks of two directories
/// are taken in the order of their cachelets. A holder waits for a third directory only in the
/// common steps of [`crate::namespace`] that hold no such lock: a removal waits for creations in
/// the directory that it removes, and these wait for no names.
pub(super) struct Names<'o, 'a, M: Memories> {
    pub(super) op: &'o Op<'a, M>,
    pub(super) dir: Cachelet,
    owner: LogOwner,
    tail: LogPosition,
    /// The position behind the drafts.
    end: LogPosition,
    /// The next cookie.
    cookie: u64,
}

impl<M: Memories> Drop for Names<'_, '_, M> {
    fn drop(&mut self) {
        self.op.core.set(self.dir, field::TAIL, self.tail.0);
    }
}

impl<'a, M: Memories> Op<'a, M> {
    /// Keeps all others from changing names of `dir`, whether or not the names are known.
    pub(super) fn lock_names<'o>(&'o self, dir: Cachelet) -> Names<'o, 'a, M> {
        let core = self.core;
        let at = core.cachelet_at(dir, field::TAIL);
        let mut tries = 0;
        let tail = loop {
            let word = core.arena.load(at, Ordering::Acquire);
            let held = word | self.holder() << HOLDER_AT;
            if word >> HOLDER_AT == 0 && core.arena.compare_exchange(at, word, held).is_ok() {
                break LogPosition(word);
            }
            pause(&core.arena, &mut tries);
        };
        Names {
            op: self,
            dir,
            owner: core.log_owner(core.ino(dir)),
            tail,
            end: tail,
            cookie: core.get(dir, field::NEXT_COOKIE).max(FIRST_COOKIE),
        }
    }

    /// As [`Self::lock_names`], with the directory's names in its tree.
    pub(super) fn names<'o>(&'o self, dir: Cachelet) -> Result<Names<'o, 'a, M>> {
        loop {
            self.ensure_tree_counted(dir)?;
            let names = self.lock_names(dir);
            if names.are_known() {
                return Ok(names);
            }
        }
    }
}

impl<M: Memories> Names<'_, '_, M> {
    /// Finds a name: the offset of its leaf, and the leaf.
    pub(super) fn find(&self, name: Name<'_>) -> Result<Option<(u64, Leaf)>> {
        let found = self.op.core.radix_find(self.dir, name);
        if found.is_none() {
            // An unreadable name may be this one.
            self.op.check_media()?;
            self.op.check_names(self.dir)?;
        }
        Ok(found)
    }

    /// Whether all names are in the tree.
    pub(super) fn are_known(&self) -> bool {
        self.op.core.has_flag(self.dir, flag::INDEXED)
    }

    /// Sets tail and next cookie, which building the tree has found.
    pub(super) fn begin(&mut self, tail: LogPosition, cookie: u64) {
        (self.end, self.cookie) = (tail, cookie);
        self.advance();
    }

    /// The tail, up to which records are committed.
    pub(super) fn tail(&self) -> LogPosition {
        self.tail
    }

    /// The directory, as records name their owner.
    pub(super) fn owner(&self) -> LogOwner {
        self.owner
    }

    /// Assigns the next cookie.
    pub(super) fn take_cookie(&mut self) -> u64 {
        self.cookie += 1;
        self.cookie - 1
    }

    /// The position of the next record.
    pub(super) fn end(&self) -> LogPosition {
        self.end
    }

    /// Makes sure that records of `bytes` bytes have space behind the tail, in one block, and that
    /// `spare` blocks stay free. There must be no draft yet.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(super) fn make_room(&mut self, bytes: u64, spare: u64) -> Result<()> {
        let core = self.op.core;
        if self.cookie > COOKIE_MAX - 2 {
            return Err(Error::NoSpace("cookies of a directory"));
        }
        if self.tail == LogPosition::NONE {
            let root = match core.log_root(self.owner.slot) {
                0 => self.grow_first(spare)?,
                root => root,
            };
            self.end = LogPosition::new(root, NameRecord::FIRST);
            return Ok(());
        }
        let slot = self.tail.slot();
        let next = match core.word(core.geometry.slot_at(slot) + LogExtentHead::NEXT) {
            0 if self.tail.byte() + bytes <= NameRecord::LIMIT => return Ok(()),
            0 => self.grow(spare)?,
            next => {
                core.records_head(next, self.owner)?;
                next
            }
        };
        self.end = LogPosition::new(next, NameRecord::FIRST);
        Ok(())
    }

    /// Adds the first block of a log.
    fn grow_first(&self, spare: u64) -> Result<u64> {
        let core = self.op.core;
        let block = self.op.alloc_block(spare)?;
        self.write_head(sites::TREE_GROW_HEAD, block, FIRST_COOKIE, 0);
        core.pool.fence(sites::TREE_GROW_HEAD_DURABLE);
        let root = core.inode_at(self.dir) + Inode::ROOT;
        core.set_word(root, block);
        core.pool.flush(sites::TREE_GROW_ROOT, root, 8);
        core.pool.fence(sites::TREE_GROW_ROOT_DURABLE);
        Ok(block)
    }

    /// Adds a block behind that of the tail, in which records end there from now on.
    fn grow(&self, spare: u64) -> Result<u64> {
        let core = self.op.core;
        let block = self.op.alloc_block(spare)?;
        self.write_head(sites::TREE_GROW_NEXT_HEAD, block, self.cookie, 0);
        // There may be bytes of a draft that was never committed.
        core.pool
            .store_through(sites::TREE_GROW_END, core.record_at(self.tail), 0);
        core.pool.fence(sites::TREE_GROW_BLOCK_DURABLE);
        let link = core.geometry.slot_at(self.tail.slot()) + LogExtentHead::NEXT;
        core.set_word(link, block);
        core.pool.flush(sites::TREE_GROW_LINK, link, 8);
        core.pool.fence(sites::TREE_GROW_LINK_DURABLE);
        Ok(block)
    }

    /// Writes the first line of a block. Past the cache, not fenced.
    pub(super) fn write_head(&self, site: Site, slot: u64, base_cookie: u64, next: u64) {
        let mut head = LogExtentHead::of_records(slot, self.owner, base_cookie);
        head.next = next;
        let mut line = [0; LINE_BYTES as usize];
        line[..size_of::<LogExtentHead>()].copy_from_slice(head.as_bytes());
        let core = self.op.core;
        core.pool
            .write_through(site, core.geometry.slot_at(slot), &line);
    }

    /// Writes a record behind the tail and earlier drafts. The caller has made space. Past the
    /// cache, not fenced.
    pub(super) fn draft(&mut self, site: Site, told: &Told, name: &[u8]) -> Draft {
        let core = self.op.core;
        let place = self.end;
        let record = told.record().sealed(name, place, self.owner);
        let mut buffer = [0; RECORD_MAX_BYTES];
        let bytes = record.encode(name, place, self.owner, &mut buffer);
        let at = core.record_at(place);
        core.pool.write_through(site, at, &buffer[..bytes]);
        self.end = LogPosition::new(place.slot(), place.byte() + bytes as u64);
        Draft {
            place,
            at,
            checksum: record.checksum,
        }
    }

    /// Adds to a journal record the store that commits the drafts.
    pub(super) fn record_tail(&self, record: &mut Record) {
        if self.end != self.tail {
            record.store(self.op.core.tail_at(self.owner.slot), self.end.0);
        }
    }

    /// Moves the tail over the committed drafts, so that listings reach them.
    pub(super) fn advance(&mut self) {
        let core = self.op.core;
        self.tail = self.end;
        core.set(self.dir, field::NEXT_COOKIE, self.cookie);
        let held = self.tail.0 | self.op.holder() << HOLDER_AT;
        core.set(self.dir, field::TAIL, held);
    }
}
