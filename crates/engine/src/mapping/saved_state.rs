//! Writing and reading what a clean close saves of a mapping (`vellum_layout::SavedStatePlan` has
//! the format): the part that is the same for all mappings.
//!
//! The saved state is valid only under the state word of the close that saved it. The head names
//! that epoch, and opening makes the state word dirty, durably, before anything can change. So no
//! saved state outlives the mapping that it describes.

use vellum_layout::{SavedStateHead, SavedStatePlan, Summing};
use vellum_media::{Memories, Memory, Persistent};
use zerocopy::IntoBytes;

use super::bitmap::FreeBitmap;
use crate::core::Core;
use crate::sites;

/// Words moved at once.
const PART_WORDS: usize = 512;

/// Writes words one after the other, past the cache, and sums them.
pub(super) struct Writer<'a, M: Memories> {
    core: &'a Core<M>,
    head_at: u64,
    at: u64,
    part: Vec<u64>,
    sum: Summing,
}

impl<'a, M: Memories> Writer<'a, M> {
    /// Starts a writer and writes the free bitmap.
    pub(super) fn new(core: &'a Core<M>, plan: &SavedStatePlan, free: &FreeBitmap) -> Self {
        let mut new = Self {
            core,
            head_at: plan.at,
            at: plan.free_at(),
            part: Vec::with_capacity(PART_WORDS),
            sum: Summing::default(),
        };
        for index in 0..plan.free_words() {
            new.push(free.word(&core.arena, index * 64));
        }
        new
    }

    pub(super) fn push(&mut self, word: u64) {
        self.part.push(word);
        if self.part.len() == PART_WORDS {
            self.put();
        }
    }

    fn put(&mut self) {
        let bytes = self.part.as_bytes();
        self.core
            .pool
            .write_through(sites::CLOSE_AIDS, self.at, bytes);
        self.sum.add_words(&self.part);
        self.at += self.part.len() as u64 * 8;
        self.part.clear();
    }

    /// Writes the remaining words and the head. All are durable at the next fence.
    pub(super) fn finish(mut self, used: u64, displaced: u64) {
        self.put();
        let head = SavedStateHead::new(self.core.pool_epoch, used, displaced, self.sum.finish());
        self.core
            .pool
            .write_through(sites::CLOSE_AIDS_HEAD, self.head_at, head.as_bytes());
    }
}

/// Passes `count` words of the pool from `at` on to `each`, in parts.
pub(super) fn for_parts<M: Memories>(
    core: &Core<M>,
    at: u64,
    count: u64,
    mut each: impl FnMut(&[u64]),
) {
    let mut part = vec![0u64; (PART_WORDS as u64).min(count) as usize];
    let mut done = 0;
    while done < count {
        let words = (part.len() as u64).min(count - done) as usize;
        core.pool.read(at + done * 8, part[..words].as_mut_bytes());
        each(&part[..words]);
        done += words as u64;
    }
}

/// Reads the head of the saved state. `None` unless all of the state is sound, belongs to the last
/// close, and has at least as many free blocks in its bitmap as the head says.
pub(super) fn read_head<M: Memories>(
    core: &Core<M>,
    plan: &SavedStatePlan,
) -> Option<SavedStateHead> {
    let mut head = SavedStateHead::default();
    core.pool.read(plan.at, head.as_mut_bytes());
    let displaced_max = if plan.lines == 0 { 0 } else { head.used };
    let bounded = head.used <= plan.blocks && head.displaced <= displaced_max;
    if !bounded || !head.is_sound(core.pool_epoch.wrapping_sub(1) & 0xFF_FFFF) {
        return None;
    }
    let mut sum = Summing::default();
    let words = plan.body_words(head.displaced);
    for_parts(core, plan.free_at(), words, |part| sum.add_words(part));
    let mut free = 0;
    for_parts(core, plan.free_at(), plan.free_words(), |part| {
        let ones = part.iter().map(|word| u64::from(word.count_ones()));
        free += ones.sum::<u64>();
    });
    let enough = free >= plan.blocks - head.used;
    (enough && sum.finish() == head.body_check).then_some(head)
}

/// Fills the bitmap, which is zero, from the saved state. The caller rebuilds its summaries.
pub(super) fn fill_bitmap<M: Memories>(core: &Core<M>, plan: &SavedStatePlan, free: &FreeBitmap) {
    let mut block = 0;
    for_parts(core, plan.free_at(), plan.free_words(), |part| {
        for &word in part {
            free.fill(&core.arena, block, word);
            block += 64;
        }
    });
}
