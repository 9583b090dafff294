//! The redo log of a logged pool: one record for each epoch, laid over home when the pool is
//! opened.
//!
//! Epochs are numbered from 1. The log is a ring; its contents begin at the *tail*, which
//! checkpoints move forward (`home`): in the background from when half of the area is used, in
//! place when an epoch finds no space, and completely at a close.

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

/// A line of the image, with its pool offset.
pub(crate) type Line = (u64, [u8; LOG_LINE_BYTES as usize]);

/// Bytes of a block of a file.
type Block = [u8; BLOCK_BYTES as usize];

/// Blocks are journaled as long as the valid journaled data take at most one part in so many of the
/// log, not counting the minimum for lines. With one half, more is in use by then: the background
/// thread has begun to write records home, and syncs the data without making an operation wait.
const JOURNALED_PART: u64 = 2;
/// Bytes of a log that are kept for lines.
const LINES_BYTES: u64 = 256 << 10;

/// What a cut passes to the log.
#[derive(Debug)]
pub(crate) struct Epoch {
    /// The lines that were stored to, ascending.
    pub(crate) lines: Vec<Line>,
    /// Blocks of files that were written.
    pub(crate) written: Written,
}

/// What the log did since the pool was opened.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("pool");
/// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
/// # options.create(&path)?.close()?;
/// let pool = vellum::PoolOptions::new().durability(vellum::Durability::Sync).open(&path)?;
/// for name in ["/a", "/b", "/c"] {
///     pool.volume().create_dir(name)?;
/// }
/// assert!(pool.fs().log_counts().is_some_and(|log| log.commits >= 3));
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Records that were written: commits of epochs in which anything was stored.
    pub commits: u64,
    /// Calls that asked for a commit and were answered by one, or found nothing to do.
    pub answered: u64,
    /// Lines in the records.
    pub lines: u64,
    /// Bytes of the records.
    pub bytes: u64,
    /// Blocks of files in the records.
    pub blocks: u64,
    /// Steps of checkpoints.
    pub checkpoints: u64,
    /// Bytes of records that were not written home yet.
    pub used_bytes: u64,
}

/// The log of an open pool.
#[derive(Debug)]
pub(crate) struct Log {
    layout: LogLayout,
    state: Mutex<State>,
    ahead: Ahead,
    /// Held during a step of a checkpoint, beside which operations and commits go on.
    home: Mutex<Home>,
    /// A sync or a write failed: nothing more is committed.
    has_failed: AtomicBool,
    /// The pool was closed, and everything is home.
    is_over: AtomicBool,
    answered: AtomicU64,
    /// The thread that makes checkpoints in the background.
    background: OnceLock<Thread>,
    /// The image and what anchors say of it, if it outlives the process.
    image: Option<(Arc<dyn SharedImage>, ImageTag)>,
}

/// The extent of the log. Never locked during waits for the disk: only the leader of a commit moves
/// its end, and only the holder of [`Log::home`] its beginning.
#[derive(Debug)]
struct State {
    /// Number of the next epoch.
    epoch: u64,
    /// Offset of its record in the area.
    at: u64,
    /// The check of the record before.
    previous: Option<u64>,
    /// Bytes from the tail to `at`, around the ring.
    used: u64,
    /// The first epoch whose journaled data may not be where they belong.
    journaled_from: u64,
    /// Blocks in records since the data were last synced; at least those from `journaled_from` on.
    journaled: u64,
    counts: LogCounts,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    /// The same log, for a pool that may come to have this many data blocks while it is open.
    pub(crate) fn naming(self, blocks: u64) -> Self {
        let layout = self.layout.naming(blocks);
        Self { layout, ..self }
    }

    /// Whether nothing is committed any more because everything is home.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Fails if a commit failed: memory is then ahead of anything that a later commit could
    /// promise.
    pub(crate) fn check(&self) -> Result<()> {
        if self.has_failed.load(Ordering::SeqCst) {
            Err(Error::Io(io::Error::from_raw_os_error(libc::EIO)))
        } else {
            Ok(())
        }
    }

    /// Ends committing after an error.
    pub(crate) fn fail(&self) {
        self.has_failed.store(true, Ordering::SeqCst);
        if let Some((image, _)) = &self.image {
            image.poison();
        }
    }

    /// Names the image at the end of an opening: from the first operation on, a kill leaves the
    /// image to the next opening.
    ///
    /// # Errors
    /// Fails if the disk fails. Nothing more is committed then.
    pub(crate) fn name_image(&self, disk: &dyn Disk) -> Result<()> {
        let Some((image, tag)) = &self.image else {
            return Ok(());
        };
        let durable = lock(&self.state).epoch - 1;
        if let Err(error) = image.name(tag.attach, durable) {
            tracing::warn!(%error, "the image of the pool could not be named: it is lost if the \
                 process is killed");
            return Ok(());
        }
        let mut home = lock(&self.home);
        home.image = Some(tag.clone());
        let said = home.say(disk, &self.layout, disk_sites::LOG_IMAGE_NAMED);
        Ok(said.inspect_err(|_| self.fail())?)
    }

    /// The directory in which a kill leaves the image; `None` if it leaves none.
    pub(crate) fn image_dir(&self) -> Option<PathBuf> {
        self.image.as_ref().and_then(|(image, _)| image.found_in())
    }

    /// Whether the image should outlive a kill, and will not any more.
    pub(crate) fn has_lost_image(&self) -> bool {
        self.image.is_some() && self.image_dir().is_none()
    }

    /// Counts a call that was answered.
    pub(crate) fn note_answer(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts so far.
    pub(crate) fn counts(&self) -> LogCounts {
        let state = lock(&self.state);
        LogCounts {
            answered: self.answered.load(Ordering::Relaxed),
            used_bytes: state.used,
            ..state.counts
        }
    }

    /// Registers a thread that is unparked whenever more than half of the log is used.
    pub(crate) fn wake_when_half_full(&self, background: Thread) {
        // A pool has one such thread.
        let _ = self.background.set(background);
    }

    /// Whether more than half of the log is used.
    pub(crate) fn is_half_full(&self) -> bool {
        lock(&self.state).used > self.layout.area_bytes() / 2
    }

    /// Makes an epoch durable. The caller leads the commit. An empty epoch needs no record: the one
    /// before it is durable.
    ///
    /// # Errors
    /// Fails if the disk fails. Nothing more is committed then.
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
            // Some bytes of files did not arrive before the cut: no record that refers to them may
            // get into the log.
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

    /// Returns the offsets of the written blocks if they become journaled data of the record.
    /// `None`: there are too many, or the log has no space for them beside the lines, so a sync has
    /// to come before the record. With `--direct` reading them back for the record would take as
    /// long as that sync, so none are journaled.
    ///
    /// Journaled data stay valid until the data are synced. Whatever overwrites such a block
    /// meanwhile is journaled in a later record, or synced.
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

    /// Reads blocks for the record: their numbers, and the bytes that they have by now.
    fn read_blocks(&self, disk: &dyn Disk, blocks: &[u64]) -> io::Result<Vec<(u64, Block)>> {
        let read = |&at: &u64| {
            let mut block = [0; BLOCK_BYTES as usize];
            disk.read(at, &mut block)?;
            Ok((self.layout.block_at(at), block))
        };
        blocks.iter().map(read).collect()
    }

    /// Whether there is space for a record of `bytes`. An empty log has space for any.
    fn has_room(&self, bytes: u64) -> bool {
        let used = lock(&self.state).used;
        used == 0 || used + bytes <= self.layout.area_bytes()
    }

    /// Records that a record is durable.
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
            // Only when the half is crossed: the thread goes on until less is used.
            state.used > half && state.used - bytes <= half
        };
        if let Some(background) = self.background.get().filter(|_| is_half_full) {
            background.unpark();
        }
    }

    /// Writes the oldest records home, in one step of limited size, but at least one record.
    /// Returns how many records.
    ///
    /// # Errors
    /// Fails if the disk fails. Nothing more is committed then. The records stay, and the next
    /// opening reads them.
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

    /// Syncs the data if records of this step have journaled data that may not be where they
    /// belong, before the records are freed.
    fn bring_home(&self, disk: &dyn Disk, piece: &Piece) -> io::Result<()> {
        let (journaled_from, journaled, until) = {
            let state = lock(&self.state);
            (state.journaled_from, state.journaled, state.epoch)
        };
        if piece.journaled_to > 0 && piece.journaled_to >= journaled_from {
            disk.sync_data(disk_sites::LOG_RIDES_DURABLE)?;
            let mut state = lock(&self.state);
            // Unless a commit has synced meanwhile, too, the earlier journaled data are void from
            // now on.
            if state.journaled_from == journaled_from {
                (state.journaled_from, state.journaled) = (until, state.journaled - journaled);
            }
        }
        Ok(())
    }

    /// Empties the log for good, because the pool is closed.
    ///
    /// # Errors
    /// Fails as [`Self::checkpoint`].
    pub(crate) fn finish(&self, disk: &dyn Disk) -> Result<()> {
        // Everything is in the log. The next anchors, one after each checkpoint, name no image.
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
    use vellum_media::{ImageMemory, SimLogged, SimPool};

    /// Formats a pool, and returns a function that appends a record with so many lines, and three
    /// blocks, to its log. Six blocks can be journaled at a time.
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

    /// The log has space for a record of all lines of the image, and little else.
    #[test]
    fn a_record_without_room_for_blocks_has_none() {
        let (geometry, append) = made(None);
        let few = append(9);
        assert_eq!((few.commits, few.blocks), (1, 3));
        let all = append((geometry.log_at - geometry.state_at) / LOG_LINE_BYTES);
        assert_eq!((all.commits, all.blocks), (2, 3));
    }

    /// The data are synced before more blocks are journaled than the log has space for.
    #[test]
    fn blocks_are_journaled_until_they_are_too_many() {
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
