//! `vellum resize`: gives a pool more room, at rest or while it is mounted.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};
use vellum::{Error, PoolPath, RealFs, ResizeError};
use vellum_fuse::ControlRequest;
use vellum_terminal::output::{print_json, say};
use vellum_terminal::{Failure, Outcome, Printing};

use crate::args::Opening;
use crate::info::{self, Information};
use crate::location;
use crate::units::{parse_size, size};

#[derive(Debug, Args)]
#[command(after_help = "\
The new bytes are room for data, and nothing moves. A pool never shrinks. After a power cut it has \
the old size or the new one, with all its files.

A pool in a file takes the room from the file system around it at once. `max` is for a device, or \
for a file that is already larger than its pool.

Examples:
  vellum resize pool.img 64G
  vellum resize pool.img +10G        # while it is mounted, too
  vellum resize /dev/pmem0 max       # after the device has become larger")]
pub(crate) struct Resize {
    /// The pool, or the directory on which it is mounted
    pub(crate) pool: PathBuf,
    /// The new size, how much to add (+SIZE), or `max`: the whole device
    #[arg(value_name = "SIZE", value_parser = parse_target)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

/// The size that a pool is to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// This many bytes.
    Bytes(u64),
    /// This many bytes more.
    More(u64),
    /// As many as its device or file has.
    All,
}

fn parse_target(text: &str) -> Result<Target, String> {
    match text.strip_prefix('+') {
        _ if text == "max" => Ok(Target::All),
        Some(more) => parse_size(more).map(Target::More),
        None => parse_size(text).map(Target::Bytes),
    }
}

/// The sizes of a pool, in bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Sizes {
    pool_bytes: u64,
    data_bytes: u64,
    free_bytes: u64,
}

impl Sizes {
    fn of(fs: &RealFs) -> Self {
        let stat = fs.stat_fs();
        let bytes = |blocks: u64| blocks * 4096;
        Self {
            pool_bytes: fs.superblock().pool_bytes,
            data_bytes: bytes(stat.blocks),
            free_bytes: bytes(stat.blocks_free),
        }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Resized<'p> {
    pool: &'p Path,
    before_bytes: u64,
    #[serde(flatten)]
    now: Sizes,
}

/// Lets the pool of a mount grow.
pub(crate) fn answer(fs: &RealFs, bytes: u64) -> Result<Sizes, String> {
    let grown = fs.grow(bytes).map(|_| Sizes::of(fs));
    grown.map_err(|error| error.to_string())
}

/// Lets a pool grow, and shows its new size.
pub(crate) fn run(args: &Resize) -> Outcome {
    let (pool, before_bytes, now) = match info::live_mount_of(&args.pool) {
        Some(mounted) => {
            refuse_dataset(&mounted.pool)?;
            let told: Information = info::ask(&mounted, ControlRequest::Information)?;
            let before = told.pool.bytes;
            let bytes = args.target.bytes(&mounted.pool, before)?;
            let sizes = info::request(&mounted, ControlRequest::Grow { bytes })?;
            (mounted.pool, before, sizes)
        }
        None => at_rest(args)?,
    };
    if args.printing.json {
        return print_json(&Resized {
            pool: &pool,
            before_bytes,
            now,
        });
    }
    say!(
        "{}: {} now, was {}; {} free",
        pool.display(),
        size(now.pool_bytes),
        size(before_bytes),
        size(now.free_bytes)
    );
    Ok(())
}

/// Opens a pool and lets it grow, several times if an opening has too few addresses.
fn at_rest(args: &Resize) -> Outcome<(PathBuf, u64, Sizes)> {
    let path = info::pool_of(&args.pool);
    refuse_dataset(&path)?;
    let mut wanted = None;
    loop {
        let pool = location::open(&path, &args.opening, false)?;
        let now = pool.superblock().pool_bytes;
        let (before, bytes) = match wanted {
            Some(wanted) => wanted,
            None => (now, args.target.bytes(&path, now)?),
        };
        wanted = Some((before, bytes));
        let grown = match pool.grow(bytes) {
            Err(Error::Resize(ResizeError::WhileOpen { most })) => pool.grow(most),
            grown => grown,
        };
        let sizes = Sizes::of(&pool.fs());
        let closed = location::close(pool, &path);
        let grown = grown.map_err(|error| Failure::at(path.display(), &error))?;
        closed?;
        if grown + 4096 > bytes {
            return Ok((path, before, sizes));
        }
    }
}

fn refuse_dataset(pool: &Path) -> Outcome {
    match PoolPath::of(pool).name {
        None => Ok(()),
        Some(name) => Err(Failure::usage(format!(
            "{}: the dataset {name} has the size that it was created with",
            pool.display()
        ))
        .advise("create a larger one with `vellum dataset add`, and copy its files")),
    }
}

impl Target {
    /// The new size of a pool of `now` bytes.
    fn bytes(self, pool: &Path, now: u64) -> Outcome<u64> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::More(bytes) => Ok(now.saturating_add(bytes)),
            Self::All => {
                let opened = File::open(pool).and_then(|mut file| file.seek(SeekFrom::End(0)));
                opened.map_err(|error| Failure::io(pool.display(), &error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_absolute_or_added() {
        assert_eq!(parse_target("64M"), Ok(Target::Bytes(64 << 20)));
        assert_eq!(parse_target("+1.5G"), Ok(Target::More(3 << 29)));
        assert_eq!(parse_target("max"), Ok(Target::All));
        assert!(parse_target("-1G").is_err() && parse_target("+").is_err());
    }
}
