//! From laps to rows: medians, spreads, ratios, and missed budgets.

use vellum::media::count::Counts;

use super::budget::{Budget, DATA, MOUNT_RATIO, SHARED_TO_PRIVATE, budget_of};
use super::report::{LIBRARY, MOUNT, Row};
use super::rounds::Label;
use super::workload::{Laps, Part};
use crate::figure::{median, round, spread};

/// The results of the rounds of one workload.
pub(crate) struct Collected {
    parts: Vec<Of>,
}

/// The results of the rounds of one part.
struct Of {
    part: Part,
    vellum: Vec<f64>,
    cold: Vec<f64>,
    peers: Vec<Vec<f64>>,
    counts: Counts,
    ops: u64,
}

impl Collected {
    pub(crate) fn new(parts: &[Part], peers: usize) -> Self {
        let of = |&part: &Part| Of {
            part,
            vellum: Vec::new(),
            cold: Vec::new(),
            peers: vec![Vec::new(); peers],
            counts: Counts::default(),
            ops: 0,
        };
        Self {
            parts: parts.iter().map(of).collect(),
        }
    }

    pub(crate) fn add_cold(&mut self, laps: &Laps) {
        for (of, lap) in self.parts.iter_mut().zip(laps.iter()) {
            of.cold.extend(lap.map(|lap| lap.ns));
        }
    }

    pub(crate) fn add_vellum(&mut self, laps: &Laps) {
        for (of, lap) in self.parts.iter_mut().zip(laps.iter()) {
            if let Some(lap) = lap {
                of.vellum.push(lap.ns);
                of.counts += lap.counts;
                of.ops += lap.ops;
            }
        }
    }

    pub(crate) fn add_peer(&mut self, number: usize, laps: &Laps) {
        for (of, lap) in self.parts.iter_mut().zip(laps.iter()) {
            of.peers[number].extend(lap.map(|lap| lap.ns));
        }
    }
}

/// The rows, peer by peer within an operation.
pub(crate) fn rows(collected: &[Collected], path: &str, peers: &[Label]) -> Vec<Row> {
    let all: Vec<&Of> = collected.iter().flat_map(|one| &one.parts).collect();
    let mut rows = Vec::new();
    for of in &all {
        for (number, peer) in peers.iter().enumerate() {
            let mut row = row(of, path, number, peer);
            if of.part.threads > 1 {
                add_scaling(&mut row, of, number, &all);
            } else if path == MOUNT {
                hold_to_null_fs(&mut row);
            } else if let Some(budget) = budget_of(of.part.op) {
                hold_to(&mut row, budget);
            }
            rows.push(row);
        }
    }
    rows
}

fn row(of: &Of, path: &str, number: usize, peer: &Label) -> Row {
    let vellum_ns = median(&of.vellum);
    let peer_ns = median(&of.peers[number]);
    let per_op = |count: u64| round(count as f64 / of.ops.max(1) as f64, 3);
    Row {
        op: of.part.op.into(),
        path: path.into(),
        threads: of.part.threads,
        directories: of.part.directories.map(Into::into),
        order: of.part.order.into(),
        vellum_ns: round(vellum_ns, 1),
        cold_ns: (!of.cold.is_empty()).then(|| round(median(&of.cold), 1)),
        peer: peer.name.clone(),
        peer_kind: peer.kind.clone(),
        peer_ns: round(peer_ns, 1),
        ratio: round(peer_ns / vellum_ns, 2),
        lines_flushed: per_op(of.counts.lines_flushed),
        fences: per_op(of.counts.fences),
        pool_bytes_written: per_op(of.counts.pool_bytes_written),
        probes: per_op(of.counts.probes),
        allocations: per_op(of.counts.allocations),
        spread: round(spread(&of.vellum), 3),
        peer_spread: round(spread(&of.peers[number]), 3),
        scaling: None,
        peer_scaling: None,
        shared_to_private: None,
        budget_ratio: None,
        budget_lines_flushed: None,
        budget_fences: None,
        budget_shared_to_private: None,
        missed: Vec::new(),
    }
}

/// Compares a row with its budget.
fn hold_to(row: &mut Row, budget: &Budget) {
    row.budget_lines_flushed = Some(budget.lines);
    row.budget_fences = Some(budget.fences);
    let mut miss = |what: &str, is_missed: bool| {
        if is_missed {
            row.missed.push(what.into());
        }
    };
    // The margin is the largest rounding error.
    miss("lines_flushed", row.lines_flushed > budget.lines + 0.005);
    miss("fences", row.fences > budget.fences + 0.005);
    if row.peer_kind == budget.against.kind() {
        miss("ratio", row.ratio < budget.ratio);
        row.budget_ratio = Some(budget.ratio);
    }
}

/// Compares a row through a mount with the null file system.
fn hold_to_null_fs(row: &mut Row) {
    if DATA.contains(&row.op.as_str()) {
        return;
    }
    let least = round(MOUNT_RATIO, 2);
    row.budget_ratio = Some(least);
    if row.ratio < least {
        row.missed.push("ratio".into());
    }
}

/// The speedup of two threads over one, here and on peer `number`, and of one directory over two.
fn add_scaling(row: &mut Row, of: &Of, number: usize, all: &[&Of]) {
    let single = |other: &&&Of| {
        let op = other.part.op;
        other.part.threads == 1 && (op == of.part.op || (of.part.op == "stat" && op == "stat_d1"))
    };
    if let Some(single) = all.iter().find(single) {
        let scaling = |single: &[f64], both: &[f64]| {
            Some(round(
                of.part.threads as f64 * median(single) / median(both),
                2,
            ))
        };
        row.scaling = scaling(&single.vellum, &of.vellum);
        row.peer_scaling = scaling(&single.peers[number], &of.peers[number]);
    }
    let private = |other: &&&Of| {
        other.part.op == of.part.op
            && other.part.threads == of.part.threads
            && other.part.directories == Some("private")
    };
    if of.part.directories != Some("shared") || row.path != LIBRARY {
        return;
    }
    if let Some(private) = all.iter().find(private) {
        let pairs = private.vellum.iter().zip(&of.vellum);
        let of_rounds: Vec<f64> = pairs.map(|(private, shared)| private / shared).collect();
        let shared_to_private = round(median(&of_rounds), 3);
        row.shared_to_private = Some(shared_to_private);
        row.budget_shared_to_private = Some(SHARED_TO_PRIVATE);
        if shared_to_private < SHARED_TO_PRIVATE {
            row.missed.push("shared_to_private".into());
        }
    }
}
