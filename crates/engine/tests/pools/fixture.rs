//! Pools in memory with external data.

use std::path::{Path, PathBuf};

use vellum::media::MediaChoice;
use vellum::{CreateOptions, DataOptions, Error, MappingKind, Pool};

pub(crate) const DATA_BYTES: u64 = 16 << 20;

pub(crate) fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

pub(crate) fn options(data: PathBuf) -> CreateOptions {
    CreateOptions::new(0)
        .media(MediaChoice::Memory)
        .mapping(MappingKind::Extent)
        .data(Some(DataOptions::new(data).size_bytes(DATA_BYTES)))
}

/// A pool in a directory in memory, with its data in another file there.
pub(crate) fn made(dir: &Path) -> (PathBuf, Pool) {
    let path = dir.join("pool");
    let pool = options(dir.join("data")).create(&path).unwrap();
    (path, pool)
}

pub(crate) fn open(path: &Path) -> Result<Pool, Error> {
    Pool::open(path)
}
