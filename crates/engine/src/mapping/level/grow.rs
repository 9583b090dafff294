//! Growing: a new top level, into which the old bottom level is emptied.
//!
//! 1. *Begin*: the root names the new level, and the one to be emptied; this is durable before
//!    anything can be in the new level. Then the arena is updated, and the growing operation waits
//!    for all that may still be putting a key into the old bottom level: from here on nothing
//!    enters it.
//! 2. *Moving*: each insertion empties a line, entry by entry, each durable by itself. Lookups read
//!    the three levels meanwhile. So a crash finds every entry in one place, and at most one in
//!    two. Emptying restarts from the first line and finds the emptied lines empty.
//! 3. *End*: once the level is empty, durably, the root no longer names it. Nothing waits for that:
//!    a root that still names an empty level costs lookups two lines, and the next growth stores it
//!    again.
//!
//! One operation at a time does any of this, under a lock of the table. Others insert keys
//! meanwhile.

use std::sync::atomic::Ordering;

use vellum_layout::{LevelRoot, MapWord};
use vellum_media::{Memories, Memory, Persistent};

use super::table::Table;
use crate::core::Core;
use crate::core::slots::{Op, pause};
use crate::error::Result;
use crate::mapping::keyed::lines::is_live;
use crate::sites;

/// Lines that an insertion empties. The new level has room for many times as many insertions as
/// there are lines to empty.
const LINES_AT_ONCE: u64 = 1;

impl Table {
    /// Continues to empty the old bottom level, if there is one and no other operation does so.
    pub(super) fn move_on<M: Memories>(&self, op: &Op<'_, M>) -> Result<()> {
        if self.levels(op.core).moving().is_none() {
            return Ok(());
        }
        let growth = self.try_growth(op);
        // Only now can no other operation end the growth.
        let levels = self.levels(op.core);
        if growth.is_some() && levels.moving().is_some() {
            self.empty(op, levels, LINES_AT_ONCE)?;
        }
        Ok(())
    }

    /// Makes the table larger than `seen`, or completes a growth that does. Returns `false` if the
    /// table has its maximum size, or the old bottom level cannot be emptied.
    #[cold]
    pub(super) fn grow<M: Memories>(&self, op: &Op<'_, M>, seen: LevelRoot) -> Result<bool> {
        let growth = self.wait_for_growth(op);
        let grown = if self.levels(op.core) != seen {
            Ok(true)
        } else if seen.moving().is_some() {
            self.empty(op, seen, u64::MAX)
        } else if seen.top() == self.plan.last {
            Ok(false)
        } else {
            self.begin(op, seen.top() + 1).map(|()| true)
        };
        drop(growth);
        grown
    }

    /// Adds a level.
    fn begin<M: Memories>(&self, op: &Op<'_, M>, top: u32) -> Result<()> {
        let core = op.core;
        self.moves.moving(core, || {
            let root = LevelRoot::new(top, true);
            core.set_word(self.root_at(), root.0);
            core.pool.flush(sites::LEVEL_BEGIN, self.root_at(), 8);
            core.pool.fence(sites::LEVEL_BEGIN_DURABLE);
            // Nothing may enter a level whose root the medium did not accept.
            op.check_media()?;
            core.arena.store(self.emptied_at, 0, Ordering::Relaxed);
            core.arena.store(self.levels_at, root.0, Ordering::SeqCst);
            self.moves.wait_for_holders(op);
            Ok(())
        })
    }

    /// Empties the next lines of the old bottom level, `most` at most. Returns whether the level is
    /// now empty and no longer in use.
    fn empty<M: Memories>(&self, op: &Op<'_, M>, levels: LevelRoot, most: u64) -> Result<bool> {
        let core = op.core;
        let Some(level) = levels.moving() else {
            return Ok(true);
        };
        let lines = self.plan.lines_of(level);
        self.moves.moving(core, || {
            let begin = lines.start + core.arena.load(self.emptied_at, Ordering::Relaxed);
            let end = lines.end.min(begin.saturating_add(most));
            for line in begin..end {
                for at in self.entries_of(line) {
                    if !self.leave_level(op, levels, at)? {
                        return Ok(false);
                    }
                }
                let emptied = line + 1 - lines.start;
                core.arena
                    .store(self.emptied_at, emptied, Ordering::Relaxed);
            }
            if end == lines.end {
                self.end(core, levels);
            }
            Ok(end == lines.end)
        })
    }

    /// Moves the contents of an entry out of the old bottom level. Returns `false` if there is no
    /// room.
    fn leave_level<M: Memories>(&self, op: &Op<'_, M>, levels: LevelRoot, at: u64) -> Result<bool> {
        let is_empty = || !is_live(MapWord(op.core.word(at)));
        Ok(is_empty()
            || self.move_away(op, levels, at)?
            || is_empty()
            || self.move_to_stash(op, at)?
            || is_empty())
    }

    /// Removes the old bottom level, which is empty, from the root.
    fn end<M: Memories>(&self, core: &Core<M>, levels: LevelRoot) {
        let root = LevelRoot::new(levels.top(), false);
        core.set_word(self.root_at(), root.0);
        core.pool.flush(sites::LEVEL_END, self.root_at(), 8);
        core.arena.store(self.levels_at, root.0, Ordering::Release);
    }

    /// Ends a growth whose level happens to be empty. No operation runs.
    pub(super) fn end_if_empty<M: Memories>(&self, core: &Core<M>) -> Result<()> {
        let levels = self.levels(core);
        let Some(level) = levels.moving() else {
            return Ok(());
        };
        let mut is_empty = true;
        for line in self.plan.lines_of(level) {
            self.lines.each_in(core, line, |held| {
                is_empty = is_empty && !is_live(held.word);
                Ok(())
            })?;
            if !is_empty {
                return Ok(());
            }
        }
        self.end(core, levels);
        Ok(())
    }

    /// Takes the lock of the table, if it is free.
    pub(super) fn try_growth<'a, M: Memories>(
        &self,
        op: &'a Op<'_, M>,
    ) -> Option<Growth<'a, M::Arena>> {
        let arena = &op.core.arena;
        let free = arena.load(self.grower_at, Ordering::Relaxed) == 0;
        let taken = free
            && arena
                .compare_exchange(self.grower_at, 0, op.holder())
                .is_ok();
        // Not `then_some`: that would create a lock, drop it and so unlock.
        taken.then(|| Growth {
            arena,
            at: self.grower_at,
        })
    }

    fn wait_for_growth<'a, M: Memories>(&self, op: &'a Op<'_, M>) -> Growth<'a, M::Arena> {
        let mut tries = 0;
        loop {
            if let Some(growth) = self.try_growth(op) {
                return growth;
            }
            pause(&op.core.arena, &mut tries);
        }
    }
}

/// The lock of a growing table.
pub(super) struct Growth<'a, A: Memory> {
    arena: &'a A,
    at: u64,
}

impl<A: Memory> Drop for Growth<'_, A> {
    fn drop(&mut self) {
        self.arena.store(self.at, 0, Ordering::Release);
    }
}
