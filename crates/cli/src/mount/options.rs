//! The options of `vellum mount -o`, as mount(8), fstab and libfuse have them.

use std::path::PathBuf;
use std::time::Duration;

use vellum::{AccessPolicy, Durability, PoolPath};
use vellum_fuse::{MountConfig, MountFlags, Uring};
use vellum_terminal::output::warn_line;
use vellum_terminal::{Failure, Outcome};

use super::{Mount, Returning};
use crate::bytes;

/// The option for reading and writing data past the page cache.
const DIRECT: &str = "direct";
const NO_DIRECT: &str = "nodirect";
/// The option that removes the mount when its process is killed.
const AUTO_UNMOUNT: &str = "auto_unmount";
/// The option that changes an existing mount.
const REMOUNT: &str = "remount";
/// The option with which a missing pool is no failure of mount(8).
const NO_FAIL: &str = "nofail";
/// The option for where the messages of the background process go.
const LOG: &str = "log=";
/// The option for the interval of commits, without the seconds.
const COMMIT: &str = "commit=";

/// Whether an option of mount(8), fstab or libfuse has no effect here: it states the default, is
/// meant for readers of fstab, or concerns a feature that Vellum lacks. `fsname=` is among them:
/// the shown source of a mount must stay the pool, because mounts are found by it.
fn says_nothing(option: &str) -> bool {
    const WORDS: [&str; 19] = [
        "",
        "defaults",
        "default_permissions",
        "_netdev",
        "auto",
        "noauto",
        NO_FAIL,
        REMOUNT,
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
    const BEGINNINGS: [&str; 9] = [
        "x-",
        "X-",
        "helper=",
        "uhelper=",
        "comment=",
        "fsname=",
        "subtype=",
        // mount(8) repeats these of an existing mount, to change it.
        "user_id=",
        "group_id=",
    ];
    WORDS.contains(&option) || BEGINNINGS.iter().any(|begins| option.starts_with(begins))
}

/// Restricts a mount as mount(8) does if users other than root may mount: no set-id bits, no device
/// files, and no programs if `no_exec`.
fn restrict(flags: &mut MountFlags, no_exec: bool) {
    flags.suid = false;
    flags.dev = false;
    flags.no_exec |= no_exec;
}

/// Whether a pool can keep an option for its mounts: one that decides neither who may do what, nor
/// anything outside the pool. So a stranger's pool may be mounted with the options that it has.
pub(crate) fn can_be_kept(option: &str) -> bool {
    const WORDS: [&str; 23] = [
        "async",
        "atime",
        "barrier",
        "diratime",
        DIRECT,
        "dirsync",
        "lazytime",
        "noatime",
        "nobarrier",
        "nodiratime",
        NO_DIRECT,
        "nolazytime",
        "norelatime",
        "nostrictatime",
        "nowriteback",
        "noxattr",
        "relatime",
        "strictatime",
        "sync",
        "uring=auto",
        "uring=off",
        "writeback",
        "xattr",
    ];
    let seconds = option.strip_prefix(COMMIT);
    WORDS.contains(&option) || seconds.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// The same command with all options in one list, in which later ones override earlier ones: those
/// that the pool keeps, those of the command that have a name of their own, and those of `-o`.
pub(super) fn with_those_of_the_pool(args: &Mount) -> Mount {
    let kept = match is_remount(args) {
        // As with other file systems, only a new mount takes them over.
        true => Vec::new(),
        false => kept_by_the_pool(args),
    };
    let flags = [
        args.direct.then(|| DIRECT.to_owned()),
        args.no_barrier.then(|| "nobarrier".to_owned()),
        args.commit_every
            .map(|seconds| format!("{COMMIT}{seconds}")),
        args.durability.map(|returning| match returning {
            Returning::Async => "async".to_owned(),
            Returning::Dirsync => "dirsync".to_owned(),
            Returning::Sync => "sync".to_owned(),
        }),
    ];
    let given = flags.into_iter().flatten().chain(args.options.clone());
    Mount {
        options: kept.into_iter().chain(given).collect(),
        ..args.clone()
    }
}

/// The options that the pool keeps, without those that no pool may keep.
fn kept_by_the_pool(args: &Mount) -> Vec<String> {
    let found = bytes::settings(&PoolPath::of(&args.pool).resolved());
    let text = found.map_or_else(String::new, |(_, settings)| settings.mount_options);
    let options = text.split(',').filter(|option| !option.is_empty());
    let (kept, others): (Vec<_>, Vec<_>) = options.partition(|option| can_be_kept(option));
    for option in others.into_iter().filter(|_| !args.background_child) {
        warn_line!(
            "vellum: {}: its mount option `{}` is ignored",
            args.pool.display(),
            option.escape_debug()
        );
    }
    kept.into_iter().map(str::to_owned).collect()
}

pub(super) fn config(args: &Mount) -> Outcome<MountConfig> {
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
            "writeback" => config.writeback = true,
            "nowriteback" => config.writeback = false,
            "xattr" => config.xattrs = true,
            "noxattr" => config.xattrs = false,
            "uring=auto" => config.uring = Uring::Auto,
            "uring=on" => config.uring = Uring::On,
            "uring=off" => config.uring = Uring::Off,
            // Who may mount it. As in mount(8), these imply other options, which later ones
            // override.
            "user" | "users" => restrict(&mut config.flags, true),
            "owner" | "group" => restrict(&mut config.flags, false),
            user if user.starts_with("user=") => restrict(&mut config.flags, true),
            AUTO_UNMOUNT => {}
            // Options of the pool, not of the mount.
            "async" | "dirsync" | "sync" | "barrier" | "nobarrier" | DIRECT | NO_DIRECT => {}
            valued if valued.starts_with(COMMIT) || valued.starts_with(LOG) => {}
            other if says_nothing(other) || args.sloppy => {}
            other => {
                return Err(Failure::usage(format!("unknown mount option `{other}`"))
                    .advise("`vellum mount --help` lists the options"));
            }
        }
    }
    if let Some(threads) = args.threads {
        config.threads = usize::from(threads);
    }
    Ok(config)
}

/// Returns the value of the last option for which `says` returns one.
fn last<T>(args: &Mount, says: impl Fn(&str) -> Option<T>) -> Option<T> {
    args.options.iter().rev().find_map(|option| says(option))
}

/// Which changes are durable when an operation returns.
pub(super) fn durability(args: &Mount) -> Durability {
    let said = last(args, |option| match option {
        "async" => Some(Durability::Async),
        "dirsync" => Some(Durability::Dirsync),
        "sync" => Some(Durability::Sync),
        _ => None,
    });
    said.unwrap_or_default()
}

/// Whether commits flush the caches of devices.
pub(super) fn barriers(args: &Mount) -> bool {
    let said = last(args, |option| match option {
        "barrier" => Some(true),
        "nobarrier" => Some(false),
        _ => None,
    });
    said.unwrap_or(true)
}

/// The interval of automatic commits. As with other file systems, `commit=0` means the default.
pub(super) fn commit_every(args: &Mount) -> Outcome<Duration> {
    const DEFAULT_S: u32 = 5;
    let said = last(args, |option| {
        option.strip_prefix(COMMIT).map(str::to_owned)
    });
    let seconds = said.map_or(Ok(0), |said| {
        said.parse().map_err(|_| {
            Failure::usage(format!(
                "mount option `{COMMIT}{said}`: write a number of seconds"
            ))
        })
    })?;
    let seconds = if seconds == 0 { DEFAULT_S } else { seconds };
    Ok(Duration::from_secs(seconds.into()))
}

/// Where the messages of the background process go.
pub(super) fn log(args: &Mount) -> Option<PathBuf> {
    let said = last(args, |option| option.strip_prefix(LOG).map(PathBuf::from));
    said.or_else(|| args.log.clone())
}

/// Whether data are read and written past the page cache.
pub(super) fn is_direct(args: &Mount) -> bool {
    let said = last(args, |option| match option {
        DIRECT => Some(true),
        NO_DIRECT => Some(false),
        _ => None,
    });
    said.unwrap_or(false)
}

/// Whether the mount is removed when its process is killed.
pub(super) fn unmounts_itself(args: &Mount) -> bool {
    has(args, AUTO_UNMOUNT)
}

/// Whether an existing mount is to be changed.
pub(super) fn is_remount(args: &Mount) -> bool {
    has(args, REMOUNT)
}

fn has(args: &Mount, wanted: &str) -> bool {
    args.options.iter().any(|option| option == wanted)
}

/// Whether the pool does not exist, and `-o nofail` says that this is no failure.
pub(super) fn is_absent_and_may_be(args: &Mount) -> bool {
    let pool = PoolPath::of(&args.pool).resolved().pool;
    has(args, NO_FAIL) && matches!(pool.try_exists(), Ok(false))
}
