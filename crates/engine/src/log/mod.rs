//! The redo log of a logged pool: one record an epoch, laid over home when the pool is opened.
//!
//! Epochs are numbered from 1. The log goes round its area; what it holds begins at the *tail*, which checkpoints move on (`home`): from
//! the time on at which half of the area is used, in the background; in place where an epoch finds no room; and all the way at the close.

mod home;
mod load;
mod place;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use vellum_layout::{LOG_LINE_BYTES, record_bytes, seal_record};
use vellum_media::Disk;

use crate::disk_sites;
use crate::error::{Error, Result};
use home::{Home, Piece};
use place::Place;

pub(crate) use load::{load, sum_of_home};

/// A line of the image, and where it lies.
pub(crate) type Line = (u64, [u8; LOG_LINE_BYTES as usize]);

/// What the log is told at a cut.
#[derive(Debug, Default)]
pub(crate) struct Epoch {
    /// The lines that were stored to, ascending.
    pub(crate) lines: Vec<Line>,
    /// Blocks of files were written.
    pub(crate) has_data: bool,
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
    /// Pieces of the log that were taken home.
    pub checkpoints: u64,
    /// Bytes of records that are not home yet.
    pub used_bytes: u64,
}

/// The log of an open pool.
#[derive(Debug)]
pub(crate) struct Log {
    place: Place,
    state: Mutex<State>,
    /// Held while a piece is taken home, by which operations and commits are not kept.
    home: Mutex<Home>,
    /// A sync or a write failed: nothing more is committed.
    has_failed: AtomicBool,
    /// The pool was closed, all is home.
    is_over: AtomicBool,
    answered: AtomicU64,
    /// Who takes pieces home in the background.
    keeper: OnceLock<Thread>,
}

/// How far the log is. Never held while the disk is waited for: only the leader of a commit moves its end, and whoever holds [`Log::home`] its
/// beginning.
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

    /// Fails if a commit failed: what is in memory then is ahead of what any later one could promise.
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
    pub(crate) fn wake_when_half_full(&self, keeper: Thread) {
        // There is one keeper a pool.
        let _ = self.keeper.set(keeper);
    }

    /// Whether more than half of the log is used.
    pub(crate) fn is_half_full(&self) -> bool {
        lock(&self.state).used > self.place.area_bytes / 2
    }

    /// Makes an epoch durable; whoever calls leads the commit. One that is empty needs no record: the one before it is durable.
    ///
    /// # Errors
    /// What the disk said; nothing is committed any more.
    pub(crate) fn append(&self, disk: &dyn Disk, epoch: &Epoch) -> Result<()> {
        let done = self.try_append(disk, epoch);
        done.inspect_err(|_| self.fail())
    }

    fn try_append(&self, disk: &dyn Disk, epoch: &Epoch) -> Result<()> {
        if epoch.has_data {
            disk.sync(disk_sites::LOG_DATA_DURABLE)?;
        }
        if epoch.lines.is_empty() {
            return Ok(());
        }
        let bytes = record_bytes(epoch.lines.len() as u64);
        while !self.has_room(bytes) {
            self.checkpoint(disk)?;
        }
        let (at, expected) = {
            let state = lock(&self.state);
            let expected = self.place.expected(state.epoch, state.previous);
            (state.at, expected)
        };
        let (record, check) = seal_record(expected, expected.epoch - 1, &epoch.lines);
        self.place.write(disk, at, &record)?;
        disk.sync(disk_sites::LOG_RECORD_DURABLE)?;
        self.note_record(epoch.lines.len() as u64, bytes, check);
        Ok(())
    }

    /// Whether a record of so many bytes has room. An empty log has room for any.
    fn has_room(&self, bytes: u64) -> bool {
        let used = lock(&self.state).used;
        used == 0 || used + bytes <= self.place.area_bytes
    }

    /// A record is durable.
    fn note_record(&self, lines: u64, bytes: u64, check: u64) {
        let half = self.place.area_bytes / 2;
        let is_half_full = {
            let mut state = lock(&self.state);
            state.epoch += 1;
            state.at = (state.at + bytes) % self.place.area_bytes;
            state.previous = Some(check);
            state.used += bytes;
            state.counts.commits += 1;
            state.counts.lines += lines;
            state.counts.bytes += bytes;
            // Only the step over the half: whoever is woken goes on until it is below.
            state.used > half && state.used - bytes <= half
        };
        if let Some(keeper) = self.keeper.get().filter(|_| is_half_full) {
            keeper.unpark();
        }
    }

    /// Takes the oldest records home, so many bytes of them at most (but for one that is longer); gives how many records.
    ///
    /// # Errors
    /// What the disk said; nothing is committed any more. The records stay, and the next opening reads them.
    pub(crate) fn checkpoint(&self, disk: &dyn Disk) -> Result<u64> {
        let mut home = lock(&self.home);
        self.check()?;
        let done = self.take_piece(&mut home, disk);
        Ok(done.inspect_err(|_| self.fail())?)
    }

    fn take_piece(&self, home: &mut Home, disk: &dyn Disk) -> io::Result<u64> {
        let until = lock(&self.state).epoch;
        let replay = self.place.replay(disk, home.tail);
        let piece = Piece::read(replay, until, self.place.piece_bytes())?;
        if piece.records > 0 {
            home.take(disk, &self.place, &piece)?;
            let mut state = lock(&self.state);
            state.used -= piece.bytes;
            state.counts.checkpoints += 1;
        }
        Ok(piece.records)
    }

    /// Empties the log for good: the pool is closed.
    ///
    /// # Errors
    /// As for [`Self::checkpoint`].
    pub(crate) fn finish(&self, disk: &dyn Disk) -> Result<()> {
        while self.checkpoint(disk)? > 0 {}
        self.is_over.store(true, Ordering::SeqCst);
        Ok(())
    }
}
