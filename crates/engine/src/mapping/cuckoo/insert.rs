//! Finding an entry for a new key: a free one in its lines, or one that other keys free by moving,
//! each to its other line, or one of the stash.
//!
//! A short path to a free entry is searched breadth first, in this operation's own memory; then the
//! moves are made from its far end. Each is durable by itself: the copy, a fence, then the old
//! entry, a fence, all under the stripe of the moving key. So a crash leaves the entry in one place
//! or in both, and once a move is over, no old copy can reappear after later changes. The entry
//! that a move leaves is marked for the new key at once, so that no other key can claim it.

use vellum_layout::{KeyedWord, MapWord, PAIRS_PER_LINE};
use vellum_media::{Memories, Memory, Persistent, Site};

use super::table::{Key, Table};
use crate::core::Core;
use crate::core::slots::Op;
use crate::error::{Error, Result};
use crate::mapping::keyed::lines::{ENTRY_BYTES, is_live, mark};
use crate::mapping::keyed::moves::MoveSites;
use crate::sites;

/// Lines searched for a path: both lines of the key, and those within three moves.
const NODES_MAX: usize = 2 + 8 + 32 + 128;
/// Maximum number of moves of a path.
const MOVES_MAX: usize = 4;
/// Paths spoilt by other operations before the stash is used.
const WAYS_MAX: u32 = 16;

const SITES: MoveSites = MoveSites {
    copy: sites::CUCKOO_COPY,
    copy_durable: sites::CUCKOO_COPY_DURABLE,
    leave: sites::CUCKOO_LEAVE,
    leave_durable: sites::CUCKOO_LEAVE_DURABLE,
};

/// A line in the search for a path. The entry `place` in the line of node `from` could move to it.
#[derive(Clone, Copy, Default)]
struct Node {
    line: u64,
    from: u16,
    place: u8,
}

/// Entries to move: the first into `free_line`, each other into the previous one's entry.
struct Way {
    free_line: u64,
    entries: [u64; MOVES_MAX],
    moves: usize,
}

impl Table {
    /// Inserts a key that is not there.
    ///
    /// # Errors
    /// Fails with [`Error::NoSpace`] if there is no path and the stash is full. Fails if bytes were
    /// lost.
    pub(super) fn insert<M: Memories>(
        &self,
        op: &Op<'_, M>,
        key: &Key,
        word: MapWord,
        place: KeyedWord,
        flush: Option<Site>,
    ) -> Result<()> {
        let at = self.claim(op, key)?;
        self.lines.fill_entry(op.core, at, word, place, flush);
        Ok(())
    }

    fn claim<M: Memories>(&self, op: &Op<'_, M>, key: &Key) -> Result<u64> {
        let core = op.core;
        for _ in 0..WAYS_MAX {
            let free = key
                .homes
                .iter()
                .find_map(|&line| self.lines.claim_in(core, line, key.word));
            if let Some(at) = free {
                return Ok(at);
            }
            let made = self.moves.moving(core, || {
                let way = self.find_way(core, key)?;
                Some(self.make_room(op, key, &way))
            });
            match made.transpose()? {
                Some(Some(at)) => return Ok(at),
                // Another operation changed entries of the path.
                Some(None) => {}
                None => break,
            }
        }
        self.claim_in_stash(core, key)
    }

    #[cold]
    fn claim_in_stash<M: Memories>(&self, core: &Core<M>, key: &Key) -> Result<u64> {
        // The count is raised before any lookup can need it.
        core.arena.fetch_add(self.stashed_at, 1);
        let claimed = self
            .stash()
            .find_map(|line| self.lines.claim_in(core, line, key.word));
        claimed.ok_or_else(|| {
            core.arena.fetch_add(self.stashed_at, u64::MAX);
            Error::NoSpace("mapping table")
        })
    }

    /// Finds a shortest path from the lines of a key to one with a free entry.
    fn find_way<M: Memories>(&self, core: &Core<M>, key: &Key) -> Option<Way> {
        let mut nodes = [Node::default(); NODES_MAX];
        for (node, line) in nodes.iter_mut().zip(key.homes) {
            node.line = line;
        }
        let (mut looked, mut known) = (0, 2);
        while looked < known {
            let line = nodes[looked].line;
            for place in 0..PAIRS_PER_LINE {
                let at = self.lines.line_at(line) + place * ENTRY_BYTES;
                let word = MapWord(core.word(at));
                let Some(other) = self.other_home(word, line) else {
                    continue;
                };
                let node = Node {
                    line: other,
                    from: looked as u16,
                    place: place as u8,
                };
                if self.lines.free_in(core, other) != 0 {
                    return Some(self.way_to(&nodes, node));
                }
                if known < NODES_MAX {
                    nodes[known] = node;
                    known += 1;
                }
            }
            looked += 1;
        }
        None
    }

    /// The line that an entry of `line` could move to.
    fn other_home(&self, word: MapWord, line: u64) -> Option<u64> {
        if !is_live(word) {
            return None;
        }
        match self.key_of(word).homes {
            [first, second] if first == line => Some(second),
            [first, second] if second == line => Some(first),
            _ => None,
        }
    }

    /// The path that ends with a move to `last`.
    fn way_to(&self, nodes: &[Node], last: Node) -> Way {
        let mut way = Way {
            free_line: last.line,
            entries: [0; MOVES_MAX],
            moves: 0,
        };
        let mut node = last;
        while let Some(entry) = way.entries.get_mut(way.moves) {
            let from = usize::from(node.from);
            *entry = self.lines.line_at(nodes[from].line) + u64::from(node.place) * ENTRY_BYTES;
            way.moves += 1;
            if from < 2 {
                break;
            }
            node = nodes[from];
        }
        way
    }

    /// Makes the moves of a path. Returns the entry that they free, marked for the key, or `None`
    /// if another operation was faster.
    fn make_room<M: Memories>(&self, op: &Op<'_, M>, key: &Key, way: &Way) -> Result<Option<u64>> {
        let Some(mut hold) = self.lines.claim_in(op.core, way.free_line, key.word) else {
            return Ok(None);
        };
        for &entry in &way.entries[..way.moves] {
            if !self.move_entry(op, key, entry, hold)? {
                op.core.set_word(hold, MapWord::FREE.0);
                op.core.pool.flush(sites::CUCKOO_ABANDON, hold, 8);
                return Ok(None);
            }
            hold = entry;
        }
        Ok(Some(hold))
    }

    /// Moves the contents of entry `from` to `to`, which is marked, and marks `from`. Returns
    /// `false`, with nothing changed, if the contents no longer belong in the line of `to`.
    fn move_entry<M: Memories>(
        &self,
        op: &Op<'_, M>,
        key: &Key,
        from: u64,
        to: u64,
    ) -> Result<bool> {
        let core = op.core;
        let line_of = |at: u64| self.lines.line_of(at);
        let word = MapWord(core.word(from));
        let mut lock = self.moves.lock(op, self.key_of(word).homes[0]);
        let now = MapWord(core.word(from));
        let same = now.0 & MapWord::KEY_MASK == word.0 & MapWord::KEY_MASK;
        if !same || self.other_home(now, line_of(from)) != Some(line_of(to)) {
            return Ok(false);
        }
        lock.move_entry(op, &self.lines, (from, to), mark(key.word), &SITES)?;
        Ok(true)
    }
}
