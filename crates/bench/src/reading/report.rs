//! The report, as JSON and as text.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use vellum::reading::{Costs, Rule};

use super::Figure;
use super::openings::Opening;
use crate::figure::{Point, median};
use crate::machine::Machine;
use crate::target::Target;
use crate::variant::Variant;
use crate::workloads::WorkloadRow;

/// The sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Rule(Rule),
    Peer,
    Memcpy,
    /// A copy from pages of 4 KiB.
    MemcpySmall,
    View,
    ViewAgain,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Rule(rule) => rule.name(),
            Self::Peer => "peer",
            Self::Memcpy => "memcpy",
            Self::MemcpySmall => "memcpy-small",
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
    /// Nanoseconds per request by side: the median over the rounds.
    pub ns_per_request: BTreeMap<&'static str, f64>,
    /// The least and the greatest of the rounds by side.
    pub spread_ns: BTreeMap<&'static str, [f64; 2]>,
    /// The time of search over that of a side: the median over the rounds. Above 1 the side is
    /// faster.
    pub search_over: BTreeMap<&'static str, f64>,
    /// The time of a side over that of memcpy: the median over the rounds.
    pub over_memcpy: BTreeMap<&'static str, f64>,
    /// The page table of each rule.
    pub page_tables: BTreeMap<&'static str, Laid>,
    /// Nanoseconds per request by pass, side and round.
    #[serde(skip)]
    passes: Vec<BTreeMap<&'static str, Vec<f64>>>,
}

/// The page table that a rule built.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Laid {
    /// The number of times that the file was read, before anything was timed, until the table was
    /// complete or no more was added.
    pub readings: u32,
    /// The fraction of the file in the table.
    pub part: f64,
    /// Whether it gave up, because the process had no areas left or the system refused. The rest is
    /// read by search.
    pub gave_up: bool,
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
            over_memcpy: BTreeMap::new(),
            page_tables: BTreeMap::new(),
            passes: Vec::new(),
        }
    }

    /// Adds the time of a side in a round of a pass; round 0 warms up.
    pub(super) fn note(
        &mut self,
        (pass, round): (usize, u64),
        side: Side,
        time: Duration,
        requests: usize,
    ) {
        if round > 0 {
            let passes = self.passes.len().max(pass + 1);
            self.passes.resize_with(passes, BTreeMap::new);
            let times = self.passes[pass].entry(side.name()).or_default();
            times.push(time.as_nanos() as f64 / requests as f64);
        }
    }

    /// The ratio of a side's time to another's: the median over all rounds in which both take part.
    fn over(&self, side: &str, other: &str) -> Option<f64> {
        let both = self.passes.iter();
        let both = both.filter_map(|pass| Some(pass.get(side)?.iter().zip(pass.get(other)?)));
        let ratios: Vec<f64> = both.flatten().map(|(time, other)| time / other).collect();
        (!ratios.is_empty()).then(|| median(&ratios))
    }

    pub(super) fn finished(mut self) -> Self {
        let mut all: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
        for (side, times) in self.passes.iter().flatten() {
            all.entry(*side).or_default().extend(times);
        }
        for (side, times) in all {
            let Some(point) = Point::of_rounds("", &times) else {
                continue;
            };
            self.ns_per_request.insert(side, point.value);
            self.spread_ns.insert(side, [point.low, point.high]);
            let (search, memcpy) = (self.over("search", side), self.over(side, "memcpy"));
            self.search_over.extend(search.map(|ratio| (side, ratio)));
            self.over_memcpy.extend(memcpy.map(|ratio| (side, ratio)));
        }
        self
    }
}

/// The cost of a rule on traces.
#[derive(Clone, Debug, Serialize)]
pub struct Competition {
    /// The source of the costs: `here` (measured on the pool) or `paper`.
    pub machine: &'static str,
    /// The pool with these costs; `None` for the paper's.
    pub pool: Option<Variant>,
    /// The layout of the blocks.
    pub layout: String,
    /// The rule.
    pub rule: String,
    /// The cost over the optimum in the worst trace.
    pub worst_ratio: f64,
    /// The same for the avoidable part of the cost.
    pub worst_avoidable_ratio: f64,
    /// The cost over the optimum, all traces together.
    pub mean_ratio: f64,
}

/// The costs of reading, in nanoseconds.
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
    /// A page table entry alone.
    pub table_entry_ns: f64,
    /// Mapping a run of blocks.
    pub run_ns: f64,
    /// Filling in the translation of a block.
    pub small_page_ns: f64,
    /// Filling in the translation of a large page.
    pub large_page_ns: f64,
    /// The paper's T.
    pub threshold_pages: u64,
    /// The paper's ratio, 1 + epsilon.
    pub paper_ratio: f64,
    /// The ratio against the optimum.
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
    /// The options that created it.
    #[serde(flatten)]
    pub variant: Variant,
    /// The fraction of the memory read by memcpy that is on large pages.
    pub memory_on_large_pages: f64,
    /// The costs of reading there; `None` if they could not be measured.
    pub costs: Option<CostsNs>,
}

/// The report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The options and their values.
    pub settings: Vec<(&'static str, String)>,
    /// The pools.
    pub pools: Vec<PoolCosts>,
    /// The timed points of the figures.
    pub rows: Vec<Row>,
    /// Files from their opening.
    pub openings: Vec<Opening>,
    /// The simulations.
    pub competitive: Vec<Competition>,
    /// The results of whole workloads.
    pub workloads: Vec<WorkloadRow>,
    /// The targets.
    pub targets: Vec<Target>,
}

impl Report {
    pub(super) fn new(machine: Machine, settings: Vec<(&'static str, String)>) -> Self {
        Self {
            machine,
            settings,
            pools: Vec::new(),
            rows: Vec::new(),
            openings: Vec::new(),
            competitive: Vec::new(),
            workloads: Vec::new(),
            targets: Vec::new(),
        }
    }
}

impl Report {
    /// Files of a pool from their opening.
    pub(super) fn openings_of(&self, variant: Variant) -> Vec<&Opening> {
        let openings = self.openings.iter();
        openings
            .filter(|opening| opening.variant == variant)
            .collect()
    }
}

impl fmt::Display for Laid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (part, readings) = (self.part * 100.0, self.readings);
        write!(f, "{part:.0} % in the page table after {readings} readings")?;
        if self.gave_up {
            write!(f, ", where it gave up")?;
        }
        Ok(())
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
            for (rule, laid) in &row.page_tables {
                write!(f, "  {rule}: {laid}")?;
            }
            writeln!(f)?;
        }
        for opening in &self.openings {
            write!(
                f,
                "opening    {:<13} file {:>10}, {:>2} readings",
                opening.variant.label(),
                opening.file_bytes,
                opening.readings
            )?;
            for (rule, ratio) in &opening.over_best {
                write!(f, "  {rule} {:.0} ns ({ratio:.2})", opening.ns[rule])?;
            }
            writeln!(f)?;
        }
        for row in &self.workloads {
            writeln!(f, "{row}")?;
        }
        for row in &self.competitive {
            writeln!(
                f,
                "competitive {:<6} {:<13} {:<10} {:<10} worst {:>9.3}, of the avoidable {:>9.3}, \
                 mean {:>8.3}",
                row.machine,
                row.pool.map_or(String::new(), Variant::label),
                row.layout,
                row.rule,
                row.worst_ratio,
                row.worst_avoidable_ratio,
                row.mean_ratio
            )?;
        }
        for target in &self.targets {
            writeln!(f, "{target}")?;
        }
        Ok(())
    }
}
