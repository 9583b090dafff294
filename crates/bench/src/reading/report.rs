//! What was measured, as JSON and as text.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use vellum::reading::{Costs, Rule};

use super::Figure;
use crate::figure::{Point, median};
use crate::machine::Machine;
use crate::variant::Variant;
use crate::workloads::WorkloadRow;

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Rule(Rule),
    Peer,
    Memcpy,
    View,
    ViewAgain,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Rule(rule) => rule.name(),
            Self::Peer => "peer",
            Self::Memcpy => "memcpy",
            Self::View => "view",
            Self::ViewAgain => "view-again",
        }
    }
}

/// A point of a figure: the same requests by every side.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The figure.
    pub figure: &'static str,
    /// The pool's mapping and layout score.
    #[serde(flatten)]
    pub variant: Variant,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// `sequential` or `random`.
    pub order: &'static str,
    /// Nanoseconds a request takes, median over the rounds, by side.
    pub ns_per_request: BTreeMap<&'static str, f64>,
    /// The least and the greatest of the rounds, by side.
    pub spread_ns: BTreeMap<&'static str, [f64; 2]>,
    /// Median over the rounds of the time of search over that of a side: above 1 the side is faster.
    pub search_over: BTreeMap<&'static str, f64>,
    #[serde(skip)]
    times: BTreeMap<&'static str, Vec<f64>>,
}

impl Row {
    pub(super) fn new(
        figure: Figure,
        variant: Variant,
        file_bytes: u64,
        request_bytes: u64,
        order: &'static str,
    ) -> Self {
        Self {
            figure: figure.name(),
            variant,
            file_bytes,
            request_bytes,
            order,
            ns_per_request: BTreeMap::new(),
            spread_ns: BTreeMap::new(),
            search_over: BTreeMap::new(),
            times: BTreeMap::new(),
        }
    }

    /// Notes a round; round 0 warms up.
    pub(super) fn note(&mut self, round: u64, side: Side, time: Duration, requests: usize) {
        if round > 0 {
            let times = self.times.entry(side.name()).or_default();
            times.push(time.as_nanos() as f64 / requests as f64);
        }
    }

    pub(super) fn finished(mut self) -> Self {
        let search = self.times.get("search").cloned().unwrap_or_default();
        for (&side, times) in &self.times {
            let Some(point) = Point::of_rounds("", times) else {
                continue;
            };
            self.ns_per_request.insert(side, point.value);
            self.spread_ns.insert(side, [point.low, point.high]);
            let ratios: Vec<f64> = search.iter().zip(times).map(|(s, time)| s / time).collect();
            self.search_over.insert(side, median(&ratios));
        }
        self
    }
}

/// What a rule paid on traces.
#[derive(Clone, Debug, Serialize)]
pub struct Competition {
    /// Whose costs: `here`, as measured on that pool, or `paper`.
    pub machine: &'static str,
    /// The pool whose costs these are; none for the paper's.
    pub pool: Option<Variant>,
    /// How the blocks lie.
    pub layout: String,
    /// The rule.
    pub rule: String,
    /// Paid over the best, in the worst trace.
    pub worst_ratio: f64,
    /// The same of what can be avoided.
    pub worst_avoidable_ratio: f64,
    /// Paid over the best, all traces together.
    pub mean_ratio: f64,
}

/// The costs, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct CostsNs {
    /// A request of one page by search.
    pub search_page_ns: f64,
    /// A request of one page through a page table.
    pub mmu_page_ns: f64,
    /// A request of 16 pages by search.
    pub search_16_pages_ns: f64,
    /// A request of 16 pages through a page table.
    pub mmu_16_pages_ns: f64,
    /// A page table entry by itself.
    pub table_entry_ns: f64,
    /// Laying a run of blocks.
    pub run_ns: f64,
    /// Filling in the translation of a block.
    pub small_page_ns: f64,
    /// Filling in the translation of a large page.
    pub large_page_ns: f64,
    /// T of the paper.
    pub threshold_pages: u64,
    /// 1 + epsilon of the paper.
    pub paper_ratio: f64,
    /// The same against the best that can be done.
    pub worst_ratio: f64,
}

impl From<&Costs> for CostsNs {
    fn from(costs: &Costs) -> Self {
        let ns = |ps: u64| ps as f64 / 1000.0;
        Self {
            search_page_ns: ns(costs.search_ps(1)),
            mmu_page_ns: ns(costs.mmu_ps(1)),
            search_16_pages_ns: ns(costs.search_ps(16)),
            mmu_16_pages_ns: ns(costs.mmu_ps(16)),
            table_entry_ns: ns(costs.table_ps()),
            run_ns: ns(costs.run_ps),
            small_page_ns: ns(costs.small_page_ps),
            large_page_ns: ns(costs.large_page_ps),
            threshold_pages: costs.threshold_pages(),
            paper_ratio: costs.paper_ratio(),
            worst_ratio: costs.worst_ratio(),
        }
    }
}

/// A pool that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct PoolCosts {
    /// What it was made with.
    #[serde(flatten)]
    pub variant: Variant,
    /// What reading costs there; none if it could not be measured.
    pub costs: Option<CostsNs>,
}

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// On what.
    pub machine: Machine,
    /// The pools.
    pub pools: Vec<PoolCosts>,
    /// Points of the figures that were timed.
    pub rows: Vec<Row>,
    /// What was simulated.
    pub competitive: Vec<Competition>,
    /// What whole workloads came to.
    pub workloads: Vec<WorkloadRow>,
}

impl Report {
    pub(super) fn new(machine: Machine) -> Self {
        Self {
            machine,
            pools: Vec::new(),
            rows: Vec::new(),
            competitive: Vec::new(),
            workloads: Vec::new(),
        }
    }
}

impl fmt::Display for PoolCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = self.variant.label();
        let Some(costs) = &self.costs else {
            return writeln!(f, "{label}: what reading costs could not be measured");
        };
        writeln!(
            f,
            "{label}: a page: search {:.0} ns, page table {:.0} ns; 16 pages: {:.0} ns, {:.0} ns",
            costs.search_page_ns,
            costs.mmu_page_ns,
            costs.search_16_pages_ns,
            costs.mmu_16_pages_ns
        )?;
        writeln!(
            f,
            "{label}: an entry {:.0} ns: T {} pages, ratio {:.2} (against the best {:.2})",
            costs.table_entry_ns, costs.threshold_pages, costs.paper_ratio, costs.worst_ratio
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(
            f,
            "{}, {} cores, load {:.1}",
            machine.cpu, machine.cores, machine.load_before
        )?;
        for pool in &self.pools {
            write!(f, "{pool}")?;
        }
        for row in &self.rows {
            write!(
                f,
                "{:<10} {:<13} file {:>10} request {:>8} {:<10}",
                row.figure,
                row.variant.label(),
                row.file_bytes,
                row.request_bytes,
                row.order
            )?;
            for (side, ns) in &row.ns_per_request {
                let ratio = row.search_over.get(side).copied().unwrap_or(0.0);
                write!(f, "  {side} {ns:.0} ns ({ratio:.2})")?;
            }
            writeln!(f)?;
        }
        for row in &self.workloads {
            writeln!(f, "{row}")?;
        }
        for row in &self.competitive {
            writeln!(
                f,
                "competitive {:<6} {:<13} {:<10} {:<10} worst {:>9.3}, of the avoidable {:>9.3}, mean {:>8.3}",
                row.machine,
                row.pool.map_or(String::new(), Variant::label),
                row.layout,
                row.rule,
                row.worst_ratio,
                row.worst_avoidable_ratio,
                row.mean_ratio
            )?;
        }
        Ok(())
    }
}
