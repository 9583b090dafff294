//! Recovery after a crash: slots and blocks in use are those that the root reaches.
//!
//! The inode chunks are read in three passes, shared out to threads by chunk (DirectFS III-H). The
//! first reads every directory's log and counts names. The second checks that a crash can explain
//! what it finds: anything else is damage, and the pool is not opened; until then only journal
//! replay has written to it. The third settles every inode by its count of names and marks slots as
//! used. Then the mapping table is judged.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use vellum_layout::{
    ChunkKind, FileKind, IdentityWord, Inode, InodeState, LinksWord, MapRoot, MapState, ROOT_SLOT,
    text_home,
};
use vellum_media::{Memories, Memory, Persistent, Site};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::core::cachelet::check_inode;
use crate::core::inodes::{for_each_file, is_file};
use crate::core::slots::Tally;
use crate::core::xattrs::XattrSet;
use crate::error::{Error, Location, Result};
use crate::mapping::{MapId, Survey, Verdict};
use crate::namespace::{Mender, Namespace, SurveyedName, SurveyedNames};
use crate::sites;

/// What the first pass finds out about the inodes of one chunk.
struct ChunkTally {
    /// Valid entries that name the inode.
    names: Vec<AtomicU32>,
    /// Directories: subdirectories.
    subdirectories: Vec<AtomicU32>,
    /// Directories: time of the latest change recorded in an entry.
    latest: Vec<AtomicI64>,
    /// Directories: whether they are known to be below the root.
    reach_root: Vec<AtomicBool>,
    /// Why inodes cannot be read. This is damage if they have a name, else residue of a creation
    /// that did not reach its log word.
    troubles: Mutex<HashMap<usize, Error>>,
}

impl ChunkTally {
    fn new(slots: u64) -> Self {
        let count = 0..slots;
        Self {
            names: count.clone().map(|_| AtomicU32::new(0)).collect(),
            subdirectories: count.clone().map(|_| AtomicU32::new(0)).collect(),
            latest: count.clone().map(|_| AtomicI64::new(0)).collect(),
            reach_root: count.map(|_| AtomicBool::new(false)).collect(),
            troubles: Mutex::default(),
        }
    }
}

/// The results of the scan.
pub(super) struct Recovery<'a, M: Memories> {
    core: &'a Core<M>,
    found: Box<dyn SurveyedNames + 'a>,
    /// One tally for each chunk of inodes.
    tallies: HashMap<u64, ChunkTally>,
    /// Owners of mapping ids that differ from the owner's inode number.
    foreign_ids: Mutex<HashMap<MapId, u64>>,
    inodes: AtomicU64,
    freed: AtomicU64,
    /// Stored words, which the thread that fences has to flush.
    stored: Mutex<Vec<(Site, u64)>>,
}

/// Recovers names and inodes; the mapping is rebuilt by [`Recovery::judge`] after this. Flushed,
/// not fenced.
pub(super) fn recover<'a, M: Memories>(
    core: &'a Core<M>,
    namespace: &dyn Namespace<M>,
    threads: usize,
) -> Result<Recovery<'a, M>> {
    let chunks: Vec<u64> = core.chunks_of(ChunkKind::Inodes).collect();
    let slots = core.geometry.slots_per_chunk();
    let recovery = Recovery {
        core,
        found: namespace.survey(core, threads)?,
        tallies: chunks
            .iter()
            .map(|&chunk| (chunk, ChunkTally::new(slots)))
            .collect(),
        foreign_ids: Mutex::default(),
        inodes: AtomicU64::new(0),
        freed: AtomicU64::new(0),
        stored: Mutex::default(),
    };
    recovery.for_each_inode(&chunks, threads, &|ino, inode| {
        let read = recovery.count_names(ino, inode);
        recovery.suspend(ino, read)
    })?;
    recovery.for_each_inode(&chunks, threads, &|ino, inode| recovery.check(ino, inode))?;
    recovery.found.check()?;
    recovery.for_each_inode(&chunks, threads, &|ino, inode| recovery.settle(ino, inode))?;
    recovery.found.finish(&recovery)?;
    recovery.flush_stored();
    core.set_total(Tally::Inodes, recovery.inodes.load(Ordering::Relaxed));
    Ok(recovery)
}

impl<M: Memories> Mender for Recovery<'_, M> {
    fn store(&self, site: Site, at: u64, value: u64) {
        self.core.set_word(at, value);
        let stored = self.stored.lock();
        stored
            .unwrap_or_else(PoisonError::into_inner)
            .push((site, at));
    }

    fn claim(&self, slot: u64, count: u64) -> Result<()> {
        self.core.slot_at(slot)?;
        self.core.slot_at(slot + count - 1)?;
        if self.core.note_used(slot, count) {
            Ok(())
        } else {
            Err(Error::damaged(
                "metadata slot in use twice",
                Location::Slot(slot),
            ))
        }
    }
}

impl<M: Memories> Recovery<'_, M> {
    /// Flushes what the passes stored. A fence completes only the flushes of its own thread.
    fn flush_stored(&self) {
        let stored = self.stored.lock();
        let mut stored = stored.unwrap_or_else(PoisonError::into_inner);
        for (site, at) in stored.drain(..) {
            self.core.pool.flush(site, at, 8);
        }
    }

    fn tally(&self, ino: u64) -> Option<(&ChunkTally, usize)> {
        let slots = self.core.geometry.slots_per_chunk();
        self.tallies
            .get(&(ino / slots))
            .map(|tally| (tally, (ino % slots) as usize))
    }

    fn names(&self, ino: u64) -> u32 {
        let names = self
            .tally(ino)
            .map_or(0, |(t, i)| t.names[i].load(Ordering::Relaxed));
        names + u32::from(ino == ROOT_SLOT)
    }

    /// Keeps an error about an inode until it is known whether the inode has a name: a creation
    /// that did not commit may leave any part of one (`docs/crash/recovery.md`).
    fn suspend(&self, ino: u64, read: Result<()>) -> Result<()> {
        let (Err(error), Some((tally, own))) = (read, self.tally(ino)) else {
            return Ok(());
        };
        let troubles = tally.troubles.lock();
        troubles
            .unwrap_or_else(PoisonError::into_inner)
            .insert(own, error);
        Ok(())
    }

    /// Returns the error about an inode that has a name.
    fn trouble(&self, ino: u64) -> Option<Error> {
        let (tally, own) = self.tally(ino)?;
        tally
            .troubles
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&own)
    }

    /// Calls `each` for every inode in use, on several threads if there is more than one chunk.
    fn for_each_inode(
        &self,
        chunks: &[u64],
        threads: usize,
        each: &(dyn Fn(u64, &Inode) -> Result<()> + Sync),
    ) -> Result<()> {
        let threads = threads.clamp(1, chunks.len().max(1));
        if threads == 1 {
            return chunks
                .iter()
                .try_for_each(|&chunk| self.chunk_inodes(chunk, each));
        }
        let next = AtomicU64::new(0);
        let run = || loop {
            let index = next.fetch_add(1, Ordering::Relaxed) as usize;
            let Some(&chunk) = chunks.get(index) else {
                return Ok(());
            };
            self.chunk_inodes(chunk, each)?;
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
            let mut result = run();
            for other in others {
                let done = other
                    .join()
                    .unwrap_or(Err(Error::Invalid("recovery thread failed")));
                result = result.and(done);
            }
            result
        })
    }

    fn chunk_inodes(&self, chunk: u64, each: &dyn Fn(u64, &Inode) -> Result<()>) -> Result<()> {
        let slots = self.core.geometry.slots_per_chunk();
        for ino in (chunk * slots).max(1)..(chunk + 1) * slots {
            let at = self.core.geometry.slot_at(ino);
            if IdentityWord(self.core.word(at)).state() == Some(InodeState::Free) {
                continue;
            }
            let mut inode = Inode::default();
            self.core.pool.read(at, inode.as_mut_bytes());
            each(ino, &inode)?;
        }
        Ok(())
    }

    /// First pass: counts the inodes that a directory's valid entries name.
    fn count_names(&self, ino: u64, inode: &Inode) -> Result<()> {
        let core = self.core;
        check_inode(ino, inode, &core.geometry)?;
        if kind_of(inode) != FileKind::Directory {
            return Ok(());
        }
        let (tally, own) = self
            .tally(ino)
            .ok_or(Error::damaged("inode", Location::Inode(ino)))?;
        self.found.read(ino, inode, &mut |name| {
            tally.latest[own].fetch_max(name.changed_ns, Ordering::Relaxed);
            if self.count_name(ino, &name)? == Some(FileKind::Directory) {
                tally.subdirectories[own].fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })
    }

    /// Counts a name in directory `dir`, unless it is dead. Returns the kind of the file that has
    /// it.
    fn count_name(&self, dir: u64, name: &SurveyedName) -> Result<Option<FileKind>> {
        let core = self.core;
        let damaged = |what| Error::damaged(what, name.entry);
        let Some((target, generation)) = name.target else {
            return Ok(None);
        };
        let (there, index) = self
            .tally(target.ino())
            .ok_or(damaged("entry names no inode"))?;
        let identity = core.identity_on_pool(target.ino());
        // An inode becomes an orphan once its last entry is durably dead.
        if identity.state() == Some(InodeState::Orphan) {
            return Err(damaged("entry names an orphan"));
        }
        if identity.state() == Some(InodeState::Free)
            || identity.generation() != generation
            || identity.kind() != target.kind()
        {
            return Err(damaged("entry names another inode than there is"));
        }
        there.names[index].fetch_add(1, Ordering::Relaxed);
        if identity.kind() == Some(FileKind::Directory) {
            let parent = core.word(core.geometry.slot_at(target.ino()) + Inode::PARENT);
            if parent != dir {
                return Err(damaged("directory names another parent"));
            }
        }
        Ok(identity.kind())
    }

    /// Second pass: checks that a crash can explain this inode. Nothing has been written yet.
    fn check(&self, ino: u64, inode: &Inode) -> Result<()> {
        let trouble = self.trouble(ino);
        let names = self.names(ino);
        match trouble {
            Some(error) if names > 0 => return Err(error),
            Some(_) if check_inode(ino, inode, &self.core.geometry).is_err() => return Ok(()),
            _ => {}
        }
        if names > 0 {
            self.check_xattrs(ino, inode)?;
        }
        match kind_of(inode) {
            FileKind::Directory => {}
            FileKind::Symlink if names > 0 => {
                let generation = IdentityWord(inode.identity).generation();
                let text = self.core.text(ino, generation, inode.size, inode.root);
                return text.map(drop);
            }
            _ => return Ok(()),
        }
        match names {
            0 => self.check_empty(ino, inode),
            1 => self.check_reached(ino),
            _ => Err(Error::damaged(
                "directory has two names",
                Location::Inode(ino),
            )),
        }
    }

    /// Reads the extended attributes of an inode with a name.
    fn xattrs(&self, ino: u64, inode: &Inode) -> Result<XattrSet> {
        let generation = IdentityWord(inode.identity).generation();
        self.core.xattrs_at(ino, generation, inode.xattr_root)
    }

    /// Checks the extended attributes of an inode with a name, and the flags that say which it has.
    fn check_xattrs(&self, ino: u64, inode: &Inode) -> Result<()> {
        let flags = self.xattrs(ino, inode)?.flags();
        if IdentityWord(inode.identity).with_xattr_flags(flags).0 != inode.identity {
            let place = Location::Inode(ino);
            return Err(Error::damaged("flags of extended attributes", place));
        }
        Ok(())
    }

    /// Checks that a directory without a name has no entries, as far as its log can be read: a
    /// creation or a removal leaves it empty.
    fn check_empty(&self, ino: u64, inode: &Inode) -> Result<()> {
        if self.found.holds_names(ino, inode) {
            let place = Location::Inode(ino);
            return Err(Error::damaged(
                "directory without a name has entries",
                place,
            ));
        }
        Ok(())
    }

    /// Checks that the parents of a directory lead to the root. Each directory is passed once,
    /// however deep the tree below it is.
    fn check_reached(&self, ino: u64) -> Result<()> {
        let core = self.core;
        let parent = |at| core.slot_at(at).map(|at| core.word(at + Inode::PARENT));
        let (mut at, mut passed) = (ino, 0);
        while !self.reaches_root(at) {
            if passed > core.geometry.meta_slots() {
                return Err(Error::damaged(
                    "directories form a circle",
                    Location::Inode(ino),
                ));
            }
            at = parent(at)?;
            passed += 1;
        }
        at = ino;
        for _ in 0..passed {
            if let Some((tally, own)) = self.tally(at) {
                tally.reach_root[own].store(true, Ordering::Relaxed);
            }
            at = parent(at)?;
        }
        Ok(())
    }

    fn reaches_root(&self, ino: u64) -> bool {
        let is_known = self
            .tally(ino)
            .is_some_and(|(tally, own)| tally.reach_root[own].load(Ordering::Relaxed));
        ino == ROOT_SLOT || is_known
    }

    /// Third pass: frees inodes without names, corrects counts and times, marks slots as used.
    fn settle(&self, ino: u64, inode: &Inode) -> Result<()> {
        let core = self.core;
        let at = core.geometry.slot_at(ino);
        let names = self.names(ino);
        if names == 0 {
            let dead = IdentityWord(inode.identity).with_state(InodeState::Free);
            self.store(sites::RECOVER_FREE_INODE, at, dead.0);
            self.freed.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        self.inodes.fetch_add(1, Ordering::Relaxed);
        self.claim(ino, 1)?;
        for &(slot, count) in &self.xattrs(ino, inode)?.pieces {
            self.claim(slot, count)?;
        }
        let links = match kind_of(inode) {
            FileKind::Directory => {
                self.settle_directory(ino, inode)?;
                let (tally, own) = self.tally(ino).ok_or(Error::Stale)?;
                2 + tally.subdirectories[own].load(Ordering::Relaxed)
            }
            FileKind::Symlink => {
                self.claim(inode.root, text_home(inode.size as usize).1)?;
                names
            }
            FileKind::File => {
                self.note_mapping(ino, inode)?;
                names
            }
            _ => names,
        };
        let links = LinksWord::new(links, 0).0;
        if inode.links != links {
            self.store(sites::RECOVER_LINKS, at + Inode::LINKS, links);
        }
        Ok(())
    }

    /// Marks a named directory's entries and log extents as used. Its entries may be newer than the
    /// times in its inode.
    fn settle_directory(&self, ino: u64, inode: &Inode) -> Result<()> {
        let core = self.core;
        self.found.settle(ino, inode, self)?;
        let (tally, own) = self.tally(ino).ok_or(Error::Stale)?;
        let latest = tally.latest[own].load(Ordering::Relaxed);
        if latest > inode.ctime {
            let at = core.geometry.slot_at(ino);
            core.set_word(at + Inode::MTIME, latest as u64);
            // In the same line.
            self.store(sites::RECOVER_TIMES, at + Inode::CTIME, latest as u64);
        }
        Ok(())
    }

    fn note_mapping(&self, ino: u64, inode: &Inode) -> Result<()> {
        let Some((_, id)) = MapRoot(inode.root).get() else {
            return Ok(());
        };
        if u64::from(id) == ino {
            return Ok(());
        }
        let foreign = self.foreign_ids.lock();
        let mut foreign = foreign.unwrap_or_else(PoisonError::into_inner);
        if foreign.insert(id, ino).is_some() || self.is_owner(id.into(), id) {
            let place = Location::Inode(ino);
            return Err(Error::damaged("mapping id of two files", place));
        }
        Ok(())
    }

    /// Whether `ino` is a file whose blocks carry `id`.
    fn is_owner(&self, ino: u64, id: MapId) -> bool {
        let core = self.core;
        let root = || MapRoot(core.word(core.geometry.slot_at(ino) + Inode::ROOT));
        is_file(core, ino) && root().get() == Some((0, id))
    }

    /// How many inodes without names were freed.
    pub(super) fn freed(&self) -> u64 {
        self.freed.load(Ordering::Relaxed)
    }
}

impl<M: Memories> Survey for Recovery<'_, M> {
    fn for_each_file(&self, each: &mut dyn FnMut(MapId) -> Result<()>) -> Result<()> {
        for_each_file(self.core, each)
    }

    fn marks_slots(&self) -> bool {
        true
    }

    /// A block is kept if its file exists and reaches that far.
    fn judge(&self, id: MapId, logical: u32, state: MapState) -> Verdict {
        let core = self.core;
        let own = u64::from(id);
        let foreign = || {
            self.foreign_ids
                .lock()
                .ok()
                .and_then(|ids| ids.get(&id).copied())
        };
        let owner = Some(own)
            .filter(|&ino| self.is_owner(ino, id))
            .or_else(|| foreign().filter(|&ino| self.is_owner(ino, id)));
        let Some(owner) = owner else {
            return Verdict::Free;
        };
        let word = |field| core.word(core.geometry.slot_at(owner) + field);
        let blocks = word(Inode::SIZE).div_ceil(vellum_layout::BLOCK_BYTES);
        let beyond = u64::from(logical) >= blocks;
        match state {
            MapState::Mapped if beyond => Verdict::Free,
            // The flag is durable before any such block is, so the allocation of this one had not
            // returned.
            MapState::Unwritten if beyond && !MapRoot(word(Inode::ROOT)).is_beyond() => {
                Verdict::Free
            }
            MapState::Mapped | MapState::Unwritten => Verdict::Keep,
            MapState::Free | MapState::Limbo => Verdict::Free,
        }
    }
}

fn kind_of(inode: &Inode) -> FileKind {
    IdentityWord(inode.identity)
        .kind()
        .unwrap_or(FileKind::File)
}
