//! Batched direct reads and writes: several ranges, and long ones, are requested at once, so that
//! the device has more than one request to work on.
//!
//! Calls, one after the other, do whatever a batch leaves undone; they handle unreadable blocks and
//! memory that the device cannot reach. They also do a single short request, which gains nothing
//! from a batch. Unaligned ends of a write are written first, by themselves.

use super::{BLOCK, BLOCK_BYTES, BOUNCE_BYTES, Direct, Step, with_buffer};
use crate::ring::{BATCH_MAX, Bytes, Lent, Request};
use std::io;
use std::iter;
use std::mem;
use std::os::fd::AsFd;

/// Most bytes of a request. Longer ranges become several requests in flight, and completed ones are
/// copied out while the others run.
const REQUEST_BYTES: usize = 256 << 10;

impl Direct {
    /// Fills each `out` from its range of the pool; `otherwise` handles whatever cannot be read
    /// this way.
    pub(crate) fn read_all(
        &self,
        pieces: &mut [(u64, &mut [u8])],
        mut otherwise: impl FnMut(u64, &mut [u8]),
    ) {
        let is_short = matches!(pieces, [(_, out)] if out.len() <= REQUEST_BYTES);
        let Some(mut ring) = (!is_short).then(|| self.rings.lend()).flatten() else {
            for (at, out) in pieces {
                otherwise(*at, out);
            }
            return;
        };
        let steps = pieces.iter_mut().flat_map(|(at, out)| steps(*at, out));
        let mut steps = steps.peekable();
        while steps.peek().is_some() {
            for (at, out) in self.read_batch(&mut ring, &mut steps) {
                otherwise(at, out);
            }
        }
    }

    /// Reads what fits into the buffer and a batch; returns the rest.
    fn read_batch<'p>(
        &self,
        ring: &mut Lent<'_>,
        steps: &mut iter::Peekable<impl Iterator<Item = ReadStep<'p>>>,
    ) -> Vec<(u64, &'p mut [u8])> {
        with_buffer(|mut room| {
            let mut batch = Vec::with_capacity(BATCH_MAX);
            while batch.len() < BATCH_MAX
                && let Some(step) = steps.next_if(|step| step.bounces() <= room.len())
            {
                let (blocks, rest) = mem::take(&mut room).split_at_mut(step.bounces());
                room = rest;
                batch.push(Reading {
                    file_at: step.at - step.at % BLOCK_BYTES - self.from + self.file_from,
                    step,
                    blocks,
                    is_done: false,
                });
            }
            ring.run(self.fd.as_fd(), &mut batch, Reading::deliver);
            let undone = batch.into_iter().filter(|reading| !reading.is_done);
            undone
                .map(|reading| (reading.step.at, reading.step.out))
                .collect()
        })
    }

    /// Writes each buffer to its range of the pool. No other thread writes to the touched blocks
    /// meanwhile, and no two ranges touch the same block.
    ///
    /// # Errors
    /// Returns an error of the operating system for one of them.
    pub(crate) fn write_all(&self, pieces: &[(u64, &[u8])]) -> io::Result<()> {
        let is_short = match pieces {
            [(at, data)] => data.len() <= REQUEST_BYTES || !is_whole(*at, data),
            _ => false,
        };
        let may = self.held_by.is_some() && !is_short;
        let Some(mut ring) = may.then(|| self.rings.lend()).flatten() else {
            return pieces
                .iter()
                .try_for_each(|(at, data)| self.write(*at, data));
        };
        let mut whole = Vec::with_capacity(pieces.len());
        for &(at, data) in pieces {
            let (head, data) = data.split_at(head_of(at, data.len()));
            let (data, tail) = data.split_at(data.len() / BLOCK * BLOCK);
            let start = at + head.len() as u64;
            whole.push((start, data));
            self.write(at, head)?;
            self.write(start + data.len() as u64, tail)?;
        }
        let requests = whole.iter().flat_map(|&(at, data)| {
            let places = (at..).step_by(REQUEST_BYTES);
            places.zip(data.chunks(REQUEST_BYTES))
        });
        let mut requests = requests.peekable();
        while requests.peek().is_some() {
            let undone = self.write_batch(&mut ring, &mut requests);
            undone
                .into_iter()
                .try_for_each(|(at, data)| self.write(at, data))?;
        }
        Ok(())
    }

    /// Writes as many of these whole blocks as fit into the buffer and a batch; returns the rest.
    fn write_batch<'p>(
        &self,
        ring: &mut Lent<'_>,
        requests: &mut iter::Peekable<impl Iterator<Item = (u64, &'p [u8])>>,
    ) -> Vec<(u64, &'p [u8])> {
        with_buffer(|mut room| {
            let mut batch = Vec::with_capacity(BATCH_MAX);
            while batch.len() < BATCH_MAX
                && let Some((at, data)) =
                    requests.next_if(|(_, data)| is_aligned(data) || data.len() <= room.len())
            {
                let blocks: &[u8] = match is_aligned(data) {
                    true => data,
                    false => {
                        let (blocks, rest) = mem::take(&mut room).split_at_mut(data.len());
                        room = rest;
                        blocks.copy_from_slice(data);
                        blocks
                    }
                };
                batch.push(Writing {
                    at,
                    file_at: at - self.from + self.file_from,
                    data,
                    blocks,
                    is_done: false,
                });
            }
            ring.run(self.fd.as_fd(), &mut batch, |writing| {
                writing.is_done = true;
            });
            let undone = batch.into_iter().filter(|writing| !writing.is_done);
            undone.map(|writing| (writing.at, writing.data)).collect()
        })
    }
}

/// Whether these bytes at `at` are whole blocks.
fn is_whole(at: u64, data: &[u8]) -> bool {
    at.is_multiple_of(BLOCK_BYTES) && data.len().is_multiple_of(BLOCK)
}

fn is_aligned(data: &[u8]) -> bool {
    data.as_ptr().addr().is_multiple_of(BLOCK)
}

/// How many of `len` bytes at `at` lie before the first block boundary.
fn head_of(at: u64, len: usize) -> usize {
    (at.next_multiple_of(BLOCK_BYTES) - at).min(len as u64) as usize
}

/// The bytes that one request reads.
struct ReadStep<'p> {
    /// Offset in the pool.
    at: u64,
    out: &'p mut [u8],
    /// Whether the device reads directly into the caller's memory.
    is_straight: bool,
}

impl ReadStep<'_> {
    /// Bytes of the buffer that they take.
    fn bounces(&self) -> usize {
        match self.is_straight {
            true => 0,
            false => ((self.at % BLOCK_BYTES) as usize + self.out.len()).next_multiple_of(BLOCK),
        }
    }
}

/// Splits a read from `at` on into requests.
fn steps<'p>(mut at: u64, mut rest: &'p mut [u8]) -> impl Iterator<Item = ReadStep<'p>> {
    iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (len, is_straight) = match Step::first(at, rest.as_ptr(), rest.len()) {
            Step::Straight(len) => (len.min(REQUEST_BYTES), true),
            Step::Bounced(len) => {
                let skip = (at % BLOCK_BYTES) as usize;
                (len.min(REQUEST_BYTES - skip), false)
            }
        };
        let (out, later) = mem::take(&mut rest).split_at_mut(len);
        let step = ReadStep {
            at,
            out,
            is_straight,
        };
        at += len as u64;
        rest = later;
        Some(step)
    })
}

// An empty buffer always has space for one request.
const _: () = assert!(REQUEST_BYTES <= BOUNCE_BYTES);

/// A read request of a batch.
struct Reading<'b, 'p> {
    file_at: u64,
    step: ReadStep<'p>,
    /// Blocks of the buffer; empty if it is not needed.
    blocks: &'b mut [u8],
    is_done: bool,
}

impl Reading<'_, '_> {
    /// Copies out the bytes that arrived.
    fn deliver(&mut self) {
        let step = &mut self.step;
        if !step.is_straight {
            let skip = (step.at % BLOCK_BYTES) as usize;
            step.out
                .copy_from_slice(&self.blocks[skip..][..step.out.len()]);
        }
        self.is_done = true;
    }
}

impl Request for Reading<'_, '_> {
    fn file_at(&self) -> u64 {
        self.file_at
    }

    fn memory(&mut self) -> Bytes<'_> {
        Bytes::Read(match self.step.is_straight {
            true => self.step.out,
            false => self.blocks,
        })
    }
}

/// A write request of a batch.
struct Writing<'b, 'p> {
    /// Offset in the pool.
    at: u64,
    file_at: u64,
    data: &'p [u8],
    /// The same bytes in memory that a device can read.
    blocks: &'b [u8],
    is_done: bool,
}

impl Request for Writing<'_, '_> {
    fn file_at(&self) -> u64 {
        self.file_at
    }

    fn memory(&mut self) -> Bytes<'_> {
        Bytes::Write(self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backing::PoolFile;
    use crate::process::Process;
    use crate::ring::Rings;
    use std::fs::File;
    use std::ops::Range;
    use std::path::Path;

    const FROM: u64 = 10 * BLOCK_BYTES;
    const FILE_FROM: u64 = 3 * BLOCK_BYTES;
    const BYTES: usize = 4 << 20;
    const IN_POOL: Range<u64> = FROM..FROM + BYTES as u64;

    /// A file whose bytes count as those of a pool from [`FROM`] on, with or without rings.
    fn direct(path: &Path, with_rings: bool) -> Direct {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).unwrap();
        file.set_len(FILE_FROM + BYTES as u64).unwrap();
        let mut direct =
            Direct::open(&PoolFile::new(file.into()), path, IN_POOL, FILE_FROM).unwrap();
        if !with_rings {
            direct.rings = Rings::refused();
        }
        direct
    }

    /// Offsets and lengths, no two of which touch the same block, and how far behind a block
    /// boundary the memory begins.
    fn places(round: usize) -> Vec<(usize, usize, usize)> {
        let mut number = round as u64 + 1;
        let mut next = |below: usize| {
            number = number.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(11);
            (number >> 33) as usize % below
        };
        let longest = [BLOCK, 5 * BLOCK, 3 * REQUEST_BYTES][round % 3];
        let (mut places, mut at) = (Vec::new(), 0);
        loop {
            let is_odd = next(2) == 0;
            let skip = if is_odd { next(BLOCK) } else { 0 };
            let len = match is_odd {
                true => next(longest) + 1,
                false => (next(longest / BLOCK) + 1) * BLOCK,
            };
            if at + skip + len > BYTES || places.len() > 200 {
                break;
            }
            let misalignment = [0, skip, 16][next(3)];
            places.push((at + skip, len, misalignment));
            at = (at + skip + len).next_multiple_of(BLOCK) + next(3) * BLOCK;
        }
        // In any order.
        places.sort_by_key(|(at, ..)| at.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        places
    }

    /// Memory for one of them, inside a longer buffer.
    fn memory(buffer: &mut [u8], len: usize, misalignment: usize) -> &mut [u8] {
        let address = buffer.as_ptr().addr();
        let start = address.next_multiple_of(BLOCK) - address + misalignment;
        &mut buffer[start..][..len]
    }

    #[test]
    fn batches_move_the_bytes_that_calls_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let mut bytes = vec![0; BYTES];
        for round in 0..24 {
            let direct = direct(&path, round % 4 != 3);
            let places = places(round);
            let buffer = |&(_, len, _): &(usize, usize, usize)| vec![round as u8; len + 2 * BLOCK];
            let mut buffers: Vec<Vec<u8>> = places.iter().map(buffer).collect();
            let mut pieces = Vec::new();
            for (&(at, len, misalignment), buffer) in places.iter().zip(&mut buffers) {
                let data = memory(buffer, len, misalignment);
                let content = (at..).map(|at| (at * 31 + round) as u8);
                data.iter_mut()
                    .zip(content)
                    .for_each(|(to, byte)| *to = byte);
                bytes[at..][..len].copy_from_slice(data);
                pieces.push((FROM + at as u64, &*data));
            }
            direct.write_all(&pieces).unwrap();
            let file = std::fs::read(&path).unwrap();
            assert!(file[FILE_FROM as usize..] == bytes, "round {round}");
            let mut buffers: Vec<Vec<u8>> = places.iter().map(buffer).collect();
            let memories = places.iter().zip(&mut buffers);
            let mut pieces: Vec<(u64, &mut [u8])> = memories
                .map(|(&(at, len, misalignment), buffer)| {
                    (FROM + at as u64, memory(buffer, len, misalignment))
                })
                .collect();
            direct.read_all(&mut pieces, |at, out| direct.read(at, out).unwrap());
            for (&(at, len, _), (_, out)) in places.iter().zip(&pieces) {
                assert!(**out == bytes[at..][..len], "round {round}, {len} at {at}");
            }
        }
    }

    #[test]
    fn calls_do_what_a_batch_leaves_undone_or_report_why() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        for with_rings in [true, false] {
            let direct = direct(&path, with_rings);
            let file = File::options().write(true).open(&path).unwrap();
            file.set_len(FILE_FROM + 8 * BLOCK_BYTES).unwrap();
            let mut buffers = vec![vec![7; BLOCK]; 12];
            let places = (0..).map(|number| FROM + number * BLOCK_BYTES);
            let mut pieces: Vec<(u64, &mut [u8])> = places
                .zip(buffers.iter_mut().map(|out| &mut out[..]))
                .collect();
            let mut failed = Vec::new();
            direct.read_all(&mut pieces, |at, out| {
                if direct.read(at, out).is_err() {
                    failed.push((at - FROM) / BLOCK_BYTES);
                }
            });
            failed.sort_unstable();
            assert_eq!(failed, [8, 9, 10, 11]);
            assert!(pieces[..8].iter().all(|(_, out)| **out == [0; BLOCK]));
        }
        let mut read_only = {
            let file = PoolFile::new(File::open(&path).unwrap().into());
            Direct::open(&file, &path, IN_POOL, FILE_FROM).unwrap()
        };
        assert_eq!(read_only.held_by, None, "it writes nothing");
        let data = vec![1; 2 * REQUEST_BYTES];
        for held_by in [None, Some(Process::other())] {
            read_only.held_by = held_by;
            let written = read_only.write_all(&[(FROM, &data)]);
            assert!(written.is_err(), "{held_by:?}");
        }
    }
}
