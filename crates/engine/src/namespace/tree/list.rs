//! Lists a directory: reads its log in order, and returns the names that are in the tree. So
//! cookies ascend, and every name that exists throughout is returned once.
//!
//! Copying the log during a listing does no harm: what the listing reads stays until it ends, and
//! leads on to blocks that were not copied.

use vellum_layout::{LogOwner, LogPosition, NameRecord, RecordKind, Recorded, TargetWord};
use vellum_media::Memories;

use super::log::{Block, runs_in_a_circle};
use super::{Name, Tree};
use crate::core::Core;
use crate::core::cachelet::{Cachelet, field};
use crate::core::slots::{Op, pause};
use crate::error::{Error, Location, Result};
use crate::namespace::{FIRST_COOKIE, ListEntry, ListHint, ListRange};

/// The point at which reading a block ended.
enum End {
    /// After its last record, or at the tail.
    OfBlock,
    /// Before a name beyond the range.
    OfRange,
    /// Before a name that the caller did not take.
    NotTaken,
}

/// A listing in flight.
struct Listing {
    dir: Cachelet,
    owner: LogOwner,
    /// Cookie of the last name returned.
    last: u64,
    range: ListRange,
    /// Right behind the last record that was read. It goes no further, because a later name may
    /// still be added.
    resume: LogPosition,
}

impl<M: Memories> Op<'_, M> {
    /// The last cookie that was assigned in a directory. See
    /// [`crate::namespace::Namespace::last_cookie`].
    pub(super) fn last_cookie_of_tree(&self, dir: Cachelet) -> Result<u64> {
        self.ensure_tree_counted(dir)?;
        let next = self.core.get(dir, field::NEXT_COOKIE);
        Ok(next.max(FIRST_COOKIE) - 1)
    }
}

impl Tree {
    /// Lists names with cookies in `range`. Stops before the one that `each` does not take. Returns
    /// the same as [`crate::namespace::Namespace::list`].
    pub(super) fn list_names<M: Memories>(
        op: &Op<'_, M>,
        dir: Cachelet,
        range: ListRange,
        hint: &mut ListHint,
        each: &mut dyn FnMut(ListEntry<'_>) -> bool,
    ) -> Result<Option<u64>> {
        let core = op.core;
        op.ensure_tree(dir)?;
        let generation = core.get(dir, field::DEAD) >> 32;
        let owner = core.log_owner(core.ino(dir));
        let start = list_start(core, owner, range.after, hint, generation)?;
        let mut listing = Listing {
            dir,
            owner,
            last: range.after,
            range,
            resume: start,
        };
        let listed = match start {
            LogPosition::NONE => Ok(true),
            _ => listing.go_on(op, each),
        };
        let goes_on = listed.or_else(|error| match error {
            Error::Damaged { .. } => {
                op.do_without_names(dir, &error);
                Ok(true)
            }
            other => Err(other),
        })?;
        *hint = ListHint {
            generation,
            extent: listing.resume.slot(),
            index: listing.resume.byte(),
            cookie: listing.last,
            verified: false,
        };
        if let Err(error) = op.check_media()
            && !op.is_unsure()
        {
            op.do_without_names(dir, &error);
        }
        if goes_on {
            // Reports unreadable names after the names that can be read.
            op.check_names(dir)?;
        }
        Ok(goes_on.then_some(listing.last))
    }
}

impl Listing {
    /// Lists from the present point. `false`: `each` did not take a name.
    #[inline]
    fn go_on<M: Memories>(
        &mut self,
        op: &Op<'_, M>,
        each: &mut dyn FnMut(ListEntry<'_>) -> bool,
    ) -> Result<bool> {
        let core = op.core;
        let mut blocks = 0;
        loop {
            // The tail is loaded first: the records before it are written, and so is the link of a
            // full block.
            let tail = core.tail(self.dir);
            if tail == LogPosition::NONE {
                return Ok(true);
            }
            let slot = self.resume.slot();
            let block = core.read_block(slot, self.owner)?;
            match self.list_block(op, &block, tail, each)? {
                End::OfBlock => {}
                End::OfRange => return Ok(true),
                End::NotTaken => return Ok(false),
            }
            if slot == tail.slot() {
                if core.tail(self.dir) == tail {
                    return Ok(true);
                }
                continue;
            }
            if block.head.next == 0 {
                return Ok(true);
            }
            self.resume = LogPosition::new(block.head.next, NameRecord::FIRST);
            blocks += 1;
            if blocks > core.geometry.meta_slots() {
                return Err(runs_in_a_circle(self.owner.slot));
            }
        }
    }

    #[inline]
    fn list_block<M: Memories>(
        &mut self,
        op: &Op<'_, M>,
        block: &Block,
        tail: LogPosition,
        each: &mut dyn FnMut(ListEntry<'_>) -> bool,
    ) -> Result<End> {
        // The records were verified when the tree was built.
        let records = block.records(self.owner, tail).unsealed();
        for found in records.from(self.resume.byte()) {
            let found = found.map_err(|unsound| {
                let place = Location::Slot(unsound.place.slot());
                Error::damaged("record of a directory log", place)
            })?;
            let is_new = found.record.cookie > self.last;
            if found.record.kind() == Some(RecordKind::Came)
                && found.record.cookie > self.range.until
            {
                return Ok(End::OfRange);
            }
            if found.record.kind() == Some(RecordKind::Came)
                && is_new
                && is_there(op, self.dir, &found)?
            {
                let target = TargetWord(found.record.target);
                let place = Location::Slot(found.place.slot());
                let kind = target
                    .kind()
                    .ok_or_else(|| Error::damaged("entry kind", place))?;
                let given = ListEntry {
                    ino: target.ino(),
                    cookie: self.range.offset + found.record.cookie,
                    kind,
                    name: found.name,
                };
                if !each(given) {
                    return Ok(End::NotTaken);
                }
                self.last = found.record.cookie;
            }
            let past = found.place.byte() + NameRecord::bytes_for(found.name.len());
            self.resume = LogPosition::new(found.place.slot(), past);
        }
        Ok(End::OfBlock)
    }
}

/// Whether the name exists that a record added.
fn is_there<M: Memories>(op: &Op<'_, M>, dir: Cachelet, found: &Recorded<'_>) -> Result<bool> {
    let core = op.core;
    let name = Name {
        bytes: found.name,
        hash: found.record.name_hash,
    };
    let mut tries = 0;
    loop {
        let token = op.index_token(dir);
        match core.radix_find(dir, name) {
            Some((_, leaf)) if leaf.is_busy() => pause(&core.arena, &mut tries),
            // A copied record has the same cookie.
            Some((_, leaf)) => {
                let cookie = || core.word(core.record_at(leaf.place()) + NameRecord::COOKIE);
                return Ok(leaf.place() == found.place || cookie() == found.record.cookie);
            }
            None if token.is_some() && op.index_token(dir) == token => return Ok(false),
            // The tree was removed meanwhile.
            None => op.ensure_tree(dir)?,
        }
    }
}

/// The point where a listing continues: by the hint, or by the blocks' first cookies.
fn list_start<M: Memories>(
    core: &Core<M>,
    owner: LogOwner,
    after: u64,
    hint: &ListHint,
    generation: u64,
) -> Result<LogPosition> {
    let hinted = LogPosition::new(hint.extent, hint.index);
    // A position of another directory leads to a block of that directory, which does not load.
    if hint.extent != 0
        && hint.generation == generation
        && hint.cookie == after
        && hinted.is_sound()
        && core.records_head(hint.extent, owner).is_ok()
    {
        return Ok(hinted);
    }
    let mut slot = core.log_root(owner.slot);
    if slot == 0 {
        return Ok(LogPosition::NONE);
    }
    for _ in 0..core.geometry.meta_slots() {
        let next = core.records_head(slot, owner)?.next;
        if next == 0 || core.records_head(next, owner)?.base_cookie > after {
            return Ok(LogPosition::new(slot, NameRecord::FIRST));
        }
        slot = next;
    }
    Err(runs_in_a_circle(owner.slot))
}
