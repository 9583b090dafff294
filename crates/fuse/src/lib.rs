//! Mounts a Vellum file system, for programs that need a kernel path.
//!
//! The mount is one more user of the engine in its own process: requests of the kernel come in
//! through `/dev/fuse` and are answered by the same code that a linked program runs. The kernel
//! checks permissions and caches names, attributes and contents for as long as it likes, because a
//! mounted pool has no other user.
//!
//! * [`mount`] mounts; the [`Session`] waits for the end, or brings it about.
//! * [`mounts`] reads the kernel's table of mounts.
//! * [`ask`](ask()) asks a mount from outside, through an ioctl on its root; [`stop`] has it end.
#![forbid(unsafe_code)]

mod adapter;
mod config;
mod control;
mod convert;
pub mod mounts;
mod server;
mod session;
mod stale;
mod table;

pub use config::{MountConfig, MountFlags};
pub use control::{Answers, ControlRequest, ask, stop};
pub use session::{End, Error, Session, Stopper, mount};
