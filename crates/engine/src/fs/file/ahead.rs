//! Reading ahead, for small requests whose bytes lie on a disk.
//!
//! Such requests go through the pool's mapping, for which the kernel reads single pages: the
//! neighbours of a page belong to other files, and the kernel does not know what comes next in this
//! one. So a file is divided into stretches. A read of the beginning of a stretch that seems to
//! continue from the one before makes the disk begin with the stretches that follow. No state about
//! readers is kept: if the block before is in memory, somebody read it.

use vellum_layout::{BLOCK_BYTES, MapRoot};
use vellum_media::{FileBytes, Memories};

use super::Files;
use super::read_path::runs_of;
use crate::core::cachelet::{Cachelet, field};
use crate::core::slots::Op;
use crate::mapping::{Found, MapId};

const STRETCH_BLOCKS: u64 = 64;
const STRETCH_BYTES: u64 = STRETCH_BLOCKS * BLOCK_BYTES;
/// Stretches that the disk is ahead of the reader: 1 MiB.
const AHEAD: u64 = 4;

impl<M: Memories> Files<'_, M> {
    /// Makes the disk begin with the bytes that follow these `len` bytes of a file, if the file is
    /// read in order.
    #[inline]
    pub(super) fn read_ahead(&self, op: &Op<'_, M>, cachelet: Cachelet, offset: u64, len: usize) {
        let begin = offset.next_multiple_of(STRETCH_BYTES);
        if begin - offset < len as u64 && self.core.pool.reads_singly() {
            self.read_stretches_ahead(op, cachelet, begin / STRETCH_BYTES);
        }
    }

    /// As [`Self::read_ahead`], for a read that reaches the beginning of a stretch.
    #[cold]
    fn read_stretches_ahead(&self, op: &Op<'_, M>, cachelet: Cachelet, stretch: u64) {
        let Some((_, id)) = MapRoot(self.core.get(cachelet, field::ROOT)).get() else {
            return;
        };
        if stretch == 0 {
            // A reader of the beginning of a long file may want nothing else.
            self.ask_for_stretch(op, id, 0);
        } else if self.has_in_memory(op, id, stretch * STRETCH_BLOCKS - 1) {
            let has_begun = self.has_in_memory(op, id, stretch * STRETCH_BLOCKS);
            let first = if has_begun { stretch + AHEAD } else { stretch };
            let end = (self.core.get(cachelet, field::SIZE)).div_ceil(STRETCH_BYTES);
            (first..=stretch + AHEAD)
                .take_while(|&stretch| stretch < end)
                .for_each(|stretch| self.ask_for_stretch(op, id, stretch));
        }
    }

    fn has_in_memory(&self, op: &Op<'_, M>, id: MapId, block: u64) -> bool {
        let mut found = [Found::Hole];
        let answer = self.mapping.lookup(op, id, block as u32, &mut found);
        let at = self.place_of(found[0]);
        answer.is_ok() && at != 0 && self.core.pool.is_in_memory(at)
    }

    fn ask_for_stretch(&self, op: &Op<'_, M>, id: MapId, stretch: u64) {
        let mut found = [Found::Hole; STRETCH_BLOCKS as usize];
        let first = (stretch * STRETCH_BLOCKS) as u32;
        // The read's own search reports errors.
        let _ = self.mapping.lookup(op, id, first, &mut found);
        for run in runs_of(&found.map(|found| self.place_of(found)), |_| false) {
            self.core.pool.will_need(run.at, run.blocks * BLOCK_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use vellum_media::{ImageMemory, MediaChoice, Real};

    use super::*;
    use crate::{CreateOptions, File, Fs, MappingKind, Pool};

    const STRETCHES: u64 = 8;

    /// A pool with a file that is not in memory. The directory for temporary files has to lie on a
    /// disk.
    fn cold(dir: &tempfile::TempDir) -> (Pool, File) {
        let path = dir.path().join("pool");
        let options = CreateOptions {
            media: MediaChoice::Logged,
            mapping: Some(MappingKind::Extent),
            ..CreateOptions::new(16 << 20)
        };
        let pool = options.create(&path).unwrap();
        let bytes = vec![7; (STRETCHES * STRETCH_BYTES) as usize];
        pool.volume().write("/f", &bytes).unwrap();
        pool.close().unwrap();
        let pool = Pool::open(&path).unwrap();
        let file = pool.volume().open("/f").unwrap();
        let core = &pool.fs().core;
        let segment = (core.geometry.data_at, core.geometry.data_bytes());
        core.pool.disk().unwrap().forget(segment.0, segment.1);
        (pool, file)
    }

    fn is_there(fs: &Fs<Real>, file: &File, block: u64) -> bool {
        let cachelet = file.handle().node().cachelet;
        let (_, id) = MapRoot(fs.core.get(cachelet, field::ROOT)).get().unwrap();
        fs.files()
            .has_in_memory(&fs.core.op_begin().unwrap(), id, block)
    }

    fn read(file: &File, block: u64) {
        let mut page = [0; BLOCK_BYTES as usize];
        file.read_at(&mut page, block * BLOCK_BYTES).unwrap();
        assert_eq!(page, [7; BLOCK_BYTES as usize]);
    }

    #[test]
    fn a_sequential_reader_finds_the_next_stretch_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let (pool, file) = cold(&dir);
        let fs = pool.fs();
        (0..=STRETCH_BLOCKS).for_each(|block| read(&file, block));
        let begin = Instant::now();
        let ahead = 1 + AHEAD;
        while !is_there(&fs, &file, (ahead + 1) * STRETCH_BLOCKS - 1) {
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "the stretch was not read ahead"
            );
            std::thread::yield_now();
        }
        let behind = (ahead + 1) * STRETCH_BLOCKS;
        assert!(!is_there(&fs, &file, behind), "read ahead too far");
        // From there on each stretch causes one more.
        (0..STRETCH_BLOCKS).for_each(|block| read(&file, STRETCH_BLOCKS + block));
        assert!(!is_there(&fs, &file, behind), "read ahead too early");
        read(&file, 2 * STRETCH_BLOCKS);
        while !is_there(&fs, &file, behind + STRETCH_BLOCKS - 1) {
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "the stretch was not read ahead"
            );
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_random_reader_causes_no_read_ahead() {
        let dir = tempfile::tempdir().unwrap();
        let (pool, file) = cold(&dir);
        let fs = pool.fs();
        // One is the beginning of a stretch: the block before it was not read.
        let wanted = [3 * STRETCH_BLOCKS + 5, 5 * STRETCH_BLOCKS];
        for block in wanted {
            read(&file, block);
            assert!(is_there(&fs, &file, block));
        }
        let others = (0..STRETCHES * STRETCH_BLOCKS).filter(|block| !wanted.contains(block));
        let read = others.filter(|&block| is_there(&fs, &file, block));
        assert_eq!(read.collect::<Vec<_>>(), []);
    }
}
