//! Undo files: they save what a repair overwrites, so that it can be restored.
//!
//! An undo file has a head and a record for every line (64 bytes) of the pool that the plan
//! changes: its pool offset, its bytes before, and its bytes after. A line with intermediate bytes
//! has a record for those, too. The bytes after protect a pool that was used since the repair:
//! restoring requires each word to be as the repair found it or left it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::sync::atomic::Ordering;

use thiserror::Error;
use vellum_check::Image;
use vellum_check::survey::superblock;
use vellum_layout::{
    ANCHORS_BYTES, Anchor, BLOCK_BYTES, PoolPhase, PoolState, StateWord, Superblock, checksum,
};
use vellum_media::{LINE_BYTES, PoolMemory, Site};

use crate::apply::{Guard, Meter, Written};
use crate::plan::Plan;

const MAGIC: &[u8; 8] = b"VELLUMUN";
const VERSION: u64 = 1;
/// Magic, version, uuid, bytes of the pool, lines, offset of the state word, checksum.
const HEAD_BYTES: usize = 64;
const LINE: usize = LINE_BYTES as usize;
/// Pool offset, bytes before, bytes after.
const RECORD_BYTES: usize = 8 + 2 * LINE;

/// Why an undo file cannot be used.
#[derive(Debug, Error)]
pub enum UndoError {
    /// The file could not be read, or the pool could not be made durable.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The bytes are not an undo file, or not a complete one.
    #[error("it is not a complete undo file of this release ({0})")]
    Unsound(&'static str),
    /// The pool is not the one that was repaired.
    #[error("it belongs to another pool")]
    OtherPool,
    /// The pool was changed after the repair.
    #[error(
        "the pool was changed since the repair (at offset {0:#x}): the bytes from before the \
         repair no longer fit it"
    )]
    Changed(u64),
    /// The medium failed.
    #[error("the medium failed at pool offset {0:#x}; restore it again")]
    Medium(u64),
}

/// A line of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    at: u64,
    before: [u8; LINE],
    after: [u8; LINE],
}

/// The contents of an undo file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undo {
    uuid: [u8; 16],
    pool_bytes: u64,
    state_at: u64,
    lines: Vec<Line>,
}

/// Writes the undo file of `plan`, durably. `image` is the pool before the repair.
///
/// # Errors
/// Fails if the file exists or cannot be written, or the pool cannot be read.
pub fn write(path: &Path, plan: &Plan, image: &dyn Image) -> io::Result<()> {
    let undo = Undo::of(plan, image)?;
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let written = undo.write(&file);
    if written.is_err() {
        // Half a file is useless; a failure to remove it changes nothing.
        let _ = std::fs::remove_file(path);
    }
    written?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

impl Undo {
    /// The undo data of `plan`.
    ///
    /// # Errors
    /// Fails if the pool cannot be read.
    pub fn of(plan: &Plan, image: &dyn Image) -> io::Result<Self> {
        let mut lines: BTreeMap<u64, Line> = BTreeMap::new();
        let mut passing = Vec::new();
        let renewed = plan.stages.iter().flat_map(|stage| &stage.renewed);
        let renewed: BTreeSet<u64> = renewed.copied().collect();
        let state = superblock(image).map_or(0, |found| found.geometry().state_at);
        let state_at = state + PoolState::WORD;
        for &(at, value) in plan.stages.iter().flat_map(|stage| &stage.words) {
            let start = at / LINE_BYTES * LINE_BYTES;
            let line = match lines.entry(start) {
                std::collections::btree_map::Entry::Occupied(found) => found.into_mut(),
                std::collections::btree_map::Entry::Vacant(free) => {
                    let mut before = [0; LINE];
                    // Lost bytes cannot be restored.
                    if !renewed.contains(&(start / BLOCK_BYTES * BLOCK_BYTES)) {
                        image.read(start, &mut before)?;
                    }
                    let (at, after) = (start, before);
                    free.insert(Line { at, before, after })
                }
            };
            let from = (at - start) as usize;
            let changed = line.after[from..from + 8] != line.before[from..from + 8];
            if changed && at != state_at && line.after[from..from + 8] != value.to_le_bytes() {
                passing.push(*line);
            }
            line.after[from..from + 8].copy_from_slice(&value.to_le_bytes());
        }
        Ok(Self {
            uuid: plan.uuid,
            pool_bytes: image.len(),
            state_at,
            lines: lines.into_values().chain(passing).collect(),
        })
    }

    fn write(&self, file: &File) -> io::Result<()> {
        let mut body = Vec::with_capacity(self.lines.len() * RECORD_BYTES);
        for line in &self.lines {
            body.extend_from_slice(&line.at.to_le_bytes());
            body.extend_from_slice(&line.before);
            body.extend_from_slice(&line.after);
        }
        let mut out = BufWriter::new(file);
        out.write_all(&self.head(checksum(&body)))?;
        out.write_all(&body)?;
        out.flush()?;
        file.sync_all()
    }

    fn head(&self, body_check: u32) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(MAGIC);
        head[8..16].copy_from_slice(&VERSION.to_le_bytes());
        head[16..32].copy_from_slice(&self.uuid);
        head[32..40].copy_from_slice(&self.pool_bytes.to_le_bytes());
        head[40..48].copy_from_slice(&(self.lines.len() as u64).to_le_bytes());
        head[48..56].copy_from_slice(&self.state_at.to_le_bytes());
        head[56..60].copy_from_slice(&body_check.to_le_bytes());
        let check = checksum(&head[..60]);
        head[60..].copy_from_slice(&check.to_le_bytes());
        head
    }

    /// Reads an undo file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or is not complete.
    pub fn read(path: &Path) -> Result<Self, UndoError> {
        let mut bytes = Vec::new();
        File::open(path)?.read_to_end(&mut bytes)?;
        Self::decode(&bytes)
    }

    fn decode(bytes: &[u8]) -> Result<Self, UndoError> {
        let (head, body) = bytes
            .split_at_checked(HEAD_BYTES)
            .ok_or(UndoError::Unsound("it is too short"))?;
        let number = |at: usize| u64::from_le_bytes(part(head, at));
        if &head[..8] != MAGIC || number(8) != VERSION {
            return Err(UndoError::Unsound("its head is not known"));
        }
        if checksum(&head[..60]) != u32::from_le_bytes(part(head, 60)) {
            return Err(UndoError::Unsound("the checksum of its head does not fit"));
        }
        let whole = number(40).checked_mul(RECORD_BYTES as u64) == Some(body.len() as u64);
        if !whole || checksum(body) != u32::from_le_bytes(part(head, 56)) {
            return Err(UndoError::Unsound("the checksum of its lines does not fit"));
        }
        let lines = body.chunks_exact(RECORD_BYTES).map(|record| Line {
            at: u64::from_le_bytes(part(record, 0)),
            before: part(record, 8),
            after: part(record, 8 + LINE),
        });
        Ok(Self {
            uuid: part(head, 16),
            pool_bytes: number(32),
            state_at: number(48),
            lines: lines.collect(),
        })
    }

    /// Number of bytes that are restored.
    pub fn bytes(&self) -> u64 {
        self.lines.len() as u64 * LINE_BYTES
    }

    /// Restores what the repair overwrote, even after an unfinished repair or restoration. The pool
    /// counts as under repair until all is restored.
    ///
    /// # Errors
    /// Fails if the pool is another one or was changed since, and then writes nothing. Fails if the
    /// medium fails.
    pub fn restore(&self, pool: &impl PoolMemory) -> Result<(), UndoError> {
        self.restore_watched(pool, &|_, _| {})
    }

    /// As [`Self::restore`], and reports the number of restored lines.
    ///
    /// # Errors
    /// As [`Self::restore`].
    pub fn restore_watched(
        &self,
        pool: &impl PoolMemory,
        written: Written<'_>,
    ) -> Result<(), UndoError> {
        let state_line = self.state_at / LINE_BYTES * LINE_BYTES;
        let mut lines = self.check(pool)?;
        // Only unrestored lines, because blocks may be lost that the repair did not reach.
        lines.retain(|line| line.at == state_line || !is_back(pool, line));
        let guard = Guard::of(pool);
        let mut meter = Meter::of(lines.len() as u64, written);
        let settle =
            || -> Result<(), UndoError> { Ok(guard.settle().map_err(UndoError::Medium)??) };
        let (state, others): (Vec<&Line>, Vec<&Line>) =
            lines.into_iter().partition(|line| line.at == state_line);
        if !state.is_empty() {
            let now = StateWord(pool.load(self.state_at, Ordering::Acquire));
            let (was_clean, epoch) = now
                .repair()
                .or(now
                    .get()
                    .map(|(phase, epoch)| (phase == PoolPhase::Clean, epoch)))
                .unwrap_or((false, 0));
            let marked = StateWord::repairing(was_clean, epoch).0;
            pool.store(self.state_at, marked, Ordering::Release);
            pool.flush(Site::UNNAMED, self.state_at, 8);
            settle()?;
        }
        for lines in self.in_turn(others, pool).chunk_by(|a, b| a.0 == b.0) {
            for (_, line) in lines {
                put_back(pool, line);
                meter.add_one();
            }
            settle()?;
        }
        for line in state {
            put_back(pool, line);
            meter.add_one();
        }
        settle()
    }

    /// The lines with the step in which they are restored; each step is durable before the next.
    /// There is one step, except in a logged pool: its log goes back in reverse order, the mending
    /// record first and the lines written home last, so that whatever a power cut leaves of the
    /// restoration, the log describes a complete pool.
    fn in_turn<'u>(&self, lines: Vec<&'u Line>, pool: &impl PoolMemory) -> Vec<(u8, &'u Line)> {
        let found = superblock(&vellum_check::MemoryImage(pool));
        let found = found.filter(|found| found.geometry().is_logged());
        let turn = |line: &Line| match &found {
            None => 0,
            Some(superblock) => self.turn_on_log(line, superblock),
        };
        let mut lines: Vec<_> = lines.into_iter().map(|line| (turn(line), line)).collect();
        lines.sort_by_key(|&(turn, line)| (turn, line.at));
        lines
    }

    fn turn_on_log(&self, line: &Line, superblock: &Superblock) -> u8 {
        let anchors = superblock.log_at..superblock.log_at + ANCHORS_BYTES;
        let records = anchors.end..superblock.log_at + superblock.log_bytes;
        let block = |line: &Line| line.at / BLOCK_BYTES;
        // The later one of the two anchors belongs to the empty log.
        let number = |line: &&Line| u64::from_le_bytes(part(&line.after, Anchor::NUMBER));
        let heads = self.lines.iter();
        let heads = heads.filter(|line| anchors.contains(&line.at) && line.at % BLOCK_BYTES == 0);
        match line.at {
            at if records.contains(&at) => 0,
            at if !anchors.contains(&at) => 2,
            _ if heads.max_by_key(number).map(block) == Some(block(line)) => 1,
            _ => 3,
        }
    }

    /// The lines, if they belong to this pool.
    fn check(&self, pool: &impl PoolMemory) -> Result<Vec<&Line>, UndoError> {
        // The superblock may be damaged and among the restored bytes, so the words decide.
        let found = superblock(&vellum_check::MemoryImage(pool));
        if pool.len() != self.pool_bytes || found.is_some_and(|found| found.uuid != self.uuid) {
            return Err(UndoError::OtherPool);
        }
        let mut lines: Vec<&Line> = self.lines.iter().collect();
        lines.sort_by_key(|line| line.at);
        for lines in lines.chunk_by(|a, b| a.at == b.at) {
            let mut now = [0; LINE];
            pool.read(lines[0].at, &mut now);
            for (offset, word) in (0..).step_by(8).zip(now.as_chunks::<8>().0) {
                let place = offset..offset + 8;
                let has = |line: &&Line| {
                    *word == line.before[place.clone()] || *word == line.after[place.clone()]
                };
                let known = lines.iter().any(has);
                let at = lines[0].at + offset as u64;
                let marked =
                    at == self.state_at && StateWord(u64::from_le_bytes(*word)).repair().is_some();
                if !known && !marked {
                    return Err(UndoError::Changed(at));
                }
            }
        }
        Ok(lines)
    }
}

/// `N` bytes at `at`, which must exist.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

fn put_back(pool: &impl PoolMemory, line: &Line) {
    pool.write(line.at, &line.before);
    pool.flush(Site::UNNAMED, line.at, LINE_BYTES);
}

fn is_back(pool: &impl PoolMemory, line: &Line) -> bool {
    let mut now = [0; LINE];
    pool.read(line.at, &mut now);
    now == line.before
}
