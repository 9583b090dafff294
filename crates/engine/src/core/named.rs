//! The file that a name leads to.

use vellum_layout::TargetWord;

use crate::error::Location;

/// The file that a name leads to, from its entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    /// The location of the entry.
    pub(crate) entry: Location,
    /// Inode number of the directory.
    pub(crate) dir: u64,
    pub(crate) target: TargetWord,
    /// Generation of the inode.
    pub(crate) generation: u32,
}
