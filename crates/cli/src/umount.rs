//! `vellum umount`: ends a mount and waits until its pool is closed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
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
use crate::helper;
use crate::location::process;
use crate::replica;
use crate::served;
use crate::sync::sync;

const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long a mount may stay busy before the command fails: ending users need a moment.
const BUSY_FOR: Duration = Duration::from_millis(500);
/// How long closing may take before the command looks for mounts of the pool in other mount
/// namespaces.
const LOOK_ELSEWHERE: Duration = Duration::from_millis(300);
/// How long a mount may take to write back changes to mapped files and to answer, before it is
/// ended by force.
const ANSWERED: Duration = Duration::from_secs(10);

/// A mount to end.
#[derive(Clone)]
enum Target {
    /// In this mount namespace.
    Here(Mounted),
    /// In another mount namespace.
    Elsewhere(Elsewhere),
}

impl Target {
    fn mounted(&self) -> &Mounted {
        match self {
            Self::Here(mounted) => mounted,
            Self::Elsewhere(other) => &other.mounted,
        }
    }

    /// A path to its root that works in this mount namespace.
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

    /// Whether it has ended together with another mount of the same dataset.
    fn has_gone(&self) -> bool {
        match self {
            Self::Here(mounted) => mounts::is_there(mounted).is_ok_and(|is_there| !is_there),
            Self::Elsewhere(_) => false,
        }
    }
}

/// Runs `vellum umount`.
pub(crate) fn run(args: &Umount) -> Outcome {
    let found = match targets(args) {
        Ok(found) => found,
        Err(failure) => return end_unseen(args, failure),
    };
    // A failure does not stop the others; the first one is returned.
    let mut outcome = Ok(());
    let mut ended = Vec::new();
    // The latest first: it may be mounted below another one.
    for target in found.iter().rev() {
        if target.has_gone() {
            continue;
        }
        let mounted = target.mounted();
        let closing = Closing::of(mounted, args.force);
        let done = match (args.force, args.lazy) {
            (true, _) => force(target),
            (false, true) => {
                mounts::detach(mounted).or_else(|error| allowed(mounted, "-il", error))
            }
            (false, false) => unmount(mounted).or_else(|error| allowed(mounted, "-i", error)),
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

/// The mounts to end; with --force also those that exist in other mount namespaces only.
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

/// The mounts in other mount namespaces for which `is_meant` holds, one for each dataset.
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

/// The failure for a directory on which other mount namespaces have different datasets mounted.
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
        "no Vellum pool is mounted on {} here, and other mount namespaces have {} different ones \
         there: {}",
        dir.display(),
        found.len(),
        all.join(", ")
    ))
    .with_status(status::BUSY)
    .advise(format!(
        "name one of them: vellum umount --force {}",
        quoted(&found[0].mounted.pool)
    ))
}

/// With --force, ends a mount that no mount namespace shows but whose process still serves it.
/// Without --force, or without such a mount, returns `failure`.
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
    /// The options for opening the pool to export its replica.
    fn opening(&self) -> Opening {
        Opening {
            medium: self.medium,
            data: Vec::new(),
        }
    }
}

/// Exports the metadata replica. A pool without one is skipped, unless it is the only one.
fn export(pool: &Path, opening: &Opening, is_only: bool) -> Outcome {
    match replica::make_whole(pool, opening, false, false)? {
        Some(replica) => replica::tell(pool, &replica),
        None if is_only => return Err(replica::carries_none(pool)),
        None => warn_line!(
            "vellum: {}: nothing exported: it has no external data device with space for a \
             metadata replica",
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

/// As a helper of umount(8), which has dropped its privileges: has umount(8) itself unmount what
/// fstab allows this user to unmount (`users`), without helpers. Otherwise returns `error`.
fn allowed(mounted: &Mounted, options: &str, error: io::Error) -> io::Result<()> {
    let is_busy = error.kind() == io::ErrorKind::ResourceBusy || Others::of(&error).is_some();
    if !helper::is_of_umount() || rustix::process::geteuid().is_root() || is_busy {
        return Err(error);
    }
    let mut command = Command::new("umount");
    let output = command.args([options, "--"]).arg(&mounted.dir).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(error),
    }
}

/// Ends a mount even if it is in use. Changes to mapped files are written back first.
fn force(target: &Target) -> io::Result<()> {
    let mounted = target.mounted();
    if matches!(target, Target::Here(_)) {
        mounts::stands_alone(mounted)?;
    }
    let (answered, wait) = channel();
    let of = target.clone();
    // In a thread of its own: a request to a mount whose process hangs would hang too, until the
    // mount is aborted.
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
            "vellum: {}: changes to mapped files may not be written back: {}",
            target.root().display(),
            plain(error)
        );
    }
    let detach_all = || mounts::detach_all(mounted.device, &mounted.pool);
    match stopped {
        // Its process detaches it too, perhaps at this moment.
        Ok(()) => detach_all().or_else(|_| detach_all()),
        // Without an answer, the kernel aborts the connection, which ends the process. Only root
        // may request that.
        Err(_) if matches!(target, Target::Here(_)) => {
            mounts::abort(mounted).or_else(|_| mounts::detach(mounted))
        }
        Err(error) => Err(error),
    }
}

fn is_dead_error(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotConnected
}

/// The failure for a dataset that was unmounted here but is still in use, and why.
fn still_in_use(pool: &Path, why: &str) -> Failure {
    let told = format!(
        "{} is unmounted here but still in use: {why}",
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
            "its files are in use, or it is the current directory of a process: `fuser -vm {0}` \
             lists the processes; `vellum umount --lazy {0}` lets them finish, `--force` does not",
            quoted(dir)
        )),
        _ => failure,
    }
}

/// Adds to the failure of a mount the commands that unmount what is mounted over it or below it, if
/// that is the cause.
pub(crate) fn in_the_way(failure: Failure, error: &io::Error) -> Failure {
    let Some(others) = Others::of(error) else {
        return failure;
    };
    let command = |(program, dir): (&str, &Path)| format!("`{program} {}`", quoted(dir));
    let commands: Vec<_> = others.commands().map(command).collect();
    failure
        .with_status(status::BUSY)
        .advise(format!("unmount that first: {}", commands.join(", ")))
}

/// The mounts on a directory, or of a pool or dataset. Fails if there is none.
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

/// The failure for a directory without a mount here, naming a process that has a mount there in
/// another mount namespace.
fn nothing_on(dir: &Path, elsewhere: Option<&Elsewhere>) -> Failure {
    let nothing = format!("no Vellum pool is mounted on {}", dir.display());
    let Some(other) = elsewhere else {
        return Failure::new(nothing).advise("`mount -t fuse.vellum` lists the mounts");
    };
    let pool = &other.mounted.pool;
    Failure::new(format!(
        "{nothing} here: {} has {} mounted there in another mount namespace",
        process(other.pid),
        pool.display()
    ))
    .advise(format!(
        "`vellum umount --force {}` ends it in all mount namespaces",
        quoted(pool)
    ))
}

/// The mount on a directory, or of a dataset; or the mounts of all datasets of a pool, or of
/// several datasets below a directory. The directory itself is not examined, because that fails on
/// a mount whose process died.
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

/// Whether all mounts belong to one pool with several datasets. A mount of another pool may happen
/// to be on a directory with the name of its dataset; the user has to name such a mount.
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

/// The absolute path of a directory, without accessing the file system that is mounted on it.
pub(crate) fn resolved(dir: &Path) -> io::Result<PathBuf> {
    let Some(name) = dir.file_name() else {
        return dir.canonicalize();
    };
    // Reads the link only: `stat` would send a request to a mount whose process may hang.
    if std::fs::read_link(dir).is_ok() {
        return dir.canonicalize();
    }
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
    Ok(above.unwrap_or(Path::new(".")).canonicalize()?.join(name))
}

/// A dataset that was unmounted and is being closed.
struct Closing<'p> {
    path: &'p Path,
    device: Device,
    /// Whether it is ended by force.
    is_forced: bool,
    place: PoolPath,
    /// The pool's file, if this process can open it.
    file: Option<File>,
    /// Whether the dataset was marked as open before it was unmounted.
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

    /// Waits until its process has closed it. For the last dataset of a pool, also waits until the
    /// pool's lock is free; all datasets share that lock.
    fn wait(&self, limit: Duration) -> Outcome {
        let began = Instant::now();
        let Some(file) = &self.file else {
            self.tell_not_waited();
            return Ok(());
        };
        let others = mounts::of_file(&self.place.pool).unwrap_or_default();
        let is_used = |other: &Mounted| other.pool == self.path && !other.is_dead();
        if others.iter().any(is_used) {
            // It is mounted on another directory too, by the same process or another one, and stays
            // in use there.
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
            // The next user of the pool takes the lock itself.
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
                    None => {
                        "it is being written back, another process has opened it since, or its \
                             user is invisible here"
                            .into()
                    }
                }));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    fn tell_not_waited(&self) {
        warn_line!(
            "vellum: {}: not waited for, because this process cannot see when it is closed",
            self.path.display()
        );
    }
}
