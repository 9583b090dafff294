//! The DRAM of cached files, in a pool with as many files as its caches are designed for.
//!
//! What counts is what a file adds: memory in use with every file in the cache, minus that of the
//! same pool when it was opened and not used. The arena is mapped for large pages, which would
//! round up to 2 MiB wherever it is touched. This measurement disables them, so that its pages have
//! 4 KiB.

use std::path::Path;

use super::budget::CACHE_BYTES_PER_FILE;
use super::report::CacheReport;
use crate::Result;
use crate::error::expect;
use crate::library::Library;
use crate::memory::SmallPages;
use crate::order::names;
use crate::side::Side;

/// Metadata slots of a file: an inode and an entry, each of 128 bytes.
const METADATA_BYTES_PER_FILE: u64 = 2 * 128;
/// Bytes of the pool per byte of metadata.
const POOL_PER_METADATA: u64 = 16;
/// The fraction of the metadata that files fill.
const FULL: (u64, u64) = (3, 4);
/// The number of directories; each holds as many files as those of the other measurements.
const DIRECTORIES: usize = 10;

/// The method, for readers of the result.
const NOTE: &str = "bytes per file: (memory in use with every file in the cache - the same before \
    the first file was used) / files, in pages of 4 KiB; ordinary runs have the arena in pages of \
    2 MiB where the kernel has them, which rounds up its total size";

/// Fills a pool with files, reopens it, visits every file, and measures the memory in use.
pub(crate) fn measure(dir: &Path, files: usize) -> Result<CacheReport> {
    let _small = SmallPages::only()?;
    let total = (DIRECTORIES * files) as u64;
    let metadata = total * METADATA_BYTES_PER_FILE * FULL.1 / FULL.0;
    let pool_bytes = (metadata * POOL_PER_METADATA).next_multiple_of(16 << 20);
    let mut library = Library::create(dir.join("cache"), pool_bytes.max(64 << 20), false)?;
    let names = names("file-", files);
    let directories: Vec<String> = (0..DIRECTORIES).map(|n| format!("cache-{n}")).collect();
    for path in &directories {
        library.make_dir(path)?;
        let dir = library.dir(path)?;
        for name in &names {
            library.create(&dir, name)?;
        }
    }
    library.close()?;
    let without = Library::resident_bytes()?;
    library.reopen()?;
    let fixed_bytes = Library::resident_bytes()?.saturating_sub(without);
    for path in &directories {
        let dir = library.dir(path)?;
        for name in &names {
            library.stat(&dir, name)?;
        }
    }
    let usage = library.fs().cache_usage();
    expect("every file is cached", usage.cachelets >= total, true)?;
    let resident_bytes = Library::resident_bytes()?.saturating_sub(without);
    let added = resident_bytes.saturating_sub(fixed_bytes);
    let per_file = added as f64 / usage.cachelets as f64;
    Ok(CacheReport {
        files: usage.cachelets,
        index_entries: usage.index_entries,
        index_buckets: usage.index_buckets,
        arena_bytes: usage.arena_bytes,
        fixed_resident_bytes: fixed_bytes,
        resident_bytes,
        dram_bytes_per_file: (per_file * 10.0).round() / 10.0,
        budget_bytes_per_file: CACHE_BYTES_PER_FILE,
        missed: per_file > CACHE_BYTES_PER_FILE,
        note: NOTE.into(),
    })
}
