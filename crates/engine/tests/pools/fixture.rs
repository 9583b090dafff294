//! Pools in memory whose data lie on another file.

use std::path::{Path, PathBuf};

use vellum::media::MediaChoice;
use vellum::{CreateOptions, DataOptions, Error, MappingKind, Pool, PoolOptions};

pub(crate) const DATA_BYTES: u64 = 16 << 20;

pub(crate) fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

pub(crate) fn options(data: PathBuf) -> CreateOptions {
    CreateOptions {
        media: MediaChoice::Memory,
        mapping: MappingKind::Extent,
        data: Some(DataOptions {
            path: data,
            size_bytes: DATA_BYTES,
            overwrite: false,
        }),
        ..CreateOptions::new(0)
    }
}

/// A pool in a directory in memory, with its data beside it.
pub(crate) fn made(dir: &Path) -> (PathBuf, Pool) {
    let path = dir.join("pool");
    let pool = Pool::create(&path, &options(dir.join("data"))).unwrap();
    (path, pool)
}

pub(crate) fn open(path: &Path) -> Result<Pool, Error> {
    Pool::open(path, &PoolOptions::default())
}
