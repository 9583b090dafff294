//! `vellum umount`: ends a mount and waits until its pool is closed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
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
    let dir = args.dir.display();
    let found = find(&args.dir).map_err(|e| Failure::io(&dir, &e))?;
    if found.is_empty() {
        return Err(
            Failure::new(format!("nothing of Vellum is mounted on {dir}"))
                .advise("`mount -t fuse.vellum` lists what is mounted"),
        );
    }
    // Whatever becomes of one, the others go on; the first failure is given.
    let mut outcome = Ok(());
    let mut ended = Vec::new();
    for mounted in &found {
        match unmount(&mounted.dir, args.lazy) {
            Ok(()) => ended.push(mounted.pool.as_path()),
            Err(error) => outcome = outcome.and(Err(cannot(&mounted.dir, &error))),
        }
    }
    if args.lazy {
        return outcome;
    }
    for pool in &ended {
        outcome = outcome.and(wait_until_closed(pool, Duration::from_secs(args.timeout)));
    }
    if args.flush {
        let opening = Opening {
            media: args.media,
            data: None,
        };
        for pool in ended {
            outcome = outcome.and(flush(pool, &opening, found.len() == 1));
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

/// Waits until nobody holds the pool's lock. Where other file systems of the pool are mounted still it is theirs.
fn wait_until_closed(pool: &Path, limit: Duration) -> Outcome {
    let pool = &PoolPath::of(pool).pool;
    // A pool that cannot be opened here cannot be waited for.
    let Ok(file) = File::open(pool) else {
        return Ok(());
    };
    if mounts::of_file(pool).is_ok_and(|others| !others.is_empty()) {
        return Ok(());
    }
    let began = Instant::now();
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK | Errno::INTR) if began.elapsed() < limit => {
                std::thread::sleep(LOOK_AGAIN);
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(Failure::new(format!(
                    "{} is still in use {} s after it was unmounted",
                    pool.display(),
                    limit.as_secs()
                ))
                .with_status(status::BUSY)
                .advise("it is being written back, or somebody else has opened it since"));
            }
            _ => return Ok(()),
        }
    }
}
