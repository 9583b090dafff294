//! The redo log of a logged pool: one record an epoch, laid over home when the pool is opened.
//!
//! Epochs are numbered from 1. The log goes round its area; what it holds begins at the *tail*. When an epoch finds no room, and at the
//! close, the log is emptied: the newest content of each of its lines goes home, durably, and then an anchor says so. Until that
//! anchor is durable the records are where they were, so that a crash in the middle of it changes nothing of what they say.

mod load;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vellum_layout::{
    ANCHORS_BYTES, Anchor, BLOCK_BYTES, Expected, LOG_LINE_BYTES, Record, Superblock, record_bytes,
    seal_record,
};
use vellum_media::Disk;
use zerocopy::IntoBytes;

use crate::disk_sites;
use crate::error::{Error, Result};

pub(crate) use load::load;

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

/// The log of an open pool.
#[derive(Debug)]
pub(crate) struct Log {
    place: Place,
    state: Mutex<State>,
}

/// Where the log lies, and how its records are told from other bytes.
#[derive(Clone, Copy, Debug)]
struct Place {
    uuid: [u8; 16],
    salt: u64,
    image_bytes: u64,
    log_at: u64,
    area_bytes: u64,
}

/// How far the log is.
#[derive(Debug)]
struct State {
    /// Number of the next epoch.
    epoch: u64,
    /// Where its record goes: an offset in the area.
    at: u64,
    /// The check of the record before.
    previous: Option<u64>,
    /// The first epoch that home does not have, and where its record begins.
    tail: (u64, u64),
    /// Bytes from there to `at`, all round.
    used: u64,
    /// Number of the anchor that counts.
    anchor: u64,
    /// A sync or a write failed: nothing more is committed.
    has_failed: bool,
    /// The pool was closed, all is home.
    is_over: bool,
}

impl Place {
    fn new(superblock: &Superblock, salt: u64) -> Self {
        Self {
            uuid: superblock.uuid,
            salt,
            image_bytes: superblock.log_at,
            log_at: superblock.log_at,
            area_bytes: superblock.log_bytes.saturating_sub(ANCHORS_BYTES) / BLOCK_BYTES
                * BLOCK_BYTES,
        }
    }

    /// The two parts of `len` bytes at `at` of the area, as pool offset and length: the area goes round.
    fn parts(&self, at: u64, len: u64) -> [(u64, usize); 2] {
        let area = self.log_at + ANCHORS_BYTES;
        let first = len.min(self.area_bytes - at);
        [(area + at, first as usize), (area, (len - first) as usize)]
    }

    fn read(&self, disk: &dyn Disk, at: u64, out: &mut [u8]) -> io::Result<()> {
        let [(first_at, first), (rest_at, _)] = self.parts(at, out.len() as u64);
        let (front, back) = out.split_at_mut(first);
        disk.read(first_at, front)?;
        if back.is_empty() {
            Ok(())
        } else {
            disk.read(rest_at, back)
        }
    }

    fn write(&self, disk: &dyn Disk, at: u64, record: &[u8]) -> io::Result<()> {
        let [(first_at, first), (rest_at, _)] = self.parts(at, record.len() as u64);
        let (front, back) = record.split_at(first);
        disk.write(first_at, front)?;
        if back.is_empty() {
            Ok(())
        } else {
            disk.write(rest_at, back)
        }
    }

    /// The record at `at`, if it is the one that is expected.
    fn record(&self, disk: &dyn Disk, at: u64, expected: Expected) -> io::Result<Option<Record>> {
        let mut head = [0; BLOCK_BYTES as usize];
        self.read(disk, at, &mut head)?;
        let Some(len) = Record::length(&head, expected, self.image_bytes, self.area_bytes) else {
            return Ok(None);
        };
        let mut bytes = vec![0; len as usize];
        self.read(disk, at, &mut bytes)?;
        Ok(Record::unseal(bytes, expected, self.image_bytes))
    }

    /// Calls `each` with the records from `at` on, that of `epoch` first, as far as they are whole; gives where the next one goes.
    fn replay(
        &self,
        disk: &dyn Disk,
        (epoch, at): (u64, u64),
        mut each: impl FnMut(Record),
    ) -> io::Result<Replayed> {
        let mut reached = Replayed {
            epoch,
            at,
            previous: None,
            used: 0,
        };
        while reached.used < self.area_bytes {
            let expected = Expected {
                salt: self.salt,
                epoch: reached.epoch,
                previous: reached.previous,
            };
            let Some(record) = self.record(disk, reached.at, expected)? else {
                break;
            };
            let bytes = u64::from(record.head().bytes);
            reached = Replayed {
                epoch: reached.epoch + 1,
                at: (reached.at + bytes) % self.area_bytes,
                previous: Some(record.head().check),
                used: reached.used + bytes,
            };
            each(record);
        }
        Ok(reached)
    }
}

/// Where a replay ended.
#[derive(Clone, Copy, Debug)]
struct Replayed {
    epoch: u64,
    at: u64,
    previous: Option<u64>,
    used: u64,
}

impl Log {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing is committed any more because all is home.
    pub(crate) fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Fails if a commit failed: what is in memory then is ahead of what any later one could promise.
    pub(crate) fn check(&self) -> Result<()> {
        if self.state().has_failed {
            Err(Error::Io(io::Error::from_raw_os_error(libc::EIO)))
        } else {
            Ok(())
        }
    }

    /// Nothing is committed any more.
    pub(crate) fn fail(&self) {
        self.state().has_failed = true;
    }

    /// Makes an epoch durable. One that is empty needs no record: the one before it is durable.
    ///
    /// # Errors
    /// What the disk said; nothing is committed any more.
    pub(crate) fn append(&self, disk: &dyn Disk, epoch: &Epoch) -> Result<()> {
        let mut state = self.state();
        let done = self.try_append(&mut state, disk, epoch);
        state.has_failed |= done.is_err();
        Ok(done?)
    }

    fn try_append(&self, state: &mut State, disk: &dyn Disk, epoch: &Epoch) -> io::Result<()> {
        if epoch.has_data {
            disk.sync(disk_sites::LOG_DATA_DURABLE)?;
        }
        if epoch.lines.is_empty() {
            return Ok(());
        }
        let bytes = record_bytes(epoch.lines.len() as u64);
        if state.used + bytes > self.place.area_bytes {
            self.go_home(state, disk)?;
        }
        let expected = Expected {
            salt: self.place.salt,
            epoch: state.epoch,
            previous: state.previous,
        };
        let (record, check) = seal_record(expected, state.epoch - 1, &epoch.lines);
        self.place.write(disk, state.at, &record)?;
        disk.sync(disk_sites::LOG_RECORD_DURABLE)?;
        state.epoch += 1;
        state.at = (state.at + bytes) % self.place.area_bytes;
        state.used += bytes;
        state.previous = Some(check);
        Ok(())
    }

    /// Empties the log for good: the pool is closed.
    ///
    /// # Errors
    /// What the disk said. The records stay, and the next opening reads them.
    pub(crate) fn finish(&self, disk: &dyn Disk) -> Result<()> {
        let mut state = self.state();
        if state.used > 0 {
            let done = self.go_home(&mut state, disk);
            state.has_failed |= done.is_err();
            done?;
        }
        state.is_over = true;
        Ok(())
    }

    /// Writes what the records say home, and then says that they are there. All of them are durable.
    fn go_home(&self, state: &mut State, disk: &dyn Disk) -> io::Result<()> {
        let mut newest = BTreeMap::new();
        let read = self.place.replay(disk, state.tail, |record| {
            for line in record.lines() {
                newest.insert(line.at, line.bytes.to_vec());
            }
        })?;
        if (read.epoch, read.used) != (state.epoch, state.used) {
            return Err(io::Error::other("the log is not what was written"));
        }
        write_runs(disk, &newest)?;
        disk.sync(disk_sites::LOG_HOME_DURABLE)?;
        state.anchor += 1;
        state.tail = (state.epoch, state.at);
        state.used = 0;
        let Place { uuid, salt, .. } = self.place;
        let anchor = Anchor::new(uuid, state.anchor, salt, state.epoch, state.at);
        let at = self.place.log_at + anchor.block() * BLOCK_BYTES;
        disk.write(at, anchor.as_bytes())?;
        disk.sync(disk_sites::LOG_ANCHOR_DURABLE)
    }
}

/// Writes lines home, neighbours at once.
fn write_runs(disk: &dyn Disk, lines: &BTreeMap<u64, Vec<u8>>) -> io::Result<()> {
    const RUN_MAX_BYTES: usize = 1 << 20;
    let mut run = Vec::new();
    let mut run_at = 0;
    for (&at, line) in lines {
        if at != run_at + run.len() as u64 || run.len() >= RUN_MAX_BYTES {
            disk.write(run_at, &run)?;
            run.clear();
            run_at = at;
        }
        run.extend_from_slice(line);
    }
    disk.write(run_at, &run)
}
