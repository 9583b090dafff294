//! Flags and project ids of files by path.

use std::path::Path;

use super::Volume;
use crate::error::Result;
use crate::fs::FileFlags;

impl Volume {
    /// The flags of a file, following symbolic links.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "text")?;
    /// assert!(volume.flags("/f")?.is_empty());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file cannot be reached.
    pub fn flags(&self, path: impl AsRef<Path>) -> Result<FileFlags> {
        Ok(self.node(path.as_ref(), true)?.flags())
    }

    /// Sets and clears flags of a file or directory, following symbolic links: it has these from
    /// then on.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// use vellum::FileFlags;
    ///
    /// volume.write("/scratch", "text")?;
    /// volume.set_flags("/scratch", FileFlags::NO_DUMP | FileFlags::NO_ATIME)?;
    /// assert!(volume.flags("/scratch")?.contains(FileFlags::NO_DUMP));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Fs::set_flags`](crate::Fs::set_flags).
    pub fn set_flags(&self, path: impl AsRef<Path>, flags: FileFlags) -> Result<()> {
        let node = self.node(path.as_ref(), true)?;
        self.fs.set_flags(&self.cred, &node, flags)
    }

    /// The project id of a file, following symbolic links.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// assert_eq!(pool.volume().project("/")?, 0);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file cannot be reached.
    pub fn project(&self, path: impl AsRef<Path>) -> Result<u32> {
        let node = self.node(path.as_ref(), true)?;
        self.fs.project(&node)
    }

    /// Sets the project id of a file or directory, following symbolic links.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.create_dir("/d")?;
    /// volume.set_project("/d", 7)?;
    /// volume.set_flags("/d", vellum::FileFlags::PROJECT_INHERIT)?;
    /// volume.write("/d/f", "text")?;
    /// assert_eq!(volume.project("/d/f")?, 7);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Fs::set_project`](crate::Fs::set_project).
    pub fn set_project(&self, path: impl AsRef<Path>, project: u32) -> Result<()> {
        let node = self.node(path.as_ref(), true)?;
        self.fs.set_project(&self.cred, &node, project)
    }
}
