//! Why a pool cannot have another size.

use thiserror::Error;

/// Why a pool cannot get another size. Nothing has changed then.
///
/// ```
/// use vellum::{Error, Pool, ResizeError};
///
/// let pool = Pool::memory(16 << 20)?;
/// let refused = pool.grow(8 << 20);
/// assert!(matches!(refused, Err(Error::Resize(ResizeError::Smaller { .. }))));
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Debug, Error)]
pub enum ResizeError {
    /// The pool has as many bytes or more.
    #[error(
        "the pool has {bytes} bytes, {wanted} are no more, and a pool never shrinks; copy its \
         files to a smaller pool instead"
    )]
    Smaller {
        /// Bytes of the pool.
        bytes: u64,
        /// The size that was asked for.
        wanted: u64,
    },
    /// The pool would get no room for more data.
    #[error("the pool grows by 8 blocks at a time: {least} bytes are the least that it can get")]
    TooLittle {
        /// The smallest size that it can get.
        least: u64,
    },
    /// The pool's data lie on external devices.
    #[error(
        "its data lie on another device, so a larger file would not give it room; add a device \
         with `vellum data add`"
    )]
    ExternalData,
    /// The pool's mapping has a table of fixed size.
    #[error(
        "the table of its file mapping, {0}, cannot grow: pools with hashfs, radix, extent and \
         extent-cached can; copy its files to one of these"
    )]
    Mapping(&'static str),
    /// Something else lies behind the pool in its file.
    #[error("a dataset lies behind it in the same file or device, so it cannot grow")]
    Followed,
    /// The opening kept no addresses for more bytes.
    #[error(
        "it is open in a way in which it cannot grow: with --populate, or beside other datasets"
    )]
    AsOpened,
    /// The pool would have more blocks than it can address.
    #[error("a pool has at most 4 TiB of data")]
    TooLarge,
    /// The opening kept addresses for fewer bytes.
    #[error("while it is open it can get at most {most} bytes; open it again for more")]
    WhileOpen {
        /// Most bytes of the pool until it is closed.
        most: u64,
    },
    /// The metadata have too few free chunks.
    #[error(
        "the table of the new blocks takes {chunks} free chunks of {chunk_bytes} bytes, and the \
         metadata have fewer; remove files, or let it grow by less"
    )]
    NoRoom {
        /// Chunks that are needed.
        chunks: u64,
        /// Bytes of each chunk.
        chunk_bytes: u64,
    },
}
