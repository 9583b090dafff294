//! What every wing works on: the pool's volatile state, thread slots of operations, the allocator
//! of metadata, cachelets, times.

pub(crate) mod access_times;
pub(crate) mod alloc;
pub(crate) mod background;
pub(crate) mod cachelet;
pub(crate) mod image_memory;
pub(crate) mod inodes;
pub(crate) mod lease;
pub(crate) mod limits;
pub(crate) mod named;
pub(crate) mod quotas;
pub(crate) mod setters;
pub(crate) mod slots;
pub(crate) mod sparse;
mod state;
pub(crate) mod times;
pub(crate) mod xattrs;

pub use state::Clock;
pub(crate) use state::*;
