//! `vellum set`: changes what a pool says of itself.

use std::path::PathBuf;

use clap::Args;
use vellum::experiments::{settle_table, write_table};
use vellum_check::{MemoryImage, survey};
use vellum_terminal::{Failure, Outcome, status};

use crate::args::Opening;
use crate::location;

#[derive(Debug, Args)]
#[command(after_help = "\
The pool must not be in use. If it was not closed cleanly, it is recovered first. After a power \
cut the pool has the old label or the new one.

Examples:
  vellum set pool.img --label build-cache
  vellum set pool.img:builds --label \"\"")]
pub(crate) struct Set {
    /// The pool, or POOL:NAME
    pub(crate) pool: PathBuf,
    /// A label for people to read, at most 64 bytes; empty: none
    #[arg(long, short = 'L')]
    pub(crate) label: String,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

/// Changes the label of a pool.
pub(crate) fn run(args: &Set) -> Outcome {
    // Recovers the pool, and refuses one that is damaged or that another command has to finish.
    let recovered = location::open(&args.pool, &args.opening, false)?;
    location::close(recovered, &args.pool)?;
    let pool = location::open_as_it_is(&args.pool, &args.opening)?;
    let image = MemoryImage(&pool);
    let closed = survey::superblock(&image)
        .filter(|superblock| survey::is_closed_cleanly(&image, superblock));
    let superblock = closed.ok_or_else(|| {
        Failure::new(format!(
            "{}: another process has used it meanwhile: repeat the command",
            args.pool.display()
        ))
        .with_status(status::BUSY)
    })?;
    let labelled = superblock
        .with_label(&args.label)
        .ok_or_else(|| Failure::usage("a label has at most 64 bytes"))?;
    let written = settle_table(&pool, &superblock).and_then(|()| write_table(&pool, &labelled));
    written.map_err(|error| Failure::at(args.pool.display(), &error))
}
