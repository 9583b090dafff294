//! `vellum mount`: in the foreground, or in a background process that reports when the directory
//! can be used.
//!
//! The background process is this program, started again with `--foreground --background-child`. It
//! is not a fork, because a fork of a program with threads is unsound. The process writes a line
//! to its standard output, which is a pipe to the command, and then closes its standard streams.

pub(crate) mod options;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sd_notify::NotifyState;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use vellum::{ImageLocation, Pool, PoolPath};
use vellum_fuse::mounts::{self, Device, Mounted, Others};
use vellum_fuse::{
    Connection, ControlRequest, MountConfig, SWITCH, Session, Stopper, Switch, Uring,
};
use vellum_terminal::output::warn_line;
use vellum_terminal::{Failure, Outcome, quoted, status};

use crate::areas::{Areas, Evolved};
use crate::args::Opening;
use crate::copies::Copies;
use crate::helper;
use crate::images;
use crate::info::{Information, MountPart};
use crate::location;
use crate::logging::{self, Log};
use crate::quota;
use crate::remount;
use crate::resize;
use crate::served;
use crate::trim;
use crate::umount;

const READY: &str = "ready";
/// What a process tells its watcher after its mounts have ended.
const UNMOUNTED: &[u8] = b"unmounted";
/// Which changes are durable when an operation of a mount returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Returning {
    /// Synced changes only
    Async,
    /// Synced changes, and names that were created, linked, removed or renamed
    Dirsync,
    /// Every change
    Sync,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The command returns once the directory can be used; the mount goes on in the background. SIGTERM \
and SIGINT end it cleanly, as `vellum umount DIR` does, wherever it has been moved: it is \
detached, and requests of remaining users fail after ten seconds or after a second signal. It \
stays while something else is mounted below it. A mount on DIR whose process was killed is cleared \
first, if nothing is mounted below it.

Options for -o, separated by commas, as in mount(8): ro, rw, allow_other, noallow_other, suid, \
nosuid, dev, nodev, exec, noexec, relatime, strictatime, noatime, diratime, nodiratime, lazytime, \
nolazytime, nosymfollow, symfollow, open_requests, uring=auto, uring=on, uring=off, writeback, \
nowriteback, xattr, noxattr, async, dirsync, sync, direct, nodirect, barrier, nobarrier, \
commit=SECONDS, auto_unmount, log=FILE, remount, user, users, owner, group. Other options of \
fstab and libfuse (defaults, nofail, _netdev, uhelper=, silent, nonempty, fsname=, x-... and so \
on) are ignored. Options that the pool itself has (`vellum set POOL --option`) hold unless others \
are given here; with --all, those of the first dataset hold for each. With dirsync, a call that \
creates, links, removes or renames a name is durable when it returns; with sync, every change is, \
on all media that can promise it. For async, the default, see `vellum info`. sync(2) and \
syncfs(2) do not reach a mount; `vellum sync DIR`, and fsync(2) of any file or directory in it, \
do. direct, nobarrier, commit=SECONDS, log=FILE, async, dirsync and sync mean the same as \
--direct, --no-barrier, --commit-every SECONDS, --log and --durability. With uring=auto, the \
default, requests come by io_uring if the kernel offers it (Linux 6.14 and later, if its switch \
/sys/module/fuse/parameters/enable_uring is on); uring=on turns the switch on, which only root \
may do; uring=off has them read from /dev/fuse. With writeback, the kernel gathers writes to an \
open file, which makes many small ones quicker, and brings them to the pool when the file is \
synced or closed, or some seconds later; a kill of the process that serves the mount loses the \
rest, and a sync of another file does not include them. With noxattr, the mount has no extended \
attributes, and access control lists have no effect in it; the kernel then sends fewer requests \
where small files are written. Set-id bits and device files have no effect without suid and dev. \
The kernel always checks permission bits. Mounts of root are open to everybody whom these bits \
admit, mounts of other users only to the user, unless allow_other is given.

Examples:
  vellum mount pool.img /mnt
  vellum mount -o ro pool.img /mnt
  vellum mount pool.img:builds /mnt
  vellum mount pool.img --all /srv/pool
  vellum mount --foreground pool.img ~/mnt & ... ; kill %1")]
pub(crate) struct Mount {
    /// The pool, or POOL:NAME
    pub(crate) pool: PathBuf,
    /// The directory
    pub(crate) dir: PathBuf,
    /// Mount every dataset of the pool, each on a directory with its name below DIR; missing
    /// directories are created. Only one process can write to a pool, so this is the way to use
    /// several datasets at once
    #[arg(long, conflicts_with = "data")]
    pub(crate) all: bool,
    /// Options; see below
    #[arg(short = 'o', value_delimiter = ',', value_name = "OPTION")]
    pub(crate) options: Vec<String>,
    /// Mount read-only (-o ro)
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Stay in the foreground until unmounted
    #[arg(long, short)]
    pub(crate) foreground: bool,
    /// Write a line to this file descriptor once the directory can be used
    #[arg(long, value_name = "N")]
    pub(crate) ready_fd: Option<u32>,
    /// Threads that serve requests [default: one a CPU, at least 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,
    /// Touch every page of the pool first, so that operations cause no page faults
    #[arg(long)]
    pub(crate) populate: bool,
    /// Seconds between the rounds that split and merge areas (namespace adaptive); 0: never
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    pub(crate) evolve_every: u32,
    /// Where the messages of the background process go: appended to this file, or `journal`: to
    /// the journal of systemd (-o log=FILE) [default: to the journal if systemd mounts it, else
    /// nowhere]
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Where the metadata of a pool with a log are kept while it is open: an image in this
    /// directory, which must be in memory (the image survives a kill), or `none`: the memory of the
    /// process [default: /dev/shm, or none if that has no space]
    #[arg(long, value_name = "DIR")]
    pub(crate) image: Option<PathBuf>,
    /// Discard the changes that a killed process left in memory unsynced; the pool goes back to its
    /// last commit (pools with a log)
    #[arg(long)]
    pub(crate) discard_image: bool,
    /// Read and write data past the kernel's page cache (-o direct); for pools with a log or an
    /// external data device
    #[arg(long)]
    pub(crate) direct: bool,
    /// Seconds between automatic commits (-o commit=SECONDS), for pools with a log or an external
    /// data device; a power cut may lose that much [default: 5]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) commit_every: Option<u32>,
    /// Do not flush the caches of devices on fsync and commits (-o nobarrier). Use it only for
    /// pools and data directly on devices whose caches survive a power cut. On other devices, and
    /// in files, a power cut may destroy everything written since mounting, and the pool with it.
    /// Unmounting flushes the caches
    #[arg(long)]
    pub(crate) no_barrier: bool,
    /// Which changes are durable when an operation returns (-o async, dirsync, sync) [default:
    /// async]
    #[arg(long, value_enum)]
    pub(crate) durability: Option<Returning>,
    #[command(flatten)]
    pub(crate) opening: Opening,
    /// Ignore unknown options for -o, as mount(8) -s
    #[arg(long, hide = true)]
    pub(crate) sloppy: bool,
    /// Check the options and do nothing else, as mount(8) -f
    #[arg(long, hide = true)]
    pub(crate) fake: bool,
    /// This is the process that waits for the end of the mount's process, which holds the other end
    /// of its standard input, and then removes the dead mounts with these device numbers
    #[arg(long, hide = true, value_name = "MAJOR:MINOR", value_delimiter = ',')]
    pub(crate) watch: Vec<Device>,
    /// This is the background process: report to the command through standard output
    #[arg(long, hide = true)]
    pub(crate) background_child: bool,
}

/// Runs `vellum mount`.
pub(crate) fn run(args: &Mount) -> Outcome<ExitCode> {
    let args = &options::with_those_of_the_pool(args);
    let config = options::config(args)?;
    if args.fake || helper::is_of_mount() && options::is_absent_and_may_be(args) {
        return Ok(ExitCode::SUCCESS);
    }
    if options::is_remount(args) {
        return remount::run(args, &config).map(|()| ExitCode::SUCCESS);
    }
    if args.foreground {
        close_inherited(args.ready_fd);
    }
    if !args.watch.is_empty() {
        return watch(&args.watch);
    }
    if !args.background_child {
        images::sweep(Some(&args.pool));
    }
    if args.foreground {
        serve(args, config).map(|()| ExitCode::SUCCESS)
    } else {
        start_background(args)
    }
}

/// Closes inherited file descriptors, except the standard streams and `given`. A mount is
/// long-lived; an inherited lock or pipe end would stay open as long.
fn close_inherited(given: Option<u32>) {
    // Nothing has been opened here yet, so all of these are inherited.
    let names = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = names.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let inherited: Vec<i32> = numbers.collect();
    for number in inherited {
        if number > 2 && given.map(i64::from) != Some(number.into()) {
            // The descriptor of the listing is closed already; that error is ignored.
            let _ = nix::unistd::close(number);
        }
    }
}

/// A mounted dataset.
struct Served {
    path: PathBuf,
    pool: Pool,
    session: Session,
}

/// Mounts, reports, and serves until all mounts have ended.
fn serve(args: &Mount, config: MountConfig) -> Outcome {
    let log = options::log(args).as_deref().map(Log::open).transpose()?;
    // Before mounting, so that no signal can leave a mount behind.
    let signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|e| Failure::io("catching signals", &e))?;
    let mut served = Vec::new();
    let mut made = Vec::new();
    for (path, dir, pool) in open(args, &config)? {
        if !pool.fs().has_barriers() {
            warn_line!(
                "vellum: warning: {}: commits do not flush the caches of its devices \
                 (--no-barrier): a power cut before unmounting may destroy anything written since \
                 mounting, and the pool with it",
                path.display()
            );
        }
        let there = match args.all {
            true => make_directory(&dir, &mut made),
            false => Ok(()),
        };
        match there.and_then(|()| mount(path, &dir, pool, config.clone())) {
            Ok(mounted) => served.push(mounted),
            Err(failure) => {
                stop(&served);
                // The first failure is reported.
                let _ = end(served);
                made.iter().for_each(|dir| drop(std::fs::remove_dir(dir)));
                return Err(failure);
            }
        }
    }
    advise_ring(config.uring);
    if config.writeback && !config.read_only {
        warn_line!(
            "vellum: warning: the kernel gathers writes to open files (-o writeback): those that \
             were neither synced nor closed are lost if process {} is killed",
            std::process::id()
        );
    }
    stop_on_signals(signals, &served);
    let watcher = match options::unmounts_itself(args) {
        true => Some(start_watching(&served)?),
        false => None,
    };
    if args.background_child {
        detach();
    }
    if let Err(error) = report_ready(args, log.as_ref()) {
        stop(&served);
        tracing::error!(%error, "cannot report that the mount is ready");
    }
    let mounts: Vec<(PathBuf, Device)> = served
        .iter()
        .map(|of| (of.path.clone(), of.session.device()))
        .collect();
    end(served)?;
    if let Some(mut watcher) = watcher
        && !is_listed(&mounts)
    {
        // It fails if the watcher was killed.
        let _ = watcher.write_all(UNMOUNTED);
    }
    Ok(())
}

/// Whether one of these mounts is still there, although its connection has ended.
fn is_listed(mounts: &[(PathBuf, Device)]) -> bool {
    let is_one = |there: &Mounted| {
        let mut all = mounts.iter();
        all.any(|(path, device)| there.device == *device && there.pool == *path)
    };
    // If nobody knows, the watcher looks.
    mounts::list().map_or(true, |list| list.iter().any(is_one))
}

/// Tells a person how to have requests by io_uring, if the kernel has them and its switch is off.
fn advise_ring(uring: Uring) {
    if uring == Uring::Auto && io::stderr().is_terminal() && Switch::now() == Switch::Off {
        warn_line!(
            "vellum: requests come by /dev/fuse. By io_uring they are served on the processor that \
             asks: root can mount with -o uring=on, which turns on {SWITCH}"
        );
    }
}

/// Opens the datasets to mount. Returns the path, the directory and the pool of each.
fn open(args: &Mount, config: &MountConfig) -> Outcome<Vec<(PathBuf, PathBuf, Pool)>> {
    let place = PoolPath::of(&args.pool).resolved();
    let path = place.path();
    let options = args
        .opening
        .options(config.read_only)
        .populate(args.populate)
        .access_times(config.flags.access_times)
        .durability(options::durability(args))
        .image(match &args.image {
            None => ImageLocation::Shared,
            Some(none) if none.as_os_str() == "none" => ImageLocation::Process,
            Some(dir) => ImageLocation::In(dir.clone()),
        })
        .discard_image(args.discard_image)
        .commit_every(options::commit_every(args)?)
        .barriers(options::barriers(args))
        .direct(options::is_direct(args))
        .evolve_every(
            (args.evolve_every > 0).then(|| Duration::from_secs(args.evolve_every.into())),
        );
    if !args.all {
        let pool = location::open_with(&path, &options)?;
        return Ok(vec![(path, args.dir.clone(), pool)]);
    }
    if let Some(name) = &place.name {
        let pool = place.pool.display();
        return Err(Failure::usage(format!(
            "--all mounts every dataset of a pool, but {pool}:{name} is only one"
        ))
        .advise(format!(
            "vellum mount {} --all {}",
            quoted(&place.pool),
            quoted(&args.dir)
        )));
    }
    let opened = served::once_closed(&place.pool, || {
        let opened = Pool::open_all(&place.pool, &options);
        opened.map_err(|error| location::refused(&path, &error))
    })?;
    let below = |(place, pool): (PoolPath, vellum::Result<Pool>)| {
        let path = place.path();
        let pool = pool.map_err(|error| location::refused(&path, &error))?;
        Ok((path, args.dir.join(place.dataset()), pool))
    };
    opened.into_iter().map(below).collect()
}

/// Creates the directory for a mount if it is missing, and adds it to `made`.
fn make_directory(dir: &Path, made: &mut Vec<PathBuf>) -> Outcome {
    match std::fs::create_dir(dir) {
        Ok(()) => made.push(dir.to_owned()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Failure::io(dir.display(), &error)),
    }
    Ok(())
}

/// Mounts one dataset.
fn mount(path: PathBuf, dir: &Path, pool: Pool, mut config: MountConfig) -> Outcome<Served> {
    config.fs_name = path.display().to_string();
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    config.answers = Some(answers(&pool, &path, &dir, &config));
    match vellum_fuse::mount(pool.fs(), &dir, &config) {
        Ok(session) => Ok(Served {
            path,
            pool,
            session,
        }),
        Err(error) => {
            let failure = cannot_mount(&error);
            location::close(pool, &path)?;
            Err(failure)
        }
    }
}

/// Stops all mounts.
fn stop(served: &[Served]) {
    served.iter().for_each(|of| of.session.stopper().stop());
}

/// Waits for the end of each mount and closes its pool, independently of the others. Returns the
/// first failure.
fn end(served: Vec<Served>) -> Outcome {
    let end_one = |served: Served| {
        let ended = served.session.wait();
        let closed = location::close(served.pool, &served.path);
        closed?;
        ended
            .map(drop)
            .map_err(|error| Failure::new(error.to_string()))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = served
            .into_iter()
            .map(|one| scope.spawn(|| end_one(one)))
            .collect();
        let ends: Vec<Outcome> = threads
            .into_iter()
            .map(|thread| {
                let failed = |_| Err(Failure::new("a thread of a mount panicked"));
                thread.join().unwrap_or_else(failed)
            })
            .collect();
        ends.into_iter().collect()
    })
}

fn cannot_mount(error: &vellum_fuse::Error) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        vellum_fuse::Error::Mounted { .. } => failure.with_status(status::BUSY),
        vellum_fuse::Error::Hidden { source, .. } => umount::in_the_way(failure, source),
        vellum_fuse::Error::Dead { dir, source } => match Others::of(source) {
            Some(_) => umount::in_the_way(failure, source),
            None => failure.advise(format!("vellum umount {}", quoted(dir))),
        },
        vellum_fuse::Error::Helper { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            failure
                .advise("users other than root need it on PATH: root can install the package fuse3")
        }
        vellum_fuse::Error::Refused { source, .. }
            if source
                .to_string()
                .ends_with("mount failed: Operation not permitted") =>
        {
            failure.advise(
                "fusermount3 has to be set-user-ID root: root can run `chmod u+s \
                 $(command -v fusermount3)`, or install the package fuse3 again",
            )
        }
        vellum_fuse::Error::Directory { dir, source }
            if source.kind() == io::ErrorKind::NotFound =>
        {
            failure.advise(format!("mkdir -p {}", quoted(dir)))
        }
        _ => failure,
    }
}

/// The answers of the mount on its control channel.
fn answers(
    pool: &Pool,
    path: &Path,
    dir: &Path,
    config: &MountConfig,
) -> Arc<vellum_fuse::Answers> {
    // Weak, so that the answers do not keep the file system open.
    let fs = Arc::downgrade(&pool.fs());
    let opened = pool.opened();
    let path = path.to_owned();
    let mount = MountPart {
        dir: dir.to_owned(),
        pid: std::process::id(),
        read_only: config.read_only,
        writeback: config.writeback,
        damaged: false,
        door: String::new(),
        requests: BTreeMap::new(),
    };
    let copies = Copies::default();
    Arc::new(move |request, cred, connection| {
        let Some(fs) = fs.upgrade() else {
            return Ok(String::new());
        };
        match request {
            ControlRequest::Information => {
                let mut answer = Information::of(&fs, &path).measured(&fs).opened(opened);
                if mount.writeback {
                    answer.media.survives.leave_out_gathered();
                }
                answer.mount = Some(MountPart {
                    damaged: fs.is_damaged(),
                    door: connection.door.name().into(),
                    requests: counts(connection),
                    ..mount.clone()
                });
                Ok(json(&answer))
            }
            ControlRequest::Areas => Areas::of(&fs).map(|areas| json(&areas)),
            ControlRequest::Evolve { rounds } => {
                Evolved::now(&fs, rounds).map(|evolved| json(&evolved))
            }
            ControlRequest::Quota(request) => Ok(json(&quota::answer(&fs, cred, request))),
            ControlRequest::Grow { bytes } => Ok(json(&resize::answer(&fs, bytes))),
            ControlRequest::Trim { least_bytes } => Ok(json(&trim::answer(&fs, least_bytes))),
            ControlRequest::Copy(request) => Ok(json(&copies.begin(&fs, request))),
            ControlRequest::CopyState { id } => Ok(json(&copies.state(id))),
        }
    })
}

fn counts(connection: &Connection) -> BTreeMap<String, u64> {
    let counts = connection.counts.by_kind();
    counts
        .map(|(kind, count)| (kind.to_owned(), count))
        .collect()
}

fn json(answer: &impl Serialize) -> String {
    serde_json::to_string(answer).unwrap_or_default()
}

fn stop_on_signals(mut signals: Signals, served: &[Served]) {
    let stoppers: Vec<_> = served.iter().map(|of| of.session.stopper()).collect();
    // Other processes know this one by the name of the thread, which the thread sets itself.
    let (named, is_named) = channel();
    let watch = move || {
        let _ = named.send(());
        for _ in signals.forever() {
            logging::notify(NotifyState::Stopping);
            stoppers.iter().for_each(Stopper::stop);
        }
    };
    let watching = std::thread::Builder::new()
        .name(served::ENDS_ON_SIGNALS.into())
        .spawn(watch);
    match watching {
        Ok(_) => drop(is_named.recv()),
        Err(error) => {
            tracing::warn!(%error, "cannot watch signals: end the mount with `vellum umount`");
        }
    }
}

/// Reports to the waiting process that the directory can be used. From then on messages go to `log`
/// or, from the background, nowhere: whoever waits for the end of standard error must not wait for
/// the end of the mount. The journal does not wait.
fn report_ready(args: &Mount, log: Option<&Log>) -> io::Result<()> {
    if !args.background_child {
        log.map_or(Ok(()), Log::take_messages)?;
        logging::notify(NotifyState::Ready);
        return write_ready_fd(args);
    }
    writeln!(io::stdout(), "{READY}")?;
    io::stdout().flush()?;
    let nowhere = Log::nowhere()?;
    nowhere.take_output()?;
    match log {
        Some(log) => log.take_messages(),
        None if logging::is_read_by_journal() => Ok(()),
        None => nowhere.take_messages(),
    }
}

fn write_ready_fd(args: &Mount) -> io::Result<()> {
    match args.ready_fd {
        Some(fd) => OpenOptions::new()
            .write(true)
            .open(format!("/proc/self/fd/{fd}"))?
            .write_all(format!("{READY}\n").as_bytes()),
        None => Ok(()),
    }
}

/// Starts the background process and waits until it reports. Fails with its exit status if it ends
/// first.
fn start_background(args: &Mount) -> Outcome<ExitCode> {
    let failed = |e: io::Error| Failure::io("starting the background process", &e);
    let mut given: Vec<OsString> = helper::arguments().words.into_iter().skip(1).collect();
    for flag in ["--background-child", "--foreground"] {
        given.insert(1.min(given.len()), flag.into());
    }
    let mut child = Command::new(std::env::current_exe().map_err(failed)?)
        .args(given)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut said = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output)
            .read_line(&mut said)
            .map_err(failed)?;
    }
    if said.trim_end() == READY {
        write_ready_fd(args).map_err(|e| Failure::io("--ready-fd", &e))?;
        return Ok(ExitCode::SUCCESS);
    }
    // It has written the reason to standard error, which it shares with this process.
    let ended = child.wait().map_err(failed)?;
    match ended.code() {
        Some(0) | None => Err(Failure::new(format!(
            "the background process ended: {ended}"
        ))),
        Some(code) => Ok(helper::exit(u8::try_from(code).unwrap_or(status::FAILED))),
    }
}

/// Starts the process that removes dead mounts when this process has ended without saying
/// [`UNMOUNTED`]. The watcher ends when the returned input is dropped.
fn start_watching(served: &[Served]) -> Outcome<ChildStdin> {
    let failed = |e: io::Error| Failure::io("-o auto_unmount: starting the watching process", &e);
    let devices: Vec<String> = served
        .iter()
        .map(|of| of.session.device().to_string())
        .collect();
    let mut child = Command::new(std::env::current_exe().map_err(failed)?)
        .args([
            "mount",
            "--foreground",
            "--watch",
            &devices.join(","),
            "-",
            "-",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let lost = || Failure::new("-o auto_unmount: the watching process has no input");
    child.stdin.take().ok_or_else(lost)
}

/// Waits for the end of standard input, then removes the dead mounts, unless they are said to be
/// unmounted: others may have their device numbers then.
fn watch(devices: &[Device]) -> Outcome<ExitCode> {
    detach();
    let said = io::copy(&mut io::stdin(), &mut io::sink());
    if said.map_err(|e| Failure::io("standard input", &e))? > 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let all = mounts::list().map_err(|e| Failure::io("/proc/self/mountinfo", &e))?;
    for mounted in all
        .iter()
        .rev()
        .filter(|mounted| devices.contains(&mounted.device))
    {
        // The device number may belong to a newer mount by now, which is in use.
        if mounted.is_dead() {
            mounts::detach(mounted).map_err(|e| Failure::io(mounted.dir.display(), &e))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Detaches this process from its terminal and its current directory.
fn detach() {
    // It fails if this process leads a session already, which is as good.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
}
