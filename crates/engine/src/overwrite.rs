//! Bytes that a killed process left in the caches.
//!
//! Metadata that may be in the caches only is little, and a scan of the pool finds all of it. Data
//! is much. So whoever is to change bytes that readers can find notes in its thread slot where they
//! lie: a plain store, which is in the caches as long as those bytes are. Everything else is
//! durable before a size or a state of a block lets readers find it.

use vellum_layout::{BLOCK_BYTES, Overwrite};
use vellum_media::{Memories, Persistent};

use crate::core::Core;
use crate::error::Result;
use crate::mapping::{Found, Mapping};
use crate::mount::is_file;
use crate::sites;
use crate::slots::Op;

/// Blocks of a piece that is written by one operation, with one more where it is not aligned.
const BLOCKS_MAX: usize = 257;

impl<M: Memories> Op<'_, M> {
    /// Notes which blocks this operation is about to overwrite.
    #[inline]
    pub(crate) fn note_overwrite(&self, overwrite: Overwrite) {
        let at = self.core.geometry.thread_slot_at(self.slot);
        let [file, blocks] = overwrite.words();
        self.core.set_word(at + Overwrite::FILE, file);
        self.core.set_word(at + Overwrite::BLOCKS, blocks);
    }
}

/// Flushes what killed processes were overwriting, to be fenced before the pool is open.
///
/// # Errors
/// Damage on the way to a block.
pub(crate) fn inherit<M: Memories>(core: &Core<M>, mapping: &dyn Mapping<M>) -> Result<()> {
    let op = core.op_begin()?;
    for slot in 0..core.geometry.thread_slots {
        let at = core.geometry.thread_slot_at(slot);
        let words = [Overwrite::FILE, Overwrite::BLOCKS].map(|field| core.word(at + field));
        let overwrite = Overwrite::from_words(words);
        let Overwrite { first, last, .. } = overwrite;
        // Earlier processes noted something, too, and a slot may be a link's by now, whose text's
        // check is no word of a tree.
        let gone = core.geometry.mapping.has_trees() && !is_file(core, overwrite.id.into());
        if overwrite.id == 0 || last < first || gone {
            continue;
        }
        if overwrite.ends_only {
            flush(&op, mapping, overwrite, first, 1)?;
            flush(&op, mapping, overwrite, last, 1)?;
        } else {
            let blocks = (last - first) as usize + 1;
            flush(&op, mapping, overwrite, first, blocks.min(BLOCKS_MAX))?;
        }
    }
    Ok(())
}

fn flush<M: Memories>(
    op: &Op<'_, M>,
    mapping: &dyn Mapping<M>,
    overwrite: Overwrite,
    first: u32,
    blocks: usize,
) -> Result<()> {
    let mut found = [Found::Hole; BLOCKS_MAX];
    let found = &mut found[..blocks];
    mapping.lookup(op, overwrite.id, first, found)?;
    for found in found {
        if let Found::Mapped(block) = *found {
            let (pool, at) = (&op.core.pool, mapping.data_at(block));
            pool.flush(sites::RECOVER_INHERITED_DATA, at, BLOCK_BYTES);
        }
    }
    Ok(())
}
