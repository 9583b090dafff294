//! The allocator of metadata slots. Which slots are in use is known to the arena only; on the pool
//! it follows from what the logs reach. One bit for each slot means *in use, or held by a thread
//! slot*.
//!
//! A thread slot claims a *group* (32 slots, one block) at a time, and serves its operations from
//! the mask that it holds, so creation shares no line with other threads. A free chunk gets a kind
//! when slots of that kind run low.

mod in_data;
mod room;

use std::ops::Range;
use std::sync::atomic::Ordering;

use vellum_layout::{ChunkKind, ChunkWord, SLOT_BYTES, SLOTS_PER_BLOCK};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent, Transactions};

use crate::core::slots::{Op, field, pause};
use crate::core::{Core, header};
use crate::error::{Error, Result};
use crate::sites;

/// Slots in a group.
const GROUP: u64 = SLOTS_PER_BLOCK;
const ALL: u32 = u32::MAX;
/// Blocks that stay free for compacting logs.
pub(crate) const SPARE_BLOCKS: u64 = 2;
/// This many free chunks are allocated only when a kind has no slot left: inodes, entries and
/// blocks may each run low.
const LAST_CHUNKS: u64 = 3;
/// Slots for entries that creations leave to renames over existing names, if chunks are larger than
/// a group.
const KEPT_ENTRIES: u64 = 16;
/// Slots by which prefetching is ahead of allocation.
const AHEAD: u64 = 3;
/// Arena mark of a chunk whose table word is being made durable.
pub(crate) const TAKING: u64 = 0xFF;

/// Which slots an allocation may use.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Take {
    /// All but the reserved ones.
    #[default]
    Common,
    /// Also the reserved ones: the new entry replaces another.
    Kept,
}

impl<M: Memories> Core<M> {
    pub(crate) fn chunk_cell(&self, chunk: u64) -> u64 {
        self.map.chunks + chunk * 8
    }

    /// The kind of chunk that has `slot`.
    pub(crate) fn kind_of_slot(&self, slot: u64) -> Option<ChunkKind> {
        if slot == 0 || slot >= self.geometry.meta_slots() {
            return None;
        }
        let chunk = slot / self.geometry.slots_per_chunk();
        match self.arena.load(self.chunk_cell(chunk), Ordering::Acquire) {
            1 => Some(ChunkKind::Inodes),
            2 => Some(ChunkKind::Entries),
            3 => Some(ChunkKind::Blocks),
            4 => Some(ChunkKind::Areas),
            5 => Some(ChunkKind::Table),
            _ => None,
        }
    }

    /// Whether `ino` can be an inode's number.
    pub(crate) fn is_inode_slot(&self, ino: u64) -> bool {
        self.kind_of_slot(ino) == Some(ChunkKind::Inodes)
    }

    /// The chunks of a kind.
    pub(crate) fn chunks_of(&self, kind: ChunkKind) -> impl Iterator<Item = u64> {
        let chunks = self.geometry.chunks();
        chunks.filter(move |&chunk| self.is_chunk_of(chunk, kind))
    }

    /// The slots of a chunk. There is no slot 0.
    fn slots_of(&self, chunk: u64) -> Range<u64> {
        let slots = self.geometry.slots_of_chunk(chunk);
        slots.start.max(1)..slots.end
    }

    /// The slots of all chunks of inodes.
    pub(crate) fn inode_slots(&self) -> impl Iterator<Item = u64> {
        self.chunks_of(ChunkKind::Inodes)
            .flat_map(|chunk| self.slots_of(chunk))
    }

    /// Records a chunk's kind when a pool is opened.
    pub(crate) fn note_chunk_found(&self, chunk: u64, kind: ChunkKind) {
        match (self.geometry.chunks_of_data().contains(&chunk), kind) {
            (true, ChunkKind::Free) => self.note_data(chunk),
            (true, _) => {
                self.note_in_data();
                self.note_chunk(chunk, kind);
            }
            (false, _) => self.note_chunk(chunk, kind),
        }
    }

    /// Makes a chunk one of this kind.
    fn note_chunk(&self, chunk: u64, kind: ChunkKind) {
        let slots = self.geometry.slots_per_chunk();
        let count = match kind {
            ChunkKind::Free => 1,
            ChunkKind::Areas => slots - self.note_maps(chunk),
            ChunkKind::Table => 0,
            _ => slots,
        };
        // Counted first: threads that see the kind claim slots.
        self.arena
            .fetch_add(header::FREE_SLOTS + kind as u64 * 8, count);
        self.arena
            .store(self.chunk_cell(chunk), kind as u64, Ordering::Release);
    }

    /// Marks the heads and state-maps of an areas chunk as used, before any slot there is claimed.
    /// Returns how many slots they take.
    fn note_maps(&self, chunk: u64) -> u64 {
        let areas = self.geometry.areas;
        let slots = self.geometry.slots_of_chunk(chunk);
        let maps = slots.filter(|slot| slot % areas.slots() < areas.first());
        maps.inspect(|slot| {
            let bit = 1 << (slot % 64);
            self.arena.fetch_or(self.used_cell(*slot), bit);
        })
        .count() as u64
    }

    /// Marks slots as used when a pool is opened. Returns whether all of them were free.
    pub(crate) fn note_used(&self, slot: u64, count: u64) -> bool {
        let mut all_free = true;
        for slot in slot..slot + count {
            let bit = 1 << (slot % 64);
            all_free &= self.arena.fetch_or(self.used_cell(slot), bit) & bit == 0;
        }
        // Slot 0 holds nothing, but counts in its chunk.
        if let Some(kind) = self.kind_of_slot(slot.max(1)) {
            let at = header::FREE_SLOTS + kind as u64 * 8;
            self.arena.fetch_add(at, count.wrapping_neg());
        }
        all_free
    }

    /// Whether a slot is in use, or held by a thread slot.
    pub(crate) fn is_used(&self, slot: u64) -> bool {
        self.arena.load(self.used_cell(slot), Ordering::Relaxed) >> (slot % 64) & 1 == 1
    }

    fn used_cell(&self, slot: u64) -> u64 {
        self.map.used + slot / 64 * 8
    }

    /// Free slots in chunks of a kind.
    pub(crate) fn free_slots_of(&self, kind: ChunkKind) -> u64 {
        let at = header::FREE_SLOTS + kind as u64 * 8;
        // Slots may be claimed, and subtracted, before they are added as free, so the sum may be
        // negative.
        let count = self.arena.load(at, Ordering::Relaxed) as i64;
        count.max(0) as u64
    }

    /// Frees `count` slots from `slot` on. No operation may reach them any more.
    pub(crate) fn free_slots(&self, slot: u64, count: u64) {
        let Some(kind) = self.kind_of_slot(slot) else {
            return;
        };
        if matches!(kind, ChunkKind::Entries | ChunkKind::Inodes) {
            let at = self.geometry.slot_at(slot);
            self.pool.freed(at, count * SLOT_BYTES);
        }
        self.return_slots(kind, slot, count);
    }

    /// Makes slots available again, or for the first time. Nothing has led to them meanwhile.
    fn return_slots(&self, kind: ChunkKind, slot: u64, count: u64) {
        // An allocation by this code is in one word of the map, but the format allows two.
        let (mut at, end) = (slot, slot + count);
        while at < end {
            let part = (end - at).min(64 - at % 64);
            let mask = (u64::MAX >> (64 - part)) << (at % 64);
            self.arena.fetch_and(self.used_cell(at), !mask);
            at += part;
        }
        self.arena
            .fetch_add(header::FREE_SLOTS + kind as u64 * 8, count);
    }

    /// Claims the free slots of a group of `kind`, or with `whole` a group that is completely free.
    fn claim_group(&self, kind: ChunkKind, whole: bool) -> Option<(u64, u32)> {
        let groups = self.geometry.meta_slots() / GROUP;
        let per_chunk = self.geometry.slots_per_chunk() / GROUP;
        let cursor_at = header::GROUP_CURSOR + kind as u64 * 8;
        let start = self.arena.load(cursor_at, Ordering::Relaxed) % groups;
        let mut seen = 0;
        while seen < groups {
            let group = (start + seen) % groups;
            if self.kind_of_slot((group * GROUP).max(1)) != Some(kind) {
                seen += per_chunk - group % per_chunk;
                continue;
            }
            if let Some(mask) = self.claim_in(group, whole) {
                self.arena.store(cursor_at, group, Ordering::Relaxed);
                let count = u64::from(mask.count_ones());
                let at = header::FREE_SLOTS + kind as u64 * 8;
                self.arena.fetch_add(at, count.wrapping_neg());
                return Some((group, mask));
            }
            seen += 1;
        }
        None
    }

    fn claim_in(&self, group: u64, whole: bool) -> Option<u32> {
        let at = self.used_cell(group * GROUP);
        let shift = group % 2 * GROUP;
        let mut word = self.arena.load(at, Ordering::Relaxed);
        loop {
            let free = !((word >> shift) as u32);
            if free == 0 || whole && free != ALL {
                return None;
            }
            match self
                .arena
                .compare_exchange(at, word, word | u64::from(free) << shift)
            {
                Ok(_) => return Some(free),
                Err(now) => word = now,
            }
        }
    }

    /// Whether the last free chunk is reserved for entries, because none exists yet. Every
    /// namespace needs one, for short texts of symbolic links.
    fn is_last_kept(&self, kind: ChunkKind) -> bool {
        kind != ChunkKind::Entries
            && self.free_slots_of(ChunkKind::Free) == 1
            && !self.has_entries_chunk()
    }

    fn has_entries_chunk(&self) -> bool {
        self.chunks_of(ChunkKind::Entries).next().is_some()
    }

    /// Whether a chunk has this kind.
    fn is_chunk_of(&self, chunk: u64, kind: ChunkKind) -> bool {
        self.arena.load(self.chunk_cell(chunk), Ordering::Relaxed) == kind as u64
    }

    fn kept_entries(&self) -> u64 {
        match self.geometry.slots_per_chunk() {
            0..=GROUP => 0,
            _ => KEPT_ENTRIES,
        }
    }

    /// Slots of a kind that are reserved for renames over existing names, so that files of a full
    /// pool can be renamed.
    fn kept(&self, kind: ChunkKind) -> u64 {
        match self.name_cost().entries_in {
            Some(entries_in) if entries_in == kind => self.kept_entries(),
            _ => 0,
        }
    }

    /// Whether a chunk of `kind` would leave the logs of directories too few blocks for the names
    /// that would then have space: names could be removed, but not created.
    fn starves_logs(&self, kind: ChunkKind) -> bool {
        let cost = self.name_cost();
        if cost.entries_in.is_none() || kind != ChunkKind::Inodes && Some(kind) != cost.entries_in {
            return false;
        }
        let new_names = if kind == ChunkKind::Inodes {
            0
        } else {
            cost.per_chunk
        };
        let chunks = self.free_slots_of(ChunkKind::Free).saturating_sub(1);
        let blocks =
            self.free_slots_of(ChunkKind::Blocks) + chunks * self.geometry.slots_per_chunk();
        blocks < GROUP * cost.log_blocks_for(self.free_entries(cost) + new_names)
    }

    /// Whether names can get at most one more chunk.
    pub(crate) fn is_short_of_chunks(&self) -> bool {
        self.free_slots_of(ChunkKind::Free) <= 1
            || self.is_refused_memory()
            || self
                .name_cost()
                .entries_in
                .is_some_and(|kind| self.starves_logs(kind))
    }

    /// Blocks that allocations for other purposes leave free: the logs need them for the names that
    /// have space.
    pub(crate) fn blocks_for_logs(&self) -> u64 {
        let cost = self.name_cost();
        cost.log_blocks_for(self.free_entries(cost))
    }

    /// Gives a free chunk a kind, durably. Returns whether there was one.
    fn take_chunk(&self, kind: ChunkKind) -> bool {
        if self.starves_logs(kind) {
            return false;
        }
        self.take_chunk_as(kind, |chunk| {
            ChunkWord::in_data(chunk, kind, self.first_generation(chunk))
        })
    }

    /// Allocates a free chunk for this part of the words of an added segment, durably. Returns
    /// whether there was one.
    pub(crate) fn take_table_chunk(&self, segment: u32, part: u64) -> bool {
        self.take_chunk_as(ChunkKind::Table, |chunk| {
            ChunkWord::of_table(chunk, segment, part)
        })
    }

    fn take_chunk_as(&self, kind: ChunkKind, word_of: impl Fn(u64) -> ChunkWord) -> bool {
        if self.is_last_kept(kind) {
            return false;
        }
        for chunk in self.geometry.chunks() {
            let cell = self.chunk_cell(chunk);
            let free = ChunkKind::Free as u64;
            if self.arena.load(cell, Ordering::Relaxed) != free
                || self.arena.compare_exchange(cell, free, TAKING).is_err()
            {
                continue;
            }
            let bytes = self.geometry.chunk_bytes;
            let begin = self.geometry.chunk_at(chunk);
            if !self.reserve_chunk(chunk) {
                // There is no memory for its image, as if there were no chunk.
                self.arena.store(cell, free, Ordering::Release);
                return false;
            }
            let has_some = match kind {
                ChunkKind::Areas => self.has_states(chunk),
                ChunkKind::Table => !self.is_zero(chunk),
                _ => false,
            };
            if has_some {
                // Its bytes were damaged while it was free, so it is not used.
                self.arena.fetch_add(header::FREE_SLOTS, u64::MAX);
                continue;
            }
            let at = self.geometry.chunk_word_at(chunk);
            if matches!(kind, ChunkKind::Entries | ChunkKind::Inodes) {
                // A free chunk is all zeros, even after a power cut that undoes this.
                self.pool.freed(begin, bytes);
            }
            if kind == ChunkKind::Inodes {
                self.begin_generations(chunk);
            }
            self.set_word(at, word_of(chunk).0);
            self.pool.flush(sites::CHUNK_WORD, at, 8);
            self.pool.fence(sites::CHUNK_WORD_DURABLE);
            self.arena.fetch_add(header::FREE_SLOTS, u64::MAX);
            self.note_chunk(chunk, kind);
            let first = chunk * self.geometry.slots_per_chunk() / GROUP;
            self.arena.store(
                header::GROUP_CURSOR + kind as u64 * 8,
                first,
                Ordering::Relaxed,
            );
            self.reserve_ahead();
            return true;
        }
        false
    }

    /// Whether all words of a chunk are zero.
    pub(crate) fn is_zero(&self, chunk: u64) -> bool {
        let begin = self.geometry.chunk_at(chunk);
        let mut words = (0..self.geometry.chunk_bytes).step_by(8);
        words.all(|at| self.word(begin + at) == 0)
    }

    /// Whether entries in a chunk would have states before they exist.
    fn has_states(&self, chunk: u64) -> bool {
        let mut groups = self.geometry.slots_of_chunk(chunk).step_by(GROUP as usize);
        groups
            .any(|slot| self.word(self.geometry.meta_at + self.geometry.areas.states_at(slot)) != 0)
    }

    /// Claims a group, from a new chunk if slots of the kind run low. The last chunks are used only
    /// if there is no slot: another kind may need them.
    fn refill(&self, kind: ChunkKind, whole: bool) -> Option<(u64, u32)> {
        let free_at = header::FREE_SLOTS + kind as u64 * 8;
        let low = self.geometry.slots_per_chunk() / 8;
        let chunks = || self.arena.load(header::FREE_SLOTS, Ordering::Relaxed);
        if self.arena.load(free_at, Ordering::Relaxed) <= low && chunks() > LAST_CHUNKS {
            self.take_chunk(kind);
        }
        loop {
            if let Some(claimed) = self.claim_group(kind, whole) {
                return Some(claimed);
            }
            if chunks() == 0 || !self.take_chunk(kind) {
                return None;
            }
        }
    }
}

impl<M: Memories> Op<'_, M> {
    /// Allocates `count` adjacent slots (1 to 9) for inodes or entries, none of them reserved.
    pub(crate) fn alloc(&self, kind: ChunkKind, count: u64) -> Result<u64> {
        self.alloc_of(kind, count, Take::Common)
    }

    /// The same with the reserved slots, if there are no others.
    pub(crate) fn alloc_of(&self, kind: ChunkKind, count: u64, take: Take) -> Result<u64> {
        let taken = self.alloc_held(kind, count, Take::Common);
        match taken {
            Err(Error::NoSpace(_)) if take == Take::Kept && self.core.kept(kind) > 0 => {
                let taken = self.alloc_held(kind, count, take);
                // Other reserved slots that were claimed with it stay reserved.
                self.drop_held(Self::cache_of(kind));
                taken
            }
            _ => taken,
        }
    }

    /// The field of a thread slot with the slots of a kind that it holds.
    fn cache_of(kind: ChunkKind) -> u64 {
        match kind {
            ChunkKind::Inodes => field::INODES,
            ChunkKind::Areas => field::PATHS,
            _ => field::ENTRIES,
        }
    }

    fn drop_held(&self, cache: u64) {
        let word = self.own(cache);
        self.return_held(word >> 32, word as u32);
        self.set_own(cache, 0);
    }

    /// Allocates slots from those that this thread slot holds, or from a group that it claims.
    fn alloc_held(&self, kind: ChunkKind, count: u64, take: Take) -> Result<u64> {
        let cache = Self::cache_of(kind);
        loop {
            let word = self.own(cache);
            let (group, mask) = (word >> 32, word as u32);
            if let Some(first) = find_run(mask, count) {
                let taken = ((1u64 << count) - 1) << first;
                self.set_own(cache, word & !taken);
                let slot = group * GROUP + u64::from(first);
                self.prefetch_slot(slot + AHEAD);
                if kind == ChunkKind::Entries {
                    let at = self.core.geometry.slot_at(slot);
                    self.core.pool.allocated(at, count * SLOT_BYTES);
                }
                return Ok(slot);
            }
            self.drop_held(cache);
            let Some((group, mask)) = self.refill(kind, take).or_else(|| self.steal(cache)) else {
                return Err(self.core.no_slot(kind));
            };
            self.set_own(cache, group << 32 | u64::from(mask));
            if find_run(mask, count).is_none() {
                self.alloc_elsewhere(kind, count, take)?;
            }
        }
    }

    /// Claims a group, or as much of it as leaves the reserved slots.
    fn refill(&self, kind: ChunkKind, take: Take) -> Option<(u64, u32)> {
        let core = self.core;
        loop {
            let (group, mask) = core.refill(kind, false)?;
            let kept = match take {
                Take::Common => core.kept(kind),
                Take::Kept => 0,
            };
            // Concurrent claims subtract before they look, so the last one sees all of them.
            let mut lacking = kept.saturating_sub(core.free_slots_of(kind));
            let (mut left, mut back) = (mask, 0);
            while lacking > 0 && left != 0 {
                let highest = 1 << left.ilog2();
                left &= !highest;
                back |= highest;
                lacking -= 1;
            }
            self.return_held(group, back);
            if left != 0 {
                return Some((group, left));
            }
            if !core.take_chunk(kind) {
                return None;
            }
        }
    }

    /// Prefetches the lines that will be written when this slot is allocated.
    fn prefetch_slot(&self, slot: u64) {
        let at = self.core.geometry.slot_at(slot);
        self.core.pool.prefetch(at);
        self.core.pool.prefetch(at + LINE_BYTES);
    }

    /// Looks for a run in other groups, because the group just claimed is too fragmented. The
    /// region bounds the search.
    fn alloc_elsewhere(&self, kind: ChunkKind, count: u64, take: Take) -> Result<()> {
        let cache = Self::cache_of(kind);
        let mut held = Vec::new();
        let found = loop {
            let word = self.own(cache);
            if find_run(word as u32, count).is_some() {
                break Ok(());
            }
            held.push(word);
            let Some((group, mask)) = self.refill(kind, take) else {
                self.set_own(cache, 0);
                break Err(Error::NoSpace(
                    "metadata region too fragmented for a long name",
                ));
            };
            self.set_own(cache, group << 32 | u64::from(mask));
        };
        for word in held {
            self.return_held(word >> 32, word as u32);
        }
        found
    }

    /// Returns the slots of a group that a thread slot held and did not use.
    fn return_held(&self, group: u64, mask: u32) {
        let is_held = |bit: &u64| mask >> bit & 1 == 1;
        for bit in (0..GROUP).filter(is_held) {
            let slot = group * GROUP + bit;
            if let Some(kind) = self.core.kind_of_slot(slot) {
                self.core.return_slots(kind, slot, 1);
            }
        }
    }

    /// Takes the slots that an idle thread slot holds, if the region has no others.
    fn steal(&self, cache: u64) -> Option<(u64, u32)> {
        for slot in self.core.slots_used().filter(|&slot| slot != self.slot) {
            if let Some(other) = self.core.enter_idle(slot) {
                let word = other.own(cache);
                if word as u32 != 0 {
                    other.set_own(cache, 0);
                    return Some((word >> 32, word as u32));
                }
            }
        }
        None
    }

    /// Allocates a metadata block (32 slots), if `spare` more stay free. Returns its first slot.
    /// Compacting logs frees blocks, but first needs some.
    pub(crate) fn alloc_block(&self, spare: u64) -> Result<u64> {
        let slot = self.alloc_any_block()?;
        let free_at = header::FREE_SLOTS + ChunkKind::Blocks as u64 * 8;
        while self.core.arena.load(free_at, Ordering::Relaxed) < spare * GROUP {
            if !self.core.take_chunk(ChunkKind::Blocks) {
                self.core.free_slots(slot, GROUP);
                return Err(self.core.no_slot(ChunkKind::Blocks));
            }
        }
        Ok(slot)
    }

    /// Allocates a metadata block, even the last one.
    pub(crate) fn alloc_any_block(&self) -> Result<u64> {
        let (group, _) = self
            .core
            .refill(ChunkKind::Blocks, true)
            .ok_or_else(|| self.core.no_slot(ChunkKind::Blocks))?;
        Ok(group * GROUP)
    }
}

impl<M: Memories> Core<M> {
    /// Returns all slots that thread slots hold, before a clean close saves the map. Operations
    /// that read go on beside a close; this waits for them to leave their thread slots for a
    /// moment.
    pub(crate) fn return_all_held(&self) {
        let mut tries = 0;
        for slot in self.slots_used() {
            let op = loop {
                match self.enter_idle(slot) {
                    Some(op) => break op,
                    None => pause(&self.arena, &mut tries),
                }
            };
            for cache in [field::INODES, field::ENTRIES, field::PATHS] {
                let word = op.own(cache);
                op.return_held(word >> 32, word as u32);
                op.set_own(cache, 0);
            }
        }
    }
}

/// The lowest position of `count` adjacent set bits.
fn find_run(mask: u32, count: u64) -> Option<u32> {
    let mut runs = mask;
    for shift in 1..count as u32 {
        runs &= mask >> shift;
    }
    (runs != 0).then(|| runs.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::find_run;

    #[test]
    fn runs_are_found_at_the_lowest_position() {
        assert_eq!(find_run(0b1011_0100, 1), Some(2));
        assert_eq!(find_run(0b1011_0100, 2), Some(4));
        assert_eq!(find_run(0b1011_0100, 3), None);
        assert_eq!(find_run(1 << 31, 2), None);
        assert_eq!(find_run(0, 1), None);
    }
}
