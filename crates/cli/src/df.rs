//! `vellum df`: the space of pools.

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use serde::Serialize;
use vellum::PoolPath;
use vellum_fuse::mounts::{self, Mounted};
use vellum_terminal::output::{print, print_json};
use vellum_terminal::{Failure, Outcome, Printing};

use crate::args::Opening;
use crate::info;
use crate::location::PathInPool;
use crate::units::{in_kib, in_letters};
use crate::way::Way;

#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Without a POOL: of all pools that are mounted here. In a directory whose new files inherit its \
project, the space is what the project may have.

Examples:
  vellum df -h pool.img
  vellum df -i pool.img
  vellum df --json | jq '.[].available_bytes'"
)]
pub(crate) struct Df {
    /// Pools, directories on which they are mounted, or POOL:/path
    #[arg(value_name = "POOL")]
    places: Vec<PathInPool>,
    /// Show sizes with K, M, G or T (powers of 1024), not in KiB
    #[arg(long, short)]
    human_readable: bool,
    /// Show numbers of files, not sizes
    #[arg(long, short)]
    inodes: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    opening: Opening,
}

/// What `--json` prints of a pool.
#[derive(Serialize)]
struct Line {
    pool: PathBuf,
    mounted_on: Option<PathBuf>,
    bytes: u64,
    used_bytes: u64,
    available_bytes: u64,
    files: u64,
    files_used: u64,
    files_available: u64,
}

/// Shows the space of pools, and then fails if that of some could not be read.
pub(crate) fn run(args: &Df) -> Outcome {
    let places = match &args.places[..] {
        [] => mounted()?,
        named => named.to_vec(),
    };
    let (mut lines, mut outcome) = (Vec::new(), Ok(()));
    for place in &places {
        match Line::of(place, &args.opening) {
            Ok(line) => lines.push(line),
            Err(failure) => outcome = outcome.and(Err(failure)),
        }
    }
    match args.printing.json {
        _ if lines.is_empty() && outcome.is_err() => {}
        true => print_json(&lines)?,
        false => print(table(&lines, args))?,
    }
    outcome
}

/// The pools that are mounted here.
fn mounted() -> Outcome<Vec<PathInPool>> {
    let all = mounts::list().map_err(|error| Failure::io("listing the mounts", &error))?;
    let live = all.into_iter().filter(|mounted| !mounted.is_dead());
    let place = |mounted: Mounted| PathInPool {
        pool: mounted.dir,
        path: "/".into(),
    };
    Ok(live.map(place).collect())
}

/// The place that a user means who names a pool, a directory of a mount, or a path in a pool.
fn meant(place: &PathInPool) -> Outcome<PathInPool> {
    if !place.path.as_os_str().is_empty() {
        return Ok(place.clone());
    }
    let root = PathInPool {
        pool: place.pool.clone(),
        path: "/".into(),
    };
    if !place.pool.is_dir() || info::mount_of(&place.pool).is_some() {
        return Ok(root);
    }
    let failed = |error| Failure::io(place.pool.display(), &error);
    let dir = place.pool.canonicalize().map_err(failed)?;
    let around = mounts::around(&dir).map_err(failed)?;
    let inside = around.and_then(|mounted| {
        let below = dir.strip_prefix(&mounted.dir).ok()?;
        let path = Path::new("/").join(below);
        Some(PathInPool {
            pool: mounted.dir,
            path,
        })
    });
    Ok(inside.unwrap_or(root))
}

impl Line {
    fn of(place: &PathInPool, opening: &Opening) -> Outcome<Self> {
        let place = meant(place)?;
        let mounted = info::live_mount_of(&place.pool);
        let way = Way::to(&place, opening, true)?;
        let space = way.files().space(&place.path);
        way.close()?;
        let space = space.map_err(|trouble| place.troubled(&trouble))?;
        let pool = match &mounted {
            Some(mounted) => mounted.pool.clone(),
            None => PoolPath::of(&place.pool).resolved().path(),
        };
        Ok(Self {
            pool,
            mounted_on: mounted.map(|mounted| mounted.dir),
            bytes: space.bytes,
            used_bytes: space.bytes - space.bytes_free,
            available_bytes: space.bytes_free,
            files: space.files,
            files_used: space.files - space.files_free,
            files_available: space.files_free,
        })
    }

    /// The columns of a table.
    fn columns(&self, args: &Df) -> [String; 6] {
        let shown = |bytes| match args.human_readable {
            true => in_letters(bytes),
            false => in_kib(bytes),
        };
        let ([all, used, available], share) = match args.inodes {
            true => (
                [self.files, self.files_used, self.files_available].map(|files| files.to_string()),
                share(self.files_used, self.files),
            ),
            false => (
                [self.bytes, self.used_bytes, self.available_bytes].map(shown),
                share(self.used_bytes, self.bytes),
            ),
        };
        let dir = self.mounted_on.as_ref();
        let dir = dir.map_or_else(|| "-".into(), |dir| dir.display().to_string());
        [
            self.pool.display().to_string(),
            all,
            used,
            available,
            share,
            dir,
        ]
    }
}

/// A share in percent, rounded up as df(1) does.
fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".into(),
        _ => format!("{}%", (u128::from(part) * 100).div_ceil(whole.into())),
    }
}

fn table(lines: &[Line], args: &Df) -> String {
    let heads = match (args.inodes, args.human_readable) {
        (true, _) => [
            "Filesystem",
            "Inodes",
            "IUsed",
            "IFree",
            "IUse%",
            "Mounted on",
        ],
        (false, true) => ["Filesystem", "Size", "Used", "Avail", "Use%", "Mounted on"],
        (false, false) => [
            "Filesystem",
            "1K-blocks",
            "Used",
            "Available",
            "Use%",
            "Mounted on",
        ],
    };
    let mut rows = vec![heads.map(String::from)];
    rows.extend(lines.iter().map(|line| line.columns(args)));
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..5).map(width).collect();
    let mut text = String::new();
    for [pool, numbers @ .., dir] in &rows {
        text += &format!("{pool:width$}", width = widths[0]);
        for (number, width) in numbers.iter().zip(&widths[1..]) {
            text += &format!(" {number:>width$}");
        }
        text += &format!(" {dir}\n");
    }
    text
}
