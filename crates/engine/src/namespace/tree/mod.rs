//! The namespace of NOVA (Xu and Swanson, FAST 2016), for comparison: a log for each directory on
//! the pool, a radix tree for each directory in DRAM.
//!
//! A change appends a record to the directory's log. It commits when a journal record moves the
//! log's tail and changes the inode that the record is about ([`create`], [`remove`], [`rename`]),
//! so names and inodes never disagree. The tree finds the record of a name, and the record names
//! the inode. A directory's tree is built from its log at the first access ([`build`]). A log of
//! which less than half is alive is copied ([`recycle`]).
//!
//! Changes of a directory's names exclude each other ([`log::Names`]), as under the kernel's inode
//! lock in NOVA: a log with one tail has one writer. Lookups and listings take no lock.
//!
//! Deviations from NOVA, and why:
//! * One redo record of the thread slot, where NOVA journals and then stores. If no inode is new, a
//!   witness binds it to the log's record, which saves a fence.
//! * A radix tree of 16 ways whose leaves lie as high as they can, instead of one of 64 ways over
//!   the whole hash, with which a directory of ten names would take 20 KiB. Names with equal hashes
//!   are two names.
//! * Names do not hold their files in DRAM; the inode leads to the cachelet.
//! * A full pool can remove names: without space for a further record, the record that added the
//!   name is changed in place.

mod build;
mod create;
mod forget;
mod list;
mod log;
mod radix;
mod recover;
mod recycle;
mod remove;
mod rename;

use vellum_layout::{NameRecord, TargetWord, name_hash};
use vellum_media::Memories;

use self::radix::Leaf;
use crate::core::Core;
use crate::core::cachelet::Cachelet;
use crate::core::named::Named;
use crate::core::slots::{Op, pause};
use crate::error::{Error, Location, Result};
use crate::namespace::common::{check_name, evict};
use crate::namespace::{
    ListEntry, ListHint, ListRange, Namespace, NewInode, Removal, Rename, SurveyedNames,
};

#[cfg(test)]
pub(crate) use self::forget::forget_names;
pub(crate) use self::radix::NODE_BYTES;

/// The namespace of NOVA. All of its state is in pool and arena.
#[derive(Debug)]
pub(crate) struct Tree;

/// A name with its hash.
#[derive(Clone, Copy)]
struct Name<'a> {
    bytes: &'a [u8],
    hash: u32,
}

impl<'a> Name<'a> {
    fn new<M: Memories>(core: &Core<M>, bytes: &'a [u8]) -> Result<Self> {
        check_name(bytes)?;
        Ok(Self {
            bytes,
            hash: name_hash(core.seed, bytes),
        })
    }
}

impl Tree {
    /// Finds the leaf of a name that exists, after waiting for changes of it. Builds the
    /// directory's tree first if there is none.
    fn find_leaf<M: Memories>(
        op: &Op<'_, M>,
        dir: Cachelet,
        name: Name<'_>,
    ) -> Result<Option<Leaf>> {
        let core = op.core;
        let mut tries = 0;
        loop {
            let token = op.index_token(dir);
            match core.radix_find(dir, name) {
                Some((_, leaf)) if leaf.is_busy() => pause(&core.arena, &mut tries),
                Some((_, leaf)) => return Ok(Some(leaf)),
                None if token.is_some() && op.index_token(dir) == token => {
                    // An unreadable name may be this one.
                    op.check_media()?;
                    return op.check_names(dir).map(|()| None);
                }
                None => op.ensure_tree(dir)?,
            }
        }
    }

    /// Finds the file of a name.
    fn find<M: Memories>(
        op: &Op<'_, M>,
        dir: Cachelet,
        name: Name<'_>,
    ) -> Result<Option<Cachelet>> {
        loop {
            let Some(leaf) = Self::find_leaf(op, dir, name)? else {
                return Ok(None);
            };
            match Self::load(op, dir, leaf) {
                Ok(file) => return Ok(Some(file)),
                // A directory may have been moved meanwhile. So this is damage only if the name is
                // unchanged.
                Err(error) if op.core.radix_find(dir, name).map(|(_, leaf)| leaf) == Some(leaf) => {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
    }

    /// The file that the record of a leaf names. Its inode is not reused while the operation lasts.
    fn load<M: Memories>(op: &Op<'_, M>, dir: Cachelet, leaf: Leaf) -> Result<Cachelet> {
        let core = op.core;
        let at = core.record_at(leaf.place());
        op.load_named(&Named {
            entry: Location::Slot(leaf.place().slot()),
            dir: core.ino(dir),
            target: TargetWord(core.word(at + NameRecord::TARGET)),
            generation: core.word(at + NameRecord::NAME_WORD) as u32,
        })
    }
}

impl<M: Memories> Namespace<M> for Tree {
    fn lookup(&self, op: &Op<'_, M>, dir: Cachelet, name: &[u8]) -> Result<Cachelet> {
        let name = Name::new(op.core, name)?;
        Self::find(op, dir, name)?.ok_or(Error::NotFound)
    }

    fn create(
        &self,
        op: &Op<'_, M>,
        dir: Cachelet,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Cachelet> {
        Self::make(op, dir, Name::new(op.core, name)?, new)
    }

    fn link(&self, op: &Op<'_, M>, dir: Cachelet, name: &[u8], target: Cachelet) -> Result<()> {
        Self::add_link(op, dir, Name::new(op.core, name)?, target)
    }

    fn remove(
        &self,
        op: &Op<'_, M>,
        dir: Cachelet,
        name: &[u8],
        removal: Removal,
        allow: &mut dyn FnMut(Cachelet) -> Result<()>,
    ) -> Result<()> {
        Self::unmake(op, dir, Name::new(op.core, name)?, removal, allow)
    }

    fn rename(
        &self,
        op: &Op<'_, M>,
        rename: &Rename<'_>,
        allow: &mut dyn FnMut(Cachelet, Option<Cachelet>) -> Result<()>,
    ) -> Result<()> {
        Self::move_name(op, rename, allow)
    }

    fn last_cookie(&self, op: &Op<'_, M>, dir: Cachelet) -> Result<u64> {
        op.last_cookie_of_tree(dir)
    }

    fn list(
        &self,
        op: &Op<'_, M>,
        dir: Cachelet,
        range: ListRange,
        hint: &mut ListHint,
        each: &mut dyn FnMut(ListEntry<'_>) -> bool,
    ) -> Result<Option<u64>> {
        Self::list_names(op, dir, range, hint, each)
    }

    fn settle(&self, op: &Op<'_, M>, dir: Cachelet) -> Result<()> {
        op.ensure_tree(dir)
    }

    fn recycle(&self, core: &Core<M>, dir: Cachelet, _urgent: bool) -> Result<()> {
        recycle::recycle(core, dir)
    }

    fn evict(&self, core: &Core<M>, urgent: bool) -> Result<u64> {
        evict::evict(core, self, urgent)
    }

    fn dissolve(&self, core: &Core<M>, dir: Cachelet) -> Result<()> {
        recycle::dissolve(core, dir)
    }

    fn check_pool(&self, _: &Core<M>, _: bool) -> Result<()> {
        Ok(())
    }

    fn witnessed(&self, core: &Core<M>, entry_at: u64) -> Option<u32> {
        recover::witnessed(core, entry_at)
    }

    fn survey<'a>(
        &self,
        core: &'a Core<M>,
        _threads: usize,
    ) -> Result<Box<dyn SurveyedNames + 'a>> {
        Ok(Box::new(recover::Logs(core)))
    }
}
