//! Flushing data that a killed process was overwriting, which may be in the caches only.

use vellum_layout::{BLOCK_BYTES, Overwrite};
use vellum_media::{Memories, Persistent};

use crate::core::Core;
use crate::core::inodes::is_file;
use crate::core::slots::Op;
use crate::error::Result;
use crate::mapping::{Found, Mapping};
use crate::sites;

/// Most blocks that one operation writes: 256, and one more if they are not aligned.
const BLOCKS_MAX: usize = 257;

/// Flushes blocks that killed processes were overwriting. The caller fences before the pool is
/// open.
///
/// # Errors
/// Fails on damage on the way to a block.
pub(super) fn inherit_overwrites<M: Memories>(
    core: &Core<M>,
    mapping: &dyn Mapping<M>,
) -> Result<()> {
    let op = core.op_begin()?;
    for slot in 0..core.geometry.thread_slots {
        let at = core.geometry.thread_slot_at(slot);
        let words = [Overwrite::FILE, Overwrite::BLOCKS].map(|field| core.word(at + field));
        let overwrite = Overwrite::from_words(words);
        let Overwrite { first, last, .. } = overwrite;
        // The record may be of an earlier process. By now its slot may be a symbolic link's, whose
        // check of the text is no root of a tree.
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
