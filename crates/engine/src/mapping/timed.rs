//! How much time a file system spends in its mapping, for measurements.
//!
//! A wrapper that reads the clock around some of the calls, chosen at random: one in [`EVERY`] on
//! average. Reading the clock takes about as long as a lookup, so the other calls cost no more than
//! before. Pools that are not measured use the mapping itself.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use vellum_media::Memories;

use crate::core::Core;
use crate::core::slots::Op;
use crate::error::Result;
use crate::mapping::{
    Allocator, BlockNo, Flush, Found, MapId, Mapping, Reservation, Seek, Step, Survey,
};

/// Average number of calls for each timed one.
const EVERY: u32 = 16;
/// A call that takes longer was preempted by the scheduler, and is not counted.
const PUT_ASIDE: Duration = Duration::from_millis(1);
/// Pairs of clock readings that determine the cost of a reading.
const CLOCK_PAIRS: usize = 1001;

/// What a call was for.
#[derive(Clone, Copy)]
enum Kind {
    /// Finding blocks.
    Lookup,
    /// Allocating blocks to files, changing their state, freeing them.
    Change,
}

/// Collects the time that file systems spend in their mappings while they are open with this timer.
#[derive(Debug)]
pub struct MappingTimer {
    /// Time between two consecutive readings of the clock.
    clock_ns: u64,
    lookups: Sum,
    changes: Sum,
}

/// The calls that were timed.
#[derive(Debug, Default)]
struct Sum {
    calls: AtomicU64,
    ns: AtomicU64,
}

impl Sum {
    /// Time of all calls, estimated from the timed ones.
    fn all(&self) -> Duration {
        Duration::from_nanos(self.ns.load(Relaxed) * u64::from(EVERY))
    }
}

/// Time spent in mappings since the timer was created, estimated from a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingTime {
    /// Time spent on finding blocks: lookups, searches for data and holes.
    pub lookup: Duration,
    /// Time spent on allocating blocks to files, changing their state and freeing them. Includes
    /// the block allocator, but not work in the background.
    pub change: Duration,
    /// Number of calls that find blocks.
    pub lookups: u64,
    /// Number of calls that change something.
    pub changes: u64,
}

impl std::ops::Sub for MappingTime {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            lookup: self.lookup.saturating_sub(before.lookup),
            change: self.change.saturating_sub(before.change),
            lookups: self.lookups.saturating_sub(before.lookups),
            changes: self.changes.saturating_sub(before.changes),
        }
    }
}

impl MappingTimer {
    /// Creates a timer. Measures the cost of the clock for some microseconds.
    pub fn new() -> Arc<Self> {
        let mut pairs: Vec<u64> = (0..CLOCK_PAIRS)
            .map(|_| Instant::now().elapsed().as_nanos() as u64)
            .collect();
        pairs.sort_unstable();
        Arc::new(Self {
            clock_ns: pairs[CLOCK_PAIRS / 2],
            lookups: Sum::default(),
            changes: Sum::default(),
        })
    }

    /// Time spent so far. The difference of two readings is the time spent between them.
    pub fn read(&self) -> MappingTime {
        let calls = |sum: &Sum| sum.calls.load(Relaxed) * u64::from(EVERY);
        MappingTime {
            lookup: self.lookups.all(),
            change: self.changes.all(),
            lookups: calls(&self.lookups),
            changes: calls(&self.changes),
        }
    }

    fn time<T>(&self, kind: Kind, call: impl FnOnce() -> T) -> T {
        if !is_drawn() {
            return call();
        }
        let start = Instant::now();
        let result = call();
        let taken = start.elapsed();
        if taken < PUT_ASIDE {
            let sum = match kind {
                Kind::Lookup => &self.lookups,
                Kind::Change => &self.changes,
            };
            let ns = (taken.as_nanos() as u64).saturating_sub(self.clock_ns);
            sum.calls.fetch_add(1, Relaxed);
            sum.ns.fetch_add(ns, Relaxed);
        }
        result
    }
}

/// Whether this call of the thread is timed. The distance between timed calls varies, so that no
/// rhythm of a workload evades them.
fn is_drawn() -> bool {
    thread_local! {
        static NEXT: Cell<(u32, u32)> = const { Cell::new((1, 0x2545_F491)) };
    }
    NEXT.with(|next| {
        let (left, mut state) = next.get();
        if left > 1 {
            next.set((left - 1, state));
            return false;
        }
        // Marsaglia's xorshift, 32 bits.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        // From 1 to 2 EVERY - 1, EVERY on average.
        next.set((1 + state % (2 * EVERY - 1), state));
        true
    })
}

/// A mapping with timed calls. Forwards every method of the trait, also those with a default body.
pub(crate) struct Timed<M: Memories> {
    inner: Box<dyn Mapping<M>>,
    timer: Arc<MappingTimer>,
}

impl<M: Memories> Timed<M> {
    /// Wraps `mapping` if there is a timer.
    pub(crate) fn by(
        timer: Option<Arc<MappingTimer>>,
        mapping: Box<dyn Mapping<M>>,
    ) -> Box<dyn Mapping<M>>
    where
        M: 'static,
    {
        match timer {
            Some(timer) => Box::new(Self {
                inner: mapping,
                timer,
            }),
            None => mapping,
        }
    }
}

impl<M: Memories> Mapping<M> for Timed<M> {
    fn allocator(&self) -> &dyn Allocator<M> {
        self.inner.allocator()
    }

    fn lookup(&self, op: &Op<'_, M>, id: MapId, first: u32, out: &mut [Found]) -> Result<()> {
        let call = || self.inner.lookup(op, id, first, out);
        self.timer.time(Kind::Lookup, call)
    }

    fn prefetch(&self, core: &Core<M>, id: MapId, logical: u32, skip: u64) {
        self.inner.prefetch(core, id, logical, skip);
    }

    fn prefetch_claim(&self, core: &Core<M>, id: MapId, logical: u32) {
        self.inner.prefetch_claim(core, id, logical);
    }

    fn forget_copies(&self, op: &Op<'_, M>) {
        self.inner.forget_copies(op);
    }

    fn reserve(&self, op: &Op<'_, M>, blocks: u64) -> Result<Reservation> {
        let call = || self.inner.reserve(op, blocks);
        self.timer.time(Kind::Change, call)
    }

    fn unreserve(&self, op: &Op<'_, M>, rest: Reservation) {
        let call = || self.inner.unreserve(op, rest);
        self.timer.time(Kind::Change, call);
    }

    fn claim(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u32,
        step: Step,
        from: &mut Reservation,
        out: &mut [BlockNo],
    ) -> Result<()> {
        let call = || self.inner.claim(op, id, first, step, from, out);
        self.timer.time(Kind::Change, call)
    }

    fn set_state(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u32,
        blocks: &[BlockNo],
        step: Step,
    ) -> Result<()> {
        let call = || self.inner.set_state(op, id, first, blocks, step);
        self.timer.time(Kind::Change, call)
    }

    fn release(
        &self,
        flush: Flush,
        op: &Op<'_, M>,
        id: MapId,
        first: u64,
        end: u64,
        in_use: u64,
    ) -> Result<u64> {
        let call = || self.inner.release(flush, op, id, first, end, in_use);
        self.timer.time(Kind::Change, call)
    }

    fn reclaim(&self, core: &Core<M>) -> u64 {
        self.inner.reclaim(core)
    }

    fn seek(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        first: u64,
        end: u64,
        what: Seek,
    ) -> Result<Option<u64>> {
        let call = || self.inner.seek(op, id, first, end, what);
        self.timer.time(Kind::Lookup, call)
    }

    fn count(&self, op: &Op<'_, M>, id: MapId, end: u64) -> Result<u64> {
        let call = || self.inner.count(op, id, end);
        self.timer.time(Kind::Lookup, call)
    }

    fn save(&self, core: &Core<M>) -> Result<()> {
        self.inner.save(core)
    }

    fn restore(&self, core: &Core<M>) -> bool {
        self.inner.restore(core)
    }

    fn rebuild(&self, core: &Core<M>, survey: &dyn Survey) -> Result<()> {
        self.inner.rebuild(core, survey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, MappingKind, PoolOptions};
    use vellum_media::MediaChoice;

    /// Draws until `count` calls were timed. Returns the number of calls that this took.
    fn calls_for(count: u32) -> u32 {
        let mut drawn = 0;
        let mut calls = 0;
        while drawn < count {
            calls += 1;
            drawn += u32::from(is_drawn());
        }
        calls
    }

    #[test]
    fn one_of_sixteen_calls_is_timed() {
        let calls = calls_for(10_000);
        assert!((150_000..170_000).contains(&calls), "{calls}");
    }

    #[test]
    fn slow_calls_are_counted_and_preempted_ones_are_not() {
        let timer = MappingTimer::new();
        let spin = |time: Duration| {
            let start = Instant::now();
            while start.elapsed() < time {
                std::hint::spin_loop();
            }
        };
        while timer.read().lookups == 0 {
            timer.time(Kind::Lookup, || spin(Duration::from_micros(20)));
        }
        let seen = timer.read();
        assert!(seen.lookup >= Duration::from_micros(15) * EVERY, "{seen:?}");
        for _ in 0..4 * EVERY {
            timer.time(Kind::Change, || spin(PUT_ASIDE));
        }
        assert_eq!(timer.read() - seen, MappingTime::default());
    }

    #[test]
    fn a_measured_pool_counts_the_calls_of_its_mapping() {
        let dir = tempfile::tempdir().expect("a directory");
        for mapping in MappingKind::ALL {
            let path = dir.path().join(mapping.name());
            let options = CreateOptions {
                mapping: Some(mapping),
                media: MediaChoice::File,
                ..CreateOptions::new(16 << 20)
            };
            let made = options.create(&path).expect("made");
            made.close().expect("closed");
            let timer = MappingTimer::new();
            let options = PoolOptions {
                mapping_timer: Some(Arc::clone(&timer)),
                ..PoolOptions::default()
            };
            let pool = options.open(&path).expect("opened");
            let volume = pool.volume();
            let file = volume.create("/file").expect("created");
            for block in 0..400_u64 {
                file.write_at(&[1; 4096], block * 4096).expect("written");
            }
            let written = timer.read();
            assert!(written.changes > 0, "{mapping:?}: {written:?}");
            for block in 0..400_u64 {
                file.read_at(&mut [0; 4096], block * 4096).expect("read");
            }
            assert!(timer.read().lookups > 0, "{mapping:?}");
            drop(file);
            drop(volume);
            pool.close().expect("closed");
        }
    }
}
