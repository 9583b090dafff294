//! Vellum: a file system for persistent memory that runs inside the process that uses it.
//!
//! A [`Pool`] is a file or device that holds a file system. A [`Volume`] of it works by paths, like
//! `std::fs`; a [`File`] reads, writes and seeks. No daemon and no mount are involved, and most
//! operations make no system call.
//!
//! ```
//! use std::io::Write;
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("notes.vellum");
//! let pool = vellum::Pool::create(&path)?;
//! let volume = pool.volume();
//! volume.create_dir_all("/notes/2026")?;
//! let mut file = volume.create("/notes/2026/first")?;
//! writeln!(file, "a line")?;
//! file.sync_all()?; // the file survives a power cut from here on
//! assert_eq!(volume.read_to_string("/notes/2026/first")?, "a line\n");
//! for entry in volume.walk("/")? {
//!     println!("{}", entry?.path().display());
//! }
//! pool.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Creating and opening pools
//!
//! | call | for |
//! |---|---|
//! | [`Pool::create`], [`Pool::open`] | a file, with the safe defaults |
//! | [`CreateOptions`] | other sizes, namespaces, mappings, media |
//! | [`PoolOptions`] | read-only access, other durability |
//! | [`Pool::memory`] | tests; the pool is gone when the process ends |
//!
//! One process has a pool open at a time. Any number of its threads may use it.
//!
//! # What survives
//!
//! A change of a name, a size or an attribute is atomic: after a crash it is there completely or
//! not at all. On persistent memory it survives a power cut once the operation has returned. In an
//! ordinary file or on a disk it survives once [`File::sync_all`], [`Volume::sync`] or
//! [`Pool::close`] has returned, and without them after a few seconds
//! ([`PoolOptions::commit_every`]). `docs/SEMANTICS.md` lists every medium.
//!
//! # Errors
//!
//! [`Error`] names the cause and, in a damaged pool, the location. It converts into
//! [`std::io::Error`] with the errno and kind that the kernel would report, so `?` works in
//! functions that return `io::Result`.
//!
//! # Inodes and names
//!
//! Programs that need more than paths, such as a mount, use [`Fs`] with [`Node`], [`Handle`] and
//! [`Attr`].
//!
//! # Features
//!
//! `internals` makes the modules public that Vellum's own programs, tests and benchmarks need. They
//! change without notice.
#![deny(unsafe_code)]
#![cfg_attr(
    not(feature = "internals"),
    allow(dead_code, unused_imports, unreachable_pub)
)]

/// Modules that only the feature `internals` makes public.
macro_rules! internals {
    ($($module:ident),+) => {$(
        #[cfg(feature = "internals")]
        #[doc(hidden)]
        pub mod $module;
        #[cfg(not(feature = "internals"))]
        mod $module;
    )+};
}

internals!(disk_sites, experiments, sites);

#[cfg(test)]
mod checking;
mod core;
mod devices;
mod durability;
mod error;
mod fs;
#[cfg(feature = "internals")]
mod internals;
mod logs;
mod mapping;
mod namespace;
mod pool;
pub mod reading;

pub use crate::core::access_times::{AccessPolicy, AccessTimes};
pub use crate::core::limits::LINK_MAX;
pub use devices::medium::{ExternalData, find_data, pool_of_data};
pub use devices::replica::{AttachOptions, ExportedReplica};
pub use durability::commit::Durability;
pub use error::{
    CopyError, DatasetError, Error, Location, MediumError, ResizeError, Result, SegmentError,
};
pub use fs::{
    Access, Allocate, Attr, CacheUsage, Copied, CopyScope, Cred, FileFlags, Fs, Handle, HeldLock,
    ListPosition, LockCancel, LockKind, LockOwner, LockRange, LockWait, Node, OpenOptions, Quota,
    QuotaDefaults, QuotaKind, QuotaLimits, RenameFlags, SetAttr, SetTime, StatFs, View, ViewSource,
    XattrMode,
};
pub use logs::redo::{FoundImage, ImageLocation, LogCounts};
pub use logs::undo::UndoCounts;
pub use namespace::ListEntry;
pub use pool::datasets::{Dataset, PoolPath};
pub use pool::volume::{DirEntry, File, FileType, Metadata, Permissions, ReadDir, Volume, Walk};
pub use pool::{CreateOptions, DataOptions, Pool, PoolOptions, RealFs};
pub use vellum_layout::{
    FileKind, FsNameError, GeometryError, MappingKind, NamespaceKind, SuperblockError,
};
pub use vellum_media::{MediaChoice, MediaError, MediaKind};

#[cfg(feature = "internals")]
#[doc(hidden)]
pub use internals::*;
