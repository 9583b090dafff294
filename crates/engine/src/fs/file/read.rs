//! Reading.

use vellum_layout::{BLOCK_BYTES, FileKind, MapRoot, RUN_BLOCKS};
use vellum_media::{FileBytes, Memories, Memory};

use super::read_path::{Path, ReadPaths};
use super::translation::Seen;
use super::{Files, Translation};
use crate::core::cachelet::{Cachelet, field};
use crate::core::slots::{Op, pause};
use crate::devices::data;
use crate::error::Result;
use crate::mapping::{Found, MapId};
use crate::reading::pages_of;

/// Number of blocks that large reads look up together.
pub(super) const LOOKUP_BLOCKS: usize = 64;
/// The same for reads in which each run is a call and a request to the disk.
const CALL_BLOCKS: usize = 256;

impl<M: Memories> Files<'_, M> {
    /// Reads from `offset`. Returns the number of bytes, which is less than requested only at the
    /// end of file. With `paths`, uses the path that pays.
    pub(crate) fn read_at(
        &self,
        cachelet: Cachelet,
        translation: &Translation,
        paths: Option<ReadPaths<'_>>,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            let op = self.core.op_begin()?;
            let copied = self.copy_stable(&op, cachelet, translation, paths, offset, out);
            let len = self.core.noting(copied)?;
            // A read at the end of file counts as a read.
            if !translation.is_noatime() {
                self.core.touch(cachelet, FileKind::File);
            }
            match op.check_media() {
                Ok(()) => return Ok(len),
                // Bytes were lost meanwhile. The next attempt knows which.
                Err(_) if op.is_unsure() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Copies bytes under one version of the mapping. Returns their number.
    fn copy_stable(
        &self,
        op: &Op<'_, M>,
        cachelet: Cachelet,
        translation: &Translation,
        paths: Option<ReadPaths<'_>>,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize> {
        // After bytes were lost only the pool's own mapping shows which.
        let path = match paths.filter(|_| op.is_whole()) {
            Some(paths) => self.path(op, paths, cachelet, pages_of(offset, out.len() as u64)),
            None => Path::Search,
        };
        let mut tries = 0;
        loop {
            // The version is loaded first: a size loaded after it is of that version or a later
            // one.
            let version = self.core.get(cachelet, field::VERSION);
            let size = self.core.get(cachelet, field::SIZE);
            let len = size.saturating_sub(offset).min(out.len() as u64) as usize;
            let file = Seen {
                cachelet,
                translation,
                version,
            };
            if len > 0 {
                self.copy_by(op, file, path, offset, &mut out[..len])?;
            }
            self.core.arena.load_barrier();
            if self.core.get(cachelet, field::VERSION) == version {
                return Ok(len);
            }
            pause(&self.core.arena, &mut tries);
        }
    }

    /// Copies by search.
    pub(super) fn copy_out(
        &self,
        op: &Op<'_, M>,
        file: Seen<'_>,
        offset: u64,
        out: &mut [u8],
    ) -> Result<()> {
        match self.core.pool.pays_by_call(out.len()) {
            false => {
                self.read_ahead(op, file.cachelet, offset, out.len());
                self.copy_found::<LOOKUP_BLOCKS>(op, file, offset, out)
            }
            true => self.copy_found::<CALL_BLOCKS>(op, file, offset, out),
        }
    }

    /// Looks up to `BLOCKS` blocks up and copies them, until everything is copied.
    fn copy_found<const BLOCKS: usize>(
        &self,
        op: &Op<'_, M>,
        file: Seen<'_>,
        offset: u64,
        out: &mut [u8],
    ) -> Result<()> {
        let Some((_, id)) = MapRoot(self.core.get(file.cachelet, field::ROOT)).get() else {
            out.fill(0);
            return Ok(());
        };
        let mut first = offset / BLOCK_BYTES;
        let mut skip = offset % BLOCK_BYTES;
        let mut rest = out;
        while !rest.is_empty() {
            let blocks = (skip + rest.len() as u64).div_ceil(BLOCK_BYTES);
            let mut found = [Found::Hole; BLOCKS];
            let found = &mut found[..blocks.min(BLOCKS as u64) as usize];
            if !file.translation.is_about(first / RUN_BLOCKS) {
                self.mapping.prefetch(self.core, id, first as u32, skip);
            }
            self.find(op, id, file, first, found)?;
            if found.contains(&Found::Hole) {
                op.check_hole()?;
            }
            let bytes = found.len() as u64 * BLOCK_BYTES - skip;
            let (now, later) = rest.split_at_mut(rest.len().min(bytes as usize));
            data::read(self.core, self.mapping, found, skip, now);
            first += found.len() as u64;
            skip = 0;
            rest = later;
        }
        Ok(())
    }

    /// Returns what blocks from `first` on map to: from the handle's translations if they lie in
    /// one run, else from the mapping.
    #[inline]
    pub(super) fn find(
        &self,
        op: &Op<'_, M>,
        id: MapId,
        file: Seen<'_>,
        first: u64,
        found: &mut [Found],
    ) -> Result<()> {
        let Seen {
            translation,
            version,
            ..
        } = file;
        let run = first / RUN_BLOCKS;
        let place = (first % RUN_BLOCKS) as usize;
        if place + found.len() > RUN_BLOCKS as usize {
            self.mapping.lookup(op, id, first as u32, found)?;
        } else if translation.get(version, run, place, found) {
        } else if translation.wants(run, place) {
            let mut whole = [Found::Hole; RUN_BLOCKS as usize];
            self.mapping
                .lookup(op, id, (run * RUN_BLOCKS) as u32, &mut whole)?;
            found.copy_from_slice(&whole[place..place + found.len()]);
            translation.keep(version, run, &whole);
        } else {
            self.mapping.lookup(op, id, first as u32, found)?;
        }
        Ok(())
    }
}
