//! Errors of datasets, the file systems that share a pool.

use std::path::PathBuf;

use thiserror::Error;
use vellum_layout::{FS_MAX, FsNameError, MAIN};

/// Why a dataset of a pool cannot be used or added.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("pool");
/// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
/// # options.create(&path)?.close()?;
/// use vellum::{DatasetError, Error, Pool};
///
/// let error = Pool::remove_dataset(&path, "mail").unwrap_err();
/// let Error::Dataset(DatasetError::Unknown { names, .. }) = error else { panic!("{error}") };
/// assert_eq!(names, ["main"]);
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Debug, Error)]
pub enum DatasetError {
    /// The pool's table has no dataset of that name.
    #[error(
        "{}: there is no dataset `{name}` in it; it has {}",
        pool.display(),
        names.join(", ")
    )]
    Unknown {
        /// The pool.
        pool: PathBuf,
        /// The name that was asked for.
        name: String,
        /// The names of the pool's datasets.
        names: Vec<String>,
    },
    /// The name is not a valid one.
    #[error(transparent)]
    Name(#[from] FsNameError),
    /// The pool has a dataset of that name already.
    #[error("{}: there is a dataset `{name}` in it already", pool.display())]
    Taken {
        /// The pool.
        pool: PathBuf,
        /// The name.
        name: String,
    },
    /// The table of datasets is full.
    #[error("{}: a pool has at most {FS_MAX} datasets", pool.display())]
    Full {
        /// The pool.
        pool: PathBuf,
    },
    /// The dataset is not where the table says.
    #[error("{}: {what}; `vellum check` of the pool shows more", path.display())]
    NotThere {
        /// The dataset.
        path: PathBuf,
        /// What is wrong there.
        what: String,
    },
    /// The device has the data of another dataset of the same pool.
    #[error(
        "{}: this device has the data of dataset `{name}` of the same pool; nothing was changed",
        path.display()
    )]
    DataTaken {
        /// The device.
        path: PathBuf,
        /// The dataset that has its data there.
        name: String,
    },
    /// The dataset has files.
    #[error("{}: it has files", path.display())]
    NotEmpty {
        /// The dataset.
        path: PathBuf,
    },
    /// The dataset cannot be opened to see whether it has files.
    #[error("{}: it cannot be opened, so it may have files ({source})", path.display())]
    Unread {
        /// The dataset.
        path: PathBuf,
        /// Why not.
        source: Box<super::Error>,
    },
    /// The first dataset cannot be removed.
    #[error("{}: `{MAIN}` is the pool itself and cannot be removed", pool.display())]
    Main {
        /// The pool.
        pool: PathBuf,
    },
}

impl DatasetError {
    /// The errno that a POSIX call returns for this.
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
