//! Allocating blocks and entries for logical blocks, and freeing both: common to all tables that
//! use the [block allocator](Blocks).

use vellum_media::Memories;

use super::search::Keyed;
use crate::core::slots::Op;
use crate::error::{Error, Result};
use crate::mapping::blocks::Blocks;
use crate::mapping::limbo::Batch;
use crate::mapping::{BlockNo, MapId, Reservation};

/// Adjoining blocks, for consecutive logical blocks of a file.
#[derive(Clone, Copy, Debug)]
pub(in crate::mapping) struct Taken {
    pub(in crate::mapping) logical: u32,
    pub(in crate::mapping) block: BlockNo,
    pub(in crate::mapping) blocks: u64,
}

/// Why blocks could not get entries, and which ones: the first, and their number.
pub(in crate::mapping) type Refused = (Error, BlockNo, u64);

/// See [`crate::mapping::Mapping::claim`]. `enter` creates entries for allocated blocks.
pub(in crate::mapping) fn claim<M: Memories>(
    (table, blocks): (&impl Keyed<M>, &Blocks),
    op: &Op<'_, M>,
    (id, first): (MapId, u32),
    from: &mut Reservation,
    out: &mut [BlockNo],
    mut enter: impl FnMut(Taken) -> std::result::Result<(), Refused>,
) -> Result<()> {
    let before = first.checked_sub(1);
    let before = before.map(|last| table.find_block(op.core, id, last));
    let mut goal = before
        .transpose()?
        .flatten()
        .map(|held| BlockNo(held.place.block() + 1));
    let mut next = 0;
    while next < out.len() {
        let (logical, want) = (first + next as u32, (out.len() - next) as u64);
        let (block, taken) = blocks.take(op, from, logical.into(), goal, want)?;
        let entered = enter(Taken {
            logical,
            block,
            blocks: taken,
        });
        if let Err((error, without, count)) = entered {
            blocks.put_back(op, from, without, count);
            return Err(error);
        }
        let end = block.0 + taken as u32;
        for (out, block) in out[next..].iter_mut().zip(block.0..end) {
            *out = BlockNo(block);
        }
        next += taken as usize;
        goal = Some(BlockNo(end));
    }
    Ok(())
}

/// See [`crate::mapping::Mapping::release`]. `take_out` removes the entry of a logical block, if it
/// has one, and returns the block.
pub(in crate::mapping) fn release<M: Memories>(
    (table, blocks): (&impl Keyed<M>, &Blocks),
    op: &Op<'_, M>,
    id: MapId,
    (first, end): (u64, u64),
    in_use: u64,
    mut take_out: impl FnMut(u32) -> Result<Option<BlockNo>>,
) -> Result<u64> {
    let core = op.core;
    let mut batch = Batch::default();
    let done = table.search(core, id, first, end, in_use, |logical| {
        let gone = take_out(logical)?;
        if let Some(block) = gone {
            blocks.add(core, &mut batch, block);
        }
        Ok(gone.is_some().into())
    });
    // Blocks removed from the table are unreachable, even if a later removal failed.
    blocks.give_up(core, &batch);
    done
}
