//! The path handling of a kernel, before it calls a file system by node and name.

use vellum::media::Memories;
use vellum::{Access, Cred, Error, FileKind, Node, RenameFlags, Result};
use vellum_model::PATH_MAX;

use crate::Driver;

/// The last component of a path, and its directory.
pub(crate) struct Last<'p, M: Memories> {
    pub(crate) dir: Node<M>,
    pub(crate) name: &'p [u8],
    /// Whether a slash follows it.
    slash: bool,
}

impl<M: Memories> Last<'_, M> {
    fn is_dots(&self) -> bool {
        matches!(self.name, b"." | b"..")
    }
}

/// Checks the length of a path or of the text of a symbolic link.
pub(crate) fn check(path: &[u8]) -> Result<()> {
    match path.len() {
        0 => Err(Error::NotFound),
        PATH_MAX.. => Err(Error::NameTooLong),
        _ => Ok(()),
    }
}

impl<M: Memories> Driver<M> {
    /// Walks to the last component. Returns `None` if the path is the root itself.
    fn last<'p>(&self, cred: &Cred, path: &'p [u8]) -> Result<Option<Last<'p, M>>> {
        check(path)?;
        let Some(end) = path.iter().rposition(|&b| b != b'/').map(|at| at + 1) else {
            return Ok(None);
        };
        let slash = path[..end].iter().rposition(|&b| b == b'/');
        let cut = slash.map_or(0, |at| at + 1);
        let dir = match &path[..cut] {
            b"" => self.start(),
            prefix if prefix.iter().all(|&b| b == b'/') => self.fs().root(),
            prefix => self.find(cred, prefix, true)?,
        };
        let last = Last {
            dir,
            name: &path[cut..end],
            slash: end < path.len(),
        };
        if last.is_dots() {
            self.fs().access(cred, &last.dir, Access::EXECUTE)?;
        }
        Ok(Some(last))
    }

    pub(crate) fn last_or<'p>(
        &self,
        cred: &Cred,
        path: &'p [u8],
        at_root: Error,
    ) -> Result<Last<'p, M>> {
        self.last(cred, path)?.ok_or(at_root)
    }

    /// The last component as the name of a new file that is not a directory. Fails if a slash
    /// follows it.
    pub(crate) fn new_name<'p>(&self, cred: &Cred, path: &'p [u8]) -> Result<Last<'p, M>> {
        let last = self.last_or(cred, path, Error::Exists)?;
        if !last.slash || last.is_dots() {
            return Ok(last);
        }
        self.fs().lookup(cred, &last.dir, last.name)?;
        Err(Error::Exists)
    }

    pub(crate) fn rmdir(&self, cred: &Cred, path: &[u8]) -> Result<()> {
        let last = self.last_or(cred, path, Error::Busy)?;
        self.fs().rmdir(cred, &last.dir, last.name)
    }

    pub(crate) fn unlink(&self, cred: &Cred, path: &[u8]) -> Result<()> {
        let last = self.last_or(cred, path, Error::IsDirectory)?;
        if last.slash && !last.is_dots() {
            let kind = self.fs().lookup(cred, &last.dir, last.name)?.kind();
            return Err(match kind {
                FileKind::Directory => Error::IsDirectory,
                _ => Error::NotDirectory,
            });
        }
        self.fs().unlink(cred, &last.dir, last.name)
    }

    pub(crate) fn rename(&self, cred: &Cred, from: &[u8], to: &[u8], flags: u32) -> Result<()> {
        let flags = RenameFlags::from_bits_retain(flags);
        if flags == RenameFlags::NO_REPLACE | RenameFlags::EXCHANGE {
            return Err(Error::Invalid("to replace nothing, and to exchange"));
        }
        let root = || Last {
            dir: self.fs().root(),
            name: b"..",
            slash: false,
        };
        let from = self.last(cred, from)?.unwrap_or_else(root);
        self.fs().access(cred, &from.dir, Access::EXECUTE)?;
        let to = self.last(cred, to)?.unwrap_or_else(root);
        self.fs().access(cred, &to.dir, Access::EXECUTE)?;
        if (from.slash || to.slash) && !from.is_dots() && !to.is_dots() {
            self.refuse_slashes(cred, &from, &to, flags)?;
        }
        let (of, at) = (&from.dir, &to.dir);
        self.fs().rename(cred, of, from.name, at, to.name, flags)
    }

    fn refuse_slashes(
        &self,
        cred: &Cred,
        from: &Last<'_, M>,
        to: &Last<'_, M>,
        flags: RenameFlags,
    ) -> Result<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let source = self.fs().lookup(cred, &from.dir, from.name)?.kind();
        let target = match self.fs().lookup(cred, &to.dir, to.name) {
            Ok(_) if flags.contains(RenameFlags::NO_REPLACE) => return Err(Error::Exists),
            Ok(node) => Some(node.kind()),
            Err(Error::NotFound) if !exchange => None,
            Err(error) => return Err(error),
        };
        let is_dir = |kind| kind == FileKind::Directory;
        let target_fits = !exchange || !to.slash || target.is_some_and(is_dir);
        let source_fits = is_dir(source) || !from.slash && (exchange || !to.slash);
        if target_fits && source_fits {
            Ok(())
        } else {
            Err(Error::NotDirectory)
        }
    }
}
