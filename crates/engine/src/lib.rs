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

mod access_times;
mod alloc;
mod cachelet;
mod carried;
#[cfg(test)]
mod checking;
mod commit;
mod core;
mod data;
pub mod disk_sites;
mod error;
pub mod experiments;
mod fs;
mod image_memory;
mod journal;
mod lease;
mod log;
mod mapping;
mod mapping_time;
mod medium;
mod mount;
mod namespace;
mod overwrite;
mod parts;
mod pool;
pub mod reading;
mod session;
pub mod sites;
mod slots;
mod times;
mod versions;
mod volume;
mod zones;

pub use crate::commit::Durability;
pub use crate::core::Clock;
pub use access_times::{AccessPolicy, AccessTimes};
pub use carried::{AttachOptions, Carried};
pub use error::{Error, Place, Result};
pub use fs::{
    Access, Allocate, Attr, CacheUsage, Cred, Fs, Handle, ListPosition, Node, OpenOptions,
    RenameFlags, SetAttr, SetTime, StatFs, View, ViewPlace,
};
pub use log::{FoundImage, ImagePlace, LogCounts};
pub use mapping_time::{MappingTime, MappingTimer};
pub use medium::{MediumError, find_data, open_bytes, pool_of_data};
pub use mount::{DataApart, FormatOptions, MountOptions, Opened, attach, format};
pub use namespace::{
    Area, Decided, DirEntry, Evolution, Label, MergedArea, Outcome, RENAMED_ROUNDS,
};
pub use parts::{FileSystem, PartError, PoolPath, own_bytes};
pub use pool::{CreateOptions, DataOptions, Pool, PoolOptions, RealFs, boot_id, media_of_new_pool};
pub use slots::prefer_thread_slot;
pub use vellum_layout::{
    FileKind, Formed, FsNameError, GeometryError, MappingKind, MergeReason, Merged, NamespaceKind,
    SuperblockError, uuid_text,
};
pub use vellum_media as media;
pub use versions::VersionCounts;
pub use volume::{Entry, File, ReadDir, Volume};
pub use zones::ZoneError;

/// Most names of one file.
pub const LINK_MAX: u64 = 65_000;
