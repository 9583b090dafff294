//! The crash explorer tries every state that a power cut can leave of each operation, and tests
//! that recovery repairs it.
//!
//! A [`Workload`] runs once on a simulated pool that records every store, flush and fence. At every
//! point of that log at which the power may fail, the x86 persistency model
//! ([`vellum_media::CrashPoints`]) lists what the medium may hold. Each of these images
//! 1. must look to the checker like something that a crash can leave;
//! 2. must open: recovery succeeds;
//! 3. must hold the model's tree before or after the step that was in flight, with the times of
//!    that tree (bytes inside the old size of a file may be a mixture of both, word by word);
//! 4. must be usable until it is full, and again after it is emptied;
//! 5. must survive another power cut, and then close cleanly, after which the checker finds nothing
//!    at all.
//!
//! Images that were seen before are not judged again. A violation carries an identifier, and
//! [`replay`] repeats the crash that it names.
//!
//! ```
//! use vellum_crash::Options;
//! let options = Options { only: vec!["create-second".into()], ..Options::default() };
//! let report = vellum_crash::run(&options);
//! assert_eq!(report.totals().violations, 0, "{report}");
//! ```
#![forbid(unsafe_code)]

mod budget;
mod closed;
mod compare;
#[cfg(test)]
mod datasets;
mod diagnose;
mod exercise;
mod explore;
mod id;
mod ignored_flushes;
mod jobs;
mod judge;
mod kills;
mod location;
mod memories;
mod mkfs;
mod mutant;
mod mutate;
mod name;
mod oracle;
mod plan;
mod record;
mod reduce;
mod replay;
mod replica;
mod report;
mod run;
#[cfg(test)]
mod segments;
mod session;
mod shrink;
mod space;
mod steps;
mod threads;
mod tracked;
mod tree;
mod workload;
mod workloads;

pub use budget::{Budget, Part, all_workloads};
pub use id::Mode;
pub use location::Location;
pub use mkfs::MAKINGS;
pub use mutant::Mutant;
pub use mutate::{Caught, Missed, MutateOptions, MutationProgress, MutationReport, mutate};
pub use record::{RecordError, Recorded, record};
pub use replay::{Replay, ReplayError, replay, replay_of};
pub use report::{
    Counts, Kind, LeftOut, Minimised, OperationReport, RECOVERY, Report, Summary, Violation,
    WorkloadReport,
};
pub(crate) use run::Subject;
pub use run::{Options, Progress, run, run_all, run_file, run_watched, run_workloads};
pub use steps::{Steps, persistent_steps};
pub use threads::{
    Bounds, ThreadWorkload, all_thread_workloads, run_these_threads, run_threads, thread_workloads,
};
pub use workload::{BlocksAlone, PoolKind, PowerCut, Step, StepError, Workload};
pub use workloads::{
    WorkloadError, WorkloadFile, find, logged_workloads, pairs, random, sampled, single_operations,
    triples, workloads,
};
