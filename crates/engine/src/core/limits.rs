//! Limits of files, in all pools.

/// Largest size of a file: 16 TiB.
pub(crate) const SIZE_MAX_BYTES: u64 = 1 << 44;

/// Most names of one file.
pub const LINK_MAX: u64 = 65_000;
