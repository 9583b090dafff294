//! Reading (AFPT): by searching the file's mapping for each block, or through addresses of our own
//! at which the file's blocks lie side by side, so that the processor translates.
//!
//! [`cost`] measures both paths and the price of the second, [`switch`] decides for which piece of
//! a file it is paid, [`table`] holds what was paid for, [`pattern`] tells files that are read on
//! and on from those that are looked at once. [`lease`] keeps writers from bytes that somebody
//! looks at in place. Which blocks a file has is none of this room's business: `fs` looks them up
//! and lays them.
//!
//! What was measured is in the arena ([`kept`]), for all who have the pool open. Whether a file was
//! read on and on is a bit of its inode. All else is private to the process and lost with it.
//! `docs/decisions/0006-when-the-mmu-pays.md` argues the design.
//!
//! Deviations from the paper, whose file systems are in the kernel: a page table is bought piece by
//! piece ([`table::CHUNK_BLOCKS`]), because each piece costs system calls; the price is that of the
//! piece's layout; and blocks that a file gets later come into the table when *they* pay, not when
//! they are written, because a system call costs several times what the write does.

mod cost;
mod kept;
mod pattern;
mod switch;
pub(crate) mod table;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use vellum_layout::{BLOCK_BYTES, Inode};
use vellum_media::{MediaKind, Memories, Memory};

use crate::core::Core;
use crate::core::cachelet::{Cachelet, field, flag};

pub use cost::{Costs, Layout};
use pattern::{ASSUMED_THRESHOLD_PAGES, Identification};
pub(crate) use pattern::{Pattern, pages_of};
pub(crate) use switch::State;
pub use switch::{Outcome, Rule, simulate};
use table::{CHUNK_BYTES, Table};

/// Pages that are read by an opening before [`Rule::Layout`] reckons anything for it: most openings
/// end before. The paper's rule needs no such number, it waits for T pages.
const FIRST_PAGES: u64 = 64;
/// Pages of files that are read before both paths are measured, which takes about as long: by a
/// file of a piece or more.
const MEASURE_PAGES: u64 = 8192;
/// The same by a smaller file, which tells less of what large ones cost: only if there seem to be
/// none.
const MEASURE_SMALL_PAGES: u64 = kept::COUNTED_PAGES_MAX;
/// Blocks without a hole that a file needs for the paths to be measured by it: a long request.
pub(crate) const MEASURED_BLOCKS_MIN: u64 = 16;

/// What a file system knows about reading.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    rule: AtomicU8,
    /// A copy of what the arena keeps, as soon as it does.
    costs: OnceLock<Costs>,
    measuring: Mutex<()>,
    tables: Mutex<HashMap<Cachelet, Weak<Table>>>,
}

impl Reading {
    /// For this memory: what is simulated searches, unless it is told otherwise, so that runs
    /// repeat.
    pub(crate) fn new(kind: MediaKind) -> Self {
        let reading = Self::default();
        reading.set_rule(match kind {
            MediaKind::Sim => Rule::Search,
            _ => Rule::default(),
        });
        reading
    }

    /// Which rule decides.
    pub(crate) fn rule(&self) -> Rule {
        Rule::ALL[usize::from(self.rule.load(Ordering::Relaxed))]
    }

    /// Lets another rule decide.
    pub(crate) fn set_rule(&self, rule: Rule) {
        self.rule.store(rule as u8, Ordering::Relaxed);
    }

    /// What was measured, or set.
    #[inline]
    pub(crate) fn costs<A: Memory>(&self, arena: &A) -> Option<&Costs> {
        match self.costs.get() {
            Some(costs) => Some(costs),
            None => {
                let kept = kept::costs(arena)?;
                Some(self.costs.get_or_init(|| kept))
            }
        }
    }

    /// Says what reading costs, unless that was measured or said before; gives what holds. If it
    /// cannot be measured, it is tried again when as much was read once more.
    pub(crate) fn learn<A: Memory>(
        &self,
        arena: &A,
        measure: impl FnOnce() -> Option<Costs>,
    ) -> Option<Costs> {
        // One measurement at a time: two would disturb each other.
        let _alone = self
            .measuring
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = self.costs(arena) {
            return Some(*known);
        }
        let Some(costs) = measure() else {
            kept::restart_counts(arena);
            return None;
        };
        kept::keep(arena, costs);
        let held = || kept::costs(arena).unwrap_or(costs);
        Some(*self.costs.get_or_init(held))
    }

    /// Whether the costs, which are not known, are to be measured now by a file of `size` bytes.
    #[inline]
    fn is_due<A: Memory>(&self, arena: &A, size: u64) -> bool {
        let wanted = match size {
            0..CHUNK_BYTES => MEASURE_SMALL_PAGES,
            _ => MEASURE_PAGES,
        };
        size >= MEASURED_BLOCKS_MIN * BLOCK_BYTES
            && kept::pages(arena) >= wanted
            && self.measuring.try_lock().is_ok()
    }

    /// The table of a file, shared by all who have it open.
    fn table_of(&self, file: Cachelet, size: u64) -> Option<Arc<Table>> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = tables.get(&file).and_then(Weak::upgrade)
            && table.covers(size)
        {
            return Some(table);
        }
        tables.retain(|_, table| table.strong_count() > 0);
        let made = Arc::new(Table::for_size(size)?);
        tables.insert(file, Arc::downgrade(&made));
        Some(made)
    }
}

/// What one opening of a file has read, and its page table.
#[derive(Debug, Default)]
pub(crate) struct ReadPath {
    seen: Identification,
    table: OnceLock<Arc<Table>>,
}

/// What a file's page table has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageTable {
    /// Blocks that lie in it.
    pub blocks: u64,
    /// Whether nothing is laid any more: the process has no areas left, or the system refused.
    pub gave_up: bool,
}

/// What a request is to do before it reads.
pub(crate) enum Next<'a> {
    /// Search.
    Search,
    /// Have both paths measured by this file, then search.
    Measure,
    /// Look at the table; the file is used like this.
    Look(&'a Table, &'a Costs, Pattern),
}

impl ReadPath {
    /// Counts a request of `pages` to a file, and says what comes next by a rule.
    #[inline]
    pub(crate) fn next<'a, M: Memories>(
        &'a self,
        (reading, rule): (&'a Reading, Rule),
        core: &Core<M>,
        file: Cachelet,
        pages: u64,
    ) -> Next<'a> {
        let touched = self.seen.touch(pages);
        let is_early = rule == Rule::Layout && touched < FIRST_PAGES;
        if rule == Rule::Search || is_early || core.read_only {
            return Next::Search;
        }
        let size = core.get(file, field::SIZE);
        let Some(costs) = reading.costs(&core.arena) else {
            kept::count(&core.arena, touched - pages, touched);
            return if reading.is_due(&core.arena, size) {
                Next::Measure
            } else {
                Next::Search
            };
        };
        if rule != Rule::Mmu && !costs.may_pay() {
            return Next::Search;
        }
        // What the last opening was like says what this one will be like. Only the paper's rule
        // believes it: the other's bound holds for openings that are like none before.
        let pattern = match rule {
            Rule::Threshold if core.has_flag(file, flag::CONTINUOUS) => Pattern::Continuous,
            Rule::Threshold => self.seen.so_far(costs.threshold_pages()),
            _ => Pattern::Unknown,
        };
        if rule == Rule::Threshold && pattern != Pattern::Continuous {
            return Next::Search;
        }
        match self.table(reading, file, size) {
            Some(table) => Next::Look(table, costs, pattern),
            None => Next::Search,
        }
    }

    /// Counts pages that are touched by a write: they make a pattern as those do that are read.
    pub(crate) fn touch(&self, pages: u64) {
        self.seen.touch(pages);
    }

    /// What the page table has come to that this opening uses; nothing while it uses none.
    pub(crate) fn page_table(&self) -> PageTable {
        let Some(mut table) = self.table.get() else {
            return PageTable::default();
        };
        while let Some(larger) = table.larger().get() {
            table = larger;
        }
        table.summary()
    }

    /// Remembers in the inode how the file was used, for the next opening: one store if that is
    /// another way than before. Not flushed: nothing relies on it.
    pub(crate) fn remember<M: Memories>(&self, reading: &Reading, core: &Core<M>, file: Cachelet) {
        let pages = self.seen.pages();
        let costs = reading.costs(&core.arena);
        if costs.is_none() && reading.rule() != Rule::Search {
            kept::count_rest(&core.arena, pages);
        }
        let threshold = costs.map_or(ASSUMED_THRESHOLD_PAGES, Costs::threshold_pages);
        let is_continuous = self.seen.at_close(threshold) == Pattern::Continuous;
        if pages == 0 || core.has_flag(file, flag::CONTINUOUS) == is_continuous {
            return;
        }
        let Ok(_op) = core.op_to_change() else {
            return;
        };
        let word = if is_continuous { Inode::CONTINUOUS } else { 0 };
        core.set_word(core.inode_at(file) + Inode::PATTERN, word);
        if is_continuous {
            core.raise_flag(file, flag::CONTINUOUS);
        } else {
            core.clear_flag(file, flag::CONTINUOUS);
        }
    }

    /// The table; another one once the file has outgrown it.
    fn table(&self, reading: &Reading, file: Cachelet, size: u64) -> Option<&Table> {
        let mut place = &self.table;
        loop {
            let table = match place.get() {
                Some(table) => table,
                None => {
                    let made = reading.table_of(file, size)?;
                    place.get_or_init(|| made)
                }
            };
            if table.covers(size) {
                return Some(table);
            }
            place = table.larger();
        }
    }
}
