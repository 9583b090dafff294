//! The lock-free code under model checkers: the very code that ships, on other memories.
//!
//! *Scenarios* and *histories* are whole file systems on [`shuttle`], which draws schedules at
//! random, seeded. *Kernels* are single steps on [`loom`], which tries every execution that the
//! memory model allows, up to a number of preemptions. `VELLUM_LONG_CHECKS=<factor>` makes
//! schedules that many times more, and preemptions one more.

mod cuckoo;
mod gate;
mod histories;
pub(crate) mod kernels;
mod level;
pub(crate) mod loom_memory;
mod paths;
mod scenarios;
mod shuttle_memory;
mod trees;
mod world;

pub(crate) use world::small_fs;

/// How much longer than usual to look, if that is asked for.
pub(crate) fn long_factor() -> Option<usize> {
    std::env::var("VELLUM_LONG_CHECKS").ok()?.parse().ok()
}
