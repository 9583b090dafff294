//! The data segments of a pool: where the words of their blocks lie.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use vellum_layout::{ChunkKind, ChunkWord, TablePlan, table_parts};
use vellum_media::{Memories, Memory};

use crate::core::{Core, header};
use crate::error::{Error, Location, Result};

impl<M: Memories> Core<M> {
    /// Where the words of the table of blocks lie, of a mapping that has one. Whoever only reads
    /// does without those that no chunk has: their blocks are nobody's to him.
    ///
    /// # Errors
    /// An added segment lacks some of its words.
    pub(crate) fn table_plan(&self) -> Result<TablePlan> {
        let plan = TablePlan::of(&self.geometry, |at| self.word(at));
        if plan.missing().is_empty() {
            return Ok(plan);
        }
        let is_free = |chunk: &u64| {
            let word = ChunkWord(self.word(self.geometry.chunk_table_at + chunk * 8));
            word.decode(*chunk) == Some((ChunkKind::Free, 0)) && self.is_zero(*chunk)
        };
        match (0..self.geometry.meta_chunks).find(is_free) {
            Some(chunk) if self.read_only => {
                self.arena.store(header::TABLE_LOST, 1, Ordering::Relaxed);
                let zeros = self.geometry.meta_at + chunk * self.geometry.chunk_bytes;
                Ok(plan.with_zeros_at(zeros))
            }
            _ => {
                let place = Location::Offset(self.geometry.chunk_table_at);
                Err(Error::damaged("table of an added segment", place))
            }
        }
    }

    /// The parts of the words of added segment `segment` that have a chunk.
    pub(crate) fn table_parts(&self, segment: u32) -> BTreeSet<u64> {
        let all = table_parts(&self.geometry, |at| self.word(at));
        let its = all.filter(|((of, _), _)| *of == segment);
        its.map(|((_, part), _)| part).collect()
    }
}
