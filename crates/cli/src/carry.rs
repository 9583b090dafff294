//! `vellum flush` and `vellum attach`: a data medium with all that a pool has, taken from one
//! machine to another.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use vellum::{AttachOptions, Carried, MediumError, Pool};
use vellum_terminal::output::{print_json, say};
use vellum_terminal::{Failure, Outcome, Printing};

use crate::args::{Medium, Opening};
use crate::check;
use crate::place;
use crate::units::size;

const BLOCK_BYTES: u64 = 4096;

#[derive(Debug, Args)]
#[command(after_help = "\
For pools in memory or persistent memory whose data lie on a file or device of their own: the data \
medium has room for a copy of the metadata, which this makes whole, of the blocks that changed \
since the last time. The medium alone then has the file system, until the pool is opened for \
writing again.

Examples:
  vellum flush /mnt/pmem/pool
  vellum umount --flush /mnt")]
pub(crate) struct Flush {
    /// The pool, which nobody uses
    pub(crate) pool: PathBuf,
    /// Write all blocks, not only those that changed
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The medium was flushed where it was: `vellum flush`, or `vellum umount --flush`. It belongs to the \
new pool then; the one that it was of is refused.

Examples:
  vellum attach /mnt/pmem/pool --data /dev/sdb1
  vellum attach /dev/shm/pool --data data.img")]
pub(crate) struct Attach {
    /// The pool: a new file, or a device
    pub(crate) pool: PathBuf,
    /// The file or device with the data
    #[arg(long, value_name = "FILE")]
    pub(crate) data: PathBuf,
    /// What the pool is to lie on: persistent memory, or, to try it, memory
    #[arg(long, value_enum, default_value_t)]
    pub(crate) medium: Medium,
    /// Overwrite what is there, a pool or anything else
    #[arg(long, short)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

/// What `vellum flush --json` writes.
#[derive(Serialize)]
struct Flushed {
    pool: String,
    /// Blocks of metadata that there are.
    metadata_blocks: u64,
    /// Blocks that had changed, or may have.
    blocks_changed: u64,
    /// Blocks of metadata that were written: those of zeros are not.
    blocks_written: u64,
    /// Blocks of sums that were written beside them.
    sum_blocks_written: u64,
    /// How often the copy was made whole.
    number: u64,
}

/// What `vellum attach --json` writes.
#[derive(Serialize)]
struct Attached {
    pool: String,
    uuid: String,
    bytes: u64,
    data: String,
}

/// Makes whole what the data medium of a pool carries.
pub(crate) fn flush(args: &Flush) -> Outcome {
    let hidden = args.printing.hides_progress();
    let carried = make_whole(&args.pool, &args.opening, args.all, hidden)?
        .ok_or_else(|| carries_none(&args.pool))?;
    if args.printing.json {
        return print_json(&Flushed {
            pool: args.pool.display().to_string(),
            metadata_blocks: carried.blocks,
            blocks_changed: carried.changed,
            blocks_written: carried.written,
            sum_blocks_written: carried.sums_written,
            number: carried.number,
        });
    }
    if args.printing.has_summary() {
        tell(&args.pool, &carried);
    }
    Ok(())
}

/// Opens a pool that nobody uses, and closes it with a whole copy of its metadata on the data
/// medium; `None`: that has no room for one.
pub(crate) fn make_whole(
    pool: &Path,
    opening: &Opening,
    all: bool,
    hidden: bool,
) -> Outcome<Option<Carried>> {
    let opened = place::open(pool, opening, false)?;
    let superblock = opened.superblock();
    if superblock.changed_at == 0 {
        place::close(opened, pool)?;
        return Ok(None);
    }
    let carried = check::writing(hidden, |tell| opened.close_and_carry(all, tell));
    carried.map(Some).map_err(|error| {
        failed(pool, &error).advise(
            "nothing is lost where the pool is; the medium alone is nothing until this succeeds",
        )
    })
}

/// Why a pool without a copy cannot be flushed.
pub(crate) fn carries_none(pool: &Path) -> Failure {
    failed(pool, &MediumError::CarriesNone.into())
}

/// Says what was done.
pub(crate) fn tell(pool: &Path, carried: &Carried) {
    let changed = match carried.changed {
        all if all == carried.blocks => "all blocks".to_owned(),
        changed => format!("{changed} of {} blocks", carried.blocks),
    };
    say!(
        "{}: its data medium has everything now; {changed} of metadata looked at, {} written",
        pool.display(),
        size(carried.written * BLOCK_BYTES)
    );
    say!("elsewhere:  vellum attach POOL --data MEDIUM");
}

/// Makes a pool of what a medium carries.
pub(crate) fn attach(args: &Attach) -> Outcome {
    let (pool, data) = (args.pool.display(), args.data.display());
    place::refuse_part(&args.pool)?;
    let options = AttachOptions {
        data: args.data.clone(),
        media: args.medium.into(),
        overwrite: args.force,
    };
    let hidden = args.printing.hides_progress();
    let made = check::writing(hidden, |tell| Pool::attach(&args.pool, &options, tell));
    let superblock = made.map_err(|error| refused(args, &error))?;
    let bytes = superblock.pool_bytes;
    if args.printing.json {
        return print_json(&Attached {
            pool: pool.to_string(),
            uuid: superblock.uuid_text(),
            bytes,
            data: data.to_string(),
        });
    }
    if args.printing.has_summary() {
        say!(
            "made a pool of {} in {pool}, of what {data} carries",
            size(bytes)
        );
        say!("  uuid      {}", superblock.uuid_text());
        say!("  data in   {data}, which no other pool can use now");
        say!("mount it:   vellum mount {pool} DIR");
    }
    Ok(())
}

/// Why there is no pool, and what to do.
fn refused(args: &Attach, error: &vellum::Error) -> Failure {
    let failure = place::refused(&args.pool, error);
    match error {
        vellum::Error::Medium(MediumError::Stale { .. }) => failure.advise(
            "where its pool is: `vellum flush POOL`, or `vellum umount --flush DIR`; then take the medium along",
        ),
        vellum::Error::Medium(MediumError::CarriedDamaged { .. }) => failure.advise(
            "where its pool is: `vellum flush --all POOL` writes all of the copy anew",
        ),
        vellum::Error::Medium(MediumError::Unordered { .. }) => {
            failure.advise(place::TRY_IN_MEMORY)
        }
        vellum::Error::Media(vellum::media::MediaError::Exists { .. }) => failure.advise(
            "choose another name, or overwrite it with --force: what it holds is then lost",
        ),
        _ => failure,
    }
}

fn failed(pool: &Path, error: &vellum::Error) -> Failure {
    Failure::new(format!("{}: {error}", pool.display()))
}
