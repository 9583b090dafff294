//! The common parts of `vellum`, `vellum-bench` and `vellum-crash`: failures, output, progress bars
//! and manual pages.
#![deny(unsafe_code)]
// These macros panic if standard output or error is closed; `output` prints instead.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod closed;
mod failure;
pub mod manual;
pub mod output;
mod printing;
pub mod progress;
mod shell;

pub use failure::{Failure, Outcome, plain, status, verdict};
pub use printing::{Printing, parsed};
pub use shell::quoted;
