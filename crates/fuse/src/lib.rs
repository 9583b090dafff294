//! Mounts a Vellum file system, for programs that need a kernel path.
//!
//! The mount is a process that uses the engine like any linked program. It answers the requests
//! that the kernel sends (by [`vellum_transport`]). The kernel checks permissions. It caches names,
//! attributes and contents without a time limit, because a mounted pool has no other user.
//!
//! * [`mount`] mounts; the [`Session`] waits for the end of the mount, or ends it.
//! * [`mounts`] reads the kernel's table of mounts.
//! * [`ask`](ask()) sends a request to a mount, by an ioctl on its root; [`stop`] ends the mount.
#![forbid(unsafe_code)]

mod adapter;
mod config;
mod control;
mod convert;
mod flags;
pub mod mounts;
mod seek;
mod server;
mod session;
mod set_ids;
mod stale;
mod table;
mod trim;

pub use config::{MountConfig, MountFlags, Uring};
pub use control::{
    Answers, Connection, ControlRequest, CopyRequest, LimitsChange, QuotaRequest, ask, stop,
};
pub use session::{End, Error, Session, Stopper, mount};
pub use vellum_transport::{SWITCH, Switch};
