//! Memory on the heap: portable, private to the process, and checkable by miri.

use crate::memory::{LINE_BYTES, Memory};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a cell.
const CELL: u64 = 8;
/// [`HeapMemory::damaged`] while nothing failed.
const UNHARMED: u64 = u64::MAX;

/// Zeroed memory made of ordinary atomics.
pub struct HeapMemory {
    cells: Box<[AtomicU64]>,
    len: u64,
    damaged: AtomicU64,
}

/// The part of a cell that a range of bytes covers.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    /// Index of the cell.
    pub(crate) cell: usize,
    /// First byte within the cell.
    pub(crate) first: usize,
    /// Bytes within the cell: 1 to 8.
    pub(crate) bytes: usize,
    /// Offset of the part in the range.
    pub(crate) from: usize,
}

impl Part {
    /// Puts this part of `run` into `cell`, keeping the cell's other bytes.
    pub(crate) fn blend(self, cell: u64, run: &[u8]) -> u64 {
        let mut bytes = cell.to_ne_bytes();
        bytes[self.first..self.first + self.bytes]
            .copy_from_slice(&run[self.from..self.from + self.bytes]);
        u64::from_ne_bytes(bytes)
    }

    /// Whether the part is a whole cell.
    pub(crate) fn is_whole(self) -> bool {
        self.bytes == CELL as usize
    }
}

/// Splits a range of `len` bytes at `at` into parts of cells, in order.
pub(crate) fn parts(at: u64, len: usize) -> impl Iterator<Item = Part> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let here = at + from as u64;
        let first = (here % CELL) as usize;
        let bytes = (CELL as usize - first).min(len - from);
        let part = Part {
            cell: (here / CELL) as usize,
            first,
            bytes,
            from,
        };
        from += bytes;
        (bytes > 0).then_some(part)
    })
}

impl HeapMemory {
    /// Memory of `len` zero bytes. The system allocates pages at the first write.
    pub fn new(len: u64) -> Self {
        let count =
            usize::try_from(len.div_ceil(CELL)).expect("heap memory fits the address space");
        Self {
            cells: zeroed_cells(count),
            len,
            damaged: AtomicU64::new(UNHARMED),
        }
    }

    /// Memory that holds `bytes`.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let memory = Self::new(bytes.len() as u64);
        memory.write(0, bytes);
        memory
    }

    /// The cell at `at`. Returns `None` and records a failure if it is outside or misaligned.
    #[inline]
    pub(crate) fn cell(&self, at: u64) -> Option<&AtomicU64> {
        if !at.is_multiple_of(CELL) || at >= self.len & !(CELL - 1) {
            self.damage(at);
            return None;
        }
        self.cells.get((at / CELL) as usize)
    }

    /// All cells, the last one padded with bytes that do not belong to the memory.
    pub(crate) fn cells(&self) -> &[AtomicU64] {
        &self.cells
    }

    /// The eight cells of an aligned line.
    fn line(&self, at: u64) -> Option<&[AtomicU64; 8]> {
        if !at.is_multiple_of(LINE_BYTES) || !self.holds(at, LINE_BYTES) {
            self.damage(at);
            return None;
        }
        let first = (at / CELL) as usize;
        self.cells.get(first..first + 8)?.try_into().ok()
    }

    /// Whether all of `[at, at + len)` is inside; records a failure if not.
    pub(crate) fn checked(&self, at: u64, len: u64) -> bool {
        let inside = self.holds(at, len);
        if !inside {
            self.damage(at);
        }
        inside
    }

    /// Fills `out` from inside one cell.
    fn read_part(&self, at: u64, out: &mut [u8]) {
        if !out.is_empty() {
            let bytes = self.cells[(at / CELL) as usize].load(Ordering::Relaxed);
            let first = (at % CELL) as usize;
            out.copy_from_slice(&bytes.to_ne_bytes()[first..first + out.len()]);
        }
    }

    /// Stores `data` inside one cell.
    fn write_part(&self, at: u64, data: &[u8]) {
        for part in parts(at, data.len()) {
            store_part(&self.cells[part.cell], part, data);
        }
    }

    fn holds(&self, at: u64, len: u64) -> bool {
        at <= self.len && len <= self.len - at
    }

    #[cold]
    fn damage(&self, at: u64) {
        crate::fault::note(at);
        let at = at.min(UNHARMED - 1);
        let _ = self
            .damaged
            .compare_exchange(UNHARMED, at, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Zeroed cells. The system allocates pages at the first write.
pub(crate) fn zeroed_cells(count: usize) -> Box<[AtomicU64]> {
    let zeroed = Box::into_raw(vec![0_u64; count].into_boxed_slice());
    // SAFETY: the box was just released, so this is its only owner; AtomicU64 has the size,
    // alignment (8 on every supported target) and bit validity of u64.
    unsafe { Box::from_raw(zeroed as *mut [AtomicU64]) }
}

/// The result of a compare-and-swap outside the memory: it finds zero, and its store is dropped.
/// Loops that retry with the found value end.
#[cold]
pub(crate) fn outside(current: u64) -> Result<u64, u64> {
    if current == 0 { Ok(0) } else { Err(0) }
}

/// Stores part of `run` into `cell`; returns the cell before and after. Other bytes of the cell
/// keep what other threads stored there.
pub(crate) fn store_part(cell: &AtomicU64, part: Part, run: &[u8]) -> (u64, u64) {
    if part.is_whole() {
        let after = part.blend(0, run);
        return (cell.swap(after, Ordering::Relaxed), after);
    }
    let before = cell
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            Some(part.blend(now, run))
        })
        .unwrap_or_else(|now| now);
    (before, part.blend(before, run))
}

impl Memory for HeapMemory {
    fn len(&self) -> u64 {
        self.len
    }

    fn damaged(&self) -> Option<u64> {
        Some(self.damaged.load(Ordering::Relaxed)).filter(|&at| at != UNHARMED)
    }

    fn load(&self, at: u64, order: Ordering) -> u64 {
        self.cell(at).map_or(0, |cell| cell.load(order))
    }

    fn store(&self, at: u64, value: u64, order: Ordering) {
        if let Some(cell) = self.cell(at) {
            cell.store(value, order);
        }
    }

    fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        match self.cell(at) {
            Some(cell) => cell.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst),
            None => outside(current),
        }
    }

    fn fetch_add(&self, at: u64, value: u64) -> u64 {
        self.cell(at)
            .map_or(0, |cell| cell.fetch_add(value, Ordering::SeqCst))
    }

    fn fetch_or(&self, at: u64, bits: u64) -> u64 {
        self.cell(at)
            .map_or(0, |cell| cell.fetch_or(bits, Ordering::SeqCst))
    }

    fn fetch_and(&self, at: u64, bits: u64) -> u64 {
        self.cell(at)
            .map_or(0, |cell| cell.fetch_and(bits, Ordering::SeqCst))
    }

    fn read(&self, at: u64, out: &mut [u8]) {
        if !self.checked(at, out.len() as u64) {
            out.fill(0);
            return;
        }
        let head = (at.next_multiple_of(CELL) - at).min(out.len() as u64) as usize;
        let (head, rest) = out.split_at_mut(head);
        self.read_part(at, head);
        let first = at + head.len() as u64;
        let (whole, tail) = rest.as_chunks_mut::<{ CELL as usize }>();
        let cells = &self.cells[(first / CELL) as usize..];
        for (target, cell) in whole.iter_mut().zip(cells) {
            *target = cell.load(Ordering::Relaxed).to_ne_bytes();
        }
        self.read_part(first + (whole.len() as u64) * CELL, tail);
    }

    fn write(&self, at: u64, data: &[u8]) {
        if !self.checked(at, data.len() as u64) {
            return;
        }
        let head = (at.next_multiple_of(CELL) - at).min(data.len() as u64) as usize;
        let (head, rest) = data.split_at(head);
        self.write_part(at, head);
        let first = at + head.len() as u64;
        let (whole, tail) = rest.as_chunks::<{ CELL as usize }>();
        let cells = &self.cells[(first / CELL) as usize..];
        for (bytes, cell) in whole.iter().zip(cells) {
            cell.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        self.write_part(first + (whole.len() as u64) * CELL, tail);
    }

    fn bytes_equal(&self, at: u64, expected: &[u8]) -> bool {
        self.checked(at, expected.len() as u64)
            && parts(at, expected.len()).all(|part| {
                let now = self.cells[part.cell].load(Ordering::Relaxed);
                part.blend(now, expected) == now
            })
    }

    fn match_line(&self, at: u64, mask: u64, want: u64) -> u8 {
        self.line(at).map_or(0, |line| {
            (0..8).fold(0, |bits, i| {
                bits | (u8::from(line[i].load(Ordering::Acquire) & mask == want) << i)
            })
        })
    }

    fn load_line(&self, at: u64) -> [u64; 8] {
        self.line(at).map_or([0; 8], |line| {
            std::array::from_fn(|i| line[i].load(Ordering::Acquire))
        })
    }

    fn prefetch(&self, _at: u64) {}
}
