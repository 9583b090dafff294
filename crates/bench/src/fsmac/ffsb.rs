//! Fig 9: FFSB, ten kinds of operations on files of many sizes.

use super::files::Files;
use super::meter::{Meter, Sheet};
use super::subjects::{Setting, Work};
use crate::Result;
use crate::report::Outcome;
use crate::workloads::FileTree;

const ROOT: &str = "ffsb";
const LABELS: [&str; 1] = ["operation"];
/// Values of the paper: directories, bytes of a request, and, from Table 4, file sizes in KiB with
/// their weights in percent.
const DIRS: u64 = 100;
const REQUEST: u64 = 4 << 10;
const SIZES: [(u64, u64); 10] = [
    (4, 33),
    (8, 21),
    (16, 13),
    (32, 10),
    (64, 8),
    (128, 5),
    (256, 4),
    (512, 3),
    (8 << 10, 2),
    (32 << 10, 1),
];
/// Kinds of operations, of equal weight.
const KINDS: u64 = 10;
/// The fraction of the pool that files may take. Beyond that no files are created, and requests
/// overwrite instead of appending.
const FILLED: u64 = 2;

struct Ffsb {
    files: usize,
    operations: usize,
    room: u64,
}

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let options = setting.options;
    let work = Ffsb {
        files: options.synced(),
        operations: options.files,
        room: options.pool_bytes / FILLED,
    };
    let sheet = Sheet {
        name: "ffsb",
        title: "FFSB: ten kinds of operations",
        claim: "FSMAC, Fig 9: ext4 with FSMAC reads 1.82 times as many bytes a second and writes \
             1.35 times as many.",
        note: format!(
            "{} operations on {} files in {DIRS} directories, with sizes as in the paper's Table \
             4, in requests of 4 KiB. The ten kinds: read a whole file, or one request; write a \
             whole file; write one request, with or without fsync; append one, with or without \
             fsync; create, remove, or rename a file. The paper does not name its ten kinds.",
            work.operations, work.files
        ),
        x: None,
        labels: LABELS.map(String::from).into(),
    };
    let grids = setting.measure(&sheet, &setting.usual()?, &work)?;
    Ok(Outcome::new(grids.figures(), Vec::new()))
}

impl Work for Ffsb {
    fn fill<P: FileTree>(&self, tree: &P) -> Result<()> {
        Files::fill(tree, ROOT, DIRS)
    }

    fn round<P: FileTree>(&self, tree: &P, meter: &mut Meter<'_>) -> Result<()> {
        let mut files = Files::new(tree, ROOT, DIRS, REQUEST as usize);
        (0..self.files).try_for_each(|_| self.make(&mut files))?;
        meter.timed(tree, 0, self.operations, || {
            (0..self.operations).try_for_each(|_| self.operation(&mut files))
        })?;
        (0..files.count()).try_for_each(|_| files.remove())
    }
}

impl Ffsb {
    fn operation<P: FileTree>(&self, files: &mut Files<'_, P>) -> Result<()> {
        let kind = files.numbers.below(KINDS);
        let Some(file) = files.pick() else {
            return self.make(files);
        };
        let bytes = files.bytes_of(file);
        let request = files.numbers.below(bytes / REQUEST) * REQUEST;
        match kind {
            0 => files.read(file, 0, bytes),
            1 => files.read(file, request, REQUEST),
            2 => files.write(file, 0, bytes, false),
            3 | 4 => files.write(file, request, REQUEST, kind == 4),
            5 | 6 if files.bytes() + REQUEST > self.room => {
                files.write(file, request, REQUEST, kind == 6)
            }
            5 | 6 => files.append(file, REQUEST, kind == 6),
            7 => self.make(files),
            8 => files.remove(),
            _ => files.rename(file),
        }
    }

    fn make<P: FileTree>(&self, files: &mut Files<'_, P>) -> Result<()> {
        let bytes = drawn(files.numbers.below(100));
        match files.bytes() + bytes > self.room {
            true => Ok(()),
            false => files.make(bytes),
        }
    }
}

/// The size of a file in bytes, drawn by a percentage.
fn drawn(percent: u64) -> u64 {
    let mut sum = 0;
    let size = SIZES.iter().find(|(_, weight)| {
        sum += weight;
        percent < sum
    });
    size.map_or(REQUEST, |(kib, _)| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_as_frequent_as_their_weights_say() {
        for (kib, weight) in SIZES {
            let drawn = (0..100).filter(|&percent| drawn(percent) == kib << 10);
            assert_eq!(drawn.count() as u64, weight);
        }
    }
}
