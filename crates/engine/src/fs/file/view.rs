//! Views of a file's bytes in place.

use std::ops::{Deref, Range};

use vellum_layout::{BLOCK_BYTES, FileKind, MapRoot, RUN_BLOCKS};
use vellum_media::{FileBytes, Memories, Memory, Window};

use super::read_path::{Path, ReadPaths};
use super::translation::Seen;
use super::{Files, Translation};
use crate::core::Core;
use crate::core::cachelet::{Cachelet, field};
use crate::core::lease::{Lease, Shown};
use crate::core::slots::Op;
use crate::error::{Error, Result};
use crate::mapping::Found;
use crate::reading::pages_of;
use crate::reading::table::Pin;

/// The location of a [`View`]'s bytes.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let volume = pool.volume();
/// use vellum::ViewSource;
///
/// volume.write("/f", vec![1; 4096])?;
/// let file = volume.open("/f")?;
/// assert_eq!(file.view(0..4096)?.place(), ViewSource::Pool);
/// assert_eq!(file.view(4096..8192)?.place(), ViewSource::Copy); // beyond the end, of no bytes
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewSource {
    /// In the pool.
    Pool,
    /// In the pool, shown by the file's page table.
    PageTable,
    /// In the view's own memory.
    Copy,
}

/// Bytes of a file: in place if they are contiguous, else copied.
///
/// A view in place is a lease. Until it is dropped, an operation that would change or free these
/// bytes (a write, a truncation, a hole punch) waits before it begins. In the thread that took the
/// view it fails with [`Error::Deadlock`] instead. Changes elsewhere in the file do not wait, and
/// reads never do. A file that loses its last name keeps its bytes as long as it is open, and a
/// view borrows the open file. Any thread may drop a view; one that has it, did not take it, and
/// changes these bytes waits for ever. Forgetting a view ([`std::mem::forget`]) makes writers wait
/// for ever.
///
/// A copy holds what the file held at some moment while it was taken, as a read does.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let volume = pool.volume();
/// # let file = volume.create("/f")?;
/// file.write_all_at(b"one two", 0)?;
/// let view = file.view(0..3)?;
/// assert_eq!(&*view, b"one");
/// assert!(matches!(file.write_at(b"six", 0), Err(vellum::Error::Deadlock)));
/// drop(view);
/// file.write_at(b"six", 0)?;
/// # Ok::<(), vellum::Error>(())
/// ```
pub struct View<'f, M: Memories> {
    bytes: Bytes<'f, M>,
    core: &'f Core<M>,
    /// The pool's condition before the bytes were lent.
    condition: u64,
}

enum Bytes<'f, M: Memories> {
    Pool(
        &'f [u8],
        #[expect(dead_code, reason = "held, not looked at")] Lease<'f, M>,
        #[expect(dead_code, reason = "held, not looked at")] Shown<'f, M>,
    ),
    PageTable(
        &'f [u8],
        #[expect(dead_code, reason = "held, not looked at")] Pin<'f>,
        #[expect(dead_code, reason = "held, not looked at")] Lease<'f, M>,
        #[expect(dead_code, reason = "held, not looked at")] Shown<'f, M>,
    ),
    Copy(Vec<u8>),
}

impl<M: Memories> Deref for View<'_, M> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Pool(bytes, ..) | Bytes::PageTable(bytes, ..) => bytes,
            Bytes::Copy(bytes) => bytes,
        }
    }
}

impl<M: Memories> Drop for View<'_, M> {
    fn drop(&mut self) {
        if self.core.arena.is_of_parent() {
            // After a fork the lease belongs to the parent, which releases it. A thread of the
            // parent may hold for ever a lock that releasing takes.
            std::mem::forget(std::mem::replace(&mut self.bytes, Bytes::Copy(Vec::new())));
        }
    }
}

impl<M: Memories> View<'_, M> {
    /// The location of the bytes.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # let file = volume.create("/f")?;
    /// use vellum::ViewSource;
    ///
    /// file.write_all_at(b"one block", 0)?;
    /// assert_eq!(file.view(0..9)?.place(), ViewSource::Pool);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn place(&self) -> ViewSource {
        match self.bytes {
            Bytes::Pool(..) => ViewSource::Pool,
            Bytes::PageTable(..) => ViewSource::PageTable,
            Bytes::Copy(_) => ViewSource::Copy,
        }
    }

    /// Fails if the medium lost bytes, of this view or others, since the view was taken: lost bytes
    /// look like zeros. Call it after using the bytes. A copy was checked when it was made.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # let file = volume.create("/f")?;
    /// file.write_all_at(b"ten words", 0)?;
    /// let view = file.view(0..9)?;
    /// let spaces = view.iter().filter(|&&byte| byte == b' ').count();
    /// view.check()?; // no byte was lost while they were counted
    /// assert_eq!(spaces, 1);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unreadable`].
    pub fn check(&self) -> Result<()> {
        let is_copy = matches!(self.bytes, Bytes::Copy(_));
        if is_copy || self.core.pool.condition() == self.condition {
            return Ok(());
        }
        Err(self.core.unreadable(self.core.pool.last_lost()))
    }
}

impl<M: Memories> std::fmt::Debug for View<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View({} bytes, {:?})", self.len(), self.place())
    }
}

impl<'f, M: Memories> Files<'f, M> {
    /// A view of a range, up to the end of the file.
    pub(crate) fn view(
        &self,
        cachelet: Cachelet,
        translation: &Translation,
        paths: ReadPaths<'f>,
        range: Range<u64>,
    ) -> Result<View<'f, M>> {
        self.core.check_use()?;
        let condition = self.core.pool.condition();
        let bytes = match self.lend(cachelet, translation, paths, &range)? {
            Some(bytes) => bytes,
            None => self.copy(cachelet, translation, paths, &range)?,
        };
        Ok(View {
            bytes,
            core: self.core,
            condition,
        })
    }

    fn copy(
        &self,
        cachelet: Cachelet,
        translation: &Translation,
        paths: ReadPaths<'_>,
        range: &Range<u64>,
    ) -> Result<Bytes<'f, M>> {
        let end = range.end.min(self.size(cachelet));
        let len = usize::try_from(end.saturating_sub(range.start)).map_err(|_| Error::TooLarge)?;
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(len)
            .map_err(|_| Error::OutOfMemory("the copy of a view"))?;
        bytes.resize(len, 0);
        let len = self.read_at(cachelet, translation, Some(paths), range.start, &mut bytes)?;
        bytes.truncate(len);
        Ok(Bytes::Copy(bytes))
    }

    /// Lends the bytes in place, if they are contiguous.
    fn lend(
        &self,
        cachelet: Cachelet,
        translation: &Translation,
        paths: ReadPaths<'f>,
        range: &Range<u64>,
    ) -> Result<Option<Bytes<'f, M>>> {
        loop {
            let end = range.end.min(self.size(cachelet));
            if range.start >= end {
                return Ok(None);
            }
            let bytes = range.start..end;
            let lease = Lease::take(self.core, cachelet, bytes.clone())?;
            let op = self.core.op_begin()?;
            // From here on the lease keeps the bytes, unless they were removed before it.
            if self.size(cachelet) < end {
                continue;
            }
            // After bytes were lost only copies can report which.
            if !op.is_whole() {
                return Ok(None);
            }
            let file = Seen {
                cachelet,
                translation,
                version: self.core.get(cachelet, field::VERSION),
            };
            let len = end - range.start;
            let piece = self.one_piece(&op, file, &bytes);
            let found = match self.core.noting(piece)? {
                Some(at) => pool_bytes(self.core, &lease, at, len).map(|at| (at, None)),
                None => self.shown(&op, file, paths, &bytes, &lease),
            };
            if op.check_media().is_err() {
                return Ok(None);
            }
            if !translation.is_noatime() {
                self.core.touch(cachelet, FileKind::File);
            }
            return Ok(found.map(|(bytes, pin)| match pin {
                None => Bytes::Pool(bytes, lease, Shown::new(self.core)),
                Some(pin) => Bytes::PageTable(bytes, pin, lease, Shown::new(self.core)),
            }));
        }
    }

    /// The pool offset of the bytes, if they are contiguous there.
    fn one_piece(&self, op: &Op<'_, M>, file: Seen<'_>, bytes: &Range<u64>) -> Result<Option<u64>> {
        let Some((_, id)) = MapRoot(self.core.get(file.cachelet, field::ROOT)).get() else {
            return Ok(None);
        };
        let (mut next, end) = (bytes.start / BLOCK_BYTES, bytes.end.div_ceil(BLOCK_BYTES));
        let mut start: Option<u64> = None;
        let mut expected = 0;
        while next < end {
            // Look up by runs, because translations are kept by runs.
            let last = ((next / RUN_BLOCKS + 1) * RUN_BLOCKS).min(end);
            let mut found = [Found::Hole; RUN_BLOCKS as usize];
            let found = &mut found[..(last - next) as usize];
            self.find(op, id, file, next, found)?;
            for found in found {
                let Found::Mapped(block) = *found else {
                    return Ok(None);
                };
                let at = self.mapping.data_at(block);
                if start.is_some() && at != expected {
                    return Ok(None);
                }
                start.get_or_insert(at);
                expected = at + BLOCK_BYTES;
            }
            next = last;
        }
        Ok(start.map(|at| at + bytes.start % BLOCK_BYTES))
    }

    /// The bytes as the file's page table shows them, if it has them or buys them now.
    fn shown(
        &self,
        op: &Op<'_, M>,
        file: Seen<'_>,
        paths: ReadPaths<'f>,
        bytes: &Range<u64>,
        lease: &Lease<'f, M>,
    ) -> Option<(&'f [u8], Option<Pin<'f>>)> {
        let len = bytes.end - bytes.start;
        let pages = pages_of(bytes.start, len);
        let Path::Table(choice) = self.path(op, paths, file.cachelet, pages) else {
            return None;
        };
        if !self.all_there(op, file, choice, bytes) {
            return None;
        }
        let table = choice.table;
        let pin = table.pin(|| table.holds_all(file.version, bytes.start, len))?;
        let shown = window_bytes(self.core, lease, table.window()?, bytes.start, len)?;
        Some((shown, Some(pin)))
    }
}

/// Lends bytes of the pool.
#[inline]
#[expect(unsafe_code, reason = "the lease keeps writers away")]
fn pool_bytes<'f, M: Memories>(
    core: &'f Core<M>,
    _lease: &Lease<'f, M>,
    at: u64,
    len: u64,
) -> Option<&'f [u8]> {
    // SAFETY: these are bytes of a file that are lent. Data blocks are stored to by `data::write`
    // and `data::zero` alone, for the bytes of a write, a hole or a new end, all of which wait for
    // leases that overlap (`Files::change`), or for bytes beyond the end of file, which are not
    // lent. A block has no other owner before the file frees it, which waits likewise, or is
    // removed, which waits for the open file that the view borrows. Nobody else can store to the
    // pool: `Fs` hands out only simulated ones. The slice is kept beside the lease and dropped
    // before it.
    unsafe { core.pool.in_place(at, len) }
}

/// Lends bytes of the pool through a window.
#[expect(
    unsafe_code,
    reason = "the lease keeps writers away, the pin keeps the window"
)]
fn window_bytes<'f, M: Memories>(
    core: &'f Core<M>,
    _lease: &Lease<'f, M>,
    window: &'f Window,
    at: u64,
    len: u64,
) -> Option<&'f [u8]> {
    // SAFETY: as in `pool_bytes`. The blocks are present, so nothing else is mapped over them while
    // the table is pinned.
    unsafe { core.pool.in_window(window, at, len) }
}
