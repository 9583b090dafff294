//! `vellum info --images` and `vellum prune`: the metadata images that killed processes left in
//! memory.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use serde::Serialize;
use vellum::media::{KeptImage, MediaError, PoolIs, images_in, remove_image};
use vellum::{Pool, PoolPath, SuperblockError, boot_id, uuid_text};
use vellum_terminal::output::{print, print_json, say, warn_line};
use vellum_terminal::{Failure, Outcome, Printing, quoted, status};

use crate::bytes::Bytes;
use crate::killed::{self, Fit};
use crate::location::user;
use crate::units::size;

/// The default directory of images.
pub(crate) const SHARED_DIR: &str = "/dev/shm";

#[derive(Debug, Args)]
#[command(after_help = "\
A killed process leaves the metadata of its pool in memory as an image, and the next opening of \
the pool adopts the image. This command removes images whose pool is gone for ever, which no \
opening can adopt. `vellum mount` and `vellum mkfs` do the same in /dev/shm. An image stays if the \
fate of its pool is unknown (a file system that is not mounted now, a device without a pool now, a \
file that only root can look for), unless it is named or --force is given. An image that the next \
opening would adopt is removed only if it is named and --force is given; its unsynced changes are \
then lost. `vellum info --images` lists all images.

Examples:
  vellum prune
  vellum prune --force
  vellum prune --force vellum-7ba20133...
  vellum prune vellum-7ba20133...")]
pub(crate) struct Prune {
    /// Images from the list of `vellum info --images`, by path or name [default: those whose pool
    /// is gone]
    pub(crate) images: Vec<PathBuf>,
    /// Also remove images whose pool may still exist (state `unknown`). With names, remove every
    /// named image that is not in use. Their unsynced changes are lost
    #[arg(long, short)]
    pub(crate) force: bool,
    /// The directory with the images, if mounts use --image
    #[arg(long, default_value = SHARED_DIR, value_name = "DIR")]
    pub(crate) image: PathBuf,
    /// Show what would be removed, and change nothing
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

/// An image in the list.
#[derive(Clone, Debug, Serialize)]
struct Line {
    image: PathBuf,
    pool: PathBuf,
    uuid: String,
    memory_bytes: u64,
    age_s: u64,
    pid: u32,
    /// `in use`, `can be adopted`, `does not fit`, `pool gone` or `unknown`.
    state: &'static str,
    /// Why the state is unknown.
    why: Option<&'static str>,
    /// The state in words, for people.
    #[serde(skip)]
    told: String,
}

#[derive(Serialize)]
struct Listed {
    images: Vec<Line>,
}

/// What `vellum prune --json` writes.
#[derive(Serialize)]
struct Removed {
    /// True: they were removed; false: they would be removed.
    removed: bool,
    images: Vec<Line>,
}

/// The state of an image, which decides what happens to it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// A process uses it.
    Open,
    /// Its pool exists, and the next opening adopts it.
    There(PathBuf),
    /// Its pool exists, but its file is older than the image.
    Later(PathBuf),
    /// Its pool is gone for ever.
    Gone,
    /// It belongs to another user.
    Foreign,
    /// It is unknown whether an opening can adopt it, for this reason.
    Unknown(&'static str),
}

/// An image that was found.
struct Found {
    image: KeptImage,
    state: State,
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
    let chosen: Vec<&Found> = if args.images.is_empty() {
        let goes = |found: &&Found| match found.state {
            State::Gone => true,
            State::Unknown(_) => args.force,
            State::Open | State::There(_) | State::Later(_) | State::Foreign => false,
        };
        images.iter().filter(goes).collect()
    } else {
        let named = args.images.iter().map(|name| find(name, &images));
        let named = named.collect::<Outcome<Vec<_>>>()?;
        for found in &named {
            found.admit(args.force)?;
        }
        named
    };
    for found in &chosen {
        if !args.dry_run {
            remove_image(&found.image).map_err(|error| Failure::new(error.to_string()))?;
        }
        if args.printing.has_summary() {
            found.tell_removed(args.dry_run);
        }
    }
    match args.printing.json {
        true => print_json(&Removed {
            removed: !args.dry_run,
            images: chosen.into_iter().map(Line::of).collect(),
        }),
        false => Ok(()),
    }
}

/// Removes the images in `/dev/shm` whose pools are gone, before a command needs memory there. An
/// image stays if a copy of its pool, perhaps at `named`, would adopt it or fail because of it.
pub(crate) fn sweep(named: Option<&Path>) {
    let images = images_in(Path::new(SHARED_DIR), boot_id());
    let named = named.map(|path| PoolPath::of(path).pool);
    for image in images.unwrap_or_default() {
        let is_wanted = |path: &Path| copy_at(path, &image, Path::new(SHARED_DIR)).is_some();
        if !is_gone(&image) || is_wanted(&image.pool) || named.as_deref().is_some_and(is_wanted) {
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

/// Whether the pool is gone. It also counts as gone if its file holds another pool.
fn is_gone(image: &KeptImage) -> bool {
    match &image.pool_is {
        PoolIs::Gone => true,
        PoolIs::There(Some(path)) => !is_device(path) && held_by(path, image) == Held::Another,
        _ => false,
    }
}

/// The images in a directory, with their states.
fn found(dir: &Path) -> Outcome<Vec<Found>> {
    let images = images_in(dir, boot_id()).map_err(|error| Failure::io(dir.display(), &error))?;
    let dir = dir
        .canonicalize()
        .map_err(|error| Failure::io(dir.display(), &error))?;
    let of = |image: KeptImage| {
        let state = match &image.pool_is {
            PoolIs::Open => State::Open,
            PoolIs::Gone => copy_at(&image.pool, &image, &dir).unwrap_or(State::Gone),
            PoolIs::Foreign => State::Foreign,
            PoolIs::Unknown(why) => State::Unknown(why),
            PoolIs::There(None) => State::There(image.pool.clone()),
            PoolIs::There(Some(path)) => state_at(path, &image, &dir),
        };
        Found { image, state }
    };
    Ok(images.into_iter().map(of).collect())
}

/// The state of an image in `dir` whose pool was in the existing file or device at `path`.
fn state_at(path: &Path, image: &KeptImage, dir: &Path) -> State {
    let there = || State::There(path.to_owned());
    match (held_by(path, image), is_device(path)) {
        (Held::Own(name), _) => {
            let place = PoolPath {
                pool: path.to_owned(),
                name: Some(name).filter(|name| name != PoolPath::of(path).dataset()),
            };
            match Bytes::unlocked(&place).and_then(|bytes| killed::fit(&bytes, dir)) {
                Some(Fit::Taken) | None => State::There(place.path()),
                Some(Fit::Later) => State::Later(place.path()),
                Some(Fit::Useless) => State::Unknown("its pool does not need it"),
            }
        }
        (Held::Another, false) => State::Gone,
        // The device number may belong to another device by now.
        (Held::Another, true) => State::Unknown("its device holds another pool"),
        (Held::None, false) => State::Unknown("its file holds no pool"),
        (Held::None, true) => State::Unknown("its device holds no pool"),
        (Held::Unknown, _) => there(),
    }
}

/// The state of an image in `dir` whose pool is gone, if `path` has a copy of the pool that would
/// adopt the image or fail because of it.
fn copy_at(path: &Path, image: &KeptImage, dir: &Path) -> Option<State> {
    let state = state_at(path, image, dir);
    let is_copy = matches!(held_by(path, image), Held::Own(_));
    (is_copy && matches!(state, State::There(_) | State::Later(_))).then_some(state)
}

/// What the file or device of an image's pool holds now.
#[derive(Debug, PartialEq, Eq)]
enum Held {
    /// The same pool; the image belongs to the dataset of this name.
    Own(String),
    /// Another pool.
    Another,
    /// No pool.
    None,
    /// It is unknown.
    Unknown,
}

fn held_by(path: &Path, image: &KeptImage) -> Held {
    let all = match Pool::datasets(path) {
        Ok(all) => all,
        Err(
            vellum::Error::Superblock(SuperblockError::NotVellum)
            | vellum::Error::Media(MediaError::Empty { .. }),
        ) => return Held::None,
        Err(_) => return Held::Unknown,
    };
    let is_known = |fs: &vellum::Dataset| fs.superblock.is_ok();
    match all.iter().find(|fs| fs.uuid == image.uuid) {
        Some(own) => Held::Own(own.name.clone()),
        None if !all.is_empty() && all.iter().all(is_known) => Held::Another,
        None => Held::Unknown,
    }
}

fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file())
}

/// The image with this path or name.
fn find<'i>(name: &Path, images: &'i [Found]) -> Outcome<&'i Found> {
    let place = name.display();
    let is_it = |found: &&Found| {
        let path = &found.image.path;
        path == name || path.file_name() == Some(name.as_os_str())
    };
    images.iter().find(is_it).ok_or_else(|| {
        Failure::new(format!("{place}: no such image")).advise("`vellum info --images` lists them")
    })
}

impl Found {
    /// Reports that an image was removed, or would be removed, and what is lost with it.
    fn tell_removed(&self, is_dry_run: bool) {
        let Self { image, state } = self;
        let (verb, lost) = match is_dry_run {
            true => ("would remove", "would be lost"),
            false => ("removed", "are lost"),
        };
        let (path, pool) = (image.path.display(), image.pool.display());
        say!("{verb} {path} of {pool}, {}", size(image.memory_bytes));
        if *state != State::Gone {
            warn_line!("vellum: {path}: the unsynced changes of its pool {lost}");
        }
    }

    /// Fails if the image is in use or belongs to another user, or if its pool needs it and `force`
    /// is false.
    fn admit(&self, force: bool) -> Outcome {
        let image = self.image.path.display();
        let failed = |why: String| Failure::new(format!("{image}: {why}"));
        let force_it = format!(
            "`vellum prune --force {}` removes it, with the same loss",
            quoted(&self.image.path)
        );
        match &self.state {
            State::Gone | State::Unknown(_) => Ok(()),
            State::Open => {
                let why = format!("process {} uses it", self.image.pid);
                Err(failed(why).with_status(status::BUSY))
            }
            State::Foreign => Err(failed(others(self.image.owner))),
            State::There(_) | State::Later(_) if force => Ok(()),
            State::There(pool) => {
                let why = format!(
                    "the next opening of its pool, {}, adopts it",
                    pool.display()
                );
                let pool = quoted(pool);
                Err(failed(why).advise(format!(
                    "`vellum repair --discard-image {pool}` discards its unsynced changes; \
                     {force_it}"
                )))
            }
            State::Later(pool) => {
                let why = format!("it is newer than its pool's file, {}", pool.display());
                let pool = quoted(pool);
                Err(failed(why).advise(format!(
                    "put the right file back, and the next opening adopts the image; or `vellum \
                     repair --discard-image {pool}` discards its unsynced changes; {force_it}"
                )))
            }
        }
    }
}

/// Names the users who can remove an image of this owner.
fn others(owner: u32) -> String {
    match owner {
        0 => "it belongs to root, and only root can read and remove it".into(),
        _ => format!(
            "it belongs to {}; only that user and root can remove it",
            user(owner)
        ),
    }
}

impl Line {
    fn of(found: &Found) -> Self {
        let Found { image, state } = found;
        let (name, why, told) = match state {
            State::Open => ("in use", None, format!("in use by process {}", image.pid)),
            State::There(_) => (
                "can be adopted",
                None,
                "can be adopted: the next opening of the pool adopts it".into(),
            ),
            State::Later(pool) => (
                "does not fit",
                None,
                format!(
                    "does not fit: it is newer than the pool's file, so the pool cannot be opened; \
                     put the right file back, or `vellum repair --discard-image {}` discards it",
                    quoted(pool)
                ),
            ),
            State::Gone => (
                "pool gone",
                None,
                "pool gone: `vellum prune` removes it".into(),
            ),
            State::Foreign => (
                "unknown",
                Some("it belongs to another user"),
                format!("kept: {}", others(image.owner)),
            ),
            State::Unknown(why) => (
                "unknown",
                Some(*why),
                format!(
                    "kept: {why}; `vellum prune --force {}` removes it",
                    quoted(&image.path)
                ),
            ),
        };
        let now = match state {
            State::There(path) | State::Later(path) => path,
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
            state: name,
            why,
            told,
        }
    }

    fn text(&self) -> String {
        format!(
            "{}\n  pool    {}\n  uuid    {}\n  memory  {}\n  age     {}\n  state   {}\n",
            self.image.display(),
            self.pool.display(),
            self.uuid,
            size(self.memory_bytes),
            age(self.age_s),
            self.told,
        )
    }
}

/// Shows a duration in the largest unit that fits into it twice.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}
