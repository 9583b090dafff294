//! Removal: a record is appended that the name went, and counts together with what the inode says
//! then.

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

/// Records without a living name from which a log is copied, if they are as many as its names (as
/// NOVA's thorough collection, below half alive).
const RECYCLE_AT_LEAST: u64 = 100;

/// How a name will be said to be gone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By a record of its own.
    Appended,
    /// Over the record that it came: there is no room for one more, and names can be removed all
    /// the same.
    InPlace,
}

impl<M: Memories> Names<'_, '_, M> {
    /// Makes room for saying that names went, in records of `bytes`; without a place for them it is
    /// said in place, and takes no block from what copying the log needs.
    pub(super) fn make_way(&mut self, bytes: u64) -> Result<Way> {
        match self.make_room(bytes, self.op.core.blocks_for_logs()) {
            Ok(()) => Ok(Way::Appended),
            Err(Error::NoSpace(_)) => Ok(Way::InPlace),
            Err(error) => Err(error),
        }
    }

    /// Has a journal record say that the name with this leaf went at `now`.
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
    /// Names that it has then.
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

    /// Has a journal record say what the inode says without the name.
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

    /// The change time; the record's next fence makes that durable. Nobody asks for that of a file
    /// without names after a crash.
    pub(super) fn store_time(&self, op: &Op<'_, M>, now: i64) {
        if self.left > 0 {
            op.store_change_time(&self.change, now);
        }
    }

    /// Shows count and time of a file that lost a name durably; lookups of that wait.
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
    /// With the last name the rest is left to the background (or, while it is open, to the last
    /// close).
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
    /// Counts a name of `dir` out whose leaf lookups wait for, with which `records` stand for no
    /// name any more.
    pub(super) fn name_left(&self, dir: Cachelet, records: u64) {
        self.leave_children(dir, CHILD_ONE);
        self.records_died(dir, records);
        self.count(Tally::Names, -1);
    }

    /// Notes that so many more records of the log of `dir` stand for no name.
    pub(super) fn records_died(&self, dir: Cachelet, records: u64) {
        let core = self.core;
        let at = core.cachelet_at(dir, field::DEAD);
        let dead = u64::from(core.arena.fetch_add(at, records) as u32) + records;
        if dead >= RECYCLE_AT_LEAST.max(core.children(dir)) {
            core.queue_work(dir);
        }
    }

    /// Marks an empty directory as dying: a name that is counted and is not just being made is
    /// there.
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
                // Before any names are held: this may hold the victim's.
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

    /// Takes a name away that can go.
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
