//! `vellum mount`: in the foreground, or in a process of its own that reports when the directory
//! can be used.
//!
//! The background process is this program started anew, with `--foreground --background-child`: a
//! fork of a running program is nothing the compiler can prove. It says a line on its standard
//! output, which is a pipe to the command, and then lets go of its standard streams.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use vellum::{AccessPolicy, Durability, ImageLocation, Pool, PoolPath};
use vellum_fuse::mounts::{self, Device, Others};
use vellum_fuse::{ControlRequest, MountConfig, MountFlags, Session, Stopper};
use vellum_terminal::output::warn_line;
use vellum_terminal::{Failure, Outcome, quoted, status};

use crate::areas::{Areas, Evolved};
use crate::args::Opening;
use crate::helper;
use crate::images;
use crate::info::{Information, MountPart};
use crate::location;
use crate::served;
use crate::umount;

const READY: &str = "ready";
/// The option that has data pass the page cache.
const DIRECT: &str = "direct";
/// The option that has a mount whose process was killed go from its directory.
const AUTO_UNMOUNT: &str = "auto_unmount";
/// The option that says how often a pool commits, before its seconds.
const COMMIT: &str = "commit=";

/// What is durable when an operation of a mount returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Returning {
    /// What was synced
    #[default]
    Async,
    /// What was synced, and what was created, linked, removed or renamed
    Dirsync,
    /// Every change
    Sync,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The command returns once the directory can be used; the mount goes on in the background. SIGTERM \
and SIGINT end it in order, as `vellum umount DIR` does, wherever it has been moved: it goes from \
the tree of names, and whoever uses it still is cut off after ten seconds, or by a second signal. \
While something else is mounted below it, it stays where it is. A mount on DIR whose process was \
killed is cleared first, if nothing is mounted below it.

Options for -o, separated by commas, as in mount(8): ro, rw, allow_other, noallow_other, suid, \
nosuid, dev, nodev, exec, noexec, relatime, strictatime, noatime, diratime, nodiratime, lazytime, \
nolazytime, nosymfollow, symfollow, open_requests, async, dirsync, sync, direct, barrier, \
nobarrier, commit=SECONDS, auto_unmount, user, users, owner, group. What else fstab and libfuse \
have (defaults, nofail, _netdev, silent, nonempty, fsname=, x-... and so on) is passed over. With \
dirsync what is created, linked, removed or renamed is durable when the call returns, with sync \
every change, on all media that can promise it; with async, the default, see `vellum info`. \
sync(2) and syncfs(2) do not reach a mount; `vellum sync DIR`, and fsync(2) of any file or \
directory in it, do. direct, nobarrier, commit=SECONDS, async, dirsync and sync are what \
--direct, --no-barrier, --commit-every SECONDS and --durability are. Set-id bits and device files do not count unless asked for. The kernel \
always checks permission bits; root's mounts are open to everybody whom these let in, other users' \
to themselves unless allow_other.

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
    /// Mount every dataset of the pool, each on a directory of its name below DIR, which is
    /// made if there is none. One process has a pool open for writing at a time, so that this is
    /// how several are used at once
    #[arg(long, conflicts_with = "data")]
    pub(crate) all: bool,
    /// Options, see below
    #[arg(short = 'o', value_delimiter = ',', value_name = "OPTION")]
    pub(crate) options: Vec<String>,
    /// Change nothing (-o ro)
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
    /// Touch every page of the pool first, so that no operation pays for it
    #[arg(long)]
    pub(crate) populate: bool,
    /// Seconds between the rounds in which areas come and go, where names are kept in areas; 0:
    /// they stay as they are
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    pub(crate) evolve_every: u32,
    /// Append messages of the background process to a file
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Where the metadata of a pool with a log are worked on: in this directory, which has to be in
    /// memory and outlives a kill, or `none`: in memory of the process [default: /dev/shm, or none]
    #[arg(long, value_name = "DIR")]
    pub(crate) image: Option<PathBuf>,
    /// Discard what a killed process left in memory and had not synced: the pool is as of its last
    /// commit (pools with a log)
    #[arg(long)]
    pub(crate) discard_image: bool,
    /// Read and write the data past the kernel's page cache of the file or device that they lie on
    /// (-o direct): of pools with a log, and of those that have their data apart
    #[arg(long)]
    pub(crate) direct: bool,
    /// Seconds after which what nobody synced is committed (-o commit=SECONDS), of pools that
    /// survive power cuts by committing; so much may be lost
    #[arg(long, default_value_t = 5, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) commit_every: u32,
    /// Do not have devices flush their caches where fsync and commits promise it (-o nobarrier):
    /// for pools and data right on devices whose caches survive a power cut. Elsewhere, in files
    /// too, one may take anything that was written since mounting, and the pool with it; unmounting
    /// flushes
    #[arg(long)]
    pub(crate) no_barrier: bool,
    /// What is durable when an operation returns (-o async, dirsync, sync)
    #[arg(long, value_enum, default_value_t)]
    pub(crate) durability: Returning,
    #[command(flatten)]
    pub(crate) opening: Opening,
    /// Pass over options for -o that are not known, as mount(8) -s
    #[arg(long, hide = true)]
    pub(crate) sloppy: bool,
    /// Look at the options and do nothing else, as mount(8) -f
    #[arg(long, hide = true)]
    pub(crate) fake: bool,
    /// This is the process that waits for the end of the mount's, which has the other end of its
    /// standard input, and then takes away what is left of the mounts with these device numbers
    #[arg(long, hide = true, value_name = "MAJOR:MINOR", value_delimiter = ',')]
    pub(crate) watch: Vec<Device>,
    /// This is the background process: report to the command through standard output
    #[arg(long, hide = true)]
    pub(crate) background_child: bool,
}

/// Mounts.
pub(crate) fn run(args: &Mount) -> Outcome<ExitCode> {
    let config = config(args)?;
    if args.fake {
        return Ok(ExitCode::SUCCESS);
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

/// Closes what was inherited, but for the standard streams and what was given on purpose: a mount
/// goes on for long, and a lock or the end of a pipe that it held unknowingly would as well.
fn close_inherited(given: Option<u32>) {
    // Before anything is opened here, so that all of these are others'.
    let names = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = names.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let inherited: Vec<i32> = numbers.collect();
    for number in inherited {
        if number > 2 && given.map(i64::from) != Some(number.into()) {
            // That of the listing is closed by now.
            let _ = nix::unistd::close(number);
        }
    }
}

/// What mount(8), fstab and libfuse add and what makes no difference here: it is so in any case, is
/// for whoever reads fstab, or is of what there is none. The source that is shown stays the pool,
/// by which its mounts are found.
fn says_nothing(option: &str) -> bool {
    const WORDS: [&str; 18] = [
        "",
        "defaults",
        "default_permissions",
        "_netdev",
        "auto",
        "noauto",
        "nofail",
        "nouser",
        "nousers",
        "noowner",
        "nogroup",
        "silent",
        "loud",
        "nonempty",
        "mand",
        "nomand",
        "iversion",
        "noiversion",
    ];
    const BEGINNINGS: [&str; 5] = ["x-", "X-", "comment=", "fsname=", "subtype="];
    WORDS.contains(&option) || BEGINNINGS.iter().any(|begins| option.starts_with(begins))
}

/// What mount(8) does where somebody else than root may mount: no set-id bits, no device files, and
/// perhaps no programs.
fn restrict(flags: &mut MountFlags, no_exec: bool) {
    flags.suid = false;
    flags.dev = false;
    flags.no_exec |= no_exec;
}

fn config(args: &Mount) -> Outcome<MountConfig> {
    let mut config = MountConfig {
        read_only: args.read_only,
        ..MountConfig::default()
    };
    for option in &args.options {
        match option.as_str() {
            "ro" => config.read_only = true,
            "rw" => config.read_only = false,
            "allow_other" => config.allow_other = true,
            "noallow_other" => config.allow_other = false,
            "suid" => config.flags.suid = true,
            "nosuid" => config.flags.suid = false,
            "dev" => config.flags.dev = true,
            "nodev" => config.flags.dev = false,
            "exec" => config.flags.no_exec = false,
            "noexec" => config.flags.no_exec = true,
            "atime" | "relatime" | "norelatime" | "nostrictatime" => {
                config.flags.access_times.policy = AccessPolicy::Relative;
            }
            "strictatime" => config.flags.access_times.policy = AccessPolicy::Strict,
            "noatime" => config.flags.access_times.policy = AccessPolicy::Never,
            "diratime" => config.flags.access_times.of_directories = true,
            "nodiratime" => config.flags.access_times.of_directories = false,
            "lazytime" => config.flags.lazy_times = true,
            "nolazytime" => config.flags.lazy_times = false,
            "nosymfollow" => config.flags.no_symlinks = true,
            "symfollow" => config.flags.no_symlinks = false,
            "open_requests" => config.open_requests = true,
            // Who may mount it; as in mount(8) that says more, unless what follows says otherwise.
            "user" | "users" => restrict(&mut config.flags, true),
            "owner" | "group" => restrict(&mut config.flags, false),
            user if user.starts_with("user=") => restrict(&mut config.flags, true),
            AUTO_UNMOUNT => {}
            // What the pool is told, not the mount.
            "async" | "dirsync" | "sync" | "barrier" | "nobarrier" | DIRECT => {}
            commit if commit.starts_with(COMMIT) => {}
            other if says_nothing(other) || args.sloppy => {}
            other => {
                return Err(
                    Failure::usage(format!("mount option `{other}` is not known"))
                        .advise("`vellum mount --help` lists the options"),
                );
            }
        }
    }
    if let Some(threads) = args.threads {
        config.threads = usize::from(threads);
    }
    Ok(config)
}

/// What the options say of something; the last one that says it counts.
fn last<T>(args: &Mount, says: impl Fn(&str) -> Option<T>) -> Option<T> {
    args.options.iter().rev().find_map(|option| says(option))
}

/// What is durable when an operation returns.
fn durability(args: &Mount) -> Durability {
    let said = last(args, |option| match option {
        "async" => Some(Durability::Async),
        "dirsync" => Some(Durability::Dirsync),
        "sync" => Some(Durability::Sync),
        _ => None,
    });
    said.unwrap_or(match args.durability {
        Returning::Async => Durability::Async,
        Returning::Dirsync => Durability::Dirsync,
        Returning::Sync => Durability::Sync,
    })
}

/// Whether commits have devices flush their caches.
fn barriers(args: &Mount) -> bool {
    let said = last(args, |option| match option {
        "barrier" => Some(true),
        "nobarrier" => Some(false),
        _ => None,
    });
    said.unwrap_or(!args.no_barrier)
}

/// How often a pool commits that does; as elsewhere, `commit=0` says nothing.
fn commit_every(args: &Mount) -> Outcome<Duration> {
    let said = last(args, |option| {
        option.strip_prefix(COMMIT).map(str::to_owned)
    });
    let seconds = match said {
        None => args.commit_every,
        Some(said) => {
            let number = said.parse().map_err(|_| {
                Failure::usage(format!(
                    "mount option `{COMMIT}{said}`: not a number of seconds"
                ))
            })?;
            if number == 0 {
                args.commit_every
            } else {
                number
            }
        }
    };
    Ok(Duration::from_secs(seconds.into()))
}

/// A dataset that is mounted.
struct Served {
    path: PathBuf,
    pool: Pool,
    session: Session,
}

/// Mounts, reports, and serves until all that was mounted has ended.
fn serve(args: &Mount, config: MountConfig) -> Outcome {
    let log = args.log.as_deref().map(open_log).transpose()?;
    // Before there is a mount, so that no signal can leave one behind.
    let signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|e| Failure::io("catching signals", &e))?;
    let mut served = Vec::new();
    let mut made = Vec::new();
    for (path, dir, pool) in open(args, &config)? {
        if !pool.fs().has_barriers() {
            warn_line!(
                "vellum: warning: {}: the caches of its devices are not flushed (--no-barrier): a \
                 power cut may take anything that is written before it is unmounted, and the pool \
                 with it",
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
                // What came first is what is told.
                let _ = end(served);
                made.iter().for_each(|dir| drop(std::fs::remove_dir(dir)));
                return Err(failure);
            }
        }
    }
    stop_on_signals(signals, &served);
    let _until_the_end = match last(args, |option| (option == AUTO_UNMOUNT).then_some(())) {
        Some(()) => Some(start_watching(&served)?),
        None => None,
    };
    if args.background_child {
        detach();
    }
    if let Err(error) = report_ready(args, log) {
        stop(&served);
        tracing::error!(%error, "nobody could be told that the mount is ready");
    }
    end(served)
}

/// Opens what is to be mounted: with the path of each dataset, and the directory for it.
fn open(args: &Mount, config: &MountConfig) -> Outcome<Vec<(PathBuf, PathBuf, Pool)>> {
    let place = PoolPath::of(&args.pool).resolved();
    let path = place.path();
    let options = args
        .opening
        .options(config.read_only)
        .populate(args.populate)
        .access_times(config.flags.access_times)
        .durability(durability(args))
        .image(match &args.image {
            None => ImageLocation::Shared,
            Some(none) if none.as_os_str() == "none" => ImageLocation::Process,
            Some(dir) => ImageLocation::In(dir.clone()),
        })
        .discard_image(args.discard_image)
        .commit_every(commit_every(args)?)
        .barriers(barriers(args))
        .direct(args.direct || args.options.iter().any(|option| option == DIRECT))
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
            "--all mounts every dataset of a pool, and {pool}:{name} is one"
        ))
        .advise(format!(
            "vellum mount {} --all {}",
            quoted(&place.pool),
            quoted(&args.dir)
        )));
    }
    let opened = Pool::open_all(&place.pool, &options);
    let opened = opened.map_err(|error| location::refused(&path, &error))?;
    let below = |(place, pool): (PoolPath, vellum::Result<Pool>)| {
        let path = place.path();
        let pool = pool.map_err(|error| location::refused(&path, &error))?;
        Ok((path, args.dir.join(place.dataset()), pool))
    };
    opened.into_iter().map(below).collect()
}

/// Makes a directory to mount on, if there is none, and notes it among those that were made.
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
    config.answers = Some(answers(&pool, &path, &dir, config.read_only));
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

/// Asks each to end.
fn stop(served: &[Served]) {
    served.iter().for_each(|of| of.session.stopper().stop());
}

/// Waits until each has ended, and closes it then, whatever becomes of the others; gives the first
/// failure.
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
                let failed = |_| Err(Failure::new("a thread that served a mount had failed"));
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
        vellum_fuse::Error::Directory { dir, source }
            if source.kind() == io::ErrorKind::NotFound =>
        {
            failure.advise(format!("mkdir -p {}", quoted(dir)))
        }
        _ => failure,
    }
}

fn open_log(path: &Path) -> Outcome<File> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|e| Failure::io(path.display(), &e))
}

/// What the mount answers about itself.
fn answers(pool: &Pool, path: &Path, dir: &Path, read_only: bool) -> Arc<vellum_fuse::Answers> {
    // Weak: the answers must not keep the file system from being closed.
    let fs = Arc::downgrade(&pool.fs());
    let opened = pool.opened();
    let path = path.to_owned();
    let mount = MountPart {
        dir: dir.to_owned(),
        pid: std::process::id(),
        read_only,
        damaged: false,
    };
    Arc::new(move |request| {
        let Some(fs) = fs.upgrade() else {
            return Ok(String::new());
        };
        match request {
            ControlRequest::Information => {
                let mut answer = Information::of(&fs, &path).measured(&fs).opened(opened);
                answer.mount = Some(MountPart {
                    damaged: fs.is_damaged(),
                    ..mount.clone()
                });
                Ok(json(&answer))
            }
            ControlRequest::Areas => Areas::of(&fs).map(|areas| json(&areas)),
            ControlRequest::Evolve { rounds } => {
                Evolved::now(&fs, rounds).map(|evolved| json(&evolved))
            }
        }
    })
}

fn json(answer: &impl Serialize) -> String {
    serde_json::to_string(answer).unwrap_or_default()
}

fn stop_on_signals(mut signals: Signals, served: &[Served]) {
    let stoppers: Vec<_> = served.iter().map(|of| of.session.stopper()).collect();
    let watch = move || {
        for _ in signals.forever() {
            stoppers.iter().for_each(Stopper::stop);
        }
    };
    if let Err(error) = std::thread::Builder::new()
        .name(served::ENDS_ON_SIGNALS.into())
        .spawn(watch)
    {
        tracing::warn!(%error, "signals are not watched: end the mount with `vellum umount`");
    }
}

/// Tells whoever waits that the directory can be used.
fn report_ready(args: &Mount, log: Option<File>) -> io::Result<()> {
    if args.background_child {
        writeln!(io::stdout(), "{READY}")?;
        io::stdout().flush()?;
        let nowhere = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        rustix::stdio::dup2_stdout(&nowhere)?;
        rustix::stdio::dup2_stderr(log.as_ref().unwrap_or(&nowhere))?;
        return Ok(());
    }
    if let Some(log) = log {
        rustix::stdio::dup2_stderr(&log)?;
    }
    write_ready_fd(args)
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

/// Starts the background process and waits until it reports, or fails with what it said.
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
    // It has said why on standard error, which it shares with us.
    let ended = child.wait().map_err(failed)?;
    match ended.code() {
        Some(0) | None => Err(Failure::new(format!(
            "the background process ended: {ended}"
        ))),
        Some(code) => Ok(helper::exit(u8::try_from(code).unwrap_or(status::FAILED))),
    }
}

/// Starts the process that takes dead mounts away when this one has ended, however it does; it ends
/// when what this gives is dropped.
fn start_watching(served: &[Served]) -> Outcome<ChildStdin> {
    let failed =
        |e: io::Error| Failure::io("-o auto_unmount: starting the process that watches", &e);
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
    let lost = || Failure::new("-o auto_unmount: the process that watches has no input");
    child.stdin.take().ok_or_else(lost)
}

/// Waits for the end of standard input, and takes away then what is left dead of mounts.
fn watch(devices: &[Device]) -> Outcome<ExitCode> {
    detach();
    io::copy(&mut io::stdin(), &mut io::sink()).map_err(|e| Failure::io("standard input", &e))?;
    let all = mounts::list().map_err(|e| Failure::io("/proc/self/mountinfo", &e))?;
    for mounted in all
        .iter()
        .rev()
        .filter(|mounted| devices.contains(&mounted.device))
    {
        // A number may be another dataset's by now, which is in use.
        if mounted.is_dead() {
            mounts::detach(mounted).map_err(|e| Failure::io(mounted.dir.display(), &e))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes this process one of its own: no terminal, no directory held.
fn detach() {
    // It fails where we lead a session already, which is as good.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
}
