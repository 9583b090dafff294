//! `docs/crash` lists the persistent steps of each operation, and which of them commits. These
//! tests compare it with recordings.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use vellum::{disk_sites, sites};
use vellum_crash::{MAKINGS, Step, find, persistent_steps, single_operations};

/// All files of `docs/crash`, in the order of their names.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/crash");
    let files = fs::read_dir(folder).expect("docs/crash");
    let mut paths: Vec<PathBuf> = files
        .map(|file| file.expect("docs/crash").path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect();
    paths.sort();
    let texts = paths.iter().map(fs::read_to_string);
    let texts: Result<Vec<String>, _> = texts.collect();
    texts.expect("docs/crash").join("\n")
});

/// Abbreviations that the table of steps uses for groups of steps.
const GROUPS: [(&str, &str); 16] = [
    ("*chunk*", "`chunk/word`, `chunk/word-durable`"),
    (
        "*create*",
        "`create/inode`, `create/entry`, `create/entry-durable`, `create/log-word`, \
         **`create/log-word-durable`**",
    ),
    (
        "*link*",
        "`link/entry`, `link/entry-durable`, `link/log-word`, **`link/log-word-durable`**, \
         `link/links`",
    ),
    (
        "*data and size*",
        "`write/data`, `write/data-durable`, `write/size`, **`write/size-durable`**",
    ),
    ("*larger*", "`extend/size`, **`extend/size-durable`**"),
    (
        "*allocate*",
        "`allocate/root`, `allocate/root-durable`, `allocate/blocks`, `allocate/blocks-durable`",
    ),
    ("*punch*", "`punch/limbo`, `punch/times`, `punch/durable`"),
    ("*record*", "`journal/record`, **`journal/record-durable`**"),
    (
        "*apply*",
        "`journal/words`, `journal/words-durable`, `journal/retire`, `journal/retire-durable`",
    ),
    (
        "*level move*",
        "`level/copy`, `level/copy-durable`, `level/leave`, `level/leave-durable`",
    ),
    (
        "*copies*",
        "`move/copy`, `move/list`, `move/copies-durable`",
    ),
    (
        "*end of move*",
        "`move/cleared`, `move/done-durable`, `move/over`, `move/over-durable`",
    ),
    (
        "*recycle*",
        "`recycle/links`, `recycle/times`, `recycle/times-durable`, `recycle/words`, \
         `recycle/words-durable`",
    ),
    ("*open*", "`open/state`, **`open/durable`**"),
    (
        "*wipe*",
        "`format/wipe-first`, `format/wipe-replica`, `format/wipe-durable`",
    ),
    (
        "*superblocks*",
        "`format/state-durable`, `format/superblock`, **`format/superblock-durable`**",
    ),
];

/// Operations of the model with the same steps as another operation.
const ALIKE: [(&str, &str); 12] = [
    ("WriteSlot", "Write"),
    ("TruncateSlot", "Truncate"),
    ("FallocateSlot", "Fallocate"),
    ("FsyncSlot", "Fsync"),
    ("Sync", "Fsync"),
    ("ReadSlot", "Read"),
    ("ReaddirSlot", "Readdir"),
    ("StatSlot", "Stat"),
    ("FlockSlot", "Stat"),
    ("LockSlot", "Stat"),
    ("GetLockSlot", "Stat"),
    ("Times", "Stat"),
];

/// A row of the table of steps, for one of its workloads.
struct Row {
    /// The name of the recorded workload.
    workload: &'static str,
    steps: Vec<String>,
    /// The index of the bold step.
    commit: Option<usize>,
}

/// The texts between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn rows() -> Vec<Row> {
    let rows = DOCUMENT.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (_, workloads, steps) = (cells.next()?, cells.next()?, cells.next()?);
        let steps = GROUPS
            .iter()
            .fold(steps.to_owned(), |steps, (name, group)| {
                steps.replace(name, group)
            });
        let commit = steps.find("**`").map(|bold| quoted(&steps[..bold]).len());
        let steps: Vec<String> = quoted(&steps).into_iter().map(str::to_owned).collect();
        let row = move |workload| Row {
            workload,
            steps: steps.clone(),
            commit,
        };
        Some(quoted(workloads).into_iter().map(row))
    });
    rows.flatten().collect()
}

/// The step that a row describes; `None` for mkfs.
fn step_of(row: &Row) -> Option<Step> {
    let (name, step) = row.workload.split_once(':').unwrap_or((row.workload, "1"));
    if MAKINGS.iter().any(|&(making, _)| making == name) {
        return None;
    }
    let workload = find(name).unwrap_or_else(|| panic!("no workload {name}"));
    let step: usize = step.parse().expect("the number of a step");
    Some(workload.explored[step - 1].clone())
}

/// After the bold step recovery finds the operation done, and before it not done. Where no step is
/// bold, recovery cannot tell, or each word or block commits by itself.
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

/// Every kind of operation, and every operation of the model, has a row.
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

/// Whatever its arguments, an operation commits with the step with which some row of its kind
/// commits.
#[test]
fn operations_alone_commit_as_some_row_says() {
    let documented: BTreeSet<_> = rows()
        .iter()
        .filter_map(|row| {
            let commit = row.steps[row.commit?].clone();
            Some((step_of(row)?.operation(), commit))
        })
        .collect();
    let mut wrong = Vec::new();
    for workload in single_operations() {
        let name = &workload.name;
        let Some(recorded) = persistent_steps(name) else {
            wrong.push(format!("{name}: not recorded"));
            continue;
        };
        let commit = recorded.commit.filter(|_| !recorded.in_parts);
        let commit = commit.map(|at| (workload.operation(), recorded.sites[at].to_owned()));
        if commit
            .as_ref()
            .is_some_and(|commit| !documented.contains(commit))
        {
            wrong.push(format!("{name}: {commit:?}"));
        }
    }
    assert!(wrong.is_empty(), "no row:\n{}", wrong.join("\n"));
}

#[test]
fn the_document_names_every_step() {
    let named: BTreeSet<&str> = quoted(&DOCUMENT)
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

/// Every table is one that tests compare with recordings or with the code: the steps here, the
/// classes of damage in the checker's tests.
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
