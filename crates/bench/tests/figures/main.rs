//! The figures of each benchmark, on small files: their shape, and counts that do not depend on the
//! machine. Also tests the commands.
#![allow(missing_docs)]

mod command;
mod fsmac;
mod mapping;
mod memory;
mod mount;
mod namespace;
mod reading;
#[path = "../small/mod.rs"]
mod small;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The directory in memory, where measurements have their pools and peers unless told otherwise: on
/// a disk, pools of one report write gigabytes.
const MEMORY: &str = "/dev/shm";

/// Serialises tests that keep all processors busy, or count what the process does.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
