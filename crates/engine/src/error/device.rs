//! Errors of the devices that hold a pool's data.

use std::path::PathBuf;

use thiserror::Error;
use vellum_layout::{MEDIUM_PATH_MAX, SEGMENTS_MAX};
use vellum_media::MediaError;

/// Why the pool's data cannot be reached. Messages begin with the path that was tried.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("pool");
/// use vellum::{CreateOptions, DataOptions, Error, MediumError, Pool};
///
/// let data = dir.path().join("data");
/// let external = DataOptions::new(&data).size_bytes(16 << 20);
/// CreateOptions::new(0).data(Some(external)).create(&path)?.close()?;
/// std::fs::rename(&data, dir.path().join("moved"))?;
/// let missing = Pool::open(&path);
/// assert!(matches!(missing, Err(Error::Medium(MediumError::Missing { .. }))));
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Debug, Error)]
pub enum MediumError {
    /// Neither the pool nor the caller names the external data device.
    #[error(
        "the pool's data lie in another file or device, and the pool does not know where: name it \
         with --data"
    )]
    Unknown,
    /// The device is not where it was last found.
    #[error("{}: the data of the pool are not there ({source}); if they have been moved, name the \
         new path with --data", path.display())]
    Missing {
        /// Where it was expected.
        path: PathBuf,
        /// The error of the operating system.
        source: Box<MediaError>,
    },
    /// The device is shorter than the pool needs.
    #[error("{}: the data of the pool need {expected} bytes, and this has {actual}: it was cut \
         short; nothing was changed", path.display())]
    Short {
        /// The device.
        path: PathBuf,
        /// The bytes that it should have.
        expected: u64,
        /// The bytes that it has.
        actual: u64,
    },
    /// The device is something else.
    #[error("{}: {found}, not the data of {expected}; name the right one with --data; nothing was \
         changed", path.display())]
    Foreign {
        /// The device.
        path: PathBuf,
        /// What it is.
        found: Box<str>,
        /// What it should be.
        expected: Box<str>,
    },
    /// The device and the pool were last used in different sessions, so one of them is an old copy.
    #[error(
        "{}: these data and the pool were last used in different sessions: one of the two is an \
         old copy; use the pool and the data that belong together; nothing was changed",
        path.display()
    )]
    OtherSession {
        /// The device.
        path: PathBuf,
    },
    /// The path of the device is too long for the pool to store.
    #[error(
        "{}: the path of an external data device has at most {MEDIUM_PATH_MAX} bytes",
        path.display()
    )]
    LongPath {
        /// The path.
        path: PathBuf,
    },
    /// The device is too small for any pool.
    #[error(
        "{}: an external data device of {bytes} bytes is too small; it needs 3 MiB and more",
        path.display()
    )]
    TooSmall {
        /// The device.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The pool's own medium writes metadata back in any order.
    #[error(
        "{}: metadata in an ordinary file cannot be kept in order with data elsewhere: put the \
         pool into persistent memory, or create it with a log (logged)", path.display()
    )]
    Unordered {
        /// The pool.
        path: PathBuf,
    },
    /// The external data device has no space reserved for a metadata replica.
    #[error(
        "the external data device of the pool has no space for a replica of its metadata: mkfs \
         reserves some if metadata lie in memory (`--medium pmem --data FILE`), except with `-O \
         replica=off`"
    )]
    NoReplica,
    /// The file or device holds no data of any pool.
    #[error("{}: this holds no data of any pool; nothing was changed", path.display())]
    NoMedium {
        /// The file or device.
        path: PathBuf,
    },
    /// The device has a pool's data, but no metadata replica.
    #[error("{}: this has the data of a pool, but no replica of its metadata: only that pool can \
         use it; nothing was changed", path.display())]
    NotAReplica {
        /// The device.
        path: PathBuf,
    },
    /// The metadata replica is older than the data on the device.
    #[error("{}: the replica of the metadata on it is stale: the pool has been used since it was \
         exported, or it never was; nothing was changed", path.display())]
    Stale {
        /// The device.
        path: PathBuf,
    },
    /// The metadata replica does not match its checksums.
    #[error("{}: {what} of the replica on it is not what was written, or cannot be read; the \
         device was not changed", path.display())]
    ReplicaDamaged {
        /// The device.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// `--direct`, for data that no system call reads or writes.
    #[error(
        "{}: --direct has no effect here: the data of this pool are reached in memory; it is for \
         pools with a log (`vellum mkfs --medium disk`) and for those with an external data device \
         (`vellum mkfs --data`)", path.display()
    )]
    NoCalls {
        /// The pool.
        path: PathBuf,
    },
    /// An external data device was named for a pool that has none.
    #[error("the pool has its data itself, not on an external data device: do not use --data")]
    NoExternalData,
}

/// Why a pool cannot get another external data device.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("pool");
/// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
/// # options.create(&path)?.close()?;
/// use vellum::{DataOptions, Error, Pool, PoolOptions, SegmentError};
///
/// let data = DataOptions::new(dir.path().join("data")).size_bytes(16 << 20);
/// let refused = Pool::add_data(&path, &data, &PoolOptions::new());
/// assert!(matches!(refused, Err(Error::Segment(SegmentError::NoExternalData { .. }))));
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Debug, Error)]
pub enum SegmentError {
    /// The pool's data lie in the pool itself.
    #[error("{}: its data lie in the pool itself; another external data device is for pools that \
         have one already (`vellum mkfs --data`)", pool.display())]
    NoExternalData {
        /// The pool.
        pool: PathBuf,
    },
    /// The pool's mapping has a table of fixed size.
    #[error(
        "{}: the table of its file mapping, {mapping}, cannot grow: external data devices can be \
         added with hashfs, radix, extent and extent-cached",
        pool.display()
    )]
    Mapping {
        /// The pool.
        pool: PathBuf,
        /// Its mapping.
        mapping: &'static str,
    },
    /// The pool's external data device has space for a metadata replica.
    #[error("{}: its external data device has space for a replica of the metadata, which would not \
         be complete with a second device: devices can be added to pools created with -O \
         replica=off", pool.display())]
    HasReplica {
        /// The pool.
        pool: PathBuf,
    },
    /// The pool has as many devices as it can.
    #[error("{}: a pool has at most {SEGMENTS_MAX} external data devices", pool.display())]
    Full {
        /// The pool.
        pool: PathBuf,
    },
    /// The devices would have more blocks than a pool can address.
    #[error("{}: the external data devices of a pool have at most 4 TiB together", pool.display())]
    TooLarge {
        /// The pool.
        pool: PathBuf,
    },
    /// The metadata have too few free chunks.
    #[error(
        "{}: the metadata have no space for the table of {bytes} bytes of data, which takes \
         {chunks} free chunks of {chunk_bytes} bytes; remove files, or add a smaller device",
        pool.display()
    )]
    NoRoom {
        /// The pool.
        pool: PathBuf,
        /// Bytes for data on the device.
        bytes: u64,
        /// Chunks that are needed.
        chunks: u64,
        /// Bytes of each chunk.
        chunk_bytes: u64,
    },
    /// The pool's data do not end at the end of a page of its mapping.
    #[error("{}: it is mapped in pages of {page_bytes} bytes, and its data do not fill the last \
         one: no device can be added", pool.display())]
    Pages {
        /// The pool.
        pool: PathBuf,
        /// Bytes of a page of the mapping.
        page_bytes: u64,
    },
    /// The device has data of this pool already.
    #[error("{}: this has data of the pool already; nothing was changed", medium.display())]
    Taken {
        /// The device.
        medium: PathBuf,
    },
    /// Another process used the pool meanwhile.
    #[error("{}: the pool was used meanwhile; nothing was added, try again", pool.display())]
    Used {
        /// The pool.
        pool: PathBuf,
    },
}
