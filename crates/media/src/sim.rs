//! A simulated pool: it can record every store, flush and fence, and simulate latency.

use crate::count;
use crate::heap::{HeapMemory, outside, parts, store_part};
use crate::memory::{BLOCK_BYTES, LINE_BYTES, MediaKind, Memory, Persistent};
use crate::pool_memory::{FileBytes, ImageMemory, Medium, Transactions};
use crate::site::{Caller, Site};
use crate::undo::Undo;
use crate::window::Window;
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An event of a simulated pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The thread that did it, by a number unique in the process.
    pub thread: u32,
    /// What it did.
    pub op: Op,
    /// The step; [`Site::UNNAMED`] for plain stores and markers.
    pub site: Site,
    /// The line of the source.
    pub place: Caller,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A cell changed, or was stored with the value that it had. Longer stores are one event per
    /// cell.
    Store {
        /// Offset of the cell, 8-byte aligned.
        at: u64,
        /// The cell before.
        before: u64,
        /// The cell after.
        after: u64,
        /// Past the cache: a store and a flush at once.
        non_temporal: bool,
    },
    /// A line is being written back.
    Flush {
        /// Offset of the line, 64-byte aligned.
        line: u64,
    },
    /// Everything that the thread flushed or wrote past the cache is durable.
    Fence,
    /// The thread's next store to a cell must not persist before the present contents of other
    /// cells of its line, see [`Persistent::behind`].
    Behind {
        /// Offset of the cell.
        at: u64,
        /// The other cells: bit `i` for the `i`th cell of the line.
        cells: u8,
    },
    /// Bytes may be overwritten from here on, see [`Persistent::release`].
    Release {
        /// Offset of the first byte.
        at: u64,
        /// Number of bytes.
        len: u64,
    },
    /// A marker of the test, see [`SimPool::marker`].
    Marker(u64),
}

/// How a cell is stored.
#[derive(Clone, Copy)]
struct How {
    site: Site,
    place: Caller,
    non_temporal: bool,
}

impl How {
    #[track_caller]
    fn plain() -> Self {
        Self {
            site: Site::UNNAMED,
            place: Caller::here(),
            non_temporal: false,
        }
    }
}

/// The latency of a simulated medium, in addition to that of the memory under it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyModel {
    /// A flushed or non-temporally written line.
    pub flush_ns: u32,
    /// A fence.
    pub fence_ns: u32,
    /// A line touched by a load, read or comparison.
    pub read_ns_per_line: u32,
}

/// Simulated persistent memory.
pub struct SimPool {
    memory: HeapMemory,
    recording: AtomicBool,
    tracking: AtomicBool,
    slow: AtomicBool,
    log: Mutex<Vec<Event>>,
    lines_read: Mutex<BTreeSet<u64>>,
    undo: Undo,
    /// Number of syncs that succeed before all later ones fail.
    good_syncs: AtomicU32,
    /// Number of writes by calls that succeed before all later ones fail.
    good_writes: AtomicU32,
    flush_ns: AtomicU32,
    fence_ns: AtomicU32,
    read_ns: AtomicU32,
}

impl SimPool {
    /// A pool of `len` zero bytes that records nothing and adds no latency.
    pub fn new(len: u64) -> Self {
        Self::of(HeapMemory::new(len))
    }

    /// A pool that holds `image`.
    pub fn from_image(image: Vec<u8>) -> Self {
        Self::of(HeapMemory::from_bytes(&image))
    }

    fn of(memory: HeapMemory) -> Self {
        Self {
            undo: Undo::new(memory.len()),
            memory,
            recording: AtomicBool::new(false),
            tracking: AtomicBool::new(false),
            slow: AtomicBool::new(false),
            log: Mutex::default(),
            lines_read: Mutex::default(),
            good_syncs: AtomicU32::new(u32::MAX),
            good_writes: AtomicU32::new(u32::MAX),
            flush_ns: AtomicU32::new(0),
            fence_ns: AtomicU32::new(0),
            read_ns: AtomicU32::new(0),
        }
    }

    /// Forgets the recorded events and records from now on. Stores in progress on other threads may
    /// be missed: start before they run.
    pub fn start_recording(&self) {
        let mut log = lock(&self.log);
        log.clear();
        self.recording.store(true, Ordering::SeqCst);
    }

    /// Stops recording; returns the recorded events.
    pub fn take_log(&self) -> Vec<Event> {
        let mut log = lock(&self.log);
        self.recording.store(false, Ordering::SeqCst);
        std::mem::take(&mut log)
    }

    /// Saves each line before the first store to it, for [`revert`](Self::revert): cheaper than a
    /// log.
    pub fn remember(&self) {
        self.undo.start();
    }

    /// Reverts every store since [`remember`](Self::remember), and saves no more. The reversal is
    /// not recorded. Other threads must have finished.
    pub fn revert(&self) {
        self.undo.revert(&self.memory);
    }

    /// Records that bytes may be overwritten from here on.
    #[track_caller]
    pub(crate) fn released(&self, site: Site, at: u64, len: u64) {
        self.record(site, Caller::here(), Op::Release { at, len });
    }

    /// Lets `count` more writes by calls of [`SimLogged`](crate::SimLogged) succeed; later ones
    /// fail.
    pub fn fail_writes_after(&self, count: u32) {
        self.good_writes.store(count, Ordering::SeqCst);
    }

    /// Fails if a write by a call must fail now.
    pub(crate) fn try_write(&self) -> io::Result<()> {
        count_down(&self.good_writes)
    }

    /// Lets `count` more syncs succeed; later ones fail, as on a broken medium.
    pub fn fail_syncs_after(&self, count: u32) {
        self.good_syncs.store(count, Ordering::SeqCst);
    }

    /// Records a marker, so that a test can distinguish its operations.
    #[track_caller]
    pub fn marker(&self, value: u64) {
        self.record(Site::UNNAMED, Caller::here(), Op::Marker(value));
    }

    /// The contents of the pool, as its threads see them.
    pub fn image(&self) -> Vec<u8> {
        let mut image = vec![0; self.memory.len() as usize];
        self.memory.read(0, &mut image);
        image
    }

    /// Adds latency to accesses from now on.
    pub fn set_latency(&self, model: LatencyModel) {
        self.flush_ns.store(model.flush_ns, Ordering::Relaxed);
        self.fence_ns.store(model.fence_ns, Ordering::Relaxed);
        self.read_ns
            .store(model.read_ns_per_line, Ordering::Relaxed);
        self.slow
            .store(model != LatencyModel::default(), Ordering::Release);
    }

    /// Starts or stops recording which lines are read. Starting forgets earlier ones.
    pub fn track_reads(&self, on: bool) {
        if on {
            lock(&self.lines_read).clear();
        }
        self.tracking.store(on, Ordering::SeqCst);
    }

    /// The offsets of the lines that were read, in order.
    pub fn lines_read(&self) -> Vec<u64> {
        lock(&self.lines_read).iter().copied().collect()
    }

    fn record(&self, site: Site, place: Caller, op: Op) {
        if self.recording.load(Ordering::Relaxed) {
            let mut log = lock(&self.log);
            // Recording may have ended during the wait.
            if self.recording.load(Ordering::Relaxed) {
                log.push(Event {
                    thread: thread_number(),
                    op,
                    site,
                    place,
                });
            }
        }
    }

    /// Does `change` to a cell and records it. While recording, changes are serialised, so that the
    /// log has the memory's order.
    fn change<T>(
        &self,
        at: u64,
        cell: &AtomicU64,
        how: How,
        change: impl FnOnce(&AtomicU64) -> (T, Option<(u64, u64)>),
    ) -> T {
        self.undo.save(&self.memory, at, 8);
        if !self.recording.load(Ordering::Relaxed) {
            return change(cell).0;
        }
        let mut log = lock(&self.log);
        let (result, stored) = change(cell);
        if let (Some((before, after)), true) = (stored, self.recording.load(Ordering::Relaxed)) {
            let op = Op::Store {
                at,
                before,
                after,
                non_temporal: how.non_temporal,
            };
            log.push(Event {
                thread: thread_number(),
                op,
                site: how.site,
                place: how.place,
            });
        }
        result
    }

    /// A read-modify-write; returns the value before.
    #[track_caller]
    fn modify(&self, at: u64, new: impl Fn(u64) -> u64) -> u64 {
        let Some(cell) = self.memory.cell(at) else {
            return 0;
        };
        self.seen(at, 8);
        count::wrote(8);
        self.change(at, cell, How::plain(), |cell| {
            let order = Ordering::SeqCst;
            let before = cell.fetch_update(order, order, |now| Some(new(now)));
            let before = before.unwrap_or_else(|now| now);
            (before, Some((before, new(before))))
        })
    }

    fn put(&self, how: How, at: u64, data: &[u8]) {
        if !self.recording.load(Ordering::Relaxed) {
            self.undo.save(&self.memory, at, data.len() as u64);
            self.memory.write(at, data);
            return;
        }
        for part in parts(at, data.len()) {
            let cell = &self.memory.cells()[part.cell];
            let store = |cell: &AtomicU64| ((), Some(store_part(cell, part, data)));
            self.change(part.cell as u64 * 8, cell, how, store);
        }
    }

    /// Stores like non-temporal stores: whole lines past the cache; the ends are stored and
    /// flushed.
    fn put_through(&self, site: Site, place: Caller, at: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let here = at + done as u64;
            let line = here - here % LINE_BYTES;
            let bytes = ((line + LINE_BYTES - here) as usize).min(data.len() - done);
            let is_whole = bytes as u64 == LINE_BYTES;
            let how = How {
                site,
                place,
                non_temporal: is_whole,
            };
            self.put(how, here, &data[done..done + bytes]);
            if !is_whole {
                self.record(site, place, Op::Flush { line });
            }
            done += bytes;
        }
        let lines = lines_of(at, data.len() as u64);
        count::wrote_through(data.len() as u64, lines);
        self.spin(&self.flush_ns, lines);
    }

    /// Accounts for a read.
    #[inline]
    fn seen(&self, at: u64, len: u64) {
        if self.tracking.load(Ordering::Relaxed) && len > 0 {
            let first = at - at % LINE_BYTES;
            let lines = (first..at.saturating_add(len)).step_by(LINE_BYTES as usize);
            lock(&self.lines_read).extend(lines);
        }
        if self.slow.load(Ordering::Relaxed) {
            self.spin(&self.read_ns, lines_of(at, len));
        }
    }

    /// Waits for the latency of `lines` lines.
    #[inline]
    fn spin(&self, ns_per_line: &AtomicU32, lines: u64) {
        if self.slow.load(Ordering::Relaxed) {
            let ns = u64::from(ns_per_line.load(Ordering::Relaxed)) * lines;
            let end = Instant::now() + Duration::from_nanos(ns);
            while ns > 0 && Instant::now() < end {
                std::hint::spin_loop();
            }
        }
    }
}

/// How many lines `[at, at + len)` touches.
fn lines_of(at: u64, len: u64) -> u64 {
    if len == 0 {
        0
    } else {
        (at % LINE_BYTES).saturating_add(len).div_ceil(LINE_BYTES)
    }
}

/// Decrements a counter, unless it is `u32::MAX`, which stands for no limit; fails at zero.
fn count_down(left: &AtomicU32) -> io::Result<()> {
    let good = |left: u32| match left {
        u32::MAX => Some(left),
        _ => left.checked_sub(1),
    };
    let order = Ordering::SeqCst;
    match left.fetch_update(order, order, good) {
        Ok(_) => Ok(()),
        Err(_) => Err(io::Error::other("a simulated failure of the medium")),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A small number, unique to the calling thread.
fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static MINE: u32 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    MINE.with(|number| *number)
}

impl Memory for SimPool {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn damaged(&self) -> Option<u64> {
        self.memory.damaged()
    }

    fn load(&self, at: u64, order: Ordering) -> u64 {
        self.seen(at, 8);
        self.memory.load(at, order)
    }

    fn store(&self, at: u64, value: u64, order: Ordering) {
        let Some(cell) = self.memory.cell(at) else {
            return;
        };
        count::wrote(8);
        if !self.recording.load(Ordering::Relaxed) {
            self.undo.save(&self.memory, at, 8);
            cell.store(value, order);
            return;
        }
        let swap = |cell: &AtomicU64| ((), Some((cell.swap(value, Ordering::SeqCst), value)));
        self.change(at, cell, How::plain(), swap);
    }

    fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        let Some(cell) = self.memory.cell(at) else {
            return outside(current);
        };
        self.seen(at, 8);
        let swap = |cell: &AtomicU64| {
            let order = Ordering::SeqCst;
            let result = cell.compare_exchange(current, new, order, order);
            (result, result.ok().map(|before| (before, new)))
        };
        let result = self.change(at, cell, How::plain(), swap);
        if result.is_ok() {
            count::wrote(8);
        }
        result
    }

    fn fetch_add(&self, at: u64, value: u64) -> u64 {
        self.modify(at, |now| now.wrapping_add(value))
    }

    fn fetch_or(&self, at: u64, bits: u64) -> u64 {
        self.modify(at, |now| now | bits)
    }

    fn fetch_and(&self, at: u64, bits: u64) -> u64 {
        self.modify(at, |now| now & bits)
    }

    fn read(&self, at: u64, out: &mut [u8]) {
        self.seen(at, out.len() as u64);
        self.memory.read(at, out);
    }

    fn write(&self, at: u64, data: &[u8]) {
        if self.memory.checked(at, data.len() as u64) {
            count::wrote(data.len() as u64);
            self.put(How::plain(), at, data);
        }
    }

    fn bytes_equal(&self, at: u64, expected: &[u8]) -> bool {
        self.seen(at, expected.len() as u64);
        self.memory.bytes_equal(at, expected)
    }

    fn match_line(&self, at: u64, mask: u64, want: u64) -> u8 {
        self.seen(at, LINE_BYTES);
        self.memory.match_line(at, mask, want)
    }

    fn load_line(&self, at: u64) -> [u64; 8] {
        self.seen(at, LINE_BYTES);
        self.memory.load_line(at)
    }

    fn prefetch(&self, _at: u64) {}
}

impl Persistent for SimPool {
    fn behind(&self, site: Site, at: u64, cells: &[u64]) {
        let line = at - at % LINE_BYTES;
        let beside = cells
            .iter()
            .filter(|&&cell| cell - cell % LINE_BYTES == line);
        let cells = beside.fold(0, |cells, cell| cells | 1 << (cell % LINE_BYTES / 8));
        if cells != 0 {
            self.record(site, Caller::here(), Op::Behind { at, cells });
        }
    }

    fn flush(&self, site: Site, at: u64, len: u64) {
        if len == 0 || !self.memory.checked(at, len) {
            return;
        }
        let lines = lines_of(at, len);
        count::flushed(lines);
        if self.recording.load(Ordering::Relaxed) {
            let (first, place) = (at - at % LINE_BYTES, Caller::here());
            (0..lines).for_each(|i| {
                let line = first + i * LINE_BYTES;
                self.record(site, place, Op::Flush { line });
            });
        }
        self.spin(&self.flush_ns, lines);
    }

    fn fence(&self, site: Site) {
        count::fenced();
        self.record(site, Caller::here(), Op::Fence);
        self.spin(&self.fence_ns, 1);
    }

    fn write_through(&self, site: Site, at: u64, data: &[u8]) {
        if self.memory.checked(at, data.len() as u64) {
            self.put_through(site, Caller::here(), at, data);
        }
    }

    fn zero_through(&self, site: Site, at: u64, len: u64) {
        const ZEROS: [u8; 4096] = [0; 4096];
        if !self.memory.checked(at, len) {
            return;
        }
        let mut here = at;
        while here < at + len {
            // Parts end at lines, so that no whole line is split.
            let end = (here - here % LINE_BYTES + ZEROS.len() as u64).min(at + len);
            self.put_through(site, Caller::here(), here, &ZEROS[..(end - here) as usize]);
            here = end;
        }
    }
}

impl Medium for SimPool {
    /// The bytes become others, as on a device whose free blocks are discarded.
    fn give_back(&self, at: u64, len: u64) -> io::Result<()> {
        Memory::write(self, at, &vec![0xDD; len as usize]);
        Ok(())
    }

    fn is_on_device(&self) -> bool {
        true
    }

    fn renew(&self, at: u64) -> io::Result<()> {
        self.zero_through(Site::UNNAMED, at, 4096);
        self.fence(Site::UNNAMED);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        count::synced();
        count_down(&self.good_syncs)
    }

    fn kind(&self) -> MediaKind {
        MediaKind::Sim
    }
}

impl Transactions for SimPool {}

impl ImageMemory for SimPool {}

impl FileBytes for SimPool {
    fn window(&self, bytes: u64) -> Option<Window> {
        Some(Window::simulated(bytes))
    }

    fn lay(&self, window: &Window, at: u64, from: u64, len: u64) -> io::Result<()> {
        let inside = from.checked_add(len).is_some_and(|end| end <= self.len());
        if !inside || !from.is_multiple_of(BLOCK_BYTES) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        window.lay_simulated(at, from, len)
    }

    fn read_window(&self, window: &Window, at: u64, out: &mut [u8]) {
        let (mut at, mut rest) = (at, out);
        while !rest.is_empty() {
            let skip = at % BLOCK_BYTES;
            let here = rest.len().min((BLOCK_BYTES - skip) as usize);
            let (now, later) = rest.split_at_mut(here);
            match window.simulated_at(at) {
                Some(from) => self.read(from + skip, now),
                None => now.fill(0),
            }
            (at, rest) = (at + here as u64, later);
        }
    }
}
