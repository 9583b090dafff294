//! Blocks scattered over larger and larger files, with every mapping.

use vellum::{Handle, MappingKind, NamespaceKind, PoolOptions, media::Real};

use super::{NO_CLAIM, Setting, growth, pool_of, work};
use crate::Result;
use crate::error::expect;
use crate::figure::{Axis, Scale, bytes};
use crate::library::Library;
use crate::mapping::{Grid, Sample};
use crate::order::{Numbers, shuffled};
use crate::report::Outcome;
use crate::side::BLOCK;
use crate::workloads::{FileTree, Opened, Purpose};

/// Blocks of a file that have data.
const BLOCKS: usize = 1024;
/// The sizes of files, as parts of the largest.
const PARTS: [u64; 3] = [1024, 32, 1];
/// The least size of the largest file, so that every block of the smallest may have data, and the
/// largest size of a file.
pub(super) const LEAST_BYTES: u64 = PARTS[0] * (BLOCKS * BLOCK) as u64;
pub(super) const MOST_BYTES: u64 = 16 << 40;
/// Metadata of a pool: the nodes of trees for every block of three files.
const METADATA_BYTES: u64 = 64 << 20;
const MAPPING: &str = "hashfs";
/// The figures; values are those of a block.
const WORK: [(&str, &str); 4] = [
    ("write", "Writing a block of a hole"),
    ("read", "Reading a block between holes"),
    ("seek", "Finding the next data, and the next hole"),
    ("truncate", "Cutting the whole file off"),
];

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let options = setting.options;
    let sizes = PARTS.map(|part| options.sparse_bytes / part);
    let labels = sizes.map(bytes);
    let sides = MappingKind::ALL.map(|mapping| mapping.name().to_owned());
    let grid = |part: &str, title: &str| {
        let x = Axis::labels("size of the file");
        Grid::lines(&format!("sparse-{part}"), title, x, labels.clone().into())
            .named(sides.clone().into(), MAPPING, MAPPING)
            .claim(NO_CLAIM)
            .note(format!(
                "{BLOCKS} blocks of 4 KiB, one at random in each of as many parts of the file, in \
                 a random order, in a pool with {} of data.",
                bytes(options.pool_bytes)
            ))
    };
    let mut grids = WORK.map(|(part, title)| {
        grid(part, title).of(Axis::of("time for each block", "ns", Scale::Log))
    });
    let mut space = grid("metadata", "Metadata of a block").of(Axis::of(
        "metadata of a block",
        "bytes",
        Scale::Linear,
    ));
    for (side, mapping) in MappingKind::ALL.into_iter().enumerate() {
        let made = pool_of(NamespaceKind::default(), METADATA_BYTES, options.pool_bytes);
        let opened = PoolOptions::new().populate(true);
        let pool = setting.pool_opened(&made.mapping(mapping), opened)?;
        for round in setting.rounds() {
            for (label, size) in sizes.into_iter().enumerate() {
                setting.check()?;
                let (samples, used) = round_of(&pool.library, size, round)?;
                for (grid, sample) in grids.iter_mut().zip(samples) {
                    grid.add(round, side, label, sample);
                }
                space.add(round, side, label, Sample::of(used));
            }
        }
    }
    let each = grids
        .iter()
        .zip(WORK)
        .flat_map(|(grid, (part, _))| growth(grid, &sides, &format!("sparse, {part}"), &labels[0]));
    let targets = each.collect();
    let figures = grids.into_iter().chain([space]).map(Grid::figure);
    Ok(Outcome::new(figures.collect(), targets))
}

/// Measures a file of this size, which is removed again; also returns the bytes of metadata that
/// each of its blocks took.
fn round_of(library: &Library, size: u64, round: usize) -> Result<([Sample; WORK.len()], f64)> {
    let used = || {
        crate::library::settle(library.fs())?;
        Ok::<_, crate::Error>(vellum::experiments::metadata_bytes(library.fs()))
    };
    let tree = library.tree();
    drop(tree.open(c"sparse", Purpose::Create)?);
    let file = tree.open(c"sparse", Purpose::ReadWrite)?;
    file.set_len(size)?;
    let before = used()?;
    let places = places(size, round);
    let order = shuffled(BLOCKS, round as u64);
    let data = [7; BLOCK];
    let write = work(library, BLOCKS, || {
        let mut each = order.iter();
        each.try_for_each(|&at| Opened::write_at(&file, places[at], &data))
    })?;
    let taken = used()?.saturating_sub(before) as f64 / BLOCKS as f64;
    let read = work(library, BLOCKS, || {
        let mut out = [0; BLOCK];
        for &at in &order {
            expect(
                "bytes read",
                Opened::read_at(&file, places[at], &mut out)?,
                BLOCK,
            )?;
            expect("a byte read", out[0], data[0])?;
        }
        Ok(())
    })?;
    let seek = work(library, BLOCKS, || {
        expect(
            "blocks found",
            count_blocks(file.handle(), size)?,
            BLOCKS as u64,
        )
    })?;
    let truncate = work(library, BLOCKS, || Opened::set_len(&file, 0))?;
    drop(file);
    tree.remove(c"sparse")?;
    Ok(([write, read, seek, truncate], taken))
}

/// Counts the blocks with data, from one boundary to the next.
fn count_blocks(file: &Handle<Real>, size: u64) -> Result<u64> {
    let (mut at, mut blocks) = (0, 0);
    while at < size {
        let data = match file.seek_data(at) {
            Err(vellum::Error::NoData) => break,
            found => found?,
        };
        at = file.seek_hole(data)?;
        blocks += (at - data) / BLOCK as u64;
    }
    Ok(blocks)
}

/// Offsets of blocks, ascending: one in each of [`BLOCKS`] equal parts.
fn places(size: u64, round: usize) -> Vec<u64> {
    let mut numbers = Numbers::new(round as u64);
    let part = size / BLOCK as u64 / BLOCKS as u64;
    let each = (0..BLOCKS as u64).map(|at| (at * part + numbers.below(part)) * BLOCK as u64);
    each.collect()
}
