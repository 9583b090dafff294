//! The lock-free code under model checkers: the code that ships, on other memories.
//!
//! *Scenarios* and *histories* are whole file systems on [`shuttle`], which draws schedules at
//! random from a seed. *Kernels* are single steps on [`loom`], which tries every execution that the
//! memory model allows, up to a number of preemptions. `VELLUM_LONG_CHECKS=<factor>` multiplies the
//! number of schedules by this factor, and allows one more preemption.

mod cuckoo;
mod gate;
mod histories;
pub(crate) mod kernels;
mod level;
mod locks;
pub(crate) mod loom_memory;
mod paths;
mod scenarios;
mod shuttle_memory;
mod trees;
mod world;

pub(crate) use world::small_fs;

/// The factor of long checks, if they are requested.
pub(crate) fn long_factor() -> Option<usize> {
    std::env::var("VELLUM_LONG_CHECKS").ok()?.parse().ok()
}
