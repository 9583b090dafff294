//! Fig 5: single blocks, cold and hot, one after the other and at random.

use vellum::{File, MappingKind};

use super::bed::{BLOCK_BYTES, Setting, Subject, alone};
use super::grid::{Grid, Place};
use super::sample::{Alone, Evict, Sample, Sweep, cold, hot};
use crate::Result;
use crate::error::expect;
use crate::figure::{Axis, Chart, Figure, Scale, Target};
use crate::order::{Numbers, shuffled};

/// Operations that a sweep of all caches is worth.
const SWEPT_OPS: usize = 8;
/// By how much HashFS is to be faster.
const LOOKUP_RATIO: f64 = 3.0;
const INSERT_RATIO: f64 = 4.0;

/// Where operations go, and what they find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Cold,
    Swept,
    Hot,
}

const MANNERS: [(&str, Manner, bool); 5] = [
    ("cold sequential", Manner::Cold, false),
    ("cold random", Manner::Cold, true),
    ("swept random", Manner::Swept, true),
    ("hot sequential", Manner::Hot, false),
    ("hot random", Manner::Hot, true),
];

/// A pool, and a file in it that has blocks in its first half.
struct Case {
    subject: Subject,
    file: File,
    blocks: u64,
}

impl Case {
    fn make(subject: Subject, blocks: u64) -> Result<Self> {
        let file = subject.filled("file", blocks)?;
        file.set_len(2 * blocks * BLOCK_BYTES)?;
        Ok(Self {
            subject,
            file,
            blocks,
        })
    }
}

pub(super) fn measure(setting: &Setting<'_>) -> Result<Figure> {
    let (bytes, score) = (setting.options.file_bytes * 3, setting.options.layout_score);
    let cases: Vec<Case> = setting
        .subjects(bytes, score)?
        .into_iter()
        .map(|subject| Case::make(subject, setting.file_blocks()))
        .collect::<Result<_>>()?;
    let mut sweep = Sweep::new();
    let grid = |title: &str| {
        let labels = MANNERS.map(|(label, ..)| label);
        Grid::new(
            title,
            Axis::new("access", "", Scale::Category),
            Axis::new("time of an operation", "ns", Scale::Linear),
            cases.iter().map(|case| case.subject.design.name.clone()),
            Place::labelled(&labels),
        )
    };
    let (mut lookups, mut inserts) = (grid("lookup of a block"), grid("insert of a block"));
    for round in setting.rounds() {
        for (place, &(_, manner, at_random)) in MANNERS.iter().enumerate() {
            let places = places(setting, manner, at_random, round);
            for (side, case) in cases.iter().enumerate() {
                setting.check()?;
                lookups.note(
                    round,
                    side,
                    place,
                    case.lookup(manner, &mut sweep, &places)?,
                );
                inserts.note(
                    round,
                    side,
                    place,
                    case.insert(manner, &mut sweep, &places)?,
                );
            }
        }
    }
    let (lookups, inserts) = (lookups.chart(), inserts.chart());
    Ok(Figure {
        name: super::Figure::Locality.name().into(),
        title: "access patterns against the latency of file mapping".into(),
        source: "Rethinking File Mapping for Persistent Memory, Fig 5".into(),
        claim: "On a file of 1 GiB, hot operations are fast on all mappings. Cold, global mappings are up \
                to 15x faster than trees of files; HashFS inserts 14 to 20x faster than all that need \
                a block allocator."
            .into(),
        targets: targets(&cases, &lookups, &inserts),
        charts: vec![lookups, inserts],
        notes: vec![
            format!(
                "Cold: medians of {} operations, each after the structure's lines were flushed; \
                 swept: of {SWEPT_OPS}, each after more was read than the caches hold.",
                setting.options.cold_ops
            ),
            "Inserts end with the fence that makes them durable.".into(),
        ],
    })
}

/// Blocks of the file, no block twice.
fn places(setting: &Setting<'_>, manner: Manner, at_random: bool, round: usize) -> Vec<u64> {
    let blocks = setting.file_blocks();
    let most = match manner {
        Manner::Cold => setting.options.cold_ops,
        Manner::Swept => SWEPT_OPS.min(setting.options.cold_ops),
        Manner::Hot => setting.options.hot_ops,
    };
    // So that inserts find room.
    let count = (most as u64).min(blocks / 2);
    if at_random {
        let shuffled = shuffled(blocks as usize, round as u64).into_iter();
        return shuffled
            .take(count as usize)
            .map(|block| block as u64)
            .collect();
    }
    let start = Numbers::new(round as u64).below(blocks - count);
    (start..start + count).collect()
}

fn run(
    manner: Manner,
    sweep: &mut Sweep,
    alone: Alone<'_>,
    places: &[u64],
    ask: impl FnMut(&mut Alone<'_>, u64) -> Result<()>,
) -> Result<Sample> {
    match manner {
        Manner::Cold => cold(alone, &mut Evict, places, ask),
        Manner::Swept => cold(alone, sweep, places, ask),
        Manner::Hot => hot(alone, places, ask),
    }
}

impl Case {
    fn lookup(&self, manner: Manner, sweep: &mut Sweep, places: &[u64]) -> Result<Sample> {
        run(manner, sweep, alone(&self.file)?, places, |alone, at| {
            expect("a block that was looked up", alone.lookup(at, 1)?, 1)
        })
    }

    /// Inserts behind what the file has, and takes it away again.
    fn insert(&self, manner: Manner, sweep: &mut Sweep, places: &[u64]) -> Result<Sample> {
        let (first, start) = (self.blocks, places.first().copied().unwrap_or(0));
        // One after the other means appending.
        let skip = if places.is_sorted() { start } else { 0 };
        let sample = run(manner, sweep, alone(&self.file)?, places, |alone, at| {
            Ok(alone.insert(first + at - skip, 1)?)
        })?;
        let taken = alone(&self.file)?.remove(first, 2 * first)?;
        self.subject.settle();
        expect("blocks taken away", taken, places.len() as u64)?;
        Ok(sample)
    }
}

/// What the issue of this room is to reach.
fn targets(cases: &[Case], lookups: &Chart, inserts: &Chart) -> Vec<Target> {
    const COLD: &str = "cold random";
    let mut targets = Vec::new();
    let hashfs = MappingKind::HashFs.name();
    if let Some(ratio) = lookups
        .point(hashfs, COLD)
        .and_then(|point| point.peer_over)
    {
        let what = "extent tree over HashFS, cold random lookup";
        targets.push(Target::at_least(what, ratio, LOOKUP_RATIO));
    }
    for access in ["cold sequential", COLD] {
        let others = cases
            .iter()
            .filter(|case| !case.subject.design.allocates_itself())
            .filter_map(|case| inserts.point(&case.subject.design.name, access));
        let best = others.map(|point| point.y).fold(f64::INFINITY, f64::min);
        if let Some(own) = inserts.point(hashfs, access) {
            let what = format!("the best with an allocator over HashFS, {access} insert");
            targets.push(Target::at_least(what, best / own.y, INSERT_RATIO));
        }
    }
    targets
}
