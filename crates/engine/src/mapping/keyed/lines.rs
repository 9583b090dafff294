//! Lines of entries. An entry is two words of one line: the key, which makes it valid, and the
//! place, which is stored before it.

use vellum_layout::{KeyedWord, MapState, MapWord, PAIRS_PER_LINE};
use vellum_media::{LINE_BYTES, Memories, Memory, Persistent, Site, count};

use crate::core::Core;
use crate::error::{Error, Location, Result};
use crate::sites;

/// Bytes of an entry.
pub(in crate::mapping) const ENTRY_BYTES: u64 = 16;
/// The words of a line that are keys, as bits of a result of `match_line`.
const KEYS: u8 = 0b0101_0101;

/// The lines of a table.
#[derive(Debug)]
pub(in crate::mapping) struct Lines {
    /// Pool offset of line 0.
    pub(in crate::mapping) at: u64,
    /// Data blocks that entries may name.
    pub(in crate::mapping) blocks: u64,
    /// Whether entries count their neighbours on the medium.
    pub(in crate::mapping) have_counts: bool,
}

/// An entry as a lookup found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mapping) struct Held {
    /// Its offset in the pool.
    pub(in crate::mapping) at: u64,
    pub(in crate::mapping) word: MapWord,
    pub(in crate::mapping) place: KeyedWord,
}

impl Held {
    /// Whether `next` is the file's next block in the same state, and adjoins on the medium.
    pub(in crate::mapping) fn is_before(&self, next: &Self) -> bool {
        self.word.0 + 1 == next.word.0 && self.place.block() + 1 == next.place.block()
    }
}

/// Whether an entry's first word holds a key of the table.
pub(in crate::mapping) fn is_live(word: MapWord) -> bool {
    matches!(word.state(), MapState::Unwritten | MapState::Mapped)
}

/// The first word of an entry that is claimed for a key but not filled. Readers and recovery ignore
/// it.
pub(in crate::mapping) fn mark(key: u64) -> u64 {
    (MapState::Limbo as u64) << 62 | key
}

impl Lines {
    pub(in crate::mapping) fn line_at(&self, line: u64) -> u64 {
        self.at + line * LINE_BYTES
    }

    /// The line of an entry.
    pub(in crate::mapping) fn line_of(&self, at: u64) -> u64 {
        (at - self.at) / LINE_BYTES
    }

    /// Whether an entry's check matches and its blocks exist.
    pub(in crate::mapping) fn is_sound(&self, held: &Held) -> bool {
        let last = u64::from(held.place.block()) + u64::from(held.place.following());
        let may_count = self.have_counts || !held.place.has_counts();
        held.place.is_of(held.word.0) && last < self.blocks && may_count
    }

    pub(in crate::mapping) fn unsound(at: u64) -> Error {
        Error::damaged("mapping entry", Location::Region("mapping table", at))
    }

    /// Searches a line for a key, `word`.
    pub(in crate::mapping) fn look_in<M: Memories>(
        &self,
        core: &Core<M>,
        key: u64,
        line: u64,
    ) -> Option<Held> {
        count::probe();
        let line_at = self.line_at(line);
        let mut hits = core.pool.match_line(line_at, MapWord::KEY_MASK, key) & KEYS;
        while hits != 0 {
            let at = line_at + u64::from(hits.trailing_zeros()) * 8;
            hits &= hits - 1;
            let word = MapWord(core.word(at));
            let place = KeyedWord(core.word(at + 8));
            let again = MapWord(core.word(at));
            if is_live(word) && word.0 & MapWord::KEY_MASK == key && again == word {
                return Some(Held { at, word, place });
            }
        }
        None
    }

    /// The free entries of a line: one bit for each, at its first word.
    pub(in crate::mapping) fn free_in<M: Memories>(&self, core: &Core<M>, line: u64) -> u8 {
        let line_at = self.line_at(line);
        core.pool.match_line(line_at, u64::MAX, MapWord::FREE.0) & KEYS
    }

    /// Claims a free entry of a line for a key, with the key's mark. Returns its offset.
    pub(in crate::mapping) fn claim_in<M: Memories>(
        &self,
        core: &Core<M>,
        line: u64,
        key: u64,
    ) -> Option<u64> {
        count::probe();
        let line_at = self.line_at(line);
        let mut free = self.free_in(core, line);
        while free != 0 {
            let at = line_at + u64::from(free.trailing_zeros()) * 8;
            free &= free - 1;
            let swapped = core.pool.compare_exchange(at, MapWord::FREE.0, mark(key));
            if swapped.is_ok() {
                return Some(at);
            }
        }
        None
    }

    /// Fills an entry that was claimed for a key. The place comes first: a reader that sees the key
    /// also sees the place, and so does the medium, because both are in one line.
    #[inline]
    #[track_caller]
    pub(in crate::mapping) fn fill_entry<M: Memories>(
        &self,
        core: &Core<M>,
        at: u64,
        word: MapWord,
        place: KeyedWord,
        flush: Option<Site>,
    ) {
        core.set_word(at + 8, place.0);
        core.pool.behind(sites::KEYED_WORD_BEHIND, at, &[at + 8]);
        core.set_word(at, word.0);
        if let Some(site) = flush {
            core.pool.flush(site, at, ENTRY_BYTES);
        }
    }

    /// Calls `each` with the used entries of a line.
    pub(in crate::mapping) fn each_in<M: Memories>(
        &self,
        core: &Core<M>,
        line: u64,
        mut each: impl FnMut(Held) -> Result<()>,
    ) -> Result<()> {
        let words = core.pool.load_line(self.line_at(line));
        for (i, pair) in (0..PAIRS_PER_LINE).zip(words.chunks_exact(2)) {
            let held = Held {
                at: self.line_at(line) + i * ENTRY_BYTES,
                word: MapWord(pair[0]),
                place: KeyedWord(pair[1]),
            };
            if held.word != MapWord::FREE {
                each(held)?;
            }
        }
        Ok(())
    }
}
