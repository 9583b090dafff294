//! The report: findings and counts.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use vellum_layout::PoolPhase;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// A state that a crash legitimately leaves and recovery mends.
    Residue,
    /// A state that no crash leaves: the media, or the file system, failed.
    Damage,
}

macro_rules! classes {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal,)*) => {
        /// The class of a finding.
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
    /// The image is unusable: no copy of the superblock is sound or of a known version.
    NotAPool = "not a usable pool",
    /// A range of the image cannot be read.
    Unreadable = "unreadable",
    /// Home of a logged pool does not have its recorded sum.
    HomeSum = "metadata at home that differ from their sum",
    /// The pool header of an undo log, or an undo record, is unsound.
    UndoLog = "unsound undo log",
    /// A copy of the superblock is damaged or differs from the current copy.
    SuperblockCopy = "bad superblock copy",
    /// The geometry does not fit the image or this release.
    Geometry = "impossible geometry",
    /// A dataset of the table is not where the table says.
    Dataset = "missing dataset",
    /// The state word is unsound.
    StateWord = "unsound state word",
    /// A word of the chunk table is unsound.
    ChunkWord = "unsound chunk word",
    /// A journal head that is never written, or a record with offsets outside the metadata.
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
    /// The root directory is missing or is not a directory.
    Root = "no root directory",
    /// An inode in use that no entry names.
    Unnamed = "unnamed inode",
    /// An inode that was open without a name.
    Orphan = "orphan inode",
    /// An entry names an orphan.
    NamedOrphan = "entry to an orphan",
    /// A log extent's head is unsound, or it lies outside every valid range.
    LogUnsound = "unsound log extent",
    /// A log extent in a chunk of another kind.
    LogChunk = "log extent in a wrong chunk",
    /// A log extent that belongs to another directory.
    LogShared = "log extent of another directory",
    /// A log that comes back to itself.
    LogLoop = "log loop",
    /// An entry is unsound, or lies outside every valid range.
    EntryUnsound = "unsound entry",
    /// An entry with an invalid name.
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
    /// Cookies that do not ascend, or do not fit their position.
    Cookies = "cookies out of order",
    /// A metadata slot that belongs to two structures.
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
    /// A symlink's text is unsound, or lies outside every valid range.
    TextUnsound = "unsound symlink text",
    /// A set of extended attributes is unsound, or a piece of it lies outside every valid range.
    XattrUnsound = "unsound extended attributes",
    /// An inode whose flags do not fit its extended attributes.
    XattrFlags = "wrong attribute flags",
    /// A mapping root that names a segment that does not exist.
    MapSegment = "mapping root out of range",
    /// Two inodes with one mapping id.
    MapShared = "mapping id of two inodes",
    /// A free table entry that is not zero.
    MapWord = "unsound table entry",
    /// A table entry that belongs to no inode.
    MapNobody = "block of nobody",
    /// Two table entries for one block of a file.
    MapTwice = "block mapped twice",
    /// A data block of a metadata chunk that a file has, or that the table does not hold.
    MapMetadata = "block of metadata and of a file",
    /// Two entries of a block that is being moved in a table of keys.
    MapCopy = "table entry twice",
    /// A table entry that counts neighbouring blocks that do not exist.
    MapCounts = "wrong counts of a table entry",
    /// A level table whose root is unsound, or names a level that is not needed.
    MapLevels = "wrong levels of the mapping table",
    /// A mapped block past the end of its file.
    MapPastEnd = "block past the end of file",
    /// A block that is freed but not yet reusable.
    Limbo = "block in limbo",
    /// The saved live map differs from the slots in use.
    LiveMap = "wrong live map",
    /// The counters saved at close are wrong.
    SavedCounters = "wrong saved counters",
    /// The saved allocator state differs from the mapping table.
    SavedState = "wrong saved allocator state",
    /// A block of the area table, or the line of an area that entries name, is unsound.
    AreaUnsound = "unsound area",
    /// An area whose root is not a directory, or has no name.
    AreaNoRoot = "area without a root",
    /// An area that was being created or removed.
    AreaUnfinished = "unfinished area",
    /// Two areas in use with the same root directory.
    AreaTwice = "two areas of one root",
    /// A state in the map for which there is no entry, or no possible one.
    StateNoEntry = "state without an entry",
    /// An entry whose path does not continue that of its directory.
    PathWrong = "path of another directory",
    /// Two entries of one name.
    Twins = "twins",
    /// A move of directories and their contents that is committed and not finished.
    MoveUnfinished = "unfinished move",
    /// The list of such a move is unsound or impossible.
    MoveUnsound = "unsound list of a move",
    /// Wrong counts of names, of an area or a directory.
    AreaCounts = "wrong counts of names",
    /// A word of a directory log that is missing, or leads to no entry of the directory.
    LogWord = "wrong word of a log",
    /// A hash table of an area with too few or too many words.
    AreaTable = "wrong hash table of an area",
    /// An inode with a wrong location of its directory's names.
    PlaceWrong = "wrong place of a directory",
}

impl Class {
    /// Whether a crash may leave this, so that the next opening mends it: only if the pool was not
    /// closed cleanly.
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

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Finding {
    /// Its class.
    pub class: Class,
    /// Its severity.
    pub severity: Severity,
    /// Its location: `inode 17`, `block 4711`, `chunk 3`.
    pub place: String,
    /// The details.
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
    /// Closed cleanly.
    Clean,
    /// Open, or not closed cleanly.
    Dirty,
    /// The state word is unsound or was not read.
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

/// Counts of the pool's contents.
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
    /// Inodes without a name, in use or left over.
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
    /// Data blocks freed and not yet reusable.
    pub blocks_limbo: u64,
    /// Data blocks that are metadata now.
    #[serde(default)]
    pub blocks_metadata: u64,
    /// Committed journal records that were evaluated as applied.
    pub journal_records: u64,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The findings, ordered by class and location; at most 1000 per class.
    pub findings: Vec<Finding>,
    /// Counts of the pool's contents.
    pub summary: Summary,
    /// How the pool was left.
    pub phase: Phase,
    /// Number of damaged locations, including omitted findings.
    pub damage: u64,
    /// Number of residues, including omitted findings.
    pub residue: u64,
    /// Number of omitted findings.
    pub omitted: u64,
    /// Whether everything could be read. If not, the absence of damage proves nothing.
    pub complete: bool,
}

impl Report {
    /// Whether nothing is damaged. Residue in a pool that was not closed does not count.
    pub fn is_sound(&self) -> bool {
        self.damage == 0 && self.complete
    }

    /// The exit status of fsck(8): 0 for no damage, plus 4 for uncorrected damage, plus 8 if the
    /// check was impossible or incomplete.
    pub fn exit_code(&self) -> i32 {
        let unseen = self.of(Class::NotAPool).count() + self.of(Class::Unreadable).count();
        let damage = if self.damage > unseen as u64 { 4 } else { 0 };
        damage | if self.complete { 0 } else { 8 }
    }

    /// Whether the pool is sound, in words that follow `the pool is`.
    pub fn verdict(&self) -> String {
        match (self.complete, self.damage) {
            (true, 0) => "sound".to_owned(),
            (true, n) => format!("damaged in {}", counted(n, "place")),
            (false, 0) => "could not be checked as a whole".to_owned(),
            (false, n) => format!(
                "damaged in {}, and could not be checked as a whole",
                counted(n, "place")
            ),
        }
    }

    /// The report about a pool that is in use, where what a crash would leave is work in progress.
    #[must_use]
    pub fn of_pool_in_use(mut self) -> Self {
        self.findings
            .retain(|found| found.severity == Severity::Damage);
        self.residue = 0;
        self
    }

    /// Whether there is a finding of `class`.
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
        writeln!(f, "{}", self.summary)?;
        let phase = match self.phase {
            Phase::Clean => "closed cleanly",
            Phase::Dirty => "open, or not closed cleanly",
            Phase::Unknown => "in an unknown state",
        };
        write!(f, "the pool is {}; it was {phase}", self.verdict())?;
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

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self;
        write!(
            f,
            "{} inodes ({} directories, {} files, {} symlinks, {} others), {} entries; \
             {} of {} metadata slots; {} blocks mapped, {} unwritten, {} in limbo, \
             {} of metadata, of {}",
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
            s.blocks_metadata,
            s.blocks,
        )
    }
}

/// A count with its noun: `1 place`, `2 places`.
pub fn counted(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {one}s"),
    }
}

/// A location in a pool.
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

/// Most findings per class in a report.
const CLASS_MAX: u64 = 1000;

/// Collects findings.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    /// Whether residue is tolerated; otherwise it counts as damage.
    pub(crate) lenient: bool,
    /// The pool was closed cleanly.
    pub(crate) closed: bool,
    findings: Vec<Finding>,
    counts: BTreeMap<Class, u64>,
    damage: u64,
    residue: u64,
    omitted: u64,
    /// Whether something could not be read.
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

    /// Reports what a crash leaves even in a closed pool.
    pub(crate) fn left(&mut self, class: Class, place: Location, detail: impl fmt::Display) {
        self.add(class, Severity::Residue, place, &detail);
    }

    /// Reports what a clean close leaves too, because it is stored but not flushed.
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

    /// Whether no damage was found except in copies of the superblock.
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
