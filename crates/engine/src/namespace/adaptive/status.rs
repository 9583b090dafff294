//! What is known about the use of directories: samples of lookups in each thread slot's own lines,
//! and the *statuses* of directories, which are derived from samples and renames (ADAM's status
//! trees, here a table). Areas evolve by them ([`super::evolve`]).
//!
//! Every 64th lookup of a thread slot records its directory, at most 32 between two rounds. If
//! there are more, each is kept with the same probability. Nothing of it is stored in lines that
//! lookups of other slots load. The table is a hint: a bucket holds eight statuses, and a new
//! directory displaces the one that is read least. Only renames and the holder of the background's
//! lease store there.

use std::sync::atomic::Ordering;

use vellum_layout::Geometry;
use vellum_media::{Memories, Memory};

use super::status_at;
use crate::core::Core;
use crate::core::cachelet::Cachelet;
use crate::core::slots::{self, Op};
use crate::namespace::{Decided, Evolution, Outcome};

/// Lookups of a thread slot for each recorded one.
const SAMPLE_EVERY: u64 = 64;
/// Samples that a thread slot keeps.
const SAMPLES: u64 = 32;

/// Bytes of the shared words: the number of rounds, the number of recorded decisions, and the area
/// where the search for areas to merge continues.
const HEAD_BYTES: u64 = 64;
const ROUND: u64 = 0;
const DECISIONS: u64 = 8;
const CURSOR: u64 = 16;

/// Decisions that are kept.
const DECISIONS_KEPT: u64 = 256;
const DECISION_BYTES: u64 = 64;

/// Bytes of a thread slot's samples: the round that they are of, the number of lookups that would
/// have been recorded, and 32 directories.
const SLOT_BYTES: u64 = 64 + SAMPLES * 8;
const NOTED: u64 = 8;
const FIRST_SAMPLE: u64 = 64;

/// Size of a status, and of the bucket in which a directory has its status, in bytes.
const STATUS_BYTES: u64 = 32;
const BUCKET_BYTES: u64 = 256;
/// Words of a status: the directory; its lookups, halved each round; the round in which it was
/// renamed last, plus one.
const KEY: u64 = 0;
const READS: u64 = 8;
const RENAMED: u64 = 16;

/// A directory, identified by inode and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DirKey(pub(super) u64);

impl DirKey {
    pub(super) fn new(ino: u64, generation: u32) -> Self {
        Self(ino | u64::from(generation) << 32)
    }

    pub(super) fn ino(self) -> u64 {
        self.0 & 0xFFFF_FFFF
    }

    pub(super) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The status of a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Status {
    pub(super) dir: DirKey,
    /// Recent lookups in it and below.
    pub(super) reads: u64,
    /// The round in which it was renamed last.
    pub(super) renamed: Option<u64>,
    /// Arena offset.
    cell: u64,
}

fn statuses(geometry: &Geometry) -> u64 {
    (geometry.region_slots() / 64)
        .next_power_of_two()
        .clamp(64, 8192)
}

/// Size of the samples and statuses in bytes.
pub(super) fn bytes(geometry: &Geometry) -> u64 {
    statuses_at(geometry) + statuses(geometry) * STATUS_BYTES
}

fn samples_at(slot: u32) -> u64 {
    HEAD_BYTES + DECISIONS_KEPT * DECISION_BYTES + u64::from(slot) * SLOT_BYTES
}

fn statuses_at(geometry: &Geometry) -> u64 {
    samples_at(geometry.thread_slots).next_multiple_of(BUCKET_BYTES)
}

/// Spreads a number over all bits.
fn scatter(number: u64) -> u64 {
    let product = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    product ^ product >> 32
}

impl<M: Memories> Op<'_, M> {
    /// Counts a lookup in a directory.
    #[inline]
    pub(crate) fn note_read(&self, dir: Cachelet) {
        let lookups = self.own(slots::field::LOOKUPS).wrapping_add(1);
        self.set_own(slots::field::LOOKUPS, lookups);
        if lookups.is_multiple_of(SAMPLE_EVERY) {
            self.sample(dir);
        }
    }

    #[cold]
    fn sample(&self, dir: Cachelet) {
        let core = self.core;
        let at = samples_at(self.slot);
        let round = core.status_word(ROUND);
        let is_first = core.status_word(at) != round;
        let noted = if is_first {
            0
        } else {
            core.status_word(at + NOTED)
        };
        let place = match noted {
            0..SAMPLES => noted,
            _ => scatter(noted) % (noted + 1),
        };
        if place < SAMPLES {
            let key = DirKey::new(core.ino(dir), core.identity(dir).generation());
            core.set_status_word(at + FIRST_SAMPLE + place * 8, key.0);
        }
        core.set_status_word(at + NOTED, noted + 1);
        core.set_status_word(at, round);
    }
}

impl<M: Memories> Core<M> {
    fn status_word(&self, at: u64) -> u64 {
        let at = self.map.namespace + status_at(&self.geometry) + at;
        self.arena.load(at, Ordering::Relaxed)
    }

    fn set_status_word(&self, at: u64, value: u64) {
        let at = self.map.namespace + status_at(&self.geometry) + at;
        self.arena.store(at, value, Ordering::Relaxed);
    }

    /// The number of rounds so far.
    pub(super) fn rounds(&self) -> u64 {
        self.status_word(ROUND)
    }

    /// Begins a round. Returns its number, from 1 on, and the directories that were recorded since
    /// the last round, each with the number of lookups that it stands for.
    pub(super) fn begin_round(&self) -> (u64, Vec<(DirKey, u64)>) {
        let round = self.rounds();
        let mut sampled = Vec::new();
        for slot in 0..self.geometry.thread_slots {
            let at = samples_at(slot);
            let noted = self.status_word(at + NOTED);
            if self.status_word(at) != round || noted == 0 {
                continue;
            }
            let kept = noted.min(SAMPLES);
            let keys = (0..kept).map(|i| DirKey(self.status_word(at + FIRST_SAMPLE + i * 8)));
            sampled.extend(keys.map(|key| (key, SAMPLE_EVERY * noted / kept)));
            self.set_status_word(at + NOTED, 0);
        }
        self.set_status_word(ROUND, round + 1);
        (round + 1, sampled)
    }

    fn cells(&self, bucket: u64) -> impl Iterator<Item = u64> + use<M> {
        let at = statuses_at(&self.geometry) + bucket * BUCKET_BYTES;
        (0..BUCKET_BYTES / STATUS_BYTES).map(move |i| at + i * STATUS_BYTES)
    }

    fn buckets(&self) -> u64 {
        statuses(&self.geometry) * STATUS_BYTES / BUCKET_BYTES
    }

    fn status_in(&self, cell: u64) -> Option<Status> {
        let key = self.status_word(cell + KEY);
        (key != 0).then(|| Status {
            dir: DirKey(key),
            reads: self.status_word(cell + READS),
            renamed: self.status_word(cell + RENAMED).checked_sub(1),
            cell,
        })
    }

    /// All statuses.
    pub(super) fn statuses(&self) -> Vec<Status> {
        let cells = (0..self.buckets()).flat_map(|bucket| self.cells(bucket));
        cells.filter_map(|cell| self.status_in(cell)).collect()
    }

    /// The status of a directory, if it has one.
    pub(super) fn status_of(&self, dir: DirKey) -> Option<Status> {
        let cells = self.cells(scatter(dir.0) % self.buckets());
        let mut found = cells.filter_map(|cell| self.status_in(cell));
        found.find(|status| status.dir == dir)
    }

    /// Returns the directory's status, and creates it if necessary. Two threads that do so at once
    /// may overwrite each other's status; only a hint is lost.
    fn make_status(&self, dir: DirKey) -> u64 {
        if let Some(status) = self.status_of(dir) {
            return status.cell;
        }
        let cells = || self.cells(scatter(dir.0) % self.buckets());
        let rank = |cell: &u64| {
            let status = self.status_in(*cell);
            status.map(|status| (status.renamed, status.reads))
        };
        let cell = cells().min_by_key(rank).unwrap_or_default();
        self.set_status_word(cell + READS, 0);
        self.set_status_word(cell + RENAMED, 0);
        self.set_status_word(cell + KEY, dir.0);
        cell
    }

    /// Ages the lookups of a status by a round.
    pub(super) fn age(&self, status: &Status) {
        self.set_status_word(status.cell + READS, status.reads / 2);
    }

    /// Removes a status.
    pub(super) fn forget_status(&self, status: &Status) {
        self.set_status_word(status.cell + KEY, 0);
    }

    /// Counts lookups in a directory.
    pub(super) fn add_reads(&self, dir: DirKey, reads: u64) {
        let at = self.make_status(dir) + READS;
        self.set_status_word(at, self.status_word(at) + reads);
    }

    /// Records that a directory was renamed.
    pub(super) fn note_renamed(&self, dir: Cachelet) {
        let key = DirKey::new(self.ino(dir), self.identity(dir).generation());
        let cell = self.make_status(key);
        self.set_status_word(cell + RENAMED, self.rounds() + 1);
    }

    /// The number of the area at which the search for areas to merge continues.
    pub(super) fn merge_cursor(&self) -> u32 {
        self.status_word(CURSOR) as u32
    }

    pub(super) fn set_merge_cursor(&self, number: u32) {
        self.set_status_word(CURSOR, number.into());
    }

    /// Keeps a decision, in place of the oldest one.
    pub(super) fn note_decision(&self, decided: &Decided) {
        let number = self.status_word(DECISIONS);
        let at = HEAD_BYTES + number % DECISIONS_KEPT * DECISION_BYTES;
        let words = [
            decided.round << 16 | (decided.what as u64) << 8 | decided.outcome as u64,
            DirKey::new(decided.ino, decided.generation).0,
            decided.area.into(),
            decided.slots,
            decided.reads,
            decided.average_reads,
            decided.rounds_since_renamed,
        ];
        for (word, value) in (0..).zip(words) {
            self.set_status_word(at + word * 8, value);
        }
        self.set_status_word(DECISIONS, number + 1);
    }

    /// The decisions that are kept, the oldest first.
    pub(super) fn kept_decisions(&self) -> Vec<Decided> {
        let end = self.status_word(DECISIONS);
        let first = end.saturating_sub(DECISIONS_KEPT);
        let decided = (first..end).map(|number| {
            let at = HEAD_BYTES + number % DECISIONS_KEPT * DECISION_BYTES;
            let [
                head,
                key,
                area,
                slots,
                reads,
                average_reads,
                rounds_since_renamed,
            ] = [0, 8, 16, 24, 32, 40, 48].map(|word| self.status_word(at + word));
            Decided {
                round: head >> 16,
                what: Evolution::ALL[(head >> 8 & 0xFF) as usize % Evolution::ALL.len()],
                outcome: Outcome::ALL[(head & 0xFF) as usize % Outcome::ALL.len()],
                ino: DirKey(key).ino(),
                generation: DirKey(key).generation(),
                area: area as u32,
                slots,
                reads,
                average_reads,
                rounds_since_renamed,
            }
        });
        decided.collect()
    }
}
