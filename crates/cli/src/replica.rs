//! `vellum replica`: the copy of its metadata that lets a pool's external data device move to
//! another machine.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use vellum::{AttachOptions, ExportedReplica, MediumError, Pool};
use vellum_terminal::output::{print_json, say};
use vellum_terminal::{Failure, Outcome, Printing, quoted};

use crate::args::{Medium, Opening};
use crate::check;
use crate::location;
use crate::units::size;

const BLOCK_BYTES: u64 = 4096;

/// What to do with the metadata replica of a pool.
#[derive(Debug, Subcommand)]
pub(crate) enum Replica {
    /// Export the metadata of a pool to the replica on its external data device
    Export(Export),
    /// Make a pool of the replica on an external data device
    Import(Import),
}

#[derive(Debug, Args)]
#[command(after_help = "\
For pools in memory or persistent memory whose data lie on an external data device: that has room \
for a replica of the metadata, to which this writes the blocks that changed since the last time. \
The device alone then has the file system, until the pool is opened for writing again.

Examples:
  vellum replica export /mnt/pmem/pool
  vellum umount --export-replica /mnt")]
pub(crate) struct Export {
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
The replica was exported where the device was: `vellum replica export`, or `vellum umount \
--export-replica`. The device belongs to the new pool then; the one that it was of is refused.

Examples:
  vellum replica import /mnt/pmem/pool --data /dev/sdb1
  vellum replica import /dev/shm/pool --data data.img")]
pub(crate) struct Import {
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

/// What `vellum replica export --json` writes.
#[derive(Serialize)]
struct Exported {
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

/// What `vellum replica import --json` writes.
#[derive(Serialize)]
struct Imported {
    pool: String,
    uuid: String,
    bytes: u64,
    data: String,
}

impl Replica {
    pub(crate) fn printing(&self) -> Printing {
        match self {
            Self::Export(args) => args.printing,
            Self::Import(args) => args.printing,
        }
    }
}

pub(crate) fn run(what: &Replica) -> Outcome {
    match what {
        Replica::Export(args) => export(args),
        Replica::Import(args) => import(args),
    }
}

/// Completes the replica of a pool.
fn export(args: &Export) -> Outcome {
    let hidden = args.printing.hides_progress();
    let replica = make_whole(&args.pool, &args.opening, args.all, hidden)?
        .ok_or_else(|| carries_none(&args.pool))?;
    if args.printing.json {
        return print_json(&Exported {
            pool: args.pool.display().to_string(),
            metadata_blocks: replica.blocks,
            blocks_changed: replica.changed,
            blocks_written: replica.written,
            sum_blocks_written: replica.sums_written,
            number: replica.number,
        });
    }
    if args.printing.has_summary() {
        tell(&args.pool, &replica);
    }
    Ok(())
}

/// Opens a pool that nobody uses, and closes it with a complete replica on its data device; `None`:
/// that has no room for one.
pub(crate) fn make_whole(
    pool: &Path,
    opening: &Opening,
    all: bool,
    hidden: bool,
) -> Outcome<Option<ExportedReplica>> {
    let opened = location::open(pool, opening, false)?;
    let superblock = opened.superblock();
    if superblock.changed_at == 0 {
        location::close(opened, pool)?;
        return Ok(None);
    }
    let replica = check::writing(hidden, |tell| opened.close_and_export(all, tell));
    replica.map(Some).map_err(|error| {
        failed(pool, &error).advise(
            "nothing is lost where the pool is; the medium alone is nothing until this succeeds",
        )
    })
}

/// Why a pool without a replica exports none.
pub(crate) fn carries_none(pool: &Path) -> Failure {
    failed(pool, &MediumError::NoReplica.into())
}

/// Says what was done.
pub(crate) fn tell(pool: &Path, replica: &ExportedReplica) {
    let changed = match replica.changed {
        all if all == replica.blocks => "all blocks".to_owned(),
        changed => format!("{changed} of {} blocks", replica.blocks),
    };
    say!(
        "{}: its data device has everything now; {changed} of metadata looked at, {} written",
        pool.display(),
        size(replica.written * BLOCK_BYTES)
    );
    say!("elsewhere:  vellum replica import POOL --data DEVICE");
}

/// Makes a pool of a replica.
fn import(args: &Import) -> Outcome {
    let (pool, data) = (args.pool.display(), args.data.display());
    location::refuse_dataset(&args.pool)?;
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
        return print_json(&Imported {
            pool: pool.to_string(),
            uuid: superblock.uuid_text(),
            bytes,
            data: data.to_string(),
        });
    }
    if args.printing.has_summary() {
        say!(
            "made a pool of {} in {pool}, of the replica on {data}",
            size(bytes)
        );
        say!("  uuid      {}", superblock.uuid_text());
        say!("  data in   {data}, which no other pool can use now");
        say!("mount it:   vellum mount {} DIR", quoted(&args.pool));
    }
    Ok(())
}

/// Why there is no pool, and what to do.
fn refused(args: &Import, error: &vellum::Error) -> Failure {
    let failure = location::refused(&args.pool, error);
    match error {
        vellum::Error::Medium(MediumError::Stale { .. }) => failure.advise(
            "where its pool is: `vellum replica export POOL`, or `vellum umount --export-replica \
             DIR`; then take the device along",
        ),
        vellum::Error::Medium(MediumError::ReplicaDamaged { .. }) => failure
            .advise("where its pool is: `vellum replica export --all POOL` writes all of it again"),
        vellum::Error::Medium(MediumError::Unordered { .. }) => {
            failure.advise(location::TRY_IN_MEMORY)
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
