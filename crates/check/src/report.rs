//! What was found.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use vellum_layout::PoolPhase;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// What a crash legitimately leaves and recovery mends by itself.
    Residue,
    /// What no crash leaves: the media, or the file system, failed.
    Damage,
}

macro_rules! classes {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal,)*) => {
        /// What kind of thing is wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Class {
            $($(#[doc = $doc])* $name,)*
        }

        impl Class {
            /// Every class.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The class in words.
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

classes! {
    /// The image cannot be used at all: no copy of the superblock is sound, or none is known.
    NotAPool = "not a usable pool",
    /// A range of the image cannot be read.
    Unreadable = "unreadable",
    /// What lies under a log is not what was written there.
    HomeSum = "metadata at home that differ from their sum",
    /// The entrance to versions of metadata, or a version, is unsound.
    UndoLog = "unsound undo log",
    /// A copy of the superblock is damaged or differs from the copy that counts.
    SuperblockCopy = "bad superblock copy",
    /// The geometry does not fit the image or this release.
    Geometry = "impossible geometry",
    /// The table has another dataset, and it is not where the table says.
    Dataset = "missing dataset",
    /// The state word is unsound.
    StateWord = "unsound state word",
    /// A word of the chunk table is unsound.
    ChunkWord = "unsound chunk word",
    /// A journal head that no writer produces, or a record that names places outside the metadata.
    JournalUnsound = "unsound journal",
    /// A journal that was not retired.
    JournalPending = "unretired journal",
    /// Two committed records name the same word.
    JournalConflict = "conflicting journal records",
    /// An inode's checksum does not fit.
    InodeChecksum = "bad inode checksum",
    /// An inode of no known kind.
    InodeKind = "bad inode kind",
    /// An inode in no known state.
    InodeState = "bad inode state",
    /// A reserved field or flag is set.
    Reserved = "reserved field set",
    /// A file's size beyond the limit.
    Size = "impossible size",
    /// The root directory is missing or is no directory.
    Root = "no root directory",
    /// An inode in use that no entry names.
    Unnamed = "unnamed inode",
    /// An inode that was open without a name.
    Orphan = "orphan inode",
    /// An entry names an orphan.
    NamedOrphan = "entry to an orphan",
    /// A log extent's head is unsound, or it lies nowhere.
    LogUnsound = "unsound log extent",
    /// A log extent in a chunk of another kind.
    LogChunk = "log extent in a wrong chunk",
    /// A log extent that belongs to another directory.
    LogShared = "log extent of another directory",
    /// A log that comes back to itself.
    LogLoop = "log loop",
    /// An entry is unsound, or lies nowhere.
    EntryUnsound = "unsound entry",
    /// An entry's name is none that a file may have.
    EntryName = "impossible name",
    /// An entry to a free or missing inode.
    EntryToFree = "entry to a free inode",
    /// An entry to another life of its inode.
    EntryGeneration = "entry to another generation",
    /// An entry whose kind is not its inode's.
    EntryKind = "entry of another kind",
    /// An entry in the log of a directory that is not its parent.
    EntryParent = "entry of another parent",
    /// Two valid entries of one name in one directory.
    DuplicateName = "duplicate name",
    /// Cookies that do not ascend, or do not fit their place.
    Cookies = "cookies out of order",
    /// A metadata slot that two structures hold.
    SlotShared = "slot owned twice",
    /// A directory that the root does not reach.
    Unreachable = "unreachable directory",
    /// Directories that contain each other.
    Cycle = "directory cycle",
    /// A directory with two names.
    DirectoryNames = "directory with two names",
    /// A directory whose parent is not the directory that names it.
    ParentWrong = "wrong parent",
    /// A link count that is not the number of links.
    LinkCount = "wrong link count",
    /// Times of a directory that lag behind its entries.
    DirectoryTimes = "stale directory times",
    /// A symlink's text is unsound, or lies nowhere.
    TextUnsound = "unsound symlink text",
    /// A mapping root that names a segment that does not exist.
    MapSegment = "mapping root out of range",
    /// Two inodes with one mapping id.
    MapShared = "mapping id of two inodes",
    /// A free table entry that is not zero.
    MapWord = "unsound table entry",
    /// A table entry of no inode.
    MapNobody = "block of nobody",
    /// Two table entries for one block of a file.
    MapTwice = "block mapped twice",
    /// Both entries of a block that moves in a table of keys.
    MapCopy = "table entry twice",
    /// A table entry that counts blocks beside it that are not there.
    MapCounts = "wrong counts of a table entry",
    /// A level table whose root is not sound, or names a level without need.
    MapLevels = "wrong levels of the mapping table",
    /// A mapped block past the end of its file.
    MapPastEnd = "block past the end of file",
    /// A block given up and not yet free.
    Limbo = "block in limbo",
    /// The saved live map is not what is live.
    LiveMap = "wrong live map",
    /// The counters saved at close are wrong.
    SavedCounters = "wrong saved counters",
    /// The saved allocator state of the mapping are not what the table says.
    SavedState = "wrong saved allocator state",
    /// A block of the area table, or the line of an area that entries name, is unsound.
    AreaUnsound = "unsound area",
    /// An area whose root is no directory, or has no name.
    AreaNoRoot = "area without a root",
    /// An area that was being made, or given up.
    AreaUnfinished = "unfinished area",
    /// Two areas in use of one directory.
    AreaTwice = "two areas of one root",
    /// A state where no entry is, or none that may have one.
    StateNoEntry = "state without an entry",
    /// An entry whose path does not go on from that of its directory.
    PathWrong = "path of another directory",
    /// Two entries of one name.
    Twins = "twins",
    /// A move of directories with what is below them that was committed and is not over.
    MoveUnfinished = "unfinished move",
    /// The list of such a move is unsound, or says what cannot be.
    MoveUnsound = "unsound list of a move",
    /// Names counted wrong, of an area or a directory.
    AreaCounts = "wrong counts of names",
    /// A word of a directory log that is missing, or leads to no entry of it.
    LogWord = "wrong word of a log",
    /// A hash table of an area that has too few words or too many.
    AreaTable = "wrong hash table of an area",
    /// An inode that does not say where its directory's names are.
    PlaceWrong = "wrong place of a directory",
}

impl Class {
    /// Whether a crash may leave such a thing, which the next opening mends: only where the pool
    /// was not closed cleanly.
    pub fn may_be_residue(self) -> bool {
        matches!(
            self,
            Self::SuperblockCopy
                | Self::JournalPending
                | Self::InodeChecksum
                | Self::InodeKind
                | Self::InodeState
                | Self::Unnamed
                | Self::Orphan
                | Self::LinkCount
                | Self::DirectoryTimes
                | Self::MapNobody
                | Self::MapPastEnd
                | Self::MapCopy
                | Self::MapCounts
                | Self::MapLevels
                | Self::Limbo
                | Self::AreaNoRoot
                | Self::AreaUnfinished
                | Self::MoveUnfinished
        )
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// One thing found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Finding {
    /// What kind of thing.
    pub class: Class,
    /// How bad.
    pub severity: Severity,
    /// Where: `inode 17`, `block 4711`, `chunk 3`.
    pub place: String,
    /// What exactly.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Damage => "damage",
            Severity::Residue => "residue",
        };
        write!(
            f,
            "{severity}: {}: {}: {}",
            self.place, self.class, self.detail
        )
    }
}

/// How the pool was left, as far as its state word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Closed in order.
    Clean,
    /// Open, or not closed cleanly.
    Dirty,
    /// The state word is unsound or was never reached.
    Unknown,
}

impl From<PoolPhase> for Phase {
    fn from(phase: PoolPhase) -> Self {
        match phase {
            PoolPhase::Clean => Self::Clean,
            PoolPhase::Dirty => Self::Dirty,
        }
    }
}

/// What the pool holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Bytes of the pool.
    pub pool_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Regular files among them.
    pub files: u64,
    /// Symbolic links among them.
    pub symlinks: u64,
    /// Pipes, sockets and devices among them.
    pub specials: u64,
    /// Inodes without a name, kept or left over.
    pub unnamed: u64,
    /// Valid entries.
    pub entries: u64,
    /// Dead entries that logs still name.
    pub entries_dead: u64,
    /// Log extents.
    pub log_extents: u64,
    /// Chunks that hold inodes.
    pub chunks_inodes: u64,
    /// Chunks that hold entries.
    pub chunks_entries: u64,
    /// Chunks that hold metadata blocks.
    pub chunks_blocks: u64,
    /// Chunks that hold extents of areas.
    pub chunks_areas: u64,
    /// Chunks that hold nothing yet.
    pub chunks_free: u64,
    /// Metadata slots in the pool.
    pub slots: u64,
    /// Metadata slots in use.
    pub slots_used: u64,
    /// Data blocks in the pool.
    pub blocks: u64,
    /// Data blocks that hold bytes of files.
    pub blocks_mapped: u64,
    /// Data blocks reserved and not written.
    pub blocks_unwritten: u64,
    /// Data blocks given up and not yet free.
    pub blocks_limbo: u64,
    /// Committed journal records that were evaluated as applied.
    pub journal_records: u64,
}

/// The checker's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// What was found, in order of class and place; at most 1000 of a class.
    pub findings: Vec<Finding>,
    /// What the pool holds.
    pub summary: Summary,
    /// How the pool was left.
    pub phase: Phase,
    /// Damage found, also where the finding was left out.
    pub damage: u64,
    /// Residue found, also where the finding was left out.
    pub residue: u64,
    /// Findings left out.
    pub omitted: u64,
    /// Whether everything could be looked at. When not, no damage may mean that none was seen.
    pub complete: bool,
}

impl Report {
    /// Whether nothing is damaged (residue on a pool that was not closed is none).
    pub fn is_sound(&self) -> bool {
        self.damage == 0 && self.complete
    }

    /// The exit status of fsck(8): 0 no damage, plus 4 damage left uncorrected, plus 8 the check
    /// could not be made, or not of everything.
    pub fn exit_code(&self) -> i32 {
        let unseen = self.of(Class::NotAPool).count() + self.of(Class::Unreadable).count();
        let damage = if self.damage > unseen as u64 { 4 } else { 0 };
        damage | if self.complete { 0 } else { 8 }
    }

    /// Whether something of `class` was found.
    pub fn has(&self, class: Class) -> bool {
        self.of(class).next().is_some()
    }

    /// The findings of `class`.
    pub fn of(&self, class: Class) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(move |found| found.class == class)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        if self.omitted > 0 {
            writeln!(f, "and {} more", counted(self.omitted, "finding"))?;
        }
        let s = &self.summary;
        writeln!(
            f,
            "{} inodes ({} directories, {} files, {} symlinks, {} others), {} entries; \
             {} of {} metadata slots; {} blocks mapped, {} unwritten, {} in limbo, of {}",
            s.inodes,
            s.directories,
            s.files,
            s.symlinks,
            s.specials,
            s.entries,
            s.slots_used,
            s.slots,
            s.blocks_mapped,
            s.blocks_unwritten,
            s.blocks_limbo,
            s.blocks,
        )?;
        let phase = match self.phase {
            Phase::Clean => "closed cleanly",
            Phase::Dirty => "open, or not closed cleanly",
            Phase::Unknown => "in an unknown state",
        };
        let verdict = match (self.complete, self.damage) {
            (true, 0) => "sound".to_owned(),
            (true, n) => format!("damaged in {}", counted(n, "place")),
            (false, 0) => "could not be checked as a whole".to_owned(),
            (false, n) => format!(
                "damaged in {}, and could not be checked as a whole",
                counted(n, "place")
            ),
        };
        write!(f, "the pool is {verdict}; it was {phase}")?;
        if self.residue > 0 {
            write!(
                f,
                "; recovery will mend {} of a crash",
                counted(self.residue, "leftover")
            )?;
        }
        Ok(())
    }
}

/// A count with its noun: `1 place`, `2 places`.
pub fn counted(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {one}s"),
    }
}

/// A place in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Superblock(&'static str),
    Dataset(usize),
    State,
    ThreadSlot(u32),
    Chunk(u64),
    Inode(u64),
    Slot(u64),
    Block(u64),
    Area(u32),
    Segment(u32),
    Offset(u64),
    LiveMap,
    Saved,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superblock(copy) => write!(f, "superblock, {copy}"),
            Self::Dataset(n) => write!(f, "dataset {n}"),
            Self::State => f.write_str("state block"),
            Self::ThreadSlot(n) => write!(f, "thread slot {n}"),
            Self::Chunk(n) => write!(f, "chunk {n}"),
            Self::Inode(n) => write!(f, "inode {n}"),
            Self::Slot(n) => write!(f, "slot {n}"),
            Self::Block(n) => write!(f, "block {n}"),
            Self::Area(n) => write!(f, "area {n}"),
            Self::Segment(n) => write!(f, "segment {n}"),
            Self::Offset(n) => write!(f, "offset {n}"),
            Self::LiveMap => f.write_str("live map"),
            Self::Saved => f.write_str("saved allocator state"),
        }
    }
}

/// Most findings of a class that a report holds.
const CLASS_MAX: u64 = 1000;

/// Collects findings.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    /// Residue is residue (else it is damage).
    pub(crate) lenient: bool,
    /// The pool was closed cleanly.
    pub(crate) closed: bool,
    findings: Vec<Finding>,
    counts: BTreeMap<Class, u64>,
    damage: u64,
    residue: u64,
    omitted: u64,
    /// Something could not be looked at.
    pub(crate) incomplete: bool,
}

impl Sink {
    pub(crate) fn damage(&mut self, class: Class, place: Location, detail: impl fmt::Display) {
        self.add(class, Severity::Damage, place, &detail);
    }

    pub(crate) fn residue(&mut self, class: Class, place: Location, detail: impl fmt::Display) {
        let severity = if self.lenient {
            Severity::Residue
        } else {
            Severity::Damage
        };
        self.add(class, severity, place, &detail);
    }

    /// What a crash leaves of a pool that is closed, too.
    pub(crate) fn left(&mut self, class: Class, place: Location, detail: impl fmt::Display) {
        self.add(class, Severity::Residue, place, &detail);
    }

    /// What a close in order leaves too, because it is stored but not flushed.
    pub(crate) fn remainder(&mut self, class: Class, place: Location, detail: impl fmt::Display) {
        if self.closed {
            self.left(class, place, detail);
        } else {
            self.residue(class, place, detail);
        }
    }

    fn add(
        &mut self,
        class: Class,
        severity: Severity,
        place: Location,
        detail: &dyn fmt::Display,
    ) {
        debug_assert!(severity == Severity::Damage || class.may_be_residue());
        match severity {
            Severity::Damage => self.damage += 1,
            Severity::Residue => self.residue += 1,
        }
        let count = self.counts.entry(class).or_default();
        *count += 1;
        if *count > CLASS_MAX {
            self.omitted += 1;
            return;
        }
        self.findings.push(Finding {
            class,
            severity,
            place: place.to_string(),
            detail: detail.to_string(),
        });
    }

    /// Whether nothing but copies of the superblock was found damaged.
    pub(crate) fn is_sound_inside(&self) -> bool {
        self.damage
            == self
                .findings
                .iter()
                .filter(|found| {
                    found.class == Class::SuperblockCopy && found.severity == Severity::Damage
                })
                .count() as u64
    }

    pub(crate) fn finish(mut self, summary: Summary, phase: Phase) -> Report {
        self.findings.sort_by_key(|found| found.class);
        Report {
            findings: self.findings,
            summary,
            phase,
            damage: self.damage,
            residue: self.residue,
            omitted: self.omitted,
            complete: !self.incomplete,
        }
    }
}
