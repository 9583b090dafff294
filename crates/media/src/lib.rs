//! The only access to memory: pools, the arena, stores, flushes and fences.
//!
//! | | pool ([`Persistent`]) | arena ([`Memory`]) |
//! |---|---|---|
//! | [`Real`] | [`MappedPool`]: a file, a device or anonymous memory | [`MappedArena`]: shared memory |
//! | [`Simulated`] | [`SimPool`]: records stores, flushes and fences | [`HeapMemory`]: ordinary atomics |
//!
//! Almost all `unsafe` code of the project is in this crate. No reference to shared bytes leaves it
//! except through [`FileBytes::in_place`] and [`FileBytes::in_window`], whose callers guarantee
//! that the bytes do not change. [`count`] counts all accesses.
#![deny(unsafe_op_in_unsafe_fn)]

mod arena;
mod backing;
mod barriers;
mod by_mapping;
mod child;
mod control;
pub mod count;
mod data_file;
mod direct;
mod dirty_lines;
mod disk;
mod error;
mod fault;
mod first_write;
mod fuse_queue;
mod granules;
mod handle;
mod heap;
mod holders;
mod image;
mod in_flight;
mod isa;
mod kept;
mod kind_at;
mod logged;
mod mapped;
mod mapping;
mod memory;
mod new_file;
mod part;
mod persistence;
mod pool_memory;
mod preserve;
mod process;
mod range_locks;
mod reserved;
mod ring;
mod sim;
mod sim_logged;
mod site;
mod undo;
mod window;
mod written;

pub use arena::MappedArena;
pub use backing::NewSpace;
#[doc(hidden)]
pub use child::fork;
pub use control::{
    CONTROL_BYTES, CONTROL_IOCTL, FSXATTR_BYTES, clone_fuse, control, fsxattr, generation,
    set_fsxattr,
};
pub use data_file::DataFile;
pub use disk::{Disk, Split};
pub use error::MediaError;
pub use fault::{Faults, faults};
pub use fuse_queue::{FuseEvent, FuseQueue, FuseRequest, FuseWaker, IdleFuseQueue};
pub use granules::UndoWriter;
pub use heap::HeapMemory;
pub use holders::{has_ended, lock_holders, processes};
pub use image::{
    ANOTHERS, Attach, ImageKey, LeftImage, OLDER, REPLACED, SharedImage, forget_image, left_image,
};
pub use isa::{FlushVariant, Isa, LANES, Lanes, VectorVariant, mix, place_among};
pub use kept::{KeptImage, PoolIs, images_in, remove_image};
pub use kind_at::kind_at;
pub use mapped::{DataPart, MappedPool, MediaChoice, OpenMode};
pub use memory::{BLOCK_BYTES, LINE_BYTES, MediaKind, Memories, Memory, Persistent};
pub use new_file::NewFile;
pub use persistence::{CrashPoint, CrashPoints, CrashState, LineBytes, LineState};
pub use pool_memory::{FileBytes, ImageMemory, Medium, PoolMemory, Transactions};
pub use preserve::{GROUP_BLOCKS, KeptBlock, Preserver, read_whole};
pub use range_locks::{is_in_use, lock_to_read};
pub use sim::{Event, LatencyModel, Op, SimPool};
pub use sim_logged::{SimImages, SimLogged, SimulatedLogged};
pub use site::{Caller, Site};
pub use window::Window;
pub use written::Written;

/// The memories of production: a mapped pool and a mapped arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Real;

impl Memories for Real {
    type Pool = MappedPool;
    type Arena = MappedArena;
}

/// The memories of tests: a simulated pool and an arena on the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simulated;

impl Memories for Simulated {
    type Pool = SimPool;
    type Arena = HeapMemory;
}
