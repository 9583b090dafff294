//! `vellum trim`: gives the space of free blocks back, at rest or while the pool is mounted.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use vellum::RealFs;
use vellum_fuse::ControlRequest;
use vellum_terminal::output::{print_json, say};
use vellum_terminal::{Failure, Outcome, Printing};

use crate::args::Opening;
use crate::check::progress;
use crate::units::{parse_size, size};
use crate::{info, location};

#[derive(Debug, Args)]
#[command(after_help = "\
For data on a device, whose free blocks are discarded, and for pools made with `vellum mkfs \
--sparse`, in whose file free blocks become holes. Other files keep all their space, because \
writes rely on it. fstrim(8) does the same for a mount.

Examples:
  vellum trim pool.img
  vellum trim /mnt --minimum 1M")]
pub(crate) struct Trim {
    /// The pool, POOL:NAME, or the directory on which it is mounted
    pub(crate) pool: PathBuf,
    /// Leave shorter runs of free bytes alone
    #[arg(long, short = 'm', value_name = "SIZE", value_parser = parse_size, default_value = "4K")]
    pub(crate) minimum: u64,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Trimmed<'p> {
    pool: &'p Path,
    trimmed_bytes: u64,
}

/// Trims the pool of a mount. Returns the bytes given back.
pub(crate) fn answer(fs: &RealFs, least_bytes: u64) -> Result<u64, String> {
    let trimmed = fs.trim(least_bytes, &|_, _| {});
    trimmed.map_err(|error| error.to_string())
}

/// Trims a pool, and shows how much it gave back.
pub(crate) fn run(args: &Trim) -> Outcome {
    let least_bytes = args.minimum;
    let (pool, bytes) = match info::live_mount_of(&args.pool) {
        Some(mounted) => {
            let bytes = info::request(&mounted, ControlRequest::Trim { least_bytes })?;
            (mounted.pool, bytes)
        }
        None => at_rest(args)?,
    };
    if args.printing.json {
        return print_json(&Trimmed {
            pool: &pool,
            trimmed_bytes: bytes,
        });
    }
    say!("{}: {} given back", pool.display(), size(bytes));
    Ok(())
}

fn at_rest(args: &Trim) -> Outcome<(PathBuf, u64)> {
    let path = info::pool_of(&args.pool);
    let pool = location::open(&path, &args.opening, false)?;
    let bar = progress(args.printing.hides_progress());
    bar.set_message("trimming");
    let trimmed = pool.fs().trim(args.minimum, &|done, of| {
        bar.set_length(of);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let closed = location::close(pool, &path);
    let bytes = trimmed.map_err(|error| Failure::at(path.display(), &error))?;
    closed.map(|()| (path, bytes))
}
