//! A page cache of nodes, as file systems for disks have one: the study's object of comparison.
//!
//! Copies of nodes lie in the arena. The hash of a node's number chooses a *set* of eight frames,
//! and the node may be in any of them. Readers compare the eight tags of a set, which share a cache
//! line, read the frame without a lock, and check the tag again: it changes whenever the frame is
//! refilled. A frame is filled under the lock of its set; a clock algorithm, which gives used
//! frames a second chance, chooses the frame. A writer changes the node in the pool first and then,
//! under the lock, in its frame if it has one, so a concurrent fill misses no change.

use std::sync::atomic::Ordering;

use vellum_layout::{BLOCK_BYTES, Geometry, SLOTS_PER_BLOCK, mix};
use vellum_media::{LINE_BYTES, Memories, Memory};

use super::pages::Pages;
use crate::core::Core;
use crate::core::slots::{Op, pause};
use crate::error::Result;
use crate::mapping::nodes::Nodes;

/// Frames of a set; their tags share a cache line.
const WAYS: u64 = 8;
/// Maximum number of sets: 64 MiB of frames.
const SETS_MAX: u64 = 2048;
/// Bytes of a set: its tags, and a line with lock and clock.
const SET_BYTES: u64 = 2 * LINE_BYTES;
/// Offset in a set of its lock: 0, or the slot that holds it.
const LOCK: u64 = LINE_BYTES;
/// Offset in a set of the frame that the clock checks next.
const HAND: u64 = LINE_BYTES + 8;
/// Offset in a set of the bits of frames used since the clock passed them.
const USED: u64 = LINE_BYTES + 16;
/// The bits of a tag with the node's number plus one (0: the frame is empty). The bits above count
/// how often the frame was filled.
const NODE: u64 = u32::MAX as u64;

/// Frames for some of a pool's nodes.
#[derive(Debug)]
pub(crate) struct PageCache {
    sets_at: u64,
    sets: u64,
    frames_at: u64,
    /// A line for each thread slot: its numbers of cache hits and misses.
    tallies_at: u64,
    end: u64,
}

/// A frame that held a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// Arena offset of the copy.
    at: u64,
    /// Arena offset of the tag.
    tag_at: u64,
    tag: u64,
}

impl PageCache {
    fn set_of(&self, node: u32) -> u64 {
        self.sets_at + mix(node.into()) % self.sets * SET_BYTES
    }

    fn frame_at(&self, set_at: u64, way: u64) -> u64 {
        let set = (set_at - self.sets_at) / SET_BYTES;
        self.frames_at + (set * WAYS + way) * BLOCK_BYTES
    }

    /// Finds the frame of a set that holds a node.
    fn find<A: Memory>(&self, arena: &A, set_at: u64, node: u32) -> Option<(u64, Frame)> {
        let hits = arena.match_line(set_at, NODE, u64::from(node) + 1);
        if hits == 0 {
            return None;
        }
        let way = u64::from(hits.trailing_zeros());
        let tag_at = set_at + way * 8;
        let tag = arena.load(tag_at, Ordering::Acquire);
        let at = self.frame_at(set_at, way);
        (tag & NODE == u64::from(node) + 1).then_some((way, Frame { at, tag_at, tag }))
    }

    fn lock<'a, M: Memories>(&self, op: &Op<'a, M>, set_at: u64) -> SetLock<'a, M> {
        let (core, at) = (op.core, set_at + LOCK);
        let mut tries = 0;
        while core.arena.compare_exchange(at, 0, op.holder()).is_err() {
            pause(&core.arena, &mut tries);
        }
        SetLock { core, at }
    }

    /// Marks a frame as used, unless it is already marked.
    fn touch<A: Memory>(&self, arena: &A, set_at: u64, way: u64) {
        let (at, bit) = (set_at + USED, 1 << way);
        if arena.load(at, Ordering::Relaxed) & bit == 0 {
            arena.fetch_or(at, bit);
        }
    }

    /// Chooses the frame to evict: the first not used since the clock passed it. The caller holds
    /// the lock.
    fn victim<A: Memory>(&self, arena: &A, set_at: u64) -> u64 {
        let mut way = arena.load(set_at + HAND, Ordering::Relaxed) % WAYS;
        for _ in 0..WAYS {
            let bit = 1 << way;
            if arena.fetch_and(set_at + USED, !bit) & bit == 0 {
                break;
            }
            way = (way + 1) % WAYS;
        }
        arena.store(set_at + HAND, (way + 1) % WAYS, Ordering::Relaxed);
        way
    }

    /// Copies a node into a frame. The caller holds the lock.
    fn fill<M: Memories>(
        &self,
        op: &Op<'_, M>,
        set_at: u64,
        node: u32,
        node_at: u64,
    ) -> Result<Frame> {
        let arena = &op.core.arena;
        let way = self.victim(arena, set_at);
        let tag_at = set_at + way * 8;
        let filled = (arena.load(tag_at, Ordering::Relaxed) | NODE) + 1;
        arena.store(tag_at, filled, Ordering::Relaxed);
        // A reader that finds a word of the new node also finds the tag changed.
        arena.barrier();
        let at = self.frame_at(set_at, way);
        for offset in (0..BLOCK_BYTES).step_by(8) {
            arena.store(
                at + offset,
                op.core.word(node_at + offset),
                Ordering::Relaxed,
            );
        }
        // Zeros in place of lost bytes must not enter the cache.
        op.check_media()?;
        let tag = filled | (u64::from(node) + 1);
        arena.store(tag_at, tag, Ordering::Release);
        Ok(Frame { at, tag_at, tag })
    }

    fn count<M: Memories>(&self, op: &Op<'_, M>, field: u64) {
        let at = self.tallies_at + u64::from(op.slot) * LINE_BYTES + field;
        let count = op.core.arena.load(at, Ordering::Relaxed);
        op.core.arena.store(at, count + 1, Ordering::Relaxed);
    }

    /// The numbers of cache hits and misses.
    #[cfg(test)]
    pub(super) fn tallies<M: Memories>(&self, core: &Core<M>) -> (u64, u64) {
        let sum = |field| {
            (0..u64::from(core.geometry.thread_slots))
                .map(|slot| self.tallies_at + slot * LINE_BYTES + field)
                .map(|at| core.arena.load(at, Ordering::Relaxed))
                .sum()
        };
        (sum(HITS), sum(MISSES))
    }
}

const HITS: u64 = 0;
const MISSES: u64 = 8;

impl Pages for PageCache {
    type Page = Frame;

    /// The cache has frames for an eighth of the metadata blocks, at most 64 MiB.
    fn new(arena_at: u64, geometry: &Geometry) -> Self {
        let nodes = geometry.region_slots() / SLOTS_PER_BLOCK;
        let sets = (nodes / 8 / WAYS).clamp(1, SETS_MAX);
        let frames_at = (arena_at + sets * SET_BYTES).next_multiple_of(BLOCK_BYTES);
        let tallies_at = frames_at + sets * WAYS * BLOCK_BYTES;
        Self {
            sets_at: arena_at,
            sets,
            frames_at,
            tallies_at,
            end: tallies_at + u64::from(geometry.thread_slots) * LINE_BYTES,
        }
    }

    fn end(&self) -> u64 {
        self.end
    }

    fn open<M: Memories>(&self, op: &Op<'_, M>, nodes: &Nodes, node: u32) -> Result<Frame> {
        let arena = &op.core.arena;
        let set_at = self.set_of(node);
        if let Some((way, frame)) = self.find(arena, set_at, node) {
            self.count(op, HITS);
            self.touch(arena, set_at, way);
            return Ok(frame);
        }
        let node_at = nodes.at(op.core, node)?;
        let _lock = self.lock(op, set_at);
        if let Some((_, frame)) = self.find(arena, set_at, node) {
            return Ok(frame);
        }
        self.count(op, MISSES);
        self.fill(op, set_at, node, node_at)
    }

    #[inline]
    fn word<M: Memories>(&self, core: &Core<M>, page: Frame, offset: u64) -> u64 {
        core.arena.load(page.at + offset, Ordering::Acquire)
    }

    #[inline]
    fn holds<M: Memories>(&self, core: &Core<M>, page: Frame) -> bool {
        core.arena.load_barrier();
        core.arena.load(page.tag_at, Ordering::Relaxed) == page.tag
    }

    fn stored<M: Memories>(&self, op: &Op<'_, M>, node: u32, offset: u64, value: u64) {
        let arena = &op.core.arena;
        let set_at = self.set_of(node);
        let _lock = self.lock(op, set_at);
        if let Some((_, frame)) = self.find(arena, set_at, node) {
            arena.store(frame.at + offset, value, Ordering::Release);
        }
    }

    fn forget<M: Memories>(&self, op: &Op<'_, M>, node: u32) {
        let arena = &op.core.arena;
        let set_at = self.set_of(node);
        let _lock = self.lock(op, set_at);
        if let Some((_, frame)) = self.find(arena, set_at, node) {
            arena.store(frame.tag_at, frame.tag & !NODE, Ordering::Release);
        }
    }

    fn forget_all<M: Memories>(&self, op: &Op<'_, M>) {
        let arena = &op.core.arena;
        for set_at in (0..self.sets).map(|set| self.sets_at + set * SET_BYTES) {
            let _lock = self.lock(op, set_at);
            for tag_at in (0..WAYS).map(|way| set_at + way * 8) {
                let tag = arena.load(tag_at, Ordering::Relaxed);
                arena.store(tag_at, tag & !NODE, Ordering::Release);
            }
        }
    }
}

/// Frees the set when dropped.
struct SetLock<'a, M: Memories> {
    core: &'a Core<M>,
    at: u64,
}

impl<M: Memories> Drop for SetLock<'_, M> {
    fn drop(&mut self) {
        self.core.arena.store(self.at, 0, Ordering::Release);
    }
}
