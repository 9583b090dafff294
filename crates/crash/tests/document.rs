//! `docs/CRASH.md` says which persistent steps each operation takes: as recorded.

use std::collections::BTreeSet;

use vellum::sites;
use vellum_crash::persistent_steps;

const DOCUMENT: &str = include_str!("../../../docs/CRASH.md");

/// What stands between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The rows of the tables of steps: the workload recorded, and the steps.
fn rows() -> Vec<(&'static str, Vec<&'static str>)> {
    let cells = DOCUMENT.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (_, workload, steps) = (cells.next()?, cells.next()?, cells.next()?);
        let name = workload.strip_prefix('`')?.strip_suffix('`')?;
        Some((name, quoted(steps)))
    });
    cells.collect()
}

#[test]
fn operations_take_the_steps_that_the_document_names() {
    let rows = rows();
    assert!(rows.len() > 20, "{} rows", rows.len());
    let mut wrong = Vec::new();
    for (workload, named) in rows {
        let recorded = persistent_steps(workload);
        if recorded.as_ref() != Some(&named) {
            let recorded = recorded.unwrap_or_default();
            wrong.push(format!("{workload}: `{}`", recorded.join("`, `")));
        }
    }
    assert!(wrong.is_empty(), "recorded:\n{}", wrong.join("\n"));
}

#[test]
fn the_document_names_every_step() {
    let named: BTreeSet<&str> = quoted(DOCUMENT)
        .into_iter()
        .filter(|name| {
            let (operation, step) = name.split_once('/').unwrap_or_default();
            !operation.is_empty() && operation != "mkfs" && !step.contains('/')
        })
        .collect();
    let known: BTreeSet<&str> = sites::ALL.iter().map(|&(_, name)| name).collect();
    let missing: Vec<_> = known.difference(&named).collect();
    let unknown: Vec<_> = named.difference(&known).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "missing {missing:?}, unknown {unknown:?}"
    );
}
