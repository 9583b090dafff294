//! Logged pools whose blocks of files go through the kernel's page cache.

use std::fs;
use vellum_media::{
    FileBytes, ImageMemory, MappedPool, MediaChoice, Memory, Persistent, Site, Split,
};

const POOL_BYTES: u64 = 16 << 20;
/// Offset of the blocks of files.
const DATA_AT: u64 = 1 << 20;
/// Reads of at least this many bytes use a call.
const LARGE: usize = 64 << 10;

fn made(media: MediaChoice) -> (MappedPool, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let pool = MappedPool::create(&dir.path().join("pool"), POOL_BYTES, media).unwrap();
    (pool, dir)
}

/// Bytes that this thread has read by calls.
fn called() -> u64 {
    let counts = fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}

#[test]
fn long_reads_use_calls_and_short_ones_the_mapping() {
    let (pool, _dir) = made(MediaChoice::Logged);
    let split = Split {
        image_bytes: DATA_AT / 2,
        data_at: DATA_AT,
        is_external: false,
    };
    pool.begin_image(split, None).unwrap();
    let bytes: Vec<u8> = (0..POOL_BYTES - DATA_AT)
        .map(|at| (at % 251) as u8)
        .collect();
    for (number, piece) in bytes.chunks(2 * LARGE + 7).enumerate() {
        let at = DATA_AT + (number * (2 * LARGE + 7)) as u64;
        pool.write_through(Site::UNNAMED, at, piece);
    }
    for len in [LARGE - 1, LARGE, 1 << 20, (8 << 20) + 5] {
        assert_eq!(pool.pays_by_call(len), len >= LARGE);
        for skip in [0, 1, 4096, 12345, bytes.len() - len] {
            let mut out = vec![0x55; len];
            let before = called();
            pool.read(DATA_AT + skip as u64, &mut out);
            let by_call = called() - before;
            assert!(out == bytes[skip..][..len], "{len} bytes at {skip}");
            assert_eq!(by_call >= len as u64, len >= LARGE, "{len}: {by_call}");
        }
    }
    // The image is in memory, and not in the file.
    pool.write(DATA_AT / 4, &[7; LARGE]);
    let mut image = vec![0; LARGE];
    pool.read(DATA_AT / 4, &mut image);
    assert!(image == [7; LARGE]);
}

#[test]
fn pools_in_memory_are_read_in_place() {
    for media in [MediaChoice::File, MediaChoice::Memory] {
        let (pool, _dir) = made(media);
        assert!(!pool.pays_by_call(1 << 20), "{media:?}");
    }
}
