//! `vellum trim`: gives the space of free blocks back, at rest or while the pool is mounted.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};
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
For pools on a device, whose free blocks are discarded, and for pools made with `vellum mkfs \
--sparse`, in whose file free blocks become holes. Other pools keep all the space of their file, \
because stores rely on it. fstrim(8) does the same for a mount.

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

/// The answer of a file system that was to be trimmed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Trimmed { bytes: u64 },
    Refused { text: String },
}

/// What `--json` prints.
#[derive(Serialize)]
struct Trimmed<'p> {
    pool: &'p Path,
    trimmed_bytes: u64,
}

/// Trims the pool of a mount.
pub(crate) fn answer(fs: &RealFs, least_bytes: u64) -> Answer {
    match fs.trim(least_bytes, &|_, _| {}) {
        Ok(bytes) => Answer::Trimmed { bytes },
        Err(error) => Answer::Refused {
            text: error.to_string(),
        },
    }
}

/// Trims a pool, and shows how much it gave back.
pub(crate) fn run(args: &Trim) -> Outcome {
    let least_bytes = args.minimum;
    let (pool, bytes) = match info::live_mount_of(&args.pool) {
        Some(mounted) => match info::ask(&mounted, ControlRequest::Trim { least_bytes })? {
            Answer::Trimmed { bytes } => (mounted.pool, bytes),
            Answer::Refused { text } => {
                let place = mounted.pool.display();
                return Err(Failure::new(format!("{place}: {text}")));
            }
        },
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
