//! Moving directories with what is below them.
//!
//! What is below a directory tells its path. So copies of all these entries are written first, with
//! the paths that they will have, without states, and a list that names each with what it was
//! copied from and the word of the log that leads there ([`copy`]). The record that moves the
//! directory makes the area table lead to the list: from then on the copies are what counts, and
//! what the list says is done, by the mover ([`show`]) or by recovery ([`list`]), however often.
//! Then there is no list any more.
//!
//! Directories that become roots of areas, or are roots no more, are such moves, too ([`root`]):
//! the names below stay in their directories, and what decides is the record that says whose root
//! the directory is. Nothing below a root is moved with what is above it.
//!
//! Meanwhile names below *stand still* ([`flag::STILL`]): whoever is to change one gives everything
//! back, waits outside of operations, and begins again. Lookups and listings pass: they find an
//! entry or its copy, which names the same file. The mover holds the background's lease, so nothing
//! is recycled, compacted or evicted, and is in no operation while it waits for those of others.

mod copy;
mod list;
mod root;
mod show;

use std::sync::atomic::Ordering;

use vellum_layout::{FileKind, SLOTS_PER_BLOCK};
use vellum_media::{Memories, Memory};

use self::copy::Below;
pub(super) use self::list::replay;
pub(super) use self::root::{Becomes, set_root};
use super::Adaptive;
use super::entry::Home;
use crate::core::cachelet::{Cachelet, flag};
use crate::core::{Core, header};
use crate::error::{Error, Result};
use crate::namespace::indexed::{Entries, Name};
use crate::namespace::{Ask, PathIn, Rename, Whole};

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
    /// A block that the area table is to have for it.
    table_block: Option<u64>,
    is_committed: bool,
    /// Nothing comes of it if somebody waits for the background's lease before it is committed.
    gives_way: bool,
}

impl<M: Memories> Drop for Move<'_, M> {
    fn drop(&mut self) {
        let core = self.core;
        if !self.is_committed {
            // Nobody has seen any of it.
            for copy in &self.copies {
                core.free_slots(copy.to.slot, copy.to.slots);
            }
            for &block in self.list.iter().chain(&self.table_block) {
                core.free_slots(block, SLOTS_PER_BLOCK);
            }
        }
        for &dir in &self.still {
            core.renew_area(dir);
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
    let mut moving = Move::begin(core);
    let dirs = find(core, rename)?;
    let mut level = Vec::new();
    for (dir, to) in &dirs {
        let area = core.area_life(to.area).ok_or(Error::Stale)?;
        level.extend(Below::of(core, *dir, Home::below(area, &to.path))?);
    }
    moving.copy_below(level)?;
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
        moving.committed(list);
    }
    Ok(())
}

impl<'a, M: Memories> Move<'a, M> {
    /// Begins one: until it is over, whoever meets a directory whose names stand still waits.
    fn begin(core: &'a Core<M>) -> Self {
        core.arena.store(header::STILL, 1, Ordering::SeqCst);
        Self {
            core,
            still: Vec::new(),
            copies: Vec::new(),
            list: Vec::new(),
            table_block: None,
            is_committed: false,
            gives_way: false,
        }
    }

    /// Does what is left to be done behind the commit, if there is a list.
    fn committed(mut self, list: Option<u64>) {
        self.is_committed = true;
        if list.is_some() {
            self.finish();
        }
    }
}

/// The directories that are moved, and whose names tell where they are, with the places of their
/// new names.
pub(super) fn find<M: Memories>(
    core: &Core<M>,
    rename: &Rename<'_>,
) -> Result<Vec<(Cachelet, PathIn)>> {
    let op = core.op_step();
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
        if core.has_flag(above, flag::UNLINKED) {
            // The slots of its own entry may be somebody's.
            return Err(Error::NotFound);
        }
        if core.kind(file) == FileKind::Directory && Adaptive::tell_where(core, file) {
            let home = core.home_of(core.ino(above))?;
            let path = PathIn {
                area: home.area.number,
                path: home.path_of(name.bytes),
            };
            dirs.push((file, path));
        }
    }
    Ok(dirs)
}
