//! Moving directories with what is below them.
//!
//! What is below a directory tells its path. So copies of all these entries are written first, with the paths that they will have, without
//! states, and a list that names each with what it was copied from and the word of the log that leads there ([`copy`]). The record that moves the
//! directory makes the area table lead to the list: from then on the copies are what counts, and what the list says is done, by the mover ([`show`])
//! or by recovery ([`list`]), however often. Then there is no list any more.
//!
//! Meanwhile names below *stand still* ([`flag::STILL`]): whoever is to change one gives everything back, waits outside of operations, and
//! begins again. Lookups and listings pass: they find an entry or its copy, which names the same file. The mover holds the background's lease, so
//! nothing is recycled, compacted or evicted, and is in no operation while it waits for those of others.

mod copy;
mod list;
mod show;

use std::sync::atomic::Ordering;

use vellum_layout::{AreaTableHead, FileKind, SLOTS_PER_BLOCK};
use vellum_media::{Memories, Memory};

pub(super) use self::list::replay;
use super::Adaptive;
use super::entry::PathBuffer;
use crate::cachelet::{Cachelet, flag};
use crate::core::{Core, header};
use crate::error::{Error, Result};
use crate::namespace::indexed::Name;
use crate::namespace::{Ask, Rename, Whole};

/// Entries that one operation copies, or shows.
const PIECE: usize = 256;

/// Slots of an entry.
#[derive(Clone, Copy)]
struct Run {
    slot: u64,
    slots: u64,
}

/// An entry below a directory that is moved, and its copy.
#[derive(Clone, Copy)]
struct Copied {
    /// The directory that it is in.
    dir: Cachelet,
    /// Pool offset of the word of that one's log.
    word_at: u64,
    from: Run,
    to: Run,
}

/// A move under way; until it is committed, dropping it leaves nothing of it.
struct Move<'a, M: Memories> {
    core: &'a Core<M>,
    /// Directories whose names stand still.
    still: Vec<Cachelet>,
    copies: Vec<Copied>,
    /// Blocks of the list.
    list: Vec<u64>,
    is_committed: bool,
}

impl<M: Memories> Drop for Move<'_, M> {
    fn drop(&mut self) {
        let core = self.core;
        if !self.is_committed {
            // Nobody has seen any of it.
            for copy in &self.copies {
                core.free_slots(copy.to.slot, copy.to.slots);
            }
            for &block in &self.list {
                core.free_slots(block, SLOTS_PER_BLOCK);
            }
        }
        for &dir in &self.still {
            core.clear_flag(dir, flag::STILL);
        }
        core.arena.store(header::STILL, 0, Ordering::Release);
    }
}

/// See [`crate::namespace::Namespace::move_whole`].
///
/// # Errors
/// [`Error::First`]: names changed meanwhile.
pub(super) fn move_whole<M: Memories>(
    core: &Core<M>,
    rename: &Rename<'_>,
    ask: Ask<'_, M>,
) -> Result<()> {
    core.arena.store(header::STILL, 1, Ordering::SeqCst);
    let mut moving = Move {
        core,
        still: Vec::new(),
        copies: Vec::new(),
        list: Vec::new(),
        is_committed: false,
    };
    let dirs = moving.find(rename)?;
    moving.copy_below(&dirs)?;
    let list = moving.write_list()?;
    let whole = Whole {
        dirs,
        store: list.map(|list| (core.moving_at(), list)),
    };
    let rename = Rename {
        whole: Some(&whole),
        ..*rename
    };
    let op = core.op_to_change()?;
    op.rename::<Adaptive>(&rename, &mut |source, target| ask(&op, source, target))?;
    drop(op);
    // There may have been nothing to do.
    if list == Some(core.word(core.moving_at())) {
        moving.is_committed = true;
        moving.finish();
    }
    Ok(())
}

impl<M: Memories> Core<M> {
    /// Pool offset of the word that leads to the list of a move that is not over.
    fn moving_at(&self) -> u64 {
        self.geometry.slot_at(self.geometry.areas.table) + AreaTableHead::MOVING
    }
}

impl<M: Memories> Move<'_, M> {
    /// The directories that are moved, and the paths of their new names.
    fn find(&self, rename: &Rename<'_>) -> Result<Vec<(Cachelet, Vec<u8>)>> {
        let core = self.core;
        let op = core.op_begin();
        let find = |dir, name| {
            let found = op.find_target::<Adaptive>(dir, name)?;
            found.map(|(_, file)| file).ok_or(Error::NotFound)
        };
        let from = Name::new(core, rename.from_name)?;
        let to = Name::new(core, rename.to_name)?;
        let source = find(rename.from_dir, from)?;
        let mut moved = vec![(source, rename.to_dir, to)];
        if rename.exchange {
            let target = find(rename.to_dir, to)?;
            moved.push((target, rename.from_dir, from));
        }
        let mut dirs = Vec::new();
        for (file, above, name) in moved {
            if core.kind(file) == FileKind::Directory {
                let mut buffer = PathBuffer::default();
                core.load_path(core.ino(above), &mut buffer)?;
                dirs.push((file, buffer.path_of(name.bytes)));
            }
        }
        Ok(dirs)
    }
}
