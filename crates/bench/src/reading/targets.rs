//! Targets for reading.

use vellum::reading::Rule;

use super::Figure;
use super::openings::{Opening, worst};
use super::report::{Report, Row};
use crate::figure::bytes;
use crate::target::Target;
use crate::variant::Variant;
use crate::workloads::WorkloadRow;

/// The target for random requests of these sizes by the default rule: the most that they may take
/// over a copy of memory.
const OVER_MEMCPY: [(u64, f64); 2] = [(64 << 10, 1.15), (1 << 20, 1.5)];
/// The target for a view of contiguous bytes, in nanoseconds.
const VIEW_NS: f64 = 200.0;
/// The target for reading a fragmented file of this size again: how many times as fast as search
/// the default rule is.
const READ_AGAIN: (u64, f64) = (64 << 20, 1.15);
/// The target for the default rule over the better of the two paths: its competitive ratio.
const COMPETITIVE: f64 = 2.0;
/// Layout scores of unfragmented and of fully scattered files, per mille.
const WHOLE: u16 = 1000;
const SCATTERED: u16 = 0;

/// All targets of a report.
pub(super) fn all(report: &Report) -> Vec<Target> {
    let mut targets = Vec::new();
    for pool in &report.pools {
        let of = |figure: Figure| -> Vec<&Row> {
            let rows = report.rows.iter();
            rows.filter(|row| row.figure == figure.name() && row.variant == pool.variant)
                .collect()
        };
        targets.extend(block_size(&of(Figure::BlockSize)));
        targets.extend(file_size(&of(Figure::FileSize)));
        targets.extend(from_opening(&report.openings_of(pool.variant)));
        targets.extend(view(&of(Figure::View)));
        let rows = [Figure::BlockSize, Figure::FileSize].map(of).concat();
        targets.extend(better_path(pool.variant, &rows));
    }
    targets.extend(better_path_of_workloads(&report.workloads));
    targets
}

/// Copies by the default rule over copies of memory. Fully scattered files are measured, but have
/// no target.
pub(super) fn block_size(rows: &[&Row]) -> Vec<Target> {
    let asked = |row: &&&Row| row.order == "random" && row.variant.layout_score > SCATTERED;
    let target = |row: &&Row| {
        let (size, most) = OVER_MEMCPY
            .into_iter()
            .find(|(size, _)| *size == row.request_bytes)?;
        let what = format!(
            "{}, {} at random of {}: the default rule over memcpy",
            row.variant.label(),
            bytes(size),
            bytes(row.file_bytes)
        );
        let ratio = *row.over_memcpy.get("layout")?;
        Some(Target::at_most(what, ratio, most))
    };
    rows.iter().filter(asked).filter_map(target).collect()
}

/// Views of contiguous bytes.
pub(super) fn view(rows: &[&Row]) -> Vec<Target> {
    let asked = |row: &&&Row| row.variant.layout_score == WHOLE;
    let target = |row: &&Row| {
        let what = format!(
            "{}, view of {} in place, ns",
            row.variant.label(),
            bytes(row.request_bytes)
        );
        let ns = *row.ns_per_request.get("view")?;
        Some(Target::at_most(what, ns, VIEW_NS))
    };
    rows.iter().filter(asked).filter_map(target).collect()
}

/// Reading a fragmented file again.
pub(super) fn file_size(rows: &[&Row]) -> Vec<Target> {
    let (size, least) = READ_AGAIN;
    let asked = |row: &&&Row| row.variant.layout_score < WHOLE && row.file_bytes == size;
    let target = |row: &&Row| {
        let what = format!(
            "{}, reading {} again: search over the default rule",
            row.variant.label(),
            bytes(size)
        );
        Some(Target::at_least(
            what,
            *row.search_over.get("layout")?,
            least,
        ))
    };
    rows.iter().filter(asked).filter_map(target).collect()
}

/// The default rule over the better of both paths, from the opening of a file.
pub(super) fn from_opening(openings: &[&Opening]) -> Option<Target> {
    let (ratio, opening) = worst(openings, Rule::Layout)?;
    let what = format!(
        "{}, the default rule over the better path from the opening on, at worst ({} readings of \
         {})",
        opening.variant.label(),
        opening.readings,
        bytes(opening.file_bytes)
    );
    Some(Target::at_most(what, ratio, COMPETITIVE))
}

/// The default rule over the better of search and page table, in the worst case.
fn better_path(variant: Variant, rows: &[&Row]) -> Option<Target> {
    let all = rows.iter().filter_map(|row| {
        let (layout, mmu) = (row.search_over.get("layout")?, row.search_over.get("mmu")?);
        Some((mmu.max(1.0) / layout, row))
    });
    let (worst, row) = all.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let what = format!(
        "{}: the default rule over the better of both paths, at worst ({}, {} {} of {})",
        variant.label(),
        row.figure,
        bytes(row.request_bytes),
        row.order,
        bytes(row.file_bytes)
    );
    Some(Target::at_most(what, worst, COMPETITIVE))
}

/// The same for whole workloads, including the costs of page tables.
fn better_path_of_workloads(rows: &[WorkloadRow]) -> Option<Target> {
    let over = |own: &WorkloadRow| {
        let of = |rule: &str| {
            let is_it = |row: &&WorkloadRow| {
                row.rule == Some(rule)
                    && (row.figure, &row.workload, row.pool)
                        == (own.figure, &own.workload, own.pool)
            };
            rows.iter().find(is_it).map(|row| row.ops_per_second)
        };
        Some(of("search")?.max(of("mmu")?) / own.ops_per_second)
    };
    let by_default = rows.iter().filter(|row| row.rule == Some("layout"));
    let all = by_default.filter_map(|row| Some((over(row)?, row)));
    let (worst, row) = all.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let what = format!(
        "the default rule over the better of both paths, in workloads at worst ({} {}, {})",
        row.figure,
        row.workload,
        row.pool.map_or(String::new(), Variant::label)
    );
    Some(Target::at_most(what, worst, COMPETITIVE))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use vellum::MappingKind;

    use super::super::report::{PoolCosts, Side};
    use super::*;
    use crate::machine::Machine;

    const HASHFS: MappingKind = MappingKind::HashFs;

    fn variant(layout_score: u16) -> Variant {
        Variant {
            mapping: HASHFS,
            layout_score,
        }
    }

    /// A row in which each side takes `ns` nanoseconds per request; the later of two passes is
    /// twice as slow as a whole.
    fn row(
        figure: Figure,
        score: u16,
        file: u64,
        request: u64,
        order: &'static str,
        ns: [u64; 5],
    ) -> Row {
        let [search, layout, mmu, memcpy, view] = ns;
        let mut row = Row::new(figure, variant(score), file, request, order);
        let mut note = |pass: usize, side, ns: u64| {
            let time = Duration::from_nanos(ns << pass);
            row.note((pass, 0), side, time * 100, 1);
            row.note((pass, 1), side, time, 1);
        };
        for pass in 0..2 {
            note(pass, Side::Rule(Rule::Search), search);
        }
        note(0, Side::Rule(Rule::Layout), layout);
        note(0, Side::Memcpy, memcpy);
        note(0, Side::View, view);
        note(1, Side::Rule(Rule::Mmu), mmu);
        row.finished()
    }

    fn report(rows: Vec<Row>) -> Report {
        let mut report = Report::new(Machine::default(), Vec::new());
        for score in [WHOLE, 850, SCATTERED] {
            report.pools.push(PoolCosts {
                variant: variant(score),
                memory_on_large_pages: 1.0,
                costs: None,
            });
        }
        report.rows = rows;
        report
    }

    fn verdicts(targets: &[Target]) -> Vec<(f64, f64, bool)> {
        targets
            .iter()
            .map(|target| (target.value, target.bound, target.met))
            .collect()
    }

    #[test]
    fn each_target_is_of_the_rows_that_it_is_about() {
        let large = |score, request, order| {
            let ns = [300, 150, 100, 100, 0];
            row(Figure::BlockSize, score, 1 << 30, request, order, ns)
        };
        let targets = all(&report(vec![
            large(850, 64 << 10, "random"),
            large(850, 1 << 20, "random"),
            large(850, 1 << 20, "sequential"),
            large(850, 4096, "random"),
            large(SCATTERED, 1 << 20, "random"),
        ]));
        assert_eq!(
            verdicts(&targets),
            [
                (1.5, 1.15, false),
                (1.5, 1.5, true),
                (1.5, 2.0, true),
                (1.5, 2.0, true)
            ]
        );
        let again = |score, file| {
            let ns = [120, 100, 40, 100, 0];
            row(Figure::FileSize, score, file, 64 << 10, "sequential", ns)
        };
        let targets = all(&report(vec![
            again(850, 64 << 20),
            again(850, 1 << 20),
            again(WHOLE, 64 << 20),
        ]));
        assert_eq!(
            verdicts(&targets),
            [(2.5, 2.0, false), (1.2, 1.15, true), (2.5, 2.0, false)]
        );
        let view = |score| {
            let ns = [1, 1, 1, 1, 180];
            row(Figure::View, score, 64 << 20, 32 << 10, "random", ns)
        };
        let targets = all(&report(vec![view(WHOLE), view(850)]));
        assert_eq!(verdicts(&targets), [(180.0, 200.0, true)]);
    }

    #[test]
    fn workloads_are_compared_with_the_better_path_of_the_same_pool() {
        let row = |workload: &str, rule: Rule, score, ops_per_second| WorkloadRow {
            figure: "traces",
            workload: workload.into(),
            side: rule.name().into(),
            pool: Some(variant(score)),
            rule: Some(rule.name()),
            threads: 1,
            operations: 1,
            ops_per_second,
            ops_per_second_spread: [ops_per_second; 2],
            over_peer: None,
            over_first: 1.0,
            lookup_share: None,
            change_share: None,
            page_table_gave_up: false,
        };
        let mut rows = Vec::new();
        for (workload, score, speeds) in [
            ("hm", 1000, [100.0, 90.0, 80.0]),
            ("web", 1000, [50.0, 300.0, 100.0]),
            ("web", 850, [50.0, 60.0, 60.0]),
        ] {
            let rules = [Rule::Search, Rule::Mmu, Rule::Layout];
            rows.extend(
                rules
                    .into_iter()
                    .zip(speeds)
                    .map(|(rule, speed)| row(workload, rule, score, speed)),
            );
        }
        let worst = better_path_of_workloads(&rows).expect("three workloads");
        assert_eq!((worst.value, worst.met), (3.0, false));
        assert!(worst.what.contains("traces web, hashfs"), "{worst}");
        assert_eq!(better_path_of_workloads(&rows[..2]), None);
    }
}
