//! What `vellum`, `vellum-bench` and `vellum-crash` have in common: how they fail, what they print,
//! how far they are, and their manual pages.
#![deny(unsafe_code)]
// They panic where nobody reads: `output` prints.
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
