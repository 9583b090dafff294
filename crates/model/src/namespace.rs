//! Creation and removal of names, by inode number.

use crate::acl::Acl;
use crate::content::Content;
use crate::flags::APPEND_ONLY;
use crate::tree::{Body, EXEC, GROUP_EXEC, Node, READ, SET_GID, SET_UID, STICKY, WRITE};
use crate::xattr::Xattrs;
use crate::{Cred, Errno, Ino, Kind, LINK_MAX, Model, PATH_MAX, Result};
use std::collections::BTreeMap;

/// The last component of a path: the name, and whether slashes follow it.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) dir: Ino,
    pub(crate) name: &'a [u8],
    pub(crate) slash: bool,
}

impl<'a> Entry<'a> {
    pub(crate) fn bare(dir: Ino, name: &'a [u8]) -> Entry<'a> {
        Entry {
            dir,
            name,
            slash: false,
        }
    }

    pub(crate) fn is_dots(&self) -> bool {
        matches!(self.name, b"." | b"..")
    }
}

impl Model {
    /// Creates a regular file. An existing one is returned unless `exclusive`; [`Model::open`]
    /// checks its own permissions. An existing directory is `EISDIR`. An existing symbolic link is
    /// `ELOOP`, and the caller follows it.
    pub fn create(
        &mut self,
        dir: Ino,
        name: &[u8],
        mode: u32,
        exclusive: bool,
        cred: &Cred,
        now: i64,
    ) -> Result<Ino> {
        self.search(dir, cred)?;
        if let Some(ino) = self.find(dir, name)? {
            return match self.node(ino)?.kind() {
                _ if exclusive => Err(Errno::EEXIST),
                kind if kind == Kind::File || kind.is_special() => Ok(ino),
                Kind::Dir => Err(Errno::EISDIR),
                _ => Err(Errno::ELOOP),
            };
        }
        self.may_create(dir, cred)?;
        let body = Body::File(Content::default());
        self.add_new(Entry::bare(dir, name), body, mode, cred, now)
    }

    /// Creates a directory.
    pub fn mkdir(
        &mut self,
        dir: Ino,
        name: &[u8],
        mode: u32,
        cred: &Cred,
        now: i64,
    ) -> Result<Ino> {
        // Only a directory may be created under a name with slashes behind it.
        self.may_make(Entry::bare(dir, name), cred)?;
        if self.node(dir)?.nlink >= LINK_MAX {
            return Err(Errno::EMLINK);
        }
        let body = Body::Dir {
            entries: BTreeMap::new(),
            parent: dir,
        };
        let ino = self.add_new(
            Entry::bare(dir, name),
            body,
            mode & (STICKY | 0o777),
            cred,
            now,
        )?;
        self.node_mut(dir)?.nlink += 1;
        Ok(ino)
    }

    /// Creates a regular file, pipe, socket or device; `device` is the device number.
    pub fn mknod(
        &mut self,
        entry: (Ino, &[u8]),
        (kind, mode, device): (Kind, u32, u64),
        cred: &Cred,
        now: i64,
    ) -> Result<Ino> {
        self.mknod_entry(
            Entry::bare(entry.0, entry.1),
            (kind, mode, device),
            cred,
            now,
        )
    }

    pub(crate) fn mknod_entry(
        &mut self,
        entry: Entry,
        (kind, mode, device): (Kind, u32, u64),
        cred: &Cred,
        now: i64,
    ) -> Result<Ino> {
        let body = match kind {
            Kind::Dir => return Err(Errno::EPERM),
            Kind::Symlink => return Err(Errno::EINVAL),
            Kind::File => Body::File(Content::default()),
            Kind::Fifo | Kind::Socket => Body::Special(kind, 0),
            Kind::CharDevice | Kind::BlockDevice => Body::Special(kind, device),
        };
        self.may_make(entry, cred)?;
        let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        let is_whiteout = kind == Kind::CharDevice && device == 0;
        if is_device && !is_whiteout && !cred.is_superuser() {
            return Err(Errno::EPERM);
        }
        self.add_new(entry, body, mode, cred, now)
    }

    /// Creates a symbolic link.
    pub fn symlink(
        &mut self,
        target: &[u8],
        dir: Ino,
        name: &[u8],
        cred: &Cred,
        now: i64,
    ) -> Result<Ino> {
        self.symlink_entry(target, Entry::bare(dir, name), cred, now)
    }

    pub(crate) fn check_target(target: &[u8]) -> Result<()> {
        match target {
            b"" => Err(Errno::ENOENT),
            _ if target.contains(&0) => Err(Errno::EINVAL),
            _ if target.len() >= PATH_MAX => Err(Errno::ENAMETOOLONG),
            _ => Ok(()),
        }
    }

    pub(crate) fn symlink_entry(
        &mut self,
        target: &[u8],
        entry: Entry,
        cred: &Cred,
        now: i64,
    ) -> Result<Ino> {
        Model::check_target(target)?;
        self.may_make(entry, cred)?;
        self.add_new(entry, Body::Symlink(target.to_vec()), 0o777, cred, now)
    }

    /// Gives an inode another name.
    pub fn link(&mut self, ino: Ino, dir: Ino, name: &[u8], cred: &Cred, now: i64) -> Result<()> {
        self.link_entry(ino, Entry::bare(dir, name), cred, now)
    }

    pub(crate) fn link_entry(
        &mut self,
        ino: Ino,
        entry: Entry,
        cred: &Cred,
        now: i64,
    ) -> Result<()> {
        let node = self.node(ino)?;
        self.search(entry.dir, cred)?;
        self.check_absent(entry)?;
        if self.hardening.hardlinks && !cred.owns(node) && !self.is_safe_link_source(ino, cred) {
            return Err(Errno::EPERM);
        }
        self.may_create(entry.dir, cred)?;
        match node {
            _ if node.is_guarded() => return Err(Errno::EPERM),
            Node {
                body: Body::Dir { .. },
                ..
            } => return Err(Errno::EPERM),
            Node { nlink: 0, .. } => return Err(Errno::ENOENT),
            Node {
                nlink: LINK_MAX.., ..
            } => return Err(Errno::EMLINK),
            _ => self.takes(entry.dir, ino)?,
        }
        let node = self.node_mut(ino)?;
        node.nlink += 1;
        node.ctime = now;
        self.add_entry(entry.dir, entry.name, ino, now);
        Ok(())
    }

    fn is_safe_link_source(&self, ino: Ino, cred: &Cred) -> bool {
        let node = &self.nodes[&ino];
        let set_gid_exec = SET_GID | GROUP_EXEC;
        node.kind() == Kind::File
            && node.mode & SET_UID == 0
            && node.mode & set_gid_exec != set_gid_exec
            && self.access(ino, READ | WRITE, cred).is_ok()
    }

    /// Removes a name of a file or symbolic link.
    pub fn unlink(&mut self, dir: Ino, name: &[u8], cred: &Cred, now: i64) -> Result<()> {
        self.unlink_entry(Entry::bare(dir, name), cred, now)
    }

    pub(crate) fn unlink_entry(&mut self, entry: Entry, cred: &Cred, now: i64) -> Result<()> {
        let Entry { dir, name, slash } = entry;
        self.search(dir, cred)?;
        if entry.is_dots() {
            return Err(Errno::EISDIR);
        }
        let ino = self.find(dir, name)?.ok_or(Errno::ENOENT)?;
        if slash {
            return Err(if self.node(ino)?.is_dir() {
                Errno::EISDIR
            } else {
                Errno::ENOTDIR
            });
        }
        self.may_delete(dir, ino, Some(false), cred)?;
        self.remove_entry(dir, name, now);
        self.drop_link(ino, now);
        Ok(())
    }

    /// Removes an empty directory.
    pub fn rmdir(&mut self, dir: Ino, name: &[u8], cred: &Cred, now: i64) -> Result<()> {
        self.search(dir, cred)?;
        match name {
            b"." => return Err(Errno::EINVAL),
            b".." => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        let ino = self.find(dir, name)?.ok_or(Errno::ENOENT)?;
        self.may_delete(dir, ino, Some(true), cred)?;
        if !self.entries(ino)?.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.remove_entry(dir, name, now);
        self.drop_link(ino, now);
        self.node_mut(dir)?.nlink -= 1;
        Ok(())
    }

    /// The target of a symbolic link.
    pub fn readlink(&mut self, ino: Ino, now: i64) -> Result<Vec<u8>> {
        match &self.node(ino)?.body {
            Body::Symlink(target) => {
                let target = target.clone();
                self.accessed(ino, now)?;
                Ok(target)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Checks that the name is free, and that only a directory is created under a name with slashes
    /// behind it.
    fn check_absent(&self, entry: Entry) -> Result<()> {
        match self.find(entry.dir, entry.name)? {
            Some(_) => Err(Errno::EEXIST),
            None if entry.slash => Err(Errno::ENOENT),
            None => Ok(()),
        }
    }

    fn may_make(&self, entry: Entry, cred: &Cred) -> Result<()> {
        self.search(entry.dir, cred)?;
        self.check_absent(entry)?;
        self.may_create(entry.dir, cred)
    }

    /// Checks that the caller may add names to a directory. One entry of an access control list has
    /// to grant both permissions.
    pub(crate) fn may_create(&self, dir: Ino, cred: &Cred) -> Result<()> {
        if self.node(dir)?.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        self.access(dir, WRITE | EXEC, cred)
    }

    /// Checks that the caller may remove `victim`'s name from `dir`, and that its kind (directory
    /// or not) is as expected.
    pub(crate) fn may_delete(
        &self,
        dir: Ino,
        victim: Ino,
        expect_dir: Option<bool>,
        cred: &Cred,
    ) -> Result<()> {
        self.access(dir, WRITE | EXEC, cred)?;
        let (parent, node) = (self.node(dir)?, self.node(victim)?);
        if parent.has(APPEND_ONLY) || node.is_guarded() {
            return Err(Errno::EPERM);
        }
        if parent.mode & STICKY != 0 && !cred.owns(node) && !cred.owns(parent) {
            return Err(Errno::EPERM);
        }
        match (expect_dir, node.is_dir()) {
            (Some(true), false) => Err(Errno::ENOTDIR),
            (Some(false), true) => Err(Errno::EISDIR),
            _ => Ok(()),
        }
    }

    /// Creates a node and names it. A set-group-id directory determines group and set-group-id, a
    /// default access control list the permissions, and the directory's flags some of its own.
    pub(crate) fn add_new(
        &mut self,
        entry: Entry,
        body: Body,
        mode: u32,
        cred: &Cred,
        now: i64,
    ) -> Result<Ino> {
        self.may_have_new(entry.dir, body.kind(), cred)?;
        let parent = &self.nodes[&entry.dir];
        let is_dir = matches!(body, Body::Dir { .. });
        let (mut mode, mut gid) = (mode & 0o7777, cred.gid);
        if parent.mode & SET_GID != 0 {
            gid = parent.gid;
            let executable = mode & GROUP_EXEC != 0;
            if is_dir {
                mode |= SET_GID;
            } else if executable && !cred.is_superuser() && !cred.in_group(gid) {
                mode &= !SET_GID;
            }
        }
        let default = parent.default_acl.clone();
        let default = default.filter(|_| !matches!(body, Body::Symlink(_)));
        let acl = default.as_ref().map(|default| default.inherited(mode));
        if let Some(list) = &acl {
            mode = mode & !0o777 | list.permission_bits();
        }
        let nlink = if is_dir { 2 } else { 1 };
        let (flags, project) = parent.hands_down(body.kind());
        let ino = self.insert(Node {
            body,
            mode,
            nlink,
            uid: cred.uid,
            gid,
            atime: now,
            mtime: now,
            ctime: now,
            acl: acl.filter(Acl::is_extended),
            default_acl: default.filter(|_| is_dir),
            xattrs: Xattrs::new(),
            flags,
            project,
            opens: 0,
        });
        self.add_entry(entry.dir, entry.name, ino, now);
        Ok(ino)
    }

    pub(crate) fn add_entry(&mut self, dir: Ino, name: &[u8], ino: Ino, now: i64) {
        let node = self
            .nodes
            .get_mut(&dir)
            .expect("the caller looked the directory up");
        node.modified(now);
        if let Body::Dir { entries, .. } = &mut node.body {
            entries.insert(name.to_vec(), ino);
        }
    }

    pub(crate) fn remove_entry(&mut self, dir: Ino, name: &[u8], now: i64) {
        let node = self
            .nodes
            .get_mut(&dir)
            .expect("the caller looked the directory up");
        node.modified(now);
        if let Body::Dir { entries, .. } = &mut node.body {
            entries.remove(name);
        }
    }

    /// Removes one link. A directory has only one name, so it loses its own `.` too.
    pub(crate) fn drop_link(&mut self, ino: Ino, now: i64) {
        let node = self
            .nodes
            .get_mut(&ino)
            .expect("the caller looked the inode up");
        node.nlink = if node.is_dir() { 0 } else { node.nlink - 1 };
        node.ctime = now;
        self.reap(ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_group_id_directory_hands_down_its_group() {
        let mut model = Model::new(0);
        let (root, user) = (Cred::superuser(), Cred::user(5, 5, &[]));
        let dir = model.mkdir(Ino::ROOT, b"d", 0o777, &root, 1).unwrap();
        let node = model.node_mut(dir).unwrap();
        (node.mode, node.gid) = (0o2777, 77);
        let sub = model.mkdir(dir, b"sub", 0o755, &user, 1).unwrap();
        let file = model.create(dir, b"f", 0o2755, true, &user, 1).unwrap();
        assert_eq!(
            (model.node(sub).unwrap().mode, model.node(sub).unwrap().gid),
            (0o2755, 77)
        );
        assert_eq!(
            (
                model.node(file).unwrap().mode,
                model.node(file).unwrap().gid
            ),
            (0o755, 77)
        );
    }

    #[test]
    fn in_a_sticky_directory_only_owners_remove() {
        let mut model = Model::new(0);
        let (root, user, other) = (
            Cred::superuser(),
            Cred::user(5, 5, &[]),
            Cred::user(6, 6, &[]),
        );
        let dir = model.mkdir(Ino::ROOT, b"d", 0o777, &root, 1).unwrap();
        model.node_mut(dir).unwrap().mode = 0o1777;
        model.create(dir, b"f", 0o666, true, &user, 1).unwrap();
        assert_eq!(model.unlink(dir, b"f", &other, 1), Err(Errno::EPERM));
        assert_eq!(model.unlink(dir, b"f", &user, 1), Ok(()));
    }

    #[test]
    fn links_are_limited() {
        let mut model = Model::new(0);
        let root = Cred::superuser();
        let file = model
            .create(Ino::ROOT, b"f", 0o644, true, &root, 1)
            .unwrap();
        model.node_mut(file).unwrap().nlink = LINK_MAX - 1;
        assert_eq!(model.link(file, Ino::ROOT, b"g", &root, 1), Ok(()));
        assert_eq!(
            model.link(file, Ino::ROOT, b"h", &root, 1),
            Err(Errno::EMLINK)
        );
        model.node_mut(Ino::ROOT).unwrap().nlink = LINK_MAX;
        assert_eq!(
            model.mkdir(Ino::ROOT, b"d", 0o755, &root, 1),
            Err(Errno::EMLINK)
        );
    }
}
