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
    /// Add an external data device (or file) to a pool
    Add(Add),
}

#[derive(Debug, Args)]
#[command(after_help = "\
The pool must have an external data device already (vellum mkfs --data), and must not be in use. \
It grows by the space on the new device, and from then on needs all its devices; none can be \
removed again. A pool has at most eight, with 4 TiB in all. `vellum info` lists them.

Examples:
  vellum data add pool.img /dev/sdc1
  vellum data add pool.img more.img --size 8G")]
pub(crate) struct Add {
    /// The pool, or POOL:NAME
    pub(crate) pool: PathBuf,
    /// The block device, or the file, which is created
    pub(crate) device: PathBuf,
    /// Size, with K, M, G or T (powers of 1024). Default: the whole device
    #[arg(long, value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// Overwrite the contents of the file or device
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
    /// The UUID by which the pool identifies it.
    id: String,
    /// Its bytes for data.
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
        say!("{pool}: {} more for data, on {medium}", size(data_bytes));
    }
    Ok(())
}
