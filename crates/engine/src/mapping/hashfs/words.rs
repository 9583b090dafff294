//! Where the words of added segments lie.

use std::sync::OnceLock;

use vellum_layout::TablePlan;

/// The places of the words, as this process knows them. They only become more: what is known once
/// stays, so a search takes no lock.
#[derive(Debug, Default)]
pub(super) struct AddedWords {
    known: TablePlan,
    /// All places after the pool grew once more.
    more: OnceLock<Box<AddedWords>>,
}

impl AddedWords {
    pub(super) fn at(known: TablePlan) -> Self {
        Self {
            known,
            more: OnceLock::new(),
        }
    }

    /// Pool offset of the word of a block.
    pub(super) fn word_at(&self, block: u64) -> Option<u64> {
        let at = self.known.word_at(block);
        at.or_else(|| self.more.get()?.word_at(block))
    }

    /// Adds the places of a pool that has grown.
    pub(super) fn add(&self, known: TablePlan) {
        let mut last = self;
        while let Some(more) = last.more.get() {
            last = more;
        }
        let _only_one_grows = last.more.set(Box::new(Self::at(known)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_layout::{ChunkWord, Geometry, GeometryRequest};

    #[test]
    fn words_of_a_pool_that_grew_twice_are_found() {
        let geometry = Geometry::plan(&GeometryRequest {
            pool_bytes: 4 << 20,
            ..Default::default()
        });
        let geometry = geometry.unwrap();
        let chunks = |at: u64| {
            let chunk = (at - geometry.chunk_table_at) / 8;
            let part = chunk.checked_sub(2).filter(|part| *part < 3);
            part.map_or(0, |part| ChunkWord::of_table(chunk, 1, part).0)
        };
        let once = geometry.grown(5 << 20).unwrap();
        let words = AddedWords::at(TablePlan::of(&once, chunks));
        assert_eq!(words.word_at(once.blocks()), None);
        let twice = once.grown(8 << 20).unwrap();
        words.add(TablePlan::of(&twice, chunks));
        let chunk_words = geometry.chunk_bytes / 8;
        for block in geometry.segment_blocks..twice.blocks() {
            let added = block - geometry.segment_blocks;
            let chunk_at = geometry.meta_at + (2 + added / chunk_words) * geometry.chunk_bytes;
            assert_eq!(
                words.word_at(block),
                Some(chunk_at + added % chunk_words * 8)
            );
        }
        assert_eq!(words.word_at(twice.blocks()), None);
    }
}
