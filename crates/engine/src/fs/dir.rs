//! Names: creating, linking, removing, renaming, listing.

use std::sync::Arc;

use bitflags::bitflags;
use vellum_layout::{FileKind, IdentityWord};
use vellum_media::Memories;

use crate::core::Core;
use crate::core::background::Lease;
use crate::core::cachelet::{Cachelet, field, flag};
use crate::core::slots::{Op, Tally};
use crate::durability::commit::Durability;
use crate::error::{Error, Result, Retry};
use crate::fs::new_file::NewFile;
use crate::fs::{Access, Cred, Fs, Handle, Node, OpenOptions};
use crate::namespace::common::links::FirstName;
use crate::namespace::{NewInode, Removal, Rename};

bitflags! {
    /// Flags of a rename. The numbers are those of `renameat2(2)`.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// use vellum::RenameFlags;
    ///
    /// volume.write("/a", "a")?;
    /// volume.write("/b", "b")?;
    /// assert!(volume.rename_with("/a", "/b", RenameFlags::NO_REPLACE).is_err());
    /// volume.rename_with("/a", "/b", RenameFlags::EXCHANGE)?;
    /// assert_eq!(volume.read("/a")?, b"b");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Fail if the new name exists.
        const NO_REPLACE = 1;
        /// Swap the two names.
        const EXCHANGE = 2;
        /// Leave a whiteout under the old name: a character device with number 0, by which overlay
        /// file systems hide a name below.
        const WHITEOUT = 4;
    }
}

/// Longest symlink target, in bytes.
const TARGET_MAX: usize = vellum_layout::TEXT_MAX;

impl<M: Memories> Fs<M> {
    /// Checks that a name can be created or removed in `dir`. Returns the directory's identity.
    fn check_dir(&self, op: &Op<'_, M>, cred: &Cred, dir: Cachelet) -> Result<IdentityWord> {
        let identity = op.core.identity(dir);
        if identity.kind() != Some(FileKind::Directory) {
            return Err(Error::NotDirectory);
        }
        if op.core.get(dir, field::LINKS) == 0 {
            return Err(Error::NotFound);
        }
        op.check_known(cred, (dir, identity), Access::WRITE | Access::EXECUTE)?;
        Ok(identity)
    }

    /// Creates a file of any kind. The caller has checked that the name is not `.` or `..`.
    pub(crate) fn make(
        &self,
        op: &Op<'_, M>,
        cred: &Cred,
        dir: Cachelet,
        name: &[u8],
        new: NewFile<'_>,
    ) -> Result<Cachelet> {
        let above = match self.check_dir(op, cred, dir) {
            Ok(above) => above,
            Err(denied) => return Err(self.exists_or(op, cred, dir, name, denied)),
        };
        let create = |new: &NewInode<'_>| self.namespace.create(op, dir, name, new);
        let made = op.with_new_inode(cred, (dir, above), new, create)?;
        op.count(Tally::Inodes, 1);
        Ok(made)
    }

    /// Returns [`Error::Exists`] if the name exists, else `denied`: Linux reports an existing name
    /// before missing permission to create it. A caller that cannot search the directory gets that
    /// error instead.
    #[cold]
    fn exists_or(
        &self,
        op: &Op<'_, M>,
        cred: &Cred,
        dir: Cachelet,
        name: &[u8],
        denied: Error,
    ) -> Error {
        if let Err(hidden) = op.check_search(cred, dir) {
            return hidden;
        }
        match self.namespace.lookup(op, dir, name) {
            Ok(_) => Error::Exists,
            Err(Error::NotFound) => denied,
            Err(error) => error,
        }
    }

    fn make_node(
        self: &Arc<Self>,
        cred: &Cred,
        dir: &Node<M>,
        name: &[u8],
        new: NewFile<'_>,
    ) -> Result<Node<M>> {
        check_new_name(name)?;
        let made = self.with_room(|op| {
            let made = self.make(op, cred, dir.cachelet, name, new)?;
            Ok(Node::hold(self, made))
        });
        self.commit_from(Durability::Dirsync, made)
    }

    /// Creates a directory.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let mail = fs.mkdir(&cred, &root, b"mail", 0o755)?;
    /// fs.mkdir(&cred, &mail, b"new", 0o755)?;
    /// assert!(pool.volume().metadata("/mail/new")?.is_dir());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as `mkdir(2)` does.
    pub fn mkdir(
        self: &Arc<Self>,
        cred: &Cred,
        dir: &Node<M>,
        name: &[u8],
        mode: u16,
    ) -> Result<Node<M>> {
        self.make_node(
            cred,
            dir,
            name,
            NewFile::plain(FileKind::Directory, mode & 0o1777),
        )
    }

    /// Creates a regular file, device, pipe or socket.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// use vellum::FileKind;
    ///
    /// let pipe = fs.mknod(&cred, &root, b"pipe", FileKind::Fifo, 0o600, 0)?;
    /// assert_eq!(pipe.kind(), FileKind::Fifo);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as `mknod(2)` does.
    pub fn mknod(
        self: &Arc<Self>,
        cred: &Cred,
        dir: &Node<M>,
        name: &[u8],
        kind: FileKind,
        mode: u16,
        device: u64,
    ) -> Result<Node<M>> {
        match kind {
            FileKind::Directory | FileKind::Symlink => return Err(Error::WrongKind),
            // What overlay file systems put in the place of a name that they hide.
            FileKind::CharDevice if device == 0 => {}
            FileKind::CharDevice | FileKind::BlockDevice if !cred.privileged => {
                return Err(Error::NotPermitted);
            }
            _ => {}
        }
        self.make_node(
            cred,
            dir,
            name,
            NewFile {
                device,
                ..NewFile::plain(kind, mode)
            },
        )
    }

    /// Creates a symbolic link.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let link = fs.symlink(&cred, &root, b"link", b"../target")?;
    /// assert_eq!(fs.read_link(&link)?, b"../target");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as `symlink(2)` does.
    pub fn symlink(
        self: &Arc<Self>,
        cred: &Cred,
        dir: &Node<M>,
        name: &[u8],
        target: &[u8],
    ) -> Result<Node<M>> {
        match target.len() {
            0 => return Err(Error::NotFound),
            1..=TARGET_MAX if target.contains(&0) => {
                return Err(Error::Invalid(
                    "a symlink's target cannot contain a zero byte",
                ));
            }
            1..=TARGET_MAX => {}
            _ => return Err(Error::NameTooLong),
        }
        self.make_node(
            cred,
            dir,
            name,
            NewFile {
                target,
                ..NewFile::plain(FileKind::Symlink, 0o777)
            },
        )
    }

    /// Creates a regular file without a name in the file system of a directory, whose rules for new
    /// files it follows, and opens it (`O_TMPFILE`). [`Self::link`] gives it a name, unless the
    /// options have `create_new` (`O_EXCL`); else it is gone with its last node.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let options = vellum::OpenOptions::new().write(true);
    /// let file = fs.create_unnamed(&cred, &root, &options)?;
    /// file.write_at(0, b"all at once")?;
    /// fs.link(&cred, file.node(), &root, b"report")?;
    /// assert_eq!(pool.volume().read("/report")?, b"all at once");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as `open(2)` does.
    pub fn create_unnamed(
        self: &Arc<Self>,
        cred: &Cred,
        dir: &Node<M>,
        options: &OpenOptions,
    ) -> Result<Handle<M>> {
        self.core.check_writable()?;
        if !options.wants().contains(Access::WRITE) {
            return Err(Error::Invalid("a file without a name that is not written"));
        }
        let node = self.with_room(|op| {
            let new = NewFile::plain(FileKind::File, options.mode);
            let made = self.make_unnamed(op, cred, dir.cachelet, new, 0)?;
            if !options.create_new {
                op.core.raise_flag(made, flag::LINKABLE);
            }
            Ok(Node::hold(self, made))
        })?;
        Ok(Handle::new(cred, node, options))
    }

    /// Adds a name to a file.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let file = fs.mknod(&cred, &root, b"a", vellum::FileKind::File, 0o644, 0)?;
    /// fs.link(&cred, &file, &root, b"b")?;
    /// assert_eq!(fs.attr(&file)?.nlink, 2);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as `link(2)` does.
    pub fn link(&self, cred: &Cred, file: &Node<M>, dir: &Node<M>, name: &[u8]) -> Result<()> {
        check_new_name(name)?;
        let linked = self.with_room(|op| {
            let checked = self.check_dir(op, cred, dir.cachelet);
            let checked = checked.and_then(|above| {
                let dir = (dir.cachelet, above);
                check_new_link(op.core, dir, file.cachelet)
            });
            if let Err(denied) = checked {
                return Err(self.exists_or(op, cred, dir.cachelet, name, denied));
            }
            let first = op.claim_unnamed(file.cachelet);
            self.namespace.link(op, dir.cachelet, name, file.cachelet)?;
            first.into_iter().for_each(FirstName::keep);
            Ok(())
        });
        self.commit_from(Durability::Dirsync, linked)
    }

    fn remove(&self, cred: &Cred, dir: &Node<M>, name: &[u8], removal: Removal) -> Result<()> {
        let removed = self.with_room(|op| {
            op.check_search(cred, dir.cachelet)?;
            let mut allow = |victim| {
                let above = self.check_dir(op, cred, dir.cachelet)?;
                op.core.check_removal(cred, (dir.cachelet, above), victim)
            };
            self.namespace
                .remove(op, dir.cachelet, name, removal, &mut allow)
        });
        self.commit_from(Durability::Dirsync, removed)
    }

    /// Removes a name of a file that is not a directory.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let file = fs.mknod(&cred, &root, b"f", vellum::FileKind::File, 0o644, 0)?;
    /// fs.unlink(&cred, &root, b"f")?;
    /// assert_eq!(fs.attr(&file)?.nlink, 0); // the node keeps the file
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as `unlink(2)` does.
    pub fn unlink(&self, cred: &Cred, dir: &Node<M>, name: &[u8]) -> Result<()> {
        match name {
            b"." | b".." => Err(Error::IsDirectory),
            _ => self.remove(cred, dir, name, Removal::File),
        }
    }

    /// Removes an empty directory.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let dir = fs.mkdir(&cred, &root, b"d", 0o755)?;
    /// fs.mkdir(&cred, &dir, b"e", 0o755)?;
    /// assert!(matches!(fs.rmdir(&cred, &root, b"d"), Err(vellum::Error::NotEmpty)));
    /// fs.rmdir(&cred, &dir, b"e")?;
    /// fs.rmdir(&cred, &root, b"d")?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as `rmdir(2)` does.
    pub fn rmdir(&self, cred: &Cred, dir: &Node<M>, name: &[u8]) -> Result<()> {
        match name {
            b"." => Err(Error::Invalid("the last component is `.`")),
            b".." => Err(Error::NotEmpty),
            _ => self.remove(cred, dir, name, Removal::Directory),
        }
    }

    /// Renames a file, replacing the target of the new name, or exchanges two names.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// use vellum::{Error, RenameFlags};
    ///
    /// fs.mkdir(&cred, &root, b"a", 0o755)?;
    /// fs.mkdir(&cred, &root, b"b", 0o755)?;
    /// let kept = fs.rename(&cred, &root, b"a", &root, b"b", RenameFlags::NO_REPLACE);
    /// assert!(matches!(kept, Err(Error::Exists)));
    /// fs.rename(&cred, &root, b"a", &root, b"b", RenameFlags::empty())?;
    /// assert!(fs.lookup(&cred, &root, b"a").is_err());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as `renameat2(2)` does.
    pub fn rename(
        self: &Arc<Self>,
        cred: &Cred,
        from_dir: &Node<M>,
        from_name: &[u8],
        to_dir: &Node<M>,
        to_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let others = RenameFlags::NO_REPLACE | RenameFlags::WHITEOUT;
        if flags.contains(RenameFlags::EXCHANGE) && flags.intersects(others) {
            return Err(Error::Invalid("EXCHANGE beside another flag"));
        }
        let is_dots = |name: &[u8]| matches!(name, b"." | b"..");
        if is_dots(from_name) {
            return Err(Error::Busy);
        }
        if is_dots(to_name) {
            let no_replace = flags.contains(RenameFlags::NO_REPLACE);
            return Err(if no_replace {
                Error::Exists
            } else {
                Error::Busy
            });
        }
        check_bytes(to_name)?;
        let rename = Rename {
            from_dir: from_dir.cachelet,
            from_name,
            to_dir: to_dir.cachelet,
            to_name,
            no_replace: flags.contains(RenameFlags::NO_REPLACE),
            exchange: flags.contains(RenameFlags::EXCHANGE),
            whiteout: None,
            whole: None,
        };
        let renamed = match flags.contains(RenameFlags::WHITEOUT) {
            true => self.rename_with_whiteout(cred, rename),
            false => self.rename_names(cred, &rename),
        };
        self.commit_from(Durability::Dirsync, renamed)
    }

    fn rename_names(&self, cred: &Cred, rename: &Rename<'_>) -> Result<()> {
        loop {
            let renamed = self.with_room(|op| {
                op.check_search(cred, rename.from_dir)?;
                if rename.is_across() {
                    op.check_search(cred, rename.to_dir)?;
                }
                let mut allow = |source, target: Option<Cachelet>| {
                    self.allow_rename(op, cred, rename, source, target)
                };
                self.namespace.rename(op, rename, &mut allow)
            });
            let renamed = match renamed {
                Err(Error::Retry(Retry::Move)) => self.move_whole(cred, rename),
                done => done,
            };
            // On a retry, names have changed meanwhile.
            if !matches!(renamed, Err(Error::Retry(_))) {
                return renamed;
            }
        }
    }

    /// Renames, and gives the old name to what overlay file systems put in the place of a name that
    /// they hide: a character device 0.
    #[cold]
    fn rename_with_whiteout(self: &Arc<Self>, cred: &Cred, rename: Rename<'_>) -> Result<()> {
        let whiteout = self.with_room(|op| {
            let new = NewFile::plain(FileKind::CharDevice, 0);
            let made = self.make_unnamed(op, cred, rename.from_dir, new, 1)?;
            Ok(Node::hold(self, made))
        })?;
        let rename = Rename {
            whiteout: Some(whiteout.cachelet),
            ..rename
        };
        let renamed = self.rename_names(cred, &rename);
        // It is without a name for good, if it got none.
        self.core.clear_flag(whiteout.cachelet, flag::NAMING);
        renamed
    }

    /// Creates a file without a name, by the rules for new files in `dir`. `links`: see
    /// [`Op::create_unnamed`].
    fn make_unnamed(
        &self,
        op: &Op<'_, M>,
        cred: &Cred,
        dir: Cachelet,
        new: NewFile<'_>,
        links: u64,
    ) -> Result<Cachelet> {
        let above = self.check_dir(op, cred, dir)?;
        let create = |new: &NewInode<'_>| op.create_unnamed(dir, new, links);
        let made = op.with_new_inode(cred, (dir, above), new, create)?;
        op.count(Tally::Inodes, 1);
        Ok(made)
    }

    /// Renames directories together with everything below them. If there is no space, frees some
    /// and tries once more.
    fn move_whole(&self, cred: &Cred, rename: &Rename<'_>) -> Result<()> {
        let core = &self.core;
        let lease = Lease::take_to_work(core)?;
        if self.roots_large && self.root_large(rename)? {
            // The next attempt renames it as a root.
            return Err(Error::Retry(Retry::Move));
        }
        let mut ask =
            |op: &Op<'_, M>, source, target| self.allow_rename(op, cred, rename, source, target);
        let mut moved = self.namespace.move_whole(core, rename, &mut ask);
        if let Err(Error::NoSpace(_) | Error::OutOfMemory(_)) = moved {
            self.reclaim_leased(&lease)?;
            moved = self.namespace.move_whole(core, rename, &mut ask);
        }
        core.noting(moved)
    }

    /// Makes the large directories of a rename roots of areas, unless there is no space. Returns
    /// whether any became one.
    fn root_large(&self, rename: &Rename<'_>) -> Result<bool> {
        let Some(areas) = self.namespace.areas() else {
            return Ok(false);
        };
        match areas.root_large(&self.core, rename) {
            Err(Error::NoSpace(_) | Error::OutOfMemory(_)) => Ok(false),
            rooted => self.core.noting(rooted),
        }
    }

    /// Gives the names below a directory an area of their own, down to the next areas. From then on
    /// renaming the directory takes as long as renaming a file, however much is below it. Nothing
    /// else changes for users. Returns whether the directory had no area before.
    ///
    /// ```
    /// # let options = vellum::CreateOptions::new(32 << 20);
    /// # let pool = options.namespace(vellum::NamespaceKind::Adaptive).create_in_memory()?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let projects = fs.mkdir(&cred, &root, b"projects", 0o755)?;
    /// assert!(fs.split(&projects)?); // renaming it is fast from here on
    /// assert!(!fs.split(&projects)?);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the pool's names are not kept in areas, the directory has no name, or there is no
    /// space to hold the names twice.
    pub fn split(&self, dir: &Node<M>) -> Result<bool> {
        self.set_root(dir, true)
    }

    /// Reverses [`Self::split`]: moves the names back into the area that holds the directory's own
    /// name. Returns whether the directory had an area.
    ///
    /// ```
    /// # let options = vellum::CreateOptions::new(32 << 20);
    /// # let pool = options.namespace(vellum::NamespaceKind::Adaptive).create_in_memory()?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let archive = fs.mkdir(&cred, &root, b"archive", 0o755)?;
    /// fs.split(&archive)?;
    /// assert!(fs.merge(&archive)?);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::split`]. The root's area cannot be merged.
    pub fn merge(&self, dir: &Node<M>) -> Result<bool> {
        self.set_root(dir, false)
    }

    fn set_root(&self, dir: &Node<M>, is_root: bool) -> Result<bool> {
        let core = &self.core;
        if core.kind(dir.cachelet) != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        let lease = Lease::take_to_work(core)?;
        let mut set = self.namespace.set_root(core, dir.cachelet, is_root);
        if let Err(Error::NoSpace(_) | Error::OutOfMemory(_)) = set {
            self.reclaim_leased(&lease)?;
            set = self.namespace.set_root(core, dir.cachelet, is_root);
        }
        core.noting(set)
    }

    fn allow_rename(
        &self,
        op: &Op<'_, M>,
        cred: &Cred,
        rename: &Rename<'_>,
        source: Cachelet,
        target: Option<Cachelet>,
    ) -> Result<()> {
        let core = op.core;
        let from = (rename.from_dir, self.check_dir(op, cred, rename.from_dir)?);
        core.check_removal(cred, from, source)?;
        let to = match rename.is_across() {
            true => (rename.to_dir, self.check_dir(op, cred, rename.to_dir)?),
            false => from,
        };
        if let Some(target) = target {
            core.check_removal(cred, to, target)?;
        }
        if let (Some(target), false) = (target, rename.exchange) {
            match [source, target].map(|file| core.kind(file) == FileKind::Directory) {
                [true, false] => return Err(Error::NotDirectory),
                [false, true] => return Err(Error::IsDirectory),
                _ => {}
            }
        }
        // Moving a directory changes its `..`, so it needs permission to write to that directory.
        let back = target.filter(|_| rename.exchange);
        if rename.is_across() {
            for moved in std::iter::once(source).chain(back) {
                if core.kind(moved) == FileKind::Directory {
                    op.check_access(cred, moved, Access::WRITE)?;
                }
            }
        }
        core.check_project(to, source)?;
        back.map_or(Ok(()), |target| core.check_project(from, target))
    }

    /// The inode number of the directory above `dir` (its own, for the root).
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let dir = fs.mkdir(&cred, &root, b"d", 0o755)?;
    /// assert_eq!(fs.parent_ino(&dir)?, root.ino());
    /// assert_eq!(fs.parent_ino(&root)?, root.ino());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Damaged media.
    pub fn parent_ino(&self, dir: &Node<M>) -> Result<u64> {
        self.with_op(|op| Ok(op.core.ino(self.parent_of(op, dir.cachelet)?)))
    }

    /// The number of names in a directory.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// fs.mkdir(&cred, &root, b"a", 0o755)?;
    /// fs.symlink(&cred, &root, b"b", b"a")?;
    /// assert_eq!(fs.children(&root)?, 2);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn children(&self, dir: &Node<M>) -> Result<u64> {
        self.with_op(|op| {
            self.namespace.settle(op, dir.cachelet)?;
            Ok(op.core.children(dir.cachelet))
        })
    }
}

/// Checks that a file may get one more name, in `dir`.
fn check_new_link<M: Memories>(
    core: &Core<M>,
    dir: (Cachelet, IdentityWord),
    file: Cachelet,
) -> Result<()> {
    let identity = core.identity(file);
    let is_dir = identity.kind() == Some(FileKind::Directory);
    if is_dir || identity.has_any(IdentityWord::GUARDED) {
        return Err(Error::NotPermitted);
    }
    core.check_project(dir, file)
}

/// Checks a new name by its bytes alone. Its length is checked after permissions.
fn check_new_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Error::NotFound),
        b"." | b".." => Err(Error::Exists),
        _ => check_bytes(name),
    }
}

fn check_bytes(name: &[u8]) -> Result<()> {
    if name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(Error::Invalid("a name cannot contain `/` or a zero byte"));
    }
    Ok(())
}
