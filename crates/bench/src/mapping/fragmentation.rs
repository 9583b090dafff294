//! Fig 6: the same blocks in files that are more and more fragmented.

use super::bed::{HASHFS, Setting, Subject};
use super::case::{Access, Caches, Case, Order};
use super::grid::{Grid, dependence};
use super::report::{Outcome, Target};
use super::sample::Sweep;
use crate::Result;
use crate::figure::{Axis, Scale};

/// Layout scores. The paper has the first and the third; 0.85 is its average file system.
const SCORES: [f64; 6] = [1.0, 0.85, 0.7, 0.5, 0.25, 0.0];
/// The dearest over the cheapest score, at most, where mapping does not depend on it.
const FLAT: f64 = 1.1;

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let blocks = setting.file_blocks();
    let room = Case::blocks_with_room(blocks) * 3 / 2;
    let beds = SCORES.map(|score| setting.subjects(room, score));
    let beds: Vec<Vec<Subject>> = beds.into_iter().collect::<Result<_>>()?;
    let cases: Vec<Vec<Case<'_>>> = beds
        .iter()
        .map(|subjects| Case::all(subjects, blocks))
        .collect::<Result<_>>()?;
    let grid = |name: &str, title: &str| {
        let x = Axis::of("layout score", "", Scale::Linear);
        let labels = SCORES.map(|score| score.to_string());
        Grid::lines(name, title, x, labels.into())
            .sides(&beds[0])
            .claim(
                "Fig 6: the only major difference is that of extent trees, which grow as files are \
                 fragmented. HashFS is unaffected by fragmentation.",
            )
    };
    let mut cold = grid("fragmentation-cold", "Fragmentation and cold lookups");
    let mut hot = grid("fragmentation-hot", "Fragmentation and hot lookups");
    let mut inserts = grid("fragmentation-insert", "Fragmentation and cold appends");
    let mut sweep = Sweep::default();
    for round in setting.rounds() {
        let lookup = |caches| Access::new(setting, caches, Order::Random, round);
        let append = Access::new(setting, Caches::Cold, Order::Sequential, round);
        for (label, cases) in cases.iter().enumerate() {
            for (side, case) in cases.iter().enumerate() {
                setting.check()?;
                let (in_cold, in_hot) = (lookup(Caches::Cold), lookup(Caches::Hot));
                cold.add(round, side, label, case.lookup(&in_cold, &mut sweep)?);
                hot.add(round, side, label, case.lookup(&in_hot, &mut sweep)?);
                inserts.add(round, side, label, case.insert(&append, &mut sweep)?);
            }
        }
    }
    let figures = [cold, hot, inserts].map(Grid::figure);
    let flat = |at: usize, what: &str| {
        let found = dependence(&figures[at], HASHFS);
        let what = format!("HashFS, dearest over cheapest layout score, {what} random lookup");
        found.map(|found| Target::at_most(what, found, FLAT))
    };
    let targets = [flat(0, "cold"), flat(1, "hot")].into_iter().flatten();
    let targets = targets.collect();
    Ok(Outcome::new(figures.into(), targets))
}
