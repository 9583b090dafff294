//! Crashes of two or three threads, in interleavings that are chosen.
//!
//! Threads of the system run the shipping code on memories that ask a scheduler before each access;
//! one runs at a time. What they did to the pool is a log like any other, explored by the explorer
//! of sequences. What a crash may show is asked of the calls' histories.
//!
//! What is not seen here: accesses are sequentially consistent, at most a line at once; a store
//! past the cache is seen by others when it is made. Times are compared with nothing but the range
//! of the run.

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
