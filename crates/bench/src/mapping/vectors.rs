//! The gain from instruction sets: the steps of a lookup by HashFS, and copying, in each variant
//! that this processor supports.
//!
//! Pools use the best variant, or the one in `VELLUM_VECTOR`; the measured steps are the same code.

use std::hint::black_box;
use std::time::Instant;

use vellum::media::{FlushVariant, Isa, LANES, MappedPool, Memory, VectorVariant};

use super::setting::{BLOCK_BYTES, Setting};
use crate::Result;
use crate::figure::{Axis, Figure, Point, Scale, Series, Shape, number};
use crate::order::Numbers;
use crate::report::Outcome;

/// Bytes of the memory that is compared and copied: it fits into a core's caches.
const MEMORY_BYTES: u64 = 256 << 10;
const LINE_BYTES: u64 = 64;
/// Operations of a round, as a fraction of `--hot-ops`, at least one.
const OPS_PART: usize = 4;

/// A step with its label.
struct Step {
    label: &'static str,
    run: fn(Isa, &MappedPool, u64) -> u64,
}

const STEPS: [Step; 3] = [
    Step {
        label: "hashing 8 runs",
        run: |isa, _, number| {
            let lanes = isa.hash_lanes(0x5EED, number, u32::MAX);
            lanes.places[LANES - 1] ^ lanes.hashes[0]
        },
    },
    Step {
        label: "comparing a line of 8",
        run: |_, memory, number| {
            let at = number % (MEMORY_BYTES / LINE_BYTES) * LINE_BYTES;
            memory.match_line(at, u64::MAX << 3, number).into()
        },
    },
    Step {
        label: "copying 4 KiB",
        run: |_, memory, number| {
            let mut out = [0; BLOCK_BYTES as usize];
            memory.read(
                number % (MEMORY_BYTES / BLOCK_BYTES) * BLOCK_BYTES,
                &mut out,
            );
            black_box(&mut out)[0].into()
        },
    },
];

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let ops = (setting.options.hot_ops / OPS_PART).max(1);
    let isas: Vec<Isa> = VectorVariant::ALL
        .into_iter()
        .filter_map(|vector| Isa::new(FlushVariant::Generic, vector))
        .collect();
    let mut taken = vec![vec![Vec::new(); STEPS.len()]; isas.len()];
    for round in setting.rounds() {
        for (isa, taken) in isas.iter().zip(&mut taken) {
            setting.check()?;
            let memory = MappedPool::anonymous(MEMORY_BYTES).map_err(vellum::Error::from)?;
            let memory = memory.with_isa(*isa);
            memory.populate();
            for (step, taken) in STEPS.iter().zip(taken) {
                let ns = time(step, *isa, &memory, ops);
                if round > 0 {
                    taken.push(ns);
                }
            }
        }
    }
    Ok(Outcome::new(vec![figure(&isas, &taken)], Vec::new()))
}

/// Nanoseconds of a step, repeated at locations that do not depend on the step before.
fn time(step: &Step, isa: Isa, memory: &MappedPool, ops: usize) -> f64 {
    let mut numbers = Numbers::new(1);
    let places: Vec<u64> = (0..ops).map(|_| numbers.below(1 << 40)).collect();
    let all = || {
        let start = Instant::now();
        for &place in &places {
            black_box((step.run)(isa, memory, place));
        }
        start.elapsed().as_nanos() as f64 / ops as f64
    };
    all();
    all()
}

fn figure(isas: &[Isa], taken: &[Vec<Vec<f64>>]) -> Figure {
    let series = isas.iter().zip(taken).map(|(isa, taken)| Series {
        name: isa.vector_variant().name().into(),
        points: STEPS
            .iter()
            .zip(taken)
            .filter_map(|(step, rounds)| Point::of_rounds(step.label, rounds))
            .collect(),
    });
    let series: Vec<Series> = series.collect();
    let generic = series
        .iter()
        .find(|series| series.name == VectorVariant::Generic.name());
    let found = STEPS.iter().filter_map(|step| {
        let scalar = generic?.at(step.label)?.value;
        let best = series.iter().filter_map(|series| {
            let value = series.at(step.label)?.value;
            Some((&series.name, value))
        });
        let (name, value) = best.min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(format!(
            "{}: {} ns by {name}, {} times as fast as the scalar variant.",
            step.label,
            number(value),
            number(scalar / value)
        ))
    });
    Figure {
        name: "vectors".into(),
        title: "The steps of a hot lookup by instruction set".into(),
        claim: "HashFS, 3.2.2: hashing and comparing many blocks at once, with AVX-512, pays for \
                requests of several blocks."
            .into(),
        found: found.collect(),
        x: Axis::labels("Step"),
        y: Axis::of("time of a step", "ns", Scale::Log),
        shape: Shape::Bars,
        series,
        marks: Vec::new(),
        notes: vec!["The compared and copied memory fits into a core's caches.".into()],
    }
}
