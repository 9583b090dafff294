//! Making pools, opening them, recovering after a crash, closing.

mod close;
mod format;
mod open;
mod recover;

pub use format::{FormatOptions, format};
pub(crate) use open::settle_image;
pub use open::{MountOptions, Opened, attach};

#[cfg(test)]
pub(crate) use open::note_chunks;
#[cfg(test)]
pub(crate) use recover::for_each_file;
pub(crate) use recover::is_file;
