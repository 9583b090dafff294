//! The kernel's FUSE protocol, and the doors to it.
//!
//! A file system implements [`FileSystem`]: it gets a [`Request`] and a [`Reply`], and answers on
//! any thread. [`mount`](mount()) returns a connection, [`Session::start`] agrees with the kernel
//! on the protocol, and [`Session::run`] serves requests until the mount ends.
//!
//! * `abi` has the kernel's structures, byte by byte.
//! * `request` decodes a request from any bytes ([`decode_any`]), [`Reply`] encodes its answer.
//! * `device` is the door by `/dev/fuse`: threads that read requests and write answers. `readers`
//!   says which of them read.
//! * `ring` is the door by io_uring: a queue for each processor.
#![forbid(unsafe_code)]

mod abi;
mod count;
mod device;
mod dispatch;
mod init;
mod mount;
mod pace;
mod readers;
mod reply;
mod request;
mod ring;
mod switch;

pub use abi::{Attr, ROOT};
pub use count::RequestCounts;
pub use device::{Door, Notifier, Session};
pub use dispatch::FileSystem;
pub use init::{REQUEST_MAX_BYTES, Wanted};
pub use mount::{Mount, MountError, mount, unmount, unmount_by_helper};
pub use reply::{Entry, FileSystemSize, Listing, OpenFlags, Reply, StatxFlags};
pub use request::{Operation, Request, SetAttr, SetTime, Through, decode_any};
pub use switch::{PATH as SWITCH, Switch};
