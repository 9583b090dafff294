//! Why a pool cannot be copied.

use std::io;

use thiserror::Error;

/// Why a pool could not be copied. It is as it was, and the copy is useless.
///
/// ```
/// use vellum::{CopyError, Error};
///
/// # let dir = tempfile::tempdir()?;
/// let pool = vellum::Pool::memory(16 << 20)?;
/// let refused = pool.fs().snapshot(dir.path(), &|_, _| {}); // a directory is there already
/// assert!(matches!(refused, Err(Error::Copy(CopyError::Target(_)))));
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Debug, Error)]
pub enum CopyError {
    /// The pool's data lie on external devices.
    #[error(
        "its data lie on another device, which a snapshot does not reach: copy its files with \
         `vellum export`"
    )]
    ExternalData,
    /// Another copy of the pool is being made.
    #[error("another snapshot or check of it is running; try again when that has ended")]
    Running,
    /// Whoever asked for the copy wants it no more.
    #[error("the copy was cut short")]
    Stopped,
    /// Writers had to wait too long for the copy.
    #[error(
        "the copy was given up, because its file takes bytes more slowly than the pool changes; \
         try a faster disk, or a quieter time"
    )]
    TooSlow,
    /// The file of the copy cannot be written.
    #[error("cannot write the copy: {0}")]
    Target(io::Error),
}

impl CopyError {
    pub(super) fn errno(&self) -> i32 {
        match self {
            Self::ExternalData => libc::EOPNOTSUPP,
            Self::Running => libc::EBUSY,
            Self::Stopped => libc::EINTR,
            Self::TooSlow => libc::ETIMEDOUT,
            Self::Target(error) => error.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}
