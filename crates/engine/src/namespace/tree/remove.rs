//! Removal: a record of it is appended, and committed together with the change of the inode.

use vellum_layout::{
    FileKind, IdentityWord, Inode, InodeState, LinksWord, LogPosition, NAME_MAX, NameRecord,
    RecordKind,
};
use vellum_media::{Memories, Memory};
use zerocopy::IntoBytes;

use super::log::{Draft, Names, Told};
use super::radix::Leaf;
use super::{Name, Tree};
use crate::core::Core;
use crate::core::cachelet::{CHILD_ONE, Cachelet, MAKING_ONE, field, flag};
use crate::core::slots::{Op, Tally};
use crate::core::times::Change;
use crate::durability::journal::Record;
use crate::error::{Error, Result};
use crate::namespace::Removal;
use crate::sites;

/// Number of records without a living name from which on a log is copied, if they are as many as
/// its names. (NOVA's thorough collection runs when less than half is alive.)
const RECYCLE_AT_LEAST: u64 = 100;

/// How the removal of a name is recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By a record of its own.
    Appended,
    /// In the record that added the name: there is no space for another record, and removals have
    /// to work anyway.
    InPlace,
}

impl<M: Memories> Names<'_, '_, M> {
    /// Makes space for records of removals, of `bytes` bytes. Without space, removals are recorded
    /// in place. Takes no block that copying the log needs.
    pub(super) fn make_way(&mut self, bytes: u64) -> Result<Way> {
        match self.make_room(bytes, self.op.core.blocks_for_logs()) {
            Ok(()) => Ok(Way::Appended),
            Err(Error::NoSpace(_)) => Ok(Way::InPlace),
            Err(error) => Err(error),
        }
    }

    /// Adds to a journal record the removal, at `now`, of the name with this leaf.
    pub(super) fn bury(
        &mut self,
        core: &Core<M>,
        (leaf, way): (Leaf, Way),
        now: i64,
        record: &mut Record,
    ) -> Option<Draft> {
        let at = core.record_at(leaf.place());
        if way == Way::InPlace {
            self.bury_in_place(core, leaf.place(), now, record);
            return None;
        }
        let told = Told::went(core, RecordKind::Went, at, now);
        let draft = self.draft(sites::TREE_WENT_RECORD, &told, b"");
        draft.witness(record);
        Some(draft)
    }

    fn bury_in_place(&self, core: &Core<M>, place: LogPosition, now: i64, record: &mut Record) {
        let mut buffer = [0; NAME_MAX];
        let at = core.record_at(place);
        let name = core.name_of_leaf(Leaf::new(place, 0), &mut buffer);
        let told = Told::went(core, RecordKind::Gone, at, now);
        let gone = told.record().sealed(name.bytes, place, self.owner());
        let (words, _) = gone.as_bytes().as_chunks::<8>();
        for offset in [NameRecord::HEAD, NameRecord::TIME] {
            let word = u64::from_le_bytes(words[offset as usize / 8]);
            record.store(at + offset, word);
        }
    }
}

/// A file that loses a name, while nobody else changes its count.
pub(super) struct Victim<'a, M: Memories> {
    file: Cachelet,
    change: Change<'a, M>,
    /// Number of names that it keeps.
    left: u64,
}

impl<'a, M: Memories> Victim<'a, M> {
    pub(super) fn new(core: &Core<M>, change: Change<'a, M>) -> Self {
        let file = change.file;
        let left = match core.kind(file) {
            FileKind::Directory => 0,
            _ => core.get(file, field::LINKS).saturating_sub(1),
        };
        Self { file, change, left }
    }

    /// Adds to a journal record the state of the inode without the name.
    pub(super) fn record(&self, core: &Core<M>, record: &mut Record) {
        let at = core.inode_at(self.file);
        if self.left > 0 {
            let word = LinksWord::new(self.left as u32, 0);
            record.store(at + Inode::LINKS, word.0);
        } else {
            let orphan = IdentityWord(core.word(at)).with_state(InodeState::Orphan);
            record.store(at, orphan.0);
        }
    }

    /// Stores the change time. The record's next fence makes it durable. After a crash nobody needs
    /// the time of a file without names.
    pub(super) fn store_time(&self, op: &Op<'_, M>, now: i64) {
        if self.left > 0 {
            op.store_change_time(&self.change, now);
        }
    }

    /// Publishes count and time of a file that durably lost a name, for whose lookups wait.
    pub(super) fn show(self, core: &Core<M>, now: i64) -> Gone {
        core.set(self.file, field::LINKS, self.left);
        self.change.show(None, now);
        Gone {
            file: self.file,
            left: self.left,
        }
    }
}

/// A file whose name is gone for everybody.
#[must_use]
pub(super) struct Gone {
    file: Cachelet,
    left: u64,
}

impl Gone {
    /// After the last name, the rest is done by the background, after the last close.
    pub(super) fn settle<M: Memories>(self, core: &Core<M>) {
        if self.left == 0 {
            core.raise_flag(self.file, flag::UNLINKED);
            if core.drop_refs(self.file, 0) == 0 {
                core.queue_work(self.file);
            }
        }
    }
}

impl<M: Memories> Op<'_, M> {
    /// Subtracts a name of `dir`, for whose leaf lookups wait. With it `records` more records stand
    /// for no name.
    pub(super) fn name_left(&self, dir: Cachelet, records: u64) {
        self.leave_children(dir, CHILD_ONE);
        self.records_died(dir, records);
        self.count(Tally::Names, -1);
    }

    /// Counts further records of the log of `dir` that stand for no name.
    pub(super) fn records_died(&self, dir: Cachelet, records: u64) {
        let core = self.core;
        let at = core.cachelet_at(dir, field::DEAD);
        let dead = u64::from(core.arena.fetch_add(at, records) as u32) + records;
        if dead >= RECYCLE_AT_LEAST.max(core.children(dir)) {
            core.queue_work(dir);
        }
    }

    /// Marks an empty directory as dying. A name exists if it is counted and not in creation.
    pub(super) fn end_children(&self, dir: Cachelet) -> Result<()> {
        let core = self.core;
        self.begin_dying(dir, &mut || {
            let word = core.get(dir, field::CHILDREN);
            Ok(word % MAKING_ONE / CHILD_ONE > word / MAKING_ONE)
        })
    }
}

impl Tree {
    /// Removes `name` from `dir`.
    pub(super) fn unmake<M: Memories>(
        op: &Op<'_, M>,
        dir: Cachelet,
        name: Name<'_>,
        removal: Removal,
        allow: &mut dyn FnMut(Cachelet) -> Result<()>,
    ) -> Result<()> {
        loop {
            let victim = Self::find(op, dir, name)?.ok_or(Error::NotFound)?;
            let is_dir = op.core.kind(victim) == FileKind::Directory;
            if is_dir && removal == Removal::Directory {
                // This comes before names are locked, because it may lock the victim's.
                op.ensure_tree_counted(victim)?;
            }
            let mut names = op.names(dir)?;
            let Some((at, leaf)) = names.find(name)? else {
                return Err(Error::NotFound);
            };
            if Self::load(op, dir, leaf)? != victim {
                continue;
            }
            allow(victim)?;
            match removal {
                Removal::File if is_dir => return Err(Error::IsDirectory),
                Removal::Directory if !is_dir => return Err(Error::NotDirectory),
                _ => {}
            }
            let way = names.make_way(NameRecord::bytes_for(0))?;
            if is_dir {
                op.end_children(victim)?;
            }
            Self::take_away(op, &mut names, (at, leaf, way), victim);
            return Ok(());
        }
    }

    /// Removes a name that may be removed.
    fn take_away<M: Memories>(
        op: &Op<'_, M>,
        names: &mut Names<'_, '_, M>,
        (at, leaf, way): (u64, Leaf, Way),
        file: Cachelet,
    ) {
        let (core, dir) = (op.core, names.dir);
        let now = op.change_time(dir);
        let victim = Victim::new(core, op.begin_change(file));
        let mut record = Record::new();
        names.bury(core, (leaf, way), now, &mut record);
        names.record_tail(&mut record);
        victim.record(core, &mut record);
        op.journal_commit(&record);
        victim.store_time(op, now);
        op.journal_apply(&record);
        op.journal_retire();
        names.advance();
        core.radix_set(at, leaf.busy());
        let gone = victim.show(core, now);
        let subdirectories = i64::from(core.kind(file) == FileKind::Directory);
        op.note_change(dir, now, -subdirectories);
        op.name_left(dir, if way == Way::Appended { 2 } else { 1 });
        core.radix_remove(at);
        gone.settle(core);
    }
}
