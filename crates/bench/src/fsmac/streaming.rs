//! A file larger than what the kernel may cache of it, written and read sequentially.

use super::meter::{Meter, Sheet};
use super::subjects::{Setting, Work};
use crate::Result;
use crate::error::expect;
use crate::limit::MemoryLimit;
use crate::order::Numbers;
use crate::report::Outcome;
use crate::workloads::{FileTree, Opened, Purpose};

/// The operations. The first two have a target.
const LABELS: [&str; 4] = ["write", "read", "read 4 KiB", "random 4 KiB"];
const ASKED_LABELS: usize = 2;
/// Bytes of a read and of a write.
const REQUEST: usize = 1 << 20;
/// The size of a small read, and the number of random ones.
const SMALL: usize = 4 << 10;
const RANDOM_READS: usize = 1000;
/// The target: the speed over that of ext4.
const ASKED: f64 = 0.95;
/// The fraction of the pool that the file takes.
const FILLED: u64 = 2;
/// The fraction of the file that fits into memory, and the least memory that the process needs.
const CACHED: u64 = 4;
const MEMORY_MIN: u64 = 96 << 20;

struct Stream {
    requests: u64,
}

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let work = Stream {
        requests: setting.options.pool_bytes / FILLED / REQUEST as u64,
    };
    let bytes = work.requests * REQUEST as u64;
    let memory = (bytes / CACHED).max(MEMORY_MIN);
    let sheet = Sheet {
        name: "streaming",
        title: "A file larger than memory, in requests of 1 MiB, and of 4 KiB",
        claim: "The bytes of files take the same path to the disk in both file systems.",
        note: format!(
            "{} MiB, written to a new file and synced, then read sequentially, and last read by \
             small random requests. This process, with all that the kernel caches for it, is \
             limited to {} MiB of memory. The loop device bypasses the cache of its file, which \
             would not be limited.",
            bytes >> 20,
            memory >> 20
        ),
        x: None,
        labels: LABELS.map(String::from).into(),
    };
    let _limit = MemoryLimit::new(memory)?;
    let grids = setting.measure(&sheet, &setting.cached_once()?, &work)?;
    let targets = LABELS[..ASKED_LABELS].iter();
    let targets = targets.filter_map(|label| grids.faster(label, ASKED));
    let targets = targets.collect();
    Ok(Outcome::new(grids.figures(), targets))
}

impl Work for Stream {
    fn round<P: FileTree>(&self, tree: &P, meter: &mut Meter<'_>) -> Result<()> {
        let mut buffer = vec![0x5A; REQUEST];
        let places = || (0..self.requests).map(|number| number * REQUEST as u64);
        let file = tree.open(c"stream", Purpose::Create)?;
        meter.timed(tree, 0, self.requests as usize, || {
            places().try_for_each(|at| file.write_at(at, &buffer))?;
            file.sync()
        })?;
        let file = tree.open(c"stream", Purpose::Read)?;
        meter.timed(tree, 1, self.requests as usize, || {
            places().try_for_each(|at| {
                let read = file.read_at(at, &mut buffer)?;
                expect("bytes read", read, REQUEST)
            })
        })?;
        let small = &mut buffer[..SMALL];
        let mut read_small = |at: u64| {
            let read = file.read_at(at, small)?;
            expect("bytes of a small read", read, SMALL)
        };
        let all = self.requests * (REQUEST / SMALL) as u64;
        meter.timed(tree, 2, all as usize, || {
            (0..all).try_for_each(|number| read_small(number * SMALL as u64))
        })?;
        let mut order = Numbers::new(41);
        meter.timed(tree, 3, RANDOM_READS, || {
            (0..RANDOM_READS).try_for_each(|_| read_small(order.below(all) * SMALL as u64))
        })?;
        drop(file);
        tree.remove(c"stream")
    }
}
