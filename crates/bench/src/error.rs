//! Errors of measurements.

use std::io;

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a measurement has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Vellum failed.
    #[error(transparent)]
    Vellum(#[from] vellum::Error),
    /// The operating system failed.
    #[error("{what}: {source}")]
    System {
        /// The action that failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// A system call of a peer failed.
    #[error("peer: {0}")]
    Peer(#[from] rustix::io::Errno),
    /// A program that sets up a peer failed.
    #[error("`{command}` failed: {said}")]
    Tool {
        /// The command.
        command: String,
        /// Its standard error.
        said: String,
    },
    /// A pool could not be mounted.
    #[error(transparent)]
    Mount(#[from] vellum_fuse::Error),
    /// An operation returned success, but had another effect than it should.
    #[error("{0}")]
    Wrong(String),
    /// An option has a value that makes no sense.
    #[error("{0}")]
    Option(String),
    /// A signal ended the run; everything that the run created is removed.
    #[error("interrupted")]
    Interrupted,
}

/// Adds the action to an error of the system.
pub(crate) fn doing<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Error {
    let what = what.into();
    move |source| Error::System {
        what,
        source: source.into(),
    }
}

/// Fails unless `found` is `expected`.
pub(crate) fn expect<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: T,
    expected: T,
) -> Result<()> {
    if found == expected {
        Ok(())
    } else {
        let message = format!("{what}: expected {expected:?}, found {found:?}");
        Err(Error::Wrong(message))
    }
}
