//! Builds a directory's radix tree from its log, at the directory's first access in a mount.

use vellum_layout::{FileKind, LogPosition, NAME_MAX, RecordKind, Recorded, TargetWord, name_hash};
use vellum_media::Memories;

use super::log::Names;
use super::radix::Leaf;
use crate::core::Core;
use crate::core::cachelet::{CHILD_ONE, Cachelet, field, flag};
use crate::core::slots::{Op, Tally};
use crate::error::{Error, Location, Result};
use crate::namespace::common::is_name;
use crate::namespace::{COOKIE_MAX, FIRST_COOKIE};

/// A name that was added.
pub(super) struct Came {
    pub(super) place: LogPosition,
    pub(super) cookie: u64,
    pub(super) target: TargetWord,
    /// Generation of the inode.
    pub(super) generation: u32,
    pub(super) hash: u32,
    pub(super) is_there: bool,
}

/// The contents of a log.
#[derive(Default)]
pub(super) struct Told {
    /// Added names, in the order of their cookies.
    pub(super) came: Vec<Came>,
    /// Number of records that stand for no existing name.
    pub(super) dead: u64,
    /// The latest time in a record, in nanoseconds since 1970.
    pub(super) latest_ns: i64,
    /// The next cookie.
    pub(super) next_cookie: u64,
}

impl Told {
    /// Reads the log of the directory with inode number `ino`. For everything that cannot be read,
    /// `go_on` decides whether to continue without it.
    pub(super) fn read<M: Memories>(
        core: &Core<M>,
        ino: u64,
        go_on: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Self> {
        let mut told = Self {
            next_cookie: FIRST_COOKIE,
            ..Self::default()
        };
        let (owner, tail) = (core.log_owner(ino), core.tail_on_pool(ino)?);
        let mut reached_tail = tail == LogPosition::NONE;
        let walked = core.for_each_block(core.log_root(ino), owner, &mut |block| {
            if reached_tail {
                return Ok(());
            }
            if block.head.base_cookie < told.next_cookie {
                let place = Location::Slot(block.slot);
                go_on(Error::damaged("directory cookies out of order", place))?;
            }
            told.next_cookie = told.next_cookie.max(block.head.base_cookie);
            for found in block.records(owner, tail) {
                let taken = found
                    .map_err(|unsound| {
                        let place = Location::Slot(unsound.place.slot());
                        Error::damaged("record of a directory log", place)
                    })
                    .and_then(|found| told.take(core, &found));
                taken.or_else(&mut *go_on)?;
            }
            reached_tail |= tail.slot() == block.slot;
            Ok(())
        });
        walked.or_else(&mut *go_on)?;
        if !reached_tail {
            let lost = Error::damaged("directory log without its tail", Location::Inode(ino));
            go_on(lost)?;
        }
        told.leave_out_strangers(core, go_on)?;
        Ok(told)
    }

    /// Leaves out names that lead to no inode slot. The slot of a removed name may be used for
    /// anything by now.
    fn leave_out_strangers<M: Memories>(
        &mut self,
        core: &Core<M>,
        go_on: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<()> {
        for came in self.came.iter_mut().filter(|came| came.is_there) {
            if !core.is_inode_slot(came.target.ino()) {
                came.is_there = false;
                let what = "record of a directory log names no inode";
                go_on(Error::damaged(what, Location::Slot(came.place.slot())))?;
            }
        }
        Ok(())
    }

    fn take<M: Memories>(&mut self, core: &Core<M>, found: &Recorded<'_>) -> Result<()> {
        let record = &found.record;
        let damaged = |what| Err(Error::damaged(what, Location::Slot(found.place.slot())));
        self.latest_ns = self.latest_ns.max(record.ns());
        let kind = record.kind();
        if kind == Some(RecordKind::Went) {
            self.dead += 1;
            let came = self
                .came
                .binary_search_by_key(&record.cookie, |came| came.cookie);
            if let Ok(index) = came {
                let came = &mut self.came[index];
                self.dead += u64::from(came.is_there);
                came.is_there = false;
            }
            return Ok(());
        }
        if !(self.next_cookie..=COOKIE_MAX).contains(&record.cookie) {
            return damaged("directory cookies out of order");
        }
        self.next_cookie = record.cookie + 1;
        let target = TargetWord(record.target);
        if target.has_reserved() || target.kind().is_none() {
            return damaged("record of a directory log names a file of no kind");
        }
        if record.name_hash != name_hash(core.seed, found.name) {
            return damaged("hash of a name");
        }
        if !is_name(found.name) {
            return damaged("name that no file may have");
        }
        let is_there = kind == Some(RecordKind::Came);
        self.dead += u64::from(!is_there);
        self.came.push(Came {
            place: found.place,
            cookie: record.cookie,
            target,
            generation: record.generation,
            hash: record.name_hash,
            is_there,
        });
        Ok(())
    }

    /// The names that exist.
    pub(super) fn there(&self) -> impl Iterator<Item = &Came> {
        self.came.iter().filter(|came| came.is_there)
    }
}

impl<M: Memories> Op<'_, M> {
    /// Makes sure that every name of `dir` is in its tree.
    pub(super) fn ensure_tree(&self, dir: Cachelet) -> Result<()> {
        let core = self.core;
        while !core.has_flag(dir, flag::INDEXED) {
            let mut names = self.lock_names(dir);
            if !core.has_flag(dir, flag::INDEXED) {
                self.build(&mut names)?;
                core.raise_flag(dir, flag::INDEXED);
            }
        }
        Ok(())
    }

    /// As [`Self::ensure_tree`], for a change of `dir`: makes sure that the end of its log and the
    /// number of names are known, too.
    ///
    /// # Errors
    /// Fails if names cannot be read, because then neither can be found out.
    pub(super) fn ensure_tree_counted(&self, dir: Cachelet) -> Result<()> {
        self.ensure_tree(dir)?;
        if self.core.has_flag(dir, flag::COUNTED) {
            return Ok(());
        }
        self.check_names(dir)
    }

    /// Inserts every readable name of a directory into its tree.
    fn build(&self, names: &mut Names<'_, '_, M>) -> Result<()> {
        let (core, dir) = (self.core, names.dir);
        let told = Told::read(core, core.ino(dir), &mut |error| {
            self.go_on_without(dir, Err(error))
        });
        // If bytes were lost in the middle, nothing is known until the next attempt.
        let read = self.check_media();
        if self.is_unsure() {
            return read;
        }
        let told = self.go_on_without(dir, told.map(Some))?.unwrap_or_default();
        self.go_on_without(dir, read)?;
        let top = self.insert_all(dir, &told)?;
        core.set(dir, field::TOP_NODE, top);
        self.count(Tally::Names, told.there().count() as i64);
        if core.has_flag(dir, flag::COUNTED) || self.check_names(dir).is_err() {
            return Ok(());
        }
        let is_dir = |came: &&Came| came.target.kind() == Some(FileKind::Directory);
        names.begin(core.tail_on_pool(core.ino(dir))?, told.next_cookie);
        let generation = core.get(dir, field::DEAD) >> 32 << 32;
        core.set(dir, field::DEAD, generation | told.dead);
        let subdirectories = told.there().filter(is_dir).count() as u64;
        core.set(dir, field::LINKS, 2 + subdirectories);
        let children = told.there().count() as u64;
        core.set(dir, field::CHILDREN, children * CHILD_ONE);
        core.raise_flag(dir, flag::COUNTED);
        Ok(())
    }

    /// Builds a tree of the names that exist. Returns its topmost node. Marks the directory if that
    /// meets damage.
    fn insert_all(&self, dir: Cachelet, told: &Told) -> Result<u64> {
        let core = self.core;
        let mut top = 0;
        for came in told.there() {
            let mut buffer = [0; NAME_MAX];
            let leaf = Leaf::new(came.place, came.hash);
            let name = core.name_of_leaf(leaf, &mut buffer);
            let inserted = if core.radix_find_under(top, name).is_some() {
                let place = Location::Slot(came.place.slot());
                self.go_on_without(dir, Err(Error::damaged("two records of one name", place)))
            } else {
                core.radix_prepare(top, name, leaf)
                    .map(|insertion| core.radix_publish_unseen(&mut top, insertion))
            };
            if let Err(error) = inserted {
                let nodes = core.radix_nodes(top);
                nodes.into_iter().for_each(|node| core.free_node(node));
                return Err(error);
            }
        }
        Ok(top)
    }

    /// Turns damage in `dir` into success: records it, and continues without what is damaged.
    fn go_on_without<T: Default>(&self, dir: Cachelet, result: Result<T>) -> Result<T> {
        match result {
            Err(error @ (Error::Damaged { .. } | Error::Unreadable(_))) => {
                self.do_without_names(dir, &error);
                Ok(T::default())
            }
            other => other,
        }
    }
}
