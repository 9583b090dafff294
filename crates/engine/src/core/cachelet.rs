//! Cachelets (DirectFS III-B): 128 bytes of read-mostly state for each file in use, in the arena.
//! Everything else is read from the pool.
//!
//! A cachelet is found through the global index, or through the `nv_pointer` in its inode, so that
//! hard links share one (III-D). The pointer carries the pool's epoch; a crash makes it stale.
//!
//! Life of a cachelet: allocated from the free list, or fresh; filled; published by
//! compare-and-swap on the inode's `nv_pointer`; counted by `refs` (handles, nodes) and `names`
//! (index entries that point to it). When both are zero it may be evicted: its pointer is cleared,
//! and after a grace period it is free.
//!
//! Deviation from the paper: the flags readable, delete and rename are in the index entry, not
//! here, because they belong to a name, and hard links share the cachelet.

use std::sync::atomic::Ordering;

use vellum_layout::{
    DirLocation, FileKind, Geometry, IdentityWord, Inode, InodeState, LinksWord, MapRoot,
    NamespaceKind, OwnerWord,
};
use vellum_media::{LINE_BYTES, Memories, Memory};

use crate::core::limits::SIZE_MAX_BYTES;
use crate::core::named::Named;
use crate::core::slots::{self, Op, pause};
use crate::core::times::Times;
use crate::core::{Core, header};
use crate::error::{Error, Location, Result};

/// Bytes of a cachelet.
pub(crate) const CACHELET_BYTES: u64 = 128;

/// Word offsets within a cachelet. Lookups and `stat` of a file read the first line only.
pub(crate) mod field {
    /// Inode number; 0 while free (then [`NEXT`] links the free list).
    pub(crate) const INO: u64 = 0;
    /// `IdentityWord`: kind, permission bits, flags, generation, state.
    pub(crate) const IDENTITY: u64 = 8;
    /// `OwnerWord`.
    pub(crate) const OWNER: u64 = 16;
    /// Link count (files: names; directories: 2 + subdirectories) in bits 0..32; names that are not
    /// durable yet ([`super::LINK_RESERVED`]).
    pub(crate) const LINKS: u64 = 24;
    /// Size in bytes. Not for directories.
    pub(crate) const SIZE: u64 = 32;
    /// Directories: renames in it of which listings may see only a part; see [`SIZE`].
    pub(crate) const MOVING: u64 = 32;
    /// Directories of the namespace *tree*: the topmost node of the radix tree, or 0.
    pub(crate) const TOP_NODE: u64 = 32;
    /// Modification time.
    pub(crate) const MTIME: u64 = 40;
    /// Change time. Not for directories.
    pub(crate) const CTIME: u64 = 48;
    /// Directories: the lock, as [`LOCK`] of files.
    pub(crate) const DIR_LOCK: u64 = 48;
    /// Access time.
    pub(crate) const ATIME: u64 = 56;
    /// References: handles and nodes in bits 0..32, index entries in 32..64.
    pub(crate) const REFS: u64 = 64;
    /// Flags; see [`super::flag`].
    pub(crate) const FLAGS: u64 = 72;
    /// Writer's lock: 0 or the holder. Files: allocating, extending, truncating. Directories have
    /// theirs elsewhere, for log growth.
    pub(crate) const LOCK: u64 = 80;
    /// Directories: when names last changed; see `times`.
    pub(crate) const CHANGED: u64 = 80;
    /// Files: `MapRoot`. Directories: slot of the first log extent. Symlinks: slot of the text.
    pub(crate) const ROOT: u64 = 88;
    /// Directories of the namespace *tree*, once counted: the next name's cookie.
    pub(crate) const NEXT_COOKIE: u64 = 88;
    /// Directories: dying (bit 0), children ([`super::CHILD_ONE`]), creations that are not durable
    /// yet ([`super::MAKING_ONE`]). Files: blocks in use (may be too high).
    pub(crate) const CHILDREN: u64 = 96;
    /// See [`CHILDREN`].
    pub(crate) const BLOCKS: u64 = 96;
    /// Directories: log tail; in the namespace *tree*, the holder of changes of names above it.
    /// Files: mapping version, raised whenever a translation may become stale.
    pub(crate) const TAIL: u64 = 104;
    /// See [`TAIL`].
    pub(crate) const VERSION: u64 = 104;
    /// Directories: dead log words (low half), log generation (high half).
    pub(crate) const DEAD: u64 = 112;
    /// Files: views of bytes in place; see `lease`.
    pub(crate) const LEASES: u64 = 112;
    /// Next in the free list, the work stack or the eviction queue.
    pub(crate) const NEXT: u64 = 120;
}

/// Bits of [`field::FLAGS`].
pub(crate) mod flag {
    /// Directories: every valid entry is in the index, so a miss means there is no such name.
    pub(crate) const INDEXED: u64 = 1;
    /// Directories: an operation is filling the index.
    pub(crate) const BUILDING: u64 = 2;
    /// On the work stack.
    pub(crate) const QUEUED: u64 = 4;
    /// Directories: times or link count are newer than in the inode. Files: those in the inode may
    /// not be durable.
    pub(crate) const DIRTY: u64 = 8;
    /// No name is left; the inode is freed with the last reference.
    pub(crate) const UNLINKED: u64 = 16;
    /// Directories: searched since eviction last looked (second chance).
    pub(crate) const TOUCHED: u64 = 32;
    /// Directories: children, dead entries, subdirectories and log tail are known. Building the
    /// index again does not change them.
    pub(crate) const COUNTED: u64 = 64;
    /// Being evicted. An operation that finds the cachelet through its inode clears this and so
    /// keeps it.
    pub(crate) const EVICTING: u64 = 128;
    /// Evicted: must not be used any more, and the file gets a new one.
    pub(crate) const EVICTED: u64 = 256;
    /// Directories: a listing has verified every entry. Later entries were created by this process.
    pub(crate) const VERIFIED: u64 = 512;
    /// Directories: some names cannot be read, so a miss in the index proves nothing.
    pub(crate) const UNSURE: u64 = 1024;
    /// Files: read or written continuously before the last close.
    pub(crate) const CONTINUOUS: u64 = 2048;
    /// Directories: names in it must not change, because it or a directory above it is being moved.
    pub(crate) const STILL: u64 = 4096;
    /// Directories: a rename has replaced or exchanged a name in it since it is known. Such a name
    /// exists throughout, but with another entry: listings look for it a second time.
    pub(crate) const REPLACED: u64 = 1 << 14;
    /// Files: made without a name ([`UNLINKED`]), and may still get one.
    pub(crate) const LINKABLE: u64 = 1 << 15;
    /// Files: made without a name, and getting the first one now.
    pub(crate) const NAMING: u64 = 1 << 40;
    /// The inode points to this cachelet: operations that come through the inode find this one and
    /// create no other, until it is evicted or the file is gone.
    pub(crate) const KNOWN: u64 = 8192;
    /// The table of locks may have records of the file; see `fs::locks`.
    pub(crate) const LOCKED: u64 = 1 << 41;
    /// Directories: counts evictions from bit 42 on. A miss in the index is valid only if this and
    /// [`INDEXED`] were the same before and after.
    pub(crate) const GENERATION: u64 = 1 << 42;

    const AREA_SHIFT: u32 = 16;
    const AREA: u64 = 0xFF_FFFF << AREA_SHIFT;
    const _: () = assert!(AREA & (NAMING | LOCKED | GENERATION | 0xFFFF) == 0);

    /// Directories of the namespace *adaptive*: the area whose table has the names in it; 0 means
    /// not known yet.
    pub(crate) fn area(flags: u64) -> u32 {
        ((flags & AREA) >> AREA_SHIFT) as u32
    }

    /// Returns the flags with another area.
    pub(crate) fn with_area(flags: u64, area: u32) -> u64 {
        flags & !AREA | u64::from(area) << AREA_SHIFT & AREA
    }
}

/// One reference in [`field::REFS`].
pub(crate) const REF_ONE: u64 = 1;
/// One index entry in [`field::REFS`].
pub(crate) const NAME_ONE: u64 = 1 << 32;

/// A cachelet by number. Valid inside the operation that found it, or while a reference is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cachelet(pub(crate) u32);

/// One child in [`field::CHILDREN`].
pub(crate) const CHILD_ONE: u64 = 2;
/// One creation in flight in [`field::CHILDREN`]; its entry is counted as a child, too.
pub(crate) const MAKING_ONE: u64 = 1 << 48;
/// A name of a file whose log word is not durable yet, in [`field::LINKS`]. It keeps the file from
/// running out of names, and delays reports of its attributes.
pub(crate) const LINK_RESERVED: u64 = 1 << 32;

/// Fresh cachelets that a thread slot reserves at a time.
const FRESH_BATCH: u64 = 16;
const POINTER_BITS: u32 = 40;

impl<M: Memories> Core<M> {
    /// Arena offset of a word of `cachelet`.
    pub(crate) fn cachelet_at(&self, cachelet: Cachelet, field: u64) -> u64 {
        self.map.cachelets + u64::from(cachelet.0) * CACHELET_BYTES + field
    }

    /// Loads a word of `cachelet`.
    pub(crate) fn get(&self, cachelet: Cachelet, field: u64) -> u64 {
        self.arena
            .load(self.cachelet_at(cachelet, field), Ordering::Acquire)
    }

    /// Stores a word of `cachelet`.
    pub(crate) fn set(&self, cachelet: Cachelet, field: u64, value: u64) {
        self.arena
            .store(self.cachelet_at(cachelet, field), value, Ordering::Release);
    }

    /// Returns the inode number.
    pub(crate) fn ino(&self, cachelet: Cachelet) -> u64 {
        self.get(cachelet, field::INO)
    }

    /// Returns the pool offset of the inode.
    pub(crate) fn inode_at(&self, cachelet: Cachelet) -> u64 {
        self.geometry.slot_at(self.ino(cachelet))
    }

    /// Returns kind, permission bits and generation.
    pub(crate) fn identity(&self, cachelet: Cachelet) -> IdentityWord {
        IdentityWord(self.get(cachelet, field::IDENTITY))
    }

    /// Returns the kind of file.
    pub(crate) fn kind(&self, cachelet: Cachelet) -> FileKind {
        self.identity(cachelet).kind().unwrap_or(FileKind::File)
    }

    /// Returns user and group.
    pub(crate) fn owner(&self, cachelet: Cachelet) -> OwnerWord {
        OwnerWord(self.get(cachelet, field::OWNER))
    }

    /// Returns the number of names in a directory whose names are counted.
    pub(crate) fn children(&self, dir: Cachelet) -> u64 {
        self.get(dir, field::CHILDREN) % MAKING_ONE / CHILD_ONE
    }

    /// Whether entries that `dir`'s log names may not be durable yet.
    pub(crate) fn is_being_made_in(&self, dir: Cachelet) -> bool {
        self.get(dir, field::CHILDREN) >= MAKING_ONE
    }

    /// Returns a file's mapping root.
    pub(crate) fn map_root(&self, cachelet: Cachelet) -> MapRoot {
        MapRoot(self.get(cachelet, field::ROOT))
    }

    /// Whether all of `flags` are set.
    pub(crate) fn has_flag(&self, cachelet: Cachelet, flags: u64) -> bool {
        self.get(cachelet, field::FLAGS) & flags == flags
    }

    /// Sets flags. Returns the flags before.
    pub(crate) fn raise_flag(&self, cachelet: Cachelet, flags: u64) -> u64 {
        self.arena
            .fetch_or(self.cachelet_at(cachelet, field::FLAGS), flags)
    }

    /// Clears flags. Returns the flags before.
    pub(crate) fn clear_flag(&self, cachelet: Cachelet, flags: u64) -> u64 {
        self.arena
            .fetch_and(self.cachelet_at(cachelet, field::FLAGS), !flags)
    }

    /// Adds `count` (of [`REF_ONE`] or [`NAME_ONE`]) to the references. The first reference ends an
    /// eviction that began while there was none. The eviction stays ended even if the reference is
    /// dropped.
    pub(crate) fn add_refs(&self, cachelet: Cachelet, count: u64) {
        let before = self
            .arena
            .fetch_add(self.cachelet_at(cachelet, field::REFS), count);
        if before == 0 && self.has_flag(cachelet, flag::EVICTING) {
            self.clear_flag(cachelet, flag::EVICTING);
        }
    }

    /// Subtracts `count` from the references. Returns the rest.
    pub(crate) fn drop_refs(&self, cachelet: Cachelet, count: u64) -> u64 {
        let at = self.cachelet_at(cachelet, field::REFS);
        self.arena
            .fetch_add(at, count.wrapping_neg())
            .wrapping_sub(count)
    }

    /// Allocates a cachelet that belongs to no file, with all words zero.
    pub(crate) fn take_cachelet(&self, op: &Op<'_, M>) -> Result<Cachelet> {
        let taken = self.pop_free_cachelet().or_else(|| self.fresh_cachelet(op));
        let taken = taken.ok_or(Error::OutOfMemory("cachelets"))?;
        for word in 0..CACHELET_BYTES / 8 {
            self.arena
                .store(self.cachelet_at(taken, word * 8), 0, Ordering::Relaxed);
        }
        Ok(taken)
    }

    /// Returns the next fresh cachelet; thread slots reserve them in batches.
    fn fresh_cachelet(&self, op: &Op<'_, M>) -> Option<Cachelet> {
        let mut held = op.own(slots::field::CACHELETS);
        if held as u32 == 0 {
            held = self.fresh_batch();
        }
        let some = held as u32 != 0;
        op.set_own(
            slots::field::CACHELETS,
            if some { held + (1 << 32) - 1 } else { 0 },
        );
        some.then_some(Cachelet((held >> 32) as u32))
    }

    /// Reserves fresh cachelets: the first one (bits 32..64), and how many follow from there on.
    /// There are none beyond the limit, which may be raised meanwhile.
    fn fresh_batch(&self) -> u64 {
        let mut last = self.last_cachelet();
        loop {
            let first = last + 1;
            let left = self.cachelet_limit().saturating_sub(first);
            let count = left.min(FRESH_BATCH);
            let taken = (count > 0).then(|| {
                self.arena
                    .compare_exchange(header::CACHELET_FRESH, last, last + count)
            });
            match taken {
                Some(Err(now)) => last = now,
                _ => return first << 32 | count,
            }
        }
    }

    /// The highest number of a cachelet that may have been used.
    pub(crate) fn last_cachelet(&self) -> u64 {
        self.arena.load(header::CACHELET_FRESH, Ordering::Acquire)
    }

    /// How many cachelets may be used for now.
    pub(crate) fn cachelet_limit(&self) -> u64 {
        self.arena.load(header::CACHELET_LIMIT, Ordering::Relaxed)
    }

    /// Raises the limit to at least `to`, as far as there are cachelets.
    pub(crate) fn raise_cachelet_limit(&self, to: u64) {
        let to = to.min(self.map.cachelet_count);
        self.arena.fetch_max(header::CACHELET_LIMIT, to);
    }

    /// Doubles the limit; returns `false` if there are no more cachelets.
    pub(crate) fn double_cachelet_limit(&self) -> bool {
        let limit = self.cachelet_limit();
        self.raise_cachelet_limit(2 * limit);
        limit < self.map.cachelet_count
    }

    /// Cachelets in use or held by thread slots.
    pub(crate) fn cachelets_used(&self) -> u64 {
        let load = |at| self.arena.load(at, Ordering::Relaxed);
        load(header::CACHELET_FRESH).saturating_sub(load(header::CACHELETS_FREE))
    }

    /// Pops the free list; its head carries a tag in the upper half against ABA.
    fn pop_free_cachelet(&self) -> Option<Cachelet> {
        let mut head = self.arena.load(header::CACHELET_FREE, Ordering::Acquire);
        loop {
            let first = Cachelet(head as u32);
            if first.0 == 0 {
                return None;
            }
            let next = self.get(first, field::NEXT) & 0xFFFF_FFFF;
            let tag = (head >> 32).wrapping_add(1) << 32;
            match self
                .arena
                .compare_exchange(header::CACHELET_FREE, head, tag | next)
            {
                Ok(_) => {
                    self.arena.fetch_add(header::CACHELETS_FREE, u64::MAX);
                    // The thread that pops the next one finds it in its cache.
                    self.prefetch_cachelet(Cachelet(next as u32));
                    return Some(first);
                }
                Err(now) => head = now,
            }
        }
    }

    /// Frees a cachelet that no operation can reach any more.
    pub(crate) fn free_cachelet(&self, cachelet: Cachelet) {
        self.set(cachelet, field::INO, 0);
        self.arena.fetch_add(header::CACHELETS_FREE, 1);
        let mut head = self.arena.load(header::CACHELET_FREE, Ordering::Acquire);
        loop {
            self.set(cachelet, field::NEXT, head & 0xFFFF_FFFF);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(cachelet.0);
            match self
                .arena
                .compare_exchange(header::CACHELET_FREE, head, new)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Ends an eviction in flight. Returns `false` if it is too late.
    fn keep_from_eviction(&self, cachelet: Cachelet) -> bool {
        let mut flags = self.get(cachelet, field::FLAGS);
        loop {
            match flags & (flag::EVICTING | flag::EVICTED) {
                0 => return true,
                flag::EVICTING => {}
                _ => return false,
            }
            let at = self.cachelet_at(cachelet, field::FLAGS);
            match self
                .arena
                .compare_exchange(at, flags, flags & !flag::EVICTING)
            {
                Ok(_) => return true,
                Err(now) => flags = now,
            }
        }
    }

    /// Returns the cachelet that an `nv_pointer` points to, if the pointer is of this opening.
    fn nv_pointer(&self, word: u64) -> Option<Cachelet> {
        let cachelet = word & ((1 << POINTER_BITS) - 1);
        let fresh = word >> POINTER_BITS == u64::from(self.pool_epoch);
        (fresh && cachelet != 0 && cachelet < self.map.cachelet_count)
            .then_some(Cachelet(cachelet as u32))
    }

    /// Returns the `nv_pointer` word that points to `cachelet` in this opening.
    pub(crate) fn nv_pointer_to(&self, cachelet: Cachelet) -> u64 {
        u64::from(cachelet.0) | u64::from(self.pool_epoch) << POINTER_BITS
    }

    /// Finds or creates the cachelet of a live inode.
    pub(crate) fn load_cachelet(&self, op: &Op<'_, M>, ino: u64) -> Result<Cachelet> {
        let inode_at = self.slot_at(ino)?;
        if !self.is_inode_slot(ino) {
            return Err(Error::Stale);
        }
        loop {
            let stale = self.word(inode_at + Inode::CACHELET);
            if let Some(found) = self.nv_pointer(stale)
                && self.ino(found) == ino
                && self.keep_from_eviction(found)
            {
                return Ok(found);
            }
            let made = self.fill_cachelet(op, ino, inode_at)?;
            let word = self.nv_pointer_to(made);
            match self
                .pool
                .compare_exchange(inode_at + Inode::CACHELET, stale, word)
            {
                Ok(_) => {
                    self.raise_flag(made, flag::KNOWN);
                    return Ok(made);
                }
                Err(_) => self.free_cachelet(made),
            }
        }
    }

    /// Whether a cachelet, which the caller may have found long ago, is that of the named file, as
    /// [`Self::load_cachelet`] would find it. Also `false` if that is uncertain.
    #[inline]
    pub(crate) fn is_cachelet_of(&self, told: Cachelet, named: &Named) -> bool {
        let is_it = |identity: IdentityWord| {
            identity.generation() == named.generation && identity.kind() == named.target.kind()
        };
        self.is_known_for(told, named.target.ino()) && is_it(self.identity(told))
    }

    /// The same for the file that has this inode now.
    ///
    /// The flags are read first. A known cachelet belongs to no other file before this operation
    /// ends, unless its flags said before that it is evicted or that its file has no name: both are
    /// followed by a grace period.
    #[inline]
    pub(crate) fn is_known_for(&self, told: Cachelet, ino: u64) -> bool {
        const GOING: u64 = flag::UNLINKED | flag::EVICTING | flag::EVICTED;
        u64::from(told.0) < self.map.cachelet_count
            && self.get(told, field::FLAGS) & (flag::KNOWN | GOING) == flag::KNOWN
            && self.ino(told) == ino
    }

    /// Prefetches a cachelet.
    pub(crate) fn prefetch_cachelet(&self, cachelet: Cachelet) {
        let at = self.cachelet_at(cachelet, 0);
        for line in (at..at + CACHELET_BYTES).step_by(LINE_BYTES as usize) {
            self.arena.prefetch(line);
        }
    }

    fn fill_cachelet(&self, op: &Op<'_, M>, ino: u64, inode_at: u64) -> Result<Cachelet> {
        let mut inode = Inode::default();
        self.pool
            .read(inode_at, zerocopy::IntoBytes::as_mut_bytes(&mut inode));
        if IdentityWord(inode.identity).state() == Some(InodeState::Free) {
            return Err(Error::Stale);
        }
        check_inode(ino, &inode, &self.geometry)?;
        let made = self.take_cachelet(op)?;
        self.set(made, field::IDENTITY, inode.identity);
        self.set(made, field::OWNER, inode.owner);
        let is_dir = IdentityWord(inode.identity).kind() == Some(FileKind::Directory);
        // A directory that was found has a name and itself, whatever a damaged inode says. With no
        // links it would look like one that is being removed, and a stat would wait for the end of
        // the removal. Its index counts the links.
        let least = if is_dir { 2 } else { 0 };
        let links = u64::from(LinksWord(inode.links).links()).max(least);
        self.set(made, field::LINKS, links);
        if is_dir {
            // Higher than the generations of all earlier cachelets of the directory: they began
            // with an earlier epoch, and each compaction waits for several.
            self.set(made, field::DEAD, self.epoch() << 32);
        } else {
            self.set(made, field::SIZE, inode.size);
        }
        let times = Times {
            mtime: inode.mtime,
            ctime: inode.ctime,
        };
        self.begin_times(made, self.kind(made), times);
        self.set(made, field::ATIME, inode.atime as u64);
        self.set(made, field::ROOT, inode.root);
        if inode.pattern == Inode::CONTINUOUS {
            self.raise_flag(made, flag::CONTINUOUS);
        }
        self.set(made, field::INO, ino);
        Ok(made)
    }

    fn lock_at(&self, cachelet: Cachelet) -> u64 {
        let field = match self.kind(cachelet) {
            FileKind::Directory => field::DIR_LOCK,
            _ => field::LOCK,
        };
        self.cachelet_at(cachelet, field)
    }

    /// Locks a cachelet that no other operation can reach yet.
    pub(crate) fn lock_made(&self, op: &Op<'_, M>, cachelet: Cachelet) {
        let at = self.lock_at(cachelet);
        self.arena.store(at, op.holder(), Ordering::Release);
    }

    /// Unlocks it once others can reach it.
    pub(crate) fn unlock_made(&self, cachelet: Cachelet) {
        self.arena
            .store(self.lock_at(cachelet), 0, Ordering::Release);
    }

    /// Locks a file's writers (or a directory's log growth) out. Waits for the holder.
    pub(crate) fn lock<'a>(&'a self, op: &Op<'_, M>, cachelet: Cachelet) -> LockGuard<'a, M> {
        let at = self.lock_at(cachelet);
        let mut tries = 0;
        while self.arena.compare_exchange(at, 0, op.holder()).is_err() {
            pause(&self.arena, &mut tries);
        }
        LockGuard { core: self, at }
    }
}

/// Checks an inode in use by itself. Fields of later releases are damage to this release.
pub(crate) fn check_inode(ino: u64, inode: &Inode, geometry: &Geometry) -> Result<()> {
    let damaged = |what| Err(Error::damaged(what, Location::Inode(ino)));
    if !inode.is_sound(ino) {
        return damaged("inode unsound");
    }
    let identity = IdentityWord(inode.identity);
    let detail = match identity.kind() {
        Some(FileKind::Symlink) => 0,
        Some(FileKind::File) if geometry.mapping.has_trees() => 0,
        Some(FileKind::Directory) if geometry.namespace == NamespaceKind::Adaptive => {
            u64::from(!DirLocation(inode.detail).is_sound())
        }
        // The tail of the log is checked where it is used.
        Some(FileKind::Directory) if geometry.namespace == NamespaceKind::Tree => 0,
        _ => inode.detail,
    };
    let reserved = [
        inode.acl_root,
        detail,
        LinksWord(inode.links).flags().into(),
    ];
    if reserved != [0; 3] {
        return damaged("inode with a field of a later release");
    }
    if !identity.has_sound_flags() {
        return damaged("flags that a file of this kind cannot have");
    }
    if inode.xattr_root == 0 && inode.identity & IdentityWord::XATTR_FLAGS != 0 {
        return damaged("flags of extended attributes that the inode does not have");
    }
    if !inode.has_sound_pattern(
        identity.kind().unwrap_or(FileKind::File),
        geometry.namespace,
    ) {
        return damaged("access pattern");
    }
    if identity.kind() != Some(FileKind::File) {
        return Ok(());
    }
    if inode.size > SIZE_MAX_BYTES {
        return damaged("size of a file");
    }
    let root = MapRoot(inode.root);
    // A tree's root is in the inode that the id names, which must be the file's own.
    let is_own = !geometry.mapping.has_trees() || root.get() == Some((0, MapRoot::id_of(ino)));
    if root.0 != 0 && !(root.is_sound() && is_own) {
        return damaged("mapping root");
    }
    Ok(())
}

/// Holds a cachelet's lock until dropped.
pub(crate) struct LockGuard<'a, M: Memories> {
    core: &'a Core<M>,
    at: u64,
}

impl<M: Memories> Drop for LockGuard<'_, M> {
    fn drop(&mut self) {
        self.core.arena.store(self.at, 0, Ordering::Release);
    }
}
