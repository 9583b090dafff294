//! `vellum umount`: ends a mount and waits until its pool is closed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use vellum::media::is_in_use;
use vellum::{Pool, PoolPath};
use vellum_fuse::mounts::{self, Mounted};

use crate::args::{Opening, Umount};
use crate::carry;
use crate::failure::{Failure, Outcome, status};

const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long a mount may be busy before that is said: users that are just ending take a moment.
const BUSY_FOR: Duration = Duration::from_millis(500);

/// Unmounts.
pub(crate) fn run(args: &Umount) -> Outcome {
    let found = named(&args.dir)?;
    // Whatever becomes of one, the others go on; the first failure is given.
    let mut outcome = Ok(());
    let mut ended = Vec::new();
    for mounted in &found {
        let closing = Closing::of(&mounted.pool);
        match unmount(&mounted.dir, args.lazy) {
            Ok(()) => ended.push(closing),
            Err(error) => outcome = outcome.and(Err(cannot(&mounted.dir, &error))),
        }
    }
    if args.lazy {
        return outcome;
    }
    for closing in &ended {
        outcome = outcome.and(closing.wait(Duration::from_secs(args.timeout)));
    }
    if args.flush {
        let opening = Opening {
            media: args.media,
            data: Vec::new(),
        };
        for closing in ended {
            outcome = outcome.and(flush(closing.path, &opening, found.len() == 1));
        }
    }
    outcome
}

/// Makes whole what the data medium carries. One that carries nothing is passed over, unless it is the only one.
fn flush(pool: &Path, opening: &Opening, is_only: bool) -> Outcome {
    match carry::make_whole(pool, opening, false, false)? {
        Some(carried) => carry::tell(pool, &carried),
        None if is_only => return Err(carry::carries_none(pool)),
        None => eprintln!(
            "vellum: {}: not flushed: it has no data medium that carries a copy of its metadata",
            pool.display()
        ),
    }
    Ok(())
}

fn unmount(dir: &Path, lazy: bool) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match mounts::unmount(dir, lazy) {
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy && began.elapsed() < BUSY_FOR =>
            {
                std::thread::sleep(LOOK_AGAIN);
            }
            done => return done,
        }
    }
}

fn cannot(dir: &Path, error: &io::Error) -> Failure {
    let failure = Failure::io(dir.display(), error);
    match error.kind() {
        io::ErrorKind::ResourceBusy => failure.with_status(status::BUSY).advise(format!(
            "files there are in use, or it is somebody's directory: `fuser -vm {0}` shows by \
             whom; `vellum umount --lazy {0}` lets them finish",
            dir.display()
        )),
        _ => failure,
    }
}

/// What is mounted at a directory, or of a pool or file system; at least one.
pub(crate) fn named(dir: &Path) -> Outcome<Vec<Mounted>> {
    let found = find(dir).map_err(|e| Failure::io(dir.display(), &e))?;
    if found.is_empty() {
        let dir = dir.display();
        return Err(
            Failure::new(format!("nothing of Vellum is mounted on {dir}"))
                .advise("`mount -t fuse.vellum` lists what is mounted"),
        );
    }
    Ok(found)
}

/// The mount at a directory, or of a file system; those of all file systems of a pool, or of several below a directory. The directory itself is not
/// looked at: a mount whose process died cannot be.
fn find(dir: &Path) -> io::Result<Vec<Mounted>> {
    let resolved = resolved(dir)?;
    if let Some(mounted) = mounts::at(&resolved)? {
        return Ok(vec![mounted]);
    }
    let place = PoolPath::of(dir).resolved();
    if place.name.is_some() {
        return Ok(mounts::of_pool(&place.path())?.into_iter().collect());
    }
    let of_pool = mounts::of_file(&place.pool)?;
    if !of_pool.is_empty() {
        return Ok(of_pool);
    }
    let is_below = |mounted: &Mounted| {
        let place = PoolPath::of(&mounted.pool);
        mounted.dir == resolved.join(place.file_system())
    };
    let below: Vec<_> = mounts::list()?.into_iter().filter(is_below).collect();
    Ok(if are_of_one(&below) {
        below
    } else {
        Vec::new()
    })
}

/// Whether mounts are of one pool that has several file systems. Another may have been mounted by itself on a directory that is called as it is, and has
/// to be named.
fn are_of_one(mounts: &[Mounted]) -> bool {
    let mut pools = mounts
        .iter()
        .map(|mounted| PoolPath::of(&mounted.pool).pool);
    let Some(first) = pools.next() else {
        return false;
    };
    let has_several = Pool::file_systems(&first).is_ok_and(|all| all.len() > 1);
    has_several && pools.all(|pool| pool == first)
}

fn resolved(dir: &Path) -> io::Result<PathBuf> {
    let Some(name) = dir.file_name() else {
        return dir.canonicalize();
    };
    if dir.is_symlink() {
        return dir.canonicalize();
    }
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
    Ok(above.unwrap_or(Path::new(".")).canonicalize()?.join(name))
}

/// A file system that is unmounted, and closed then.
struct Closing<'p> {
    path: &'p Path,
    place: PoolPath,
    /// The pool's file, if it can be opened here.
    file: Option<File>,
    /// Whether its process, before it was unmounted, told that it has it open.
    is_held: bool,
}

impl<'p> Closing<'p> {
    fn of(path: &'p Path) -> Self {
        let place = PoolPath::of(path);
        let file = File::open(&place.pool).ok();
        let held = |file| is_in_use(file, place.file_system()).unwrap_or(false);
        Self {
            path,
            is_held: file.as_ref().is_some_and(held),
            file,
            place,
        }
    }

    /// Waits until its process has closed it; for the last one of a pool also until nobody holds the pool's lock, which is that of all before.
    fn wait(&self, limit: Duration) -> Outcome {
        let began = Instant::now();
        let Some(file) = &self.file else {
            self.tell_not_waited();
            return Ok(());
        };
        let others = mounts::of_file(&self.place.pool).unwrap_or_default();
        let is_used = |other: &Mounted| {
            other.pool == self.path && rustix::fs::statfs(&other.dir).err() != Some(Errno::NOTCONN)
        };
        if others.iter().any(is_used) {
            // It is mounted on another directory, too, by the same process or another one, and goes on being used there.
            return Ok(());
        }
        let name = self.place.file_system();
        let is_open = || self.is_held && is_in_use(file, name).unwrap_or(false);
        self.wait_while(is_open, began, limit)?;
        if mounts::of_file(&self.place.pool).is_ok_and(|others| !others.is_empty()) {
            if !self.is_held {
                self.tell_not_waited();
            }
            return Ok(());
        }
        let is_locked = || {
            let locked = rustix::fs::flock(file, FlockOperation::NonBlockingLockShared);
            // What comes next locks it by itself.
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
            matches!(locked, Err(Errno::WOULDBLOCK | Errno::INTR))
        };
        self.wait_while(is_locked, began, limit)
    }

    fn wait_while(&self, is_in_use: impl Fn() -> bool, began: Instant, limit: Duration) -> Outcome {
        while is_in_use() {
            if began.elapsed() >= limit {
                return Err(Failure::new(format!(
                    "{} is still in use {} s after it was unmounted",
                    self.path.display(),
                    limit.as_secs()
                ))
                .with_status(status::BUSY)
                .advise("it is being written back, or somebody else has opened it since"));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    fn tell_not_waited(&self) {
        eprintln!(
            "vellum: {}: not waited for: nothing tells here when it is closed",
            self.path.display()
        );
    }
}
