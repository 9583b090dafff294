//! Creating inodes, and finding the inodes of names.

use vellum_layout::{
    ChunkKind, DirLocation, FileKind, IdentityWord, Inode, InodeState, LinksWord, NamespaceKind,
    OwnerWord, ROOT_SLOT, text_check, text_home,
};
use vellum_media::{Memories, Memory, Persistent};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::core::alloc::{SPARE_BLOCKS, Take};
use crate::core::cachelet::{CHILD_ONE, Cachelet, MAKING_ONE, field, flag};
use crate::core::named::Named;
use crate::core::quotas::{Owners, Space};
use crate::core::slots::{Op, Tally};
use crate::core::times::Times;
use crate::core::xattrs::XattrSet;
use crate::error::{Error, Location, Result};
use crate::namespace::NewInode;
use crate::sites;

/// Resources that a creation has allocated. Frees everything if the creation ends early. Nobody can
/// have used the new name, which did not exist.
pub(crate) struct Making<'o, 'a, M: Memories> {
    op: &'o Op<'a, M>,
    dir: Cachelet,
    inode: Option<u64>,
    /// What was counted, until there is an inode that is counted.
    charged: Option<(Owners, Space)>,
    text: Option<(u64, u64)>,
    /// Few files have any, and then it is moved several times.
    xattrs: Option<Box<XattrSet>>,
    /// Slot of the entry, and number of slots.
    pub(crate) entry: Option<(u64, u64)>,
    cachelet: Option<Cachelet>,
    /// Set once the inode was written, and so can be found by its number.
    written: Option<Cachelet>,
    /// Number of references that the name holds.
    name_refs: u64,
}

/// What [`Op::write_inode`] needs of an inode that is taken.
struct Taken {
    ino: u64,
    cachelet: Cachelet,
    state: InodeState,
    links: u64,
    /// Number of references that the name holds.
    name_refs: u64,
}

impl<'o, 'a, M: Memories> Making<'o, 'a, M> {
    /// Counts a creation in `dir`. Allocates nothing yet. A name of the file will hold `name_refs`
    /// references.
    pub(crate) fn begin(op: &'o Op<'a, M>, dir: Cachelet, name_refs: u64) -> Result<Self> {
        op.enter_children(dir, CHILD_ONE + MAKING_ONE)?;
        Ok(Self {
            op,
            dir,
            inode: None,
            charged: None,
            text: None,
            xattrs: None,
            entry: None,
            cachelet: None,
            written: None,
            name_refs,
        })
    }

    /// Counts the inode for its owners.
    #[cold]
    #[inline(never)]
    fn charge(&mut self, new: &NewInode<'_>) -> Result<()> {
        let (owners, space) = (new.owners(), Space::of_new(new.kind));
        self.op.core.charge(owners, space, new.uid != 0)?;
        self.charged = Some((owners, space));
        Ok(())
    }

    /// Allocates an inode and its cachelet. Returns the inode number.
    pub(crate) fn take_inode(&mut self, new: &NewInode<'_>) -> Result<u64> {
        let core = self.op.core;
        if core.has_quotas() {
            self.charge(new)?;
        }
        self.cachelet = Some(core.take_cachelet(self.op)?);
        let ino = self.op.alloc(ChunkKind::Inodes, 1)?;
        if core.identity_on_pool(ino).state() != Some(InodeState::Free) {
            // The live map is wrong although its check passed. The slot stays in use.
            return Err(Error::damaged(
                "a free inode that is in use",
                Location::Inode(ino),
            ));
        }
        self.inode = Some(ino);
        Ok(ino)
    }

    /// Writes the text of a symlink, and extended attributes, of the allocated inode. Flushed, not
    /// fenced.
    #[inline]
    pub(crate) fn write_contents(&mut self, new: &NewInode<'_>) -> Result<()> {
        match new.kind == FileKind::Symlink || !new.xattrs.is_empty() {
            true => self.write_some(new),
            false => Ok(()),
        }
    }

    #[inline(never)]
    fn write_some(&mut self, new: &NewInode<'_>) -> Result<()> {
        if new.kind == FileKind::Symlink {
            self.text = Some(self.op.write_text(new.target)?);
        }
        if let Some(ino) = self.inode.filter(|_| !new.xattrs.is_empty()) {
            let owner = (ino, self.op.core.next_generation(ino));
            let bytes = new.xattrs.to_vec();
            let set = self
                .op
                .write_xattrs(sites::CREATE_XATTRS, owner, bytes, Take::Common)?;
            self.xattrs = Some(Box::new(set));
        }
        Ok(())
    }

    /// Writes the allocated inode, and fills its cachelet. Returns the cachelet and the generation.
    /// Past the cache, not fenced. If `state` is not live, the inode becomes live later, and the
    /// cachelet is locked until then ([`Core::unlock_made`]).
    pub(crate) fn write_inode(
        &mut self,
        new: &NewInode<'_>,
        now: i64,
        state: InodeState,
    ) -> Result<(Cachelet, u32)> {
        let (Some(ino), Some(cachelet)) = (self.inode.take(), self.cachelet.take()) else {
            return Err(Error::Stale);
        };
        let (dir, text) = (self.dir, self.text.take());
        let xattrs = self.xattrs.take();
        let place = self.op.place_of(new.kind, self.entry);
        let taken = Taken {
            ino,
            cachelet,
            state,
            links: if new.kind == FileKind::Directory {
                2
            } else {
                1
            },
            name_refs: self.name_refs,
        };
        let parts = (text, xattrs, place);
        let generation = self.op.write_inode(&taken, parts, dir, new, now);
        self.charged = None;
        self.written = Some(cachelet);
        Ok((cachelet, generation))
    }

    /// Keeps all resources, because the name will exist.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl<M: Memories> Drop for Making<'_, '_, M> {
    fn drop(&mut self) {
        let core = self.op.core;
        if let Some((owners, space)) = self.charged {
            core.discharge(owners, space);
        }
        if let Some(ino) = self.inode {
            // Nothing was written there, so the inode on the pool is still free.
            core.free_slots(ino, 1);
        }
        self.xattrs.iter().for_each(|set| core.free_xattrs(set));
        for (slot, count) in self.text.into_iter().chain(self.entry) {
            core.free_slots(slot, count);
        }
        if let Some(cachelet) = self.cachelet {
            core.free_cachelet(cachelet);
        }
        if let Some(cachelet) = self.written {
            // Another operation may have found it, so it is removed like a file that lost its last
            // name.
            self.op.count(Tally::Inodes, 1);
            core.raise_flag(cachelet, flag::UNLINKED);
            if core.drop_refs(cachelet, self.name_refs) == 0 {
                core.queue_work(cachelet);
            }
        }
        self.op.leave_children(self.dir, CHILD_ONE + MAKING_ONE);
    }
}

impl<M: Memories> Core<M> {
    /// The generation of the next file in the free inode `ino`.
    fn next_generation(&self, ino: u64) -> u32 {
        self.identity_on_pool(ino).generation().wrapping_add(1)
    }
}

impl<M: Memories> Op<'_, M> {
    /// Writes the text of a symlink. Flushed, not fenced.
    fn write_text(&self, text: &[u8]) -> Result<(u64, u64)> {
        let core = self.core;
        let (home, count) = text_home(text.len());
        let slot = match home {
            ChunkKind::Blocks => self.alloc_block(SPARE_BLOCKS)?,
            _ => self.alloc(home, count)?,
        };
        let at = core.geometry.slot_at(slot);
        core.pool.write(at, text);
        core.pool.flush(sites::CREATE_TEXT, at, text.len() as u64);
        Ok((slot, count))
    }

    /// Writes the inode and fills its cachelet. Returns the generation. Past the cache, not fenced.
    fn write_inode(
        &self,
        taken: &Taken,
        (text, xattrs, place): (Option<(u64, u64)>, Option<Box<XattrSet>>, u64),
        dir: Cachelet,
        new: &NewInode<'_>,
        now: i64,
    ) -> u32 {
        let core = self.core;
        let &Taken { ino, cachelet, .. } = taken;
        let at = core.geometry.slot_at(ino);
        let is_dir = new.kind == FileKind::Directory;
        let generation = core.next_generation(ino);
        let identity = IdentityWord::new(InodeState::Live, new.kind, new.mode, generation);
        let xattr_flags = xattrs.as_deref().map_or(0, XattrSet::flags);
        let mut inode = Inode {
            identity: identity
                .with_xattr_flags(xattr_flags)
                .with_flags(new.flags)
                .0,
            owner: OwnerWord::new(new.uid, new.gid).0,
            links: LinksWord::new(taken.links as u32, 0).0,
            btime: now,
            parent: if is_dir { core.ino(dir) } else { new.device },
            xattr_root: xattrs.as_deref().map_or(0, XattrSet::root),
            project: new.project,
            size: new.target.len() as u64,
            mtime: now,
            ctime: now,
            atime: now,
            root: text.map_or(0, |(slot, _)| slot),
            detail: match text {
                Some(_) => text_check(ino, generation, new.target),
                None => place,
            },
            cachelet: core.nv_pointer_to(cachelet),
            ..Inode::default()
        };
        inode.checksum = inode.expected_checksum(ino);
        // The cachelet is complete before the inode names it. So an operation that looks the inode
        // number up finds this one and creates no other.
        core.set(cachelet, field::IDENTITY, inode.identity);
        core.set(cachelet, field::OWNER, inode.owner);
        core.set(cachelet, field::LINKS, taken.links);
        core.set(cachelet, field::SIZE, inode.size);
        core.set(cachelet, field::ATIME, now as u64);
        let times = Times {
            mtime: now,
            ctime: now,
        };
        core.begin_times(cachelet, new.kind, times);
        core.set(cachelet, field::ROOT, inode.root);
        core.set(cachelet, field::REFS, taken.name_refs);
        let empty = if is_dir {
            flag::INDEXED | flag::COUNTED
        } else {
            0
        };
        let unnamed = if taken.links == 0 { flag::UNLINKED } else { 0 };
        core.set(cachelet, field::FLAGS, flag::KNOWN | empty | unnamed);
        core.set(cachelet, field::INO, ino);
        let state = taken.state;
        if state != InodeState::Live {
            core.lock_made(self, cachelet);
            inode.identity = IdentityWord(inode.identity).with_state(state).0;
        }
        // A creation that ended early leaves the same bytes.
        core.pool
            .write_fresh(sites::CREATE_INODE, at, inode.as_bytes());
        generation
    }

    /// Creates an inode without a name, which belongs where `dir` is. It lives as long as somebody
    /// holds it: recovery frees it. With 1 as `links` it is about to get a name.
    pub(crate) fn create_unnamed(
        &self,
        dir: Cachelet,
        new: &NewInode<'_>,
        links: u64,
    ) -> Result<Cachelet> {
        let mut making = Making::begin(self, dir, 0)?;
        making.take_inode(new)?;
        making.write_contents(new)?;
        let (Some(ino), Some(cachelet)) = (making.inode.take(), making.cachelet.take()) else {
            return Err(Error::Stale);
        };
        making.charged = None;
        let taken = Taken {
            ino,
            cachelet,
            state: InodeState::Live,
            links,
            name_refs: 0,
        };
        let xattrs = making.xattrs.take();
        let now = self.core.clock.now();
        self.write_inode(&taken, (None, xattrs, 0), dir, new, now);
        if links > 0 {
            self.core
                .raise_flag(cachelet, flag::NAMING | flag::UNLINKED);
        }
        // Another thread may give it a name, and a fence completes only its own thread's stores.
        self.core.pool.fence(sites::CREATE_UNNAMED_DURABLE);
        // Ends the count of a creation in the directory, which has no new name.
        drop(making);
        Ok(cachelet)
    }

    /// The inode's word for the location of its name's entry.
    fn place_of(&self, kind: FileKind, entry: Option<(u64, u64)>) -> u64 {
        match (self.core.geometry.namespace, kind, entry) {
            (NamespaceKind::Adaptive, FileKind::Directory, Some((slot, _))) => {
                DirLocation::new(slot, 0).0
            }
            _ => 0,
        }
    }

    /// The cachelet of the inode that a name stands for. The caller makes sure that entry and inode
    /// do not change. The directory's inode must name this directory as its parent, so no path
    /// leads back to itself.
    pub(crate) fn load_named(&self, named: &Named) -> Result<Cachelet> {
        let core = self.core;
        let damaged = |what| Error::damaged(what, named.entry);
        let ino = named.target.ino();
        let loaded = match core.load_cachelet(self, ino) {
            Err(Error::Stale) => return Err(damaged("entry names a free inode")),
            loaded => loaded?,
        };
        let identity = core.identity(loaded);
        if identity.generation() != named.generation || identity.kind() != named.target.kind() {
            return Err(damaged("entry names another inode than there is"));
        }
        let parent = || core.word(core.geometry.slot_at(ino) + Inode::PARENT);
        if identity.kind() == Some(FileKind::Directory)
            && (ino == ROOT_SLOT || parent() != named.dir)
        {
            return Err(damaged("directory names another parent"));
        }
        Ok(loaded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checking::kernels::{Job, explore};
    use crate::checking::loom_memory::Swaps;
    use crate::core::cachelet::NAME_ONE;
    use crate::fs::Cred;

    const FILE: NewInode<'_> = NewInode {
        kind: FileKind::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        device: 0,
        target: b"",
        xattrs: b"",
        flags: 0,
        project: 0,
    };

    /// A half-written inode was once taken for a damaged one.
    #[test]
    fn a_number_that_is_given_to_another_file_is_stale_all_the_time() {
        explore(2, Swaps::Plain, |stage| {
            let (fs, cred) = (stage.fs(), Cred::root());
            let made = fs.mknod(&cred, &fs.root(), b"f", FILE.kind, FILE.mode, 0);
            let file = made.unwrap();
            let (ino, generation) = (file.ino(), file.generation());
            drop(file);
            fs.unlink(&cred, &fs.root(), b"f").unwrap();
            fs.reclaim_now().unwrap();
            fs.core.return_all_held();
            let jobs: Vec<Job> = vec![
                Box::new(move |stage| {
                    let found = stage.fs().node(ino, generation);
                    assert!(matches!(found, Err(Error::Stale)), "{found:?}");
                }),
                Box::new(move |stage| {
                    let op = stage.core().op_begin().unwrap();
                    let again = op.alloc(ChunkKind::Inodes, 1).unwrap();
                    assert_eq!(again, ino);
                    let cachelet = op.core.take_cachelet(&op).unwrap();
                    let taken = Taken {
                        ino: again,
                        cachelet,
                        state: InodeState::Live,
                        links: 1,
                        name_refs: NAME_ONE,
                    };
                    let parts = (None, None, 0);
                    op.write_inode(&taken, parts, stage.fs().root, &FILE, 1000);
                }),
            ];
            stage.together(jobs);
            assert!(!fs.is_damaged());
        });
    }
}
