//! Workloads of whole programs on every mapping, compared with peers: Filebench's personalities and
//! YCSB.

use vellum::MappingKind;
use vellum::media::MediaChoice;
use vellum::reading::Rule;

use super::setting::Setting;
use crate::Result;
use crate::figure::number;
use crate::progress::bar;
use crate::report::Outcome;
use crate::target::Target;
use crate::variant::Variant;
use crate::workloads::{Subject, WorkloadRow, figure_of, filebench, ycsb};

/// The study's baseline, with which others are compared.
const BASELINE: MappingKind = MappingKind::ExtentCached;
/// The default mapping of pools.
const DEFAULT: MappingKind = MappingKind::HashFs;
/// The target: this fraction of the gain that the share of mapping allows. Rounds differ by as
/// much.
const REACHED: f64 = 0.95;

/// Every mapping on an unfragmented pool, the baseline first. Bytes are read by search alone, so
/// that only the mapping differs.
fn subjects() -> Vec<Subject> {
    let others = MappingKind::ALL
        .into_iter()
        .filter(|mapping| *mapping != BASELINE);
    let subject = |mapping| Subject {
        variant: Variant {
            mapping,
            layout_score: 1000,
        },
        rule: Rule::Search,
        media: MediaChoice::Auto,
    };
    std::iter::once(BASELINE)
        .chain(others)
        .map(subject)
        .collect()
}

/// Fig 12.
pub(super) fn filebench(setting: &Setting<'_>) -> Result<Outcome> {
    let options = setting.options;
    let plan = options
        .workloads
        .filebench(options.rounds, &options.pool_dir)?;
    let subjects = subjects();
    let progress = bar(
        options.output.printing,
        plan.steps(subjects.len() + options.peer.len()),
    );
    let rows = plan.measure(&subjects, &options.peer, setting.interrupt, &progress)?;
    progress.finish_and_clear();
    Ok(Outcome {
        figures: figure_of(filebench::OF_MAPPING, &rows),
        targets: Vec::new(),
    })
}

/// Figs 13 and 14.
pub(super) fn ycsb(setting: &Setting<'_>) -> Result<Outcome> {
    let options = setting.options;
    let plan = options
        .workloads
        .ycsb(&options.ycsb, options.rounds, &options.pool_dir)?;
    let subjects = subjects();
    let progress = bar(
        options.output.printing,
        plan.steps(subjects.len() + options.peer.len()),
    );
    let rows = plan.measure(&subjects, &options.peer, setting.interrupt, &progress)?;
    progress.finish_and_clear();
    Ok(Outcome::new(figure_of(ycsb::ABOUT, &rows), gains(&rows)))
}

/// The gain of the default mapping over the baseline, compared with the gain that the baseline's
/// share of time in mapping allows.
fn gains(rows: &[WorkloadRow]) -> Vec<Target> {
    let of = |mapping: MappingKind| {
        let is_it = move |pool: Variant| pool.mapping == mapping;
        rows.iter().filter(move |row| row.pool.is_some_and(is_it))
    };
    let gain = |own: &WorkloadRow| {
        let base = of(BASELINE).find(|base| base.workload == own.workload)?;
        let (share, own_share) = (base.mapping_share()?, own.mapping_share()?);
        let allowed = allowed_gain(share, own_share, own.over_first);
        let what = format!(
            "{} {}, {} over {}, where mapping takes {:.1} % and {:.1} % of the time, which allows \
             {}",
            own.figure,
            own.workload,
            DEFAULT.name(),
            BASELINE.name(),
            own_share * 100.0,
            share * 100.0,
            number(allowed)
        );
        Some(Target::at_least(what, own.over_first, allowed * REACHED))
    };
    of(DEFAULT).filter_map(gain).collect()
}

/// How much faster a side can be than the baseline if everything but mapping takes the same time.
/// The baseline spends `share` of its time in mapping. The side executes `gain` times as many
/// operations, and spends `own_share` of its time in mapping.
fn allowed_gain(share: f64, own_share: f64, gain: f64) -> f64 {
    1.0 / (1.0 - share + own_share / gain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(mapping: MappingKind, speed: f64, share: f64) -> WorkloadRow {
        WorkloadRow {
            figure: "ycsb",
            workload: "A".into(),
            side: mapping.name().into(),
            pool: Some(Variant {
                mapping,
                layout_score: 1000,
            }),
            rule: Some("search"),
            threads: 1,
            operations: 1,
            ops_per_second: speed,
            ops_per_second_spread: [speed; 2],
            over_peer: None,
            over_first: speed / 100.0,
            lookup_share: Some(share / 2.0),
            change_share: Some(share / 2.0),
            page_table_gave_up: false,
        }
    }

    /// The baseline takes 30 of 100 ns for mapping, and the other side 5 ns.
    #[test]
    fn a_gain_is_held_against_what_the_share_allows() {
        let base = row(BASELINE, 100.0, 0.3);
        let all = 100.0 / 75.0;
        let fast = gains(&[base.clone(), row(DEFAULT, 100.0 * all, 5.0 / 75.0)]);
        assert!((fast[0].value - all).abs() < 1e-9);
        assert!((fast[0].bound - all * REACHED).abs() < 1e-9);
        assert!(
            fast[0].met && fast[0].what.contains("allows 1.33"),
            "{}",
            fast[0]
        );
        // The same mapping, but 15 ns more for the rest.
        let slow = gains(&[base, row(DEFAULT, 100.0 / 0.9, 5.0 / 90.0)]);
        assert!((slow[0].bound - all * REACHED).abs() < 1e-9);
        assert!(!slow[0].met, "{}", slow[0]);
        assert!(gains(&[row(DEFAULT, 1.0, 0.1)]).is_empty());
    }
}
