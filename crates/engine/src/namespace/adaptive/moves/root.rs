//! Directories that become roots of areas of their own (split), and roots that are none any more (merge).

use vellum_layout::{DirPlace, Formed, Inode, ROOT_SLOT};
use vellum_media::Memories;

use super::{Below, Move};
use crate::cachelet::{Cachelet, flag};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::journal::Record;
use crate::namespace::adaptive::Adaptive;
use crate::namespace::adaptive::entry::{Home, PathBuffer};
use crate::namespace::adaptive::table::Taken;
use crate::namespace::adaptive::tables::Tables;
use crate::namespace::indexed::Name;
use crate::namespace::indexed::index::{Index, Pair, ValueWord};
use crate::slots::{Op, pause};

/// A directory, its own entry as it was found, and what is to become of it.
struct Change {
    dir: Cachelet,
    place: DirPlace,
    /// The area that it gets; none: it loses its own.
    taken: Option<Taken>,
}

/// See [`crate::namespace::Namespace::set_root`]. `formed`: what the area of a root is formed by; none: it is to be no root.
///
/// # Errors
/// [`Error::First`]: it gives way, and somebody waits for the background's lease.
pub(in crate::namespace::adaptive) fn set_root<M: Memories>(
    core: &Core<M>,
    dir: Cachelet,
    formed: Option<Formed>,
    gives_way: bool,
) -> Result<bool> {
    let ino = core.ino(dir);
    let mut tries = 0;
    loop {
        let place = core.place_of_directory(ino);
        if (place.area() != 0) == formed.is_some() {
            return Ok(false);
        }
        if ino == ROOT_SLOT {
            return Err(Error::Invalid("the root directory is an area's root"));
        }
        if core.has_flag(dir, flag::UNLINKED) {
            return Err(Error::NotFound);
        }
        let mut moving = Move::begin(core);
        moving.gives_way = gives_way;
        if moving.set_root(dir, place, formed)? {
            return Ok(true);
        }
        // It was renamed meanwhile.
        pause(&core.arena, &mut tries);
    }
}

impl<M: Memories> Move<'_, M> {
    /// Gives whether the directory's own entry stayed where it was.
    fn set_root(mut self, dir: Cachelet, place: DirPlace, formed: Option<Formed>) -> Result<bool> {
        let core = self.core;
        let (home, taken) = if let Some(formed) = formed {
            let op = core.op_to_change()?;
            let taken = op.take_line(formed)?;
            self.table_block = taken.block;
            (Home::of_root(core, taken.area), Some(taken))
        } else {
            let mut buffer = PathBuffer::default();
            let own = core.load_sealed(place.entry(), &mut buffer)?;
            let area = core.area_life(own.area).ok_or(Error::Stale)?;
            (Home::below(core, area, buffer.path()), None)
        };
        self.copy_below(vec![Below { dir, home }])?;
        let list = self.write_list()?;
        let change = Change { dir, place, taken };
        let op = core.op_to_change()?;
        let merged = if formed.is_some() { 0 } else { place.area() };
        let is_done = op.commit_root(&change, list.map(|list| (core.moving_at(), list)))?;
        drop(op);
        if is_done {
            self.committed(list);
            // No names are of an area that was merged any more.
            core.wait_for_readers();
            core.free_table(merged);
        }
        Ok(is_done)
    }
}

impl<M: Memories> Op<'_, M> {
    /// Commits a change, with a word that is to be stored along; `false`: the directory has another own entry now. Lookups of its name wait
    /// meanwhile, and so do others that rename or remove it.
    fn commit_root(&self, change: &Change, store: Option<(u64, u64)>) -> Result<bool> {
        let core = self.core;
        let Some(pair) = self.hold_name(change)? else {
            return Ok(false);
        };
        let ino = core.ino(change.dir);
        let mut record = Record::new();
        let area = match &change.taken {
            Some(taken) => {
                let generation = core.identity(change.dir).generation();
                core.record_area(&mut record, taken, (ino, generation));
                taken.area.number
            }
            None => {
                if let Some(at) = core.area_word_at(change.place.area()) {
                    record.store(at, 0);
                }
                0
            }
        };
        let place = DirPlace::new(change.place.entry(), area);
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

    /// Flags the directory's name, if it is still that of the entry that was found.
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
