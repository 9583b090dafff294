//! Building a directory's part of the index at its first access, by reading its log
//! (DirectFS III-C: rebuilt lazily, a million entries in tens of milliseconds).

use vellum_layout::{
    ChunkKind, Entry, EntryHead, LifeWord, LogExtentHead, LogWord, NAME_MAX, TargetWord, name_hash,
};
use vellum_media::{Memories, Memory};

use super::Name;
use super::index::ValueWord;
use super::log::{COOKIE_MAX, Tail};
use crate::cachelet::{CHILD_ONE, Cachelet, field, flag};
use crate::core::Core;
use crate::error::{Error, Place, Result};
use crate::slots::{Op, pause};

/// An entry read from the pool, with its name. Aligned as an [`EntryHead`] is.
#[repr(align(8))]
pub(crate) struct EntryBuffer {
    bytes: [u8; 384],
}

impl EntryBuffer {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; 384] }
    }

    /// Reads the entry at metadata slot `entry`; fails if it is not a sound entry of `parent`.
    pub(crate) fn read<M: Memories>(
        &mut self,
        core: &Core<M>,
        entry: u64,
        parent: u64,
    ) -> Result<&EntryHead> {
        self.read_unsealed(core, entry, parent)?;
        let damaged = |what| Err(Error::damaged(what, Place::Slot(entry)));
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
        let damaged = || Error::damaged("directory entry", Place::Slot(entry));
        Ok(head.map_err(|_| damaged())?.0)
    }

    /// The same without verifying the checksum: for entries whose checksum was verified when the
    /// directory was first read in this mount.
    pub(crate) fn read_unsealed<M: Memories>(
        &mut self,
        core: &Core<M>,
        entry: u64,
        parent: u64,
    ) -> Result<&EntryHead> {
        let damaged = |what| Error::damaged(what, Place::Slot(entry));
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

/// Whether a file may have this name. The length was checked.
fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// A nonzero word of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged {
    /// Pool offset of the word.
    pub(crate) at: u64,
    pub(crate) word: LogWord,
    pub(crate) cookies: Cookies,
}

/// Which cookies the entry may have that a word of a log names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cookies {
    least: u64,
    /// Just that one.
    is_exact: bool,
}

impl Cookies {
    /// Those for word `index` of the extent with this sound head.
    pub(crate) fn of_word(head: &LogExtentHead, index: u64) -> Self {
        let is_exact = !head.is_compacted();
        let least = head.base_cookie + if is_exact { index } else { 0 };
        Self { least, is_exact }
    }

    /// Fails unless the entry at metadata slot `entry` may have this cookie behind one with `last`.
    pub(crate) fn check(self, entry: u64, cookie: u64, last: u64) -> Result<()> {
        let fits = cookie == self.least || cookie > self.least && !self.is_exact;
        if fits && cookie > last && cookie <= COOKIE_MAX {
            Ok(())
        } else {
            let place = Place::Slot(entry);
            Err(Error::damaged("directory cookies out of order", place))
        }
    }
}

/// Calls `each` for every nonzero word of a directory's log, in order; gives the tail.
pub(crate) fn scan_log<M: Memories>(
    core: &Core<M>,
    owner: u64,
    root: u64,
    each: &mut dyn FnMut(Logged) -> Result<()>,
) -> Result<Tail> {
    let (mut extent, mut tail, mut seen) = (root, Tail(0), 0);
    while extent != 0 {
        let head = core.log_head(extent, owner)?;
        let at = core.geometry.slot_at(extent) + head.kind().words_at();
        let mut end = 0;
        for index in 0..head.kind().words() {
            let word = LogWord(core.word(at + 8 * index));
            if word.0 != 0 {
                if !word.is_sound() {
                    return Err(Error::damaged("log word", Place::Slot(extent)));
                }
                end = index + 1;
                each(Logged {
                    at: at + 8 * index,
                    word,
                    cookies: Cookies::of_word(&head, index),
                })?;
            }
        }
        if head.is_compacted() {
            end = head.kind().words();
        }
        tail = Tail::new(extent, head.kind(), end);
        extent = head.next;
        seen += 1;
        if seen > core.geometry.meta_slots() {
            return Err(Error::damaged(
                "directory log runs in a circle",
                Place::Inode(owner),
            ));
        }
    }
    Ok(tail)
}

/// What building the index counts of a directory.
#[derive(Default)]
struct Counts {
    children: u64,
    subdirectories: u64,
    dead: u64,
    last_cookie: u64,
}

impl<M: Memories> Op<'_, M> {
    /// Makes sure that every entry of `dir` is in the index; one operation builds, others wait.
    pub(crate) fn ensure_indexed(&self, dir: Cachelet) -> Result<()> {
        let core = self.core;
        let mut tries = 0;
        while !core.has_flag(dir, flag::INDEXED) {
            if core.raise_flag(dir, flag::BUILDING) & flag::BUILDING != 0 {
                pause(&core.arena, &mut tries);
                continue;
            }
            if core.has_flag(dir, flag::INDEXED) {
                core.clear_flag(dir, flag::BUILDING);
                return Ok(());
            }
            let built = self.build_index(dir);
            if built.is_ok() {
                core.raise_flag(dir, flag::INDEXED);
            }
            core.clear_flag(dir, flag::BUILDING);
            built?;
        }
        Ok(())
    }

    /// The same for a change of `dir`: where the log ends and how many names there are is known, too.
    ///
    /// # Errors
    /// Names cannot be read, so that neither could be found out.
    pub(crate) fn ensure_counted(&self, dir: Cachelet) -> Result<()> {
        self.ensure_indexed(dir)?;
        if self.core.has_flag(dir, flag::COUNTED) {
            return Ok(());
        }
        self.check_names(dir)
    }

    fn is_alive(&self, entry: u64) -> bool {
        let at = self.core.geometry.slot_at(entry) + Entry::LIFE;
        LifeWord(self.core.word(at)).is_alive()
    }

    /// Puts every name of `dir` that can be read into the index.
    fn build_index(&self, dir: Cachelet) -> Result<()> {
        let core = self.core;
        let again = core.has_flag(dir, flag::COUNTED);
        let mut counts = Counts::default();
        let mut buffer = EntryBuffer::new();
        let root = core.get(dir, field::ROOT);
        let scanned = scan_log(core, core.ino(dir), root, &mut |logged| {
            let indexed = self.index_logged(dir, logged, &mut buffer, &mut counts, again);
            self.unless_damaged(dir, indexed)
        });
        // With bytes lost in the middle of it nothing is known, but the next time.
        let read = self.check_media();
        if self.is_unsure() {
            return read;
        }
        let tail = self.unless_damaged(dir, scanned.map(Some))?;
        self.unless_damaged(dir, read)?;
        let Some(tail) = tail.filter(|_| !again && self.check_names(dir).is_ok()) else {
            return Ok(());
        };
        core.set(dir, field::TAIL, tail.0);
        let generation = core.get(dir, field::DEAD) >> 32 << 32;
        core.set(dir, field::DEAD, generation | counts.dead);
        core.set(dir, field::LINKS, 2 + counts.subdirectories);
        core.set(dir, field::CHILDREN, counts.children * CHILD_ONE);
        core.raise_flag(dir, flag::COUNTED);
        Ok(())
    }

    /// Makes of damage in `dir` that the directory goes on without what is damaged.
    fn unless_damaged<T: Default>(&self, dir: Cachelet, result: Result<T>) -> Result<T> {
        match result {
            Err(error @ (Error::Damaged { .. } | Error::Unreadable(_))) => {
                self.do_without_names(dir, &error);
                Ok(T::default())
            }
            other => other,
        }
    }

    /// Puts the name that a word of the log names into the index, if it is one.
    fn index_logged(
        &self,
        dir: Cachelet,
        logged: Logged,
        buffer: &mut EntryBuffer,
        counts: &mut Counts,
        again: bool,
    ) -> Result<()> {
        let core = self.core;
        let (owner, entry) = (core.ino(dir), logged.word.entry());
        let head = *buffer.read(core, entry, owner)?;
        logged
            .cookies
            .check(entry, head.cookie, counts.last_cookie)?;
        counts.last_cookie = head.cookie;
        if !LifeWord(head.life).is_alive() {
            counts.dead += 1;
            return Ok(());
        }
        counts.children += 1;
        let target = TargetWord(head.target);
        let kind = target
            .kind()
            .ok_or(Error::damaged("entry kind", Place::Slot(entry)))?;
        if !core.is_inode_slot(target.ino()) {
            return Err(Error::damaged("entry names no inode", Place::Slot(entry)));
        }
        counts.subdirectories += u64::from(kind == vellum_layout::FileKind::Directory);
        let value = ValueWord::of_inode(target.ino(), kind);
        let name = Name {
            bytes: buffer.name(),
            hash: head.name_hash,
        };
        self.index_entry(owner, name, entry, value, again)
    }

    /// Puts the name of an entry that was alive into the index. `again`: the directory was indexed
    /// before, so operations that began then may still be at work on its names.
    fn index_entry(
        &self,
        owner: u64,
        name: Name<'_>,
        entry: u64,
        value: ValueWord,
        again: bool,
    ) -> Result<()> {
        let core = self.core;
        // A removal that had found the name before its eviction may just have ended: until it is
        // known that none has, lookups wait.
        let first = if again {
            value.with(ValueWord::RENAMING)
        } else {
            value
        };
        let mut tries = 0;
        loop {
            match core.index_insert(self, owner, name.bytes, name.hash, entry, first)? {
                Ok(new) if again && !self.is_alive(entry) => {
                    self.index_remove(new);
                    return Ok(());
                }
                Ok(new) if again => {
                    core.index_release(new, value);
                    return Ok(());
                }
                Ok(_) => return Ok(()),
                Err(there) if there.entry.entry() == entry => return Ok(()),
                // Replaced, or removed and made anew.
                Err(_) if again && !self.is_alive(entry) => return Ok(()),
                Err(there) if again && !there.value.is_settled() => {
                    // A creation that will be taken back, because the index was incomplete.
                    pause(&core.arena, &mut tries);
                }
                Err(_) => {
                    return Err(Error::damaged(
                        "two entries of one name",
                        Place::Slot(entry),
                    ));
                }
            }
        }
    }
}
