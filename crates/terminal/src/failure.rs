//! Failures for users: what failed, where, what to do, and the exit status.

use std::fmt;
use std::io;
use std::process::ExitCode;

use serde::Serialize;

/// The outcome of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Exit statuses. `check` and `repair` have those of fsck(8) instead.
pub mod status {
    /// Something failed.
    pub const FAILED: u8 = 1;
    /// The command was used wrongly.
    pub const USAGE: u8 = 2;
    /// The pool or the mount is in use.
    pub const BUSY: u8 = 3;
    /// `check` and `repair`: the command could not be carried out.
    pub const CHECK_OPERATION: u8 = 8;
    /// `check` and `repair`: the command was used wrongly.
    pub const CHECK_USAGE: u8 = 16;
}

/// The exit status of a command that checks something: success if `in_order`.
pub fn verdict(in_order: bool) -> ExitCode {
    if in_order {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(status::FAILED)
    }
}

/// Why a command failed. The names of the fields are those of the JSON.
#[derive(Debug, Serialize)]
pub struct Failure {
    message: String,
    /// What to do about it.
    advice: Option<String>,
    /// The exit status.
    pub status: u8,
}

impl Failure {
    /// A failure with the status [`status::FAILED`].
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            advice: None,
            status: status::FAILED,
        }
    }

    /// The command was used wrongly.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            status: status::USAGE,
            ..Self::new(message)
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Sets the exit status.
    #[must_use]
    pub fn with_status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// A failure of the operating system at `place`.
    pub fn io(place: impl fmt::Display, error: &io::Error) -> Self {
        Self::new(format!("{place}: {}", plain(error)))
    }

    /// A failure of the engine at `place`.
    pub fn at(place: impl fmt::Display, error: &vellum::Error) -> Self {
        let failure = Self::new(format!("{place}: {error}"));
        match error {
            vellum::Error::NoSpace(
                vellum::Error::SHARED_MEMORY_FULL | vellum::Error::IMAGE_MEMORY_FULL,
            ) => failure.advise("or keep the metadata image elsewhere: vellum mount --image DIR"),
            vellum::Error::NoSpace(_) => failure.advise(
                "remove files, or create a larger pool; a pool with an external data device can \
                 get another one: vellum data add",
            ),
            vellum::Error::Busy => failure.with_status(status::BUSY),
            _ => failure,
        }
    }
}

/// The text of an error, without the number that `std` adds.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vellum: {}", self.message)?;
        match &self.advice {
            Some(advice) => write!(f, "\n  {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}
