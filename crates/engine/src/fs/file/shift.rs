//! Removing blocks from the middle of a file, and inserting a hole there (`fallocate` with
//! `FALLOC_FL_COLLAPSE_RANGE` and `FALLOC_FL_INSERT_RANGE`).
//!
//! A hole as long as the range moves through the file: bytes beside it are copied into it and then
//! freed. So every byte is at its old or its new offset at any moment, whatever survives a crash,
//! and all mappings can do it, also those that derive a block's place from its offset.

use std::ops::Range;

use vellum_layout::BLOCK_BYTES;
use vellum_media::Memories;

use super::{Files, PIECE_BYTES, check_range, check_size};
use crate::core::cachelet::Cachelet;
use crate::core::lease::Lease;
use crate::error::{Error, Result};
use crate::fs::file::Translation;
use crate::fs::{Cred, Fs};
use crate::mapping::Found;

/// Blocks that are looked up together.
const WINDOW: u64 = PIECE_BYTES / BLOCK_BYTES;

/// Which way bytes move.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// To lower offsets; the lowest bytes move first.
    Down,
    /// To higher offsets; the highest bytes move first.
    Up,
}

/// Blocks that are moved together: all holes, all unwritten, or all written.
struct Run {
    blocks: Range<u64>,
    kind: Found,
}

impl<M: Memories> Fs<M> {
    /// Removes a range; what is behind it moves down.
    pub(super) fn collapse(
        &self,
        cred: &Cred,
        file: Cachelet,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let end = check_aligned(offset, len)?;
        let _lease = Lease::take_alone(&self.core, file, offset..u64::MAX)?;
        let size = self.files().size(file);
        if end >= size {
            return Err(Error::Invalid("a range that reaches the end of the file"));
        }
        self.change_file(cred, |files| files.under_lease().punch(file, offset, end))?;
        self.shift(cred, file, Way::Down, end..size, len)?;
        self.change_file(cred, |files| files.under_lease().truncate(file, size - len))
    }

    /// Inserts a hole; what is behind it moves up.
    pub(super) fn insert(&self, cred: &Cred, file: Cachelet, offset: u64, len: u64) -> Result<()> {
        check_aligned(offset, len)?;
        let _lease = Lease::take_alone(&self.core, file, offset..u64::MAX)?;
        let size = self.files().size(file);
        if offset >= size {
            return Err(Error::Invalid("an offset at or behind the end of the file"));
        }
        let new_size = size.checked_add(len).ok_or(Error::TooLarge)?;
        check_size(new_size)?;
        self.change_file(cred, |files| {
            let files = files.under_lease();
            // Frees blocks beyond the end.
            files.truncate(file, size)?;
            files.truncate(file, new_size)
        })?;
        self.shift(cred, file, Way::Up, offset..size, len)
    }

    /// Moves `bytes` by `len` bytes, over a hole of this length, and leaves a hole behind.
    fn shift(
        &self,
        cred: &Cred,
        file: Cachelet,
        way: Way,
        bytes: Range<u64>,
        len: u64,
    ) -> Result<()> {
        let distance = len / BLOCK_BYTES;
        let (mut first, mut end) = (bytes.start / BLOCK_BYTES, bytes.end.div_ceil(BLOCK_BYTES));
        while first < end {
            let window = match way {
                Way::Down => first..end.min(first + WINDOW),
                Way::Up => first.max(end.saturating_sub(WINDOW))..end,
            };
            let run = self.files().run(file, way, window, distance)?;
            let to = match way {
                Way::Down => run.blocks.start - distance,
                Way::Up => run.blocks.start + distance,
            };
            self.change_file(cred, |files| {
                files.under_lease().move_run(file, &run, to, bytes.end)
            })?;
            match way {
                Way::Down => first = run.blocks.end,
                Way::Up => end = run.blocks.start,
            }
        }
        Ok(())
    }
}

impl<M: Memories> Files<'_, M> {
    /// The blocks of `window` that move next: those of one kind, of written and unwritten ones at
    /// most `most`.
    fn run(&self, file: Cachelet, way: Way, window: Range<u64>, most: u64) -> Result<Run> {
        let op = self.core.op_begin()?;
        let mut found = [Found::Hole; WINDOW as usize];
        let found = &mut found[..(window.end - window.start) as usize];
        self.look_up(&op, file, window.start, found)?;
        if found.contains(&Found::Hole) {
            op.check_hole()?;
        }
        op.check_media()?;
        if way == Way::Up {
            found.reverse();
        }
        let kind = found[0];
        let alike = found.iter().take_while(|found| is_alike(**found, kind));
        let count = match kind {
            Found::Hole => alike.count() as u64,
            _ => most.min(alike.count() as u64),
        };
        let blocks = match way {
            Way::Down => window.start..window.start + count,
            Way::Up => window.end - count..window.end,
        };
        Ok(Run { blocks, kind })
    }

    /// Moves a run to block `to`, where there is a hole, and leaves a hole. Bytes from `end` on are
    /// not of the file. Can be repeated if space was lacking.
    fn move_run(&self, file: Cachelet, run: &Run, to: u64, end: u64) -> Result<()> {
        let Run { blocks, kind } = run;
        let (from, behind) = (blocks.start * BLOCK_BYTES, blocks.end * BLOCK_BYTES);
        match kind {
            Found::Hole => return Ok(()),
            Found::Unwritten(_) => {
                let to = to..to + (blocks.end - blocks.start);
                self.with_room(|| self.allocate_piece(file, to.start, to.end))?;
            }
            Found::Mapped(_) => {
                let mut bytes = vec![0; (behind.min(end) - from) as usize];
                let translation = Translation::new(true);
                let len = self.read_at(file, &translation, None, from, &mut bytes)?;
                self.write_at(file, &translation, to * BLOCK_BYTES, &bytes[..len])?;
            }
        }
        self.punch(file, from, behind)
    }
}

fn is_alike(one: Found, other: Found) -> bool {
    std::mem::discriminant(&one) == std::mem::discriminant(&other)
}

/// Checks that a range consists of whole blocks, and returns its end.
fn check_aligned(offset: u64, len: u64) -> Result<u64> {
    let end = check_range(offset, len)?;
    match offset.is_multiple_of(BLOCK_BYTES) && len.is_multiple_of(BLOCK_BYTES) {
        true => Ok(end),
        false => Err(Error::Invalid("a range that is not of whole blocks")),
    }
}
