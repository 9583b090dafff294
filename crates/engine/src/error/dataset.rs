//! Errors of the datasets that share a pool.

use std::path::PathBuf;

use thiserror::Error;
use vellum_layout::{FS_MAX, FsNameError, MAIN};

/// Why a dataset of a pool is not to be had, or cannot be added.
#[derive(Debug, Error)]
pub enum DatasetError {
    /// The table has no such name.
    #[error(
        "{}: there is no dataset `{name}` in it; it has {}",
        pool.display(),
        names.join(", ")
    )]
    Unknown {
        /// The pool.
        pool: PathBuf,
        /// What was asked for.
        name: String,
        /// What there is.
        names: Vec<String>,
    },
    /// What cannot be a name.
    #[error(transparent)]
    Name(#[from] FsNameError),
    /// The table has it already.
    #[error("{}: there is a dataset `{name}` in it already", pool.display())]
    Taken {
        /// The pool.
        pool: PathBuf,
        /// The name.
        name: String,
    },
    /// The table has no room.
    #[error("{}: a pool has at most {FS_MAX} datasets", pool.display())]
    Full {
        /// The pool.
        pool: PathBuf,
    },
    /// The table says where it is, and it is not there.
    #[error("{}: {what}; `vellum check` of the pool tells more", path.display())]
    NotThere {
        /// The dataset.
        path: PathBuf,
        /// What is there.
        what: String,
    },
    /// The external data device of a dataset of the same pool.
    #[error(
        "{}: this has the data of dataset `{name}` of the same pool; nothing was changed",
        path.display()
    )]
    DataTaken {
        /// The medium.
        path: PathBuf,
        /// The dataset.
        name: String,
    },
    /// It has files.
    #[error("{}: it has files", path.display())]
    NotEmpty {
        /// The dataset.
        path: PathBuf,
    },
    /// Whether it has files cannot be told.
    #[error("{}: it cannot be looked into ({source})", path.display())]
    Unread {
        /// The dataset.
        path: PathBuf,
        /// Why not.
        source: Box<super::Error>,
    },
    /// The first one goes with the pool.
    #[error("{}: `{MAIN}` is the pool itself, and cannot be removed from it", pool.display())]
    Main {
        /// The pool.
        pool: PathBuf,
    },
}

impl DatasetError {
    /// The errno a POSIX call gives for this.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            Self::Unknown { .. } => libc::ENOENT,
            Self::Name(_) | Self::Main { .. } => libc::EINVAL,
            Self::Taken { .. } => libc::EEXIST,
            Self::DataTaken { .. } => libc::EBUSY,
            Self::NotEmpty { .. } => libc::ENOTEMPTY,
            Self::Unread { source, .. } => source.errno(),
            Self::Full { .. } => libc::ENOSPC,
            Self::NotThere { .. } => libc::EUCLEAN,
        }
    }
}
