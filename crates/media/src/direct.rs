//! Blocks of files that are read and written past the kernel's page cache (`O_DIRECT`).
//!
//! The device then accesses our memory itself, in whole blocks: offset, length and address must be
//! multiples of [`BLOCK_BYTES`], which any present device accepts. Aligned requests need no copy.
//! Everything else goes through a buffer of the thread. A read fetches whole blocks and copies a
//! part of them out. A write that covers only a part of a block first reads the block, and then
//! writes it as a whole.
//!
//! **Two writers of one block.** A second writer of another part of the block, between the read and
//! the write, would lose its bytes. This cannot happen. Operations write blocks of files under the
//! lock of the file, which excludes all other writers of the file (`Core::lock`) for the whole
//! operation. A block belongs to one file from the operation that claims it to the one that frees
//! it, both under that lock, and to another file only once no operation is running that began
//! before it was freed. Only one process has the pool open. Outside operations, an opening writes
//! the journaled data of the log before the first operation begins, and a close writes the metadata
//! replica, in blocks of no file, after the last one has ended; each is one thread. So no two
//! writes touch one block at a time, whatever parts of it they cover. Readers are not excluded:
//! when a block is rewritten, the bytes beside those of the write keep their values.
//!
//! **Beside the page cache.** The cache is not consulted and still agrees: Linux writes dirty pages
//! of a range back before a direct read or write of it, and drops the pages of what was written
//! directly, including those in mappings; if it cannot, it writes through the cache. So other
//! readers of the file, such as a checker after the close, see what was written. A write reports
//! its errors itself, and a sync of the file, through any description, makes durable what was
//! written through any of them.

use crate::MediaError;
use crate::backing::{PoolFile, failed};
use crate::in_flight;
use crate::logged::{read_exact, write_all};
use crate::memory::BLOCK_BYTES;
use crate::process::Process;
use crate::ring::Rings;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::param::page_size;
use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

mod batch;

const BLOCK: usize = BLOCK_BYTES as usize;

/// Bytes of the buffer: an operation's worth, plus one block for unaligned requests.
const BOUNCE_BYTES: usize = (1 << 20) + BLOCK;

thread_local! {
    /// Allocated when the thread first needs it; its pages are allocated at their first use.
    static BOUNCE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A file or device, opened once more for direct reads and writes only.
pub(crate) struct Direct {
    fd: OwnedFd,
    /// Offset in the pool of the first byte that is reached this way.
    pub(crate) from: u64,
    /// Offset in the pool at which these bytes end.
    end: u64,
    /// Offset of the first byte in the file.
    file_from: u64,
    /// For several requests at once.
    rings: Rings,
    /// The process for whose requests in flight the next opening waits; `None` if it need not wait
    /// and batches must not write.
    held_by: Option<Process>,
}

impl Direct {
    /// Opens `file` once more. A duplicate of its descriptor would not do: `O_DIRECT` would apply
    /// to both, and that of the pool's own file also reads and writes metadata. The lock stays with
    /// the description that carries it.
    pub(crate) fn open(
        file: &PoolFile,
        path: &Path,
        Range { start: from, end }: Range<u64>,
        file_from: u64,
    ) -> Result<Self, MediaError> {
        let refused = |source: io::Error| MediaError::NotDirect {
            path: path.to_owned(),
            source,
        };
        if !file_from.is_multiple_of(BLOCK_BYTES.max(page_size() as u64)) {
            // Two blocks of files would share a block of the device, or a block and the log a page.
            return Err(refused(io::ErrorKind::InvalidInput.into()));
        }
        let fd = file.reopened(OFlags::DIRECT);
        let fd = fd.map_err(|errno| match io::Error::from(errno) {
            error if is_refusal(&error) => refused(error),
            _ => failed("open past the page cache", path, errno),
        })?;
        let is_held = in_flight::hold_up(&fd, file_from);
        let direct = Self {
            fd,
            from,
            end,
            file_from,
            rings: Rings::new(),
            held_by: is_held.then(Process::current),
        };
        // Some file systems report this only at the first read. An unreadable block is a different
        // error.
        match direct.read(from, &mut [0; BLOCK]) {
            Err(error) if is_refusal(&error) => Err(refused(error)),
            _ => Ok(direct),
        }
    }

    /// Whether this byte of the pool is reached this way.
    #[inline(always)]
    pub(crate) fn has(&self, at: u64) -> bool {
        (self.from..self.end).contains(&at)
    }

    /// Whether all of these bytes are reached this way.
    #[inline(always)]
    pub(crate) fn has_all(&self, at: u64, len: usize) -> bool {
        self.has(at) && len as u64 <= self.end - at
    }

    /// Fills `out` with the bytes at `at` of the pool.
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        read(self, at - self.from + self.file_from, out)
    }

    /// As [`Self::read`], but tries `other` for blocks that cannot be read: another path to the
    /// same bytes, which works for memory of any kind. Blocks that neither reads become zeros;
    /// `lose` is called for each before.
    pub(crate) fn read_or_lose(
        &self,
        at: u64,
        out: &mut [u8],
        other: impl Fn(u64, &mut [u8]) -> io::Result<()>,
        lose: impl Fn(u64),
    ) {
        if self.read(at, out).is_ok() {
            return;
        }
        let mut rest = out;
        let mut next = at;
        while !rest.is_empty() {
            let len = (BLOCK - (next % BLOCK_BYTES) as usize).min(rest.len());
            let (block, later) = rest.split_at_mut(len);
            if self.read(next, block).is_err() && other(next, block).is_err() {
                lose(next);
                block.fill(0);
            }
            next += len as u64;
            rest = later;
        }
    }

    /// Writes bytes to `at` of the pool. No other thread writes to the touched blocks meanwhile.
    pub(crate) fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        write(self, at - self.from + self.file_from, data)
    }
}

impl Direct {
    /// Releases the next opening from waiting: nothing is in flight, and nothing will be.
    pub(crate) fn let_go(&self) {
        // A child that continues without having opened anything must not do this.
        if self.held_by == Some(Process::current()) {
            in_flight::let_go(&self.fd, self.file_from);
        }
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Whether a file system reports that it lacks direct I/O.
fn is_refusal(error: &io::Error) -> bool {
    [Errno::INVAL, Errno::OPNOTSUPP]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Moves whole blocks between a medium and memory with the required alignment.
trait Blocks {
    fn read_blocks(&self, at: u64, out: &mut [u8]) -> io::Result<()>;
    fn write_blocks(&self, at: u64, data: &[u8]) -> io::Result<()>;
}

impl Blocks for Direct {
    fn read_blocks(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        read_exact(self.fd.as_fd(), at, out)
    }

    fn write_blocks(&self, at: u64, data: &[u8]) -> io::Result<()> {
        write_all(self.fd.as_fd(), at, data)
    }
}

/// The first step of a transfer, with its number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Whole blocks, directly from or to the caller's memory.
    Straight(usize),
    /// Through the buffer.
    Bounced(usize),
}

impl Step {
    /// The first step for `len` bytes at `at`, which lie in memory at this address.
    fn first(at: u64, address: *const u8, len: usize) -> Self {
        let skip = (at % BLOCK_BYTES) as usize;
        let head = BLOCK - skip;
        let can_be_straight = address.addr() % BLOCK == skip;
        if can_be_straight && skip == 0 && len >= BLOCK {
            Self::Straight(len / BLOCK * BLOCK)
        } else if can_be_straight && len >= head + BLOCK {
            Self::Bounced(head)
        } else {
            Self::Bounced(len.min(BOUNCE_BYTES - skip))
        }
    }
}

fn read(blocks: &impl Blocks, at: u64, out: &mut [u8]) -> io::Result<()> {
    let (mut next, mut rest) = (at, out);
    while !rest.is_empty() {
        let step = Step::first(next, rest.as_ptr(), rest.len());
        let (Step::Straight(len) | Step::Bounced(len)) = step;
        let (now, later) = rest.split_at_mut(len);
        match step {
            Step::Straight(_) => blocks.read_blocks(next, now)?,
            Step::Bounced(_) => bounced(next, len, |start, skip, buffer| {
                blocks.read_blocks(start, buffer)?;
                now.copy_from_slice(&buffer[skip..][..len]);
                Ok(())
            })?,
        }
        next += len as u64;
        rest = later;
    }
    Ok(())
}

fn write(blocks: &impl Blocks, at: u64, data: &[u8]) -> io::Result<()> {
    let (mut next, mut rest) = (at, data);
    while !rest.is_empty() {
        let step = Step::first(next, rest.as_ptr(), rest.len());
        let (Step::Straight(len) | Step::Bounced(len)) = step;
        let (now, later) = rest.split_at(len);
        match step {
            Step::Straight(_) => match blocks.write_blocks(next, now) {
                // The processor may reach memory that the device cannot.
                Err(error) if error.raw_os_error() == Some(Errno::FAULT.raw_os_error()) => {
                    write_copied(blocks, next, now)?;
                }
                written => written?,
            },
            Step::Bounced(_) => bounced(next, len, |start, skip, buffer| {
                read_ends(blocks, (start, skip, len), buffer)?;
                buffer[skip..][..len].copy_from_slice(now);
                blocks.write_blocks(start, buffer)
            })?,
        }
        next += len as u64;
        rest = later;
    }
    Ok(())
}

/// Writes whole blocks through the buffer.
fn write_copied(blocks: &impl Blocks, at: u64, data: &[u8]) -> io::Result<()> {
    let mut next = at;
    for piece in data.chunks(BOUNCE_BYTES) {
        bounced(next, piece.len(), |start, _, buffer| {
            buffer.copy_from_slice(piece);
            blocks.write_blocks(start, buffer)
        })?;
        next += piece.len() as u64;
    }
    Ok(())
}

/// Reads the first and the last of the blocks at `start` that are to be written, unless the `len`
/// new bytes behind `skip` cover them.
fn read_ends(
    blocks: &impl Blocks,
    (start, skip, len): (u64, usize, usize),
    buffer: &mut [u8],
) -> io::Result<()> {
    let last = buffer.len() - BLOCK;
    let end = skip + len;
    if skip > 0 || end < BLOCK {
        blocks.read_blocks(start, &mut buffer[..BLOCK])?;
    }
    if end < buffer.len() && last > 0 {
        blocks.read_blocks(start + last as u64, &mut buffer[last..])?;
    }
    Ok(())
}

/// Calls `run` with the offset of the first block that `len` bytes at `at` touch, the number of
/// bytes before `at` in it, and a buffer for the blocks.
fn bounced(
    at: u64,
    len: usize,
    run: impl FnOnce(u64, usize, &mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    let skip = (at % BLOCK_BYTES) as usize;
    let bytes = (skip + len).next_multiple_of(BLOCK);
    with_buffer(|buffer| run(at - skip as u64, skip, &mut buffer[..bytes]))
}

/// Calls `run` with the thread's buffer: [`BOUNCE_BYTES`], aligned to a block.
fn with_buffer<T>(run: impl FnOnce(&mut [u8]) -> T) -> T {
    BOUNCE.with_borrow_mut(|buffer| {
        if buffer.is_empty() {
            *buffer = vec![0; BOUNCE_BYTES + BLOCK];
        }
        let address = buffer.as_ptr().addr();
        let start = address.next_multiple_of(BLOCK) - address;
        run(&mut buffer[start..][..BOUNCE_BYTES])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    const MEDIUM_BYTES: usize = 8 * BLOCK;

    /// A medium that only accepts whole blocks in aligned memory.
    struct Strict {
        bytes: RefCell<Vec<u8>>,
        transfers: Cell<u32>,
    }

    impl Strict {
        fn new(len: usize) -> Self {
            let bytes = (0..len).map(|at| (at / 7 % 251) as u8).collect();
            Self {
                bytes: RefCell::new(bytes),
                transfers: Cell::new(0),
            }
        }

        #[track_caller]
        fn look(&self, at: u64, memory: &[u8]) {
            let is_aligned = |number: usize| number.is_multiple_of(BLOCK);
            assert!(is_aligned(at as usize), "offset {at}");
            assert!(
                is_aligned(memory.len()) && !memory.is_empty(),
                "{} bytes",
                memory.len()
            );
            assert!(is_aligned(memory.as_ptr().addr()), "address");
            self.transfers.set(self.transfers.get() + 1);
        }
    }

    impl Blocks for Strict {
        fn read_blocks(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
            self.look(at, out);
            out.copy_from_slice(&self.bytes.borrow()[at as usize..][..out.len()]);
            Ok(())
        }

        fn write_blocks(&self, at: u64, data: &[u8]) -> io::Result<()> {
            self.look(at, data);
            self.bytes.borrow_mut()[at as usize..][..data.len()].copy_from_slice(data);
            Ok(())
        }
    }

    /// A medium whose device rejects some memory at first, so that the buffer is tried.
    struct Choosy(Strict);

    impl Blocks for Choosy {
        fn read_blocks(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
            self.0.read_blocks(at, out)
        }

        fn write_blocks(&self, at: u64, data: &[u8]) -> io::Result<()> {
            if self.0.transfers.get() == 0 {
                self.0.look(at, data);
                return Err(Errno::FAULT.into());
            }
            self.0.write_blocks(at, data)
        }
    }

    #[test]
    fn memory_that_no_device_reaches_is_copied() {
        let medium = Choosy(Strict::new(BOUNCE_BYTES + 4 * BLOCK));
        let mut buffer = Vec::new();
        let data = memory(&mut buffer, 0, BOUNCE_BYTES + 2 * BLOCK);
        data.fill(0xD7);
        write(&medium, BLOCK_BYTES, data).unwrap();
        let bytes = medium.0.bytes.borrow();
        assert!(&bytes[BLOCK..][..data.len()] == data);
        assert_eq!(medium.0.transfers.get(), 3);
    }

    /// `len` bytes of memory, `misalignment` bytes behind a multiple of a block.
    fn memory(buffer: &mut Vec<u8>, misalignment: usize, len: usize) -> &mut [u8] {
        buffer.resize(len + 2 * BLOCK, 0);
        let address = buffer.as_ptr().addr();
        let start = address.next_multiple_of(BLOCK) - address + misalignment;
        &mut buffer[start..][..len]
    }

    /// Writes and reads, and compares with a plain byte array.
    fn check(medium: &Strict, at: usize, len: usize, misalignment: usize) {
        let mut plain = medium.bytes.borrow().clone();
        let mut buffer = Vec::new();
        let data = memory(&mut buffer, misalignment, len);
        for (byte, number) in data.iter_mut().zip(at..) {
            *byte = (number * 31 + len + misalignment) as u8;
        }
        write(medium, at as u64, data).unwrap();
        plain[at..][..len].copy_from_slice(data);
        assert!(
            *medium.bytes.borrow() == plain,
            "write {at} {len} {misalignment}"
        );
        let mut buffer = Vec::new();
        let out = memory(&mut buffer, misalignment, len);
        read(medium, at as u64, out).unwrap();
        assert!(out == &plain[at..][..len], "read {at} {len} {misalignment}");
    }

    #[test]
    fn bytes_near_the_bounds_of_blocks_and_nothing_beside_them() {
        let near = [0, 1, 2, 511, 512, BLOCK - 1];
        let lens = [
            1,
            2,
            511,
            BLOCK - 2,
            BLOCK - 1,
            BLOCK,
            BLOCK + 1,
            2 * BLOCK - 1,
            2 * BLOCK,
            2 * BLOCK + 1,
            3 * BLOCK,
            4 * BLOCK + 1,
        ];
        let medium = Strict::new(MEDIUM_BYTES);
        for at in near.into_iter().chain(near.map(|at| at + BLOCK)) {
            for len in lens {
                for misalignment in near {
                    check(&medium, at, len, misalignment);
                }
                // As far behind a block in memory as on the medium.
                check(&medium, at, len, at % BLOCK);
            }
        }
    }

    #[test]
    fn transfers_longer_than_the_buffer_are_split() {
        let medium = Strict::new(2 * BOUNCE_BYTES + 4 * BLOCK);
        for (at, len) in [
            (0, BOUNCE_BYTES),
            (1, BOUNCE_BYTES),
            (BLOCK - 1, 2 * BOUNCE_BYTES + BLOCK),
        ] {
            for misalignment in [0, 80, at % BLOCK] {
                check(&medium, at, len, misalignment);
            }
        }
    }

    #[test]
    fn aligned_bytes_are_one_transfer_and_an_end_of_a_block_two() {
        let medium = Strict::new(MEDIUM_BYTES);
        let mut buffer = Vec::new();
        let mut count = |at, len, misalignment| {
            medium.transfers.set(0);
            write(&medium, at, memory(&mut buffer, misalignment, len)).unwrap();
            medium.transfers.get()
        };
        assert_eq!(count(BLOCK_BYTES, 4 * BLOCK, 0), 1);
        // Bounced as one transfer.
        assert_eq!(count(BLOCK_BYTES, 4 * BLOCK, 80), 1);
        assert_eq!(count(100, 50, 0), 2);
        assert_eq!(count(100, BLOCK, 0), 3);
    }

    proptest! {
        #[test]
        fn any_transfers_are_those_of_bytes_in_a_row(
            transfers in prop::collection::vec(
                (0..MEDIUM_BYTES, 0..MEDIUM_BYTES, 0..BLOCK), 1..20
            ),
        ) {
            let medium = Strict::new(MEDIUM_BYTES);
            for (at, len, misalignment) in transfers {
                check(&medium, at, len.min(MEDIUM_BYTES - at), misalignment);
            }
        }
    }
}
