//! Creation and hard links: a record is appended, and committed together with the inode that it
//! names.

use vellum_layout::{Inode, InodeState, LinksWord, NameRecord, RecordKind, TargetWord};
use vellum_media::{Memories, Persistent};

use super::log::{Names, Told};
use super::radix::{Insertion, Leaf};
use super::{Name, Tree};
use crate::core::cachelet::{CHILD_ONE, Cachelet, MAKING_ONE, field, flag};
use crate::core::limits::LINK_MAX;
use crate::core::slots::{Op, Tally};
use crate::durability::journal::Record;
use crate::error::{Error, Result};
use crate::namespace::NewInode;
use crate::namespace::common::inode::Making;
use crate::sites;

/// A name in creation, counted as a child. The count is undone if the creation ends early.
pub(super) struct Coming<'o, 'a, M: Memories> {
    op: &'o Op<'a, M>,
    dir: Cachelet,
}

impl<'o, 'a, M: Memories> Coming<'o, 'a, M> {
    pub(super) fn begin(op: &'o Op<'a, M>, dir: Cachelet) -> Result<Self> {
        op.enter_children(dir, CHILD_ONE + MAKING_ONE)?;
        Ok(Self { op, dir })
    }

    /// The name exists now.
    pub(super) fn keep(self) {
        self.op.leave_children(self.dir, MAKING_ONE);
        std::mem::forget(self);
    }
}

impl<M: Memories> Drop for Coming<'_, '_, M> {
    fn drop(&mut self) {
        self.op.leave_children(self.dir, CHILD_ONE + MAKING_ONE);
    }
}

impl<'a, M: Memories> Names<'_, 'a, M> {
    /// Fails if the name exists.
    fn check_absent(&self, name: Name<'_>) -> Result<()> {
        match self.find(name)? {
            Some(_) => Err(Error::Exists),
            None => Ok(()),
        }
    }

    /// Prepares a leaf of an absent name for the record that is written next.
    pub(super) fn prepare(&self, op: &Op<'a, M>, name: Name<'_>) -> Result<Insertion> {
        let top = op.core.radix_top(self.dir);
        let leaf = Leaf::new(self.end(), name.hash).busy();
        op.core.radix_prepare(top, name, leaf)
    }
}

impl Tree {
    /// Creates an inode with the name `name` in `dir`.
    pub(super) fn make<M: Memories>(
        op: &Op<'_, M>,
        dir: Cachelet,
        name: Name<'_>,
        new: &NewInode<'_>,
    ) -> Result<Cachelet> {
        let core = op.core;
        let mut names = op.names(dir)?;
        let mut making = Making::begin(op, dir, 0)?;
        names.check_absent(name)?;
        making.take_inode(new)?;
        names.make_room(
            NameRecord::bytes_for(name.bytes.len()),
            core.blocks_for_logs(),
        )?;
        making.write_contents(new)?;
        let insertion = names.prepare(op, name)?;
        let now = op.change_time(dir);
        // The inode is free on the pool until the record is committed.
        let (cachelet, generation) = making.write_inode(new, now, InodeState::Free)?;
        let identity = core.identity(cachelet);
        let told = Told {
            kind: RecordKind::Came,
            target: TargetWord::new(core.ino(cachelet), new.kind),
            generation,
            cookie: names.take_cookie(),
            hash: name.hash,
            now,
        };
        names.draft(sites::TREE_CREATE_RECORD, &told, name.bytes);
        core.pool.fence(sites::TREE_CREATE_DURABLE);
        let mut record = Record::new();
        names.record_tail(&mut record);
        record.store(core.inode_at(cachelet) + Inode::IDENTITY, identity.0);
        op.journal_commit(&record);
        op.journal_apply(&record);
        op.journal_retire();
        making.keep();
        core.unlock_made(cachelet);
        names.advance();
        core.radix_publish(dir, insertion);
        let is_dir = new.kind == vellum_layout::FileKind::Directory;
        op.note_change(dir, now, i64::from(is_dir));
        names.show(op, name);
        op.leave_children(dir, MAKING_ONE);
        Ok(cachelet)
    }

    /// Adds the name `name` in `dir` to `target`. The caller holds a reference.
    pub(super) fn add_link<M: Memories>(
        op: &Op<'_, M>,
        dir: Cachelet,
        name: Name<'_>,
        target: Cachelet,
    ) -> Result<()> {
        let core = op.core;
        let mut names = op.names(dir)?;
        let coming = Coming::begin(op, dir)?;
        names.check_absent(name)?;
        names.make_room(
            NameRecord::bytes_for(name.bytes.len()),
            core.blocks_for_logs(),
        )?;
        // Numbers of names change under this lock alone.
        let change = op.begin_change(target);
        let links = match core.get(target, field::LINKS) {
            0 if !core.has_flag(target, flag::NAMING) => return Err(Error::NotFound),
            LINK_MAX.. => return Err(Error::TooManyLinks),
            links => links + 1,
        };
        let insertion = names.prepare(op, name)?;
        let now = op.change_time(dir);
        let told = Told::came(core, name, target, names.take_cookie(), now);
        let draft = names.draft(sites::TREE_LINK_RECORD, &told, name.bytes);
        let mut record = Record::new();
        draft.witness(&mut record);
        names.record_tail(&mut record);
        let word = LinksWord::new(links as u32, 0);
        record.store(core.inode_at(target) + Inode::LINKS, word.0);
        op.journal_commit(&record);
        op.store_change_time(&change, now);
        op.journal_apply(&record);
        op.journal_retire();
        names.advance();
        core.radix_publish(dir, insertion);
        core.set(target, field::LINKS, links);
        change.show(None, now);
        op.note_change(dir, now, 0);
        names.show(op, name);
        coming.keep();
        Ok(())
    }
}

impl<'a, M: Memories> Names<'_, 'a, M> {
    /// Lets lookups find a durable name. They waited until everything that it leads to was known.
    pub(super) fn show(&self, op: &Op<'a, M>, name: Name<'_>) {
        if let Some((at, leaf)) = op.core.radix_find(self.dir, name) {
            op.core.radix_set(at, leaf.quiet());
        }
        op.count(Tally::Names, 1);
    }
}
