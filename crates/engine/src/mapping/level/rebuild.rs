//! Reading the table at an opening that nothing saved precedes: entries that recovery frees go, and so
//! do second copies of those that were moving; the others say which blocks are taken.

use vellum_layout::KeyedPlan;
use vellum_media::{LINE_BYTES, Memories, Persistent};

use super::Level;
use crate::core::Core;
use crate::error::Result;
use crate::mapping::keyed::lines::Lines;
use crate::mapping::keyed::rebuild::{Stored, drop_copies, each_live, judge};
use crate::mapping::{BlockNo, Survey};
use crate::sites;

impl Level {
    /// See [`crate::mapping::Mapping::rebuild`].
    pub(super) fn rebuild_aids<M: Memories>(
        &self,
        core: &Core<M>,
        survey: &dyn Survey,
    ) -> Result<()> {
        let table = &self.table;
        let root = table.read_root(core)?;
        let plan = KeyedPlan::Level(table.plan, root);
        let mut stored = Stored::new();
        judge(core, &table.lines, &plan, survey, &mut stored)?;
        drop_copies(core, &table.lines, &plan, &mut stored)?;
        self.blocks.begin_rebuild(core);
        each_live(core, &table.lines, &plan, |_, held| {
            if held.place.has_counts() {
                return Err(Lines::unsound(held.at));
            }
            self.blocks.note_used(core, BlockNo(held.place.block()))
        })?;
        self.blocks.end_rebuild(core);
        for line in stored {
            let at = table.lines.line_at(line);
            core.pool.flush(sites::RECOVER_LEVEL, at, LINE_BYTES);
        }
        table.begin_with(core, root)
    }
}
