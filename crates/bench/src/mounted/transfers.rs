//! A large file, written and read.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use super::laps::Laps;
use super::report::Report;
use super::subjects::{Lap, Subject};
use super::{Setting, TRANSFERS};
use crate::Result;
use crate::error::{doing, expect};
use crate::figure::bytes;

/// Bytes of a request.
pub(super) const REQUEST: usize = 1 << 20;
/// The names of rows.
pub(super) const NAMES: [&str; 3] = ["write", "read-cold", "read-warm"];
const WHAT: [&str; 3] = [
    "written to a new file, and synced",
    "read, dropped from the kernel's cache before",
    "read again",
];
/// Space in a pool for metadata.
const SPARE_BYTES: u64 = 128 << 20;

/// Measures the wanted transfers.
pub(super) fn measure(setting: &Setting<'_>, report: &mut Report) -> Result<()> {
    let wants = |name| setting.options.wants(TRANSFERS, name);
    if !NAMES.into_iter().any(wants) {
        return Ok(());
    }
    let total = setting.options.bytes / REQUEST as u64 * REQUEST as u64;
    let subjects = setting.subjects(total + total / 4 + SPARE_BYTES)?;
    let mut all: Vec<Laps> = NAMES
        .into_iter()
        .zip(WHAT)
        .map(|(name, what)| {
            let what = format!("{}, {what}", bytes(total));
            Laps::new(name, what, &subjects).moving(total)
        })
        .collect();
    setting.add_steps(subjects.len());
    for round in 0..=setting.options.rounds {
        for (number, subject) in subjects.iter().enumerate() {
            setting.interrupt.check()?;
            setting.progress.set_message("transfers");
            measure_round(subject, total, |transfer, lap| {
                all[transfer].add(round, number, lap);
                setting.interrupt.check()
            })?;
            setting.progress.inc(1);
        }
    }
    let wanted = all.iter().filter(|laps| wants(laps.name()));
    report.transfers = wanted.flat_map(|laps| laps.rows(&subjects)).collect();
    report.notes.push(
        "Transfers: requests of 1 MiB. For cold reads, POSIX_FADV_DONTNEED drops the file from the \
         kernel's cache, and the pool's file below a mount. Where these lie in memory (tmpfs, \
         persistent memory), nothing below the mount is cold."
            .into(),
    );
    Ok(())
}

/// Runs all transfers on one subject, and passes on the number of each with its lap.
fn measure_round(
    subject: &Subject,
    total: u64,
    mut add: impl FnMut(usize, Lap) -> Result<()>,
) -> Result<()> {
    let path = subject.dir().join("transferred");
    add(0, subject.lap(|| write(&path, total))?)?;
    subject.place.drop_cached(&path)?;
    add(1, subject.lap(|| read(&path, total))?)?;
    add(2, subject.lap(|| read(&path, total))?)?;
    std::fs::remove_file(&path).map_err(doing("remove what was written"))
}

fn write(path: &Path, total: u64) -> Result<()> {
    let what = || doing(format!("write {}", path.display()));
    let buffer = vec![0x5A; REQUEST];
    let mut file = File::create_new(path).map_err(what())?;
    for _ in 0..total / REQUEST as u64 {
        file.write_all(&buffer).map_err(what())?;
    }
    file.sync_all().map_err(what())
}

fn read(path: &Path, total: u64) -> Result<()> {
    let what = || doing(format!("read {}", path.display()));
    let mut buffer = vec![0; REQUEST];
    let mut file = File::open(path).map_err(what())?;
    let mut found = 0;
    loop {
        match file.read(&mut buffer).map_err(what())? {
            0 => return expect("bytes of a file", found, total),
            read => found += read as u64,
        }
    }
}
