//! The path handling that a kernel does around calls by node and name: the last component, the
//! slashes behind it, `.` and `..`.

use vellum::media::Real;
use vellum::{Access, Error, FileKind, Node, RenameFlags};

use crate::failure::Result;
use crate::objects::At;

/// The last component of a path, and its directory.
pub(crate) struct Last<'p> {
    pub(crate) dir: Node<Real>,
    pub(crate) name: &'p [u8],
    /// Whether a slash follows it.
    slash: bool,
}

impl Last<'_> {
    fn is_dots(&self) -> bool {
        matches!(self.name, b"." | b"..")
    }
}

/// The longest path, with its zero byte.
const PATH_MAX: usize = 4096;

/// Checks the length of a path, or of the target of a symbolic link.
pub(crate) fn check(path: &[u8]) -> Result<()> {
    match path.len() {
        0 => Err(Error::NotFound.into()),
        PATH_MAX.. => Err(Error::NameTooLong.into()),
        _ => Ok(()),
    }
}

impl At<'_> {
    /// Finds the file that a path names.
    pub(crate) fn find(&self, path: &[u8], follow: bool) -> Result<Node<Real>> {
        Ok(self.fs().find(self.cred, self.start, path, follow)?)
    }

    /// Walks to the last component. Returns `None` if the path is the root itself.
    fn last<'p>(&self, path: &'p [u8]) -> Result<Option<Last<'p>>> {
        check(path)?;
        let Some(end) = path.iter().rposition(|&b| b != b'/').map(|at| at + 1) else {
            return Ok(None);
        };
        let cut = path[..end].iter().rposition(|&b| b == b'/');
        let cut = cut.map_or(0, |at| at + 1);
        let dir = match &path[..cut] {
            b"" => self.start.clone(),
            prefix if prefix.iter().all(|&b| b == b'/') => self.fs().root(),
            prefix => self.find(prefix, true)?,
        };
        let last = Last {
            dir,
            name: &path[cut..end],
            slash: end < path.len(),
        };
        if last.is_dots() {
            self.fs().access(self.cred, &last.dir, Access::EXECUTE)?;
        }
        Ok(Some(last))
    }

    fn last_or<'p>(&self, path: &'p [u8], at_root: Error) -> Result<Last<'p>> {
        Ok(self.last(path)?.ok_or(at_root)?)
    }

    /// The last component as the name of a new directory.
    pub(crate) fn new_dir<'p>(&self, path: &'p [u8]) -> Result<Last<'p>> {
        self.last_or(path, Error::Exists)
    }

    /// The last component as the name of a new file that is not a directory. Fails if a slash
    /// follows it.
    pub(crate) fn new_name<'p>(&self, path: &'p [u8]) -> Result<Last<'p>> {
        let last = self.last_or(path, Error::Exists)?;
        if last.slash && !last.is_dots() {
            self.fs().lookup(self.cred, &last.dir, last.name)?;
            return Err(Error::Exists.into());
        }
        Ok(last)
    }

    pub(crate) fn rmdir(&self, path: &[u8]) -> Result<()> {
        let last = self.last_or(path, Error::Busy)?;
        Ok(self.fs().rmdir(self.cred, &last.dir, last.name)?)
    }

    pub(crate) fn unlink(&self, path: &[u8]) -> Result<()> {
        let last = self.last_or(path, Error::IsDirectory)?;
        if last.slash && !last.is_dots() {
            let found = self.fs().lookup(self.cred, &last.dir, last.name)?;
            let error = match found.kind() {
                FileKind::Directory => Error::IsDirectory,
                _ => Error::NotDirectory,
            };
            return Err(error.into());
        }
        Ok(self.fs().unlink(self.cred, &last.dir, last.name)?)
    }

    /// Renames `from` to `to`, whose path begins at `target` and is in the same file system.
    pub(crate) fn rename(
        &self,
        from: &[u8],
        target: At<'_>,
        to: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        if flags == RenameFlags::NO_REPLACE | RenameFlags::EXCHANGE {
            return Err(Error::Invalid("to replace nothing, and to exchange").into());
        }
        let root = || Last {
            dir: self.fs().root(),
            name: b"..",
            slash: false,
        };
        let from = self.last(from)?.unwrap_or_else(root);
        self.fs().access(self.cred, &from.dir, Access::EXECUTE)?;
        let to = target.last(to)?.unwrap_or_else(root);
        self.fs().access(self.cred, &to.dir, Access::EXECUTE)?;
        if (from.slash || to.slash) && !from.is_dots() && !to.is_dots() {
            self.refuse_slashes(&from, &to, flags)?;
        }
        let (of, at) = (&from.dir, &to.dir);
        let fs = self.fs();
        Ok(fs.rename(self.cred, of, from.name, at, to.name, flags)?)
    }

    /// Fails unless each name with a slash behind it is that of a directory.
    fn refuse_slashes(&self, from: &Last<'_>, to: &Last<'_>, flags: RenameFlags) -> Result<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let source = self.fs().lookup(self.cred, &from.dir, from.name)?.kind();
        let target = match self.fs().lookup(self.cred, &to.dir, to.name) {
            Ok(_) if flags.contains(RenameFlags::NO_REPLACE) => return Err(Error::Exists.into()),
            Ok(node) => Some(node.kind()),
            Err(Error::NotFound) if !exchange => None,
            Err(error) => return Err(error.into()),
        };
        let is_dir = |kind| kind == FileKind::Directory;
        let target_fits = !exchange || !to.slash || target.is_some_and(is_dir);
        let source_fits = is_dir(source) || !from.slash && (exchange || !to.slash);
        match target_fits && source_fits {
            true => Ok(()),
            false => Err(Error::NotDirectory.into()),
        }
    }
}
