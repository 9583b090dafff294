//! What recovery does to the entries of a table: it frees entries that are not kept, and second
//! copies that a crash left. If it finds anything else that is wrong, it rejects the pool, unless
//! the opening is read-only.

use std::collections::BTreeSet;

use vellum_layout::{KeyedPlan, MapWord};
use vellum_media::Memories;

use super::lines::{Held, Lines, is_live};
use crate::core::Core;
use crate::error::Result;
use crate::mapping::blocks::Blocks;
use crate::mapping::{BlockNo, Survey, Verdict};

/// Lines with words that were stored, to be flushed once each.
pub(in crate::mapping) type Stored = BTreeSet<u64>;

/// Rejects a table because of the entry at `at`. A read-only opening accepts it: lookups report an
/// unsound entry that they meet, and find one of two entries of a key.
pub(in crate::mapping) fn refuse<M: Memories>(core: &Core<M>, at: u64) -> Result<()> {
    if core.read_only {
        return Ok(());
    }
    Err(Lines::unsound(at))
}

/// Counts the block of an entry as used, except in a read-only opening, which allocates none.
pub(in crate::mapping) fn note_used<M: Memories>(
    core: &Core<M>,
    blocks: &Blocks,
    held: &Held,
) -> Result<()> {
    match blocks.note_used(core, BlockNo(held.place.block())) {
        Err(_) if core.read_only => Ok(()),
        noted => noted,
    }
}

/// Calls `each` with every entry that is not free, and its line.
fn each_used<M: Memories>(
    core: &Core<M>,
    lines: &Lines,
    plan: &KeyedPlan,
    mut each: impl FnMut(u64, Held) -> Result<()>,
) -> Result<()> {
    for line in plan.parts().into_iter().flatten() {
        lines.each_in(core, line, |held| each(line, held))?;
    }
    Ok(())
}

/// Calls `each` with every entry whose key is in the table, and its line.
pub(in crate::mapping) fn each_live<M: Memories>(
    core: &Core<M>,
    lines: &Lines,
    plan: &KeyedPlan,
    mut each: impl FnMut(u64, Held) -> Result<()>,
) -> Result<()> {
    each_used(core, lines, plan, |line, held| {
        if is_live(held.word) {
            each(line, held)
        } else {
            Ok(())
        }
    })
}

/// Clears marks and the entries that recovery frees. Every other entry must be sound and lie in a
/// line of its key.
pub(in crate::mapping) fn judge<M: Memories>(
    core: &Core<M>,
    lines: &Lines,
    plan: &KeyedPlan,
    survey: &dyn Survey,
    stored: &mut Stored,
) -> Result<()> {
    each_used(core, lines, plan, |line, held| {
        let word = held.word;
        let stays =
            is_live(word) && survey.judge(word.id(), word.logical(), word.state()) == Verdict::Keep;
        if !stays {
            core.set_word(held.at, MapWord::FREE.0);
            stored.insert(line);
            return Ok(());
        }
        let at_home = plan.is_stash(line) || plan.homes(core.seed, word.0).any(|home| home == line);
        if at_home && lines.is_sound(&held) {
            Ok(())
        } else {
            refuse(core, held.at)
        }
    })
}

/// Of two entries of a key, keeps the one that lookups find first. The copies may differ by changes
/// of a running operation that were not yet durable, and both are correct. But they must have the
/// same block, and be in lines between which keys move.
pub(in crate::mapping) fn drop_copies<M: Memories>(
    core: &Core<M>,
    lines: &Lines,
    plan: &KeyedPlan,
    stored: &mut Stored,
) -> Result<()> {
    each_live(core, lines, plan, |line, held| {
        let key = held.word.0 & MapWord::KEY_MASK;
        let mut looked_at = plan.homes(core.seed, key).chain(plan.stash());
        let first = looked_at.find_map(|line| lines.look_in(core, key, line));
        let Some(first) = first.filter(|first| first.at != held.at) else {
            return Ok(());
        };
        let moved = plan.may_leave_copy(lines.line_of(first.at), line);
        if first.place.block() != held.place.block() || !moved {
            return refuse(core, held.at);
        }
        core.set_word(held.at, MapWord::FREE.0);
        stored.insert(line);
        Ok(())
    })
}
