//! `vellum dataset`: the datasets of a pool.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use vellum::media::MediaError;
use vellum::{Dataset, DatasetError, Pool, PoolPath, uuid_text};
use vellum_terminal::output::{print, print_json, say};
use vellum_terminal::{Failure, Outcome, Printing, plain, quoted};

use crate::args::{Making, Opening};
use crate::location;
use crate::mkfs::{self, Plan};
use crate::units::size;

/// What to do with the datasets of a pool.
#[derive(Debug, Subcommand)]
pub(crate) enum Datasets {
    /// List the datasets of a pool
    List(List),
    /// Add a dataset to a pool
    Add(Box<Add>),
    /// Remove a dataset from a pool
    Remove(Remove),
}

#[derive(Debug, Args)]
#[command(after_help = "\
The pool may be in use.

Examples:
  vellum dataset list pool.img
  vellum dataset list --json pool.img | jq '.datasets[].name'")]
pub(crate) struct List {
    /// The pool
    pub(crate) pool: PathBuf,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The pool must not be in use. A pool in a file grows by the size of the dataset; a device has space \
only if its pool was created with a smaller --size. A pool has at most eight datasets. Commands \
take POOL:NAME in place of POOL; the first dataset of a pool is `main`.

Examples:
  vellum dataset add pool.img builds --size 4G
  vellum dataset add pool.img photos --data /dev/sdb1
  vellum mount pool.img:builds /mnt")]
pub(crate) struct Add {
    /// The pool
    pub(crate) pool: PathBuf,
    /// The name of the dataset: 1 to 63 bytes without `/` and `:`
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) making: Making,
    /// Overwrite the contents of the external data device
    #[arg(long, short)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The pool must not be in use. A dataset that has files or cannot be read is removed only with \
--force. Its external data device is left as it is.

Examples:
  vellum dataset remove pool.img builds
  vellum dataset remove --force pool.img photos")]
pub(crate) struct Remove {
    /// The pool
    pub(crate) pool: PathBuf,
    /// The dataset
    pub(crate) name: String,
    /// Remove it with all its files
    #[arg(long, short)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

/// What `vellum dataset list --json` writes.
#[derive(Serialize)]
struct Listed {
    pool: String,
    datasets: Vec<Line>,
}

/// A dataset in the list.
#[derive(Clone, Debug, Serialize, serde::Deserialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) uuid: String,
    /// Its offset in the pool's file or device.
    pub(crate) at: u64,
    /// Its size there.
    pub(crate) bytes: u64,
    /// How names are kept.
    #[serde(default)]
    pub(crate) namespace: Option<String>,
    /// How file blocks are found.
    #[serde(default)]
    pub(crate) mapping: Option<String>,
    /// What makes its metadata durable: `log`, `undo log` or `medium`.
    #[serde(default)]
    pub(crate) durable_by: Option<String>,
    /// Bytes for data.
    #[serde(default)]
    pub(crate) data_bytes: Option<u64>,
    /// The last path of its external data device, if it has one.
    #[serde(default)]
    pub(crate) data: Option<PathBuf>,
    /// Why it cannot be opened.
    #[serde(default)]
    pub(crate) error: Option<String>,
}

impl Line {
    fn of(fs: Dataset) -> Self {
        let own = fs.superblock.as_ref().ok();
        let geometry = own.map(|own| own.geometry());
        let durable_by = geometry.map(|of| match (of.is_logged(), of.has_undo()) {
            (true, _) => "log",
            (_, true) => "undo log",
            _ => "medium",
        });
        Self {
            uuid: own.map_or_else(|| uuid_text(&fs.uuid), |own| own.uuid_text()),
            namespace: geometry.map(|of| of.namespace.name().to_owned()),
            mapping: geometry.map(|of| of.mapping.name().to_owned()),
            durable_by: durable_by.map(str::to_owned),
            data_bytes: geometry.map(|of| of.data_bytes()),
            error: fs.superblock.as_ref().err().map(ToString::to_string),
            name: fs.name,
            at: fs.at,
            bytes: fs.bytes,
            data: fs.data,
        }
    }
}

/// What `vellum dataset remove --json` writes.
#[derive(Serialize)]
struct Removed {
    pool: String,
    name: String,
    uuid: String,
    /// Its external data device, which is left as it was.
    data: Option<PathBuf>,
}

impl Datasets {
    pub(crate) fn printing(&self) -> Printing {
        match self {
            Self::List(args) => args.printing,
            Self::Add(args) => args.printing,
            Self::Remove(args) => args.printing,
        }
    }
}

pub(crate) fn run(what: &Datasets) -> Outcome {
    match what {
        Datasets::List(args) => list(args),
        Datasets::Add(args) => add(args),
        Datasets::Remove(args) => remove(args),
    }
}

/// The datasets of a pool.
pub(crate) fn lines(pool: &Path) -> Outcome<Vec<Line>> {
    Ok(found(pool)?.into_iter().map(Line::of).collect())
}

fn found(pool: &Path) -> Outcome<Vec<Dataset>> {
    Pool::datasets(pool).map_err(|error| match &error {
        vellum::Error::Io(io) => Failure::new(format!("{}: {}", pool.display(), plain(io))),
        _ => location::refused(pool, &error),
    })
}

fn list(args: &List) -> Outcome {
    let datasets = lines(&args.pool)?;
    if args.printing.json {
        return print_json(&Listed {
            pool: args.pool.display().to_string(),
            datasets,
        });
    }
    let width = datasets.iter().map(|line| line.name.chars().count());
    let width = width.max().unwrap_or(0);
    for line in &datasets {
        say!("{:width$}  {}  {}", line.name, line.uuid, told(line));
    }
    Ok(())
}

/// The description of a dataset, in one line.
pub(crate) fn told(line: &Line) -> String {
    let bytes = size(line.bytes);
    let (Some(namespace), Some(mapping)) = (&line.namespace, &line.mapping) else {
        let why = line.error.as_deref().unwrap_or("cannot be read");
        return format!("{bytes}: {why}");
    };
    let data = match (&line.data, line.data_bytes) {
        (Some(data), Some(bytes)) => format!(", {} of data on {}", size(bytes), data.display()),
        _ => String::new(),
    };
    let log = match line.durable_by.as_deref() {
        Some("log") => ", with a log",
        _ => "",
    };
    format!("{bytes}, {namespace}, {mapping}{log}{data}")
}

/// Adds a dataset.
fn add(args: &Add) -> Outcome {
    if args.making.asks_for_keys() {
        return print(mkfs::tuning::help());
    }
    // Fails first if there is no pool at all.
    found(&args.pool)?;
    let making = &args.making;
    let place = PoolPath {
        pool: args.pool.clone(),
        name: Some(args.name.clone()),
    };
    let plan = Plan::of(making, &args.pool, args.force)?;
    let size_bytes = match making.size {
        Some(size) => size,
        None if making.data.is_some() => 0,
        None => {
            let (pool, name) = (args.pool.display(), &args.name);
            return Err(
                Failure::usage(format!("{pool}:{name}: the size is missing")).advise(format!(
                    "vellum dataset add {} {} --size 4G",
                    quoted(&args.pool),
                    quoted(name)
                )),
            );
        }
    };
    let options = plan.options(making, size_bytes);
    let made = Pool::add_dataset(&args.pool, &args.name, &options);
    let made = made.map_err(|error| {
        // A dataset that is in the table but could not be opened keeps its data.
        let listed = Pool::datasets(&args.pool);
        if listed.is_ok_and(|all| all.iter().all(|fs| fs.name != args.name)) {
            plan.forget_data();
        }
        plan.refused(&args.pool, &error)
    })?;
    mkfs::tell(made, &place.path(), making, args.printing)
}

/// Removes a dataset.
fn remove(args: &Remove) -> Outcome {
    let place = PoolPath {
        pool: args.pool.clone(),
        name: Some(args.name.clone()),
    };
    let known = found(&args.pool)?;
    let known = known.into_iter().find(|fs| fs.name == args.name);
    let removed = if args.force {
        Pool::remove_dataset(&args.pool, &args.name)
    } else {
        Pool::remove_empty_dataset(&args.pool, &args.name, &args.opening.options(true))
    };
    removed.map_err(|error| not_removed(&args.pool, &error))?;
    let (id, data) = known.map_or_else(Default::default, |fs| (fs.uuid, fs.data));
    if args.printing.json {
        return print_json(&Removed {
            pool: args.pool.display().to_string(),
            name: args.name.clone(),
            uuid: uuid_text(&id),
            data,
        });
    }
    if args.printing.has_summary() {
        say!("removed {}", place.path().display());
        if let Some(data) = data {
            say!(
                "its data are still on {}, but no longer belong to any pool",
                data.display()
            );
        }
    }
    Ok(())
}

/// The failure for a dataset that could not be removed.
fn not_removed(pool: &Path, error: &vellum::Error) -> Failure {
    match error {
        vellum::Error::Dataset(DatasetError::Unread { path, source }) if is_busy(source) => {
            location::refused(path, source)
        }
        vellum::Error::Dataset(DatasetError::NotEmpty { .. } | DatasetError::Unread { .. }) => {
            Failure::new(error.to_string()).advise("use --force to remove it with all its files")
        }
        _ => location::refused(pool, error),
    }
}

fn is_busy(error: &vellum::Error) -> bool {
    matches!(error, vellum::Error::Media(MediaError::Busy { .. }))
}
