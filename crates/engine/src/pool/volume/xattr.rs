//! Extended attributes of files by path.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::Volume;
use crate::error::{Error, Result};
use crate::fs::XattrMode;

impl Volume {
    /// The value of an extended attribute of a file, following symbolic links; `None` if it has no
    /// such attribute. `name` has its prefix, as `user.`.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "text")?;
    /// volume.set_xattr("/f", "user.note", "mine")?;
    /// assert_eq!(volume.xattr("/f", "user.note")?.as_deref(), Some(&b"mine"[..]));
    /// assert_eq!(volume.xattr("/f", "user.other")?, None);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `getxattr(2)`.
    pub fn xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        let node = self.node(path.as_ref(), true)?;
        match self.fs.xattr(&self.cred, &node, name.as_ref().as_bytes()) {
            Err(Error::NoAttribute) => Ok(None),
            found => found.map(Some),
        }
    }

    /// The names of all extended attributes of a file, following symbolic links.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.set_xattr("/", "user.note", "mine")?;
    /// assert_eq!(volume.xattrs("/")?, ["user.note"]);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `listxattr(2)`.
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let node = self.node(path.as_ref(), true)?;
        let list = self.fs.xattrs(&self.cred, &node)?;
        let names = list.split_inclusive(|&byte| byte == 0);
        let name = |name: &[u8]| OsString::from_vec(name[..name.len() - 1].to_vec());
        Ok(names.map(name).collect())
    }

    /// Sets an extended attribute of a file, following symbolic links, whether or not it exists.
    /// `name` has its prefix, as `user.`.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "text")?;
    /// volume.set_xattr("/f", "user.mime_type", "text/plain")?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `setxattr(2)`.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let node = self.node(path.as_ref(), true)?;
        let (name, value) = (name.as_ref().as_bytes(), value.as_ref());
        self.fs
            .set_xattr(&self.cred, &node, name, value, XattrMode::Any)
    }

    /// Removes an extended attribute of a file, following symbolic links. `name` has its prefix, as
    /// `user.`.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.set_xattr("/", "user.note", "mine")?;
    /// volume.remove_xattr("/", "user.note")?;
    /// assert!(volume.xattrs("/")?.is_empty());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `removexattr(2)`; [`Error::NoAttribute`] if the file has no such attribute.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        let node = self.node(path.as_ref(), true)?;
        self.fs
            .remove_xattr(&self.cred, &node, name.as_ref().as_bytes())
    }
}
