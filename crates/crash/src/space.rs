//! The space that files take after a crash. What was allocated must be there, and what was freed
//! must not leak.

use vellum_layout::BLOCK_BYTES;
use vellum_model::{Op, SnapshotBody};

use crate::compare::Expected;
use crate::tree::Tree;
use crate::workload::Step;

/// Units of 512 bytes.
const UNITS_PER_BLOCK: u64 = BLOCK_BYTES / 512;

/// Checks the space of the files in `tree`, which is otherwise allowed, when `returned` explored
/// steps had returned; an error says what does not fit.
///
/// While a step is in flight, a file may take any space between the old and the new. A crash of a
/// write may lose blocks that were preallocated beyond the end, where it wrote: they already
/// belonged to the write. Where a size that was allocated shows, its space must be there.
pub(crate) fn judge_space(expected: &Expected, tree: &Tree, returned: usize) -> Result<(), String> {
    let before = &expected.trees[returned];
    let after = expected.trees.get(returned + 1).unwrap_or(before);
    let step = expected.explored.get(returned);
    let arrived = tree.nodes == after.nodes && tree.nodes != before.nodes;
    for (ino, &found) in &tree.space {
        let ends = [before, after].map(|tree| tree.space.get(ino).copied());
        let (Some(old), Some(new)) = (ends[0].or(ends[1]), ends[1].or(ends[0])) else {
            continue;
        };
        let lowest = match step {
            Some(Step::Op(Op::Fallocate { .. } | Op::FallocateSlot { .. })) if arrived => new,
            Some(step) => old
                .min(new)
                .saturating_sub(claimed_beyond(step, before, *ino)),
            None => old.min(new),
        };
        let in_vain = step.map_or(0, |step| claimed_in_vain(step, before, *ino));
        let highest = old.max(new) + in_vain;
        if !(lowest..=highest).contains(&found) {
            return Err(format!(
                "inode {ino} takes {found} units of 512 bytes, expected {lowest} to {highest}"
            ));
        }
    }
    Ok(())
}

/// The space beyond a file's end that a write may have claimed, in units of 512 bytes.
fn claimed_beyond(step: &Step, before: &Tree, ino: u64) -> u64 {
    let size = size_of(before, ino);
    let Some((first, end)) = step.op().and_then(|op| blocks_written(op, size)) else {
        return 0;
    };
    let first = first.max(size.div_ceil(BLOCK_BYTES));
    end.saturating_sub(first) * UNITS_PER_BLOCK
}

/// The space that a step may have claimed and not freed yet: in a write that finds the pool full
/// (in a hole, where it stays the file's because it reads as zeros), in an experiment, or where
/// bytes move to.
fn claimed_in_vain(step: &Step, before: &Tree, ino: u64) -> u64 {
    if let Some(range) = step.shifted() {
        return range.len / BLOCK_BYTES * UNITS_PER_BLOCK;
    }
    let blocks = match step {
        Step::Full(op) => blocks_written(op, size_of(before, ino)),
        Step::Blocks(blocks) => Some((blocks.first, blocks.first + blocks.count)),
        _ => None,
    };
    blocks.map_or(0, |(first, end)| (end - first) * UNITS_PER_BLOCK)
}

fn size_of(tree: &Tree, ino: u64) -> u64 {
    match tree.find(ino).map(|node| &node.body) {
        Some(SnapshotBody::File { size, .. }) => *size,
        _ => 0,
    }
}

/// The first block that a write to a file of this size may change, and the first block after these.
fn blocks_written(op: &Op, size: u64) -> Option<(u64, u64)> {
    let (first, end) = match op {
        Op::Write { offset, len, .. } => (*offset, offset + len),
        // The slot may have been opened for appending.
        Op::WriteSlot { offset, len, .. } => (*offset.min(&size), offset.max(&size) + len),
        Op::Append { len, .. } => (size, size + len),
        _ => return None,
    };
    Some((first / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES)))
}
