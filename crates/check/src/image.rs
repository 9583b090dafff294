//! The checked image: any source of bytes, overlaid by the stores of committed journal records, and
//! read in windows so that sorted accesses become sequential ones.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use vellum_layout::{BLOCK_BYTES, Geometry, TablePlan};
use vellum_media::{PoolMemory, faults};

/// Bytes of a line of a log.
const LINE_BYTES: usize = 64;

/// Bytes to check. Only bytes inside `len()` are ever read.
pub trait Image {
    /// Bytes of the image.
    fn len(&self) -> u64;

    /// Bytes of the pool itself. Bytes behind them, if there are any, lie on an external data
    /// device.
    fn own_len(&self) -> u64 {
        self.len()
    }

    /// Whether the image has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `out` with the bytes from `at` on.
    ///
    /// # Errors
    /// Fails if the bytes are outside the image or unreadable.
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()>;
}

impl Image for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(at).ok();
        let bytes = from.and_then(|from| self.get(from..from.checked_add(out.len())?));
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Image for Vec<u8> {
    fn len(&self) -> u64 {
        Image::len(self.as_slice())
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        Image::read(self.as_slice(), at, out)
    }
}

impl Image for File {
    fn len(&self) -> u64 {
        match self.metadata() {
            Ok(data) if data.is_file() => data.len(),
            // A block device only reports its length through a seek.
            _ => {
                let mut file = self;
                file.seek(SeekFrom::End(0)).unwrap_or(0)
            }
        }
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(out, at)
    }
}

impl<T: Image + ?Sized> Image for &T {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn own_len(&self) -> u64 {
        (**self).own_len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        (**self).read(at, out)
    }
}

/// The memory of a pool (a mapped pool, a simulated one) as an image.
#[derive(Debug)]
pub struct MemoryImage<'a, M: ?Sized>(pub &'a M);

impl<M: PoolMemory + ?Sized> Image for MemoryImage<'_, M> {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn own_len(&self) -> u64 {
        self.0.own_bytes()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let end = at.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.0.len()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // Bytes lost during this read change the condition; bytes lost before are counted for the
        // thread once the memory is watched.
        self.0.watch();
        let before = (self.0.condition(), faults().count);
        self.0.read(at, out);
        if (self.0.condition(), faults().count) == before {
            Ok(())
        } else {
            Err(io::Error::other("the memory is damaged here"))
        }
    }
}

/// A range that could not be read.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    pub(crate) at: u64,
    pub(crate) reason: String,
}

/// Most unreadable ranges that are remembered.
const UNREADABLE_MAX: usize = 64;

/// An image with an overlay.
pub(crate) struct View<'a> {
    image: &'a dyn Image,
    /// Overlaid lines of a redo log.
    lines: BTreeMap<u64, [u8; LINE_BYTES]>,
    overlay: BTreeMap<u64, u64>,
    unreadable: RefCell<Vec<Unreadable>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(image: &'a dyn Image) -> Self {
        Self {
            image,
            lines: BTreeMap::new(),
            overlay: BTreeMap::new(),
            unreadable: RefCell::default(),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.image.len()
    }

    /// Bytes of the pool itself, without those of an external data device.
    pub(crate) fn own_len(&self) -> u64 {
        self.image.own_len()
    }

    /// Overlays the word at `at` by `value`; returns the previous overlay.
    pub(crate) fn lay(&mut self, at: u64, value: u64) -> Option<u64> {
        self.overlay.insert(at, value)
    }

    /// The overlaid words, by pool offset.
    pub(crate) fn laid(&self) -> Vec<(u64, u64)> {
        let words = self.overlay.iter();
        words.map(|(&at, &value)| (at, value)).collect()
    }

    /// Overlays the line at `at` by 64 bytes, beneath all overlaid words.
    pub(crate) fn lay_line(&mut self, at: u64, bytes: &[u8]) {
        if let Ok(bytes) = bytes.try_into() {
            self.lines.insert(at, bytes);
        }
    }

    /// Ranges that were unreadable so far.
    pub(crate) fn take_unreadable(&self) -> Vec<Unreadable> {
        std::mem::take(&mut self.unreadable.borrow_mut())
    }

    /// Fills `out`; unreadable blocks become zeros and are remembered.
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) {
        if self.image.read(at, out).is_err() {
            self.read_blocks(at, out);
        }
        let end = at.saturating_add(out.len() as u64);
        let before = |len: usize| at.saturating_sub(len as u64 - 1)..end.max(at);
        for (&place, line) in self.lines.range(before(LINE_BYTES)) {
            put(out, at, place, line);
        }
        for (&place, value) in self.overlay.range(before(8)) {
            put(out, at, place, &value.to_le_bytes());
        }
    }

    /// Fills `out` from beneath the overlay; returns whether that was possible.
    pub(crate) fn read_under(&self, at: u64, out: &mut [u8]) -> bool {
        self.image.read(at, out).is_ok()
    }

    fn read_blocks(&self, at: u64, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            let from = at.saturating_add(done as u64);
            let part = (BLOCK_BYTES - from % BLOCK_BYTES).min((out.len() - done) as u64) as usize;
            let to = &mut out[done..done + part];
            if let Err(error) = self.image.read(from, to) {
                to.fill(0);
                let mut list = self.unreadable.borrow_mut();
                if list.len() < UNREADABLE_MAX && list.iter().all(|known| known.at != from) {
                    list.push(Unreadable {
                        at: from,
                        reason: error.to_string(),
                    });
                }
            }
            done += part;
        }
    }

    pub(crate) fn bytes<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut out = [0; N];
        self.read(at, &mut out);
        out
    }

    pub(crate) fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }
}

/// Copies the part of `bytes` at `place` that overlaps `out`, which begins at `at`.
fn put(out: &mut [u8], at: u64, place: u64, bytes: &[u8]) {
    let skip = at.saturating_sub(place) as usize;
    let Some(bytes) = bytes.get(skip..) else {
        return;
    };
    let to = out.iter_mut().skip(place.saturating_sub(at) as usize);
    to.zip(bytes).for_each(|(to, &byte)| *to = byte);
}

/// Most bytes a window holds.
const WINDOW_BYTES: u64 = 64 << 10;

/// A moving window over a part of a view.
pub(crate) struct Window<'v, 'a> {
    view: &'v View<'a>,
    start: u64,
    end: u64,
    held_at: u64,
    held: Vec<u8>,
}

impl<'v, 'a> Window<'v, 'a> {
    /// A window over `[start, end)`, which lies inside the image.
    pub(crate) fn new(view: &'v View<'a>, start: u64, end: u64) -> Self {
        Self {
            view,
            start,
            end,
            held_at: start,
            held: Vec::new(),
        }
    }

    /// A window over the metadata slots.
    pub(crate) fn of_slots(view: &'v View<'a>, geometry: &Geometry) -> Self {
        Self::new(view, geometry.meta_at, geometry.slots_end())
    }

    /// The `len` bytes at `at`; `None` if they are not inside the window's range.
    pub(crate) fn get(&mut self, at: u64, len: usize) -> Option<&[u8]> {
        let end = at.checked_add(len as u64)?;
        if at < self.start || end > self.end || len as u64 > WINDOW_BYTES / 2 {
            return None;
        }
        if at < self.held_at || end > self.held_at + self.held.len() as u64 {
            self.held_at = (at / BLOCK_BYTES * BLOCK_BYTES).max(self.start);
            let size = WINDOW_BYTES.min(self.end - self.held_at);
            self.held.resize(size as usize, 0);
            self.view.read(self.held_at, &mut self.held);
        }
        let from = (at - self.held_at) as usize;
        self.held.get(from..from + len)
    }
}

/// Calls `each` with every block that has a word in the table of blocks, and the word.
pub(crate) fn for_each_table_word(
    view: &View,
    geometry: &Geometry,
    mut each: impl FnMut(u64, u64),
) {
    let plan = TablePlan::of(geometry, |at| view.word(at));
    for piece in plan.pieces() {
        for_each_word(view, piece.at, piece.blocks, |index, word| {
            each(piece.first + index, word)
        });
    }
}

/// Calls `each` with the words of `[at, at + 8 * count)` and their index.
pub(crate) fn for_each_word(view: &View, at: u64, count: u64, mut each: impl FnMut(u64, u64)) {
    let mut buffer = vec![0; WINDOW_BYTES.min(count.saturating_mul(8)) as usize];
    let mut index = 0;
    while index < count {
        let words = (buffer.len() as u64 / 8).min(count - index);
        let part = &mut buffer[..words as usize * 8];
        view.read(at + index * 8, part);
        for (i, word) in part.as_chunks::<8>().0.iter().enumerate() {
            each(index + i as u64, u64::from_le_bytes(*word));
        }
        index += words;
    }
}
