//! What can go wrong while measuring.

use std::io;

/// A result of this crate.
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
        /// What was done.
        what: String,
        /// What the system said.
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
        /// What it wrote to its standard error.
        said: String,
    },
    /// A pool could not be mounted.
    #[error(transparent)]
    Mount(#[from] vellum_fuse::Error),
    /// An operation returned success and had another effect than it should.
    #[error("{0}")]
    Wrong(String),
    /// An option makes no sense.
    #[error("{0}")]
    Option(String),
    /// A signal ended the run; everything that was made for it is gone.
    #[error("interrupted")]
    Interrupted,
}

/// Names what was done when the system failed.
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
