//! How areas come and go by themselves: what a round decides, and what a namespace with areas does
//! for it.

use vellum_layout::{Formed, Merged};
use vellum_media::Memories;

use crate::core::Core;
use crate::error::Result;
use crate::namespace::Rename;

/// A directory that was renamed within so many rounds counts as written often, and its area is not
/// merged.
pub const RENAMED_ROUNDS: u64 = 64;

/// What is to become of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Evolution {
    /// A hot directory gets an area of its own.
    Split = 0,
    /// A small area that is rarely used goes back into the one above.
    Merge = 1,
    /// A directory that is most of an area, and has most of its reads, gets one of its own, and
    /// what is left goes back into the one above.
    Inherit = 2,
}

impl Evolution {
    pub(crate) const ALL: [Self; 3] = [Self::Split, Self::Merge, Self::Inherit];

    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        ["split", "merge", "inherit"][self as usize]
    }
}

/// How a decision came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// It was done.
    Done = 0,
    /// There was no room for the names twice.
    NoRoom = 1,
    /// Somebody else wanted to move a directory, or make room.
    GaveWay = 2,
    /// More is below than one round moves. Renaming such a directory makes it a root first.
    TooLarge = 3,
    /// The directory was removed, or had become what it was to become.
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

    /// What it is called in lists.
    pub fn name(self) -> &'static str {
        ["done", "no room", "gave way", "too large", "gone"][self as usize]
    }
}

/// How a directory is used (Table 2 of ADAM).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// Small, and not renamed of late.
    Cold,
    /// Small and renamed, or large and not renamed.
    Warm,
    /// Large, and renamed of late.
    Hot,
}

impl Label {
    /// The label of a directory that is large or not, and renamed of late or not. Table 2 tells
    /// directories that are read often from others, and gives both the same label.
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

/// A decision of a round, or of a rename of a large directory, with the numbers that it rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The round, counted from 1 since the opening; the last one before it, where a rename asked
    /// for it.
    pub round: u64,
    /// What was to be done.
    pub what: Evolution,
    /// What came of it.
    pub outcome: Outcome,
    /// Inode of the directory: the one that is to be a root, or to be none.
    pub ino: u64,
    /// Generation of that inode.
    pub generation: u32,
    /// Number of the area that its names were in.
    pub area: u32,
    /// Slots of 128 bytes that the names below take, down to the next areas; where a rename asked,
    /// counted no further than to see that it is large.
    pub slots: u64,
    /// Lookups in it and below, estimated from samples and halved each round.
    pub reads: u64,
    /// What these are compared with: the average of areas where one is to merge, of directories of
    /// the area where one is split by a round; 0 where a rename asked.
    pub average_reads: u64,
    /// Rounds since it was renamed last, or since the opening.
    pub rounds_since_renamed: u64,
}

/// An area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its number: 1 is that of the file system's root.
    pub number: u32,
    /// Inode of its root.
    pub root: u64,
    /// Generation of that inode.
    pub generation: u32,
    /// Number of the area that its root's own name is in; 0 for the first one.
    pub above: u32,
    /// The label that the state-map has of its root.
    pub label: Label,
    /// Names in it.
    pub names: u64,
    /// Slots of 128 bytes that they take.
    pub slots: u64,
    /// Lookups in it and below, estimated from samples since the opening and halved each round.
    pub reads: u64,
    /// When it was formed, and the numbers that led to it; what a round decided, or a rename, or
    /// somebody asked for.
    pub formed: Formed,
}

/// An area that was merged, as its line tells it until that is another area's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergedArea {
    /// Its number.
    pub number: u32,
    /// Inode of what was its root.
    pub root: u64,
    /// Generation of that inode.
    pub generation: u32,
    /// Where its names went, when and why.
    pub merged: Merged,
}

/// What a namespace with areas does for their evolving. Called by the holder of the background's
/// lease, outside any operation.
pub(crate) trait Areas<M: Memories>: Sync {
    /// Begins a round: what should be done, in this order. Directories get their labels.
    fn plan(&self, core: &Core<M>) -> Result<Vec<Decided>>;

    /// Does what was decided, or finds that it cannot be done.
    fn carry_out(&self, core: &Core<M>, decided: &Decided) -> Result<Outcome>;

    /// Whether one directory is above the other, or is that one.
    fn is_above(&self, core: &Core<M>, above: u64, below: u64) -> bool;

    /// Keeps a decision, for a while.
    fn note(&self, core: &Core<M>, decided: &Decided);

    /// The decisions that are kept, the oldest first.
    fn decisions(&self, core: &Core<M>) -> Vec<Decided>;

    /// All areas, by their numbers.
    fn list(&self, core: &Core<M>) -> Result<Vec<Area>>;

    /// The areas that were merged, as far as their lines tell of it, by their numbers.
    fn merged(&self, core: &Core<M>) -> Vec<MergedArea>;

    /// Makes large directories that a rename moves roots of areas first; gives whether there were
    /// any.
    fn root_large(&self, core: &Core<M>, rename: &Rename<'_>) -> Result<bool>;
}

#[cfg(test)]
mod tests {
    use super::Label;

    /// Table 2: size, writes (renames), reads; label.
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
