//! Adaptive switching (the paper's algorithm III.2): the rule by which a page table is bought, and
//! the rule's cost compared with an optimum that knows all requests beforehand.
//!
//! *Threshold* is the paper's rule: after T pages by search. *Layout* adds up the savings forgone
//! so far, and buys when a request would raise them to the price of this piece's layout. Both paths
//! share a cost that cannot be avoided. Of the avoidable cost, this rule pays less than twice what
//! the optimum pays:
//!
//! Let `s` be the saving forgone before a request, `x` what it could save, `P` the price. While `s
//! + x < P`, searching has cost `s + x`, and so it has cost the optimum, which either searches too
//! or pays `P`, which is more. The rule buys when `s + x >= P > s`: it has paid `s + P < 2 P`, and
//! the optimum pays `P` or, searching, at least `s + x >= P`. After that neither pays more.

use super::pattern::{Identification, Pattern};
use super::{Costs, Layout};

/// The rule that decides between search and page table.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// use vellum::reading::Rule;
///
/// pool.fs().set_read_rule(Rule::Search); // no page tables
/// pool.volume().write("/f", "text")?;
/// assert_eq!(pool.volume().read("/f")?, b"text");
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Rule {
    /// Always search.
    Search,
    /// Always the page table.
    Mmu,
    /// The paper's rule: after T pages.
    Threshold,
    /// When the forgone saving reaches the price of the layout.
    #[default]
    Layout,
}

impl Rule {
    /// All rules, by number.
    pub const ALL: [Self; 4] = [Self::Search, Self::Mmu, Self::Threshold, Self::Layout];

    /// The name on the command line and in JSON.
    ///
    /// ```
    /// assert_eq!(vellum::reading::Rule::default().name(), "layout");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Mmu => "mmu",
            Self::Threshold => "threshold",
            Self::Layout => "layout",
        }
    }

    /// The maximum ratio of the avoidable cost to the optimum's. `None` if no bound holds for every
    /// layout and all requests.
    ///
    /// ```
    /// use vellum::reading::Rule;
    ///
    /// assert_eq!(Rule::Layout.avoidable_bound(), Some(2.0));
    /// assert_eq!(Rule::Threshold.avoidable_bound(), None);
    /// ```
    pub fn avoidable_bound(self) -> Option<f64> {
        match self {
            Self::Layout => Some(2.0),
            Self::Search | Self::Mmu | Self::Threshold => None,
        }
    }
}

/// What is known about a piece of a file when a request comes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct State {
    /// How the file is used, judged from the requests up to this one.
    pub(crate) pattern: Pattern,
    /// What a page table would have saved so far.
    pub(crate) forgone_ps: u64,
    /// What it would save for this request.
    pub(crate) saving_ps: u64,
    /// The price of the page table.
    pub(crate) price_ps: u64,
}

impl Rule {
    /// Whether the rule buys the page table before this request.
    pub(crate) fn buys(self, state: State) -> bool {
        match self {
            Self::Search => false,
            Self::Mmu => true,
            Self::Threshold => state.pattern == Pattern::Continuous,
            Self::Layout => {
                state.saving_ps > 0 && state.forgone_ps + state.saving_ps >= state.price_ps
            }
        }
    }
}

/// The result of a rule on a trace.
///
/// ```
/// # use vellum::reading::{Costs, Layout, Rule, simulate};
/// # let (search_page_ps, mmu_page_ps, run_ps) = (1_800_000, 800_000, 21_600_000);
/// # let costs = Costs { search_page_ps, mmu_page_ps, run_ps, ..Costs::default() };
/// let piece = Layout { runs: 1, ..Layout::default() };
/// let outcome = simulate(Rule::Search, &costs, piece, &[1; 100]);
/// assert_eq!((outcome.paid_ps, outcome.bought_after), (180_000_000, None));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The cost of the rule.
    pub paid_ps: u64,
    /// The cost of an optimum that knows the whole trace.
    pub best_ps: u64,
    /// The part of both costs that cannot be avoided.
    pub unavoidable_ps: u64,
    /// Number of requests before the page table was bought, if it was.
    pub bought_after: Option<usize>,
}

impl Outcome {
    /// Paid cost over optimal cost.
    ///
    /// ```
    /// # use vellum::reading::{Costs, Layout, Rule, simulate};
    /// # let (search_page_ps, mmu_page_ps, run_ps) = (1_800_000, 800_000, 21_600_000);
    /// # let costs = Costs { search_page_ps, mmu_page_ps, run_ps, ..Costs::default() };
    /// let piece = Layout { runs: 1, ..Layout::default() };
    /// let outcome = simulate(Rule::Mmu, &costs, piece, &[1]); // the table never pays
    /// assert!(outcome.ratio() > 10.0);
    /// ```
    pub fn ratio(&self) -> f64 {
        self.paid_ps as f64 / (self.best_ps as f64).max(1.0)
    }

    /// The ratio of the avoidable costs.
    ///
    /// ```
    /// # use vellum::reading::{Costs, Layout, Rule, simulate};
    /// # let (search_page_ps, mmu_page_ps, run_ps) = (1_800_000, 800_000, 21_600_000);
    /// # let costs = Costs { search_page_ps, mmu_page_ps, run_ps, ..Costs::default() };
    /// let piece = Layout { runs: 1, ..Layout::default() };
    /// let outcome = simulate(Rule::Layout, &costs, piece, &[1; 22]);
    /// assert!(outcome.avoidable_ratio() <= 2.0);
    /// ```
    pub fn avoidable_ratio(&self) -> f64 {
        let paid = self.paid_ps - self.unavoidable_ps;
        match self.best_ps - self.unavoidable_ps {
            0 if paid == 0 => 1.0,
            best => paid as f64 / best as f64,
        }
    }
}

/// Simulates requests, each of so many pages, to one piece of a file.
///
/// ```
/// # use vellum::reading::{Costs, Layout, Rule, simulate};
/// # let (search_page_ps, mmu_page_ps, run_ps) = (1_800_000, 800_000, 21_600_000);
/// # let costs = Costs { search_page_ps, mmu_page_ps, run_ps, ..Costs::default() };
/// let piece = Layout { runs: 1, ..Layout::default() };
/// let outcome = simulate(Rule::Layout, &costs, piece, &[1; 100]);
/// assert!(outcome.bought_after.is_some_and(|requests| requests < 30));
/// ```
pub fn simulate(rule: Rule, costs: &Costs, layout: Layout, requests: &[u64]) -> Outcome {
    let mut state = State {
        price_ps: costs.price_ps(layout),
        ..State::default()
    };
    let mut outcome = Outcome::default();
    let seen = Identification::default();
    let mut avoidable = 0;
    for (i, &pages) in requests.iter().enumerate() {
        let saving = costs.saving_ps(pages);
        let least = costs.search_ps(pages) - saving;
        outcome.unavoidable_ps += least;
        outcome.paid_ps += least;
        avoidable += saving;
        seen.touch(pages);
        state.pattern = seen.so_far(costs.threshold_pages());
        state.saving_ps = saving;
        if outcome.bought_after.is_none() && rule.buys(state) {
            outcome.bought_after = Some(i);
            outcome.paid_ps += state.price_ps;
        }
        if outcome.bought_after.is_none() {
            outcome.paid_ps += saving;
            state.forgone_ps += saving;
        }
    }
    outcome.best_ps = outcome.unavoidable_ps + avoidable.min(state.price_ps);
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of_the_paper() -> Costs {
        Costs {
            search_page_ps: 1_800_000,
            mmu_page_ps: 800_000,
            run_ps: 21_600_000,
            ..Costs::default()
        }
    }

    /// One page table entry, as the paper calculates.
    const ENTRY: Layout = Layout {
        looked_up: 0,
        runs: 1,
        small_pages: 0,
        large_pages: 0,
    };

    #[test]
    fn the_papers_rule_pays_what_equation_3_says() {
        let costs = of_the_paper();
        let play = |pages: usize| simulate(Rule::Threshold, &costs, ENTRY, &vec![1; pages]);
        assert_eq!(play(12).paid_ps, 12 * 1_800_000);
        assert_eq!(play(12).bought_after, None);
        let paid = 12 * 1_800_000 + 21_600_000 + 800_000;
        assert_eq!(play(13).paid_ps, paid);
        assert!((play(13).ratio() - costs.worst_ratio()).abs() < 1e-9);
        assert!(play(1000).ratio() < 1.05);
    }

    /// The paper's threshold ignores the layout: with a thousand runs it pays a thousand times too
    /// early.
    #[test]
    fn a_threshold_alone_has_no_bound_in_the_layout() {
        let costs = of_the_paper();
        let scattered = Layout {
            runs: 1000,
            ..ENTRY
        };
        let play = |rule| simulate(rule, &costs, scattered, &[1; 13]);
        assert!(play(Rule::Threshold).ratio() > 900.0);
        assert!((play(Rule::Layout).ratio() - 1.0).abs() < 1e-9);
    }

    fn any_costs() -> impl Strategy<Value = Costs> {
        let cost = || -50_000_i64..2_000_000;
        let price = || 0_u64..20_000_000;
        (
            cost(),
            cost(),
            cost(),
            cost(),
            price(),
            price(),
            price(),
            price(),
        )
            .prop_map(
                |(a, b, c, d, look_up_ps, run_ps, small_page_ps, large_page_ps)| Costs {
                    search_request_ps: a,
                    search_page_ps: b,
                    mmu_request_ps: c,
                    mmu_page_ps: d,
                    look_up_ps,
                    run_ps,
                    small_page_ps,
                    large_page_ps,
                },
            )
    }

    fn any_layout() -> impl Strategy<Value = Layout> {
        (0..512_u64, 0..512_u64, 0..512_u64, 0..2_u64).prop_map(
            |(looked_up, runs, small_pages, large_pages)| Layout {
                looked_up,
                runs,
                small_pages,
                large_pages,
            },
        )
    }

    proptest! {
        #[test]
        fn the_layout_rule_pays_less_than_twice_what_can_be_avoided(
            costs in any_costs(),
            layout in any_layout(),
            requests in prop::collection::vec(1..=512_u64, 0..200),
        ) {
            let outcome = simulate(Rule::Layout, &costs, layout, &requests);
            let paid = outcome.paid_ps - outcome.unavoidable_ps;
            let best = outcome.best_ps - outcome.unavoidable_ps;
            prop_assert!(paid <= 2 * best, "{outcome:?}");
            prop_assert!(outcome.ratio() <= 2.0 + 1e-9);
            let told = Rule::Layout.avoidable_bound().unwrap_or(0.0);
            prop_assert!(outcome.avoidable_ratio() <= told + 1e-9, "{outcome:?}");
        }

        /// Stopping right after the purchase is the worst case for the rule.
        #[test]
        fn the_bound_is_reached_by_stopping_right_after_the_purchase(runs in 1..500_u64) {
            let costs = Costs {
                search_page_ps: 1000,
                mmu_page_ps: 0,
                run_ps: 1_000_000,
                ..Costs::default()
            };
            let layout = Layout { runs, ..ENTRY };
            let requests = vec![1; 1000 * runs as usize];
            let outcome = simulate(Rule::Layout, &costs, layout, &requests);
            prop_assert!(outcome.avoidable_ratio() > 1.99);
        }
    }
}
