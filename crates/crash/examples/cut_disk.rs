//! What a disk with a volatile cache holds after a power cut (`tests/long/power-cut.sh`).
//!
//! `cut_disk DISK LOG SEED`: DISK is the image of a disk as it was when a machine started. LOG is
//! the record that QEMU's driver `blklogwrites` made of the machine's writes and flushes since
//! then, in the format of the kernel's dm-log-writes. Everything that was written before the last
//! flush is applied to DISK. Of each sector that was written after it, a random prefix of its
//! writes is applied.
//!
//! Fails with exit status 3 if the log has a hole: a write whose bytes it lacks comes before one
//! that may have been flushed.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;

use vellum_testing::Random;

/// The magic number at the beginning of a log.
const MAGIC: u64 = 0x006A_7366_7773_6872;
/// Bytes of a sector; `log-sector-size` must have this value.
const SECTOR: usize = 512;
/// Flags of an entry.
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;

/// A request of the machine.
struct Entry {
    sector: u64,
    flags: u64,
    data: Vec<u8>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [disk, log, seed] = &words[..] else {
        eprintln!("cut_disk DISK LOG SEED");
        return ExitCode::from(2);
    };
    let cut = || -> Result<Option<String>, String> {
        let seed = seed
            .parse()
            .map_err(|_| format!("`{seed}` is not a seed"))?;
        let bytes = std::fs::read(log).map_err(|error| format!("{log}: {error}"))?;
        let Some(entries) = parse(&bytes)? else {
            return Ok(None);
        };
        let options = File::options().write(true).open(disk);
        let disk = options.map_err(|error| format!("{disk}: {error}"))?;
        apply(&disk, &entries, seed).map(Some)
    };
    match cut() {
        Ok(Some(said)) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Ok(None) => ExitCode::from(3),
        Err(error) => {
            eprintln!("cut_disk: {error}");
            ExitCode::FAILURE
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Result<u64, String> {
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    word.map(u64::from_le_bytes)
        .ok_or_else(|| "the log is cut short".into())
}

/// The requests, in order; `None` if there are more than can be read.
fn parse(log: &[u8]) -> Result<Option<Vec<Entry>>, String> {
    if word(log, 0)? != MAGIC {
        return Err("this is not a log of writes".into());
    }
    let flushed = word(log, 16)?;
    let mut entries = Vec::new();
    let mut at = SECTOR;
    while at + SECTOR <= log.len() {
        let [sector, sectors, flags] = [word(log, at)?, word(log, at + 8)?, word(log, at + 16)?];
        if sectors == 0 && flags == 0 {
            break;
        }
        let has_data = flags & DISCARD == 0;
        let len = if has_data {
            sectors as usize * SECTOR
        } else {
            0
        };
        let Some(data) = log.get(at + SECTOR..at + SECTOR + len) else {
            break;
        };
        entries.push(Entry {
            sector,
            flags,
            data: data.to_vec(),
        });
        at += SECTOR + len;
    }
    // The head of the log is written with each flush.
    Ok((entries.len() as u64 >= flushed).then_some(entries))
}

/// Applies what arrived; returns a summary.
fn apply(disk: &File, entries: &[Entry], seed: u64) -> Result<String, String> {
    let write = |sector: u64, data: &[u8]| {
        disk.write_all_at(data, sector * SECTOR as u64)
            .map_err(|error| format!("the disk: {error}"))
    };
    let durable = entries
        .iter()
        .rposition(|entry| entry.flags & FLUSH != 0)
        .map_or(0, |last| last + 1);
    for entry in &entries[..durable] {
        write(entry.sector, &entry.data)?;
    }
    let mut loose: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
    for entry in &entries[durable..] {
        let sectors = entry.data.chunks(SECTOR).zip(entry.sector..);
        for (data, sector) in sectors {
            let writes = loose.entry(sector).or_default();
            writes.push(data);
            if entry.flags & FUA != 0 {
                writes.clear();
                write(sector, data)?;
            }
        }
    }
    let mut random = Random::new(seed);
    // None, some, or nearly all, so that neither end is rare.
    let chance = [0, 10, 50, 90, 100][random.below(5) as usize];
    let mut arrived = 0;
    for (&sector, writes) in &loose {
        if random.below(100) < chance {
            let last = random.below(writes.len() as u64 + 1) as usize;
            if let Some(data) = writes[..last].last() {
                write(sector, data)?;
                arrived += 1;
            }
        }
    }
    let flushes = entries.iter().filter(|entry| entry.flags & FLUSH != 0);
    Ok(format!(
        "{} requests, {} flushes; behind the last one {arrived} of {} sectors arrived",
        entries.len(),
        flushes.count(),
        loose.len()
    ))
}
