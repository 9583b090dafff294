//! The other namespaces: every single operation on names, chosen pairs, and operations that only
//! one namespace has.

use vellum::NamespaceKind;
use vellum_model::Op;

use super::{files, single_operations};
use crate::workload::{Step, Workload};

/// Operations that are combined with the splitting and merging of areas.
const OTHERS: [&str; 14] = [
    "create d/k 644 -",
    "mkdir d/e/k 755",
    "link f d/e/k",
    "unlink d/g",
    "rename d/g k 0",
    "rename f d/k 0",
    "rename d/e e 0",
    "rename x d/x 0",
    "rename d x/d 0",
    "rename d/e x 2",
    "split d/e",
    "split x",
    "maintain",
    "recover",
];

pub(super) fn workloads() -> Vec<Workload> {
    super::other_namespaces()
        .flat_map(|namespace| {
            let usual = [single_operations(), files::chosen(), files::sites()].concat();
            let own = match namespace {
                NamespaceKind::Direct => Vec::new(),
                NamespaceKind::Adaptive => adaptive(),
                NamespaceKind::Tree => files::tree_logs(),
            };
            let has_room =
                move |one: &Workload| namespace != NamespaceKind::Adaptive || !is_nearly_full(one);
            usual
                .into_iter()
                .filter(fits)
                .filter(has_room)
                .map(move |workload| workload.within(namespace))
                .chain(own)
        })
        .collect()
}

/// Whether a workload suits every namespace. Power cuts and full pools depend on the steps and the
/// space of the default one.
pub(super) fn fits(one: &Workload) -> bool {
    one.concerns_names() && one.cut.is_none() && !one.fills_the_pool()
}

/// Whether a setup takes nearly all metadata blocks that the default namespace leaves: an area's
/// table and map need some, too.
fn is_nearly_full(one: &Workload) -> bool {
    let ops = one.setup.iter().filter_map(Step::op);
    ops.filter(|op| matches!(op, Op::Symlink { .. })).count() > 50
}

fn adaptive() -> Vec<Workload> {
    let areas = files::areas();
    let beside = beside(&areas);
    [files::adaptive(), areas, beside, files::roots()].concat()
}

/// A directory becomes an area's root, and another stops being one, each followed by every other
/// operation, in the trees of the workloads that do only this.
fn beside(areas: &[Workload]) -> Vec<Workload> {
    let alone = |name: &str| {
        let found = areas.iter().find(|workload| workload.name == name);
        found.expect("the file has each alone")
    };
    let moves = ["adaptive-split", "adaptive-merge"].map(alone);
    let with = |other: &'static str| {
        moves.map(|alone| {
            let mut workload = alone.clone();
            let name = other.replace([' ', '/'], "-");
            workload.name = format!("{}-and-{name}", alone.name);
            workload.explored.push(Step::parse(other));
            workload
        })
    };
    OTHERS.into_iter().flat_map(with).collect()
}
