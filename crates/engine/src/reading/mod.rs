//! Reading (AFPT): by searching the file's mapping for each block, or through addresses of our own
//! at which the file's blocks lie side by side, so that the processor translates.
//!
//! [`cost`] measures both roads and the price of the second, [`switch`] decides for which piece of a
//! file it is paid, [`table`] holds what was paid for, [`pattern`] tells files that are read on and
//! on from those that are looked at once. [`lease`] keeps writers
//! from bytes that somebody looks at in place. Which blocks a
//! file has is none of this room's business: `fs` looks them up and lays them.
//!
//! All of this is private to the process and lost with it, but for one bit of an inode: whether the
//! file was read on and on. `docs/decisions/0006-when-the-mmu-pays.md` argues the design.
//!
//! Deviations from the paper, whose file systems are in the kernel: a page table is bought piece by
//! piece ([`table::CHUNK_BLOCKS`]), because each piece costs system calls; the price is that of the
//! piece's layout; and blocks that a file gets later come into the table when *they* pay, not when
//! they are written, because a system call costs several times what the write does.

mod cost;
pub(crate) mod lease;
mod pattern;
mod switch;
pub(crate) mod table;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use vellum_layout::Inode;
use vellum_media::{MediaKind, Memories};

use crate::cachelet::{Cachelet, field, flag};
use crate::core::Core;

pub use cost::{Costs, Layout};
use pattern::at_close;
pub(crate) use pattern::pages_of;
pub use pattern::{Identification, Pattern, Touch};
pub(crate) use switch::State;
pub use switch::{Outcome, Rule, simulate};
use table::Table;

/// Pages that are read by an opening before anything is reckoned for it: most openings end
/// before.
const FIRST_PAGES: u64 = 64;
/// Pages that are read by an opening before both roads are measured, which takes about as long.
const MEASURE_PAGES: u64 = 8192;

/// What a file system knows about reading.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    rule: AtomicU8,
    costs: OnceLock<Option<Costs>>,
    measuring: Mutex<()>,
    tables: Mutex<HashMap<Cachelet, Weak<Table>>>,
}

impl Reading {
    /// For this memory: what is simulated searches, unless it is told otherwise, so that runs repeat.
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
    pub(crate) fn costs(&self) -> Option<&Costs> {
        self.costs.get()?.as_ref()
    }

    /// Says what reading costs, unless that was measured or said before; gives what holds.
    pub(crate) fn learn(&self, measure: impl FnOnce() -> Option<Costs>) -> Option<Costs> {
        if let Some(known) = self.costs.get() {
            return *known;
        }
        // One measurement at a time: two would disturb each other.
        let _alone = self
            .measuring
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *self.costs.get_or_init(measure)
    }

    /// Whether the costs are still to be measured, and by an opening that has read this much.
    fn is_due(&self, pages: u64) -> bool {
        let waits = pages >= MEASURE_PAGES && self.costs.get().is_none();
        waits && self.measuring.try_lock().is_ok()
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
pub(crate) struct Road {
    /// Pages touched. Counted without a locked instruction: threads that share the opening may lose
    /// a few.
    pages: AtomicU64,
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
    /// Have both roads measured, then search.
    Measure,
    /// Look at the table; it is known beforehand that it pays, or not.
    Look(&'a Table, &'a Costs, bool),
}

impl Road {
    /// Counts a request of `pages` to a file of `size` bytes, and says what comes next.
    #[inline]
    pub(crate) fn next<'a, M: Memories>(
        &'a self,
        reading: &'a Reading,
        core: &Core<M>,
        file: Cachelet,
        pages: u64,
    ) -> Next<'a> {
        let touched = self.count(pages);
        let rule = reading.rule();
        // What the last opening was like says what this one will be like. Only the paper's rule
        // believes it: the other's bound holds for openings that are like none before.
        let at_once = match rule {
            Rule::Search => return Next::Search,
            Rule::Mmu => true,
            Rule::Threshold => core.has_flag(file, flag::CONTINUOUS),
            Rule::Layout => false,
        };
        if core.read_only || touched < FIRST_PAGES && !at_once {
            return Next::Search;
        }
        let Some(costs) = reading.costs() else {
            return if reading.is_due(touched) {
                Next::Measure
            } else {
                Next::Search
            };
        };
        if rule != Rule::Mmu && !costs.may_pay() {
            return Next::Search;
        }
        let size = core.get(file, field::SIZE);
        match self.table(reading, file, size) {
            Some(table) => Next::Look(table, costs, at_once),
            None => Next::Search,
        }
    }

    /// Counts pages that are touched; gives how many there were.
    pub(crate) fn count(&self, pages: u64) -> u64 {
        let touched = self.pages.load(Ordering::Relaxed) + pages;
        self.pages.store(touched, Ordering::Relaxed);
        touched
    }

    /// Pages touched by this opening.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
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
        let (pages, Some(costs)) = (self.pages(), reading.costs()) else {
            return;
        };
        let pattern = at_close(pages, costs.threshold_pages());
        let is_continuous = pattern == Pattern::Continuous;
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
