//! One open file, used by several threads.

use std::io::{Read, Seek, SeekFrom, Write};

use vellum::{File, OpenOptions, Pool};

const THREADS: u32 = 4;
/// Calls of each thread.
const CALLS: u32 = 5000;
const RECORD_BYTES: usize = 16;
const ALL_BYTES: usize = (THREADS * CALLS) as usize * RECORD_BYTES;

fn pool() -> Pool {
    Pool::memory(16 << 20).unwrap()
}

/// A record filled with its number.
fn record(number: u32) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    for word in record.chunks_exact_mut(4) {
        word.copy_from_slice(&number.to_le_bytes());
    }
    record
}

/// Makes every thread do its calls. `call` gets their numbers among all calls.
fn by_all(file: &File, call: impl Fn(&File, u32) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let call = &call;
            scope.spawn(move || (0..CALLS).for_each(|i| call(file, thread * CALLS + i)));
        }
    });
}

/// Checks that every record is there, once and whole.
#[track_caller]
fn assert_all_are_there(bytes: &[u8]) {
    assert_eq!(bytes.len(), ALL_BYTES);
    let mut seen = vec![false; (THREADS * CALLS) as usize];
    for found in bytes.chunks_exact(RECORD_BYTES) {
        let number = u32::from_le_bytes(found[..4].try_into().unwrap());
        assert_eq!(found, record(number));
        assert!(!std::mem::replace(&mut seen[number as usize], true));
    }
}

#[test]
fn all_records_that_threads_write_through_one_file_are_there() {
    let pool = pool();
    let file = pool.volume().create("/f").unwrap();
    by_all(&file, |mut file, number| {
        file.write_all(&record(number)).unwrap();
    });
    assert_all_are_there(&pool.volume().read("/f").unwrap());
    assert_eq!((&file).stream_position().unwrap(), ALL_BYTES as u64);
}

#[test]
fn all_records_that_threads_append_through_one_file_are_there() {
    let pool = pool();
    let options = OpenOptions::new().append(true).create(true).mode(0o600);
    let file = pool.volume().open_with("/f", &options).unwrap();
    by_all(&file, |mut file, number| {
        file.write_all(&record(number)).unwrap();
    });
    assert_all_are_there(&pool.volume().read("/f").unwrap());
    assert_eq!((&file).stream_position().unwrap(), ALL_BYTES as u64);
}

#[test]
fn of_threads_that_read_one_file_exactly_one_gets_each_byte() {
    let pool = pool();
    let all: Vec<u8> = (0..THREADS * CALLS).flat_map(record).collect();
    pool.volume().write("/f", &all).unwrap();
    let file = pool.volume().open("/f").unwrap();
    let read = std::sync::Mutex::new(Vec::new());
    by_all(&file, |mut file, _| {
        let mut record = [0; RECORD_BYTES];
        file.read_exact(&mut record).unwrap();
        read.lock().unwrap().extend_from_slice(&record);
    });
    assert_all_are_there(&read.into_inner().unwrap());
    assert_eq!((&file).read(&mut [0]).unwrap(), 0);
}

#[test]
fn seeks_are_serialized_with_reads_and_writes() {
    let pool = pool();
    let file = pool.volume().create("/f").unwrap();
    by_all(&file, |mut file, _| {
        file.seek(SeekFrom::Current(1)).unwrap();
    });
    let position = (&file).stream_position().unwrap();
    assert_eq!(position, u64::from(THREADS * CALLS));
}
