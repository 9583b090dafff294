//! The operations by path, like the system calls.

use crate::attr::{SetAttr, Via};
use crate::namespace::Entry;
use crate::path::{Last, Walk};
use crate::rename::check_flags;
use crate::tree::Body;
use crate::{Cred, Errno, Handle, Ino, Kind, Model, Result};

impl Model {
    /// `openat(2)`: `flags` may also hold `O_CREAT`, `O_EXCL`, `O_DIRECTORY` and `O_NOFOLLOW`;
    /// `mode` is that of a new file, the umask already applied.
    pub fn open_at(
        &mut self,
        base: Ino,
        path: &[u8],
        flags: i32,
        mode: u32,
        cred: &Cred,
        now: i64,
    ) -> Result<Handle> {
        if flags & libc::O_CREAT != 0 {
            return self.open_create(base, path, flags, mode, cred, now);
        }
        let ino = self.resolve(base, path, flags & libc::O_NOFOLLOW == 0, cred)?;
        self.open(ino, flags, cred, now)
    }

    fn open_create(
        &mut self,
        base: Ino,
        path: &[u8],
        flags: i32,
        mode: u32,
        cred: &Cred,
        now: i64,
    ) -> Result<Handle> {
        let exclusive = flags & libc::O_EXCL != 0;
        let exists = if exclusive {
            Errno::EEXIST
        } else {
            Errno::EISDIR
        };
        if flags & libc::O_DIRECTORY != 0 {
            return Err(Errno::EINVAL);
        }
        let mut walk = Walk::new(self, base, path, cred)?;
        let (dir, name) = loop {
            let Last::Name { dir, name, slash } = walk.reach_last()? else {
                return Err(exists);
            };
            if matches!(&name[..], b"." | b"..") {
                return Err(exists);
            }
            if slash {
                return Err(Errno::EISDIR);
            }
            match self.find(dir, &name)? {
                None => break (dir, name),
                Some(_) if exclusive => return Err(Errno::EEXIST),
                Some(ino) => match &self.node(ino)?.body {
                    Body::Symlink(target) if flags & libc::O_NOFOLLOW == 0 => {
                        walk.follow_last(dir, ino, target)?
                    }
                    Body::Dir { .. } => return Err(Errno::EISDIR),
                    _ => {
                        self.may_open_existing(dir, ino, cred)?;
                        return self.open(ino, flags, cred, now);
                    }
                },
            }
        };
        let ino = self.create(dir, &name, mode, true, cred, now)?;
        self.open_unchecked(ino, flags)
    }

    /// Walks to the last component and calls `operation` with it; for the root directory itself
    /// returns `at_root`.
    fn with_last<T>(
        &mut self,
        base: Ino,
        path: &[u8],
        at_root: Errno,
        cred: &Cred,
        operation: impl FnOnce(&mut Self, Entry) -> Result<T>,
    ) -> Result<T> {
        match self.resolve_parent(base, path, cred)? {
            Last::Root => Err(at_root),
            Last::Name { dir, name, slash } => operation(
                self,
                Entry {
                    dir,
                    name: &name,
                    slash,
                },
            ),
        }
    }

    /// `mkdirat(2)`; the umask is already applied to `mode`.
    pub fn mkdir_at(
        &mut self,
        base: Ino,
        path: &[u8],
        mode: u32,
        cred: &Cred,
        now: i64,
    ) -> Result<Ino> {
        self.with_last(base, path, Errno::EEXIST, cred, |model, last| {
            model.mkdir(last.dir, last.name, mode, cred, now)
        })
    }

    /// `mknodat(2)`; the new node has a kind, a mode, and a device number.
    pub fn mknod_at(
        &mut self,
        base: Ino,
        path: &[u8],
        made: (Kind, u32, u64),
        cred: &Cred,
        now: i64,
    ) -> Result<Ino> {
        self.with_last(base, path, Errno::EEXIST, cred, |model, last| {
            model.mknod_entry(last, made, cred, now)
        })
    }

    /// `symlinkat(2)`.
    pub fn symlink_at(
        &mut self,
        target: &[u8],
        base: Ino,
        path: &[u8],
        cred: &Cred,
        now: i64,
    ) -> Result<Ino> {
        Model::check_target(target)?;
        self.with_last(base, path, Errno::EEXIST, cred, |model, last| {
            model.symlink_entry(target, last, cred, now)
        })
    }

    /// `linkat(2)` without following a symbolic link.
    pub fn link_at(
        &mut self,
        base: Ino,
        from: &[u8],
        to: &[u8],
        cred: &Cred,
        now: i64,
    ) -> Result<()> {
        let ino = self.resolve(base, from, false, cred)?;
        self.with_last(base, to, Errno::EEXIST, cred, |model, last| {
            model.link_entry(ino, last, cred, now)
        })
    }

    /// `unlink(2)`.
    pub fn unlink_at(&mut self, base: Ino, path: &[u8], cred: &Cred, now: i64) -> Result<()> {
        self.with_last(base, path, Errno::EISDIR, cred, |model, last| {
            model.unlink_entry(last, cred, now)
        })
    }

    /// `rmdir(2)`.
    pub fn rmdir_at(&mut self, base: Ino, path: &[u8], cred: &Cred, now: i64) -> Result<()> {
        self.with_last(base, path, Errno::EBUSY, cred, |model, last| {
            model.rmdir(last.dir, last.name, cred, now)
        })
    }

    /// `renameat2(2)`.
    pub fn rename_at(
        &mut self,
        base: Ino,
        from: &[u8],
        to: &[u8],
        flags: u32,
        cred: &Cred,
        now: i64,
    ) -> Result<()> {
        check_flags(flags)?;
        let from = self.resolve_parent(base, from, cred)?;
        let to = self.resolve_parent(base, to, cred)?;
        let root = (b"..".to_vec(), Ino::ROOT);
        // Neither the root directory nor a name of dots can be moved or replaced, with the same
        // error.
        let entry = |last: Last| match last {
            Last::Root => (root.0.clone(), root.1, false),
            Last::Name { dir, name, slash } => (name, dir, slash),
        };
        let ((from, from_dir, from_slash), (to, to_dir, to_slash)) = (entry(from), entry(to));
        let from = Entry {
            dir: from_dir,
            name: &from,
            slash: from_slash,
        };
        let to = Entry {
            dir: to_dir,
            name: &to,
            slash: to_slash,
        };
        self.rename_entry(from, to, flags, cred, now)
    }

    /// `truncate(2)`.
    pub fn truncate_at(
        &mut self,
        base: Ino,
        path: &[u8],
        size: u64,
        cred: &Cred,
        now: i64,
    ) -> Result<()> {
        if size > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        let ino = self.resolve(base, path, true, cred)?;
        self.change(
            ino,
            &SetAttr {
                size: Some(size),
                ..SetAttr::default()
            },
            Via::Path,
            cred,
            now,
        )
    }
}
