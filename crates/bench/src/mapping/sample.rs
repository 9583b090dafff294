//! Timing operations on a mapping: one by one with cold caches, or many in a row.

use std::hint::black_box;
use std::time::Instant;

use vellum::experiments::MappingAlone;
use vellum::media::Real;
use vellum::media::count::{Counts, of_this_thread};

use crate::Result;
use crate::figure::median;
use crate::stopwatch::Stopwatch;

/// A file's mapping.
pub(super) type Alone<'a> = MappingAlone<'a, Real>;

/// What operations of a round came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    /// What is plotted: mostly nanoseconds an operation.
    pub(super) value: f64,
    /// Operations.
    pub(super) ops: u64,
    /// What all of them did.
    pub(super) counts: Counts,
}

/// Times that the clock is asked to find out what asking costs.
const CLOCK_TRIES: usize = 1001;

/// Nanoseconds between two looks at the clock that follow each other.
fn clock_ns() -> f64 {
    let look = |_| Instant::now().elapsed().as_nanos() as f64;
    median((0..CLOCK_TRIES).map(look).collect())
}

/// How the caches are made cold.
pub(super) trait Chill {
    /// Makes everything cold that the next operation could find warm.
    fn chill(&mut self, alone: &mut Alone<'_>);
}

/// By flushing the structure's lines.
pub(super) struct Evict;

impl Chill for Evict {
    fn chill(&mut self, alone: &mut Alone<'_>) {
        alone.forget();
        alone.evict();
    }
}

/// Bytes that push everything else out of the caches.
const SWEEP_BYTES: usize = 128 << 20;
const LINE_BYTES: usize = 64;

/// By reading more than the caches hold.
pub(super) struct Sweep(Vec<u8>);

impl Sweep {
    pub(super) fn new() -> Self {
        // Not zeros, whose pages could all be one.
        Self(vec![1; SWEEP_BYTES])
    }
}

impl Chill for Sweep {
    fn chill(&mut self, alone: &mut Alone<'_>) {
        alone.forget();
        let lines = self.0.iter().step_by(LINE_BYTES);
        black_box(lines.map(|&byte| u64::from(byte)).sum::<u64>());
    }
}

/// Operations on a mapping after which others are let go on: what was given up becomes free.
const RENEW_OPS: usize = 64;

/// Asks at each place with cold caches; the median counts.
pub(super) fn cold(
    mut alone: Alone<'_>,
    chill: &mut impl Chill,
    places: &[u64],
    mut ask: impl FnMut(&mut Alone<'_>, u64) -> Result<()>,
) -> Result<Sample> {
    let mut times = Vec::with_capacity(places.len());
    let mut counts = Counts::default();
    for &place in places {
        alone = alone.renew()?;
        chill.chill(&mut alone);
        let before = of_this_thread();
        let start = Instant::now();
        ask(&mut alone, place)?;
        times.push(start.elapsed().as_nanos() as f64);
        counts += of_this_thread() - before;
    }
    Ok(Sample {
        value: (median(times) - clock_ns()).max(0.0),
        ops: places.len() as u64,
        counts,
    })
}

/// Asks at each place, one after the other; the mean counts.
pub(super) fn hot(
    mut alone: Alone<'_>,
    places: &[u64],
    mut ask: impl FnMut(&mut Alone<'_>, u64) -> Result<()>,
) -> Result<Sample> {
    let before = of_this_thread();
    let watch = Stopwatch::start();
    for places in places.chunks(RENEW_OPS) {
        alone = alone.renew()?;
        for &place in places {
            ask(&mut alone, place)?;
        }
    }
    let elapsed = watch.elapsed();
    Ok(Sample {
        value: elapsed.as_nanos() as f64 / places.len().max(1) as f64,
        ops: places.len() as u64,
        counts: of_this_thread() - before,
    })
}
