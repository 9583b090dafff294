//! Times operations on a mapping: one by one with cold caches, or many in a row.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use vellum::experiments::MappingProbe;
use vellum::media::Real;
use vellum::media::count::{Counts, of_this_thread};

use crate::Result;
use crate::figure::median;

/// A file's mapping.
pub(super) type Probe<'a> = MappingProbe<'a, Real>;

/// The result of the operations of a round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// The plotted value: mostly nanoseconds per operation.
    pub(crate) value: f64,
    /// The number of operations.
    pub(crate) ops: u64,
    /// The total counts.
    pub(crate) counts: Counts,
}

impl Sample {
    /// The value per part, where every operation has `parts` of them.
    pub(super) fn per(self, parts: u64) -> Self {
        Self {
            value: self.value / parts as f64,
            ops: self.ops * parts,
            ..self
        }
    }

    /// The probes of an operation instead of its time.
    pub(super) fn by_probes(self) -> Self {
        Self {
            value: self.counts.probes as f64 / self.ops.max(1) as f64,
            ..self
        }
    }

    /// The mean of samples, with the sum of their counts.
    pub(super) fn mean(samples: &[Self]) -> Self {
        let mut counts = Counts::default();
        samples.iter().for_each(|sample| counts += sample.counts);
        let sum: f64 = samples.iter().map(|sample| sample.value).sum();
        Self {
            value: sum / samples.len().max(1) as f64,
            ops: samples.iter().map(|sample| sample.ops).sum(),
            counts,
        }
    }
}

/// The number of clock readings for measuring the cost of one.
const CLOCK_TRIES: usize = 1001;

/// Nanoseconds between two consecutive clock readings.
pub(super) fn clock_ns() -> f64 {
    let looks = [(); CLOCK_TRIES].map(|()| Instant::now().elapsed().as_nanos() as f64);
    median(&looks)
}

/// Nanoseconds of processor time of this thread. Operations on a mapping wait for nothing else, so
/// this is their time on an otherwise idle machine.
fn running_ns() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// The cost of calling [`running_ns`].
fn running_clock_ns() -> f64 {
    static COST: OnceLock<f64> = OnceLock::new();
    *COST.get_or_init(|| {
        let looks = [(); CLOCK_TRIES].map(|()| -running_ns() + running_ns());
        median(&looks)
    })
}

/// Runs `run`; returns its time without waits for a processor.
fn timed(run: impl FnOnce() -> Result<()>) -> Result<f64> {
    let clock = running_clock_ns();
    let start = running_ns();
    run()?;
    Ok((running_ns() - start - clock).max(0.0))
}

/// A way to make the caches cold.
pub(super) trait Chill {
    /// Makes everything cold that could be warm for the next operation.
    fn chill(&mut self, probe: &mut Probe<'_>);
}

/// Flushes the structure's lines.
pub(super) struct Evict;

impl Chill for Evict {
    fn chill(&mut self, probe: &mut Probe<'_>) {
        probe.forget();
        probe.evict();
    }
}

/// The bytes to read in order to replace everything in the caches.
const SWEEP_BYTES: usize = 128 << 20;
const LINE_BYTES: usize = 64;

/// Reads more than the caches hold.
#[derive(Default)]
pub(super) struct Sweep(Vec<u8>);

impl Chill for Sweep {
    fn chill(&mut self, probe: &mut Probe<'_>) {
        // The bytes are not zeros, whose pages could all be one.
        self.0.resize(SWEEP_BYTES, 1);
        probe.forget();
        let lines = self.0.iter().step_by(LINE_BYTES);
        black_box(lines.map(|&byte| u64::from(byte)).sum::<u64>());
    }
}

/// The number of operations after which the probe's operation is renewed, so that freed blocks
/// become available.
const RENEW_OPS: usize = 64;

/// Times of measured operations.
#[derive(Default)]
pub(super) struct Times {
    /// The times of single operations, in nanoseconds.
    single: Vec<f64>,
    /// The total time of consecutive operations.
    together_ns: f64,
    ops: u64,
    counts: Counts,
}

impl Times {
    /// Asks at each location with cold caches.
    pub(super) fn cold(
        &mut self,
        mut probe: Probe<'_>,
        chill: &mut impl Chill,
        places: &[u64],
        mut ask: impl FnMut(&mut Probe<'_>, u64) -> Result<()>,
    ) -> Result<()> {
        for &place in places {
            probe = probe.renew()?;
            chill.chill(&mut probe);
            let before = of_this_thread();
            let start = Instant::now();
            ask(&mut probe, place)?;
            self.single.push(start.elapsed().as_nanos() as f64);
            self.counts += of_this_thread() - before;
        }
        self.ops += places.len() as u64;
        Ok(())
    }

    /// Asks at each location, without pauses.
    pub(super) fn hot(
        &mut self,
        mut probe: Probe<'_>,
        places: &[u64],
        mut ask: impl FnMut(&mut Probe<'_>, u64) -> Result<()>,
    ) -> Result<()> {
        let before = of_this_thread();
        self.together_ns += timed(|| {
            for places in places.chunks(RENEW_OPS) {
                probe = probe.renew()?;
                places.iter().try_for_each(|&at| ask(&mut probe, at))?;
            }
            Ok(())
        })?;
        self.counts += of_this_thread() - before;
        self.ops += places.len() as u64;
        Ok(())
    }

    /// Nanoseconds per operation: the median of single operations, the mean of consecutive ones.
    pub(super) fn sample(self) -> Sample {
        let value = if self.single.is_empty() {
            self.together_ns / self.ops.max(1) as f64
        } else {
            (median(&self.single) - clock_ns()).max(0.0)
        };
        Sample {
            value,
            ops: self.ops,
            counts: self.counts,
        }
    }
}

/// Asks at each location, without pauses.
pub(super) fn repeat(places: &[u64], mut ask: impl FnMut(u64) -> Result<()>) -> Result<Sample> {
    let before = of_this_thread();
    let ns = timed(|| places.iter().try_for_each(|&at| ask(at)))?;
    Ok(Sample {
        value: ns / places.len().max(1) as f64,
        ops: places.len() as u64,
        counts: of_this_thread() - before,
    })
}
