//! Triples of operations (seq-3): every sequence of three of a few operations that all succeed, on
//! names, and on the bytes of a file.
//!
//! They reach cycles of renames; inodes, names and blocks that are reused; and blocks beyond the
//! end that come and go. Only the third operation crashes: pairs cover the second.

use super::pairs::{Operation, Tree, operation, run, steps, trees};
use crate::workload::Workload;

const NAMES: [&str; 18] = [
    "create:f",
    "create:g",
    "link:f:g",
    "unlink:f",
    "unlink:g",
    "rename:f:g",
    "rename:g:f",
    "rename:f:d/f",
    "rename:d/f:f",
    "exchange:f:d",
    "mkdir:d/e",
    "rename:d:e",
    "rename:e:d/e",
    "rmdir:d",
    "rmdir:e",
    "open:f",
    "close:1",
    "maintain",
];

const BYTES: [&str; 12] = [
    "append:f:100",
    "append:f:9000",
    "write:f:4001:3000",
    "write:f:20000:100",
    "truncate:f:0",
    "truncate:f:100",
    "truncate:f:9001",
    "fallocate:f:0:20000",
    "fallocate:f:keep",
    "punch:f:0:4096",
    "punch:f:1000:9000",
    "recover",
];

/// The prefix of all their names.
const FAMILY: &str = "seq3";

/// Whether a workload of that name would be one of the triples.
pub(super) fn has_name(name: &str) -> bool {
    name.starts_with(FAMILY)
}

/// The triples.
pub fn triples() -> Vec<Workload> {
    let tree = &trees()[0];
    let mut all = Vec::new();
    for names in [&NAMES[..], &BYTES] {
        let operations: Vec<_> = names.iter().map(|name| operation(name)).collect();
        extend(tree, &operations, &mut Vec::new(), &mut all);
    }
    all
}

/// Adds all triples that begin with `so_far`.
fn extend(
    tree: &Tree,
    operations: &[Operation],
    so_far: &mut Vec<Operation>,
    all: &mut Vec<Workload>,
) {
    let mut model = tree.model();
    let lines = |operations: &[Operation]| -> Vec<&str> {
        let lines = operations.iter().flat_map(|operation| operation.1);
        lines.copied().collect()
    };
    if !so_far
        .iter()
        .all(|operation| run(&mut model, &steps(operation)))
    {
        return;
    }
    if let [first, second, third] = so_far[..] {
        let name = format!("{FAMILY}/{}+{}+{}", first.0, second.0, third.0);
        let mut workload = Workload::new(&name, tree.setup, &lines(so_far));
        workload.covered = lines(&so_far[..2]).len();
        return all.push(workload);
    }
    for operation in operations {
        so_far.push(*operation);
        extend(tree, operations, so_far, all);
        so_far.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triples_are_many_and_do_what_pairs_cannot() {
        let all = triples();
        let has = |name: &str| all.iter().any(|workload| workload.name == name);
        assert!(all.len() > 1000, "{}", all.len());
        assert!(has("seq3/rename:f:g+rename:g:f+rename:f:d/f"));
        assert!(has("seq3/unlink:f+maintain+create:g"));
        assert!(has("seq3/append:f:9000+truncate:f:100+append:f:100"));
        assert!(!has("seq3/unlink:f+maintain+unlink:f"), "that fails");
    }
}
