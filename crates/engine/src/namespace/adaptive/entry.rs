//! Entries with paths, and reading them.

use std::sync::atomic::Ordering;

use vellum_layout::{
    AreaLine, ChunkKind, DIR_PATH_MAX, DirPlace, EntryState, FileKind, Inode, LifeWord,
    PATH_ENTRY_MAX_BYTES, PathEntryHead, PathHash, PathSeal, ROOT_AREA, ROOT_SLOT, TargetWord,
    is_path, path_below, path_hash,
};
use vellum_media::{Memories, Memory, Persistent};
use zerocopy::IntoBytes;

use super::Adaptive;
use crate::core::Core;
use crate::error::{Error, Place, Result};
use crate::namespace::common::inode::Named;
use crate::namespace::common::{Bodies, Body};
use crate::sites;

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
    /// Reads the entry at metadata slot `entry`, whatever its checksum says.
    fn load<M: Memories>(&mut self, core: &Core<M>, entry: u64) -> Result<PathEntryHead> {
        let damaged = |what| Error::damaged(what, Place::Slot(entry));
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
        if TargetWord(head.target).kind().is_none() || head.area != ROOT_AREA {
            return Err(damaged("path entry unsound"));
        }
        Ok(head)
    }

    fn path_len(&self) -> u16 {
        let at = PathEntryHead::PATH_WORD as usize;
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Head and path of what was read last.
    pub(super) fn decoded(&self) -> Option<(PathEntryHead, &[u8])> {
        PathEntryHead::decode_unsealed(&self.bytes)
    }

    /// The path of the entry that was read last.
    pub(super) fn path(&self) -> &[u8] {
        self.decoded().map_or(&[], |(_, path)| path)
    }

    /// The path of a name in the directory whose own entry was read last.
    pub(super) fn path_of(&self, name: &[u8]) -> Vec<u8> {
        path_of(path_below(self.path()), name)
    }

    /// Reads the entry at metadata slot `entry`; fails if it is none of directory `dir`.
    fn load_of<M: Memories>(
        &mut self,
        core: &Core<M>,
        entry: u64,
        dir: u64,
    ) -> Result<PathEntryHead> {
        let head = self.load(core, entry)?;
        if head.parent != dir {
            let place = Place::Slot(entry);
            return Err(Error::damaged("path entry of another directory", place));
        }
        Ok(head)
    }

    /// Whether what was read last is sealed for its place.
    fn is_sealed<M: Memories>(&self, core: &Core<M>, entry: u64, dir: u64) -> bool {
        let seal = core.seal(entry, core.identity_on_pool(dir).generation());
        PathEntryHead::decode(&self.bytes, seal).is_some()
    }
}

impl<M: Memories> Core<M> {
    /// Pool offset of the line of an area in the first block of the area table.
    fn area_line_at(&self, number: u32) -> u64 {
        let line = u64::from(number) * size_of::<AreaLine>() as u64;
        self.geometry.slot_at(self.geometry.areas.table) + line
    }

    /// That line.
    pub(super) fn area_line(&self, number: u32) -> AreaLine {
        let mut line = AreaLine::default();
        self.pool
            .read(self.area_line_at(number), line.as_mut_bytes());
        line
    }

    /// What an entry at metadata slot `slot` is sealed with, in a directory of this generation.
    pub(super) fn seal(&self, slot: u64, directory: u32) -> PathSeal {
        PathSeal {
            area: self.word(self.area_line_at(ROOT_AREA) + AreaLine::LIVES) as u32,
            slot,
            directory,
        }
    }

    /// Where a directory says that its names are.
    pub(super) fn place_of_directory(&self, dir: u64) -> DirPlace {
        DirPlace(self.word(self.geometry.slot_at(dir) + Inode::DETAIL))
    }

    /// Metadata slot of a directory's own entry; 0 of the root.
    fn own_entry(&self, dir: u64) -> u64 {
        self.place_of_directory(dir).entry()
    }

    /// Reads the own entry of the directory with inode `dir`, which is kept where it is; gives the hash of the path that those of names in it
    /// go on from. The root has no entry, and an empty path.
    pub(super) fn load_path(&self, dir: u64, buffer: &mut PathBuffer) -> Result<PathHash> {
        if dir == ROOT_SLOT {
            *buffer = PathBuffer::default();
            return Ok(PathHash::of_root(self.seed));
        }
        let entry = self.own_entry(dir);
        let head = buffer.load(self, entry)?;
        if TargetWord(head.target) != TargetWord::new(dir, FileKind::Directory) {
            let place = Place::Inode(dir);
            return Err(Error::damaged("directory names another's entry", place));
        }
        Ok(match path_below(buffer.path()) {
            [] => PathHash::of_root(self.seed),
            _ => PathHash(head.path_hash),
        })
    }

    /// Bytes of the path of a name with `name` bytes in the directory with inode `dir`.
    pub(super) fn path_len(&self, dir: u64, name: usize) -> Result<usize> {
        if dir == ROOT_SLOT {
            return Ok(name);
        }
        let at = self.slot_at(self.own_entry(dir))? + PathEntryHead::PATH_WORD;
        Ok(match usize::from(self.word(at) as u16) {
            above @ 0..=DIR_PATH_MAX => above + 1 + name,
            // Paths begin anew.
            _ => name,
        })
    }

    /// Reads the entry at metadata slot `entry`; fails unless it is sealed for that place.
    pub(super) fn load_sealed(&self, entry: u64, buffer: &mut PathBuffer) -> Result<PathEntryHead> {
        let head = buffer.load(self, entry)?;
        self.slot_at(head.parent)?;
        if !buffer.is_sealed(self, entry, head.parent) {
            let place = Place::Slot(entry);
            return Err(Error::damaged("path entry checksum", place));
        }
        Ok(head)
    }
}

/// The path of a name in a directory with this path.
pub(super) fn path_of(above: &[u8], name: &[u8]) -> Vec<u8> {
    match above {
        [] => name.to_vec(),
        above => [above, b"/", name].concat(),
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

    fn is_there(core: &Core<M>, entry: u64) -> bool {
        // What lies elsewhere is told to be damage where it is read.
        core.kind_of_slot(entry) != Some(ChunkKind::Areas)
            || core.states(entry).get(entry) != EntryState::None
    }

    fn flush_there(core: &Core<M>, entry: u64) {
        if core.kind_of_slot(entry) == Some(ChunkKind::Areas) {
            core.pool.flush(sites::LIST_STATE, core.states_at(entry), 8);
        }
    }

    fn read(core: &Core<M>, entry: u64, dir: u64, buffer: &mut PathBuffer) -> Result<Body> {
        let damaged = |what| Err(Error::damaged(what, Place::Slot(entry)));
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
        if head.path_hash != path_hash(core.seed, buffer.path()).0 {
            return damaged("hash of a path");
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

/// Whether the entry at metadata slot `entry` is called `name` in `parent`.
pub(super) fn is_called<M: Memories>(core: &Core<M>, entry: u64, parent: u64, name: &[u8]) -> bool {
    let at = core.geometry.slot_at(entry);
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

/// Checks that a name's path is that of its directory, and that a directory names its entry.
pub(super) fn check<M: Memories>(core: &Core<M>, named: &Named, buffer: &PathBuffer) -> Result<()> {
    let mut above = PathBuffer::default();
    core.load_path(named.dir, &mut above)?;
    let own = buffer.decoded().map(|(head, path)| head.directory(path));
    if own != Some(path_below(above.path())) {
        return Err(Error::damaged(
            "path that is not its directory's",
            named.entry,
        ));
    }
    let is_dir = named.target.kind() == Some(FileKind::Directory);
    let ino = named.target.ino();
    let is_own = || {
        let place = core.place_of_directory(ino);
        (Place::Slot(place.entry()), place.area()) == (named.entry, 0)
    };
    if is_dir && core.is_inode_slot(ino) && !is_own() {
        return Err(Error::damaged(
            "directory names another entry",
            Place::Inode(ino),
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
