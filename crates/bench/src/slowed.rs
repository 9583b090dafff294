//! A pool whose flushes take longer: making a line durable has a cost that the experiment sets.
//!
//! Everything else behaves like the mapped pool. The thread waits where a line is flushed or
//! written past the cache, once for each line. So the lines of an operation add up, as on a medium
//! with one write at a time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use vellum::media::{
    FileBytes, ImageMemory, LINE_BYTES, MappedArena, MappedPool, MediaKind, Medium, Memories,
    Memory, Persistent, Site, Transactions,
};

/// Memories with a slowed pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slowed;

impl Memories for Slowed {
    type Pool = SlowedPool;
    type Arena = MappedArena;
}

/// The additional time of each flushed line; any holder can change it at any time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latency(Arc<AtomicU64>);

impl Latency {
    /// Adds `ns` nanoseconds to every line from now on.
    pub(crate) fn set_ns(&self, ns: u64) {
        self.0.store(ns, Ordering::Relaxed);
    }

    /// Waits for the lines that `[at, at + len)` touches.
    fn wait(&self, at: u64, len: u64) {
        let ns = self.0.load(Ordering::Relaxed) * lines(at, len);
        if ns == 0 {
            return;
        }
        let (start, wait) = (Instant::now(), Duration::from_nanos(ns));
        while start.elapsed() < wait {
            std::hint::spin_loop();
        }
    }
}

/// The number of lines that `[at, at + len)` touches.
fn lines(at: u64, len: u64) -> u64 {
    let first = at / LINE_BYTES;
    (at + len).div_ceil(LINE_BYTES).saturating_sub(first) * u64::from(len > 0)
}

/// A mapped pool with a latency of its own.
pub(crate) struct SlowedPool {
    pool: MappedPool,
    latency: Latency,
}

impl SlowedPool {
    pub(crate) fn new(pool: MappedPool, latency: Latency) -> Self {
        Self { pool, latency }
    }
}

impl Memory for SlowedPool {
    fn len(&self) -> u64 {
        self.pool.len()
    }

    fn damaged(&self) -> Option<u64> {
        self.pool.damaged()
    }

    fn condition(&self) -> u64 {
        self.pool.condition()
    }

    fn last_lost(&self) -> u64 {
        self.pool.last_lost()
    }

    fn watch(&self) {
        self.pool.watch();
    }

    fn load(&self, at: u64, order: Ordering) -> u64 {
        self.pool.load(at, order)
    }

    fn store(&self, at: u64, value: u64, order: Ordering) {
        self.pool.store(at, value, order);
    }

    fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        self.pool.compare_exchange(at, current, new)
    }

    fn fetch_add(&self, at: u64, value: u64) -> u64 {
        self.pool.fetch_add(at, value)
    }

    fn fetch_or(&self, at: u64, bits: u64) -> u64 {
        self.pool.fetch_or(at, bits)
    }

    fn fetch_and(&self, at: u64, bits: u64) -> u64 {
        self.pool.fetch_and(at, bits)
    }

    fn read(&self, at: u64, out: &mut [u8]) {
        self.pool.read(at, out);
    }

    fn write(&self, at: u64, data: &[u8]) {
        self.pool.write(at, data);
    }

    fn bytes_equal(&self, at: u64, expected: &[u8]) -> bool {
        self.pool.bytes_equal(at, expected)
    }

    fn match_line(&self, at: u64, mask: u64, want: u64) -> u8 {
        self.pool.match_line(at, mask, want)
    }

    fn load_line(&self, at: u64) -> [u64; 8] {
        self.pool.load_line(at)
    }

    fn prefetch(&self, at: u64) {
        self.pool.prefetch(at);
    }
}

impl Persistent for SlowedPool {
    fn flush(&self, site: Site, at: u64, len: u64) {
        self.pool.flush(site, at, len);
        self.latency.wait(at, len);
    }

    fn fence(&self, site: Site) {
        self.pool.fence(site);
    }

    fn store_through(&self, site: Site, at: u64, value: u64) {
        self.pool.store_through(site, at, value);
        self.latency.wait(at, 8);
    }

    fn write_through(&self, site: Site, at: u64, data: &[u8]) {
        self.pool.write_through(site, at, data);
        self.latency.wait(at, data.len() as u64);
    }

    fn zero_through(&self, site: Site, at: u64, len: u64) {
        self.pool.zero_through(site, at, len);
        self.latency.wait(at, len);
    }
}

impl Medium for SlowedPool {
    fn sync(&self) -> io::Result<()> {
        self.pool.sync()
    }

    fn kind(&self) -> MediaKind {
        self.pool.kind()
    }
}

impl Transactions for SlowedPool {}

impl ImageMemory for SlowedPool {}

impl FileBytes for SlowedPool {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_touched_line_counts_once() {
        let of = [
            (0, 0),
            (60, 0),
            (0, 8),
            (60, 8),
            (64, 64),
            (65, 64),
            (0, 4096),
        ];
        let found = of.map(|(at, len)| lines(at, len));
        assert_eq!(found, [0, 0, 1, 2, 1, 2, 64]);
    }
}
