//! The steps before the commit: freezing names, writing copies and their list.

use vellum_layout::{
    ChunkKind, FileKind, MOVE_LIST_ENTRIES, MoveListHead, MovedEntry, PATH_ENTRY_MAX_BYTES,
    PathEntryHead, PathSeal,
};
use vellum_media::{Memories, Persistent};

use super::{Copied, Move, PIECE, Run};
use crate::core::Core;
use crate::core::cachelet::{Cachelet, field, flag};
use crate::core::named::Named;
use crate::core::slots::Op;
use crate::error::{Error, Location, Result, Retry};
use crate::namespace::adaptive::Adaptive;
use crate::namespace::adaptive::entry::{Home, PathBuffer};
use crate::namespace::common::Bodies;
use crate::namespace::common::log::scan_log;
use crate::namespace::indexed::Entries;
use crate::sites;

/// A directory whose names get other paths.
pub(super) struct Below {
    pub(super) dir: Cachelet,
    pub(super) home: Home,
}

impl Below {
    /// The directory, with `home` as the new home of its names; `None` if they keep their paths.
    pub(super) fn of<M: Memories>(
        core: &Core<M>,
        dir: Cachelet,
        home: Home,
    ) -> Result<Option<Self>> {
        if !Adaptive::tell_where(core, dir) {
            return Ok(None);
        }
        let before = core.home_of(core.ino(dir))?;
        let keeps = (before.area, &before.path) == (home.area, &home.path);
        Ok((!keeps).then_some(Self { dir, home }))
    }
}

impl<M: Memories> Move<'_, M> {
    /// Copies everything below these directories, level by level, after the names of the level were
    /// frozen. So the next level cannot gain names either.
    pub(super) fn copy_below(&mut self, mut level: Vec<Below>) -> Result<()> {
        let core = self.core;
        while !level.is_empty() {
            for below in &level {
                core.keep_area(below.dir);
                core.raise_flag(below.dir, flag::STILL);
                self.still.push(below.dir);
            }
            // Operations that may have missed the flags have ended afterwards.
            core.wait_for_readers();
            let mut next = Vec::new();
            for below in &level {
                self.copy_names(below, &mut next)?;
            }
            level = next;
        }
        Ok(())
    }

    /// Copies the entries of a directory. Adds the directories among them to `next`.
    fn copy_names(&mut self, below: &Below, next: &mut Vec<Below>) -> Result<()> {
        let core = self.core;
        let owner = core.ino(below.dir);
        let mut logged = Vec::new();
        let op = core.op_step();
        scan_log(core, owner, core.get(below.dir, field::ROOT), &mut |word| {
            logged.push(word);
            Ok(())
        })?;
        op.check_media()?;
        drop(op);
        for part in logged.chunks(PIECE) {
            if self.gives_way && core.is_lease_wanted() {
                return Err(Error::Retry(Retry::Wait));
            }
            let op = core.op_to_change()?;
            for word in part {
                let entry = word.word.entry();
                if Adaptive::is_there(core, entry) {
                    let copied = self.copy_name(&op, below, (word.at, entry))?;
                    next.extend(copied);
                }
            }
            op.check_media()?;
        }
        Ok(())
    }

    /// Copies the entry that a log word leads to, if its name exists or the entry must leave its
    /// area. Returns the directory that it names, if the paths of names in that one change. Past
    /// the cache, not fenced.
    fn copy_name(
        &mut self,
        op: &Op<'_, M>,
        below: &Below,
        (word_at, entry): (u64, u64),
    ) -> Result<Option<Below>> {
        let core = self.core;
        let dir = core.ino(below.dir);
        let mut buffer = PathBuffer::default();
        let body = Adaptive::read(core, entry, dir, &mut buffer)?;
        let is_alive = body.life.is_alive();
        let area = below.home.area;
        let to_copy = |(head, _): &(PathEntryHead, &[u8])| is_alive || head.area != area.number;
        let Some((head, path)) = buffer.decoded().filter(to_copy) else {
            return Ok(None);
        };
        let name = head.name(path);
        let path = below.home.path_of(name);
        let slots = PathEntryHead::slots_for(path.len());
        let slot = op.alloc(ChunkKind::Areas, slots)?;
        self.copies.push(Copied {
            dir: below.dir,
            word_at,
            from: Run {
                slot: entry,
                slots: body.slots,
            },
            to: Run { slot, slots },
        });
        let head = PathEntryHead {
            area: area.number,
            ..head
        };
        let mut bytes = [0; PATH_ENTRY_MAX_BYTES];
        let seal = PathSeal {
            area: area.generation,
            slot,
            directory: core.identity(below.dir).generation(),
        };
        let total = head.encode(&path, seal, &mut bytes);
        let at = core.geometry.slot_at(slot);
        core.pool
            .write_through(sites::MOVE_COPY, at, &bytes[..total]);
        if !is_alive || body.target.kind() != Some(FileKind::Directory) {
            return Ok(None);
        }
        let named = Named {
            entry: Location::Slot(entry),
            dir,
            target: body.target,
            generation: body.generation,
        };
        let child = loop {
            match op.load_named(&named) {
                // All directories below are held at once, whatever the usual limit is.
                Err(Error::OutOfMemory(_)) if core.double_cachelet_limit() => {}
                loaded => break loaded?,
            }
        };
        Below::of(core, child, Home::below(area, &path))
    }

    /// Writes the list of copies, and makes list and copies durable. Returns its first block, or
    /// `None` if nothing was copied.
    pub(super) fn write_list(&mut self) -> Result<Option<u64>> {
        let core = self.core;
        let op = core.op_to_change()?;
        let entry = |copy: &Copied| MovedEntry {
            word_at: copy.word_at,
            from: copy.from.slot as u32,
            to: copy.to.slot as u32,
        };
        let entries: Vec<MovedEntry> = self.copies.iter().map(entry).collect();
        for _ in entries.chunks(MOVE_LIST_ENTRIES) {
            // Some blocks are spared for compaction, which does not run before these are free
            // again.
            self.list.push(op.alloc_any_block()?);
        }
        for (i, entries) in entries.chunks(MOVE_LIST_ENTRIES).enumerate() {
            let next = self.list.get(i + 1).copied().unwrap_or(0);
            let block = MoveListHead::encode(self.list[i], next, entries);
            let at = core.geometry.slot_at(self.list[i]);
            let used = MoveListHead::bytes_of(entries.len());
            core.pool
                .write_through(sites::MOVE_LIST, at, &block[..used]);
        }
        if !entries.is_empty() || self.table_block.is_some() {
            core.pool.fence(sites::MOVE_COPIES_DURABLE);
        }
        // Nothing may lead to bytes that the medium did not take.
        op.check_media()?;
        Ok(self.list.first().copied())
    }
}
