//! All pairs of operations over a small namespace (seq-2, after ACE: Mohan et al., "Finding
//! crash-consistency bugs with bounded black-box crash testing", OSDI 2018).
//!
//! The namespace has the files `f`, `g` and `d/f`, the symlink `s` and the directories `d`, `e` and
//! `d/e`. Every ordered pair of the operations below is tried on the model in each of a few trees.
//! A pair is kept if the first operation succeeds, and the second succeeds too or fails because of
//! the first. From a tree that extends an earlier one, only pairs that touch the extension are
//! kept. Pairs that differ from others only by exchanged names of equal things are left out.
//!
//! Names consist of the tree's name and the operations' names below, joined by `+`:
//! `seq2/rename:f:d/f+unlink:d/f`, `seq2-rich/unlink:d/f+create:d/f`. A single operation in such a
//! tree is a workload too (`seq2/rename:f:d/f`). So the crashes of a first operation are explored
//! once, and those of a pair are crashes of its second operation.

use std::collections::BTreeSet;

use vellum_model::{Model, Outcome};

use crate::record::model_step;
use crate::session::CLOCK_START;
use crate::workload::{Step, Workload};

/// An operation's name and its steps.
pub(super) type Operation = (&'static str, &'static [&'static str]);

/// Every operation that pairs are made of.
const OPERATIONS: [Operation; 71] = [
    ("create:f", &["create f 644 exclusive"]),
    ("create:g", &["create g 600 exclusive"]),
    ("create:d/f", &["create d/f 644 exclusive"]),
    ("mkdir:d", &["mkdir d 755"]),
    ("mkdir:d/e", &["mkdir d/e 700"]),
    ("mknod:g", &["mknod g char-device 600 259"]),
    ("mknod:d/f", &["mknod d/f fifo 644 0"]),
    ("symlink:s", &["symlink f s"]),
    ("symlink:d/f", &["symlink %(74x3000) d/f"]),
    ("link:f:g", &["link f g"]),
    ("unnamed:g", &["unnamed g"]),
    ("link:f:d/f", &["link f d/f"]),
    ("link:d/f:e/f", &["link d/f e/f"]),
    ("unlink:f", &["unlink f"]),
    ("unlink:g", &["unlink g"]),
    ("unlink:s", &["unlink s"]),
    ("unlink:d/f", &["unlink d/f"]),
    ("rmdir:d", &["rmdir d"]),
    ("rmdir:e", &["rmdir e"]),
    ("rmdir:d/e", &["rmdir d/e"]),
    ("rename:f:g", &["rename f g 0"]),
    ("rename:g:f", &["rename g f 0"]),
    ("rename:f:d/f", &["rename f d/f 0"]),
    ("rename:d/f:f", &["rename d/f f 0"]),
    ("rename:d/f:e/f", &["rename d/f e/f 0"]),
    ("rename:d:e", &["rename d e 0"]),
    ("rename:e:d", &["rename e d 0"]),
    ("rename:e:d/e", &["rename e d/e 0"]),
    ("rename:d/e:e", &["rename d/e e 0"]),
    ("whiteout:f:g", &["rename f g 4"]),
    ("exchange:f:g", &["rename f g 2"]),
    ("exchange:f:d", &["rename f d 2"]),
    ("exchange:f:d/f", &["rename f d/f 2"]),
    ("exchange:d:e", &["rename d e 2"]),
    ("append:f:100", &["append f 7 100"]),
    ("append:f:9000", &["append f 7 9000"]),
    ("append:d/f:5000", &["append d/f 8 5000"]),
    ("write:f:4096:8", &["write f 4096 9 8"]),
    ("write:f:4001:3000", &["write f 4001 9 3000"]),
    ("write:f:20000:100", &["write f 20000 9 100"]),
    ("truncate:f:0", &["truncate f 0"]),
    ("truncate:f:100", &["truncate f 100"]),
    ("truncate:f:4096", &["truncate f 4096"]),
    ("truncate:f:9001", &["truncate f 9001"]),
    ("truncate:d/f:3000", &["truncate d/f 3000"]),
    ("fallocate:f:0:20000", &["fallocate f 0 0 20000"]),
    ("fallocate:f:keep", &["fallocate f 1 8192 12288"]),
    ("punch:f:0:4096", &["fallocate f 3 0 4096"]),
    ("punch:f:1000:9000", &["fallocate f 3 1000 9000"]),
    ("blocks:f", &["truncate f 60000", "blocks f 10 3"]),
    ("chmod:f", &["chmod f 600"]),
    ("chmod:d", &["chmod d 711"]),
    ("chown:f", &["chown f 5 6 follow"]),
    ("setxattr:f", &["setxattr f user.a one any follow"]),
    ("setxattr:f:5000", &["setxattr f user.a @1:5000 any follow"]),
    ("setxattr:d", &["setxattr d trusted.a one any follow"]),
    ("quota", &["quotas on"]),
    (
        "removexattr:f",
        &[
            "setxattr f user.b two any follow",
            "removexattr f user.b follow",
        ],
    ),
    ("chattr:f", &["chattr f a"]),
    ("utimens:f", &["utimens f 1000 2000 follow"]),
    ("utimens:d", &["utimens d 1000 2000 follow"]),
    (
        "attributes:f",
        &["together: truncate f 100; chown f 5 6 follow; chmod f 640; utimens f 1000 2000 follow"],
    ),
    ("open:f", &["open+rdwr 1 f 0"]),
    ("close:1", &["close-slot 1"]),
    ("append:1", &["write-slot 1 5000 6 5000"]),
    ("truncate:1", &["truncate-slot 1 100"]),
    ("read:f", &["read f 0 9000"]),
    ("sync", &["sync"]),
    ("maintain", &["maintain"]),
    ("reopen", &["close-pool", "open-pool"]),
    ("recover", &["recover"]),
];

/// A tree in which pairs begin.
pub(super) struct Tree {
    /// The family's name.
    name: &'static str,
    /// The steps that make the tree.
    pub(super) setup: &'static [&'static str],
    /// Whether an operation touches what the earlier trees do not have.
    meets: fn(&str) -> bool,
    /// Whether the directories `d` and `e` are alike.
    is_symmetric: bool,
}

static TREES: [Tree; 4] = [
    Tree {
        name: "seq2",
        setup: &[
            "mkdir d 755",
            "mkdir e 755",
            "create f 644 -",
            "append f 5 5000",
        ],
        meets: |_| true,
        is_symmetric: true,
    },
    Tree {
        name: "seq2-bare",
        setup: &[],
        meets: |_| true,
        is_symmetric: true,
    },
    Tree {
        name: "seq2-rich",
        setup: &[
            "mkdir d 755",
            "mkdir e 755",
            "create f 644 -",
            "append f 5 5000",
            "create d/f 640 -",
            "append d/f 6 9000",
            "mkdir d/e 755",
            "link d/f g",
            "symlink f s",
        ],
        meets: |name| {
            let mut words = name.split(':').skip(1);
            words.any(|word| matches!(word, "d" | "d/e" | "d/f" | "g" | "s"))
        },
        is_symmetric: false,
    },
    Tree {
        name: "seq2-open",
        setup: &[
            "mkdir d 755",
            "mkdir e 755",
            "create f 644 -",
            "append f 5 5000",
            "create g 640 -",
            "open+rdwr 1 f 0",
        ],
        meets: |name| name.ends_with(":1") || matches!(name, "unlink:f" | "rename:g:f"),
        is_symmetric: true,
    },
];

impl Tree {
    /// The tree in the model.
    pub(super) fn model(&self) -> Model {
        let mut model = Model::new(CLOCK_START);
        let setup: Vec<_> = self.setup.iter().map(|line| Step::parse(line)).collect();
        let prepared = run(&mut model, &setup);
        assert!(prepared, "{}: the tree cannot be made", self.name);
        model
    }
}

/// Every tree, the default one first.
pub(super) fn trees() -> &'static [Tree] {
    &TREES
}

/// Whether a workload of that name would be one of the pairs.
pub(super) fn has_name(name: &str) -> bool {
    name.starts_with("seq2")
}

/// The pairs, and each of their first operations as a workload of its own.
pub fn pairs() -> Vec<Workload> {
    let mut all = Vec::new();
    let mut known = BTreeSet::new();
    for tree in trees() {
        let model = tree.model();
        for first in &OPERATIONS {
            from_tree(tree, &model, first, &mut known, &mut all);
        }
    }
    all
}

/// Adds the pairs that begin with `first`; `known` are the pairs of earlier trees.
fn from_tree(
    tree: &Tree,
    model: &Model,
    first: &Operation,
    known: &mut BTreeSet<(&'static str, &'static str)>,
    all: &mut Vec<Workload>,
) {
    let mut after = model.clone();
    if !run(&mut after, &steps(first)) {
        return;
    }
    let place = all.len();
    for second in &OPERATIONS {
        let succeeds = run(&mut after.clone(), &steps(second));
        let possible = succeeds || run(&mut model.clone(), &steps(second));
        let pair = (first.0, second.0);
        if !possible || tree.is_symmetric && is_mirror(pair) {
            continue;
        }
        let meets = (tree.meets)(first.0) || (tree.meets)(second.0);
        if known.insert(pair) || meets {
            all.push(workload(tree, first, Some(second)));
        }
    }
    if all.len() > place {
        all.insert(place, workload(tree, first, None));
    }
}

pub(super) fn steps(operation: &Operation) -> Vec<Step> {
    operation.1.iter().map(|line| Step::parse(line)).collect()
}

/// The operation of that name.
pub(super) fn operation(name: &str) -> Operation {
    let found = OPERATIONS.iter().find(|(known, _)| *known == name);
    *found.expect("an operation in the table")
}

/// Executes steps in the model; returns whether all succeed.
pub(super) fn run(model: &mut Model, steps: &[Step]) -> bool {
    let succeeds = |step| matches!(model_step(model, step), Outcome::Ok(_));
    steps.iter().all(succeeds)
}

fn workload(tree: &Tree, first: &Operation, second: Option<&Operation>) -> Workload {
    let (family, name) = (tree.name, first.0);
    let name = match second {
        Some(second) => format!("{family}/{name}+{}", second.0),
        None => format!("{family}/{name}"),
    };
    let all: Vec<_> = [Some(first), second]
        .into_iter()
        .flatten()
        .flat_map(|operation| operation.1)
        .copied()
        .collect();
    let mut workload = Workload::new(&name, tree.setup, &all);
    workload.covered = second.map_or(0, |_| first.1.len());
    workload
}

/// Whether exchanging the names `d` and `e` results in an earlier pair.
fn is_mirror(pair: (&str, &str)) -> bool {
    let place = |name: &str| OPERATIONS.iter().position(|(known, _)| *known == name);
    let mirrored = (place(&mirrored(pair.0)), place(&mirrored(pair.1)));
    match mirrored {
        (Some(first), Some(second)) => (Some(first), Some(second)) < (place(pair.0), place(pair.1)),
        _ => false,
    }
}

/// An operation's name with `d` and `e` exchanged.
fn mirrored(name: &str) -> String {
    let swap = |word: &str| -> String {
        let parts = word.split('/').map(|part| match part {
            "d" => "e",
            "e" => "d",
            part => part,
        });
        parts.collect::<Vec<_>>().join("/")
    };
    match name {
        "exchange:d:e" => name.to_owned(),
        _ => name.split(':').map(swap).collect::<Vec<_>>().join(":"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_thousands_of_pairs_with_names_of_their_own() {
        let all = pairs();
        let names: BTreeSet<_> = all.iter().map(|workload| &workload.name).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.len() > 2000, "{}", all.len());
        assert!(
            names
                .iter()
                .all(|name| has_name(name) && !name.contains('@'))
        );
    }

    #[test]
    fn every_operation_comes_first_and_second() {
        let all = pairs();
        for (name, _) in OPERATIONS {
            let first = format!("/{name}+");
            let second = format!("+{name}");
            assert!(
                all.iter().any(|workload| workload.name.contains(&first)),
                "{name}"
            );
            assert!(
                all.iter().any(|workload| workload.name.ends_with(&second)),
                "{name}"
            );
        }
    }

    #[test]
    fn a_pair_and_its_mirror_are_one() {
        let all = pairs();
        let has = |name: &str| all.iter().any(|workload| workload.name == name);
        assert!(has("seq2/rename:d:e+append:f:100"));
        assert!(!has("seq2/rename:e:d+append:f:100"));
        assert!(
            has("seq2/rename:d/f:e/f+rename:d:e") || has("seq2-rich/rename:d/f:e/f+rename:d:e")
        );
    }

    #[test]
    fn a_second_operation_may_fail_because_of_the_first() {
        let all = pairs();
        let find = |name: &str| all.iter().find(|workload| workload.name == name);
        let fails = find("seq2/unlink:f+rename:f:g").unwrap();
        assert_eq!(fails.covered, 1);
        assert!(
            find("seq2/unlink:g+rename:f:g").is_none(),
            "nothing to remove"
        );
    }
}
