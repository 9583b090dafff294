//! The interface of an index of names: (directory, name) to (entry, file), with a *pair* for each
//! name.
//!
//! A pair holds the state of its name: unreadable while it is being created, *deleting* and
//! *renaming* while that is being made durable. Each index decides where pairs lie and what a
//! lookup costs. [`super::buckets`] is the index in DRAM.

use vellum_layout::{FileKind, mix};
use vellum_media::Memories;

use super::{Entries, Name};
use crate::core::Core;
use crate::core::cachelet::Cachelet;
use crate::core::slots::Op;
use crate::error::Result;

/// The key of a name, which determines its home bucket and a tag of 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    pub(crate) fn new(parent: u64, name_hash: u32) -> Self {
        Self(mix(parent << 32 ^ u64::from(name_hash)))
    }

    /// 24 bits of the key.
    pub(crate) fn tag(self) -> u64 {
        self.0 >> 40
    }
}

/// Word 0 of a pair: the entry's slot in bits 0..40, the key's tag in 40..64. 0: empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryWord(pub(crate) u64);

impl EntryWord {
    /// Position of the tag.
    pub(crate) const TAG_SHIFT: u32 = 40;

    pub(crate) fn new(key: Key, entry: u64) -> Self {
        Self(key.tag() << Self::TAG_SHIFT | entry)
    }

    /// The word of the same name with another entry.
    pub(crate) fn with_entry(self, entry: u64) -> Self {
        Self(self.tag() << Self::TAG_SHIFT | entry)
    }

    /// The tag of the name's key.
    pub(crate) fn tag(self) -> u64 {
        self.0 >> Self::TAG_SHIFT
    }

    /// Metadata slot of the entry.
    pub(crate) fn entry(self) -> u64 {
        self.0 & ((1 << 40) - 1)
    }
}

/// Word 1 of a pair: inode or cachelet (bits 0..40), which of the two it is, flags, kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueWord(pub(crate) u64);

impl ValueWord {
    const CACHELET: u64 = 1 << 40;
    /// The name exists for lookups (Algorithm 1, line 15).
    pub(crate) const READABLE: u64 = 1 << 41;
    /// Being removed.
    pub(crate) const DELETING: u64 = 1 << 42;
    /// Being renamed, exchanged or replaced.
    pub(crate) const RENAMING: u64 = 1 << 43;
    /// All of these.
    pub(crate) const FLAGS: u64 = Self::READABLE | Self::DELETING | Self::RENAMING;

    /// A readable name of an inode that has no cachelet yet.
    pub(crate) fn of_inode(ino: u64, kind: FileKind) -> Self {
        Self(ino | Self::READABLE | (kind as u64) << 56)
    }

    /// A name whose inode has a cachelet; not readable.
    pub(crate) fn of_cachelet(cachelet: Cachelet, kind: FileKind) -> Self {
        Self(u64::from(cachelet.0) | Self::CACHELET | (kind as u64) << 56)
    }

    /// The value of a name whose inode may have this cachelet; not readable.
    pub(crate) fn told(cachelet: Cachelet) -> Self {
        Self(u64::from(cachelet.0) | Self::CACHELET)
    }

    /// The cachelet, or the inode number.
    pub(crate) fn target(self) -> std::result::Result<Cachelet, u64> {
        let low = self.0 & (Self::CACHELET - 1);
        if self.0 & Self::CACHELET != 0 {
            Ok(Cachelet(low as u32))
        } else {
            Err(low)
        }
    }

    pub(crate) fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// Whether the name exists and no operation is changing it.
    pub(crate) fn is_settled(self) -> bool {
        self.0 & (Self::READABLE | Self::DELETING | Self::RENAMING) == Self::READABLE
    }

    pub(crate) fn with(self, flag: u64) -> Self {
        Self(self.0 | flag)
    }

    pub(crate) fn without(self, flag: u64) -> Self {
        Self(self.0 & !flag)
    }
}

/// A pair as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    /// Its offset, as the index defines it.
    pub(crate) at: u64,
    pub(crate) entry: EntryWord,
    pub(crate) value: ValueWord,
}

/// An index of names.
pub(crate) trait Index<M: Memories>: Sized {
    /// References that a pair holds on the cachelet of its file.
    const NAME_REFS: u64;

    /// What a lookup without a result knows that helps an insertion.
    type Absence: Copy;

    /// Prefetches what finding a name loads first.
    fn prefetch(core: &Core<M>, dir: Cachelet, name: Name<'_>);

    /// Finds the pair of a name, in any state.
    fn find<S: Entries<M>>(core: &Core<M>, dir: Cachelet, name: Name<'_>) -> Option<Pair>;

    /// As [`Self::find`], for a caller that inserts the name if it is absent.
    ///
    /// # Errors
    /// The knowledge of its absence.
    fn look<S: Entries<M>>(
        core: &Core<M>,
        dir: Cachelet,
        name: Name<'_>,
    ) -> std::result::Result<Pair, Self::Absence>;

    /// Inserts a pair for a name that does not exist yet. `absence`: it did not exist, in this
    /// operation.
    ///
    /// # Errors
    /// `Ok(Err(pair))`: the name exists already.
    fn insert<S: Entries<M>>(
        op: &Op<'_, M>,
        dir: Cachelet,
        name: Name<'_>,
        absence: Option<Self::Absence>,
        entry: u64,
        value: ValueWord,
    ) -> Result<std::result::Result<Pair, Pair>>;

    /// Loads a pair again. `None` if it belongs to another name now.
    fn reload(core: &Core<M>, pair: Pair) -> Option<Pair>;

    /// As [`Self::reload`]; also `None` if the pair no longer leads to `cachelet`, which
    /// [`Self::cachelet`] returned.
    fn reload_of(core: &Core<M>, pair: Pair, cachelet: Cachelet) -> Option<Pair>;

    /// The cachelet of a pair's file, loaded at the first access. `None`: the pair has changed;
    /// look it up again.
    fn cachelet(op: &Op<'_, M>, pair: Pair) -> Result<Option<Cachelet>>;

    /// Replaces the flags of a pair, if it has not changed since it was found.
    fn update(core: &Core<M>, pair: Pair, value: ValueWord) -> Option<Pair>;

    /// Makes lookups wait for a pair, before any later store of this thread is visible. The pair is
    /// protected by the caller's flag, or because it is new and not readable.
    fn hold(core: &Core<M>, pair: Pair);

    /// Stores another entry of the same name in a pair that the caller's flag protects. `value`
    /// still has the flag, because without it the pair could be reused before the entry is stored.
    fn set(core: &Core<M>, pair: Pair, entry: u64, value: ValueWord);

    /// Stores another value in a pair that the caller's flag protects, by a single store, which
    /// ends the protection.
    fn release(core: &Core<M>, pair: Pair, value: ValueWord);

    /// Removes a pair that the caller's flag protects.
    fn remove(op: &Op<'_, M>, pair: Pair);

    /// See [`crate::namespace::Namespace::cachelets_kept`].
    fn cachelets_kept(core: &Core<M>) -> u64 {
        core.map.cachelet_count
    }

    /// Whether the index has pairs that [`super::forget`] would remove.
    fn is_to_forget(core: &Core<M>) -> bool;

    /// Whether [`super::forget`] would remove this pair.
    fn is_forgotten(pair: Pair) -> bool;
}
