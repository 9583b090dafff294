//! The cost model: the cost of a request on either path, and the price of a page table.
//!
//! The paper's C_sw and C_mmu are per page. Here a request has a fixed part too, because a search
//! of many blocks at once is cheaper for each. Both contain the copy, as the paper's do. The
//! paper's C_bt is one number; here it is the price of a [`Layout`].

use std::fmt;

use zerocopy::{FromBytes, IntoBytes};

/// The composition of a piece of a file.
///
/// ```
/// use vellum::reading::{Costs, Layout};
///
/// let costs = Costs { run_ps: 2_000_000, small_page_ps: 100_000, ..Costs::default() };
/// let layout = Layout { runs: 3, small_pages: 40, ..Layout::default() };
/// assert_eq!(costs.price_ps(layout), 10_000_000);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Blocks to look up before anything can be mapped.
    pub looked_up: u64,
    /// Runs of blocks that lie side by side in the pool: each costs a system call.
    pub runs: u64,
    /// Blocks with a translation of their own.
    pub small_pages: u64,
    /// Pieces of 2 MiB, aligned in pool and file, with a single translation.
    pub large_pages: u64,
}

/// The costs of reading on this machine, in picoseconds.
///
/// ```
/// use vellum::reading::Costs;
///
/// let of_the_paper = Costs {
///     search_page_ps: 1_800_000,
///     mmu_page_ps: 800_000,
///     run_ps: 21_600_000,
///     ..Costs::default()
/// };
/// assert_eq!(of_the_paper.threshold_pages(), 12);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes)]
#[repr(C)]
pub struct Costs {
    /// A request by search, without its pages.
    pub search_request_ps: i64,
    /// A page of a request by search: search and copy.
    pub search_page_ps: i64,
    /// A request through the page table, without its pages.
    pub mmu_request_ps: i64,
    /// A page of a request through the page table: translation and copy.
    pub mmu_page_ps: i64,
    /// Looking a block up for the page table.
    pub look_up_ps: u64,
    /// Mapping a run.
    pub run_ps: u64,
    /// Filling in the translation of a block.
    pub small_page_ps: u64,
    /// Filling in the translation of a large page.
    pub large_page_ps: u64,
}

impl Costs {
    /// C_sw: the cost of a request of `pages` by search.
    ///
    /// ```
    /// # use vellum::reading::{Costs, Layout, Rule, simulate};
    /// # let (search_page_ps, mmu_page_ps, run_ps) = (1_800_000, 800_000, 21_600_000);
    /// # let costs = Costs { search_page_ps, mmu_page_ps, run_ps, ..Costs::default() };
    /// assert_eq!(costs.search_ps(10), 18_000_000); // with the costs of the paper
    /// ```
    pub fn search_ps(&self, pages: u64) -> u64 {
        part(self.search_request_ps, self.search_page_ps, pages)
    }

    /// C_mmu: the cost of a request of `pages` through the page table.
    ///
    /// ```
    /// # use vellum::reading::{Costs, Layout, Rule, simulate};
    /// # let (search_page_ps, mmu_page_ps, run_ps) = (1_800_000, 800_000, 21_600_000);
    /// # let costs = Costs { search_page_ps, mmu_page_ps, run_ps, ..Costs::default() };
    /// assert_eq!(costs.mmu_ps(10), 8_000_000); // with the costs of the paper
    /// ```
    pub fn mmu_ps(&self, pages: u64) -> u64 {
        part(self.mmu_request_ps, self.mmu_page_ps, pages)
    }

    /// What the page table saves for a request of `pages`; 0 if it saves nothing.
    ///
    /// ```
    /// # use vellum::reading::{Costs, Layout, Rule, simulate};
    /// # let (search_page_ps, mmu_page_ps, run_ps) = (1_800_000, 800_000, 21_600_000);
    /// # let costs = Costs { search_page_ps, mmu_page_ps, run_ps, ..Costs::default() };
    /// assert_eq!(costs.saving_ps(10), costs.search_ps(10) - costs.mmu_ps(10));
    /// ```
    pub fn saving_ps(&self, pages: u64) -> u64 {
        self.search_ps(pages).saturating_sub(self.mmu_ps(pages))
    }

    /// Whether a page table saves anything for some requests.
    ///
    /// ```
    /// # use vellum::reading::{Costs, Layout, Rule, simulate};
    /// # let (search_page_ps, mmu_page_ps, run_ps) = (1_800_000, 800_000, 21_600_000);
    /// # let costs = Costs { search_page_ps, mmu_page_ps, run_ps, ..Costs::default() };
    /// assert!(costs.may_pay()); // with the costs of the paper
    /// assert!(!Costs { mmu_page_ps: 2_000_000, ..costs }.may_pay());
    /// ```
    pub fn may_pay(&self) -> bool {
        self.saving_ps(1) > 0 || self.search_page_ps > self.mmu_page_ps
    }

    /// The price of a page table of this layout.
    ///
    /// ```
    /// # use vellum::reading::{Costs, Layout, Rule, simulate};
    /// # let (search_page_ps, mmu_page_ps, run_ps) = (1_800_000, 800_000, 21_600_000);
    /// # let costs = Costs { search_page_ps, mmu_page_ps, run_ps, ..Costs::default() };
    /// let two_runs = Layout { runs: 2, ..Layout::default() };
    /// assert_eq!(costs.price_ps(two_runs), 2 * costs.run_ps);
    /// ```
    pub fn price_ps(&self, layout: Layout) -> u64 {
        layout.looked_up * self.look_up_ps
            + layout.runs * self.run_ps
            + layout.small_pages * self.small_page_ps
            + layout.large_pages * self.large_page_ps
    }

    /// The minimum price of a page table of `blocks`.
    ///
    /// ```
    /// # use vellum::reading::{Costs, Layout, Rule, simulate};
    /// # let (search_page_ps, mmu_page_ps, run_ps) = (1_800_000, 800_000, 21_600_000);
    /// # let costs = Costs { search_page_ps, mmu_page_ps, run_ps, ..Costs::default() };
    /// let scattered = Layout { looked_up: 512, runs: 512, small_pages: 512, ..Layout::default() };
    /// assert!(costs.least_price_ps(512) < costs.price_ps(scattered));
    /// ```
    pub fn least_price_ps(&self, blocks: u64) -> u64 {
        let fill_in = self.large_page_ps.min(self.small_page_ps * blocks);
        blocks * self.look_up_ps + self.run_ps + fill_in
    }

    /// C_bt as the paper calculates it: the cost of a page table entry.
    ///
    /// ```
    /// # use vellum::reading::{Costs, Layout, Rule, simulate};
    /// # let (search_page_ps, mmu_page_ps, run_ps) = (1_800_000, 800_000, 21_600_000);
    /// # let costs = Costs { search_page_ps, mmu_page_ps, run_ps, ..Costs::default() };
    /// assert_eq!(costs.table_ps(), 21_600_000); // with the costs of the paper
    /// ```
    pub fn table_ps(&self) -> u64 {
        self.look_up_ps + self.run_ps + self.small_page_ps
    }

    /// T of the paper's equations (1) and (2): the number of pages that are searched for before a
    /// page table is built.
    ///
    /// ```
    /// # use vellum::reading::{Costs, Layout, Rule, simulate};
    /// # let (search_page_ps, mmu_page_ps, run_ps) = (1_800_000, 800_000, 21_600_000);
    /// # let costs = Costs { search_page_ps, mmu_page_ps, run_ps, ..Costs::default() };
    /// assert_eq!(costs.threshold_pages(), 12); // with the costs of the paper
    /// ```
    pub fn threshold_pages(&self) -> u64 {
        self.table_ps() / self.search_ps(1).max(1)
    }

    /// 1 + epsilon, with epsilon from the paper's equation (6). Compares with an optimum that
    /// builds the page table at once if more than T pages are read, which is not always best.
    ///
    /// ```
    /// # use vellum::reading::{Costs, Layout, Rule, simulate};
    /// # let (search_page_ps, mmu_page_ps, run_ps) = (1_800_000, 800_000, 21_600_000);
    /// # let costs = Costs { search_page_ps, mmu_page_ps, run_ps, ..Costs::default() };
    /// assert!((costs.paper_ratio() - 1.375).abs() < 1e-9); // with the costs of the paper
    /// ```
    pub fn paper_ratio(&self) -> f64 {
        let (table, search, mmu) = self.reckoned();
        let pages = self.threshold_pages() as f64;
        1.0 + (search - mmu).max(0.0) / (table + mmu * (pages + 1.0)) * pages
    }

    /// The ratio compared with the true optimum: with T + 1 pages it may be better to search for
    /// all.
    ///
    /// ```
    /// # use vellum::reading::{Costs, Layout, Rule, simulate};
    /// # let (search_page_ps, mmu_page_ps, run_ps) = (1_800_000, 800_000, 21_600_000);
    /// # let costs = Costs { search_page_ps, mmu_page_ps, run_ps, ..Costs::default() };
    /// assert!(costs.worst_ratio() > costs.paper_ratio());
    /// ```
    pub fn worst_ratio(&self) -> f64 {
        let (table, search, mmu) = self.reckoned();
        let pages = self.threshold_pages() as f64;
        let paid = search * pages + table + mmu;
        let best = (search * (pages + 1.0)).min(table + mmu * (pages + 1.0));
        paid / best.max(1.0)
    }

    fn reckoned(&self) -> (f64, f64, f64) {
        (
            self.table_ps() as f64,
            self.search_ps(1) as f64,
            self.mmu_ps(1) as f64,
        )
    }
}

fn part(request: i64, page: i64, pages: u64) -> u64 {
    let pages = i64::try_from(pages).unwrap_or(i64::MAX);
    let cost = page.saturating_mul(pages).saturating_add(request);
    u64::try_from(cost).unwrap_or(0)
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = |ps: u64| ps as f64 / 1000.0;
        write!(
            f,
            "search {:.0} ns, page table {:.0} ns a page; building {:.0} ns an entry",
            ns(self.search_ps(1)),
            ns(self.mmu_ps(1)),
            ns(self.table_ps())
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The costs that the paper estimated for its machine.
    pub(super) fn of_the_paper() -> Costs {
        Costs {
            search_page_ps: 1_800_000,
            mmu_page_ps: 800_000,
            run_ps: 21_600_000,
            ..Costs::default()
        }
    }

    #[test]
    fn the_papers_numbers_are_reproduced() {
        let costs = of_the_paper();
        assert_eq!(costs.threshold_pages(), 12);
        assert!((costs.paper_ratio() - 1.375).abs() < 1e-9);
    }

    /// The paper's optimum builds the table for 13 pages, at 32.0 us; searching takes 23.4 us.
    #[test]
    fn the_papers_ratio_is_not_against_the_true_optimum() {
        let costs = of_the_paper();
        let paid = 12.0 * 1800.0 + 21_600.0 + 800.0;
        assert!((costs.worst_ratio() - paid / (13.0 * 1800.0)).abs() < 1e-9);
        assert!(costs.worst_ratio() > 1.8);
    }

    #[test]
    fn the_cost_of_a_request_is_never_negative() {
        let odd = Costs {
            search_request_ps: -5000,
            search_page_ps: 1000,
            mmu_page_ps: 900,
            ..Costs::default()
        };
        assert_eq!(odd.search_ps(1), 0);
        assert_eq!(odd.saving_ps(1), 0);
        assert_eq!(odd.saving_ps(100), 5000);
        assert!(odd.may_pay());
    }
}
