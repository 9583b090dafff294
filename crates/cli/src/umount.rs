//! `vellum umount`: ends a mount and waits until its pool is closed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use vellum::media::{is_in_use, lock_holders};
use vellum::{Pool, PoolPath};
use vellum_fuse::mounts::{self, Device, Elsewhere, Mounted, Others, PoolFile};
use vellum_terminal::output::warn_line;
use vellum_terminal::{Failure, Outcome, plain, quoted, status};

use crate::args::{Opening, Umount};
use crate::location::process;
use crate::replica;
use crate::served;
use crate::sync::sync;

const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long a mount may be busy before that is said: users that are just ending take a moment.
const BUSY_FOR: Duration = Duration::from_millis(500);
/// How long a pool may take to be closed before it is looked whether other mount namespaces have it
/// mounted.
const LOOK_ELSEWHERE: Duration = Duration::from_millis(300);
/// How long a mount that is to be ended by force may take to write back what was stored to mapped
/// files, and to answer.
const ANSWERED: Duration = Duration::from_secs(10);

/// A mount that is to be ended.
#[derive(Clone)]
enum Target {
    /// In this mount namespace.
    Here(Mounted),
    /// In another one.
    Elsewhere(Elsewhere),
}

impl Target {
    fn mounted(&self) -> &Mounted {
        match self {
            Self::Here(mounted) => mounted,
            Self::Elsewhere(other) => &other.mounted,
        }
    }

    /// Where it is found from here.
    fn root(&self) -> PathBuf {
        match self {
            Self::Here(mounted) => mounted.dir.clone(),
            Self::Elsewhere(other) => other.root(),
        }
    }

    fn open(&self) -> io::Result<File> {
        match self {
            Self::Here(mounted) => mounted.open(),
            Self::Elsewhere(other) => other.open(),
        }
    }

    /// Whether it has gone with another one that was ended: both were of one dataset.
    fn has_gone(&self) -> bool {
        match self {
            Self::Here(mounted) => mounts::is_there(mounted).is_ok_and(|is_there| !is_there),
            Self::Elsewhere(_) => false,
        }
    }
}

/// Unmounts.
pub(crate) fn run(args: &Umount) -> Outcome {
    let found = match targets(args) {
        Ok(found) => found,
        Err(failure) => return end_unseen(args, failure),
    };
    // Whatever becomes of one, the others go on; the first failure is given.
    let mut outcome = Ok(());
    let mut ended = Vec::new();
    // The latest first: it may be below another one.
    for target in found.iter().rev() {
        if target.has_gone() {
            continue;
        }
        let mounted = target.mounted();
        let closing = Closing::of(mounted, args.force);
        let done = match (args.force, args.lazy) {
            (true, _) => force(target),
            (false, true) => mounts::detach(mounted),
            (false, false) => unmount(mounted),
        };
        match done {
            Ok(()) => ended.push(closing),
            Err(error) => outcome = outcome.and(Err(cannot(&target.root(), &error))),
        }
    }
    if args.lazy {
        return outcome;
    }
    ended.reverse();
    for closing in &ended {
        outcome = outcome.and(closing.wait(Duration::from_secs(args.timeout)));
    }
    if args.export_replica {
        let opening = args.opening();
        for closing in ended {
            outcome = outcome.and(export(closing.path, &opening, found.len() == 1));
        }
    }
    outcome
}

/// What is meant; with --force what is mounted in other mount namespaces alone, too.
fn targets(args: &Umount) -> Outcome<Vec<Target>> {
    let here = named(&args.dir);
    if !args.force || here.is_ok() {
        return Ok(here?.into_iter().map(Target::Here).collect());
    }
    let dir = resolved(&args.dir).ok();
    let place = PoolPath::of(&args.dir).resolved();
    let file = PoolFile::at(&place.pool);
    let is_of_pool = |mounted: &Mounted| match &place.name {
        None => file.is_of(mounted),
        Some(_) => mounted.pool == place.path() && file.is_of(mounted),
    };
    let is_at_dir = |mounted: &Mounted| Some(&mounted.dir) == dir.as_ref();
    let of_pool = elsewhere(is_of_pool);
    if !of_pool.is_empty() {
        return Ok(of_pool.into_iter().map(Target::Elsewhere).collect());
    }
    let at_dir = elsewhere(is_at_dir);
    match at_dir.len() {
        0 => here.map(|_| Vec::new()),
        1 => Ok(at_dir.into_iter().map(Target::Elsewhere).collect()),
        _ => Err(several(&args.dir, &at_dir)),
    }
}

/// One mount of each dataset that is meant, of those in other mount namespaces.
fn elsewhere(is_meant: impl Fn(&Mounted) -> bool) -> Vec<Elsewhere> {
    let mut found: Vec<Elsewhere> = Vec::new();
    for other in mounts::elsewhere().unwrap_or_default() {
        let is_known = |known: &Elsewhere| known.mounted.device == other.mounted.device;
        if is_meant(&other.mounted)
            && !found.iter().any(is_known)
            && !mounts::is_dead(&other.root())
        {
            found.push(other);
        }
    }
    found
}

/// Different datasets are mounted at a directory, and none of them here: which is meant?
fn several(dir: &Path, found: &[Elsewhere]) -> Failure {
    let one = |other: &Elsewhere| {
        format!(
            "{} (by {})",
            other.mounted.pool.display(),
            process(other.pid)
        )
    };
    let all: Vec<String> = found.iter().map(one).collect();
    Failure::new(format!(
        "nothing of Vellum is mounted on {}, and in other mount namespaces {} different ones are: \
         {}",
        dir.display(),
        found.len(),
        all.join(", ")
    ))
    .with_status(status::BUSY)
    .advise(format!(
        "name the one that is meant: vellum umount --force {}",
        quoted(&found[0].mounted.pool)
    ))
}

/// Ends what no mount namespace shows, if that is asked for and it is served; else that failed.
fn end_unseen(args: &Umount, failure: Failure) -> Outcome {
    let servers = match args.force {
        true => served::servers(&args.dir),
        false => Vec::new(),
    };
    if servers.is_empty() {
        return Err(failure);
    }
    served::end(&args.dir, &servers, Duration::from_secs(args.timeout))?;
    match args.export_replica {
        true => export(
            &PoolPath::of(&args.dir).resolved().path(),
            &args.opening(),
            true,
        ),
        false => Ok(()),
    }
}

impl Umount {
    /// How the pool is opened to export its replica.
    fn opening(&self) -> Opening {
        Opening {
            medium: self.medium,
            data: Vec::new(),
        }
    }
}

/// Completes the metadata replica. A pool that has none is passed over, unless it is the only one.
fn export(pool: &Path, opening: &Opening, is_only: bool) -> Outcome {
    match replica::make_whole(pool, opening, false, false)? {
        Some(replica) => replica::tell(pool, &replica),
        None if is_only => return Err(replica::carries_none(pool)),
        None => warn_line!(
            "vellum: {}: nothing exported: it has no external data device with a replica of its \
             metadata",
            pool.display()
        ),
    }
    Ok(())
}

fn unmount(mounted: &Mounted) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match mounts::unmount(mounted) {
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy && began.elapsed() < BUSY_FOR =>
            {
                std::thread::sleep(LOOK_AGAIN);
            }
            done => return done,
        }
    }
}

/// Has a mount end, whoever uses it; what they stored to mapped files is written back first.
fn force(target: &Target) -> io::Result<()> {
    let mounted = target.mounted();
    if matches!(target, Target::Here(_)) {
        mounts::stands_alone(mounted)?;
    }
    let (answered, wait) = channel();
    let of = target.clone();
    // Whoever asks a mount whose process hangs does so, too, until it is cut off.
    std::thread::spawn(move || {
        let (written, stopped) = match of.open() {
            Ok(root) => (sync(&root), vellum_fuse::stop(&root)),
            Err(error) => (Err(io::Error::from(error.kind())), Err(error)),
        };
        answered.send((written, stopped))
    });
    let late = || io::Error::from(io::ErrorKind::TimedOut);
    let (written, stopped) = wait
        .recv_timeout(ANSWERED)
        .unwrap_or_else(|_| (Err(late()), Err(late())));
    if let Err(error) = written.as_ref()
        && !is_dead_error(error)
    {
        warn_line!(
            "vellum: {}: what was stored to mapped files may not be written back: {}",
            target.root().display(),
            plain(error)
        );
    }
    let detach_all = || mounts::detach_all(mounted.device, &mounted.pool);
    match stopped {
        // Its process takes it from the tree of names, too, perhaps at this moment.
        Ok(()) => detach_all().or_else(|_| detach_all()),
        // The kernel cuts off who gives no answer, who ends by that. Only root may ask it to.
        Err(_) if matches!(target, Target::Here(_)) => {
            mounts::abort(mounted).or_else(|_| mounts::detach(mounted))
        }
        Err(error) => Err(error),
    }
}

fn is_dead_error(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotConnected
}

/// That a dataset goes on which is unmounted here, and why.
fn still_in_use(pool: &Path, why: &str) -> Failure {
    let told = format!(
        "{} is unmounted here and still in use: {why}",
        pool.display()
    );
    Failure::new(told)
        .with_status(status::BUSY)
        .advise(served::advice(pool))
}

fn cannot(dir: &Path, error: &io::Error) -> Failure {
    let failure = in_the_way(Failure::io(dir.display(), error), error);
    if Others::of(error).is_some() {
        return failure;
    }
    match error.kind() {
        io::ErrorKind::ResourceBusy => failure.with_status(status::BUSY).advise(format!(
            "files there are in use, or it is somebody's directory: `fuser -vm {0}` shows by \
             whom; `vellum umount --lazy {0}` lets them finish, `--force` cuts them off",
            quoted(dir)
        )),
        _ => failure,
    }
}

/// A failure at a mount, with the commands that take off what is mounted over it or below it, if
/// that is why.
pub(crate) fn in_the_way(failure: Failure, error: &io::Error) -> Failure {
    let Some(others) = Others::of(error) else {
        return failure;
    };
    let command = |(program, dir): (&str, &Path)| format!("`{program} {}`", quoted(dir));
    let commands: Vec<_> = others.commands().map(command).collect();
    failure
        .with_status(status::BUSY)
        .advise(format!("take that off first: {}", commands.join(", ")))
}

/// What is mounted at a directory, or of a pool or dataset; at least one.
pub(crate) fn named(dir: &Path) -> Outcome<Vec<Mounted>> {
    let found = find(dir).map_err(|e| Failure::io(dir.display(), &e))?;
    if found.is_empty() {
        if let Some(failure) = served::unseen(dir) {
            return Err(failure);
        }
        let place = resolved(dir).unwrap_or_else(|_| dir.to_owned());
        let at_dir = elsewhere(|mounted| mounted.dir == place);
        return Err(nothing_on(dir, at_dir.first()));
    }
    Ok(found)
}

/// That nothing is mounted on a directory here, and who has something there elsewhere.
fn nothing_on(dir: &Path, elsewhere: Option<&Elsewhere>) -> Failure {
    let nothing = format!("nothing of Vellum is mounted on {}", dir.display());
    let Some(other) = elsewhere else {
        return Failure::new(nothing).advise("`mount -t fuse.vellum` lists what is mounted");
    };
    let pool = &other.mounted.pool;
    Failure::new(format!(
        "{nothing} here: {} has {} mounted there in another mount namespace",
        process(other.pid),
        pool.display()
    ))
    .advise(format!(
        "`vellum umount --force {}` ends it for all",
        quoted(pool)
    ))
}

/// The mount at a directory, or of a dataset; those of all datasets of a pool, or of
/// several below a directory. The directory itself is not looked at: a mount whose process died
/// cannot be.
fn find(dir: &Path) -> io::Result<Vec<Mounted>> {
    let resolved = resolved(dir)?;
    if let Some(mounted) = mounts::at(&resolved)? {
        return Ok(vec![mounted]);
    }
    let place = PoolPath::of(dir).resolved();
    if place.name.is_some() {
        return mounts::of_pool(&place);
    }
    let of_pool = mounts::of_file(&place.pool)?;
    if !of_pool.is_empty() {
        return Ok(of_pool);
    }
    let is_below = |mounted: &Mounted| {
        let place = PoolPath::of(&mounted.pool);
        mounted.dir == resolved.join(place.dataset())
    };
    let below: Vec<_> = mounts::list()?.into_iter().filter(is_below).collect();
    Ok(if are_of_one(&below) {
        below
    } else {
        Vec::new()
    })
}

/// Whether mounts are of one pool that has several datasets. Another may have been mounted by
/// itself on a directory that is called as it is, and has to be named.
fn are_of_one(mounts: &[Mounted]) -> bool {
    let mut pools = mounts
        .iter()
        .map(|mounted| PoolPath::of(&mounted.pool).pool);
    let Some(first) = pools.next() else {
        return false;
    };
    let has_several = Pool::datasets(&first).is_ok_and(|all| all.len() > 1);
    has_several && pools.all(|pool| pool == first)
}

/// The path of a directory in full, without looking at what is mounted on it.
pub(crate) fn resolved(dir: &Path) -> io::Result<PathBuf> {
    let Some(name) = dir.file_name() else {
        return dir.canonicalize();
    };
    // Not by its attributes, for which a mount would be asked whose process may hang.
    if std::fs::read_link(dir).is_ok() {
        return dir.canonicalize();
    }
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
    Ok(above.unwrap_or(Path::new(".")).canonicalize()?.join(name))
}

/// A dataset that is unmounted, and closed then.
struct Closing<'p> {
    path: &'p Path,
    device: Device,
    /// Whether whoever uses it is cut off.
    is_forced: bool,
    place: PoolPath,
    /// The pool's file, if it can be opened here.
    file: Option<File>,
    /// Whether its process, before it was unmounted, told that it has it open.
    is_held: bool,
}

impl<'p> Closing<'p> {
    fn of(mounted: &'p Mounted, is_forced: bool) -> Self {
        let path = mounted.pool.as_path();
        let place = PoolPath::of(path);
        let file = File::open(&place.pool).ok();
        let held = |file| is_in_use(file, place.dataset()).unwrap_or(false);
        Self {
            path,
            device: mounted.device,
            is_forced,
            is_held: file.as_ref().is_some_and(held),
            file,
            place,
        }
    }

    /// Waits until its process has closed it; for the last one of a pool also until nobody holds
    /// the pool's lock, which is that of all before.
    fn wait(&self, limit: Duration) -> Outcome {
        let began = Instant::now();
        let Some(file) = &self.file else {
            self.tell_not_waited();
            return Ok(());
        };
        let others = mounts::of_file(&self.place.pool).unwrap_or_default();
        let is_used = |other: &Mounted| other.pool == self.path && !other.is_dead();
        if others.iter().any(is_used) {
            // It is mounted on another directory, too, by the same process or another one, and goes
            // on being used there.
            return Ok(());
        }
        let name = self.place.dataset();
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
        let mut look = LOOK_ELSEWHERE;
        while is_in_use() {
            if !self.is_forced && began.elapsed() >= look {
                if let Some(why) = served::mounted_elsewhere(&[self.device]) {
                    return Err(still_in_use(self.path, &why));
                }
                look = 2 * began.elapsed();
            }
            if began.elapsed() >= limit {
                if let Some(why) = served::why(&[self.device]) {
                    return Err(still_in_use(self.path, &why));
                }
                return Err(Failure::new(format!(
                    "{} is still in use {} s after it was unmounted",
                    self.path.display(),
                    limit.as_secs()
                ))
                .with_status(status::BUSY)
                .advise(match lock_holders(&self.place.pool).first() {
                    Some(&pid) => served::while_it_lasts(pid),
                    None => "it is being written back, somebody else has opened it since, or who \
                             uses it cannot be seen from here"
                        .into(),
                }));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    fn tell_not_waited(&self) {
        warn_line!(
            "vellum: {}: not waited for: nothing tells here when it is closed",
            self.path.display()
        );
    }
}
