//! What a name stands for.

use vellum_layout::TargetWord;

use crate::error::Location;

/// What a name stands for, as its entry says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    /// Where the entry lies.
    pub(crate) entry: Location,
    /// Inode number of the directory.
    pub(crate) dir: u64,
    pub(crate) target: TargetWord,
    /// Of the inode.
    pub(crate) generation: u32,
}
