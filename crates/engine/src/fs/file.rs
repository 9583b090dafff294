//! The bytes of a regular file: reading, writing, size, allocation, holes.
//!
//! Writers hold the file's lock. Readers hold nothing: the blocks that a reader has found stay
//! where they are until its operation ends (limbo). Two rules keep a reader from bytes that are not
//! the file's:
//!
//! * A file's *mapping version* is odd while blocks are being freed, and has another even value
//!   afterwards. Translations are used and kept only under an even version, so none outlives its
//!   block by more than the operation that used it.
//! * A reader that finds a changed version after it has copied reads again. The file may have been
//!   truncated and have grown since the reader looked at the size, and a block that is being
//!   appended holds the bytes of its last owner until the size covers it.
//!
//! Orders on the media are those of `docs/crash/operations.md`. A flag in the mapping root says
//! that blocks *may* lie beyond the end of file ([`BEYOND`]). It is durable before any block lies
//! there, except for blocks that an append maps (recovery frees these). While it is clear,
//! everything beyond the end is a hole, and truncating or deleting a file searches no further than
//! its end.

mod ahead;
mod allocate;
#[cfg(test)]
mod crash;
mod measure;
mod probe;
mod read;
mod read_path;
mod seek;
mod shift;
#[cfg(test)]
mod tests;
mod translation;
mod truncate;
mod view;
mod write;

use crate::core::limits::SIZE_MAX_BYTES;
use std::ops::Range;

use vellum_layout::{BLOCK_BYTES, IdentityWord, Inode, MapRoot};
use vellum_media::{Memories, Memory, Persistent, Site};

use crate::core::Core;
use crate::core::cachelet::{Cachelet, LockGuard, field};
use crate::core::lease;
use crate::core::quotas::Space;
use crate::core::slots::{Op, pause};
use crate::error::{Error, Result};
use crate::fs::change::has_privileges;
use crate::fs::{Cred, Fs};
use crate::mapping::{Flush, Found, MapId, Mapping, Reservation};
use crate::sites;

pub use allocate::Allocate;
pub(crate) use allocate::check_range;
pub(crate) use measure::Cold;
pub use probe::{MappingProbe, gather_metadata, settle};
pub(crate) use read_path::ReadPaths;
pub(crate) use translation::Translation;
pub(crate) use truncate::check_size;
pub use view::{View, ViewSource};

/// Limit of the logical blocks of a file.
const BLOCKS_MAX: u64 = SIZE_MAX_BYTES / BLOCK_BYTES;
/// Bytes that one operation of a long write writes. It writes all of them, or none if space is
/// lacking.
const PIECE_BYTES: u64 = 1 << 20;
/// Limit of the blocks that such a piece touches.
const PIECE_BLOCKS: usize = (PIECE_BYTES / BLOCK_BYTES) as usize + 1;

/// How often an operation waits for blocks in limbo before it fails for lack of space. Each time
/// others may be faster, or may sleep while they hold blocks that they are freeing. So it yields in
/// between.
const ROOM_TRIES: u32 = 1000;

/// Flag in a mapping root: blocks may lie beyond the end of file.
pub(crate) const BEYOND: u64 = MapRoot::BEYOND;
/// Flag in the cachelet's `BLOCKS`: the number of blocks is known.
const BLOCKS_KNOWN: u64 = 1 << 63;

/// The parts of a file system that a file's bytes need.
pub(crate) struct Files<'a, M: Memories> {
    pub(crate) core: &'a Core<M>,
    pub(crate) mapping: &'a dyn Mapping<M>,
    /// The user who changes bytes, if that may drop set-id bits.
    user: Option<&'a Cred>,
    /// Changes leave set-id bits and the capability.
    keeps_privileges: bool,
    /// The caller has a lease of the bytes that change, and nobody else has.
    holds_lease: bool,
    /// A write that exceeds a quota becomes shorter.
    cuts: bool,
}

impl<M: Memories> Clone for Files<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Memories> Copy for Files<'_, M> {}

impl<M: Memories> Fs<M> {
    /// The operations on files' bytes.
    pub(crate) fn files(&self) -> Files<'_, M> {
        Files {
            core: &self.core,
            mapping: &*self.mapping,
            user: None,
            keeps_privileges: false,
            holds_lease: false,
            cuts: false,
        }
    }

    /// Runs a change of a file's bytes or space by `cred`. If there is no space, does the
    /// background's work and tries once more.
    #[inline]
    pub(crate) fn change_file<T>(
        &self,
        cred: &Cred,
        run: impl Fn(&Files<'_, M>) -> Result<T>,
    ) -> Result<T> {
        let mut files = self.files().by(cred);
        let mut has_reclaimed = false;
        // `run` is called in one place, so that it is compiled in line.
        loop {
            match run(&files) {
                Err(Error::QuotaExceeded) if !files.cuts => {
                    // Files that were removed but are not freed yet still count.
                    self.free_removed()?;
                    files.cuts = true;
                }
                Err(Error::NoSpace(what)) => {
                    if !self.make_room(what, has_reclaimed)? {
                        return Err(Error::NoSpace(what));
                    }
                    has_reclaimed = true;
                }
                done => return done,
            }
        }
    }
}

impl<'a, M: Memories> Files<'a, M> {
    /// The same operations for a user whose changes drop set-id bits.
    pub(crate) fn by(self, user: &'a Cred) -> Self {
        Self {
            user: Some(user),
            ..self
        }
    }

    /// The same operations, with `keeps_privileges` for bytes that somebody wrote earlier.
    pub(crate) fn keeping_privileges(self, keeps_privileges: bool) -> Self {
        Self {
            keeps_privileges,
            ..self
        }
    }

    /// The same operations under a lease of all bytes that change ([`lease::Lease::take_alone`]).
    /// They move bytes, so quotas neither bind nor cut them.
    fn under_lease(self) -> Self {
        Self {
            holds_lease: true,
            cuts: false,
            ..self
        }
    }

    /// Checks, under the lock of a file, that its bytes may change, and drops the privileges that
    /// must not be found with the change. Returns whether there were any.
    fn prepare(&self, op: &Op<'a, M>, file: Cachelet) -> Result<bool> {
        let identity = self.core.identity(file);
        check_mutable(identity)?;
        match has_privileges(identity) && !self.keeps_privileges {
            true => op.drop_privileges(self.user, file),
            false => Ok(false),
        }
    }

    /// Begins a change of the end of a file by its user that shows no bytes before a commit. Nobody
    /// moves bytes of the file meanwhile. The caller drops the lock before the operation.
    fn change_end(&self, file: Cachelet) -> Result<(Op<'a, M>, LockGuard<'a, M>)> {
        // Views do not reach that far.
        const END: Range<u64> = SIZE_MAX_BYTES..u64::MAX;
        loop {
            lease::wait(self.core, file, &END)?;
            let op = self.core.op_to_change()?;
            let lock = self.lock_to_change(&op, file)?;
            if !lease::is_lent(self.core, file, &END) {
                return Ok((op, lock));
            }
        }
    }

    /// Locks a file for a change by its user that shows no bytes before a commit.
    fn lock_to_change(&self, op: &Op<'a, M>, file: Cachelet) -> Result<LockGuard<'a, M>> {
        let lock = self.core.lock(op, file);
        self.prepare(op, file)?;
        Ok(lock)
    }
}

/// Checks that the bytes of a file may change.
#[inline]
pub(crate) fn check_mutable(identity: IdentityWord) -> Result<()> {
    match identity.has(IdentityWord::IMMUTABLE) {
        true => Err(Error::NotPermitted),
        false => Ok(()),
    }
}

/// Checks that bytes of a file may change that are there already.
pub(crate) fn check_cuttable(identity: IdentityWord) -> Result<()> {
    match identity.has_any(IdentityWord::GUARDED) {
        true => Err(Error::NotPermitted),
        false => Ok(()),
    }
}

/// The reason why an attempt ended.
enum Stop {
    /// This number of blocks could not be reserved.
    Short(u64),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A file's mapping root while its writer works.
#[derive(Clone, Copy)]
struct Root {
    id: MapId,
    /// The root in the cachelet. 0: the file has no root yet.
    old: u64,
    /// The root that the next commit stores.
    new: u64,
}

impl Root {
    fn is_beyond(&self) -> bool {
        self.old & BEYOND != 0
    }
}

impl<'a, M: Memories> Files<'a, M> {
    /// Runs an attempt, which is one operation. If it lacks space that blocks in limbo could
    /// provide, waits for their readers between operations and tries again, a limited number of
    /// times, because others may take what was reclaimed.
    fn with_room<T>(&self, mut attempt: impl FnMut() -> std::result::Result<T, Stop>) -> Result<T> {
        let mut tries = 0;
        loop {
            match attempt() {
                Ok(done) => return self.core.check_written().map(|()| done),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Short(blocks)) => {
                    let hopeless = self.mapping.usage(self.core).free < blocks;
                    if hopeless || tries == ROOM_TRIES {
                        return Err(Error::NoSpace(Error::DATA_BLOCKS));
                    }
                    pause(&self.core.arena, &mut tries);
                    let freed = self.reclaim_unseen()?;
                    // Waiting does not return blocks that are held until a commit. The caller
                    // commits and tries again.
                    if freed == 0 && self.core.lacks_commit() {
                        return Err(Error::NoSpace(Error::DATA_BLOCKS));
                    }
                }
            }
        }
    }

    /// Frees blocks that no operation can see any more, and returns their number. The caller is in
    /// no operation.
    fn reclaim_unseen(&self) -> Result<u64> {
        self.core.wait_for_readers();
        // Reclaiming stores to the pool, so no epoch may be cut meanwhile.
        let _op = self.core.op_begin()?;
        Ok(self.mapping.reclaim(self.core))
    }

    /// Begins a change of `bytes` of a file. Returns the operation and the file's lock. No view of
    /// these bytes is left. The set-id bits and the capability that must not be found with the
    /// change are dropped, durably and under the same lock: setting them again meanwhile counts as
    /// earlier than everything written from then on. The caller drops the lock before the
    /// operation.
    fn change(
        &self,
        cachelet: Cachelet,
        bytes: Range<u64>,
    ) -> Result<(Op<'a, M>, LockGuard<'a, M>)> {
        loop {
            if !self.holds_lease {
                lease::wait(self.core, cachelet, &bytes)?;
            }
            self.core.settle_set_ids()?;
            let op = self.core.op_to_change()?;
            let lock = self.core.lock(&op, cachelet);
            if !self.holds_lease && lease::is_lent(self.core, cachelet, &bytes) {
                continue;
            }
            // On pools with commits, their removal may not be durable yet.
            let dropped = self.prepare(&op, cachelet)?;
            if !(dropped && self.core.commits.is_some()) {
                return Ok((op, lock));
            }
        }
    }

    fn size(&self, cachelet: Cachelet) -> u64 {
        self.core.get(cachelet, field::SIZE)
    }

    /// Returns the mapping root, or the one that the file gets with its first block. This release
    /// derives the mapping id from the inode number. The caller holds the lock.
    fn root(&self, cachelet: Cachelet) -> Root {
        let old = self.core.get(cachelet, field::ROOT);
        let new = match MapRoot(old).get() {
            Some(_) => old,
            None => MapRoot::new(0, MapRoot::id_of(self.core.ino(cachelet))).0,
        };
        Root {
            id: new as u32 & 0x3FFF_FFFF,
            old,
            new,
        }
    }

    /// The logical block from which on there are certainly no blocks.
    fn blocks_end(root: u64, size: u64) -> u64 {
        if root & BEYOND != 0 {
            BLOCKS_MAX
        } else {
            size.div_ceil(BLOCK_BYTES)
        }
    }

    /// What logical blocks of a file from `first` on map to; `found` holds holes before.
    fn look_up(
        &self,
        op: &Op<'_, M>,
        cachelet: Cachelet,
        first: u64,
        found: &mut [Found],
    ) -> Result<()> {
        let root = self.root(cachelet);
        if root.old == 0 {
            return Ok(());
        }
        let looked = self.mapping.lookup(op, root.id, first as u32, found);
        self.core.noting(looked)
    }

    /// What a single logical block maps to.
    fn find_one(&self, op: &Op<'_, M>, id: MapId, logical: u64) -> Result<Found> {
        let mut found = [Found::Hole];
        self.mapping.lookup(op, id, logical as u32, &mut found)?;
        Ok(found[0])
    }

    /// Zeroes bytes `[size, to)` of the block that contains the end of file, if that block holds
    /// bytes. Returns whether a fence is due before the size moves past them.
    fn zero_tail(
        &self,
        site: Site,
        op: &Op<'_, M>,
        root: Root,
        size: u64,
        to: u64,
    ) -> Result<bool> {
        let start = size % BLOCK_BYTES;
        if start == 0 || root.old == 0 {
            return Ok(false);
        }
        let Found::Mapped(block) = self.find_one(op, root.id, size / BLOCK_BYTES)? else {
            return Ok(false);
        };
        let end = (start + to - size).min(BLOCK_BYTES);
        crate::devices::data::zero(site, self.core, self.mapping, block, start, end);
        Ok(true)
    }

    /// Stores modification and change time to the inode, unflushed.
    fn store_times(&self, inode_at: u64, now: i64) {
        self.core.set_word(inode_at + Inode::MTIME, now as u64);
        self.core.set_word(inode_at + Inode::CTIME, now as u64);
    }

    /// Flushes the line with size, times and root.
    fn flush_hot_line(&self, site: Site, inode_at: u64) {
        self.core.pool.flush(site, inode_at + Inode::SIZE, 8);
    }

    /// The time of a change of a file: the present, but no earlier than the last change. The caller
    /// holds the lock.
    fn change_time(&self, cachelet: Cachelet) -> i64 {
        let last = self.core.get(cachelet, field::CTIME) as i64;
        self.core.clock.now().max(last)
    }

    /// Publishes the times of a durable operation in the cachelet. The caller holds the lock.
    fn publish_times(&self, cachelet: Cachelet, now: i64) {
        self.core.set(cachelet, field::MTIME, now as u64);
        self.core.set(cachelet, field::CTIME, now as u64);
    }

    /// Whether limits of quotas hold.
    fn is_bound(&self) -> bool {
        !self.holds_lease && self.user.is_some_and(Cred::is_bound)
    }

    /// Reserves blocks for a file, and counts them for its owners. The caller holds the lock.
    #[inline]
    fn reserve(
        &self,
        op: &Op<'_, M>,
        cachelet: Cachelet,
        blocks: u64,
    ) -> std::result::Result<Reservation, Stop> {
        let reserved = match self.core.has_quotas() {
            true => self.reserve_counted(op, cachelet, blocks),
            false => self.mapping.reserve(op, blocks),
        };
        match reserved {
            Err(Error::NoSpace(_)) => Err(Stop::Short(blocks)),
            other => Ok(other?),
        }
    }

    #[cold]
    fn reserve_counted(
        &self,
        op: &Op<'_, M>,
        cachelet: Cachelet,
        blocks: u64,
    ) -> Result<Reservation> {
        let (core, space) = (self.core, Space { blocks, inodes: 0 });
        core.charge(core.owners(cachelet), space, self.is_bound())?;
        let reserved = self.mapping.reserve(op, blocks);
        reserved.inspect_err(|_| core.discharge(core.owners(cachelet), space))
    }

    /// Adds `blocks` to the count, before they are claimed. The caller holds the lock.
    fn raise_blocks(&self, cachelet: Cachelet, root: Root, blocks: u64) {
        let count = self.core.get(cachelet, field::BLOCKS);
        let count = if root.old == 0 { BLOCKS_KNOWN } else { count };
        if count & BLOCKS_KNOWN != 0 {
            self.core.set(cachelet, field::BLOCKS, count + blocks);
        }
    }

    /// Subtracts `blocks` from the count, after they went to limbo. The caller holds the lock.
    fn lower_blocks(&self, cachelet: Cachelet, blocks: u64) {
        if blocks == 0 {
            return;
        }
        if self.core.has_quotas() {
            let space = Space { blocks, inodes: 0 };
            self.core.discharge(self.core.owners(cachelet), space);
        }
        let count = self.core.get(cachelet, field::BLOCKS);
        if count & BLOCKS_KNOWN != 0 {
            let left = (count & !BLOCKS_KNOWN).saturating_sub(blocks);
            self.core.set(cachelet, field::BLOCKS, left | BLOCKS_KNOWN);
        }
    }

    /// An upper bound of the file's blocks, at which a search may stop.
    fn blocks_bound(&self, cachelet: Cachelet) -> u64 {
        match self.core.get(cachelet, field::BLOCKS) {
            count if count & BLOCKS_KNOWN != 0 => count & !BLOCKS_KNOWN,
            _ => u64::MAX,
        }
    }

    /// The number of the file's data blocks, if it is known.
    pub(crate) fn blocks_if_known(&self, cachelet: Cachelet) -> Option<u64> {
        if self.core.get(cachelet, field::ROOT) == 0 {
            return Some(0);
        }
        Some(self.blocks_bound(cachelet)).filter(|&known| known != u64::MAX)
    }

    /// The number of the file's data blocks, including preallocated ones. Counts them at the first
    /// call.
    pub(crate) fn blocks(&self, cachelet: Cachelet) -> Result<u64> {
        if self.core.get(cachelet, field::ROOT) == 0 {
            return Ok(0);
        }
        match self.blocks_bound(cachelet) {
            u64::MAX => {}
            known => return Ok(known),
        }
        let op = self.core.op_begin()?;
        let _lock = self.core.lock(&op, cachelet);
        self.blocks_locked(&op, cachelet)
    }

    /// The same for the holder of the file's lock.
    pub(crate) fn blocks_locked(&self, op: &Op<'_, M>, cachelet: Cachelet) -> Result<u64> {
        if let Some(known) = self.blocks_if_known(cachelet) {
            return Ok(known);
        }
        let root = self.root(cachelet);
        let end = Self::blocks_end(root.old, self.size(cachelet));
        let count = self.mapping.count(op, root.id, end);
        let count = self.core.noting(count)?;
        op.check_media()?;
        self.core.set(cachelet, field::BLOCKS, count | BLOCKS_KNOWN);
        Ok(count)
    }

    /// Counts the blocks of the file with this inode, while nobody changes it.
    pub(crate) fn count_of(&self, op: &Op<'_, M>, inode: &Inode) -> Result<u64> {
        let end = Self::blocks_end(inode.root, inode.size);
        match MapRoot(inode.root).get() {
            Some((_, id)) => self.mapping.count(op, id, end),
            None => Ok(0),
        }
    }

    /// Frees blocks `[first, end)`. Flushed as `flush` says, not fenced. The caller holds the lock.
    /// No translation from before, or from meanwhile, is kept.
    fn give_up(
        &self,
        flush: Flush,
        op: &Op<'_, M>,
        cachelet: Cachelet,
        id: MapId,
        first: u64,
        end: u64,
    ) -> Result<()> {
        let version = self.core.get(cachelet, field::VERSION) | 1;
        self.core.set(cachelet, field::VERSION, version);
        // Every reader that begins after another reader found a block in limbo sees the odd
        // version.
        self.core.arena.barrier();
        let in_use = self.blocks_bound(cachelet);
        let gone = self.mapping.release(flush, op, id, first, end, in_use);
        self.lower_blocks(cachelet, *gone.as_ref().unwrap_or(&0));
        self.core.set(cachelet, field::VERSION, version + 1);
        gone.map(drop)
    }

    /// Frees every block of a file that durably has no name. Flushed, not fenced: the caller fences
    /// before the inode number can be reused. In a tree it also frees what lies behind the last
    /// block, where a power cut during an append leaves nodes without blocks.
    pub(crate) fn release_all(&self, op: &Op<'_, M>, cachelet: Cachelet) -> Result<()> {
        let root = self.root(cachelet);
        if root.old == 0 {
            return Ok(());
        }
        let end = match self.core.geometry.mapping.has_trees() {
            true => BLOCKS_MAX,
            false => Self::blocks_end(root.old, self.size(cachelet)),
        };
        self.give_up(
            Flush::below(sites::FREE_LIMBO),
            op,
            cachelet,
            root.id,
            0,
            end,
        )
    }
}
