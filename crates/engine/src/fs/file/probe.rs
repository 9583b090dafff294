//! A file's mapping by itself, for experiments: the lookups and changes that reading and writing
//! make, without the bytes.

use std::ops::Range;

use vellum_layout::{BLOCK_BYTES, ChunkKind, SLOT_BYTES, SLOTS_PER_BLOCK};
use vellum_media::{Memories, Memory, Real};

use super::read::LOOKUP_BLOCKS;
use super::translation::Seen;
use super::write::{CLAIM_END, LIMBO};
use super::{Files, Root, Stop, Translation};
use crate::core::Core;
use crate::core::cachelet::{Cachelet, LockGuard, field};
use crate::core::lease;
use crate::core::slots::{Op, field as slot_field};
use crate::error::{Error, Result};
use crate::fs::{Fs, Handle};
use crate::mapping::{BlockNo, Found, MapId};

/// Limit of the blocks of one claim.
const CLAIM_BLOCKS: usize = 256;

/// A file's mapping within one operation, which lasts until [`Self::renew`] or until this is
/// dropped. So the time to begin and end operations is not measured. Blocks and tree nodes that are
/// freed meanwhile become usable only after the operation, and their freeing is durable by then.
///
/// Blocks that [`Self::insert`] adds to a file hold their former bytes. Use it only on pools that
/// an experiment created for itself.
pub struct MappingProbe<'a, M: Memories> {
    files: Files<'a, M>,
    beside_size: BesideSize<'a, M>,
    op: Op<'a, M>,
    cachelet: Cachelet,
    translation: Translation,
    found: Vec<Found>,
}

/// The words beside the size of a file, where a tree begins. An append makes them durable with the
/// size. Here they become durable when this is dropped, before the operation ends. Afterwards the
/// nodes and blocks that the old words led to are free.
struct BesideSize<'a, M: Memories> {
    files: Files<'a, M>,
    cachelet: Cachelet,
    is_changed: bool,
}

impl<M: Memories> Drop for BesideSize<'_, M> {
    fn drop(&mut self) {
        if self.is_changed {
            self.files.make_root_durable(self.cachelet);
        }
    }
}

impl<'a, M: Memories> BesideSize<'a, M> {
    fn new(files: Files<'a, M>, cachelet: Cachelet) -> Self {
        Self {
            files,
            cachelet,
            is_changed: false,
        }
    }
}

impl<M: Memories> std::fmt::Debug for MappingProbe<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MappingProbe").finish_non_exhaustive()
    }
}

impl<'a, M: Memories> MappingProbe<'a, M> {
    /// Begins an operation on a regular file that is open for reading and writing.
    ///
    /// # Errors
    /// Fails if it is not a regular file, or not open for both.
    pub fn new(handle: &'a Handle<M>) -> Result<Self> {
        handle.check_read()?;
        handle.check_write()?;
        let (files, cachelet) = (handle.node().fs().files(), handle.node().cachelet);
        Ok(Self {
            files,
            op: files.core.op_to_change()?,
            beside_size: BesideSize::new(files, cachelet),
            cachelet,
            translation: Translation::new(true),
            found: Vec::new(),
        })
    }

    /// Ends the operation and begins another. Translations stay.
    ///
    /// # Errors
    /// Fails if nothing may be changed any more.
    pub fn renew(self) -> Result<Self> {
        let Self {
            files,
            beside_size,
            op,
            cachelet,
            ..
        } = self;
        drop(beside_size);
        drop(op);
        Ok(Self {
            op: files.core.op_to_change()?,
            beside_size: BesideSize::new(files, cachelet),
            ..self
        })
    }

    fn id(&self) -> Option<MapId> {
        Some(self.root())
            .filter(|root| root.old != 0)
            .map(|root| root.id)
    }

    fn root(&self) -> Root {
        self.files.root(self.cachelet)
    }

    /// Looks blocks up as a read does, by this handle's translations where they are known. Returns
    /// how many of them exist.
    ///
    /// # Errors
    /// Fails if the mapping is damaged.
    pub fn lookup(&mut self, first: u64, blocks: usize) -> Result<usize> {
        let version = self.files.core.get(self.cachelet, field::VERSION);
        self.each_request(first, blocks, |probe, id, first, found| {
            let file = Seen {
                cachelet: probe.cachelet,
                translation: &probe.translation,
                version,
            };
            probe.files.find(&probe.op, id, file, first, found)
        })
    }

    /// Looks blocks up in the mapping, without translations. Returns how many of them exist.
    ///
    /// # Errors
    /// Fails if the mapping is damaged.
    pub fn search(&mut self, first: u64, blocks: usize) -> Result<usize> {
        self.each_request(first, blocks, |probe, id, first, found| {
            probe
                .files
                .mapping
                .lookup(&probe.op, id, first as u32, found)
        })
    }

    fn each_request(
        &mut self,
        first: u64,
        blocks: usize,
        ask: impl Fn(&Self, MapId, u64, &mut [Found]) -> Result<()>,
    ) -> Result<usize> {
        let Some(id) = self.id() else { return Ok(0) };
        let mut found = std::mem::take(&mut self.found);
        found.resize(blocks.min(LOOKUP_BLOCKS), Found::Hole);
        let (mut at, mut count) = (0, 0);
        while at < blocks {
            let found = &mut found[..LOOKUP_BLOCKS.min(blocks - at)];
            ask(self, id, first + at as u64, found)?;
            count += found.iter().filter(|found| **found != Found::Hole).count();
            at += found.len();
        }
        self.found = found;
        Ok(count)
    }

    /// Gives blocks to holes of the file, as an append does before it stores the size, but anywhere
    /// within the size. Long ranges are processed in pieces, as they are when written. The blocks
    /// are durable on return; the words beside the size when the operation ends.
    ///
    /// # Errors
    /// Fails if the range reaches beyond the size or is being viewed, there is no space, or the
    /// mapping is damaged. Earlier pieces keep their blocks then.
    pub fn insert(&mut self, first: u64, blocks: usize) -> Result<()> {
        let end = first + blocks as u64;
        if end > self.files.size(self.cachelet) / BLOCK_BYTES {
            return Err(Error::Invalid("a range beyond the end of file"));
        }
        let _lock = self.lock_unlent(first..end)?;
        self.beside_size.is_changed = true;
        (first..end)
            .step_by(CLAIM_BLOCKS)
            .try_for_each(|first| self.insert_piece(first, (end - first).min(CLAIM_BLOCKS as u64)))
    }

    /// Locks the file to change blocks. Fails if any of them is lent, because waiting inside an
    /// operation is not allowed.
    fn lock_unlent(&self, blocks: Range<u64>) -> Result<LockGuard<'a, M>> {
        let core = self.files.core;
        let bytes = blocks.start * BLOCK_BYTES..blocks.end.saturating_mul(BLOCK_BYTES);
        let lock = core.lock(&self.op, self.cachelet);
        if lease::is_lent(core, self.cachelet, &bytes) {
            return Err(Error::Busy);
        }
        Ok(lock)
    }

    fn insert_piece(&self, first: u64, blocks: u64) -> Result<()> {
        let (files, op) = (self.files, &self.op);
        let root = self.root();
        files
            .mapping
            .prefetch_claim(files.core, root.id, first as u32);
        let mut room = match files.reserve(op, self.cachelet, blocks) {
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::Short(_)) => return Err(Error::NoSpace(Error::DATA_BLOCKS)),
            Ok(room) => room,
        };
        files.announce(self.cachelet, root, first + blocks);
        files.raise_blocks(self.cachelet, root, blocks);
        let mut out = [BlockNo(0); CLAIM_BLOCKS];
        let (out, logical) = (&mut out[..blocks as usize], first as u32);
        let done = files
            .mapping
            .claim(op, root.id, logical, CLAIM_END, &mut room, out);
        files.lower_blocks(self.cachelet, room.blocks);
        files.mapping.unreserve(op, room);
        if done.is_err() {
            // From the end, so that each block is the last of those claimed, which needs no space
            // to remove.
            for block in (first..first + blocks).rev() {
                files.give_up_durably(LIMBO, op, self.cachelet, root.id, block, block + 1)?;
            }
        }
        files.fence_claimed();
        done
    }

    /// Removes blocks from the file, as durable as after [`Self::insert`]. Returns their number.
    ///
    /// # Errors
    /// Fails if the range is being viewed, the mapping is damaged, or a removal finds no space that
    /// it needs.
    pub fn remove(&mut self, first: u64, end: u64) -> Result<u64> {
        let Some(id) = self.id() else { return Ok(0) };
        let _lock = self.lock_unlent(first..end)?;
        self.beside_size.is_changed = true;
        let before = self.files.blocks_bound(self.cachelet);
        self.files
            .punch_blocks(&self.op, self.cachelet, id, first, end)?;
        self.files.fence_claimed();
        Ok(before - self.files.blocks_bound(self.cachelet))
    }

    /// Forgets what is cached beside the mapping: translations, the cursor, copies of nodes.
    pub fn forget(&mut self) {
        self.translation = Translation::new(true);
        self.op.set_own(slot_field::CURSOR_KEY, 0);
        self.files.mapping.forget_copies(&self.op);
    }

    /// Drops the mapping's data in pool and arena, and the file's inode, from the processor's
    /// caches. The cachelet's words that every caller looks at first are loaded again.
    pub fn evict(&self) {
        let core = self.files.core;
        evict_structure(core);
        core.pool.evict(core.inode_at(self.cachelet), SLOT_BYTES);
        for field in [field::VERSION, field::SIZE, field::ROOT, field::LOCK] {
            core.get(self.cachelet, field);
        }
    }
}

/// Drops the mapping's data from the processor's caches: the table, blocks of metadata, and the
/// arena's part with the map of metadata slots.
fn evict_structure<M: Memories>(core: &Core<M>) {
    let (geometry, map) = (&core.geometry, &core.map);
    let table_bytes = geometry.saved_state_at - geometry.table_at;
    core.pool.evict(geometry.table_at, table_bytes);
    for chunk in core.chunks_of(ChunkKind::Blocks) {
        let blocks = geometry
            .slots_of_chunk(chunk)
            .step_by(SLOTS_PER_BLOCK as usize);
        for slot in blocks.filter(|&slot| core.is_used(slot)) {
            core.pool.evict(geometry.slot_at(slot), BLOCK_BYTES);
        }
    }
    core.arena.evict(map.used, map.chunks - map.used);
    core.arena.evict(map.mapping, map.bytes - map.mapping);
}

/// Moves all of a pool except the data to large pages, if it lies in memory and the kernel has such
/// pages. Returns the share that was moved.
pub fn gather_metadata(fs: &Fs<Real>) -> f64 {
    let bytes = fs.core.geometry.data_at;
    fs.core.pool.gather_large_pages(bytes) as f64 / bytes as f64
}

/// Frees blocks that are no longer in use. The caller has no [`MappingProbe`].
pub fn settle<M: Memories>(fs: &Fs<M>) {
    if fs.core.check_use().is_ok() {
        // If the pool is closed meanwhile, closing frees them.
        let _ = fs.files().reclaim_unseen();
    }
}
