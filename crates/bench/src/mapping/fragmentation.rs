//! Fig 6: the same blocks in increasingly fragmented files.

use super::case::{Access, Caches, Case, Order};
use super::grid::Grid;
use super::sample::Sweep;
use super::setting::{HASHFS, Setting, Subject};
use crate::Result;
use crate::figure::{Axis, Scale};
use crate::report::Outcome;

/// Layout scores. The paper has the first and the third; 0.85 is its average file system.
const SCORES: [f64; 6] = [1.0, 0.85, 0.7, 0.5, 0.25, 0.0];

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
    let targets = [(&cold, "cold random lookup"), (&hot, "hot random lookup")];
    let targets = targets.map(|(grid, what)| grid.flat(HASHFS, "layout score", what));
    let figures = [cold, hot, inserts].map(Grid::figure);
    Ok(Outcome::new(
        figures.into(),
        targets.into_iter().flatten().collect(),
    ))
}
