//! Moves directories with everything below them.
//!
//! Entries below a directory carry its path. So copies of all these entries are written first, with
//! their new paths and without states. A list names each copy with its original and the log word
//! that leads there ([`copy`]). The record that moves the directory makes the area table lead to
//! the list. From then on the copies count, and the list is carried out by the mover ([`show`]) or
//! by recovery ([`list`]), possibly repeatedly. At the end the list is cleared.
//!
//! Making a directory the root of an area, or no longer a root, is such a move, too ([`root`]). The
//! names below stay in their directories, and the commit is the record that names the root of the
//! area. Nothing below a root moves with the directories above it.
//!
//! Meanwhile names below are *frozen* ([`flag::STILL`]). An operation that would change one
//! releases everything, waits outside of its bracket, and begins again. Lookups and listings
//! continue: they find an entry or its copy, which name the same file. The mover holds the
//! background's lease, so nothing is recycled, compacted or evicted. It is in no operation while it
//! waits for the operations of others.

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

/// Number of entries that one operation copies or publishes.
const PIECE: usize = 256;

/// The slots of an entry.
#[derive(Clone, Copy)]
struct Run {
    slot: u64,
    slots: u64,
}

/// An entry below a moved directory, and its copy.
#[derive(Clone, Copy)]
struct Copied {
    /// The directory that contains it.
    dir: Cachelet,
    /// Pool offset of its word in the log of that directory.
    word_at: u64,
    from: Run,
    to: Run,
}

/// A move in flight. Dropping it before it is committed undoes everything.
struct Move<'a, M: Memories> {
    core: &'a Core<M>,
    /// Directories whose names are frozen.
    still: Vec<Cachelet>,
    copies: Vec<Copied>,
    /// Blocks of the list.
    list: Vec<u64>,
    /// A further block of the area table, which this move needs.
    table_block: Option<u64>,
    is_committed: bool,
    /// Whether the move is abandoned if somebody waits for the background's lease before it is
    /// committed.
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
/// [`Error::Retry`]: names changed meanwhile.
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
    // The rename may have been a no-op.
    if list == Some(core.word(core.moving_at())) {
        moving.committed(list);
    }
    Ok(())
}

impl<'a, M: Memories> Move<'a, M> {
    /// Begins a move. Until it is over, operations that meet a directory with frozen names wait.
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

    /// Does the remaining work after the commit, if there is a list.
    fn committed(mut self, list: Option<u64>) {
        self.is_committed = true;
        if list.is_some() {
            self.finish();
        }
    }
}

/// The moved directories whose names carry their location, with the paths of the directories' new
/// names.
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
            // The slots of its own entry may have been reused.
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
