//! Vellum: a file system for persistent memory that runs inside the process that uses it.
//!
//! ```
//! let pool = vellum::Pool::memory(16 << 20)?;
//! let volume = pool.volume();
//! volume.write("/greeting", b"hello")?;
//! assert_eq!(volume.read("/greeting")?, b"hello");
//! # Ok::<(), vellum::Error>(())
//! ```
//!
//! [`Volume`] works by paths, like `std::fs`. [`Fs`] works by nodes and names, for adapters. Both
//! may be used by any number of threads. An operation that returned is durable as far as the
//! medium goes; `docs/SEMANTICS.md` says how far that is.
#![deny(unsafe_code)]

#[cfg(test)]
mod checking;
mod core;
mod devices;
pub mod disk_sites;
mod durability;
mod error;
pub mod experiments;
mod fs;
mod logs;
mod mapping;
mod namespace;
mod pool;
pub mod reading;
pub mod sites;

pub use crate::core::Clock;
pub use crate::core::access_times::{AccessPolicy, AccessTimes};
pub use crate::core::limits::LINK_MAX;
pub use crate::core::slots::prefer_thread_slot;
pub use devices::medium::{DataApart, find_data, pool_of_data};
pub use devices::replica::{AttachOptions, Carried};
pub use durability::commit::Durability;
pub use error::{Error, MediumError, PartError, Place, Result, ZoneError};
pub use fs::{
    Access, Allocate, Attr, CacheUsage, Cred, Fs, Handle, ListPosition, Node, OpenOptions,
    RenameFlags, SetAttr, SetTime, StatFs, View, ViewPlace,
};
pub use logs::redo::{FoundImage, ImagePlace, LogCounts};
pub use logs::undo::VersionCounts;
pub use mapping::timed::{MappingTime, MappingTimer};
pub use namespace::{
    Area, Decided, DirEntry, Evolution, Label, MergedArea, Outcome, RENAMED_ROUNDS,
};
pub use pool::datasets::{FileSystem, PoolPath, own_bytes};
pub use pool::external::open_bytes;
pub use pool::lifecycle::{FormatOptions, MountOptions, Opened, attach, format};
pub use pool::volume::{Entry, File, ReadDir, Volume};
pub use pool::{CreateOptions, DataOptions, Pool, PoolOptions, RealFs, boot_id, media_of_new_pool};
pub use vellum_layout::{
    FileKind, Formed, FsNameError, GeometryError, MappingKind, MergeReason, Merged, NamespaceKind,
    SuperblockError, uuid_text,
};
pub use vellum_media as media;
