//! Workloads of whole programs on every mapping, beside peers: Filebench's personalities and YCSB.

use vellum::MappingKind;
use vellum::reading::Rule;

use super::bed::Setting;
use super::report::Outcome;
use crate::Result;
use crate::progress::bar;
use crate::variant::Variant;
use crate::workloads::{Subject, figure_of, filebench, ycsb};

/// The study's baseline, which others are compared with.
const BASELINE: MappingKind = MappingKind::ExtentCached;

/// Every mapping on an unfragmented pool, the baseline first. Bytes are read by search alone, so that the
/// mapping is what differs.
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
    let progress = bar(plan.steps(subjects.len() + options.peer.len()));
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
    let run = options.workloads.run(options.rounds, &options.pool_dir);
    let subjects = subjects();
    let progress = bar(ycsb::steps(&run, subjects.len() + options.peer.len()));
    let rows = ycsb::measure(
        &run,
        &options.ycsb,
        &subjects,
        &options.peer,
        setting.interrupt,
        &progress,
    )?;
    progress.finish_and_clear();
    Ok(Outcome {
        figures: figure_of(ycsb::ABOUT, &rows),
        targets: Vec::new(),
    })
}
