//! The data segments of a pool: the location of the words of their blocks.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use vellum_layout::{ChunkKind, ChunkWord, TablePlan, table_parts};
use vellum_media::{Memories, Memory};

use crate::core::{Core, header};
use crate::error::{Error, Location, Result};

impl<M: Memories> Core<M> {
    /// Returns the location of the words of the block table, for a mapping that has one. A reader
    /// can do without words that have no chunk: their blocks belong to no file.
    ///
    /// # Errors
    /// Fails if an added segment lacks some of its words.
    pub(crate) fn table_plan(&self) -> Result<TablePlan> {
        let plan = TablePlan::of(&self.geometry, |at| self.word(at));
        if plan.missing().is_empty() {
            return Ok(plan);
        }
        let is_free = |chunk: &u64| {
            let word = ChunkWord(self.word(self.geometry.chunk_word_at(*chunk)));
            word.decode(*chunk) == Some((ChunkKind::Free, 0)) && self.is_zero(*chunk)
        };
        match (0..self.geometry.meta_chunks).find(is_free) {
            Some(chunk) if self.read_only => {
                self.arena.store(header::TABLE_LOST, 1, Ordering::Relaxed);
                let zeros = self.geometry.chunk_at(chunk);
                Ok(plan.with_zeros_at(zeros))
            }
            _ => {
                let place = Location::Offset(self.geometry.chunk_table_at);
                Err(Error::damaged("table of an added segment", place))
            }
        }
    }

    /// Returns the parts of segment `segment`'s words that have a chunk.
    pub(crate) fn table_parts(&self, segment: u32) -> BTreeSet<u64> {
        let all = table_parts(&self.geometry, |at| self.word(at));
        let its = all.filter(|((of, _), _)| *of == segment);
        its.map(|((_, part), _)| part).collect()
    }
}
