//! Benchmarks: what operations cost, next to the same operations of other file systems in the same
//! run.
//!
//! Counts come first, because they don't depend on the machine: lines flushed, fences, bytes
//! stored, probes. Times are medians of rounds in which the sides take turns, so that a disturbance
//! affects all sides. Only ratios taken in one run are meaningful.
//!
//! * [`ops`] measures single operations and prints them with their budgets.
//! * [`mapping`] measures file mapping by itself: the figures of the study.
//! * [`namespace`] measures names and directories: the figures of ADAM.
//! * [`reading`] measures reading by search and by page table: the figures of AFPT.
//! * [`commits`] measures `fsync` on logged pools, and operations during checkpoints.
//! * [`fsmac`] measures pools with a log against ext4 on the same disk: the figures of FSMAC.
//! * [`mounted`] measures requests, programs and transfers through a mount.
//! * [`workloads`] runs workloads of whole programs.
//! * [`report`] shows [`figure`]s as a page.
#![forbid(unsafe_code)]

mod checks;
pub mod commits;
mod error;
pub mod figure;
pub mod fsmac;
mod interrupt;
mod kernel;
mod library;
mod limit;
mod machine;
pub mod mapping;
mod memory;
mod mount;
pub mod mounted;
pub mod namespace;
mod null_fs;
pub mod ops;
mod order;
mod peer;
mod place;
mod progress;
pub mod reading;
pub mod report;
mod repository;
mod scratch;
mod serve;
mod side;
mod slowed;
mod stopwatch;
mod target;
mod tool;
mod tree;
mod variant;
pub mod workloads;

pub use error::{Error, Result};
pub use machine::Machine;
pub use target::Target;
pub use variant::{Choice, Variant, Variants};
