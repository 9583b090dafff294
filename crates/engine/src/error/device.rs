//! Errors of the devices that hold a pool's data.

use std::path::PathBuf;

use thiserror::Error;
use vellum_layout::{MEDIUM_PATH_MAX, SEGMENTS_MAX};
use vellum_media::MediaError;

/// Why the data of a pool are not to be had. The message begins with the path that was tried.
#[derive(Debug, Error)]
pub enum MediumError {
    /// The pool does not say where it is, nor does the caller.
    #[error(
        "the pool's data lie in another file or device, and it does not say where: name it with \
         --data"
    )]
    Unknown,
    /// It is not where it was last found.
    #[error("{}: the data of the pool are not there ({source}); if they have been moved, name the \
         place with --data", path.display())]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
        /// What the system said.
        source: Box<MediaError>,
    },
    /// It has another size.
    #[error("{}: the data of the pool need {expected} bytes, and this has {actual}: it was cut \
         short; nothing was changed", path.display())]
    Short {
        /// What was found.
        path: PathBuf,
        /// Bytes that there should be.
        expected: u64,
        /// Bytes that there are.
        actual: u64,
    },
    /// It is something else.
    #[error("{}: {found}, not the data of {expected}; name the right one with --data; nothing was \
         changed", path.display())]
    Foreign {
        /// What was found.
        path: PathBuf,
        /// What it is.
        found: Box<str>,
        /// What it should be.
        expected: Box<str>,
    },
    /// A copy of it from another time, or the pool is one.
    #[error(
        "{}: these are the data of the pool as they were in another session than the one in which \
         the pool was last used: one of the two is an old copy; use those that belong together; \
         nothing was changed",
        path.display()
    )]
    OtherSession {
        /// The medium.
        path: PathBuf,
    },
    /// A path for which the pool has no room.
    #[error(
        "{}: the path of an external data device has at most {MEDIUM_PATH_MAX} bytes",
        path.display()
    )]
    LongPath {
        /// The path.
        path: PathBuf,
    },
    /// Less than a pool can do with.
    #[error(
        "{}: an external data device of {bytes} bytes is too small; it needs 3 MiB and more",
        path.display()
    )]
    TooSmall {
        /// The medium.
        path: PathBuf,
        /// Its bytes.
        bytes: u64,
    },
    /// The pool's own medium writes back in any order.
    #[error(
        "{}: metadata in an ordinary file cannot be kept in order with data elsewhere: put the \
         pool into persistent memory, or make it with a log (logged)", path.display()
    )]
    Unordered {
        /// The pool.
        path: PathBuf,
    },
    /// The external data device has no room for a copy of the metadata.
    #[error(
        "the external data device of the pool carries no copy of its metadata: mkfs reserves room \
         for one where metadata lie in memory (`--medium pmem --data FILE`), unless it is told `-O \
         replica=off`"
    )]
    NoReplica,
    /// Something else than the data of a pool.
    #[error("{}: this holds no data of any pool; nothing was changed", path.display())]
    NoMedium {
        /// What was found.
        path: PathBuf,
    },
    /// A medium without a copy of the metadata.
    #[error("{}: this has the data of a pool, and no copy of its metadata: only that pool can use \
         it; nothing was changed", path.display())]
    NotAReplica {
        /// The medium.
        path: PathBuf,
    },
    /// A medium whose copy of the metadata is not as new as its data.
    #[error("{}: the replica of the metadata on it is stale: the pool has been used since it was \
         exported, or it never was; nothing was changed", path.display())]
    Stale {
        /// The medium.
        path: PathBuf,
    },
    /// A medium whose copy of the metadata is not what was written.
    #[error("{}: {what} of the copy on it is not what was written, or cannot be read; the medium \
         was not changed", path.display())]
    ReplicaDamaged {
        /// The medium.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// Data that nobody reads or writes by calls.
    #[error(
        "{}: there is nothing that --direct could pass by: the data of this pool are reached in \
         memory; it is for pools with a log (`vellum mkfs --medium disk`) and for those whose data \
         lie on another file or device (`vellum mkfs --data`)", path.display()
    )]
    NoCalls {
        /// The pool.
        path: PathBuf,
    },
    /// An external data device of a pool that has none.
    #[error(
        "the pool has its data itself, not on a medium of their own: do not name one with --data"
    )]
    NoExternalData,
}

/// Why a pool gets no further external data device.
#[derive(Debug, Error)]
pub enum SegmentError {
    /// Its data are not on media of their own.
    #[error("{}: its data lie in the pool itself; further external data devices are for pools \
         whose data have one already (`vellum mkfs --data`)", pool.display())]
    NoExternalData {
        /// The pool.
        pool: PathBuf,
    },
    /// Its mapping has a table of one size.
    #[error(
        "{}: the table of its file mapping, {mapping}, is made for the blocks that there are: \
         external data devices can be added with hashfs, radix, extent and extent-cached",
        pool.display()
    )]
    Mapping {
        /// The pool.
        pool: PathBuf,
        /// Its mapping.
        mapping: &'static str,
    },
    /// Its external data device carries a copy of its metadata.
    #[error("{}: its external data device carries a copy of its metadata, to be a file system \
         alone, which it would not be with a second one: external data devices can be added to \
         pools that were made with -O replica=off", pool.display())]
    HasReplica {
        /// The pool.
        pool: PathBuf,
    },
    /// It has as many as it can.
    #[error("{}: a pool has at most {SEGMENTS_MAX} external data devices", pool.display())]
    Full {
        /// The pool.
        pool: PathBuf,
    },
    /// More blocks than can be named.
    #[error("{}: the external data devices of a pool have at most 4 TiB together", pool.display())]
    TooLarge {
        /// The pool.
        pool: PathBuf,
    },
    /// The metadata are full.
    #[error(
        "{}: the metadata have no room for the table of {bytes} bytes of data, which takes \
         {chunks} free chunks of {chunk_bytes} bytes; remove files, or add a smaller medium",
        pool.display()
    )]
    NoRoom {
        /// The pool.
        pool: PathBuf,
        /// Bytes of the medium's data.
        bytes: u64,
        /// Chunks.
        chunks: u64,
        /// Bytes of each.
        chunk_bytes: u64,
    },
    /// The pool is mapped in pages that the data do not fill.
    #[error("{}: it is mapped in pages of {page_bytes} bytes, and its data do not end with one: \
         nothing can follow them", pool.display())]
    Pages {
        /// The pool.
        pool: PathBuf,
        /// Bytes of a page.
        page_bytes: u64,
    },
    /// It has data of the pool already.
    #[error("{}: this has data of the pool already; nothing was changed", medium.display())]
    Taken {
        /// The medium.
        medium: PathBuf,
    },
    /// Somebody was quicker.
    #[error("{}: somebody used the pool meanwhile; nothing was added, try again", pool.display())]
    Used {
        /// The pool.
        pool: PathBuf,
    },
}
