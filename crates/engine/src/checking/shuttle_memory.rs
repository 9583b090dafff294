//! Memory whose every access lets another thread run first, for schedules that [`shuttle`] draws.
//! The unit tests and those against the model share it.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shuttle::sync::atomic::AtomicU64;
use shuttle::sync::{Condvar, Mutex};
use vellum_media::{
    FileBytes, HeapMemory, ImageMemory, MediaKind, Medium, Memories, Memory, Persistent, Site,
    Transactions,
};

thread_local! {
    /// Whether accesses let other threads run. All threads of a schedule share one system thread.
    static ARMED: Cell<bool> = const { Cell::new(false) };
}

/// Enables or disables scheduling at accesses.
pub(super) fn arm(armed: bool) {
    ARMED.set(armed);
}

/// Memory for [`shuttle`]: sequentially consistent, with a scheduling point before each access once
/// it is armed.
pub(super) struct ShuttleMemory {
    heap: HeapMemory,
    point: AtomicU64,
    /// Held from looking at a word until the sleep for its change begins, and by whoever wakes.
    sleep: Mutex<()>,
    woken: Condvar,
}

/// Pool and arena of [`ShuttleMemory`].
pub(super) struct Shuttled;

impl Memories for Shuttled {
    type Pool = ShuttleMemory;
    type Arena = ShuttleMemory;
}

impl ShuttleMemory {
    /// Zeroed memory.
    pub(super) fn new(len: u64) -> Self {
        Self {
            heap: HeapMemory::new(len),
            point: AtomicU64::new(0),
            sleep: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    /// The underlying memory, after other threads may have run.
    fn at_point(&self) -> &HeapMemory {
        if ARMED.get() {
            self.point.load(Ordering::SeqCst);
        }
        &self.heap
    }
}

/// A wait with a longer limit ends by a wake-up alone, so that a lost one is noticed.
const LIMIT_MAX: Duration = Duration::from_secs(60);

/// Bytes moved without a scheduling point between them.
const PIECE: usize = 64;

impl Memory for ShuttleMemory {
    fn len(&self) -> u64 {
        self.heap.len()
    }

    fn damaged(&self) -> Option<u64> {
        self.heap.damaged()
    }

    fn load(&self, at: u64, order: Ordering) -> u64 {
        self.at_point().load(at, order)
    }

    fn store(&self, at: u64, value: u64, order: Ordering) {
        self.at_point().store(at, value, order);
    }

    fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        self.at_point().compare_exchange(at, current, new)
    }

    fn fetch_add(&self, at: u64, value: u64) -> u64 {
        self.at_point().fetch_add(at, value)
    }

    fn fetch_or(&self, at: u64, bits: u64) -> u64 {
        self.at_point().fetch_or(at, bits)
    }

    fn fetch_and(&self, at: u64, bits: u64) -> u64 {
        self.at_point().fetch_and(at, bits)
    }

    fn read(&self, at: u64, out: &mut [u8]) {
        for (piece, from) in out.chunks_mut(PIECE).zip((at..).step_by(PIECE)) {
            self.at_point().read(from, piece);
        }
    }

    fn write(&self, at: u64, data: &[u8]) {
        for (piece, to) in data.chunks(PIECE).zip((at..).step_by(PIECE)) {
            self.at_point().write(to, piece);
        }
    }

    fn bytes_equal(&self, at: u64, expected: &[u8]) -> bool {
        self.at_point().bytes_equal(at, expected)
    }

    fn match_line(&self, at: u64, mask: u64, want: u64) -> u8 {
        self.at_point().match_line(at, mask, want)
    }

    fn load_line(&self, at: u64) -> [u64; 8] {
        self.at_point().load_line(at)
    }

    fn prefetch(&self, _at: u64) {}

    fn wait(&self, at: u64, seen: u64, limit: Duration) {
        if !ARMED.get() || limit <= LIMIT_MAX {
            return self.relax(u32::MAX);
        }
        let sleep = self.sleep.lock().unwrap();
        if self.heap.load(at, Ordering::SeqCst) as u32 == seen as u32 {
            drop(self.woken.wait(sleep));
        }
    }

    fn wake(&self, _at: u64) {
        if ARMED.get() {
            let _sleep = self.sleep.lock().unwrap();
            self.woken.notify_all();
        }
    }

    fn relax(&self, tries: u32) {
        if ARMED.get() {
            shuttle::thread::yield_now();
        } else {
            assert!(tries < 1000, "no thread is left that could end this wait");
        }
    }
}

impl Persistent for ShuttleMemory {
    fn flush(&self, _site: Site, _at: u64, _len: u64) {}

    fn fence(&self, _site: Site) {}

    fn write_through(&self, _site: Site, at: u64, data: &[u8]) {
        self.write(at, data);
    }

    fn zero_through(&self, _site: Site, at: u64, len: u64) {
        self.write(at, &vec![0; len as usize]);
    }
}

impl Medium for ShuttleMemory {
    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn kind(&self) -> MediaKind {
        MediaKind::Memory
    }
}

impl Transactions for ShuttleMemory {}

impl ImageMemory for ShuttleMemory {}

impl FileBytes for ShuttleMemory {}
