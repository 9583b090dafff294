//! Entries with paths, and reading them.

use std::sync::atomic::Ordering;

use vellum_layout::{
    AreaLife, ChunkKind, DIR_PATH_MAX, DirLocation, EntryState, FileKind, Inode, LifeWord,
    PATH_ENTRY_MAX_BYTES, PathEntryHead, PathSeal, TargetWord, is_path, path_below,
};
use vellum_media::{Memories, Memory, Persistent};

use super::Adaptive;
use crate::core::Core;
use crate::core::cachelet::{Cachelet, field, flag};
use crate::core::named::Named;
use crate::error::{Error, Location, Result};
use crate::namespace::common::{Bodies, Body};
use crate::sites;

/// Offset of the path in the bytes of an entry.
const PATH_AT: usize = PathEntryHead::PATH as usize;

/// An entry read from the pool, with its path. Aligned as a [`PathEntryHead`] is.
#[repr(align(8))]
pub(crate) struct PathBuffer {
    bytes: [u8; PATH_ENTRY_MAX_BYTES],
}

impl Default for PathBuffer {
    fn default() -> Self {
        Self {
            bytes: [0; PATH_ENTRY_MAX_BYTES],
        }
    }
}

impl PathBuffer {
    /// Reads the entry at metadata slot `entry`, without checking its checksum.
    fn load<M: Memories>(&mut self, core: &Core<M>, entry: u64) -> Result<PathEntryHead> {
        let damaged = |what| Error::damaged(what, Location::Slot(entry));
        let at = core.slot_at(entry)?;
        if core.kind_of_slot(entry) != Some(ChunkKind::Areas) {
            return Err(damaged("path entry in a wrong chunk"));
        }
        const FIRST: usize = 128;
        core.pool.read(at, &mut self.bytes[..FIRST]);
        let len = usize::from(self.path_len()).min(vellum_layout::PATH_MAX);
        let used = PathEntryHead::PATH as usize + len;
        let slots = PathEntryHead::slots_for(len);
        if !core.geometry.areas.has_room(entry, slots) {
            return Err(damaged("path entry in two groups"));
        }
        if used > FIRST {
            core.pool
                .read(at + FIRST as u64, &mut self.bytes[FIRST..used]);
        }
        let (head, _) = self.decoded().ok_or(damaged("path entry unsound"))?;
        if TargetWord(head.target).kind().is_none() || core.area_life(head.area).is_none() {
            return Err(damaged("path entry unsound"));
        }
        Ok(head)
    }

    fn path_len(&self) -> u16 {
        let at = PathEntryHead::PATH_WORD as usize;
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Head and path of the entry that was read last.
    #[inline(always)]
    pub(super) fn decoded(&self) -> Option<(PathEntryHead, &[u8])> {
        PathEntryHead::decode_unsealed(&self.bytes)
    }

    /// The path of the entry that was read last.
    pub(super) fn path(&self) -> &[u8] {
        self.decoded().map_or(&[], |(_, path)| path)
    }

    /// Reads the entry at metadata slot `entry`. Fails if it is not an entry of directory `dir`.
    fn load_of<M: Memories>(
        &mut self,
        core: &Core<M>,
        entry: u64,
        dir: u64,
    ) -> Result<PathEntryHead> {
        let head = self.load(core, entry)?;
        if head.parent != dir {
            let place = Location::Slot(entry);
            return Err(Error::damaged("path entry of another directory", place));
        }
        Ok(head)
    }

    /// Whether the entry that was read last is sealed for its slot, area and directory.
    fn is_sealed<M: Memories>(&self, core: &Core<M>, entry: u64, dir: u64) -> bool {
        let area = self
            .decoded()
            .and_then(|(head, _)| core.area_life(head.area));
        area.is_some_and(|area| {
            let seal = PathSeal {
                area: area.generation,
                slot: entry,
                directory: core.identity_on_pool(dir).generation(),
            };
            PathEntryHead::decode(&self.bytes, seal).is_some()
        })
    }
}

/// The common beginning of the paths of names in a directory. It is stored in place: the first
/// bytes behind the head in the buffer are this path.
#[derive(Default)]
pub(crate) struct Above {
    buffer: PathBuffer,
    /// The location that the directory named when it was read. A rename of the directory gives it
    /// another entry, and the slots of the old one are not reused before this operation ends.
    place: Option<DirLocation>,
    area: Option<AreaLife>,
    len: usize,
}

impl Above {
    /// The area, if it was read.
    pub(super) fn area(&self) -> Option<AreaLife> {
        self.area
    }

    /// Length of the path of a name in this directory, in bytes.
    pub(super) fn len_of(&self, name: &[u8]) -> usize {
        let slash = usize::from(self.len != 0);
        self.len + slash + name.len()
    }

    /// Completes `head` to an entry with the path of `name` in this directory, and returns its
    /// bytes. May be called once.
    pub(super) fn go_on(&mut self, name: &[u8], head: &PathEntryHead, seal: PathSeal) -> &[u8] {
        let len = self.len_of(name);
        let path = &mut self.buffer.bytes[PATH_AT..][..len];
        let (above, own) = path.split_at_mut(len - name.len());
        if let Some(slash) = above.last_mut() {
            *slash = b'/';
        }
        own.copy_from_slice(name);
        let total = head.encode_around(len, seal, &mut self.buffer.bytes);
        &self.buffer.bytes[..total]
    }
}

/// The area of the names in a directory, and the common beginning of their paths.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub(super) area: AreaLife,
    pub(super) path: Vec<u8>,
}

impl Home {
    /// The home of names in an area's root.
    pub(super) fn of_root(area: AreaLife) -> Self {
        let path = Vec::new();
        Self { area, path }
    }

    /// The home of names in a directory whose own entry has this path in this area.
    pub(super) fn below(area: AreaLife, own: &[u8]) -> Self {
        let path = path_below(own).to_vec();
        Self { area, path }
    }

    /// The path of a name there.
    pub(super) fn path_of(&self, name: &[u8]) -> Vec<u8> {
        match &self.path[..] {
            [] => name.to_vec(),
            above => [above, b"/", name].concat(),
        }
    }
}

impl<M: Memories> Core<M> {
    /// The location word of a directory: its own entry, and its area if it is a root.
    pub(super) fn place_of_directory(&self, dir: u64) -> DirLocation {
        DirLocation(self.word(self.geometry.slot_at(dir) + Inode::DETAIL))
    }

    /// The home of names in the directory with inode `dir`.
    pub(super) fn home_of(&self, dir: u64) -> Result<Home> {
        let mut above = Above::default();
        self.load_above(dir, &mut above)?;
        let area = above.area().ok_or(Error::Stale)?;
        let path = above.buffer.bytes[PATH_AT..][..above.len].to_vec();
        Ok(Home { area, path })
    }

    /// As [`Self::home_of`], in place. Reads nothing if `above` is already of this location.
    pub(super) fn load_above(&self, dir: u64, above: &mut Above) -> Result<()> {
        let place = self.place_of_directory(dir);
        if above.place.replace(place) == Some(place) {
            return Ok(());
        }
        if place.area() != 0 {
            let area = self.area_of_root(place.area(), dir);
            let damaged =
                || Error::damaged("directory is not its area's root", Location::Inode(dir));
            above.area = Some(area.ok_or_else(damaged)?);
            above.len = 0;
            return Ok(());
        }
        let head = above.buffer.load(self, place.entry())?;
        if TargetWord(head.target) != TargetWord::new(dir, FileKind::Directory) {
            let place = Location::Inode(dir);
            return Err(Error::damaged(
                "directory names the entry of another one",
                place,
            ));
        }
        let area = self.area_life(head.area).ok_or(Error::Stale)?;
        above.area = Some(area);
        above.len = match usize::from(head.path_len) {
            len @ 0..=DIR_PATH_MAX => len,
            // The paths of names in it start again.
            _ => 0,
        };
        Ok(())
    }

    /// The area that names in the directory with inode `dir` are in.
    pub(super) fn area_of(&self, dir: u64) -> Result<u32> {
        let place = self.place_of_directory(dir);
        if place.area() != 0 {
            return Ok(place.area());
        }
        self.area_above(dir)
    }

    /// The area of the own name of the directory with inode `dir`.
    pub(super) fn area_above(&self, dir: u64) -> Result<u32> {
        let entry = self.place_of_directory(dir).entry();
        let at = self.slot_at(entry)? + PathEntryHead::PATH_WORD;
        Ok((self.word(at) >> 32) as u32)
    }

    /// Checks that the names of a directory are in an area that exists. Without that area, a name
    /// that is not found may still exist.
    ///
    /// A missing area is no damage while a move changes the area of these names. The names are
    /// frozen before the old area goes, and until the directory, and everything below it, names the
    /// new one. So an observer that finds them not frozen, and the directory's location unchanged,
    /// has not met a move. A move waits for operations that began before the names were frozen, so
    /// none of them sees the move with an older location of the directory. A directory without a
    /// name may lack both area and own entry; its flag is set before either goes.
    pub(super) fn check_area_of(&self, dir: Cachelet) -> Result<()> {
        let ino = self.ino(dir);
        loop {
            let place = self.place_of_directory(ino);
            let is_there = match place.area() {
                0 => self.area_above(ino).is_ok_and(|area| self.is_live(area)),
                own => self.area_of_root(own, ino).is_some(),
            };
            let is_going = self.get(dir, field::FLAGS) & (flag::STILL | flag::UNLINKED) != 0;
            if is_there || is_going {
                return Ok(());
            }
            if self.place_of_directory(ino) == place {
                let place = Location::Inode(ino);
                return Err(Error::damaged(
                    "directory in an area that does not exist",
                    place,
                ));
            }
        }
    }

    /// Reads the entry at metadata slot `entry`. Fails unless it is sealed for that slot.
    pub(super) fn load_sealed(&self, entry: u64, buffer: &mut PathBuffer) -> Result<PathEntryHead> {
        let head = buffer.load(self, entry)?;
        self.slot_at(head.parent)?;
        if !buffer.is_sealed(self, entry, head.parent) {
            let place = Location::Slot(entry);
            return Err(Error::damaged("path entry checksum", place));
        }
        Ok(head)
    }
}

fn body(head: &PathEntryHead) -> Body {
    Body {
        target: TargetWord(head.target),
        generation: head.generation,
        cookie: head.cookie,
        life: LifeWord(head.life),
        slots: PathEntryHead::slots_for(usize::from(head.path_len)),
    }
}

impl<M: Memories> Bodies<M> for Adaptive {
    type Buffer = PathBuffer;

    const ARE_TRUTH: bool = true;

    fn check_home(core: &Core<M>, dir: Cachelet) -> Result<()> {
        core.check_area_of(dir)
    }

    fn is_there(core: &Core<M>, entry: u64) -> bool {
        // Entries in other chunks are reported as damage when they are read.
        core.kind_of_slot(entry) != Some(ChunkKind::Areas)
            || core.states(entry).get(entry) != EntryState::None
    }

    fn flush_there(core: &Core<M>, entry: u64) {
        if core.kind_of_slot(entry) == Some(ChunkKind::Areas) {
            core.pool.flush(sites::LIST_STATE, core.states_at(entry), 8);
        }
    }

    fn read(core: &Core<M>, entry: u64, dir: u64, buffer: &mut PathBuffer) -> Result<Body> {
        let damaged = |what| Err(Error::damaged(what, Location::Slot(entry)));
        let head = buffer.load_of(core, entry, dir)?;
        if !buffer.is_sealed(core, entry, dir) {
            return damaged("path entry checksum");
        }
        if TargetWord(head.target).has_reserved() {
            return damaged("path entry of a later release");
        }
        if !is_path(buffer.path()) {
            return damaged("path that no file may have");
        }
        Ok(body(&head))
    }

    fn read_unsealed(
        core: &Core<M>,
        entry: u64,
        dir: u64,
        buffer: &mut PathBuffer,
    ) -> Result<Body> {
        buffer.load_of(core, entry, dir).map(|head| body(&head))
    }

    fn name(buffer: &PathBuffer) -> &[u8] {
        buffer.decoded().map_or(&[], |(head, path)| head.name(path))
    }

    fn cookie(core: &Core<M>, entry: u64) -> Result<u64> {
        Ok(core.word(core.slot_at(entry)? + PathEntryHead::COOKIE))
    }

    fn life_at(core: &Core<M>, entry: u64) -> u64 {
        core.geometry.slot_at(entry) + PathEntryHead::LIFE
    }
}

/// Whether the entry at metadata slot `entry` has the name `name` in `parent`.
pub(super) fn is_called<M: Memories>(core: &Core<M>, entry: u64, parent: u64, name: &[u8]) -> bool {
    let at = core.geometry.slot_at(entry);
    // The path is in a later line, and the processor cannot know that from the head before the head
    // is loaded.
    core.pool.prefetch(at + PathEntryHead::PATH);
    let word = core
        .pool
        .load(at + PathEntryHead::PATH_WORD, Ordering::Relaxed);
    let (path_len, name_at) = (word & 0xFFFF, word >> 16 & 0xFFFF);
    path_len.wrapping_sub(name_at) == name.len() as u64
        && core
            .pool
            .load(at + PathEntryHead::PARENT, Ordering::Relaxed)
            == parent
        && core
            .pool
            .bytes_equal(at + PathEntryHead::PATH + name_at, name)
}

/// Checks that a name's path continues that of its directory, and that a directory's location names
/// its entry.
pub(super) fn check<M: Memories>(core: &Core<M>, named: &Named, buffer: &PathBuffer) -> Result<()> {
    let home = core.home_of(named.dir)?;
    let own = buffer
        .decoded()
        .map(|(head, path)| (head.area, head.directory(path)));
    if own != Some((home.area.number, &home.path[..])) {
        return Err(Error::damaged(
            "path that does not continue its directory's",
            named.entry,
        ));
    }
    let is_dir = named.target.kind() == Some(FileKind::Directory);
    let ino = named.target.ino();
    let is_own = || {
        let place = core.place_of_directory(ino);
        let is_root = place.area() != 0;
        Location::Slot(place.entry()) == named.entry
            && (!is_root || core.area_of_root(place.area(), ino).is_some())
    };
    if is_dir && core.is_inode_slot(ino) && !is_own() {
        return Err(Error::damaged(
            "directory names another entry",
            Location::Inode(ino),
        ));
    }
    Ok(())
}

/// The checksum of the entry at pool offset `entry_at`, if the entry is sound.
pub(super) fn witnessed<M: Memories>(core: &Core<M>, entry_at: u64) -> Option<u32> {
    let from = entry_at.checked_sub(core.geometry.meta_at)?;
    let entry = from / vellum_layout::SLOT_BYTES;
    let head = core.load_sealed(entry, &mut PathBuffer::default()).ok()?;
    (entry_at == core.geometry.slot_at(entry)).then_some(head.checksum)
}
