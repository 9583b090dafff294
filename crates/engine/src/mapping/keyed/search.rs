//! Finding blocks: a few by their keys, many by reading the table.

use vellum_layout::{MapState, MapWord};
use vellum_media::{Memories, count};

use super::lines::{Held, is_live};
use crate::core::Core;
use crate::error::Result;
use crate::mapping::{BlockNo, Found, MapId, Seek};

/// Keys whose lines are prefetched together where blocks are scattered.
const AHEAD: u64 = 8;
/// Reading a line of the table in order costs one part in this many of probing a line by hash.
const SCAN_GAIN: u64 = 4;

/// A table whose entries are found by mapping id and logical block.
pub(in crate::mapping) trait Keyed<M: Memories> {
    /// Finds the entry of a block, without a lock.
    fn find_block(&self, core: &Core<M>, id: MapId, logical: u32) -> Result<Option<Held>>;

    /// Prefetches the lines in which a block's entry is searched for first.
    fn ask_for(&self, core: &Core<M>, id: MapId, logical: u32);

    /// Number of lines of the whole table.
    fn lines_to_read(&self, core: &Core<M>) -> u64;

    /// Calls `each` with the used entries, line by line, until it returns false. Nothing moves
    /// meanwhile.
    fn each_entry(&self, core: &Core<M>, each: &mut dyn FnMut(Held) -> Result<bool>) -> Result<()>;

    /// See [`crate::mapping::Mapping::lookup`].
    fn lookup(&self, core: &Core<M>, id: MapId, first: u32, out: &mut [Found]) -> Result<()> {
        out.fill(Found::Hole);
        let (mut next, mut asked) = (0, 0);
        while next < out.len() {
            let logical = first + next as u32;
            let Some(held) = self.find_block(core, id, logical)? else {
                self.ask_ahead(core, id, first, next + 1, out.len(), &mut asked);
                next += 1;
                continue;
            };
            let run = (held.place.following() as usize + 1).min(out.len() - next);
            for (block, out) in (held.place.block()..).zip(&mut out[next..next + run]) {
                *out = match held.word.state() {
                    MapState::Mapped => Found::Mapped(BlockNo(block)),
                    _ => Found::Unwritten(BlockNo(block)),
                };
            }
            next += run;
            self.ask_ahead(core, id, first, next, out.len(), &mut asked);
        }
        Ok(())
    }

    /// Prefetches the lines of the keys from `next` on, unless that was done before.
    fn ask_ahead(
        &self,
        core: &Core<M>,
        id: MapId,
        first: u32,
        next: usize,
        end: usize,
        asked: &mut usize,
    ) {
        if next < *asked {
            return;
        }
        *asked = end.min(next + AHEAD as usize);
        for place in next..*asked {
            self.ask_for(core, id, first + place as u32);
        }
    }

    /// The number of keys from which reading the table in order is cheaper than further probing.
    fn probe_budget(&self, core: &Core<M>) -> u64 {
        self.lines_to_read(core) / SCAN_GAIN + 1
    }

    /// Calls `visit` with the logical blocks of `[first, end)` that may have an entry, until
    /// `in_use` blocks had one. `visit` returns how many blocks, from this one on, have entries.
    /// Returns their total.
    ///
    /// Costs at most twice the cheaper of probing the range and reading the table: a range too long
    /// to probe is probed first if the file probably ends soon (`in_use` is known and small), else
    /// not at all. `visit` may remove entries.
    fn search(
        &self,
        core: &Core<M>,
        id: MapId,
        first: u64,
        end: u64,
        in_use: u64,
        mut visit: impl FnMut(u32) -> Result<u64>,
    ) -> Result<u64> {
        let budget = self.probe_budget(core);
        let to_probe = if end.saturating_sub(first) <= budget {
            end
        } else if in_use <= budget {
            (first + in_use * 2).min(end)
        } else {
            first
        };
        let (mut found, mut logical) = (0, first);
        while logical < to_probe && found < in_use {
            let run = visit(logical as u32)?.min(end - logical);
            found += run;
            logical += run.max(1);
        }
        if found >= in_use || logical >= end {
            return Ok(found);
        }
        self.each_of(core, id, |held| {
            if (logical..end).contains(&held.word.logical().into()) {
                found += visit(held.word.logical())?.min(1);
            }
            Ok(found < in_use)
        })?;
        Ok(found)
    }

    /// Calls `each` with the entries of a file in the order of the table, until it returns false.
    fn each_of(
        &self,
        core: &Core<M>,
        id: MapId,
        mut each: impl FnMut(Held) -> Result<bool>,
    ) -> Result<()> {
        let id_mask = MapWord::key(u32::MAX, 0);
        let key = MapWord::key(id, 0);
        self.each_entry(core, &mut |held| {
            if is_live(held.word) && held.word.0 & id_mask == key {
                each(held)
            } else {
                Ok(true)
            }
        })
    }

    /// See [`crate::mapping::Mapping::seek`].
    fn seek(
        &self,
        core: &Core<M>,
        id: MapId,
        first: u64,
        end: u64,
        what: Seek,
    ) -> Result<Option<u64>> {
        match what {
            Seek::Data => self.seek_data(core, id, first, end),
            Seek::Hole => self.seek_hole(core, id, first, end),
        }
    }

    /// The first block of `[first, end)` that holds bytes.
    fn seek_data(&self, core: &Core<M>, id: MapId, first: u64, end: u64) -> Result<Option<u64>> {
        let to_probe = (first + self.probe_budget(core)).min(end);
        let mut logical = first;
        while logical < to_probe {
            match self.find_block(core, id, logical as u32)? {
                Some(held) if held.word.state() == MapState::Mapped => return Ok(Some(logical)),
                Some(held) => logical += u64::from(held.place.following()) + 1,
                None => logical += 1,
            }
        }
        while logical < end {
            let Some(nearest) = self.nearest_mapped(core, id, logical, end)? else {
                break;
            };
            // Reading a damaged table, which may have a key twice, finds entries that no lookup
            // finds.
            if self.seek_hole(core, id, nearest, nearest + 1)?.is_none() {
                return Ok(Some(nearest));
            }
            logical = nearest + 1;
        }
        Ok(None)
    }

    /// The first block of `[first, end)` that any entry says holds bytes.
    fn nearest_mapped(
        &self,
        core: &Core<M>,
        id: MapId,
        first: u64,
        end: u64,
    ) -> Result<Option<u64>> {
        let mut nearest = None;
        self.each_of(core, id, |held| {
            let here = u64::from(held.word.logical());
            let nearer = nearest.is_none_or(|nearest| here < nearest);
            if held.word.state() == MapState::Mapped && (first..end).contains(&here) && nearer {
                nearest = Some(here);
            }
            Ok(true)
        })?;
        Ok(nearest)
    }

    /// The first block of `[first, end)` that holds no bytes. Ends within the file's blocks.
    fn seek_hole(&self, core: &Core<M>, id: MapId, first: u64, end: u64) -> Result<Option<u64>> {
        let mut logical = first;
        while logical < end {
            match self.find_block(core, id, logical as u32)? {
                Some(held) if held.word.state() == MapState::Mapped => {
                    logical += u64::from(held.place.following()) + 1;
                }
                _ => return Ok(Some(logical)),
            }
        }
        Ok(None)
    }
}

/// Reads lines one by one and calls `each` with their used entries until it returns false. Returns
/// whether it never did.
pub(in crate::mapping) fn read_lines<M: Memories>(
    core: &Core<M>,
    lines: &super::lines::Lines,
    of: impl Iterator<Item = u64>,
    each: &mut dyn FnMut(Held) -> Result<bool>,
) -> Result<()> {
    let mut more = true;
    for line in of {
        count::probe();
        lines.each_in(core, line, |held| {
            more = more && each(held)?;
            Ok(())
        })?;
        if !more {
            break;
        }
    }
    Ok(())
}
