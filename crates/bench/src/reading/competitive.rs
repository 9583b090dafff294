//! The cost of the rules on traces, compared with the optimal choice that knows the future.

use vellum::reading::{Costs, Layout, Rule, simulate};

use super::report::Competition;
use crate::order::Numbers;
use crate::variant::Variant;

/// Blocks in a piece of a page table.
const PIECE_BLOCKS: u64 = 512;
/// The most requests of a trace.
const REQUESTS_MAX: u64 = 20_000;
/// Traces of each kind.
const TRACES: u64 = 200;

/// The paper's estimates for its machine.
const PAPER: Costs = Costs {
    search_request_ps: 0,
    search_page_ps: 1_800_000,
    mmu_request_ps: 0,
    mmu_page_ps: 800_000,
    look_up_ps: 0,
    run_ps: 21_600_000,
    small_page_ps: 0,
    large_page_ps: 0,
};

/// Ways in which the blocks of a piece lie in the pool.
fn layouts() -> [(&'static str, Layout); 4] {
    let scattered = |runs| Layout {
        looked_up: PIECE_BLOCKS,
        runs,
        small_pages: PIECE_BLOCKS,
        large_pages: 0,
    };
    let large = Layout {
        looked_up: PIECE_BLOCKS,
        runs: 1,
        small_pages: 0,
        large_pages: 1,
    };
    [
        ("large page", large),
        ("one run", scattered(1)),
        ("runs of 8", scattered(PIECE_BLOCKS / 8)),
        ("scattered", scattered(PIECE_BLOCKS)),
    ]
}

/// Simulates every rule on every layout with the costs of a pool.
pub(super) fn play_here(pool: Variant, costs: &Costs) -> Vec<Competition> {
    play("here", Some(pool), costs)
}

/// Simulates every rule with the paper's costs.
pub(super) fn play_paper() -> Vec<Competition> {
    play("paper", None, &PAPER)
}

fn play(machine: &'static str, pool: Option<Variant>, costs: &Costs) -> Vec<Competition> {
    let mut rows = Vec::new();
    for (layout_name, layout) in layouts() {
        for rule in [Rule::Threshold, Rule::Layout] {
            let outcome = compete(costs, layout, rule);
            rows.push(Competition {
                machine,
                pool,
                layout: layout_name.into(),
                rule: rule.name().into(),
                worst_ratio: outcome.worst,
                worst_avoidable_ratio: outcome.worst_avoidable,
                mean_ratio: outcome.mean,
            });
        }
    }
    rows
}

/// The cost of a rule, as ratios to the optimum.
struct Outcome {
    worst: f64,
    worst_avoidable: f64,
    mean: f64,
}

fn compete(costs: &Costs, layout: Layout, rule: Rule) -> Outcome {
    let (mut worst, mut worst_avoidable, mut paid, mut best) = (1.0_f64, 1.0_f64, 0, 0);
    for salt in 0..TRACES {
        let trace = trace(salt, costs, layout);
        let mut lengths = vec![trace.len()];
        // The worst case for a rule is a trace that ends right after the purchase.
        let whole = simulate(rule, costs, layout, &trace);
        lengths.extend(whole.bought_after.map(|bought| bought + 1));
        for len in lengths {
            let outcome = simulate(rule, costs, layout, &trace[..len]);
            worst = worst.max(outcome.ratio());
            worst_avoidable = worst_avoidable.max(outcome.avoidable_ratio());
            paid += outcome.paid_ps / 1000;
            best += outcome.best_ps / 1000;
        }
    }
    Outcome {
        worst,
        worst_avoidable,
        mean: paid as f64 / (best as f64).max(1.0),
    }
}

/// Requests to one piece: few or many, of few or many pages, for about as long as a purchase takes
/// to pay.
fn trace(salt: u64, costs: &Costs, layout: Layout) -> Vec<u64> {
    let mut numbers = Numbers::new(salt);
    let long = numbers.below(2) == 1;
    let pages = if long { 16 } else { 1 };
    let even = costs.price_ps(layout) / costs.saving_ps(pages).max(1);
    let len = numbers.below(even.saturating_mul(4).clamp(2, REQUESTS_MAX)) + 1;
    (0..len).map(|_| 1 + numbers.below(pages * 2)).collect()
}
