//! Splitting and merging areas by use: the decisions of a round, and what a namespace with areas
//! provides for it.

use vellum_layout::{Formed, Merged};
use vellum_media::Memories;

use crate::core::Core;
use crate::error::Result;
use crate::namespace::Rename;

/// A directory that was renamed within this number of rounds counts as written often, and its area
/// is not merged.
pub const RENAMED_ROUNDS: u64 = 64;

/// A change of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Evolution {
    /// A hot directory gets an area of its own.
    Split = 0,
    /// A small area that is rarely used is merged into the one above.
    Merge = 1,
    /// A directory that is most of an area, and has most of its reads, gets an area of its own; the
    /// rest is merged into the area above.
    Inherit = 2,
}

impl Evolution {
    pub(crate) const ALL: [Self; 3] = [Self::Split, Self::Merge, Self::Inherit];

    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        ["split", "merge", "inherit"][self as usize]
    }
}

/// The outcome of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// The change was made.
    Done = 0,
    /// There was no space to hold the names twice.
    NoRoom = 1,
    /// Somebody else waited to move a directory, or to free space.
    GaveWay = 2,
    /// More names are below than one round moves. Renaming such a directory makes it a root first.
    TooLarge = 3,
    /// The directory was removed, or was already in the decided state.
    Gone = 4,
}

impl Outcome {
    pub(crate) const ALL: [Self; 5] = [
        Self::Done,
        Self::NoRoom,
        Self::GaveWay,
        Self::TooLarge,
        Self::Gone,
    ];

    /// Its name in lists.
    pub fn name(self) -> &'static str {
        ["done", "no room", "gave way", "too large", "gone"][self as usize]
    }
}

/// How a directory is used (Table 2 of ADAM).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// Small, and not renamed recently.
    Cold,
    /// Small and renamed, or large and not renamed.
    Warm,
    /// Large, and renamed recently.
    Hot,
}

impl Label {
    /// The label of a directory by its size and by recent renames. Table 2 also distinguishes
    /// directories that are read often, but gives both kinds the same label.
    pub(crate) fn of(is_large: bool, is_renamed: bool) -> Self {
        match (is_large, is_renamed) {
            (true, true) => Self::Hot,
            (true, false) | (false, true) => Self::Warm,
            (false, false) => Self::Cold,
        }
    }

    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::Hot => "hot",
        }
    }
}

/// A decision of a round, or of a rename of a large directory, with the numbers on which it is
/// based.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The round, counted from 1 since the opening. For a rename, the last round before it.
    pub round: u64,
    /// The decided change.
    pub what: Evolution,
    /// Its outcome.
    pub outcome: Outcome,
    /// Inode of the directory that becomes a root, or is no longer one.
    pub ino: u64,
    /// Generation of that inode.
    pub generation: u32,
    /// Number of the area that contained its names.
    pub area: u32,
    /// Number of slots of 128 bytes that the names below take, down to the next areas. For a
    /// rename, counted only until the directory is known to be large.
    pub slots: u64,
    /// Lookups in it and below, estimated from samples and halved each round.
    pub reads: u64,
    /// The number that these are compared with. For a merge, the average of areas; for a split by a
    /// round, the average of directories in the area; for a rename, 0.
    pub average_reads: u64,
    /// Rounds since it was renamed last, or since the opening.
    pub rounds_since_renamed: u64,
}

/// An area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Number of the area. The area of the file system's root is 1.
    pub number: u32,
    /// Inode of its root.
    pub root: u64,
    /// Generation of that inode.
    pub generation: u32,
    /// Number of the area that contains its root's own name; 0 for the first area.
    pub above: u32,
    /// The label of its root in the state-map.
    pub label: Label,
    /// Names in it.
    pub names: u64,
    /// Slots of 128 bytes that they take.
    pub slots: u64,
    /// Lookups in it and below, estimated from samples since the opening and halved each round.
    pub reads: u64,
    /// The time at which it was formed, and the numbers that led to it: by a round, a rename, or a
    /// request.
    pub formed: Formed,
}

/// A merged area, as its line records it until the line is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergedArea {
    /// Its number.
    pub number: u32,
    /// Inode of its former root.
    pub root: u64,
    /// Generation of that inode.
    pub generation: u32,
    /// The area that its names went to, with time and reason.
    pub merged: Merged,
}

/// The part of evolving that a namespace with areas provides. Called by the holder of the
/// background's lease, outside any operation.
pub(crate) trait Areas<M: Memories>: Sync {
    /// Begins a round. Returns the decisions in the order in which to carry them out. Labels
    /// directories.
    fn plan(&self, core: &Core<M>) -> Result<Vec<Decided>>;

    /// Carries out a decision, or finds that it cannot be carried out.
    fn carry_out(&self, core: &Core<M>, decided: &Decided) -> Result<Outcome>;

    /// Whether `above` is above `below`, or is the same directory.
    fn is_above(&self, core: &Core<M>, above: u64, below: u64) -> bool;

    /// Keeps a decision, for a while.
    fn note(&self, core: &Core<M>, decided: &Decided);

    /// The decisions that are kept, the oldest first.
    fn decisions(&self, core: &Core<M>) -> Vec<Decided>;

    /// All areas, ordered by number.
    fn list(&self, core: &Core<M>) -> Result<Vec<Area>>;

    /// The merged areas whose lines still record it, ordered by number.
    fn merged(&self, core: &Core<M>) -> Vec<MergedArea>;

    /// Makes the large directories that a rename moves roots of areas first. Returns whether there
    /// were any.
    fn root_large(&self, core: &Core<M>, rename: &Rename<'_>) -> Result<bool>;
}

#[cfg(test)]
mod tests {
    use super::Label;

    /// The rows of table 2: size, writes (renames), reads; label.
    #[test]
    fn labels_are_those_of_table_2() {
        let rows = [
            ("small", "frequent", "frequent", "warm"),
            ("small", "frequent", "rare", "warm"),
            ("small", "rare", "frequent", "cold"),
            ("small", "rare", "rare", "cold"),
            ("large", "frequent", "frequent", "hot"),
            ("large", "frequent", "rare", "hot"),
            ("large", "rare", "frequent", "warm"),
            ("large", "rare", "rare", "warm"),
        ];
        for (size, write, read, label) in rows {
            let found = Label::of(size == "large", write == "frequent");
            assert_eq!(found.name(), label, "{size} {write} {read}");
        }
    }
}
