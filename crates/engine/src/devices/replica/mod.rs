//! The metadata replica on an external data device, which makes that device alone a complete file
//! system elsewhere.
//!
//! Metadata lie in persistent memory. The replica is completed when a pool is closed, from the
//! blocks that changed since it last was: a map in the pool lists them. An opening for writing
//! marks the replica as stale, durably, before anything changes. So a device whose replica is
//! marked as whole has everything that the pool has.

mod attach;
mod copy;

use vellum_layout::{MediumHead, ReplicaPlan, Superblock};
use vellum_media::Disk;

use crate::logs::changed::head_of;

pub(crate) use attach::attach_medium;
pub use attach::{AttachOptions, attach_copy};
pub use copy::ExportedReplica;
pub(crate) use copy::make_whole;

/// Whether the replica on a device is whole; `None` if it has none. The device is read by its own
/// offsets.
pub(crate) fn is_whole(medium: &dyn Disk, superblock: &Superblock) -> Option<bool> {
    let head = MediumHead::of(superblock).filter(|head| head.replica_at != 0)?;
    let plan = ReplicaPlan {
        at: head.replica_at,
        ..ReplicaPlan::of(&superblock.geometry())?
    };
    let head = head_of(medium, &plan, superblock);
    Some(head.is_some_and(|head| head.is_whole()))
}
