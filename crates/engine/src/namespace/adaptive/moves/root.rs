//! Makes directories roots of areas of their own (split), or roots no longer (merge).

use vellum_layout::{DirLocation, Formed, Inode, MergeReason, Merged, ROOT_SLOT};
use vellum_media::Memories;

use super::{Below, Move};
use crate::core::Core;
use crate::core::cachelet::{Cachelet, flag};
use crate::core::slots::{Op, pause};
use crate::durability::journal::Record;
use crate::error::{Error, Result};
use crate::namespace::adaptive::Adaptive;
use crate::namespace::adaptive::entry::{Home, PathBuffer};
use crate::namespace::adaptive::table::Taken;
use crate::namespace::adaptive::tables::Tables;
use crate::namespace::indexed::Name;
use crate::namespace::indexed::index::{Index, Pair, ValueWord};

/// The intended change of a directory.
#[derive(Clone, Copy)]
pub(in crate::namespace::adaptive) enum Becomes {
    /// Make it the root of an area that is formed by this.
    Root(Formed),
    /// Make it a root no longer. Contains what the line of its area will record; the area that its
    /// names go to is filled in later.
    Part(Merged),
}

impl Becomes {
    /// A merge for this reason, by these numbers, compared with this average.
    pub(in crate::namespace::adaptive) fn part(
        reason: MergeReason,
        at: Formed,
        average_reads: u64,
    ) -> Self {
        Self::Part(Merged {
            into: 0,
            reason,
            at,
            average_reads: average_reads.try_into().unwrap_or(u32::MAX),
        })
    }
}

/// A directory, its location as it was found, and the intended change.
struct Change {
    dir: Cachelet,
    place: DirLocation,
    to: Area,
}

/// The area that a directory gets, or the record of the one that it loses.
enum Area {
    Taken(Taken),
    Merged(Merged),
}

/// See [`crate::namespace::Namespace::set_root`].
///
/// # Errors
/// [`Error::Retry`]: `gives_way` is set, and somebody waits for the background's lease.
pub(in crate::namespace::adaptive) fn set_root<M: Memories>(
    core: &Core<M>,
    dir: Cachelet,
    becomes: Becomes,
    gives_way: bool,
) -> Result<bool> {
    let ino = core.ino(dir);
    let mut tries = 0;
    loop {
        let place = core.place_of_directory(ino);
        if (place.area() != 0) == matches!(becomes, Becomes::Root(_)) {
            return Ok(false);
        }
        if ino == ROOT_SLOT {
            return Err(Error::Invalid(
                "the root directory is always the root of an area",
            ));
        }
        if core.has_flag(dir, flag::UNLINKED) {
            return Err(Error::NotFound);
        }
        let mut moving = Move::begin(core);
        moving.gives_way = gives_way;
        if moving.set_root(dir, place, becomes)? {
            return Ok(true);
        }
        // The directory was renamed meanwhile.
        pause(&core.arena, &mut tries);
    }
}

impl<M: Memories> Move<'_, M> {
    /// Returns `false` if the directory's own entry changed meanwhile.
    fn set_root(mut self, dir: Cachelet, place: DirLocation, becomes: Becomes) -> Result<bool> {
        let core = self.core;
        let (home, to) = match becomes {
            Becomes::Root(formed) => {
                let op = core.op_to_change()?;
                let taken = op.take_line(formed)?;
                self.table_block = taken.block;
                (Home::of_root(taken.area), Area::Taken(taken))
            }
            Becomes::Part(merged) => {
                let mut buffer = PathBuffer::default();
                let own = core.load_sealed(place.entry(), &mut buffer)?;
                let area = core.area_life(own.area).ok_or(Error::Stale)?;
                let into = area.number;
                let home = Home::below(area, buffer.path());
                (home, Area::Merged(Merged { into, ..merged }))
            }
        };
        self.copy_below(vec![Below { dir, home }])?;
        let list = self.write_list()?;
        let change = Change { dir, place, to };
        let op = core.op_to_change()?;
        let is_done = op.commit_root(&change, list.map(|list| (core.moving_at(), list)))?;
        drop(op);
        if is_done {
            self.committed(list);
            // No names are in the merged area any more.
            core.wait_for_readers();
            core.free_table(place.area());
        }
        Ok(is_done)
    }
}

impl<M: Memories> Op<'_, M> {
    /// Commits a change, together with the store of a further word. Returns `false` if the
    /// directory has another entry of its own by now. Meanwhile lookups of its name wait, and so do
    /// renames and removals of it.
    fn commit_root(&self, change: &Change, store: Option<(u64, u64)>) -> Result<bool> {
        let core = self.core;
        let Some(pair) = self.hold_name(change)? else {
            return Ok(false);
        };
        let ino = core.ino(change.dir);
        let mut record = Record::new();
        let area = match &change.to {
            Area::Taken(taken) => {
                let generation = core.identity(change.dir).generation();
                core.record_area(&mut record, taken, (ino, generation));
                taken.area.number
            }
            Area::Merged(merged) => {
                core.record_merged(&mut record, change.place.area(), merged);
                0
            }
        };
        let place = DirLocation::new(change.place.entry(), area);
        record.store(core.inode_at(change.dir) + Inode::DETAIL, place.0);
        if let Some((at, value)) = store {
            record.store(at, value);
        }
        self.journal_commit(&record);
        self.journal_apply(&record);
        self.journal_retire();
        Tables::release(core, pair, pair.value.without(ValueWord::RENAMING));
        Ok(true)
    }

    /// Flags the directory's name, if the entry that was found still has it.
    fn hold_name(&self, change: &Change) -> Result<Option<Pair>> {
        let core = self.core;
        let mut buffer = PathBuffer::default();
        let own = core.load_sealed(change.place.entry(), &mut buffer)?;
        let parent = core.load_cachelet(self, own.parent)?;
        let name = Name::new(core, own.name(buffer.path()))?;
        let mut tries = 0;
        while let Some((pair, file)) = self.find_target::<Adaptive>(parent, name)? {
            if file != change.dir || pair.entry.entry() != change.place.entry() {
                return Ok(None);
            }
            let is_busy = pair.value.has(ValueWord::DELETING | ValueWord::RENAMING);
            let flag = || Tables::update(core, pair, pair.value.with(ValueWord::RENAMING));
            if let Some(flagged) = (!is_busy).then(flag).flatten() {
                return Ok(Some(flagged));
            }
            pause(&core.arena, &mut tries);
        }
        Ok(None)
    }
}
