//! Entries on the pool, and reading them.

use vellum_layout::{ChunkKind, Entry, EntryHead, LifeWord, NAME_MAX, TargetWord, name_hash};
use vellum_media::{Memories, Memory};

use super::Direct;
use crate::core::Core;
use crate::error::{Error, Location, Result};
use crate::namespace::common::{Bodies, Body, is_name};

/// An entry read from the pool, with its name. Aligned as an [`EntryHead`] is.
#[repr(align(8))]
pub(crate) struct EntryBuffer {
    bytes: [u8; 384],
}

impl EntryBuffer {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; 384] }
    }

    /// Reads the entry at metadata slot `entry`. Fails if it is not a sound entry of `parent`.
    pub(crate) fn read<M: Memories>(
        &mut self,
        core: &Core<M>,
        entry: u64,
        parent: u64,
    ) -> Result<&EntryHead> {
        self.read_unsealed(core, entry, parent)?;
        let damaged = |what| Err(Error::damaged(what, Location::Slot(entry)));
        let generation = core.identity_on_pool(parent).generation();
        if !Entry::is_sound(&self.bytes, generation) {
            return damaged("directory entry checksum");
        }
        let head = self.head(entry)?;
        if head.flags != 0 || TargetWord(head.target).has_reserved() {
            return damaged("directory entry of a later release");
        }
        if head.name_hash != name_hash(core.seed, self.name()) {
            return damaged("hash of a name");
        }
        if !is_name(self.name()) {
            return damaged("name that no file may have");
        }
        self.head(entry)
    }

    fn head(&self, entry: u64) -> Result<&EntryHead> {
        let head = zerocopy::FromBytes::ref_from_prefix(&self.bytes);
        let damaged = || Error::damaged("directory entry", Location::Slot(entry));
        Ok(head.map_err(|_| damaged())?.0)
    }

    /// As [`Self::read`], without verifying the checksum: for entries whose checksum was verified
    /// when the directory was first read in this mount.
    pub(crate) fn read_unsealed<M: Memories>(
        &mut self,
        core: &Core<M>,
        entry: u64,
        parent: u64,
    ) -> Result<&EntryHead> {
        let damaged = |what| Error::damaged(what, Location::Slot(entry));
        let at = core.slot_at(entry)?;
        if core.kind_of_slot(entry) != Some(ChunkKind::Entries) {
            return Err(damaged("directory entry in a wrong chunk"));
        }
        core.pool.read(at, &mut self.bytes[..64]);
        let head = self.head(entry)?;
        let used = Entry::NAME as usize + usize::from(head.name_len);
        if head.parent != parent
            || head.name_len == 0
            || head.name_len > 255
            || TargetWord(head.target).kind().is_none()
        {
            return Err(damaged("directory entry unsound"));
        }
        let slots = Entry::slots_for(usize::from(head.name_len));
        let slots_per_chunk = core.geometry.slots_per_chunk();
        if entry % slots_per_chunk + slots > slots_per_chunk {
            return Err(damaged("directory entry in two chunks"));
        }
        if used > 64 {
            core.pool.read(at + 64, &mut self.bytes[64..used]);
        }
        self.head(entry)
    }

    /// The name of the entry that was read last.
    pub(crate) fn name(&self) -> &[u8] {
        let start = Entry::NAME as usize;
        let len = self
            .head(0)
            .map_or(0, |head| usize::from(head.name_len).min(NAME_MAX));
        &self.bytes[start..start + len]
    }
}

impl Default for EntryBuffer {
    fn default() -> Self {
        Self::new()
    }
}

fn body(head: &EntryHead) -> Body {
    Body {
        target: TargetWord(head.target),
        generation: head.generation,
        cookie: head.cookie,
        life: LifeWord(head.life),
        slots: Entry::slots_for(usize::from(head.name_len)),
    }
}

impl<M: Memories> Bodies<M> for Direct {
    type Buffer = EntryBuffer;

    const ARE_TRUTH: bool = true;

    fn is_there(_: &Core<M>, _: u64) -> bool {
        true
    }

    fn flush_there(_: &Core<M>, _: u64) {}

    fn read(core: &Core<M>, entry: u64, dir: u64, buffer: &mut EntryBuffer) -> Result<Body> {
        buffer.read(core, entry, dir).map(body)
    }

    fn read_unsealed(
        core: &Core<M>,
        entry: u64,
        dir: u64,
        buffer: &mut EntryBuffer,
    ) -> Result<Body> {
        buffer.read_unsealed(core, entry, dir).map(body)
    }

    fn name(buffer: &EntryBuffer) -> &[u8] {
        buffer.name()
    }

    fn cookie(core: &Core<M>, entry: u64) -> Result<u64> {
        Ok(core.word(core.slot_at(entry)? + Entry::COOKIE))
    }

    fn life_at(core: &Core<M>, entry: u64) -> u64 {
        core.geometry.slot_at(entry) + Entry::LIFE
    }
}

/// The checksum of the entry at pool offset `entry_at`, if the entry is sound.
pub(super) fn witnessed<M: Memories>(core: &Core<M>, entry_at: u64) -> Option<u32> {
    let mut bytes = [0; Entry::NAME as usize + NAME_MAX];
    let first = Entry::NAME as usize + 16;
    core.pool.read(entry_at, &mut bytes[..first]);
    let head: EntryHead = zerocopy::FromBytes::read_from_prefix(&bytes).ok()?.0;
    let used = Entry::NAME as usize + usize::from(head.name_len).min(NAME_MAX);
    if used > first {
        core.pool
            .read(entry_at + first as u64, &mut bytes[first..used]);
    }
    core.slot_at(head.parent).ok()?;
    let parent = core.identity_on_pool(head.parent).generation();
    Entry::is_sound(&bytes, parent).then_some(head.checksum)
}
