//! The locks of one file: finding, setting, splitting and merging them.

use smallvec::SmallVec;
use vellum_media::Memories;

use super::table::{Class, FileId, Record, Table, TableLock, bucket, free, word};
use super::{LockKind, LockRange};
use crate::core::cachelet::{Cachelet, flag};
use crate::error::{Error, Result};

/// The records of a file, while its bucket is locked.
pub(super) struct Chain<'t, 'a, M: Memories> {
    table: &'t Table<'a, M>,
    bucket_at: u64,
    file: FileId,
    /// `None`: another chain of the bucket holds it.
    _lock: Option<TableLock<'a, M>>,
}

/// A record of the chain.
#[derive(Clone, Copy)]
pub(super) struct Found {
    /// The arena offset of the word that leads to it.
    link: u64,
    pub(super) index: u32,
    pub(super) record: Record,
}

/// What a change of an owner's locks does to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stays,
    /// It becomes part of the new lock.
    Merges,
    Goes,
    /// It keeps its bytes before the change, behind it, or both.
    Shrinks {
        before: bool,
        behind: bool,
    },
}

/// Records that a change allocated or freed, and has not used.
type Spare = SmallVec<[u32; 4]>;

impl<'a, M: Memories> Table<'a, M> {
    /// Locks the records of a file.
    pub(super) fn chain(&self, file: FileId) -> Chain<'_, 'a, M> {
        let bucket_at = self.bucket_at(file);
        Chain {
            table: self,
            bucket_at,
            file,
            _lock: Some(self.lock(bucket_at + bucket::LOCK)),
        }
    }

    /// Changes the locks of a file, and gives what that releases to waiting requests.
    pub(super) fn change<T>(&self, file: FileId, change: impl FnOnce(&Chain<'_, 'a, M>) -> T) -> T {
        let chain = self.chain(file);
        if !chain.is_awaited() {
            return change(&chain);
        }
        drop(chain);
        let _waits = self.lock_waits();
        let chain = self.chain(file);
        let changed = change(&chain);
        chain.grant();
        changed
    }
}

impl<'a, M: Memories> Chain<'_, 'a, M> {
    /// The records of another file, if it shares the bucket.
    pub(super) fn beside(&self, file: FileId) -> Option<Chain<'_, 'a, M>> {
        (self.table.bucket_at(file) == self.bucket_at).then_some(Chain {
            table: self.table,
            bucket_at: self.bucket_at,
            file,
            _lock: None,
        })
    }

    fn start(&self) -> u64 {
        self.bucket_at + bucket::FIRST
    }

    fn after(&self, index: u32) -> u64 {
        self.table.record_at(index) + word::NEXT
    }

    /// The file's next record, from the link on.
    fn next(&self, mut link: u64) -> Option<Found> {
        loop {
            let index = self.table.load(link) as u32;
            if index == 0 {
                return None;
            }
            let record = self.table.record(index);
            if record.file == self.file {
                return Some(Found {
                    link,
                    index,
                    record,
                });
            }
            link = self.after(index);
        }
    }

    /// The file's records in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Found> + '_ {
        let first = self.next(self.start());
        std::iter::successors(first, |found| self.next(self.after(found.index)))
    }

    /// The link behind all records of the bucket.
    fn end(&self) -> u64 {
        let mut link = self.start();
        while let index @ 1.. = self.table.load(link) as u32 {
            link = self.after(index);
        }
        link
    }

    fn insert(&self, link: u64, index: u32, record: &Record) {
        self.table.set_record(index, record);
        self.table.store(self.after(index), self.table.load(link));
        self.table.store(link, index.into());
    }

    pub(super) fn append(&self, index: u32, record: &Record) {
        self.insert(self.end(), index, record);
    }

    pub(super) fn unlink(&self, found: &Found) {
        let next = self.table.load(self.after(found.index));
        self.table.store(found.link, next);
    }

    fn remove(&self, found: &Found) {
        self.unlink(found);
        free(self.table.core, found.index);
    }

    /// Whether a request waits for a lock of this file.
    pub(super) fn is_awaited(&self) -> bool {
        self.iter().any(|found| found.record.is_waiting)
    }

    /// The held locks that exclude a request, in the kernel's order.
    pub(super) fn conflicts(&self, request: &Record) -> impl Iterator<Item = Record> + '_ {
        let request = *request;
        let records = self.iter().map(|found| found.record);
        records.filter(move |held| request.conflicts(held))
    }

    fn is_free_for(&self, request: &Record) -> bool {
        self.conflicts(request).next().is_none()
    }

    /// The held locks of the request's owner.
    fn own(&self, request: &Record) -> impl Iterator<Item = Found> + '_ {
        let request = *request;
        self.iter()
            .filter(move |found| is_own(&found.record, &request))
    }

    /// Gives the requested lock, if nobody is in the way.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]: an owner that wanted to convert its lock of the whole file has none
    /// then, as in the kernel. [`Error::NoLocks`]: nothing has changed.
    pub(super) fn acquire(&self, request: &Record) -> Result<()> {
        if self.is_free_for(request) {
            return self.give(request);
        }
        if request.class == Class::Whole {
            let lost = self.own(request).next();
            lost.iter().for_each(|lost| self.remove(lost));
        }
        Err(Error::WouldBlock)
    }

    /// Gives a lock that nobody excludes.
    fn give(&self, request: &Record) -> Result<()> {
        match request.class {
            Class::Range => self.set_range(request, Some(request.kind)),
            Class::Whole => match self.own(request).next() {
                Some(own) => {
                    self.table.set_record(own.index, request);
                    Ok(())
                }
                None => {
                    let index = self.table.allocate().ok_or(Error::NoLocks)?;
                    self.append(index, request);
                    Ok(())
                }
            },
        }
    }

    /// Makes the owner's locks of the request's bytes `to`, or releases them.
    ///
    /// The locks of an owner stay together, sorted, and as few as possible. They keep their place
    /// among those of other owners: which of several locks is found first depends on it.
    ///
    /// # Errors
    /// [`Error::NoLocks`]: nothing has changed.
    pub(super) fn set_range(&self, request: &Record, to: Option<LockKind>) -> Result<()> {
        let mut spare = self.spare_for(request, to)?;
        let mut range = request.range;
        let mut place = None;
        let mut link = self.start();
        while let Some(found) = self.next(link) {
            link = self.after(found.index);
            if !is_own(&found.record, request) {
                continue;
            }
            place.get_or_insert(found.link);
            let held = found.record.range;
            match fate(&found.record, request, to) {
                Fate::Stays => continue,
                Fate::Shrinks { before, behind } => {
                    self.shrink(&found, request.range, (before, behind), &mut spare);
                    continue;
                }
                Fate::Merges => {
                    range.first = range.first.min(held.first);
                    range.last = range.last.max(held.last);
                }
                Fate::Goes => {}
            }
            self.unlink(&found);
            spare.push(found.index);
            link = found.link;
        }
        if let Some(kind) = to
            && let Some(index) = spare.pop()
        {
            let new = Record {
                kind,
                range,
                cancel: 0,
                is_waiting: false,
                ..*request
            };
            self.insert(self.place_for(&new, place), index, &new);
        }
        for index in spare {
            free(self.table.core, index);
        }
        Ok(())
    }

    /// Removes `range` from a lock that keeps bytes on one side or on both.
    fn shrink(
        &self,
        found: &Found,
        range: LockRange,
        (before, behind): (bool, bool),
        spare: &mut Spare,
    ) {
        let (mut first, mut second) = (found.record, found.record);
        first.range.last = range.first.wrapping_sub(1);
        second.range.first = range.last + 1;
        match (before, behind) {
            (true, true) => {
                self.table.set_record(found.index, &first);
                if let Some(index) = spare.pop() {
                    self.insert(self.after(found.index), index, &second);
                }
            }
            (true, false) => self.table.set_record(found.index, &first),
            _ => self.table.set_record(found.index, &second),
        }
    }

    /// Allocates the records that a change needs beyond those that it frees.
    fn spare_for(&self, request: &Record, to: Option<LockKind>) -> Result<Spare> {
        let mut lacks = i32::from(to.is_some());
        for own in self.own(request) {
            match fate(&own.record, request, to) {
                Fate::Merges | Fate::Goes => lacks -= 1,
                Fate::Shrinks {
                    before: true,
                    behind: true,
                } => lacks += 1,
                _ => {}
            }
        }
        let mut spare = Spare::new();
        for _ in 0..lacks {
            match self.table.allocate() {
                Some(index) => spare.push(index),
                None => {
                    spare
                        .drain(..)
                        .for_each(|index| free(self.table.core, index));
                    return Err(Error::NoLocks);
                }
            }
        }
        Ok(spare)
    }

    /// The link at which a new lock is inserted: sorted among its owner's, else at `place`, where
    /// these were, else at the end.
    fn place_for(&self, new: &Record, place: Option<u64>) -> u64 {
        let mut last = None;
        for own in self.own(new) {
            if own.record.range.first > new.range.first {
                return own.link;
            }
            last = Some(self.after(own.index));
        }
        last.or(place).unwrap_or_else(|| self.end())
    }

    /// Removes the held locks that `goes` names. If the file has no more, clears its flag.
    pub(super) fn release(&self, file: Cachelet, goes: impl Fn(&Record) -> bool) {
        let mut link = self.start();
        while let Some(found) = self.next(link) {
            if !found.record.is_waiting && goes(&found.record) {
                self.remove(&found);
            } else {
                link = self.after(found.index);
            }
        }
        if self.next(self.start()).is_none() {
            self.table.core.clear_flag(file, flag::LOCKED);
        }
    }

    /// Gives waiting requests of this file all that nobody excludes, in the order in which they
    /// came. The caller holds the lock of waits.
    pub(super) fn grant(&self) {
        let mut link = self.start();
        while let Some(found) = self.next(link) {
            if !found.record.is_waiting || !self.is_free_for(&found.record) {
                link = self.after(found.index);
                continue;
            }
            self.unlink(&found);
            let given = self.give(&Record {
                is_waiting: false,
                cancel: 0,
                ..found.record
            });
            self.table.end_wait(found.index, given.is_ok().into());
            // It may have released other bytes: earlier requests come first.
            link = self.start();
        }
    }
}

fn is_own(held: &Record, request: &Record) -> bool {
    !held.is_waiting && held.class == request.class && held.owner == request.owner
}

fn fate(held: &Record, request: &Record, to: Option<LockKind>) -> Fate {
    if to == Some(held.kind) {
        return match held.range.touches(&request.range) {
            true => Fate::Merges,
            false => Fate::Stays,
        };
    }
    if !held.range.overlaps(&request.range) {
        return Fate::Stays;
    }
    let before = held.range.first < request.range.first;
    let behind = held.range.last > request.range.last;
    match before || behind {
        true => Fate::Shrinks { before, behind },
        false => Fate::Goes,
    }
}
