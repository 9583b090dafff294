//! `docs/CRASH.md` says which persistent steps each operation takes, and which of them commits: as recorded.

use std::collections::BTreeSet;

use vellum::{disk_sites, sites};
use vellum_crash::{MAKINGS, Step, find, persistent_steps, single_operations};

const DOCUMENT: &str = include_str!("../../../../docs/CRASH.md");

/// Operations of the model whose steps are those of another.
const ALIKE: [(&str, &str); 9] = [
    ("WriteSlot", "Write"),
    ("TruncateSlot", "Truncate"),
    ("FallocateSlot", "Fallocate"),
    ("FsyncSlot", "Fsync"),
    ("Sync", "Fsync"),
    ("ReadSlot", "Read"),
    ("ReaddirSlot", "Readdir"),
    ("StatSlot", "Stat"),
    ("Times", "Stat"),
];

/// A row of the table of steps by name.
struct Row {
    /// What was recorded.
    workload: &'static str,
    steps: Vec<&'static str>,
    /// Which step is the bold one.
    commit: Option<usize>,
}

/// What stands between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn rows() -> Vec<Row> {
    let rows = DOCUMENT.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (_, workload, steps) = (cells.next()?, cells.next()?, cells.next()?);
        Some(Row {
            workload: workload.strip_prefix('`')?.strip_suffix('`')?,
            steps: quoted(steps),
            commit: steps.find("**`").map(|bold| quoted(&steps[..bold]).len()),
        })
    });
    rows.collect()
}

/// The step that a row is about; `None`: a pool is made.
fn step_of(row: &Row) -> Option<Step> {
    let (name, step) = row.workload.split_once(':').unwrap_or((row.workload, "1"));
    if MAKINGS.iter().any(|&(making, _)| making == name) {
        return None;
    }
    let workload = find(name).unwrap_or_else(|| panic!("no workload {name}"));
    let step: usize = step.parse().expect("the number of a step");
    Some(workload.explored[step - 1].clone())
}

/// The bold step is the one behind which recovery finds the operation done, and in front of which it does not. Where none is bold
/// recovery cannot tell, or each word or block commits by itself.
#[test]
fn operations_take_the_steps_and_commit_where_the_document_says() {
    let rows = rows();
    assert!(rows.len() > 20, "{} rows", rows.len());
    let mut wrong = Vec::new();
    for row in rows {
        let Some(recorded) = persistent_steps(row.workload) else {
            wrong.push(format!("{}: not recorded", row.workload));
            continue;
        };
        if recorded.sites != row.steps {
            let steps = recorded.sites.join("`, `");
            wrong.push(format!("{}: `{steps}`", row.workload));
        }
        let is_free = row.commit.is_none() && recorded.in_parts;
        if recorded.commit != row.commit && !is_free {
            let commit = recorded.commit.map(|at| recorded.sites[at]);
            wrong.push(format!("{}: commits with {commit:?}", row.workload));
        }
    }
    assert!(wrong.is_empty(), "recorded:\n{}", wrong.join("\n"));
}

/// Whatever is done to a file system has a row: each kind of operation, and each operation of the model.
#[test]
fn every_operation_has_a_row() {
    let rows: Vec<Step> = rows().iter().filter_map(step_of).collect();
    let kinds: BTreeSet<_> = rows.iter().map(Step::operation).collect();
    let singles = single_operations();
    let steps = || singles.iter().map(|workload| &workload.explored[0]);
    let known: BTreeSet<_> = steps().map(Step::operation).collect();
    let missing: Vec<_> = known.difference(&kinds).collect();
    assert!(missing.is_empty(), "no row: {missing:?}");

    let name_of = |step: &Step| step.op().map(|op| format!("{op:?}"));
    let name_of = |step| name_of(step)?.split(' ').next().map(str::to_owned);
    let named: BTreeSet<String> = rows.iter().filter_map(name_of).collect();
    for name in steps().filter_map(name_of) {
        let alike = ALIKE.iter().find(|(other, _)| *other == name);
        let name = alike.map_or(name.as_str(), |(_, name)| name);
        assert!(named.contains(name), "no row: {name}");
    }
}

/// With whatever arguments: an operation commits with a step with which some row of its kind does.
#[test]
fn operations_alone_commit_as_some_row_says() {
    let documented: BTreeSet<_> = rows()
        .iter()
        .filter_map(|row| Some((step_of(row)?.operation(), row.steps[row.commit?])))
        .collect();
    let mut wrong = Vec::new();
    for workload in single_operations() {
        let name = &workload.name;
        let Some(recorded) = persistent_steps(name) else {
            wrong.push(format!("{name}: not recorded"));
            continue;
        };
        let commit = recorded.commit.filter(|_| !recorded.in_parts);
        let commit = commit.map(|at| (workload.operation(), recorded.sites[at]));
        if commit.is_some_and(|commit| !documented.contains(&commit)) {
            wrong.push(format!("{name}: {commit:?}"));
        }
    }
    assert!(wrong.is_empty(), "no row:\n{}", wrong.join("\n"));
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
    let all = sites::ALL.iter().chain(disk_sites::ALL);
    let known: BTreeSet<&str> = all.map(|&(_, name)| name).collect();
    let missing: Vec<_> = known.difference(&named).collect();
    let unknown: Vec<_> = named.difference(&known).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "missing {missing:?}, unknown {unknown:?}"
    );
}

/// A table is one of those that tests compare with recordings or with the code: steps by name here, classes of damage in
/// the checker's tests.
#[test]
fn every_table_is_checked() {
    let lines: Vec<&str> = DOCUMENT.lines().collect();
    let heads = lines
        .windows(2)
        .filter(|lines| lines[1].starts_with("|---"));
    let heads: Vec<&str> = heads.map(|lines| lines[0]).collect();
    let known = [
        "| class | severity | what repair does |",
        "| operation | recorded as | steps | what recovery finds in the gaps |",
    ];
    assert_eq!(heads, known);
}
