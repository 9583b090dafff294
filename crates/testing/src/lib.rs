//! Shared code of the tests of several crates: results of programs, slices of many cases, random
//! numbers, and tests in processes of their own.
#![forbid(unsafe_code)]

mod process;
mod random;
mod slice;

use std::process::Output;

pub use process::in_own_process;
pub use random::Random;
pub use slice::{is_whole, slice};

/// The result of a program.
#[derive(Debug)]
pub struct Did {
    /// Its exit status.
    pub code: i32,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl From<Output> for Did {
    /// # Panics
    /// Panics if a signal ended the program.
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("no signal ended it"),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Did {
    /// Asserts that the program succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    /// Asserts that the program failed with status `code`, and that its standard error contains all
    /// `words`.
    #[track_caller]
    pub fn failed(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(
            self.code, code,
            "stdout: {}\nstderr: {}",
            self.out, self.err
        );
        for word in words {
            assert!(self.err.contains(word), "`{word}` is not in: {}", self.err);
        }
        self
    }
}
