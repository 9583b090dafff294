//! Chunks in data space: free data blocks that became metadata, and become data again when all
//! slots of the chunk are free.
//!
//! Only a chunk's word says that its blocks are metadata. The zeros of a chunk are durable with its
//! word: what a power cut leaves of them instead is nobody's, and recovery frees it. The word is
//! free again, durably, before a file gets the blocks.

use std::ops::Range;
use std::sync::atomic::Ordering;

use vellum_layout::{BLOCK_BYTES, ChunkKind, ChunkWord, FileKind, IdentityWord, InodeState};
use vellum_media::{Memories, Memory, Persistent};

use super::{ALL, GROUP, TAKING};
use crate::core::{Core, header};
use crate::sites;

/// Arena mark of a chunk whose blocks are data.
const DATA: u64 = 0xFE;

/// One part in so many of a kind's slots stays free: otherwise chunks would come and go.
const SPARE_PART: u64 = 4;

/// The kinds of chunks that become data again.
const RETURNED: [ChunkKind; 4] = [
    ChunkKind::Inodes,
    ChunkKind::Entries,
    ChunkKind::Blocks,
    ChunkKind::Areas,
];

impl<M: Memories> Core<M> {
    /// The chunks of data space whose blocks are data.
    pub(crate) fn data_chunks(&self) -> impl DoubleEndedIterator<Item = u64> {
        let chunks = self.geometry.chunks_of_data();
        chunks.filter(|&chunk| self.chunk_mark(chunk) == DATA)
    }

    /// The chunks of data space whose blocks are metadata.
    pub(crate) fn chunks_in_data(&self) -> impl Iterator<Item = u64> {
        let chunks = match self.count_in_data() {
            0 => 0..0,
            _ => self.geometry.chunks_of_data(),
        };
        chunks.filter(|&chunk| !matches!(self.chunk_mark(chunk), DATA | TAKING))
    }

    fn count_in_data(&self) -> u64 {
        self.arena.load(header::CHUNKS_IN_DATA, Ordering::Relaxed)
    }

    /// Data blocks that are metadata.
    pub(crate) fn blocks_in_data(&self) -> u64 {
        self.count_in_data() * (self.geometry.chunk_bytes / BLOCK_BYTES)
    }

    /// Metadata slots of all chunks that are not data.
    pub(super) fn slots_there(&self) -> u64 {
        (self.geometry.meta_chunks + self.count_in_data()) * self.geometry.slots_per_chunk()
    }

    /// The words of the live map that a clean close saves.
    pub(crate) fn live_words(&self) -> Vec<Range<u64>> {
        self.geometry.live_words(self.chunks_in_data())
    }

    fn chunk_mark(&self, chunk: u64) -> u64 {
        self.arena.load(self.chunk_cell(chunk), Ordering::Acquire)
    }

    /// Records when a pool is opened that the blocks of a chunk are data.
    pub(super) fn note_data(&self, chunk: u64) {
        self.arena
            .store(self.chunk_cell(chunk), DATA, Ordering::Release);
    }

    /// Records that the blocks of one more chunk are metadata.
    pub(super) fn note_in_data(&self) {
        self.arena.fetch_add(header::CHUNKS_IN_DATA, 1);
    }

    /// Makes a chunk, whose blocks the caller has allocated, a free one. The caller holds the lease
    /// of background work.
    pub(crate) fn adopt_chunk(&self, chunk: u64) {
        let (at, bytes) = (self.geometry.chunk_at(chunk), self.geometry.chunk_bytes);
        self.pool.zero_through(sites::CHUNK_ZERO, at, bytes);
        self.note_in_data();
        self.arena.fetch_add(header::FREE_SLOTS, 1);
        self.arena.store(
            self.chunk_cell(chunk),
            ChunkKind::Free as u64,
            Ordering::Release,
        );
    }

    /// Gives the inodes of a chunk that gets inodes again higher generations than those which lay
    /// there before. Durable with the chunk's word.
    pub(super) fn begin_generations(&self, chunk: u64) {
        let generation = self.first_generation(chunk);
        if generation == 0 {
            return;
        }
        let dead = IdentityWord::new(InodeState::Free, FileKind::File, 0, generation);
        for slot in self.slots_of(chunk) {
            let at = self.geometry.slot_at(slot);
            self.pool.store_through(sites::CHUNK_GENERATION, at, dead.0);
        }
    }

    /// The generation with which inodes begin in a chunk.
    pub(super) fn first_generation(&self, chunk: u64) -> u32 {
        let word = ChunkWord(self.word(self.geometry.chunk_word_at(chunk)));
        word.generation(chunk)
    }

    /// The generation for inodes that lie in a chunk after those that lie there now.
    fn later_generation(&self, chunk: u64) -> u32 {
        let generations = self
            .slots_of(chunk)
            .map(|slot| self.identity_on_pool(slot).generation());
        generations.max().unwrap_or(0).wrapping_add(256)
    }

    /// Takes chunks of data space that nothing uses out of use, durably: with `all` every one, else
    /// those of a kind that has more free slots than a part of all. Until the caller has waited
    /// for readers and calls [`Self::return_chunk`], their blocks are nobody's. The caller holds
    /// the lease of background work.
    pub(crate) fn give_up_chunks(&self, all: bool) -> Vec<u64> {
        let slots = self.geometry.slots_per_chunk();
        let mut chunks = self.chunks_in_data().peekable();
        if chunks.peek().is_none() {
            return Vec::new();
        }
        let spare = |kind| match all {
            true => 0,
            false => self.chunks_of(kind).count() as u64 * slots / SPARE_PART,
        };
        let least = RETURNED.map(|kind| (kind, slots + spare(kind)));
        let is_given_up = |&chunk: &u64| {
            let is_its = |(kind, _): &&(ChunkKind, u64)| self.is_chunk_of(chunk, *kind);
            match least.iter().find(is_its) {
                Some(&(kind, least)) => {
                    self.free_slots_of(kind) >= least && self.empty_chunk(chunk, kind)
                }
                None => all && self.take_free(chunk),
            }
        };
        let given_up: Vec<u64> = chunks.filter(is_given_up).collect();
        if !given_up.is_empty() {
            self.pool.fence(sites::CHUNK_FREE_DURABLE);
        }
        given_up
    }

    /// Takes a free chunk. Returns whether it was one.
    fn take_free(&self, chunk: u64) -> bool {
        let (cell, free) = (self.chunk_cell(chunk), ChunkKind::Free as u64);
        let is_taken = self.arena.compare_exchange(cell, free, TAKING).is_ok();
        if is_taken {
            self.arena.fetch_add(header::FREE_SLOTS, u64::MAX);
        }
        is_taken
    }

    /// Claims all slots of a chunk of `kind`, and stores that the chunk is free. Flushed, not
    /// fenced. Returns whether no slot was in use.
    fn empty_chunk(&self, chunk: u64, kind: ChunkKind) -> bool {
        let groups = self.groups_of(chunk);
        let mut claimed = 0;
        for group in groups.clone() {
            let maps = self.maps_in(group, kind);
            if !self.claim_unused(group, maps) {
                let before = groups.start..group;
                before.for_each(|group| self.unclaim(group, !self.maps_in(group, kind)));
                return false;
            }
            claimed += u64::from(maps.count_zeros());
        }
        let free_at = header::FREE_SLOTS + kind as u64 * 8;
        self.arena.fetch_add(free_at, claimed.wrapping_neg());
        self.arena
            .store(self.chunk_cell(chunk), TAKING, Ordering::Release);
        let generation = match kind {
            ChunkKind::Inodes => self.later_generation(chunk),
            _ => self.first_generation(chunk),
        };
        let word = ChunkWord::in_data(chunk, ChunkKind::Free, generation);
        let at = self.geometry.chunk_word_at(chunk);
        self.set_word(at, word.0);
        self.pool.flush(sites::CHUNK_FREE, at, 8);
        true
    }

    fn groups_of(&self, chunk: u64) -> Range<u64> {
        let slots = self.geometry.slots_of_chunk(chunk);
        slots.start / GROUP..slots.end / GROUP
    }

    /// The slots of a group with heads and maps of extents, which count as used.
    fn maps_in(&self, group: u64, kind: ChunkKind) -> u32 {
        let areas = self.geometry.areas;
        let is_map = |bit: &u64| (group * GROUP + bit) % areas.slots() < areas.first();
        match kind {
            ChunkKind::Areas => (0..GROUP)
                .filter(is_map)
                .fold(0, |maps, bit| maps | 1 << bit),
            _ => 0,
        }
    }

    /// Claims all slots of a group but these, unless one of them is in use.
    fn claim_unused(&self, group: u64, but: u32) -> bool {
        let (at, shift) = (self.used_cell(group * GROUP), group % 2 * GROUP);
        let mut word = self.arena.load(at, Ordering::Relaxed);
        while (word >> shift) as u32 == but {
            let claimed = word | u64::from(ALL) << shift;
            match self.arena.compare_exchange(at, word, claimed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Clears the marks of these slots of a group.
    fn unclaim(&self, group: u64, slots: u32) {
        let mask = u64::from(slots) << (group % 2 * GROUP);
        self.arena.fetch_and(self.used_cell(group * GROUP), !mask);
    }

    /// Ends the use of a chunk that was given up. The caller makes its blocks free.
    pub(crate) fn return_chunk(&self, chunk: u64) {
        self.groups_of(chunk)
            .for_each(|group| self.unclaim(group, ALL));
        self.arena.fetch_add(header::CHUNKS_IN_DATA, u64::MAX);
        self.note_data(chunk);
    }
}
