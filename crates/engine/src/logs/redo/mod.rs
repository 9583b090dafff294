//! The redo log of a logged pool: one record an epoch, laid over home when the pool is opened.
//!
//! Epochs are numbered from 1. The log goes round its area; what it holds begins at the *tail*,
//! which checkpoints move on (`home`): from the time on at which half of the area is used, in the
//! background; in layout where an epoch finds no room; and all the way at the close.

mod ahead;
mod home;
mod layout;
mod load;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use vellum_layout::{
    BLOCK_BYTES, ImageTag, JournaledBlock, LOG_LINE_BYTES, record_bytes, seal_record,
};
use vellum_media::{Disk, SharedImage, Written};

use crate::disk_sites;
use crate::error::{Error, Result};
use ahead::Ahead;
use home::{Home, Piece};
use layout::LogLayout;

pub use load::{FoundImage, ImageLocation};
pub(crate) use load::{
    Loading, SHARED_DIR, chunks_in_use, forget_image, load, outside_chunks, remove_images,
    sum_of_home,
};

/// A line of the image, and where it lies.
pub(crate) type Line = (u64, [u8; LOG_LINE_BYTES as usize]);

/// Bytes of a block of a file.
type Block = [u8; BLOCK_BYTES as usize];

/// Blocks ride if all rides in force take one in so many parts of the log at most, without what
/// small logs are to have for lines. Where they take the half, more than that is used: the keeper
/// has begun to take records home before, and syncs the data without anybody waiting for it.
const JOURNALED_PART: u64 = 2;
/// Bytes of a log that are left to lines.
const LINES_BYTES: u64 = 256 << 10;

/// What the log is told at a cut.
#[derive(Debug)]
pub(crate) struct Epoch {
    /// The lines that were stored to, ascending.
    pub(crate) lines: Vec<Line>,
    /// Blocks of files that were written.
    pub(crate) written: Written,
}

/// What was done with a log since its pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Records written: commits of epochs in which anything was stored.
    pub commits: u64,
    /// Calls that wanted a commit and were answered by one, or found that nothing had to be done.
    pub answered: u64,
    /// Lines in the records.
    pub lines: u64,
    /// Bytes of the records.
    pub bytes: u64,
    /// Blocks of files in the records.
    pub blocks: u64,
    /// Pieces of the log that were taken home.
    pub checkpoints: u64,
    /// Bytes of records that are not home yet.
    pub used_bytes: u64,
}

/// The log of an open pool.
#[derive(Debug)]
pub(crate) struct Log {
    layout: LogLayout,
    state: Mutex<State>,
    ahead: Ahead,
    /// Held while a piece is taken home, by which operations and commits are not kept.
    home: Mutex<Home>,
    /// A sync or a write failed: nothing more is committed.
    has_failed: AtomicBool,
    /// The pool was closed, all is home.
    is_over: AtomicBool,
    answered: AtomicU64,
    /// Who takes pieces home in the background.
    background: OnceLock<Thread>,
    /// What is worked on, if it outlives the process, and what anchors are to say of it.
    image: Option<(Arc<dyn SharedImage>, ImageTag)>,
}

/// How far the log is. Never held while the disk is waited for: only the leader of a commit moves
/// its end, and whoever holds [`Log::home`] its beginning.
#[derive(Debug)]
struct State {
    /// Number of the next epoch.
    epoch: u64,
    /// Where its record goes: an offset in the area.
    at: u64,
    /// The check of the record before.
    previous: Option<u64>,
    /// Bytes from the tail to `at`, all round.
    used: u64,
    /// The first epoch of which blocks in the record need not be where they belong.
    journaled_from: u64,
    /// Blocks in records since the data were last synced; at least those from `rides_from` on.
    journaled: u64,
    counts: LogCounts,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    /// Whether nothing is committed any more because all is home.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Fails if a commit failed: what is in memory then is ahead of what any later one could
    /// promise.
    pub(crate) fn check(&self) -> Result<()> {
        if self.has_failed.load(Ordering::SeqCst) {
            Err(Error::Io(io::Error::from_raw_os_error(libc::EIO)))
        } else {
            Ok(())
        }
    }

    /// Nothing is committed any more.
    pub(crate) fn fail(&self) {
        self.has_failed.store(true, Ordering::SeqCst);
        if let Some((image, _)) = &self.image {
            image.poison();
        }
    }

    /// The opening has come to its end: from the first operation on a kill leaves the image to
    /// whoever opens the pool next.
    ///
    /// # Errors
    /// What the disk said; nothing is committed any more.
    pub(crate) fn name_image(&self, disk: &dyn Disk) -> Result<()> {
        let Some((image, tag)) = &self.image else {
            return Ok(());
        };
        let durable = lock(&self.state).epoch - 1;
        if let Err(error) = image.name(tag.attach, durable) {
            tracing::warn!(%error, "the image of the pool has no name: if the process is killed it \
                 is gone");
            return Ok(());
        }
        let mut home = lock(&self.home);
        home.image = Some(tag.clone());
        let said = home.say(disk, &self.layout, disk_sites::LOG_IMAGE_NAMED);
        Ok(said.inspect_err(|_| self.fail())?)
    }

    /// Where a kill leaves the image; `None` if it leaves none.
    pub(crate) fn image_dir(&self) -> Option<PathBuf> {
        self.image.as_ref().and_then(|(image, _)| image.found_in())
    }

    /// Whether a kill was to leave the image, and leaves it no longer.
    pub(crate) fn has_lost_image(&self) -> bool {
        self.image.is_some() && self.image_dir().is_none()
    }

    /// Counts a call that has what it wanted.
    pub(crate) fn note_answer(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// What was done so far.
    pub(crate) fn counts(&self) -> LogCounts {
        let state = lock(&self.state);
        LogCounts {
            answered: self.answered.load(Ordering::Relaxed),
            used_bytes: state.used,
            ..state.counts
        }
    }

    /// From now on this thread is unparked whenever more than half of the log is used.
    pub(crate) fn wake_when_half_full(&self, background: Thread) {
        // There is one keeper a pool.
        let _ = self.background.set(background);
    }

    /// Whether more than half of the log is used.
    pub(crate) fn is_half_full(&self) -> bool {
        lock(&self.state).used > self.layout.area_bytes() / 2
    }

    /// Makes an epoch durable; whoever calls leads the commit. One that is empty needs no record:
    /// the one before it is durable.
    ///
    /// # Errors
    /// What the disk said; nothing is committed any more.
    pub(crate) fn append(&self, disk: &dyn Disk, epoch: &Epoch) -> Result<()> {
        let done = self.try_append(disk, epoch);
        done.inspect_err(|_| self.fail())
    }

    fn try_append(&self, disk: &dyn Disk, epoch: &Epoch) -> Result<()> {
        let lines = epoch.lines.len() as u64;
        if lines == 0 && epoch.written == Written::Few(Vec::new()) {
            return Ok(());
        }
        let journaled = self.journaled(epoch, disk.is_direct());
        let blocks = match journaled {
            Some(blocks) => self.read_blocks(disk, blocks)?,
            None => {
                disk.sync_data(disk_sites::LOG_DATA_DURABLE)?;
                Vec::new()
            }
        };
        let bytes = record_bytes(lines, blocks.len() as u64);
        while !self.has_room(bytes) {
            self.checkpoint(disk)?;
        }
        let (at, free, expected, journaled_from) = {
            let mut state = lock(&self.state);
            if journaled.is_none() {
                (state.journaled_from, state.journaled) = (state.epoch, 0);
            }
            let expected = self.layout.expected(state.epoch, state.previous);
            let free = self.layout.area_bytes() - state.used;
            (state.at, free, expected, state.journaled_from)
        };
        let journaled: Vec<JournaledBlock<'_>> =
            blocks.iter().map(|(at, of)| (*at, &of[..])).collect();
        let told = (expected.epoch - 1, journaled_from);
        let (record, check) = seal_record(expected, told, &epoch.lines, &journaled);
        if disk.has_failed() {
            // Somebody's bytes did not arrive before the cut: what leads to them must not come to
            // lie in the log.
            return Err(io::Error::from_raw_os_error(libc::EIO).into());
        }
        self.ahead.before(disk, &self.layout, (at, bytes), free);
        self.layout
            .write(disk, disk_sites::LOG_RECORD_DURABLE, at, &record)?;
        self.note_record(
            LogCounts {
                lines,
                bytes,
                blocks: journaled.len() as u64,
                ..LogCounts::default()
            },
            check,
        );
        Ok(())
    }

    /// The offsets of the blocks that were written, if they are to ride in the record. `None`: they
    /// are many, or the log has no room for them beside the lines, and a sync has to come before
    /// the record. Where blocks are read from the medium, to read them back for the record would
    /// take as long as that sync: then none ride.
    ///
    /// A ride stays in force until the data are synced, and what is written over its block
    /// meanwhile rides behind it, or is synced.
    fn journaled<'e>(&self, epoch: &'e Epoch, is_direct: bool) -> Option<&'e [u64]> {
        let Written::Few(blocks) = &epoch.written else {
            return None;
        };
        if is_direct && !blocks.is_empty() {
            return None;
        }
        let (lines, journaled) = (epoch.lines.len() as u64, blocks.len() as u64);
        let area_bytes = self.layout.area_bytes();
        let most = area_bytes.saturating_sub(LINES_BYTES) / JOURNALED_PART / BLOCK_BYTES;
        let have_room = (journaled == 0 || lock(&self.state).journaled + journaled <= most)
            && record_bytes(lines, journaled) <= area_bytes;
        have_room.then_some(blocks)
    }

    /// Blocks by their numbers, with their bytes as they are by now.
    fn read_blocks(&self, disk: &dyn Disk, blocks: &[u64]) -> io::Result<Vec<(u64, Block)>> {
        let read = |&at: &u64| {
            let mut block = [0; BLOCK_BYTES as usize];
            disk.read(at, &mut block)?;
            Ok((self.layout.block_at(at), block))
        };
        blocks.iter().map(read).collect()
    }

    /// Whether a record of so many bytes has room. An empty log has room for any.
    fn has_room(&self, bytes: u64) -> bool {
        let used = lock(&self.state).used;
        used == 0 || used + bytes <= self.layout.area_bytes()
    }

    /// A record is durable.
    fn note_record(&self, record: LogCounts, check: u64) {
        let bytes = record.bytes;
        let half = self.layout.area_bytes() / 2;
        let is_half_full = {
            let mut state = lock(&self.state);
            if let Some((image, _)) = &self.image {
                image.settle(state.epoch);
            }
            state.epoch += 1;
            state.at = (state.at + bytes) % self.layout.area_bytes();
            state.previous = Some(check);
            state.used += bytes;
            state.journaled += record.blocks;
            state.counts.commits += 1;
            state.counts.lines += record.lines;
            state.counts.bytes += bytes;
            state.counts.blocks += record.blocks;
            // Only the step over the half: whoever is woken goes on until it is below.
            state.used > half && state.used - bytes <= half
        };
        if let Some(background) = self.background.get().filter(|_| is_half_full) {
            background.unpark();
        }
    }

    /// Takes the oldest records home, so many bytes of them at most (but for one that is longer);
    /// gives how many records.
    ///
    /// # Errors
    /// What the disk said; nothing is committed any more. The records stay, and the next opening
    /// reads them.
    pub(crate) fn checkpoint(&self, disk: &dyn Disk) -> Result<u64> {
        let mut home = lock(&self.home);
        self.check()?;
        let done = self.take_piece(&mut home, disk);
        Ok(done.inspect_err(|_| self.fail())?)
    }

    fn take_piece(&self, home: &mut Home, disk: &dyn Disk) -> io::Result<u64> {
        let until = lock(&self.state).epoch;
        let replay = self.layout.replay(disk, home.tail);
        let piece = Piece::read(replay, until, self.layout.piece_bytes())?;
        if piece.records > 0 {
            self.bring_home(disk, &piece)?;
            home.take(disk, &self.layout, &piece)?;
            let mut state = lock(&self.state);
            state.used -= piece.bytes;
            state.counts.checkpoints += 1;
        }
        Ok(piece.records)
    }

    /// Makes sure that blocks in the records of a piece are where they belong, before the records
    /// are given up.
    fn bring_home(&self, disk: &dyn Disk, piece: &Piece) -> io::Result<()> {
        let (journaled_from, journaled, until) = {
            let state = lock(&self.state);
            (state.journaled_from, state.journaled, state.epoch)
        };
        if piece.journaled_to > 0 && piece.journaled_to >= journaled_from {
            disk.sync_data(disk_sites::LOG_RIDES_DURABLE)?;
            let mut state = lock(&self.state);
            // Unless a commit has synced meanwhile, too, those that rode before ride no longer.
            if state.journaled_from == journaled_from {
                (state.journaled_from, state.journaled) = (until, state.journaled - journaled);
            }
        }
        Ok(())
    }

    /// Empties the log for good: the pool is closed.
    ///
    /// # Errors
    /// As for [`Self::checkpoint`].
    pub(crate) fn finish(&self, disk: &dyn Disk) -> Result<()> {
        // All is in the log: its next anchors, of which there is one behind each checkpoint, name
        // no image.
        lock(&self.home).image = None;
        while self.checkpoint(disk)? > 0 {}
        self.is_over.store(true, Ordering::SeqCst);
        if let Some((image, _)) = &self.image {
            image.end();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExternalData, FormatOptions, format};
    use std::sync::Arc;
    use vellum_layout::{Geometry, Superblock};
    use vellum_media::{Persistent, SimLogged, SimPool};

    /// Makes a pool, and gives what appends so many lines, and three blocks, to its log. Of blocks
    /// six ride at once.
    fn made(external: Option<ExternalData>) -> (Geometry, impl Fn(u64) -> LogCounts) {
        let disk = Arc::new(SimPool::new(2 << 20));
        let options = FormatOptions {
            metadata_bytes: Some(1 << 18),
            is_logged: true,
            external,
            ..FormatOptions::default()
        };
        format(&*disk, &options).unwrap();
        let superblock = Superblock::unseal(&disk.image()).unwrap();
        let pool = SimLogged::new(disk, None);
        let (log, _) = load(&pool, &superblock, &Loading::alone()).unwrap();
        let geometry = superblock.geometry();
        let append = move |lines: u64| {
            let lines = (0..lines).map(|line| (geometry.state_at + line * LOG_LINE_BYTES, [7; 64]));
            let blocks = [0, 1, 2].map(|block| geometry.data_at + block * BLOCK_BYTES);
            let epoch = Epoch {
                lines: lines.collect(),
                written: Written::Few(blocks.into()),
            };
            log.append(pool.disk().unwrap(), &epoch).unwrap();
            log.counts()
        };
        (geometry, append)
    }

    /// The log has room for a record of all lines of the image, and then for little else.
    #[test]
    fn a_record_without_room_for_blocks_has_none() {
        let (geometry, append) = made(None);
        let few = append(9);
        assert_eq!((few.commits, few.blocks), (1, 3));
        let all = append((geometry.log_at - geometry.state_at) / LOG_LINE_BYTES);
        assert_eq!((all.commits, all.blocks), (2, 3));
    }

    /// The data are synced before more ride than the log has a part for.
    #[test]
    fn blocks_ride_until_they_are_too_many() {
        let external = ExternalData {
            id: [9; 16],
            at: BLOCK_BYTES,
            data_bytes: 1 << 20,
            replica_bytes: 0,
        };
        for external in [None, Some(external)] {
            let (_, append) = made(external);
            assert_eq!([1, 1, 1].map(|lines| append(lines).blocks), [3, 6, 6]);
        }
    }
}
