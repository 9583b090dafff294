//! Fig 5: single blocks, cold and hot, sequentially and at random.

use super::case::{Access, Caches, Case, Order, SWEPT_OPS};
use super::grid::{Grid, at};
use super::sample::Sweep;
use super::setting::{HASHFS, Setting, Subject};
use crate::Result;
use crate::figure::Figure;
use crate::report::Outcome;
use crate::target::Target;

const LABELS: [&str; 5] = [
    "cold sequential",
    "cold random",
    "swept random",
    "hot sequential",
    "hot random",
];
const MANNERS: [(Caches, Order); 5] = [
    (Caches::Cold, Order::Sequential),
    (Caches::Cold, Order::Random),
    (Caches::Swept, Order::Random),
    (Caches::Hot, Order::Sequential),
    (Caches::Hot, Order::Random),
];
/// The target: how many times faster HashFS is.
const LOOKUP_RATIO: f64 = 3.0;
const INSERT_RATIO: f64 = 4.0;

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let blocks = setting.file_blocks();
    let room = Case::blocks_with_room(blocks);
    let subjects = setting.subjects(room * 3 / 2, setting.options.layout_score)?;
    let cases = Case::all(&subjects, blocks)?;
    let grid = |name: &str, title: &str| {
        Grid::bars(name, title, "access", &LABELS)
            .sides(&subjects)
            .note(format!(
                "Cold: medians of {} operations, each after the structure's lines were flushed; \
                 swept: of {SWEPT_OPS}, each after more was read than the caches hold.",
                setting.options.cold_ops
            ))
    };
    let mut lookups = grid("locality-lookup", "Access pattern and lookups").claim(
        "Fig 5: on a file of 1 GB, hot lookups are fast on all mappings; cold, global mappings are \
         up to 15 times faster than trees of files.",
    );
    let mut inserts = grid("locality-insert", "Access pattern and inserts")
        .claim(
            "Fig 5: cold, HashFS inserts 14 to 20 times faster than all others, which need a block \
             allocator.",
        )
        .note("An insert ends with the fence that makes it durable.");
    let mut sweep = Sweep::default();
    for round in setting.rounds() {
        for (label, &(caches, order)) in MANNERS.iter().enumerate() {
            let access = Access::new(setting, caches, order, round);
            for (side, case) in cases.iter().enumerate() {
                setting.check()?;
                lookups.add(round, side, label, case.lookup(&access, &mut sweep)?);
                inserts.add(round, side, label, case.insert(&access, &mut sweep)?);
            }
        }
    }
    let (lookups, inserts) = (lookups.figure(), inserts.figure());
    let targets = targets(&subjects, &lookups, &inserts);
    Ok(Outcome::new(vec![lookups, inserts], targets))
}

fn targets(subjects: &[Subject], lookups: &Figure, inserts: &Figure) -> Vec<Target> {
    let mut targets = Vec::new();
    let random = LABELS[1];
    if let Some(ratio) = at(lookups, HASHFS, random).and_then(|point| point.peer_over) {
        let what = "extent tree over HashFS, cold random lookup";
        targets.push(Target::at_least(what, ratio, LOOKUP_RATIO));
    }
    for label in &LABELS[..2] {
        let others = subjects
            .iter()
            .filter(|subject| !subject.design.allocates_itself())
            .filter_map(|subject| at(inserts, subject.design.name(), label));
        let best = others
            .map(|point| point.value)
            .fold(f64::INFINITY, f64::min);
        if let Some(own) = at(inserts, HASHFS, label) {
            let what = format!("the best mapping with an allocator over HashFS, {label} insert");
            targets.push(Target::at_least(what, best / own.value, INSERT_RATIO));
        }
    }
    targets
}
