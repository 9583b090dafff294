//! The copy of the metadata that an external data device carries, so that it alone is a file system
//! elsewhere.
//!
//! Metadata lie in persistent memory, and the copy is made when a pool is closed, of the blocks
//! that changed since the last one: a map in the pool tells which. An opening for writing calls the
//! copy stale, durably, before anything changes; so a medium whose copy says that it is whole has
//! all that the pool has.

mod attach;
mod copy;

use vellum_layout::{MediumHead, ReplicaPlan, Superblock};
use vellum_media::Disk;

use crate::logs::changed::head_of;

pub(crate) use attach::attach_medium;
pub use attach::{AttachOptions, attach_copy};
pub use copy::ExportedReplica;
pub(crate) use copy::make_whole;

/// Whether the copy on a medium, which is reached by offsets of its own, is whole; `None` if it
/// carries none.
pub(crate) fn is_whole(medium: &dyn Disk, superblock: &Superblock) -> Option<bool> {
    let head = MediumHead::of(superblock).filter(|head| head.replica_at != 0)?;
    let plan = ReplicaPlan {
        at: head.replica_at,
        ..ReplicaPlan::of(&superblock.geometry())?
    };
    let head = head_of(medium, &plan, superblock);
    Some(head.is_some_and(|head| head.is_whole()))
}
