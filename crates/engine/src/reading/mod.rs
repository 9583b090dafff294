//! Reading (AFPT): by searching the file's mapping for each block, or through a range of addresses
//! at which the file's blocks lie side by side, so that the processor translates.
//!
//! `cost` measures both paths and the price of the second. `switch` decides for which piece of
//! a file that price is paid, and `table` holds these pieces. `pattern` distinguishes files
//! that are read continuously from those that are read once. The caller, `fs`, looks up the blocks
//! of a file and maps them.
//!
//! The measured costs are in the arena (`kept`), for all processes that have the pool open.
//! Whether a file was read continuously is a bit of its inode. All else is private to the process
//! and lost with it. `docs/decisions/0006-when-the-mmu-pays.md` argues the design.
//!
//! Deviations from the paper, whose file systems are in the kernel: a page table is bought piece by
//! piece (`table::CHUNK_BLOCKS`), because each piece costs system calls; the price is that of the
//! piece's layout; and blocks that a file gets later enter the table when *they* pay, not when they
//! are written, because a system call costs several times what the write does.

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

/// Pages that an opening reads before [`Rule::Layout`] calculates anything for it: most openings
/// end before. The paper's rule needs no such number, as it waits for T pages.
const FIRST_PAGES: u64 = 64;
/// Pages of files that are read before a file of at least one piece measures both paths, which
/// takes about as long.
const MEASURE_PAGES: u64 = 8192;
/// Pages before a smaller file measures them. It predicts the costs of large files less well, so
/// this happens only if there seem to be none.
const MEASURE_SMALL_PAGES: u64 = kept::COUNTED_PAGES_MAX;
/// Minimum number of blocks, without holes, of a file that measures the paths: a long request.
pub(crate) const MEASURED_BLOCKS_MIN: u64 = 16;

/// What a file system knows about reading.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    rule: AtomicU8,
    /// A copy of the arena's costs, once these exist.
    costs: OnceLock<Costs>,
    measuring: Mutex<()>,
    tables: Mutex<HashMap<Cachelet, Weak<Table>>>,
}

impl Reading {
    /// Creates the state for this kind of memory. On simulated memory files are searched, unless
    /// another rule is set, so that runs are repeatable.
    pub(crate) fn new(kind: MediaKind) -> Self {
        let reading = Self::default();
        reading.set_rule(match kind {
            MediaKind::Sim => Rule::Search,
            _ => Rule::default(),
        });
        reading
    }

    /// The rule that decides.
    pub(crate) fn rule(&self) -> Rule {
        Rule::ALL[usize::from(self.rule.load(Ordering::Relaxed))]
    }

    /// Sets the rule that decides.
    pub(crate) fn set_rule(&self, rule: Rule) {
        self.rule.store(rule as u8, Ordering::Relaxed);
    }

    /// The costs that were measured or set.
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

    /// Sets the costs to the result of `measure`, unless they are already known. Returns the valid
    /// costs. If measuring fails, it is tried again after as many pages were read once more.
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

    /// Whether the costs, which are unknown, should be measured now by a file of `size` bytes.
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

    /// The table of a file, shared by all its openings.
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

/// The state of a file's page table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageTable {
    /// Number of blocks in the page table.
    pub blocks: u64,
    /// Whether no more blocks are added: the process has no memory areas left, or the system
    /// refused.
    pub gave_up: bool,
}

/// What a request does before it reads.
pub(crate) enum Next<'a> {
    /// Searches.
    Search,
    /// Has both paths measured by this file, then searches.
    Measure,
    /// Consults the table. The pattern is how the file is used.
    Look(&'a Table, &'a Costs, Pattern),
}

impl ReadPath {
    /// Counts a request of `pages` to a file, and decides the next step by a rule.
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
        // The last opening predicts this one, but only for the paper's rule: the bound of the
        // layout rule holds even if this opening differs from all before.
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

    /// Counts pages that a write touches. They form a pattern as pages that are read do.
    pub(crate) fn touch(&self, pages: u64) {
        self.seen.touch(pages);
    }

    /// The state of the page table that this opening uses; empty if it uses none.
    pub(crate) fn page_table(&self) -> PageTable {
        let Some(mut table) = self.table.get() else {
            return PageTable::default();
        };
        while let Some(larger) = table.larger().get() {
            table = larger;
        }
        table.summary()
    }

    /// Records in the inode how the file was used, for the next opening: one store if that has
    /// changed. Not flushed, because nothing relies on it.
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

    /// The table, replaced once the file has outgrown it.
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
