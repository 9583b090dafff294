//! Usage and limits of users, groups and projects: a hash table in the arena
//! ([0020](../../../../docs/decisions/0020-usage-is-counted-in-the-arena-only.md)).
//!
//! A record is two lines: usage, which changes with every charge, and limits. Records are found by
//! linear probing, claimed by a swap of their key, and never removed while quotas are on. A charge
//! adds to each of the three owners by compare-and-swap, and only if the sum keeps the limits; if
//! one refuses, the others are given back.
//!
//! While quotas are off, no charge gets here: [`Core::has_quotas`] is one word in the line of the
//! epoch, which every operation has loaded.

use std::sync::atomic::Ordering;

use vellum_layout::{BLOCK_BYTES, FileKind, Geometry, Inode, OwnerWord, QuotaKind, QuotaRecord};
use vellum_media::{Memories, Memory, mix};

use crate::core::cachelet::Cachelet;
use crate::core::slots::pause;
use crate::core::{Core, header};
use crate::error::{Error, Result};

/// Most ids with files or limits.
const RECORDS_MAX: u64 = 1 << 16;
/// Records of a small pool.
const RECORDS_MIN: u64 = 1024;
/// Bytes of a record.
const RECORD_BYTES: u64 = 128;
/// Bytes before the records: those of the kinds, and the number of ids.
const HEAD_BYTES: u64 = 4 * RECORD_BYTES;

/// Word offsets in a record.
mod field {
    /// Kind plus 1 (from bit 32 on) and id; 0: free.
    pub(super) const KEY: u64 = 0;
    /// Blocks in use.
    pub(super) const BLOCKS: u64 = 8;
    /// Inodes in use.
    pub(super) const INODES: u64 = 16;
    /// Odd while limits are being set; each change raises it.
    pub(super) const VERSION: u64 = 24;
    /// The words of a `QuotaRecord`, in its order.
    pub(super) const LIMITS: u64 = 64;
}

/// Number of words of a `QuotaRecord`.
const LIMIT_WORDS: u64 = size_of::<QuotaRecord>() as u64 / 8;

/// Bytes of the table in the arena.
pub(crate) fn arena_bytes(geometry: &Geometry) -> u64 {
    HEAD_BYTES + records(geometry) * RECORD_BYTES
}

/// Records in the table, a power of two. An inode and its name take two slots.
fn records(geometry: &Geometry) -> u64 {
    let most = geometry.region_slots().next_power_of_two();
    most.clamp(RECORDS_MIN, RECORDS_MAX)
}

/// The three owners of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owners {
    pub(crate) owner: OwnerWord,
    pub(crate) project: u32,
}

impl Owners {
    /// The owners of an inode.
    pub(crate) fn of(inode: &Inode) -> Self {
        Self {
            owner: OwnerWord(inode.owner),
            project: inode.project,
        }
    }

    /// The id of a kind.
    fn id(&self, kind: QuotaKind) -> u32 {
        match kind {
            QuotaKind::User => self.owner.uid(),
            QuotaKind::Group => self.owner.gid(),
            QuotaKind::Project => self.project,
        }
    }
}

/// What a file takes, or a change of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) blocks: u64,
    pub(crate) inodes: u64,
}

impl Space {
    /// What a new inode takes: a directory has a block from the start, as `stat` shows it.
    pub(crate) fn of_new(kind: FileKind) -> Self {
        Self {
            blocks: u64::from(kind == FileKind::Directory),
            inodes: 1,
        }
    }
}

/// What a table says about an id.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    pub(crate) used: Space,
    /// The record on the media: limits of the id's own, or none.
    pub(crate) record: QuotaRecord,
}

/// A thing that is counted: blocks or inodes.
#[derive(Clone, Copy)]
enum Counted {
    Blocks,
    Inodes,
}

impl Counted {
    const BOTH: [Self; 2] = [Self::Blocks, Self::Inodes];

    fn field(self) -> u64 {
        match self {
            Self::Blocks => field::BLOCKS,
            Self::Inodes => field::INODES,
        }
    }

    /// Offset of the deadline of the soft limit.
    fn until(self) -> u64 {
        let at = match self {
            Self::Blocks => std::mem::offset_of!(QuotaRecord, bytes_until),
            Self::Inodes => std::mem::offset_of!(QuotaRecord, inodes_until),
        };
        field::LIMITS + at as u64
    }

    fn of(self, space: Space) -> u64 {
        match self {
            Self::Blocks => space.blocks,
            Self::Inodes => space.inodes,
        }
    }

    /// Hard and soft limit, in what is counted; `None` means no limit.
    fn limits(self, record: &QuotaRecord) -> [Option<u64>; 2] {
        let (limits, unit) = match self {
            Self::Blocks => ([record.hard_bytes, record.soft_bytes], BLOCK_BYTES),
            Self::Inodes => ([record.hard_inodes, record.soft_inodes], 1),
        };
        limits.map(|limit| (limit != 0).then_some(limit / unit))
    }
}

impl<M: Memories> Core<M> {
    /// Whether quotas are on. Inside an operation that changes something, the answer holds until it
    /// ends, if it is yes: turning them on waits for such operations.
    #[inline(always)]
    pub(crate) fn has_quotas(&self) -> bool {
        self.arena.load(header::QUOTAS, Ordering::Relaxed) != 0
    }

    /// Turns counting on or off.
    pub(crate) fn count_quotas(&self, is_on: bool) {
        self.arena
            .store(header::QUOTAS, is_on.into(), Ordering::SeqCst);
    }

    /// Whether deadlines have changed since the last call.
    pub(crate) fn take_changed_deadlines(&self) -> bool {
        let at = header::QUOTA_DEADLINES;
        self.arena.load(at, Ordering::Relaxed) != 0 && self.arena.fetch_and(at, 0) != 0
    }

    /// Deadlines are to be written again.
    pub(crate) fn note_deadlines(&self) {
        self.arena
            .store(header::QUOTA_DEADLINES, 1, Ordering::Relaxed);
    }

    /// The owners of a file. The caller holds its lock, or nobody else has it.
    pub(crate) fn owners(&self, file: Cachelet) -> Owners {
        Owners {
            owner: self.owner(file),
            project: self.word(self.inode_at(file) + Inode::PROJECT) as u32,
        }
    }

    /// Counts `space` for its owners. With `bound`, only if all of them keep their limits, else
    /// nothing changes.
    ///
    /// Ids for which there is no record are not counted: no record is freed before the next
    /// opening, so that is so for good.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`].
    #[cold]
    #[inline(never)]
    pub(crate) fn charge(&self, owners: Owners, space: Space, bound: bool) -> Result<()> {
        self.charge_some(owners, &QuotaKind::ALL, space, bound)
    }

    fn charge_some(
        &self,
        owners: Owners,
        kinds: &[QuotaKind],
        space: Space,
        bound: bool,
    ) -> Result<()> {
        for (done, &kind) in kinds.iter().enumerate() {
            let Some(at) = self.quota_record(kind, owners.id(kind), true) else {
                continue;
            };
            if let Err(error) = self.add_space(at, kind, space, bound) {
                self.discharge_some(owners, &kinds[..done], space);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Counts `space` for its owners no longer.
    #[cold]
    #[inline(never)]
    pub(crate) fn discharge(&self, owners: Owners, space: Space) {
        self.discharge_some(owners, &QuotaKind::ALL, space);
    }

    fn discharge_some(&self, owners: Owners, kinds: &[QuotaKind], space: Space) {
        for &kind in kinds {
            if let Some(at) = self.quota_record(kind, owners.id(kind), false) {
                self.take_space(at, kind, space);
            }
        }
    }

    /// Moves `space` to other owners. Those that stay are not asked.
    ///
    /// # Errors
    /// As [`Self::charge`].
    #[cold]
    #[inline(never)]
    pub(crate) fn recharge(
        &self,
        [old, new]: [Owners; 2],
        space: Space,
        bound: bool,
    ) -> Result<()> {
        let mut kinds = QuotaKind::ALL.to_vec();
        kinds.retain(|&kind| old.id(kind) != new.id(kind));
        self.charge_some(new, &kinds, space, bound)?;
        self.discharge_some(old, &kinds, space);
        Ok(())
    }

    /// Adds to a record.
    fn add_space(&self, at: u64, kind: QuotaKind, space: Space, bound: bool) -> Result<()> {
        self.add_counted((at, kind), Counted::Blocks, space, bound)?;
        let added = self.add_counted((at, kind), Counted::Inodes, space, bound);
        if added.is_err() {
            let blocks = Space { inodes: 0, ..space };
            self.take_space(at, kind, blocks);
        }
        added
    }

    fn add_counted(
        &self,
        (at, kind): (u64, QuotaKind),
        counted: Counted,
        space: Space,
        bound: bool,
    ) -> Result<()> {
        let more = counted.of(space);
        if more == 0 {
            return Ok(());
        }
        let [hard, soft] = counted.limits(&self.limits_of(at, kind));
        let mut used = self.quota_word(at + counted.field());
        loop {
            let new = used.saturating_add(more);
            let until = self.quota_word(at + counted.until()) as i64;
            let is_over = soft.is_some_and(|soft| new > soft);
            let is_late = is_over && until != 0 && self.clock.now() >= until;
            if bound && (is_late || hard.is_some_and(|hard| new > hard)) {
                return Err(Error::QuotaExceeded);
            }
            match self.arena.compare_exchange(at + counted.field(), used, new) {
                Ok(_) => break,
                Err(now) => used = now,
            }
        }
        self.settle_grace(at, kind, counted);
        Ok(())
    }

    /// Begins or ends the grace period of a soft limit, as usage and limits demand. Whoever changes
    /// one of these calls this afterwards, so of two threads the last one finds what both did.
    fn settle_grace(&self, at: u64, kind: QuotaKind, counted: Counted) {
        loop {
            let limits = self.limits_of(at, kind);
            let [_, soft] = counted.limits(&limits);
            let grace = match counted {
                Counted::Blocks => limits.bytes_until,
                Counted::Inodes => limits.inodes_until,
            };
            let until = self.quota_word(at + counted.until());
            let used = self.quota_word(at + counted.field());
            let wanted = match soft.is_some_and(|soft| used > soft) {
                false => 0,
                true if until != 0 => until,
                true => self.clock.now().saturating_add(grace).max(1) as u64,
            };
            if wanted == until {
                return;
            }
            let place = at + counted.until();
            if self.arena.compare_exchange(place, until, wanted).is_ok() {
                self.note_deadlines();
            }
        }
    }

    /// Subtracts from a record.
    fn take_space(&self, at: u64, kind: QuotaKind, space: Space) {
        for counted in Counted::BOTH {
            let (place, less) = (at + counted.field(), counted.of(space));
            let mut used = self.quota_word(place);
            // Never below zero: a wrong count must not become a huge one.
            while let Err(now) = self
                .arena
                .compare_exchange(place, used, used.saturating_sub(less))
            {
                used = now;
            }
            self.settle_grace(at, kind, counted);
        }
    }

    /// The limits that hold for a record, with grace periods in the place of deadlines.
    fn limits_of(&self, at: u64, kind: QuotaKind) -> QuotaRecord {
        let of_kind = self.limits_at(self.kind_at(kind));
        let own = self.limits_at(at);
        let has_none = self.quota_word(at + field::KEY) as u32 == 0;
        let limits = match own.flags & QuotaRecord::OWN != 0 {
            true => own,
            false if has_none => QuotaRecord::default(),
            false => of_kind,
        };
        QuotaRecord {
            bytes_until: of_kind.bytes_until,
            inodes_until: of_kind.inodes_until,
            ..limits
        }
    }

    /// The limits in a record: all old or all new ones, if they are being set.
    fn limits_at(&self, at: u64) -> QuotaRecord {
        let mut tries = 0;
        loop {
            let version = self.quota_word(at + field::VERSION);
            let mut words = [0u64; LIMIT_WORDS as usize];
            for (word, index) in words.iter_mut().zip(0..) {
                *word = self.quota_word(at + field::LIMITS + index * 8);
            }
            if version.is_multiple_of(2) && version == self.quota_word(at + field::VERSION) {
                return zerocopy::transmute!(words);
            }
            pause(&self.arena, &mut tries);
        }
    }

    fn quota_word(&self, at: u64) -> u64 {
        self.arena.load(at, Ordering::SeqCst)
    }

    fn set_quota_word(&self, at: u64, value: u64) {
        self.arena.store(at, value, Ordering::Release);
    }

    /// The record of a kind.
    fn kind_at(&self, kind: QuotaKind) -> u64 {
        self.map.quotas + (1 + kind as u64) * RECORD_BYTES
    }

    /// The record of an id; claims one if `makes`. `None`: there is none, or too many ids have one.
    fn quota_record(&self, kind: QuotaKind, id: u32, makes: bool) -> Option<u64> {
        let key = (kind as u64 + 1) << 32 | u64::from(id);
        let count = records(&self.geometry);
        let first = mix(key);
        for step in 0..count {
            let at = self.numbered(first.wrapping_add(step) % count);
            let mut found = self.quota_word(at + field::KEY);
            if found == 0 && makes {
                let claimed = self.arena.compare_exchange(at + field::KEY, 0, key);
                found = claimed.map_or_else(|now| now, |_| key);
            }
            match found {
                0 => break,
                _ if found == key => return Some(at),
                _ => {}
            }
        }
        None
    }

    fn numbered(&self, number: u64) -> u64 {
        self.map.quotas + HEAD_BYTES + number * RECORD_BYTES
    }

    /// What is known about an id.
    pub(crate) fn quota_of(&self, kind: QuotaKind, id: u32) -> Known {
        let at = self.quota_record(kind, id, false);
        at.map_or_else(Known::default, |at| self.known_at(at))
    }

    fn known_at(&self, at: u64) -> Known {
        Known {
            used: Space {
                blocks: self.quota_word(at + field::BLOCKS),
                inodes: self.quota_word(at + field::INODES),
            },
            record: self.limits_at(at),
        }
    }

    /// All ids that have files or limits, or had any since quotas are on, in no order.
    pub(crate) fn all_quotas(&self) -> Vec<(QuotaKind, u32, Known)> {
        let numbers = 0..records(&self.geometry);
        let found = numbers.filter_map(|number| {
            let at = self.numbered(number);
            let key = self.quota_word(at + field::KEY);
            let kind = QuotaKind::ALL.get((key >> 32).checked_sub(1)? as usize)?;
            Some((*kind, key as u32, self.known_at(at)))
        });
        found.collect()
    }

    /// The limits of all ids of a kind that have none of their own, and its grace periods.
    pub(crate) fn quota_of_kind(&self, kind: QuotaKind) -> QuotaRecord {
        self.limits_at(self.kind_at(kind))
    }

    /// Sets the record of an id, or of a kind. Usage stays; [`Self::settle_graces`] begins or ends
    /// grace periods by it. The caller holds the root directory's lock, or has the pool alone.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if too many ids have a record.
    pub(crate) fn set_quota_record(
        &self,
        kind: QuotaKind,
        id: Option<u32>,
        record: QuotaRecord,
    ) -> Result<()> {
        let at = match id {
            Some(id) => self.quota_record(kind, id, true),
            None => Some(self.kind_at(kind)),
        };
        let at = at.ok_or(Error::OutOfMemory("records of quotas"))?;
        self.arena.fetch_add(at + field::VERSION, 1);
        let words: [u64; LIMIT_WORDS as usize] = zerocopy::transmute!(record);
        for (word, index) in words.into_iter().zip(0..) {
            self.set_quota_word(at + field::LIMITS + index * 8, word);
        }
        self.arena.fetch_add(at + field::VERSION, 1);
        Ok(())
    }

    /// Begins and ends grace periods as usage and limits demand: of an id, or of all ids without
    /// limits of their own.
    pub(crate) fn settle_graces(&self, kind: QuotaKind, id: Option<u32>) {
        let settle = |at| Counted::BOTH.map(|counted| self.settle_grace(at, kind, counted));
        match id {
            Some(id) => drop(self.quota_record(kind, id, false).map(settle)),
            None => {
                let all = self.all_quotas().into_iter();
                let without = |known: &Known| known.record.flags & QuotaRecord::OWN == 0;
                for (_, id, _) in all.filter(|(of, _, known)| *of == kind && without(known)) {
                    self.settle_graces(kind, Some(id));
                }
            }
        }
    }

    /// Forgets all usage. Nobody counts meanwhile.
    pub(crate) fn clear_usage(&self) {
        for number in 0..records(&self.geometry) {
            let at = self.numbered(number);
            if self.quota_word(at + field::KEY) != 0 {
                self.set_quota_word(at + field::BLOCKS, 0);
                self.set_quota_word(at + field::INODES, 0);
            }
        }
    }
}
