//! Reading the table when an opening finds no saved state. Entries that recovery frees are cleared,
//! and so are second copies of moving entries; the others show which blocks are used. No crash
//! leaves anything in levels that are not in use yet.

use vellum_layout::{KeyedPlan, LevelRoot};
use vellum_media::{LINE_BYTES, Memories, Persistent};

use super::Level;
use crate::core::Core;
use crate::error::Result;
use crate::mapping::Survey;
use crate::mapping::keyed::rebuild::{Stored, drop_copies, each_live, judge, note_used, refuse};
use crate::sites;

impl Level {
    /// See [`crate::mapping::Mapping::rebuild`].
    pub(super) fn rebuild_allocator_state<M: Memories>(
        &self,
        core: &Core<M>,
        survey: &dyn Survey,
    ) -> Result<()> {
        let table = &self.table;
        let root = table.read_root(core)?;
        let plan = KeyedPlan::Level(table.plan, root);
        self.check_levels_to_come(core, root)?;
        let mut stored = Stored::new();
        judge(core, &table.lines, &plan, survey, &mut stored)?;
        drop_copies(core, &table.lines, &plan, &mut stored)?;
        self.blocks.begin_rebuild(core);
        each_live(core, &table.lines, &plan, |_, held| {
            note_used(core, &self.blocks, &held)
        })?;
        self.blocks.end_rebuild(core);
        for line in stored {
            let at = table.lines.line_at(line);
            core.pool.flush(sites::RECOVER_LEVEL, at, LINE_BYTES);
        }
        table.begin_with(core, root)
    }

    /// Fails if anything is in a level that is not in use yet: it would be found once the table
    /// grows.
    fn check_levels_to_come<M: Memories>(&self, core: &Core<M>, root: LevelRoot) -> Result<()> {
        let plan = self.table.plan;
        let levels = root.top() + 1..=plan.last;
        for line in levels.flat_map(|level| plan.lines_of(level)) {
            let lines = &self.table.lines;
            lines.each_in(core, line, |held| refuse(core, held.at))?;
        }
        Ok(())
    }
}
