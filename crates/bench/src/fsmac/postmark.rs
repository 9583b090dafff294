//! Fig 8: PostMark, which creates, uses and removes many small files, by one thread and without
//! `fsync`.

use super::files::Files;
use super::meter::{Meter, Sheet};
use super::subjects::{Setting, Work};
use crate::Result;
use crate::report::Outcome;
use crate::workloads::FileTree;

const ROOT: &str = "postmark";
const LABELS: [&str; 3] = ["create", "transaction", "remove"];
/// Values of the paper's Table 3: subdirectories, sizes, and transactions for each four files.
const DIRS: u64 = 50;
const BYTES_MIN: u64 = 1 << 10;
const BYTES_MAX: u64 = 10 << 10;
const TRANSACTIONS: (usize, usize) = (7, 4);

struct PostMark {
    files: usize,
}

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let files = setting.options.files;
    let sheet = Sheet {
        name: "postmark",
        title: "PostMark: many small files",
        claim: "FSMAC, Fig 8: up to 1.67 times as fast as ext4, with 200 000 files and 350 000 \
             transactions.",
        note: format!(
            "{files} files of 1 to 10 KiB in {DIRS} directories, and 1.75 times as many \
             transactions: one file is read or appended to, then one is created or removed."
        ),
        x: None,
        labels: LABELS.map(String::from).into(),
    };
    let grids = setting.measure(&sheet, &setting.usual()?, &PostMark { files })?;
    Ok(Outcome::new(grids.figures(), Vec::new()))
}

impl Work for PostMark {
    fn fill<P: FileTree>(&self, tree: &P) -> Result<()> {
        Files::fill(tree, ROOT, DIRS)
    }

    fn round<P: FileTree>(&self, tree: &P, meter: &mut Meter<'_>) -> Result<()> {
        let mut files = Files::new(tree, ROOT, DIRS, BYTES_MAX as usize);
        meter.timed(tree, 0, self.files, || {
            (0..self.files).try_for_each(|_| make(&mut files))
        })?;
        let transactions = self.files * TRANSACTIONS.0 / TRANSACTIONS.1;
        meter.timed(tree, 1, transactions, || {
            (0..transactions).try_for_each(|_| transaction(&mut files))
        })?;
        let left = files.count();
        meter.timed(tree, 2, left, || (0..left).try_for_each(|_| files.remove()))
    }
}

fn transaction<P: FileTree>(files: &mut Files<'_, P>) -> Result<()> {
    if let Some(file) = files.pick() {
        match files.numbers.below(2) {
            0 => files.read(file, 0, files.bytes_of(file))?,
            _ => {
                let more = bytes(files);
                files.append(file, more, false)?;
            }
        }
    }
    match files.numbers.below(2) {
        0 => make(files),
        _ => files.remove(),
    }
}

fn make<P: FileTree>(files: &mut Files<'_, P>) -> Result<()> {
    let bytes = bytes(files);
    files.make(bytes)
}

/// Bytes of a file or of an append.
fn bytes<P: FileTree>(files: &mut Files<'_, P>) -> u64 {
    BYTES_MIN + files.numbers.below(BYTES_MAX - BYTES_MIN + 1)
}
