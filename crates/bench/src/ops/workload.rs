//! Workloads: the work of a round, the same on every side, and its timing.

use std::time::Duration;

use vellum::media::count::Counts;

use super::instructions::{counted, newest_call};
use crate::Result;
use crate::kernel::Kernel;
use crate::library::Library;
use crate::side::Side;
use crate::stopwatch::Stopwatch;

/// An operation that a workload times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) op: &'static str,
    pub(crate) threads: usize,
    /// For two threads: `shared` or `private`.
    pub(crate) directories: Option<&'static str>,
    /// The order of visits.
    pub(crate) order: &'static str,
}

impl Part {
    /// An operation of one thread.
    pub(crate) const fn single(op: &'static str, order: &'static str) -> Self {
        Self {
            op,
            threads: 1,
            directories: None,
            order,
        }
    }
}

/// Work to measure.
pub(crate) trait Workload {
    /// The operations that it times.
    fn parts(&self) -> &[Part];

    /// Creates what must exist before the first round.
    fn fill<S: Side>(&self, side: &S) -> Result<()>;

    /// Does everything once, times it, checks it, and restores the original state.
    fn round<S: Side>(&self, side: &S, laps: &mut Laps) -> Result<()>;

    /// Whether a round right after reopening shows the cost of a first access.
    fn has_first_access(&self) -> bool {
        false
    }
}

/// A workload of any type.
pub(crate) trait AnyWorkload {
    fn parts(&self) -> &[Part];
    fn has_first_access(&self) -> bool;
    fn fill_library(&self, library: &Library) -> Result<()>;
    fn fill_kernel(&self, kernel: &Kernel) -> Result<()>;
    fn round_library(&self, library: &Library, laps: &mut Laps) -> Result<()>;
    fn round_kernel(&self, kernel: &Kernel, laps: &mut Laps) -> Result<()>;
}

impl<W: Workload> AnyWorkload for W {
    fn parts(&self) -> &[Part] {
        Workload::parts(self)
    }

    fn has_first_access(&self) -> bool {
        Workload::has_first_access(self)
    }

    fn fill_library(&self, library: &Library) -> Result<()> {
        self.fill(library)
    }

    fn fill_kernel(&self, kernel: &Kernel) -> Result<()> {
        self.fill(kernel)
    }

    fn round_library(&self, library: &Library, laps: &mut Laps) -> Result<()> {
        self.round(library, laps)
    }

    fn round_kernel(&self, kernel: &Kernel, laps: &mut Laps) -> Result<()> {
        self.round(kernel, laps)
    }
}

/// The cost of one part in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lap {
    /// The time of an operation as its thread sees it.
    pub(crate) ns: f64,
    /// The number of operations of all threads.
    pub(crate) ops: u64,
    /// The counts of all of them, including background work.
    pub(crate) counts: Counts,
    /// The number of the call of [`counted`] that ran it; absent for several threads.
    pub(crate) call: Option<u64>,
}

/// The number of timed visits in a round, so that it isn't too short.
pub(crate) const VISITS: usize = 5;

/// The laps of one side in one round.
#[derive(Debug)]
pub(crate) struct Laps {
    laps: Vec<Option<Lap>>,
    is_first_access: bool,
}

impl Laps {
    pub(crate) fn warm(parts: usize) -> Self {
        Self {
            laps: vec![None; parts],
            is_first_access: false,
        }
    }

    pub(crate) fn first_access(parts: usize) -> Self {
        Self {
            is_first_access: true,
            ..Self::warm(parts)
        }
    }

    /// The number of visits: one for a first access, otherwise `warm`.
    fn passes(&self, warm: usize) -> usize {
        if self.is_first_access { 1 } else { warm }
    }

    /// Times visits of `ops` operations each by one thread, and returns the number of visits. A
    /// first access is one visit. Otherwise an untimed visit comes first, because the turns of
    /// other sides have replaced this side's data in the processor's caches.
    pub(crate) fn time_visits<S: Side>(
        &mut self,
        side: &S,
        part: usize,
        ops: usize,
        mut visit: impl FnMut() -> Result<()>,
    ) -> Result<usize> {
        let timed = self.passes(VISITS);
        let untimed = usize::from(!self.is_first_access);
        (0..untimed).try_for_each(|_| visit())?;
        self.time(side, part, timed * ops, || {
            (0..timed).try_for_each(|_| visit())
        })?;
        Ok(untimed + timed)
    }

    /// Times `ops` operations of one thread.
    pub(crate) fn time<S: Side>(
        &mut self,
        side: &S,
        part: usize,
        ops: usize,
        run: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut run = Some(run);
        self.time_threads(side, part, ops, 1, || {
            let watch = Stopwatch::start();
            counted(&mut || run.take().map_or(Ok(()), |run| run()))?;
            Ok(watch.elapsed())
        })
    }

    /// Times `ops` operations of each of `threads` threads; `run` returns the time of the slowest
    /// one.
    pub(crate) fn time_threads<S: Side>(
        &mut self,
        side: &S,
        part: usize,
        ops: usize,
        threads: usize,
        run: impl FnOnce() -> Result<Duration>,
    ) -> Result<()> {
        side.settle()?;
        let before = side.counts();
        let elapsed = run()?;
        side.settle()?;
        self.laps[part] = Some(Lap {
            ns: elapsed.as_nanos() as f64 / ops as f64,
            ops: (ops * threads) as u64,
            counts: side.counts() - before,
            call: (threads == 1).then(newest_call),
        });
        Ok(())
    }

    /// The laps by part.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Option<&Lap>> {
        self.laps.iter().map(Option::as_ref)
    }
}
