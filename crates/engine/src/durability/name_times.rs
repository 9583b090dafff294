//! Times of a directory whose names changed, stored so that recovery finds them.

use vellum_layout::Inode;
use vellum_media::Memories;

use super::journal::Record;
use crate::core::cachelet::Cachelet;
use crate::core::slots::Op;
use crate::core::times::{ChangeWord, Times};

impl<M: Memories> Op<'_, M> {
    /// Records that names of `dir` durably changed at `ns`, so that recovery finds this time, too.
    pub(crate) fn note_names(&self, dir: Cachelet, ns: i64) {
        if !self.core.try_note_names(dir, ns) {
            self.note_names_late(dir, ns);
        }
    }

    /// The same if the change time may already be later than `ns`, so recovery would not use the
    /// entry's time `ns`. A modification time between the two comes from a later change of names,
    /// or was set on purpose; any other one is older.
    #[cold]
    fn note_names_late(&self, dir: Cachelet, ns: i64) {
        let core = self.core;
        let change = self.begin_change(dir);
        let Times { mtime, ctime } = change.before;
        if ns > ctime {
            change.open_with(ChangeWord::both(ns));
        } else if !(ns..=ctime).contains(&mtime) {
            let mut record = Record::new();
            record.store(core.inode_at(dir) + Inode::MTIME, ns as u64);
            self.journal_commit(&record);
            self.journal_apply(&record);
            self.journal_retire();
            change.show(Some(ns), ctime);
        }
    }
}
