//! A small in-memory POSIX tree: the reference for Vellum's engine.
//!
//! [`Model`] behaves like ext4 on Linux: the same results and the same errno, also where several
//! errors apply. It is written for readers: one `BTreeMap` of nodes, one of open handles, sparse
//! files as maps of 4 KiB blocks, and each operation a list of checks in the kernel's order.
//! `tests/against_kernel.rs` runs random operations on the model and on the kernel's own file
//! system and compares every outcome.
//!
//! Three layers:
//! * by inode number, like the calls of FUSE: [`Model::lookup`], [`Model::mkdir`],
//!   [`Model::rename`], ...
//! * by path relative to a directory, like the system calls: [`Model::resolve`],
//!   [`Model::open_at`], [`Model::mkdir_at`], ...
//! * by description: an [`Op`] describes an operation, [`apply`] executes it, and the [`Outcome`]
//!   holds nothing that an implementation may choose, so if the outcomes of two implementations
//!   differ, one of them is wrong.
//!
//! The model deliberately differs from ext4:
//! * following a symbolic link during path resolution does not change its access time (`readlink`
//!   does);
//! * the kernel's hardening settings `fs.protected_*` are off, unless [`Model::hardening`] says
//!   otherwise;
//! * a directory's size is always [`DIRECTORY_SIZE`] and a symbolic link has no blocks;
//! * a file may be [`FILE_SIZE_MAX`] bytes (ext4: one block less), and a directory has at most
//!   [`LINK_MAX`] links;
//! * space never runs out, also for extended attributes (ext4 has about a block for those of a
//!   file);
//! * an empty value is no set of capabilities (the kernel lets anyone set one);
//! * names of extended attributes that begin with `gnu.` are unknown;
//! * a mode is what a umask has left of it. A directory with a default access control list takes it
//!   as it is, so for that case callers leave the umask out.
//!
//! ```
//! use vellum_model::{Cred, Model, Op, Outcome, Payload, apply};
//!
//! let mut model = Model::new(0);
//! let root = Cred::superuser();
//! let steps = ["mkdir d 755", "write d/f 0 7 10", "create d/f 644 -", "write d/f 0 7 10"];
//! let outcomes: Vec<String> = steps
//!     .iter()
//!     .map(|line| apply(&mut model, &line.parse::<Op>().unwrap(), &root, 1).to_string())
//!     .collect();
//! assert_eq!(outcomes, ["done", "ENOENT", "done", "count 10"]);
//! ```

#![forbid(unsafe_code)]

mod acl;
mod apply;
mod at;
mod attr;
mod content;
mod errno;
mod file;
mod flags;
pub mod linear;
mod locks;
mod namespace;
mod ops;
mod path;
mod quotas;
mod rename;
mod show;
mod snapshot;
#[cfg(feature = "proptest")]
pub mod strategy;
mod text;
mod tree;
mod xattr;

pub use acl::{Acl, AclEntry, AclTag};
pub use apply::apply;
pub use attr::{SetAttr, TimeSet};
pub use content::{Block, Content};
pub use errno::{Errno, Result};
pub use file::{Handle, Range};
pub use flags::{APPEND_ONLY, IMMUTABLE, NO_ATIME, NO_DUMP, PROJECT_INHERIT};
pub use locks::{HeldLock, LockKind, LockOwner};
pub use ops::{Op, Outcome, Payload, StatView, Step, XattrValue, pattern};
pub use quotas::{QuotaKind, Space, quota_attribute};
pub use rename::{RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT};
pub use snapshot::{NodeSnapshot, Snapshot, SnapshotBody, Times, diff};
pub use text::ParseError;
pub use tree::{AtimePolicy, Attr, Cred, DirEntry, Hardening, Ino, Kind, Model};
pub use xattr::{ACL_ACCESS, ACL_DEFAULT, CAPABILITY, XattrMode};

/// Bytes in a block: the unit of allocation, and of `SEEK_DATA` and `SEEK_HOLE`.
pub const BLOCK_SIZE: usize = 4096;
/// Longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// A path, and the target of a symbolic link, must be shorter than this many bytes.
pub const PATH_MAX: usize = 4096;
/// Longest name of an extended attribute, in bytes.
pub const XATTR_NAME_MAX: usize = 255;
/// Longest value of an extended attribute, in bytes.
pub const XATTR_VALUE_MAX: usize = 1 << 16;
/// Symbolic links followed in one resolution before `ELOOP`.
pub const SYMLINK_FOLLOW_MAX: u32 = 40;
/// Most links of one inode: names of a file, or sub-directories of a directory plus two.
pub const LINK_MAX: u32 = 65_000;
/// Largest file, in bytes.
pub const FILE_SIZE_MAX: u64 = 1 << 44;
/// The size that every directory reports, in bytes.
pub const DIRECTORY_SIZE: u64 = 4096;
