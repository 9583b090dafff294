//! `vellum info --images` and `vellum prune`: metadata of pools in memory, which killed processes left.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use serde::Serialize;
use vellum::media::{KeptImage, PoolIs, images_in, remove_image};
use vellum::{Pool, boot_id, uuid_text};
use vellum_terminal::output::{print, print_json, say};
use vellum_terminal::{Failure, Outcome, status};

use crate::units::size;

/// Where images are, if nothing else is said.
const SHARED_DIR: &str = "/dev/shm";

#[derive(Debug, Args)]
#[command(after_help = "\
A killed process leaves the metadata of its pool in memory, and the next opening of the pool takes them in. This removes those
whose pool is gone for ever: nobody would take them in. `vellum mount` and `vellum mkfs` do the same in /dev/shm. What cannot be
told (a file system that is not mounted now, a file that only root can look for) stays, unless it is named or --force is given.
`vellum info --images` lists all of them.

Examples:
  vellum prune
  vellum prune --force
  vellum prune vellum-7ba20133...")]
pub(crate) struct Prune {
    /// Images as `vellum info --images` lists them, by path or name [default: those whose pool is gone]
    pub(crate) images: Vec<PathBuf>,
    /// Those of which it cannot be told whether their pool is gone, too. What they have that was not synced is lost
    #[arg(long, short, conflicts_with = "images")]
    pub(crate) force: bool,
    /// The directory in memory, where mounts have --image
    #[arg(long, default_value = SHARED_DIR, value_name = "DIR")]
    pub(crate) image: PathBuf,
    /// Say what would be removed, and change nothing
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Say nothing
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// An image, as it is listed.
#[derive(Clone, Debug, Serialize)]
struct Line {
    image: PathBuf,
    pool: PathBuf,
    uuid: String,
    memory_bytes: u64,
    age_s: u64,
    pid: u32,
    /// `in use`, `can be adopted`, `pool gone` or `unknown`.
    state: &'static str,
    /// Why it is not known.
    why: Option<&'static str>,
}

#[derive(Serialize)]
struct Listed {
    images: Vec<Line>,
}

/// Lists the images in a directory.
pub(crate) fn list(dir: Option<&Path>, json: bool) -> Outcome {
    let dir = dir.unwrap_or(Path::new(SHARED_DIR));
    let images: Vec<Line> = found(dir)?.iter().map(Line::of).collect();
    if json {
        return print_json(&Listed { images });
    }
    if images.is_empty() {
        return print(format!("no metadata of pools in {}\n", dir.display()));
    }
    print(images.iter().map(Line::text).collect::<String>())
}

/// Removes images.
pub(crate) fn prune(args: &Prune) -> Outcome {
    let images = found(&args.image)?;
    let chosen: Vec<&KeptImage> = if args.images.is_empty() {
        let goes = |image: &&KeptImage| match image.pool_is {
            PoolIs::Gone => true,
            PoolIs::Unknown(_) => args.force,
            PoolIs::Open | PoolIs::There(_) => false,
        };
        images.iter().filter(goes).collect()
    } else {
        let named = args.images.iter().map(|name| find(name, &images));
        named.collect::<Outcome<_>>()?
    };
    for image in chosen {
        if !args.dry_run {
            remove_image(image).map_err(|error| Failure::new(error.to_string()))?;
        }
        if !args.quiet {
            let verb = if args.dry_run {
                "would remove"
            } else {
                "removed"
            };
            let (path, pool) = (image.path.display(), image.pool.display());
            say!("{verb} {path} of {pool}, {}", size(image.memory_bytes));
        }
    }
    Ok(())
}

/// Removes the images in `/dev/shm` whose pools are gone, for whoever is about to take memory there.
pub(crate) fn sweep() {
    for image in found(Path::new(SHARED_DIR)).unwrap_or_default() {
        if image.pool_is != PoolIs::Gone {
            continue;
        }
        match remove_image(&image) {
            Ok(()) => tracing::info!(
                "removed {}: its pool, {}, is gone",
                image.path.display(),
                image.pool.display()
            ),
            Err(error) => tracing::info!(%error, "an image whose pool is gone stays"),
        }
    }
}

/// The images in a directory; that a pool has been made anew in its file is seen, too.
fn found(dir: &Path) -> Outcome<Vec<KeptImage>> {
    let mut images =
        images_in(dir, boot_id()).map_err(|error| Failure::io(dir.display(), &error))?;
    for image in &mut images {
        if let PoolIs::There(Some(path)) = &image.pool_is
            && is_another(path, &image.uuid)
        {
            image.pool_is = PoolIs::Gone;
        }
    }
    Ok(images)
}

/// Whether there is a pool in a file none of whose file systems is this one. A block device may be another one by now, under the same number.
fn is_another(path: &Path, uuid: &[u8; 16]) -> bool {
    let is_file = path.metadata().is_ok_and(|found| found.is_file());
    let all = Pool::file_systems(path).unwrap_or_default();
    let is_known = |fs: &vellum::FileSystem| fs.superblock.is_ok();
    is_file && !all.is_empty() && all.iter().all(is_known) && all.iter().all(|fs| fs.uuid != *uuid)
}

/// The image of this path or name, if it may be removed.
fn find<'i>(name: &Path, images: &'i [KeptImage]) -> Outcome<&'i KeptImage> {
    let place = name.display();
    let is_it = |image: &&KeptImage| {
        image.path == *name || image.path.file_name() == Some(name.as_os_str())
    };
    let image = images.iter().find(is_it).ok_or_else(|| {
        Failure::new(format!("{place}: no such image")).advise("`vellum info --images` lists them")
    })?;
    match &image.pool_is {
        PoolIs::Gone | PoolIs::Unknown(_) => Ok(image),
        PoolIs::Open => Err(
            Failure::new(format!("{place}: process {} works on it", image.pid))
                .with_status(status::BUSY),
        ),
        PoolIs::There(now) => {
            let pool = now.as_deref().unwrap_or(&image.pool).display();
            Err(Failure::new(format!(
                "{place}: the next opening of its pool, {pool}, takes it in"
            ))
            .advise(format!(
                "`vellum repair --last-epoch {pool}` gives up what it has that was not synced"
            )))
        }
    }
}

impl Line {
    fn of(image: &KeptImage) -> Self {
        let (state, why) = match image.pool_is {
            PoolIs::Open => ("in use", None),
            PoolIs::There(_) => ("can be adopted", None),
            PoolIs::Gone => ("pool gone", None),
            PoolIs::Unknown(why) => ("unknown", Some(why)),
        };
        let now = match &image.pool_is {
            PoolIs::There(Some(path)) => path,
            _ => &image.pool,
        };
        let age = SystemTime::now().duration_since(image.since);
        Self {
            image: image.path.clone(),
            pool: now.clone(),
            uuid: uuid_text(&image.uuid),
            memory_bytes: image.memory_bytes,
            age_s: age.map_or(0, |age| age.as_secs()),
            pid: image.pid,
            state,
            why,
        }
    }

    fn text(&self) -> String {
        let told = match (self.state, self.why) {
            ("in use", _) => format!("in use by process {}", self.pid),
            ("can be adopted", _) => {
                "can be adopted: the next opening of the pool takes it in".to_owned()
            }
            ("pool gone", _) => "pool gone: `vellum prune` removes it".to_owned(),
            (_, why) => format!(
                "kept: {}; `vellum prune --force` removes it",
                why.unwrap_or_default()
            ),
        };
        format!(
            "{}\n  pool    {}\n  uuid    {}\n  memory  {}\n  age     {}\n  state   {told}\n",
            self.image.display(),
            self.pool.display(),
            self.uuid,
            size(self.memory_bytes),
            age(self.age_s),
        )
    }
}

/// A time in the largest unit that it has two of.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}
