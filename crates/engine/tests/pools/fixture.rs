//! Pools in memory with external data, and pools full of files.

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

/// The size of the files of full pools.
pub(crate) const FILE_BYTES: u64 = 1 << 20;

/// The bytes of a file, whole blocks, none of them zero.
pub(crate) fn bytes_of(file: u64, bytes: u64) -> Vec<u8> {
    let block = |number: u64| vec![(file * 7 + number * 31) as u8 | 1; 4096];
    (0..bytes / 4096).flat_map(block).collect()
}

/// Writes files until there is no space. Returns their number.
pub(crate) fn fill(pool: &Pool, from: u64) -> u64 {
    let volume = pool.volume();
    let mut files = from;
    loop {
        match volume.write(format!("/{files}"), bytes_of(files, FILE_BYTES)) {
            Ok(()) => files += 1,
            Err(error) => {
                assert!(matches!(error, Error::NoSpace(_)), "{error}");
                volume.remove_file(format!("/{files}")).unwrap();
                return files;
            }
        }
    }
}

#[track_caller]
pub(crate) fn has_files(pool: &Pool, files: u64) {
    for file in 0..files {
        let read = pool.volume().read(format!("/{file}")).unwrap();
        assert!(read == bytes_of(file, FILE_BYTES), "file {file}");
    }
}
