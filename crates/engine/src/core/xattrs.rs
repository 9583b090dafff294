//! Sets of extended attributes: reading, writing and freeing them. A set is never changed in place
//! ([0017](../../../../docs/decisions/0017-a-set-of-extended-attributes-is-replaced-whole.md)).

use std::sync::atomic::Ordering;

use vellum_layout::{
    ChunkKind, Inode, SLOT_BYTES, SLOTS_PER_BLOCK, XATTR_SET_MAX, Xattr, XattrHead, XattrSpace,
    read_xattrs, xattr_flags, xattr_home,
};
use vellum_media::{Memories, Memory, Persistent, Site};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::core::alloc::{SPARE_BLOCKS, Take};
use crate::core::cachelet::Cachelet;
use crate::core::slots::Op;
use crate::error::{Error, Location, Result};

/// A set, and where it lies. Without attributes everything is empty.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct XattrSet {
    /// The records ([`read_xattrs`]).
    pub(crate) bytes: Vec<u8>,
    /// First slot and number of slots of each piece.
    pub(crate) pieces: Vec<(u64, u64)>,
}

impl XattrSet {
    /// The slot of the first piece, or 0.
    pub(crate) fn root(&self) -> u64 {
        self.pieces.first().map_or(0, |&(slot, _)| slot)
    }

    /// The records of the same attributes, but with this value of one of them; `None` removes it.
    ///
    /// # Errors
    /// [`Error::AttributesFull`].
    pub(crate) fn with(
        &self,
        (space, name): (XattrSpace, &[u8]),
        value: Option<&[u8]>,
    ) -> Result<Vec<u8>> {
        let mut xattrs = read_xattrs(&self.bytes).unwrap_or_default();
        xattrs.retain(|xattr| xattr.key() != (space, name));
        if let Some(value) = value {
            let at = xattrs.partition_point(|xattr| xattr.key() < (space, name));
            xattrs.insert(at, Xattr { space, name, value });
        }
        let mut bytes = Vec::new();
        xattrs.iter().for_each(|xattr| xattr.push_to(&mut bytes));
        if !bytes.is_empty() && read_xattrs(&bytes).is_none() {
            return Err(Error::AttributesFull);
        }
        Ok(bytes)
    }

    /// The flags of the inode that has this set.
    pub(crate) fn flags(&self) -> u64 {
        read_xattrs(&self.bytes).map_or(0, |xattrs| xattr_flags(&xattrs))
    }
}

impl<M: Memories> Core<M> {
    /// The extended attributes of a file in use. Takes no lock, if it can do without.
    pub(crate) fn xattrs(&self, op: &Op<'_, M>, file: Cachelet) -> Result<XattrSet> {
        loop {
            let root = self.xattr_root(file);
            let found = self.xattrs_unlocked(file, root);
            match found {
                Some(found) if self.xattr_root(file) == root => return Ok(found),
                // Another thread has replaced it meanwhile.
                _ if self.xattr_root(file) != root => {}
                _ => break,
            }
        }
        let _lock = self.lock(op, file);
        self.xattrs_locked(file)
    }

    /// The same for the holder of the file's lock, and for files that nobody changes.
    pub(crate) fn xattrs_locked(&self, file: Cachelet) -> Result<XattrSet> {
        match self.xattr_root(file) {
            0 => Ok(XattrSet::default()),
            root => self.xattrs_at(self.ino(file), self.identity(file).generation(), root),
        }
    }

    fn xattr_root(&self, file: Cachelet) -> u64 {
        let at = self.inode_at(file) + Inode::XATTR_ROOT;
        self.pool.load(at, Ordering::Acquire)
    }

    /// The set at `root`, if it is sound and one piece. Its slots may be free by now. One checksum
    /// covers all that is read, so nothing is mixed with what was written there meanwhile.
    fn xattrs_unlocked(&self, file: Cachelet, root: u64) -> Option<XattrSet> {
        let is_one = root == 0 || self.kind_of_slot(root) == Some(ChunkKind::Entries);
        let generation = self.identity(file).generation();
        let read = is_one.then(|| self.xattrs_at(self.ino(file), generation, root));
        read.and_then(Result::ok)
    }

    /// The set at `root` of the inode `ino`, which is in use.
    ///
    /// # Errors
    /// Damaged media.
    pub(crate) fn xattrs_at(&self, ino: u64, generation: u32, root: u64) -> Result<XattrSet> {
        let damaged = || Error::damaged("extended attributes", Location::Inode(ino));
        let mut set = XattrSet::default();
        if root == 0 {
            return Ok(set);
        }
        let kind = self.kind_of_slot(root).ok_or_else(damaged)?;
        let mut next = root;
        while next != 0 {
            let (head, records) = self.xattr_piece(next, kind).ok_or_else(damaged)?;
            if head.checksum != head.expected_checksum(ino, generation, &records) {
                return Err(damaged());
            }
            set.bytes.extend_from_slice(&records);
            let slots = match kind {
                ChunkKind::Entries => xattr_home(records.len()).1,
                _ => SLOTS_PER_BLOCK,
            };
            if set.bytes.len() > XATTR_SET_MAX {
                return Err(damaged());
            }
            set.pieces.push((next, slots));
            next = head.next;
        }
        let is_at_home = xattr_home(set.bytes.len()).0 == kind;
        let is_sound = is_at_home && read_xattrs(&set.bytes).is_some();
        is_sound.then_some(set).ok_or_else(damaged)
    }

    /// Head and records of the piece at `slot`, if it can lie there, in one chunk of `kind`.
    fn xattr_piece(&self, slot: u64, kind: ChunkKind) -> Option<(XattrHead, Vec<u8>)> {
        let at = self.slot_at(slot).ok()?;
        let mut head = XattrHead::default();
        self.pool.read(at, head.as_mut_bytes());
        let bytes = size_of::<XattrHead>() as u64 + u64::from(head.len);
        let last = slot + (bytes - 1) / SLOT_BYTES;
        let per_chunk = self.geometry.slots_per_chunk();
        let is_inside = slot / per_chunk == last / per_chunk;
        let is_aligned = kind != ChunkKind::Blocks || slot.is_multiple_of(SLOTS_PER_BLOCK);
        let is_placed = is_inside && is_aligned && self.kind_of_slot(slot) == Some(kind);
        if !is_placed || !head.fits(kind) {
            return None;
        }
        let mut records = vec![0; head.len.into()];
        self.pool
            .read(at + size_of::<XattrHead>() as u64, &mut records);
        Some((head, records))
    }

    /// Frees the slots of a set to which nothing durable leads.
    pub(crate) fn free_xattrs(&self, set: &XattrSet) {
        for &(slot, count) in &set.pieces {
            self.free_slots(slot, count);
        }
    }
}

impl<M: Memories> Op<'_, M> {
    /// Writes the set with these records, which are sound, for the inode `ino`. Past the cache, not
    /// fenced.
    pub(crate) fn write_xattrs(
        &self,
        site: Site,
        (ino, generation): (u64, u32),
        bytes: Vec<u8>,
        take: Take,
    ) -> Result<XattrSet> {
        let (home, slots) = xattr_home(bytes.len());
        let mut set = XattrSet {
            bytes,
            pieces: Vec::new(),
        };
        let count = match home {
            ChunkKind::Entries => 1,
            _ => set.bytes.len().div_ceil(XattrHead::BLOCK_MAX),
        };
        for _ in 0..count {
            let taken = match (home, take) {
                (ChunkKind::Entries, _) => self.alloc_of(home, slots, take),
                (_, Take::Kept) => self.alloc_any_block(),
                (_, Take::Common) => self.alloc_block(SPARE_BLOCKS + self.core.blocks_for_logs()),
            };
            match taken {
                Ok(slot) => set.pieces.push((slot, slots)),
                Err(error) => {
                    self.core.free_xattrs(&set);
                    return Err(error);
                }
            }
        }
        let followers = set.pieces.iter().skip(1).map(|&(slot, _)| slot).chain([0]);
        let parts = set.bytes.chunks(XattrHead::BLOCK_MAX);
        for ((&(slot, _), part), next) in set.pieces.iter().zip(parts).zip(followers) {
            let piece = XattrHead::piece(ino, generation, next, part);
            let at = self.core.geometry.slot_at(slot);
            self.core.pool.write_through(site, at, &piece);
        }
        // Nothing may lead to a set that the medium did not take.
        self.check_media()
            .inspect_err(|_| self.core.free_xattrs(&set))?;
        Ok(set)
    }
}
