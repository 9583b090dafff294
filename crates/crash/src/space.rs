//! The space that files take after a crash: promised where it was allocated, and not leaked where it
//! was given up.

use vellum_model::Op;

use crate::compare::Expected;
use crate::tree::Tree;
use crate::workload::Step;

/// Whether the space of `tree`'s files, which is otherwise allowed, fits when `returned` explored
/// steps had returned; if not, why.
///
/// While a step is under way, a file may take any space between before and after. A crash of a write
/// may lose what was allocated ahead beyond the end: it was the write's already. Where a size that
/// was allocated shows, its space is there.
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
            Some(step) if step.changes_bytes() => 0,
            _ => old.min(new),
        };
        if !(lowest..=old.max(new)).contains(&found) {
            return Err(format!(
                "inode {ino} takes {found} units of 512 bytes, expected {lowest} to {}",
                old.max(new)
            ));
        }
    }
    Ok(())
}
