//! Crashes of two or three threads, in chosen interleavings.
//!
//! Threads execute the shipping code on memories that ask a scheduler before each access; one
//! thread runs at a time. Their accesses to the pool form a log like any other, and the explorer of
//! sequences explores it. What a crash may show follows from the histories of the calls.
//!
//! Limits: accesses are sequentially consistent, and at most a line long; a store past the cache is
//! visible to others at once. Times are only compared with the range of the run.

mod caller;
mod catalog;
mod explore;
mod history;
mod hooked;
mod kept;
#[cfg(test)]
mod logged;
mod oracle;
mod ready;
mod replay;
mod run;
mod schedule;
mod scheduler;
mod search;
mod shrink;
mod workload;

pub use catalog::{all_thread_workloads, thread_workloads};
pub(crate) use explore::of_threads;
pub use explore::{run_these_threads, run_threads};
pub(crate) use kept::Trials;
pub(crate) use replay::replay_threads;
pub use search::Bounds;
pub use workload::ThreadWorkload;
