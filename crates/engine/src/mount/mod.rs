//! Making pools, opening them, recovering after a crash, closing.

mod close;
mod format;
mod open;
mod recover;

pub use format::{DataApart, FormatOptions, format};
pub(crate) use open::{
    COMMIT_INTERVAL, check_at_rest, read_superblock, settle_image, superblock_in,
};
pub use open::{MountOptions, Opened, attach};

#[cfg(test)]
pub(crate) use open::note_chunks;
#[cfg(test)]
pub(crate) use recover::for_each_file;
pub(crate) use recover::is_file;
