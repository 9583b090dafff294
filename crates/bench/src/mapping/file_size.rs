//! Fig 7: files from one block to more than the size of memory.

use super::case::{Access, Caches, Case, Order};
use super::grid::Grid;
use super::sample::Sweep;
use super::setting::{BLOCK_BYTES, HASHFS, Setting};
use crate::Result;
use crate::figure::{Axis, Scale};
use crate::report::Outcome;

/// Blocks of the files, up to 4 GiB. The paper has 4 KiB, 4 MiB and 4 GiB.
const BLOCKS: [u64; 7] = [1, 16, 256, 1 << 10, 1 << 14, 1 << 18, 1 << 20];
/// The largest file has at most this many times `--file-bytes`.
const LARGEST: u64 = 4;
/// The pool's blocks, as a multiple of those that files may have: the utilisation of the pool has
/// an effect of its own.
const ROOM: u64 = 2;

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let most = setting.file_blocks() * LARGEST;
    let sizes: Vec<u64> = BLOCKS.into_iter().filter(|&size| size <= most).collect();
    let room: u64 = sizes.iter().map(|&size| Case::blocks_with_room(size)).sum();
    let subjects = setting.subjects(room * ROOM, setting.options.layout_score)?;
    let cases: Vec<Vec<Case<'_>>> = sizes
        .iter()
        .map(|&size| Case::all(&subjects, size))
        .collect::<Result<_>>()?;
    let grid = |name: &str, title: &str| {
        let x = Axis::of("bytes of the file", "", Scale::Log);
        let labels = sizes
            .iter()
            .map(|size| (size * BLOCK_BYTES).to_string())
            .collect();
        Grid::lines(name, title, x, labels)
            .sides(&subjects)
            .claim(
                "Fig 7: trees get deeper as files grow (up to 34 % slower random reads from 4 KB \
                 to 4 GB, less than 10 % for sequential ones); hash tables do not change.",
            )
            .note("Small files are tested as several files, with at least 64 blocks together.")
    };
    let mut cold = grid("file-size-cold", "File size and cold lookups at random");
    let mut random = grid("file-size-hot", "File size and hot lookups at random");
    let mut sequential = grid(
        "file-size-sequential",
        "File size and hot lookups one after the other",
    );
    let mut inserts = grid("file-size-insert", "File size and cold appends");
    let mut sweep = Sweep::default();
    for round in setting.rounds() {
        let access = |caches, order| Access::new(setting, caches, order, round);
        for (label, cases) in cases.iter().enumerate() {
            for (side, case) in cases.iter().enumerate() {
                setting.check()?;
                let mut lookup = |caches, order| case.lookup(&access(caches, order), &mut sweep);
                cold.add(round, side, label, lookup(Caches::Cold, Order::Random)?);
                random.add(round, side, label, lookup(Caches::Hot, Order::Random)?);
                sequential.add(round, side, label, lookup(Caches::Hot, Order::Sequential)?);
                let append = access(Caches::Cold, Order::Sequential);
                inserts.add(round, side, label, case.insert(&append, &mut sweep)?);
            }
        }
    }
    let targets = cold.flat(HASHFS, "file size", "cold random lookup");
    let figures = [cold, random, sequential, inserts].map(Grid::figure);
    Ok(Outcome::new(figures.into(), targets.into_iter().collect()))
}
