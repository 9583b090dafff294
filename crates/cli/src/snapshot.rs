//! `vellum snapshot`: copies a pool, at rest or while it is mounted, to a file that is a pool.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use vellum::CopyScope;
use vellum::media::NewFile;
use vellum_fuse::mounts::Mounted;
use vellum_terminal::output::{print_json, say};
use vellum_terminal::{Failure, Outcome, Printing};

use crate::args::Opening;
use crate::check::progress;
use crate::copies::{self, Made};
use crate::units::size;
use crate::{info, location, sync};

#[derive(Debug, Args)]
#[command(after_help = "\
The copy is of one instant, at which changes wait for a moment: it has everything that was done \
before, and nothing of what is done while it is made. Writes by memory maps count once the kernel \
has written them back, which the command makes it do first.

FILE is a sparse pool with the blocks that are in use. It counts as one that was not closed, and \
the next opening recovers it. It has the UUID of POOL, whose place it can take; `vellum set FILE \
--uuid random` gives it one of its own. A pool with its data on another device cannot be copied \
so; of a pool with several datasets, POOL is the first one, and POOL:NAME another.

FILE gets its name when it is complete and durable. Whatever goes wrong, nothing is left of it, \
and POOL goes on.

Examples:
  vellum snapshot pool.img backup.img
  vellum snapshot /mnt /backup/monday.img
  vellum snapshot pool.img:builds builds.img")]
pub(crate) struct Snapshot {
    /// The pool, POOL:NAME, or the directory on which it is mounted
    pub(crate) pool: PathBuf,
    /// The copy, a new file
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Snapped<'p> {
    pool: &'p Path,
    file: &'p Path,
    pool_bytes: u64,
    copied_bytes: u64,
    paused_us: u64,
}

/// Copies a pool.
pub(crate) fn run(args: &Snapshot) -> Outcome {
    let (pool, made) = match info::live_mount_of(&args.pool) {
        Some(mounted) => {
            let made = mounted_one(args, &mounted)?;
            (mounted.pool, made)
        }
        None => at_rest(args)?,
    };
    if args.printing.json {
        return print_json(&Snapped {
            pool: &pool,
            file: &args.file,
            pool_bytes: made.pool_bytes,
            copied_bytes: made.copied_bytes,
            paused_us: made.paused_us,
        });
    }
    if args.printing.quiet {
        return Ok(());
    }
    say!(
        "{}: {} copied, of a pool of {}; changes waited {}.{:03} ms",
        args.file.display(),
        size(made.copied_bytes),
        size(made.pool_bytes),
        made.paused_us / 1000,
        made.paused_us % 1000
    );
    Ok(())
}

fn mounted_one(args: &Snapshot, mounted: &Mounted) -> Outcome<Made> {
    let failed = |error: io::Error| Failure::io(args.file.display(), &error);
    let file = NewFile::create(&args.file).map_err(failed)?;
    let dir = |error| Failure::io(mounted.dir.display(), &error);
    let root = mounted.open().map_err(dir)?;
    let target = file.file().metadata().map_err(failed)?;
    if target.dev() == root.metadata().map_err(dir)?.dev() {
        let text = format!("{} would be in the pool itself", args.file.display());
        return Err(Failure::new(text).advise("name a file on another file system"));
    }
    sync::sync(&root).map_err(dir)?;
    let bar = progress(args.printing.hides_progress());
    bar.set_message("copying");
    let made = copies::copy(mounted, CopyScope::Whole, file.file(), &bar)?;
    file.finish().map_err(failed)?;
    Ok(made)
}

fn at_rest(args: &Snapshot) -> Outcome<(PathBuf, Made)> {
    let path = info::pool_of(&args.pool);
    let pool = location::open(&path, &args.opening, true)?;
    let bar = progress(args.printing.hides_progress());
    bar.set_message("copying");
    let copied = pool
        .fs()
        .snapshot(&args.file, &|done, all| copies::show(&bar, done, all));
    bar.finish_and_clear();
    let closed = location::close(pool, &path);
    let copied = copied.map_err(|error| Failure::at(args.file.display(), &error))?;
    closed.map(|()| (path, copied.into()))
}
