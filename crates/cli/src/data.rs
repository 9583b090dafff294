//! `vellum data`: the external data devices of a pool.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use vellum::{Pool, PoolPath, uuid_text};
use vellum_terminal::output::{print_json, say};
use vellum_terminal::{Outcome, Printing, quoted};

use crate::args::Opening;
use crate::location;
use crate::mkfs;
use crate::units::{parse_size, size};

/// What to do with the external data devices of a pool.
#[derive(Debug, Subcommand)]
pub(crate) enum DataDevices {
    /// Add a file or device to those that have the data of a pool
    Add(Add),
}

#[derive(Debug, Args)]
#[command(after_help = "\
The pool has its data on a file or device of their own (vellum mkfs --data), and is not in use. It \
has as many bytes more then as the new file or device has room for, and needs all of its media \
from there on; none can be taken away again. A pool has at most eight, with 4 TiB together. \
`vellum info` lists them.

Examples:
  vellum data add pool.img /dev/sdc1
  vellum data add pool.img more.img --size 8G")]
pub(crate) struct Add {
    /// The pool, or POOL:NAME
    pub(crate) pool: PathBuf,
    /// The file, which is made, or the block device
    pub(crate) device: PathBuf,
    /// Bytes of the file, with K, M, G or T (binary); a device is taken whole without it
    #[arg(long, value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// Overwrite what is on the file or device
    #[arg(long, short)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

/// What `vellum data add --json` writes.
#[derive(Serialize)]
struct Added {
    pool: String,
    medium: PathBuf,
    /// Its identity, which the pool knows it by.
    id: String,
    /// Bytes for data that it has.
    data_bytes: u64,
}

impl DataDevices {
    pub(crate) fn printing(&self) -> Printing {
        match self {
            Self::Add(args) => args.printing,
        }
    }
}

pub(crate) fn run(what: &DataDevices) -> Outcome {
    match what {
        DataDevices::Add(args) => add(args),
    }
}

fn add(args: &Add) -> Outcome {
    let (pool, asked) = (args.pool.display(), (args.size, args.force));
    let word = quoted(&args.pool);
    let hint = |medium: &Path| format!("vellum data add {word} {} --size 100G", quoted(medium));
    let data = mkfs::external(&PoolPath::of(&args.pool).pool, &args.device, asked, hint)?;
    let added = Pool::add_data(&args.pool, &data, &args.opening.options(false));
    let added = added.map_err(|error| location::refused(&args.pool, &error))?;
    let data_bytes = added.blocks * 4096;
    if args.printing.json {
        return print_json(&Added {
            pool: args.pool.display().to_string(),
            medium: args.device.clone(),
            id: uuid_text(&added.id),
            data_bytes,
        });
    }
    if args.printing.has_summary() {
        let medium = args.device.display();
        say!("{pool}: {} more for data, in {medium}", size(data_bytes));
    }
    Ok(())
}
