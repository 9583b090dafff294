//! The tree of a pool.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use vellum::media::Real;
use vellum::{
    Cred, Error, FileFlags, FileKind, Handle, ListPosition, Node, OpenOptions, RealFs, SetAttr,
    SetTime, XattrMode,
};

use super::tree::{Done, Meta, Names, Reader, Tree, Writer};
use crate::files::{names_in, user, write_all};

pub(crate) struct PoolTree {
    pub(crate) fs: Arc<RealFs>,
    pub(crate) cred: Cred,
}

impl PoolTree {
    pub(crate) fn new(fs: Arc<RealFs>) -> Self {
        Self { fs, cred: user() }
    }

    /// The bytes of all files of the pool, an upper bound for any tree in it.
    pub(crate) fn bytes_used(&self) -> u64 {
        let stat = self.fs.stat_fs();
        (stat.blocks - stat.blocks_free) * 4096
    }

    /// Whether a directory is the same as another one, or below it.
    pub(super) fn is_below(&self, dir: &Node<Real>, above: &Node<Real>) -> Done<bool> {
        let path_of = |node| self.fs.path_of(node);
        let (dir, above) = (path_of(dir)?, path_of(above)?);
        let as_path = |path: &[u8]| Path::new(std::ffi::OsStr::from_bytes(path)).to_owned();
        Ok(as_path(&dir).starts_with(as_path(&above)))
    }
}

impl Tree for PoolTree {
    type Node = Node<Real>;

    fn find(&self, path: &Path, follow: bool) -> Done<Node<Real>> {
        let path = path.as_os_str().as_bytes();
        Ok(self.fs.find(&self.cred, &self.fs.root(), path, follow)?)
    }

    fn lookup(&self, dir: &Node<Real>, name: &[u8]) -> Done<Option<Node<Real>>> {
        match self.fs.lookup(&self.cred, dir, name) {
            Ok(node) => Ok(Some(node)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn meta(&self, node: &Node<Real>) -> Done<Meta> {
        let attr = self.fs.attr(node)?;
        Ok(Meta {
            kind: attr.kind,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            links: attr.nlink.into(),
            identity: (Arc::as_ptr(&self.fs) as u64, attr.ino),
            device: attr.device,
            atime_ns: attr.atime_ns,
            mtime_ns: attr.mtime_ns,
            ctime_ns: attr.ctime_ns,
            allocated_bytes: attr.blocks_512 * 512,
        })
    }

    fn names(&self, dir: &Node<Real>) -> Done<Names> {
        let mut names = Vec::new();
        let mut position = ListPosition::default();
        let listed = self.fs.list(dir, 0, &mut position, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        });
        Ok((names, listed.err().map(Into::into)))
    }

    fn read_link(&self, node: &Node<Real>) -> Done<Vec<u8>> {
        Ok(self.fs.read_link(node)?)
    }

    fn open(&self, node: &Node<Real>) -> Done<Box<dyn Reader>> {
        let options = OpenOptions::new().read(true);
        let handle = self.fs.open_node(&self.cred, node, &options)?;
        Ok(Box::new(PoolFile(handle)))
    }

    fn xattr_names(&self, node: &Node<Real>) -> Done<Vec<Vec<u8>>> {
        Ok(names_in(&self.fs.xattrs(&self.cred, node)?))
    }

    fn xattr(&self, node: &Node<Real>, name: &[u8]) -> Done<Option<Vec<u8>>> {
        match self.fs.xattr(&self.cred, node, name) {
            Ok(value) => Ok(Some(value)),
            Err(Error::NoAttribute) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn make_dir(&self, dir: &Node<Real>, name: &[u8], mode: u16) -> Done<Node<Real>> {
        Ok(self.fs.mkdir(&self.cred, dir, name, mode)?)
    }

    fn create(
        &self,
        dir: &Node<Real>,
        name: &[u8],
        mode: u16,
    ) -> Done<(Node<Real>, Box<dyn Writer>)> {
        let options = OpenOptions::new().read(true).write(true).mode(mode);
        let handle = self.fs.create(&self.cred, dir, name, &options)?;
        Ok((handle.node().clone(), Box::new(PoolFile(handle))))
    }

    fn rewrite(&self, node: &Node<Real>) -> Done<Box<dyn Writer>> {
        let options = OpenOptions::new().write(true).truncate(true);
        let handle = self.fs.open_node(&self.cred, node, &options)?;
        Ok(Box::new(PoolFile(handle)))
    }

    fn symlink(&self, dir: &Node<Real>, name: &[u8], target: &[u8]) -> Done<Node<Real>> {
        Ok(self.fs.symlink(&self.cred, dir, name, target)?)
    }

    fn make_node(&self, dir: &Node<Real>, name: &[u8], meta: &Meta, mode: u16) -> Done<Node<Real>> {
        let (fs, cred) = (&self.fs, &self.cred);
        Ok(fs.mknod(cred, dir, name, meta.kind, mode, meta.device)?)
    }

    fn link(&self, node: &Node<Real>, dir: &Node<Real>, name: &[u8]) -> Done {
        Ok(self.fs.link(&self.cred, node, dir, name)?)
    }

    fn remove(&self, dir: &Node<Real>, name: &[u8]) -> Done {
        match self.fs.unlink(&self.cred, dir, name) {
            Ok(()) | Err(Error::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn set_mode(&self, node: &Node<Real>, mode: u16) -> Done {
        let set = SetAttr::new().mode(Some(mode));
        self.fs.set_attr(&self.cred, node, &set)?;
        Ok(())
    }

    fn is_privileged(&self) -> bool {
        self.cred.privileged
    }

    fn set_owner(&self, node: &Node<Real>, meta: &Meta) -> Done {
        let owner = SetAttr::new().uid(Some(meta.uid)).gid(Some(meta.gid));
        self.fs.set_attr(&self.cred, node, &owner)?;
        Ok(())
    }

    fn set_mode_and_times(&self, node: &Node<Real>, meta: &Meta, mode: u16) -> Done {
        let set = SetAttr::new()
            .mode((meta.kind != FileKind::Symlink).then_some(mode))
            .atime(Some(SetTime::At(meta.atime_ns)))
            .mtime(Some(SetTime::At(meta.mtime_ns)));
        self.fs.set_attr(&self.cred, node, &set)?;
        Ok(())
    }

    fn set_xattr(&self, node: &Node<Real>, name: &[u8], value: &[u8]) -> Done {
        let (fs, cred) = (&self.fs, &self.cred);
        Ok(fs.set_xattr(cred, node, name, value, XattrMode::Any)?)
    }

    fn remove_xattr(&self, node: &Node<Real>, name: &[u8]) -> Done {
        Ok(self.fs.remove_xattr(&self.cred, node, name)?)
    }

    fn flags(&self, node: &Node<Real>) -> Done<(FileFlags, Option<u32>)> {
        Ok((node.flags(), Some(self.fs.project(node)?)))
    }

    fn set_flags(&self, node: &Node<Real>, flags: FileFlags, project: Option<u32>) -> Done {
        let (fs, cred) = (&self.fs, &self.cred);
        match project {
            Some(project) => fs.set_flags_and_project(cred, node, flags, project)?,
            None => fs.set_flags(cred, node, flags)?,
        }
        Ok(())
    }
}

/// An open file.
pub(crate) struct PoolFile(pub(crate) Handle<Real>);

impl Reader for PoolFile {
    fn next_data(&self, at: u64) -> Done<Option<(u64, u64)>> {
        match self.0.seek_data(at) {
            Ok(from) => Ok(Some((from, self.0.seek_hole(from)?))),
            Err(Error::NoData) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Done<usize> {
        Ok(self.0.read_at(at, buffer)?)
    }
}

impl Writer for PoolFile {
    fn write_at(&self, at: u64, data: &[u8]) -> Done {
        Ok(write_all(&self.0, at, data)?)
    }

    fn set_len(&self, size: u64) -> Done {
        match self.0.attr()?.size < size {
            true => Ok(self.0.truncate(size)?),
            false => Ok(()),
        }
    }
}
