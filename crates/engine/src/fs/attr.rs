//! Attributes: `stat`, `chmod`, `chown`, `utimens`, `statfs`.

use vellum_layout::{FileKind, IdentityWord, Inode, OwnerWord};
use vellum_media::Memories;

use crate::core::Core;
use crate::core::cachelet::{Cachelet, LINK_RESERVED, REF_ONE, field, flag};
use crate::core::quotas::Owners;
use crate::core::setters::setters;
use crate::core::slots::{Op, Tally, pause};
use crate::core::times::Times;
use crate::durability::commit::Durability;
use crate::error::{Error, Result};
use crate::fs::change::{NewWords, SET_GID, SET_UID, droppable};
use crate::fs::file::{check_cuttable, check_size};
use crate::fs::flags::flags_permit;
use crate::fs::path::Follow;
use crate::fs::{Access, Cred, Fs, Node};

/// Stands for a block count that is not known yet. No file has so many blocks.
const UNCOUNTED: u64 = 1 << 50;

/// What `stat` returns.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
/// let dir = fs.mkdir(&cred, &root, b"d", 0o750)?;
/// let attr = fs.attr(&dir)?;
/// assert_eq!((attr.kind, attr.mode, attr.nlink), (vellum::FileKind::Directory, 0o750, 2));
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: u64,
    /// Generation of the inode.
    pub generation: u32,
    /// Kind of file.
    pub kind: FileKind,
    /// Permission bits, set-id bits and the sticky bit.
    pub mode: u16,
    /// Number of names. For directories, 2 plus the number of subdirectories.
    pub nlink: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for device files.
    pub device: u64,
    /// Size in bytes.
    pub size: u64,
    /// Space in use, in units of 512 bytes.
    pub blocks_512: u64,
    /// Last access, in nanoseconds since 1970.
    pub atime_ns: i64,
    /// Last modification, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Last status change, in nanoseconds since 1970.
    pub ctime_ns: i64,
}

/// A time to set.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let volume = pool.volume();
/// use vellum::{SetAttr, SetTime};
///
/// volume.write("/f", "text")?;
/// let times = SetAttr::new().atime(Some(SetTime::Now)).mtime(Some(SetTime::At(0)));
/// assert_eq!(volume.set_attr("/f", &times)?.times_ns()[1], 0);
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The present time.
    Now,
    /// Nanoseconds since 1970.
    At(i64),
}

/// Attributes to change. Those that are `None` stay.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let volume = pool.volume();
/// use vellum::SetAttr;
///
/// volume.write("/f", "text")?;
/// let found = volume.set_attr("/f", &SetAttr::new().mode(Some(0o600)).size(Some(2)))?;
/// assert_eq!((found.permissions().mode(), found.len()), (0o600, 2));
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u16>,
    /// User.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Time of last access.
    pub atime: Option<SetTime>,
    /// Time of last modification.
    pub mtime: Option<SetTime>,
    /// Does what a `chown(2)` does, even one with neither user nor group: set-id bits and
    /// capabilities of files go, and the time of the last status change is set.
    pub chown: bool,
}

setters!(SetAttr:
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # volume.write("/f", "text")?;
    /// let found = volume.set_attr("/f", &vellum::SetAttr::new().mode(Some(0o600)))?;
    /// assert_eq!(found.permissions().mode(), 0o600);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    mode: Option<u16>,
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # let volume = volume.with_cred(vellum::Cred::root());
    /// # volume.write("/f", "text")?;
    /// assert_eq!(volume.set_attr("/f", &vellum::SetAttr::new().uid(Some(1000)))?.uid(), 1000);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    uid: Option<u32>,
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # let volume = volume.with_cred(vellum::Cred::root());
    /// # volume.write("/f", "text")?;
    /// assert_eq!(volume.set_attr("/f", &vellum::SetAttr::new().gid(Some(100)))?.gid(), 100);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    gid: Option<u32>,
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # volume.write("/f", "text")?;
    /// volume.set_attr("/f", &vellum::SetAttr::new().size(Some(2)))?;
    /// assert_eq!(volume.read("/f")?, b"te");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    size: Option<u64>,
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # volume.write("/f", "text")?;
    /// use vellum::{SetAttr, SetTime};
    ///
    /// let found = volume.set_attr("/f", &SetAttr::new().atime(Some(SetTime::At(7))))?;
    /// assert_eq!(found.times_ns()[0], 7);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    atime: Option<SetTime>,
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # volume.write("/f", "text")?;
    /// use vellum::{SetAttr, SetTime};
    ///
    /// let found = volume.set_attr("/f", &SetAttr::new().mtime(Some(SetTime::At(7))))?;
    /// assert_eq!(found.times_ns()[1], 7);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    mtime: Option<SetTime>,
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # volume.write("/f", "text")?;
    /// use vellum::SetAttr;
    ///
    /// volume.set_attr("/f", &SetAttr::new().mode(Some(0o4755)))?;
    /// let found = volume.set_attr("/f", &SetAttr::new().chown(true))?;
    /// assert_eq!(found.permissions().mode(), 0o755);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    chown: bool,
);

impl SetAttr {
    /// Changes nothing.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// let before = volume.metadata("/")?;
    /// assert_eq!(volume.set_attr("/", &vellum::SetAttr::new())?, before);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether this does what a `chown(2)` does.
    pub(super) fn is_chown(&self) -> bool {
        self.chown || self.uid.is_some() || self.gid.is_some()
    }
}

/// What `statfs` returns.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// let found = pool.fs().stat_fs();
/// println!("{} of {} MiB are free", found.blocks_free >> 8, found.blocks >> 8);
/// assert!(found.files_free < found.files); // the root directory is there
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Data blocks of 4 KiB.
    pub blocks: u64,
    /// Free data blocks.
    pub blocks_free: u64,
    /// Data blocks of the pool that are metadata now, neither free nor a file's.
    pub blocks_metadata: u64,
    /// Inodes in use, and those that could be created now.
    pub files: u64,
    /// Inodes that could be created now, each with an entry of its own, if no data were written
    /// meanwhile: free data space becomes metadata.
    pub files_free: u64,
    /// Distinguishes this file system from others, on any machine. It is derived from the UUID, as
    /// ext4 derives `f_fsid`.
    pub fs_id: u64,
}

impl<M: Memories> Fs<M> {
    /// The attributes as of this operation. If the blocks were not counted yet in this mount,
    /// [`Self::counted`] counts them outside the operation.
    pub(crate) fn attr_of(&self, op: &Op<'_, M>, file: Cachelet) -> Attr {
        let core = op.core;
        let identity = core.identity(file);
        let kind = identity.kind().unwrap_or(FileKind::File);
        let owner = core.owner(file);
        let word = |field| core.get(file, field);
        let times = core.times(file);
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        Attr {
            ino: core.ino(file),
            generation: identity.generation(),
            kind,
            mode: identity.mode(),
            nlink: core.durable_links(file),
            uid: owner.uid(),
            gid: owner.gid(),
            device: if is_device {
                core.word(core.inode_at(file) + Inode::PARENT)
            } else {
                0
            },
            size: if kind == FileKind::Directory {
                4096
            } else {
                word(field::SIZE)
            },
            blocks_512: match kind {
                FileKind::File => self.files().blocks_if_known(file).unwrap_or(UNCOUNTED) * 8,
                FileKind::Directory => 8,
                _ => 0,
            },
            atime_ns: word(field::ATIME) as i64,
            mtime_ns: times.mtime,
            ctime_ns: times.ctime,
        }
    }

    /// The attributes of a file.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// assert_eq!(fs.attr(&root)?.nlink, 2);
    /// fs.mkdir(&cred, &root, b"d", 0o755)?;
    /// assert_eq!(fs.attr(&root)?.nlink, 3);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Damaged media.
    pub fn attr(&self, node: &Node<M>) -> Result<Attr> {
        let attr = self.with_op(|op| Ok(self.attr_of(op, node.cachelet)))?;
        self.counted(attr, node.cachelet)
    }

    /// When the file was created, in nanoseconds since 1970. Not one of [`Attr`], because it lies
    /// where only this asks for it.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// use vellum::{SetAttr, SetTime};
    ///
    /// let dir = fs.mkdir(&cred, &root, b"d", 0o755)?;
    /// let born = fs.birth_time_ns(&dir)?;
    /// fs.set_attr(&cred, &dir, &SetAttr::new().mtime(Some(SetTime::At(0))))?;
    /// assert_eq!(fs.birth_time_ns(&dir)?, born);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Damaged media.
    pub fn birth_time_ns(&self, node: &Node<M>) -> Result<i64> {
        self.with_op(|op| {
            let at = op.core.inode_at(node.cachelet) + Inode::BTIME;
            Ok(op.core.word(at) as i64)
        })
    }

    /// The attributes of the file that a path names. Takes no reference to it.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let link = fs.symlink(&cred, &root, b"link", b"/")?;
    /// assert_eq!(fs.stat(&cred, &root, b"link", true)?.ino, root.ino());
    /// assert_eq!(fs.stat(&cred, &root, b"link", false)?.ino, link.ino());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as `stat(2)` does.
    pub fn stat(&self, cred: &Cred, start: &Node<M>, path: &[u8], follow: bool) -> Result<Attr> {
        self.stat_at(cred, start.cachelet, path, follow)
    }

    fn stat_at(&self, cred: &Cred, start: Cachelet, path: &[u8], follow: bool) -> Result<Attr> {
        let follow = if follow {
            Follow::Last
        } else {
            Follow::AllButLast
        };
        let (attr, uncounted) = self.with_op(|op| {
            let found = self.resolve(op, cred, start, path, follow)?;
            let attr = self.attr_of(op, found);
            let uncounted = attr.blocks_512 == UNCOUNTED * 8;
            if uncounted {
                self.core.add_refs(found, REF_ONE);
            }
            Ok((attr, uncounted.then_some(found)))
        })?;
        let Some(file) = uncounted else {
            return Ok(attr);
        };
        let attr = self.counted(attr, file);
        self.release_ref(file);
        attr
    }

    /// Counts the blocks of a file, if that was not done yet. Runs outside any operation.
    fn counted(&self, mut attr: Attr, file: Cachelet) -> Result<Attr> {
        if attr.blocks_512 == UNCOUNTED * 8 {
            attr.blocks_512 = self.files().blocks(file)? * 8;
        }
        Ok(attr)
    }

    /// The attributes of the file that a path from the root names.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let dir = fs.mkdir(&cred, &root, b"d", 0o755)?;
    /// assert_eq!(fs.stat_from_root(&cred, b"/d", true)?.ino, dir.ino());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as `stat(2)` does.
    pub fn stat_from_root(&self, cred: &Cred, path: &[u8], follow: bool) -> Result<Attr> {
        self.stat_at(cred, self.root, path, follow)
    }

    /// Checks whether `want` is permitted.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// use vellum::{Access, Cred, Error};
    ///
    /// fs.access(&cred, &root, Access::WRITE)?;
    /// let denied = fs.access(&Cred::user(54_321, 54_321), &root, Access::WRITE);
    /// assert!(matches!(denied, Err(Error::Access)));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Access`], or [`Error::ReadOnly`] when `want` includes writing.
    pub fn access(&self, cred: &Cred, node: &Node<M>, want: Access) -> Result<()> {
        if want.contains(Access::WRITE) {
            self.core.check_writable()?;
        }
        self.with_op(|op| op.check_access(cred, node.cachelet, want))
    }

    /// Changes attributes.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let dir = fs.mkdir(&cred, &root, b"d", 0o755)?;
    /// let attr = fs.set_attr(&cred, &dir, &vellum::SetAttr::new().uid(Some(1000)))?;
    /// assert_eq!((attr.uid, attr.mode), (1000, 0o755));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as `chmod(2)`, `chown(2)`, `utimensat(2)` and `truncate(2)` do.
    pub fn set_attr(&self, cred: &Cred, node: &Node<M>, set: &SetAttr) -> Result<Attr> {
        self.core.check_writable()?;
        let file = node.cachelet;
        self.with_op(|op| check_set(op, cred, file, set))?;
        if let Some(size) = set.size {
            self.resize(cred, file, size)?;
        }
        let attr = self.with_room(|op| {
            self.apply_set(op, cred, file, set)?;
            Ok(self.attr_of(op, file))
        });
        let attr = self.commit_from(Durability::Sync, attr)?;
        self.counted(attr, file)
    }

    /// Changes everything but the size, through one journal record under the file's lock.
    fn apply_set(&self, op: &Op<'_, M>, cred: &Cred, file: Cachelet, set: &SetAttr) -> Result<()> {
        let core = op.core;
        let SetAttr {
            mode,
            uid,
            gid,
            atime,
            mtime,
            size: _,
            chown: _,
        } = *set;
        let is_chown = set.is_chown();
        if (mode, atime, mtime, is_chown) == (None, None, None, false) {
            return Ok(());
        }
        // Lookups by whole paths rely on everybody's permission, so a change of mode invalidates
        // them.
        let _changing = core.change_paths(mode.is_some() && core.kind(file) == FileKind::Directory);
        let change = op.begin_change(file);
        let now = change.now();
        let at = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::At(ns) => ns,
        };
        let old = core.owner(file);
        let owner = OwnerWord::new(uid.unwrap_or(old.uid()), gid.unwrap_or(old.gid()));
        let identity = core.identity(file);
        let new_mode = self.mode_after(core, cred, file, set, owner);
        // As on Linux, a directory keeps what means nothing for it.
        let ends_capability = is_chown && core.kind(file) != FileKind::Directory;
        let words = NewWords {
            identity: new_mode.map(|mode| identity.with_mode(mode)),
            owner: (owner != old).then_some(owner),
            atime: atime.map(at),
            project: None,
            xattrs: match ends_capability {
                true => op.without_capability(file)?,
                false => None,
            },
        };
        let owners = words.owner.map(|owner| Owners {
            owner,
            ..core.owners(file)
        });
        self.move_usage(op, cred, file, owners)?;
        let mtime = mtime.map(at);
        let times = Times {
            mtime: mtime.unwrap_or(change.before.mtime),
            ctime: now,
        };
        op.set_words(file, words, times);
        change.show(mtime, now);
        Ok(())
    }

    /// The permission bits after `set`, if they change. A `chown` drops the set-id bits of files. A
    /// mode set by a user outside the group cannot include set-gid.
    fn mode_after(
        &self,
        core: &Core<M>,
        cred: &Cred,
        file: Cachelet,
        set: &SetAttr,
        owner: OwnerWord,
    ) -> Option<u16> {
        let old = core.identity(file).mode();
        let mut new = set.mode.map(|mode| mode & 0o7777);
        if set.is_chown() && core.kind(file) != FileKind::Directory {
            let kept = old & !droppable(core, cred, file);
            let asked = new.map(|mode| mode & (kept | !(SET_UID | SET_GID)));
            new = asked.or((kept != old).then_some(kept));
        }
        let outside = !cred.privileged && !cred.in_group(owner.gid());
        new.map(|mode| if outside { mode & !SET_GID } else { mode })
    }

    /// Cuts or extends a file.
    pub(crate) fn resize(&self, cred: &Cred, file: Cachelet, size: u64) -> Result<()> {
        check_cuttable(self.core.identity(file))?;
        check_size(size)?;
        let resized = self.change_file(cred, |files| files.truncate(file, size));
        self.commit_from(Durability::Sync, resized)
    }

    /// The space in use. Removed files that nobody has open count as free, because their pending
    /// removal is finished first.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// let before = pool.fs().stat_fs().blocks_free;
    /// volume.write("/f", vec![1; 1 << 20])?;
    /// assert!(pool.fs().stat_fs().blocks_free <= before - 256);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn stat_fs(&self) -> StatFs {
        // Damage is reported by the operation that meets it. The counts are the best that is known.
        let _ = self.work_to_count();
        let usage = self.mapping.usage(&self.core);
        let files_free = self.core.files_possible(self.chunks_possible());
        let used = self.core.total(Tally::Inodes);
        let uuid = u128::from_le_bytes(self.uuid());
        let (low, high) = (uuid as u64, (uuid >> 64) as u64);
        StatFs {
            blocks: usage.total,
            blocks_free: usage.free,
            blocks_metadata: self.core.blocks_in_data(),
            files: used + files_free,
            files_free,
            fs_id: low ^ high,
        }
    }
}

/// Checks whether `cred` may change these attributes.
fn check_set<M: Memories>(
    op: &Op<'_, M>,
    cred: &Cred,
    file: Cachelet,
    set: &SetAttr,
) -> Result<()> {
    let core = op.core;
    let owns = core.owns(cred, file);
    let owner = core.owner(file);
    if set.size.is_some() {
        match core.kind(file) {
            FileKind::File => op.check_access(cred, file, Access::WRITE)?,
            FileKind::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::WrongKind),
        }
    }
    if !flags_permit(core.identity(file), set) {
        return Err(Error::NotPermitted);
    }
    if set.mode.is_some() && core.kind(file) == FileKind::Symlink {
        return Err(Error::Unsupported("permission bits of a symbolic link"));
    }
    let drops_set_ids = set.is_chown()
        && core.kind(file) != FileKind::Directory
        && core.identity(file).mode() & droppable(core, cred, file) != 0;
    if drops_set_ids && (!owns || core.identity(file).has(IdentityWord::APPEND_ONLY)) {
        return Err(Error::NotPermitted);
    }
    if set.mode.is_some() && !owns {
        return Err(Error::NotPermitted);
    }
    if !cred.privileged {
        let keeps_user = set.uid.is_none_or(|uid| uid == owner.uid() && owns);
        let own_group = set
            .gid
            .is_none_or(|gid| owns && (gid == owner.gid() || cred.in_group(gid)));
        if !keeps_user || !own_group {
            return Err(Error::NotPermitted);
        }
    }
    match (set.atime, set.mtime) {
        (None, None) => {}
        // Everyone with write permission may set both times to now; only the owner may set
        // others.
        (Some(SetTime::Now), Some(SetTime::Now)) if !owns => {
            op.check_access(cred, file, Access::WRITE)?;
        }
        _ if owns => {}
        _ => return Err(Error::NotPermitted),
    }
    Ok(())
}

impl<M: Memories> Core<M> {
    /// The link count of a file, after every name that is being added to it is durable. While such
    /// a name may still be lost, it is undecided whether it comes before or after this answer. For
    /// a removed directory, the count after the parent has one link less, so that a reader who sees
    /// one change sees the other.
    fn durable_links(&self, file: Cachelet) -> u32 {
        let mut tries = 0;
        loop {
            let links = self.get(file, field::LINKS);
            let is_leaving = links == 0
                && self.kind(file) == FileKind::Directory
                && !self.has_flag(file, flag::UNLINKED);
            if links < LINK_RESERVED && !is_leaving {
                return links as u32;
            }
            pause(&self.arena, &mut tries);
        }
    }

    /// The identity word of an inode, as it is on the pool.
    pub(crate) fn identity_on_pool(&self, ino: u64) -> IdentityWord {
        IdentityWord(self.word(self.geometry.slot_at(ino)))
    }
}
