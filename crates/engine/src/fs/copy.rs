//! Copying a pool while it is in use.
//!
//! Changes wait for an instant in which nothing runs: the copy is of that instant. From then on
//! whoever changes a block that is still to be copied keeps its old bytes first
//! ([`Preserver`]), and everything goes on while the blocks are copied one after the other. So
//! the copy is what a kill at that instant would have left, and recovery handles it like one.
//!
//! Nothing is stored into the pool.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use vellum_layout::{
    Anchor, AnchorPoint, BLOCK_BYTES, Geometry, MapState, MapWord, Superblock, TablePlan,
};
use vellum_media::{GROUP_BLOCKS, Medium, Memories, NewFile, Preserver, Real, mix, read_whole};
use zerocopy::IntoBytes;

use super::Fs;
use crate::core::Core;
use crate::core::background::Lease;
use crate::error::{CopyError, Error, Result};
use crate::logs::redo::{chunks_in_use, outside_chunks};

/// What is copied of a pool.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// use vellum::CopyScope;
///
/// let file = tempfile::tempfile()?;
/// pool.fs().copy_into(CopyScope::Metadata, &file, &|_, _| true)?;
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyScope {
    /// Everything: the copy is a pool, a sparse one without further datasets.
    Whole,
    /// The metadata, for a check. Blocks of files are holes, and copies of the superblock are as
    /// they were found.
    Metadata,
}

/// The result of copying a pool.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let pool = vellum::Pool::memory(16 << 20)?;
/// let copied: vellum::Copied = pool.fs().snapshot(dir.path().join("copy"), &|_, _| {})?;
/// assert!(copied.bytes < copied.pool_bytes);
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Copied {
    /// Bytes of the pool.
    pub pool_bytes: u64,
    /// Bytes that were written to the copy; the others are holes.
    pub bytes: u64,
    /// How long changes waited.
    pub paused: Duration,
    /// The offsets of blocks of metadata that could not be read, if only the metadata were copied.
    pub unreadable: Vec<u64>,
}

impl<M: Memories> Fs<M> {
    /// Copies the pool into an empty file, as it is at one instant: with everything that was done
    /// before, and nothing that is done later. Other operations go on meanwhile. `go_on` is called
    /// with the number of bytes of the pool that are done, and of all; if it returns false, this
    /// ends. The copy is not synced.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("copy");
    /// use vellum::{CopyScope, Pool};
    ///
    /// let pool = Pool::memory(16 << 20)?;
    /// pool.volume().write("/f", "as it was")?;
    /// let file = std::fs::File::create_new(&path)?;
    /// pool.fs().copy_into(CopyScope::Whole, &file, &|_, _| true)?;
    /// pool.volume().write("/f", "as it is")?;
    /// assert_eq!(Pool::open(&path)?.volume().read("/f")?, b"as it was");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Copy`], or [`Error::Unreadable`] if a block of a whole copy cannot be read, or
    /// [`Error::Closed`] if the pool is closed meanwhile.
    pub fn copy_into(
        &self,
        scope: CopyScope,
        target: &File,
        go_on: &dyn Fn(u64, u64) -> bool,
    ) -> Result<Copied> {
        let copy = Copy::begin(self, scope)?;
        copy.into_file(target, go_on)
    }
}

impl Fs<Real> {
    /// Copies the pool to a new file, as it is at one instant, while other operations go on. Free
    /// blocks, and those of zeros, are holes of the file. It gets its name when it is complete and
    /// durable. `tell` is called with the number of bytes of the pool that are done, and of all.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("copy");
    /// let pool = vellum::Pool::memory(16 << 20)?;
    /// pool.volume().write("/f", "text")?;
    /// let copied = pool.fs().snapshot(&path, &|done, all| println!("{done} of {all}"))?;
    /// println!("changes waited {:?}", copied.paused);
    /// assert_eq!(vellum::Pool::open(&path)?.volume().read("/f")?, b"text");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`copy_into`](Self::copy_into), and if the file exists or cannot be created. No file is
    /// left then.
    pub fn snapshot(&self, path: impl AsRef<Path>, tell: &dyn Fn(u64, u64)) -> Result<Copied> {
        let file = NewFile::create(path.as_ref()).map_err(CopyError::Target)?;
        let copied = self.copy_into(CopyScope::Whole, file.file(), &|done, all| {
            tell(done, all);
            true
        })?;
        file.finish().map_err(CopyError::Target)?;
        Ok(copied)
    }
}

/// A copy that has begun. Its instant is over.
struct Copy<'a, M: Memories> {
    core: &'a Core<M>,
    scope: CopyScope,
    preserver: Arc<Preserver>,
    /// The superblock and, in mappings with home lines, the table of blocks at the copy's instant.
    superblock: Superblock,
    table: TablePlan,
    paused: Duration,
}

impl<M: Memories> Drop for Copy<'_, M> {
    fn drop(&mut self) {
        self.core.pool.end_preserving();
        self.preserver.give_up();
    }
}

impl<'a, M: Memories> Copy<'a, M> {
    /// Lets changes wait, and notes which blocks the copy needs.
    fn begin(fs: &'a Fs<M>, scope: CopyScope) -> Result<Self> {
        let core = &fs.core;
        // The superblock does not change meanwhile.
        let _growth = fs.growth.lock().unwrap_or_else(PoisonError::into_inner);
        let superblock = fs.superblock();
        let geometry = superblock.geometry();
        if scope == CopyScope::Whole && geometry.external.is_some() {
            return Err(CopyError::ExternalData.into());
        }
        let preserver = Arc::new(Preserver::new(superblock.pool_bytes));
        let data = geometry.data_at / BLOCK_BYTES;
        let has_table = geometry.mapping.has_home_lines();
        if scope == CopyScope::Whole && has_table {
            // Only the table tells which blocks are in use. All are needed until their part of it
            // is copied.
            preserver.need(data..data + geometry.blocks());
        }
        let _lease = Lease::take_to_work(core)?;
        let began = Instant::now();
        let pause = core.pause_changes();
        if !core.pool.preserve(&preserver) {
            return Err(CopyError::Running.into());
        }
        let mut copy = Self {
            core,
            scope,
            preserver,
            superblock,
            table: TablePlan::of(&geometry, |at| core.word(at)),
            paused: Duration::ZERO,
        };
        copy.need_metadata(&geometry);
        if scope == CopyScope::Whole && !has_table {
            copy.need_used(fs, (data, geometry.blocks()));
        }
        drop(pause);
        copy.paused = began.elapsed();
        Ok(copy)
    }

    fn need_metadata(&self, geometry: &Geometry) {
        let need = |(at, len): (u64, u64)| {
            let blocks = at / BLOCK_BYTES..(at + len).div_ceil(BLOCK_BYTES);
            self.preserver.need(blocks);
        };
        outside_chunks(geometry).into_iter().for_each(need);
        chunks_in_use(&self.core.pool, geometry).for_each(need);
        need((geometry.last_copy_at, BLOCK_BYTES));
        if geometry.has_undo() {
            // The records are left out: the metadata are copied as they are.
            need((geometry.undo_at, BLOCK_BYTES));
        }
    }

    /// Notes which blocks of files are in use. The first of `blocks` is block `first` of the pool.
    fn need_used(&self, fs: &Fs<M>, (first, blocks): (u64, u64)) {
        for group in (0..blocks).step_by(GROUP_BLOCKS as usize) {
            let used = !fs.mapping.free_blocks(self.core, group);
            let end = (blocks - group).min(GROUP_BLOCKS);
            let mut at = 0;
            while at < end && used >> at != 0 {
                at += u64::from((used >> at).trailing_zeros());
                let run = at..(at + u64::from((used >> at).trailing_ones())).min(end);
                at = run.end;
                let block = first + group;
                self.preserver.need(block + run.start..block + run.end);
            }
        }
    }

    /// Copies all blocks, and what makes the copy a pool.
    fn into_file(self, target: &File, go_on: &dyn Fn(u64, u64) -> bool) -> Result<Copied> {
        let geometry = self.superblock.geometry();
        let pool_bytes = self.superblock.pool_bytes;
        let end = pool_bytes.max(geometry.data_at + geometry.data_bytes());
        target.set_len(end).map_err(CopyError::Target)?;
        let mut out = Output {
            copy: &self,
            target,
            bytes: 0,
            unreadable: Vec::new(),
        };
        for group in 0..self.preserver.group_count() {
            if out.take_group(group)? {
                let done = ((group + 1) * GROUP_BLOCKS * BLOCK_BYTES).min(pool_bytes);
                self.check(go_on(done, pool_bytes))?;
            }
        }
        out.take_kept()?;
        self.check(true)?;
        out.finish(&geometry)?;
        Ok(Copied {
            pool_bytes,
            bytes: out.bytes,
            paused: self.paused,
            unreadable: out.unreadable,
        })
    }

    /// Fails if what was copied since the last call may be of a later instant.
    fn check(&self, is_wanted: bool) -> Result<()> {
        self.core.check_use()?;
        match (self.preserver.is_given_up(), is_wanted) {
            (true, _) => Err(CopyError::TooSlow.into()),
            (_, false) => Err(CopyError::Stopped.into()),
            (false, true) => Ok(()),
        }
    }
}

/// Where a copy goes.
struct Output<'c, 'a, M: Memories> {
    copy: &'c Copy<'a, M>,
    target: &'c File,
    bytes: u64,
    unreadable: Vec<u64>,
}

impl<M: Memories> Output<'_, '_, M> {
    /// Copies a group of blocks, and what writers have kept. Returns whether there was anything.
    fn take_group(&mut self, group: u64) -> Result<bool> {
        let pool = &self.copy.core.pool;
        let mut runs: Vec<(u64, Vec<u8>, bool)> = Vec::new();
        self.copy.preserver.take_group(group, |run: Range<u64>| {
            let mut bytes = vec![0; ((run.end - run.start) * BLOCK_BYTES) as usize];
            let at = run.start * BLOCK_BYTES;
            let is_whole = read_whole(pool, at, &mut bytes);
            runs.push((at, bytes, is_whole));
        });
        let has_kept = self.take_kept()?;
        for (at, bytes, is_whole) in &runs {
            self.put(*at, bytes, *is_whole)?;
        }
        Ok(has_kept || !runs.is_empty())
    }

    fn take_kept(&mut self) -> Result<bool> {
        let kept = self.copy.preserver.take_kept();
        for block in &kept {
            self.put(block.at, &block.bytes[..], block.is_whole)?;
        }
        Ok(!kept.is_empty())
    }

    /// Writes blocks, unless the copy has others in their place, or they are zero.
    fn put(&mut self, at: u64, bytes: &[u8], is_whole: bool) -> Result<()> {
        if !is_whole {
            return self.put_unreadable(at, bytes);
        }
        self.spare_unused(at, bytes);
        let mut run = 0..0;
        for (number, block) in bytes.chunks(BLOCK_BYTES as usize).enumerate() {
            let block_at = at + number as u64 * BLOCK_BYTES;
            if self.has_others(block_at) || block.iter().all(|&byte| byte == 0) {
                continue;
            }
            let start = number * BLOCK_BYTES as usize;
            if run.end != start {
                self.write(at, bytes, run)?;
                run = start..start;
            }
            run.end = start + block.len();
        }
        self.write(at, bytes, run)
    }

    fn write(&mut self, at: u64, bytes: &[u8], run: Range<usize>) -> Result<()> {
        let to = at + run.start as u64;
        self.bytes += run.len() as u64;
        let written = self.target.write_all_at(&bytes[run], to);
        Ok(written.map_err(CopyError::Target)?)
    }

    /// Whether the copy gets another block here: copies of the superblock are written last, so that
    /// half a copy is no pool.
    fn has_others(&self, at: u64) -> bool {
        let last = self.copy.superblock.last_copy_at;
        self.copy.scope == CopyScope::Whole && [0, BLOCK_BYTES, last].contains(&at)
    }

    /// Blocks that are free by this part of the table need not be copied, nor unwritten ones, which
    /// read as zeros. Who holds a block in limbo the table does not tell.
    fn spare_unused(&self, at: u64, bytes: &[u8]) {
        if self.copy.scope == CopyScope::Metadata || at >= self.copy.core.geometry.data_at {
            return;
        }
        let first = self.copy.core.geometry.data_at / BLOCK_BYTES;
        for block in self.copy.table.blocks_in(at, bytes.len() as u64) {
            let word_at = self.copy.table.word_at(block).unwrap_or(at) - at;
            let word = bytes[word_at as usize..].first_chunk::<8>();
            let word = MapWord(word.map_or(0, |word| u64::from_le_bytes(*word)));
            if matches!(word.state(), MapState::Free | MapState::Unwritten) {
                self.copy.preserver.spare(first + block);
            }
        }
    }

    /// Finds the blocks that cannot be read, and writes the others.
    fn put_unreadable(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        for (number, block) in bytes.chunks(BLOCK_BYTES as usize).enumerate() {
            let at = at + number as u64 * BLOCK_BYTES;
            // Lost bytes stay lost, so this tells whether it was this block. Those of a readable
            // one are in `block`: it may have changed since.
            if read_whole(&self.copy.core.pool, at, &mut [0; BLOCK_BYTES as usize]) {
                self.put(at, block, true)?;
            } else if self.copy.scope == CopyScope::Metadata {
                self.unreadable.push(at);
            } else {
                return Err(Error::Unreadable(self.copy.core.place_of(at)));
            }
        }
        Ok(())
    }

    /// Writes what the copy has of its own: an empty log, and the superblock.
    fn finish(&mut self, geometry: &Geometry) -> Result<()> {
        let superblock = &self.copy.superblock;
        if geometry.is_logged() {
            let salt = mix(superblock.hash_seed ^ self.copy.core.clock.now() as u64);
            let anchor = Anchor::new(superblock.uuid, salt, AnchorPoint::first(0)).without_sum();
            self.write(
                geometry.log_at,
                anchor.as_bytes(),
                0..anchor.as_bytes().len(),
            )?;
        }
        if self.copy.scope == CopyScope::Whole {
            let own = superblock.without_datasets().sparse();
            for at in [superblock.last_copy_at, BLOCK_BYTES, 0] {
                self.write(at, own.as_bytes(), 0..BLOCK_BYTES as usize)?;
            }
        }
        Ok(())
    }
}
