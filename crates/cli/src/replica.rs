//! `vellum replica`: the metadata replica, with which the external data device of a pool can move
//! to another machine.

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
    /// Export the metadata of a pool to its external data device
    Export(Export),
    /// Create a pool from the metadata replica on an external data device
    Import(Import),
}

#[derive(Debug, Args)]
#[command(after_help = "\
For pools in persistent memory (or memory) with an external data device. The device has space for \
a replica of the metadata; this command writes the blocks that changed since the last export. From \
then until the pool is opened for writing again, the device alone holds the whole file system.

Examples:
  vellum replica export /mnt/pmem/pool
  vellum umount --export-replica /mnt")]
pub(crate) struct Export {
    /// The pool, which must not be in use
    pub(crate) pool: PathBuf,
    /// Write all blocks, not only the changed ones
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Before the device moves, its replica must be exported: `vellum replica export`, or `vellum umount \
--export-replica`. After the import the device belongs to the new pool, and the old pool cannot be \
opened with it.

Examples:
  vellum replica import /mnt/pmem/pool --data /dev/sdb1
  vellum replica import /dev/shm/pool --data data.img")]
pub(crate) struct Import {
    /// The pool: a new file, or a device
    pub(crate) pool: PathBuf,
    /// The external data device (or file)
    #[arg(long, value_name = "FILE")]
    pub(crate) data: PathBuf,
    /// Treat the pool's device as: persistent memory or, to try it, memory
    #[arg(long, value_enum, default_value_t)]
    pub(crate) medium: Medium,
    /// Overwrite existing contents, a pool or anything else
    #[arg(long, short)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

/// What `vellum replica export --json` writes.
#[derive(Serialize)]
struct Exported {
    pool: String,
    /// All blocks of metadata.
    metadata_blocks: u64,
    /// Blocks that had changed, or may have changed.
    blocks_changed: u64,
    /// Blocks of metadata that were written. Blocks of zeros are not written.
    blocks_written: u64,
    /// Blocks of checksums that were written with them.
    sum_blocks_written: u64,
    /// The number of this export.
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

/// Exports the replica of a pool.
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

/// Opens a pool and closes it with an exported replica on its external data device. Returns `None`
/// if the device has no space for a replica.
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
            "the pool has lost nothing; its external data device is unusable without it until this \
             succeeds",
        )
    })
}

/// The failure for a pool without a replica.
pub(crate) fn carries_none(pool: &Path) -> Failure {
    failed(pool, &MediumError::NoReplica.into())
}

/// Reports an export.
pub(crate) fn tell(pool: &Path, replica: &ExportedReplica) {
    let changed = match replica.changed {
        all if all == replica.blocks => "all blocks".to_owned(),
        changed => format!("{changed} of {} blocks", replica.blocks),
    };
    say!(
        "{}: its external data device has everything now; {changed} of metadata examined, {} \
         written",
        pool.display(),
        size(replica.written * BLOCK_BYTES)
    );
    say!("elsewhere:  vellum replica import POOL --data DEVICE");
}

/// Creates a pool from a replica.
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
            "created a pool of {} in {pool} from the replica on {data}",
            size(bytes)
        );
        say!("  uuid      {}", superblock.uuid_text());
        say!("  data on   {data}, which no other pool can use now");
        say!("mount it:   vellum mount {} DIR", quoted(&args.pool));
    }
    Ok(())
}

/// The failure of an import, and what to do.
fn refused(args: &Import, error: &vellum::Error) -> Failure {
    let failure = location::refused(&args.pool, error);
    match error {
        vellum::Error::Medium(MediumError::Stale { .. }) => failure.advise(
            "on the machine with its pool, run `vellum replica export POOL` or `vellum umount \
             --export-replica DIR`; then move the device again",
        ),
        vellum::Error::Medium(MediumError::ReplicaDamaged { .. }) => failure.advise(
            "on the machine with its pool, `vellum replica export --all POOL` writes the \
                     whole replica again",
        ),
        vellum::Error::Medium(MediumError::Unordered { .. }) => {
            failure.advise(location::TRY_IN_MEMORY)
        }
        vellum::Error::Media(vellum::media::MediaError::Exists { .. }) => failure.advise(
            "choose another name, or overwrite it with --force: its contents are then lost",
        ),
        _ => failure,
    }
}

fn failed(pool: &Path, error: &vellum::Error) -> Failure {
    Failure::new(format!("{}: {error}", pool.display()))
}
