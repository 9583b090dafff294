//! `vellum quota`: what users, groups and projects use, and what they may use.
//!
//! The command builds requests. [`answer()`] answers them, in the process of the mount or in this
//! one.

mod answer;
mod text;

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, Subcommand};
use nix::unistd::{Group, User};
use serde::Serialize;
use vellum::{Cred, Pool, QuotaKind};
use vellum_fuse::mounts::Mounted;
use vellum_fuse::{ControlRequest, LimitsChange, QuotaRequest};
use vellum_terminal::output::{print, print_json, say};
use vellum_terminal::{Failure, Outcome, Printing, quoted};

use crate::args::Opening;
use crate::info;
use crate::location;
use crate::units::{parse_count, parse_duration, parse_limit};

pub(crate) use answer::answer;
use answer::{Answer, Defaults, Line, Refusal, Told, Why};

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Shows what users, groups and projects use and may use. Bytes are those of the blocks that stat(1) \
shows, and of one block for each directory; files are all inodes. Nobody exceeds a hard limit. A \
soft one may be exceeded for the grace period. The mark `+-` means that a limit of bytes is \
exceeded, `-+` one of files. Limits do not bind root.

Without an option, the superuser and whoever mounted the pool see all that have files or limits; \
other users see themselves and their groups. A pool named like one of the commands is ./NAME.

Examples:
  vellum quota on pool.img
  vellum quota set pool.img --user alice --soft 900M --hard 1G
  vellum quota default pool.img --user --hard-files 100000 --grace 3d
  vellum quota /mnt
  vellum quota /mnt --user alice --json"
)]
pub(crate) struct Quota {
    #[command(subcommand)]
    change: Option<Change>,
    /// The pool, POOL:NAME, or the directory on which it is mounted
    #[arg(required = true)]
    pool: Option<PathBuf>,
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    printing: Printing,
}

#[derive(Debug, Subcommand)]
enum Change {
    /// Turn quotas on: count all files, and let limits hold
    On(Switch),
    /// Turn quotas off; limits are kept for when they are turned on again
    Off(Switch),
    /// Set the limits of a user, a group or a project
    Set(Set),
    /// Set or show the limits of all that have none of their own, and the grace periods
    Default(SetDefaults),
}

#[derive(Args, Debug)]
#[group(multiple = false)]
struct Whose {
    /// A user
    #[arg(long, short, value_name = "NAME|ID")]
    user: Option<String>,
    /// A group
    #[arg(long, short, value_name = "NAME|ID")]
    group: Option<String>,
    /// A project
    #[arg(long, short = 'P', value_name = "ID")]
    project: Option<String>,
}

#[derive(Args, Debug)]
#[group(multiple = false)]
struct Kinds {
    /// For all users but root
    #[arg(long, short)]
    user: bool,
    /// For all groups but that of root
    #[arg(long, short)]
    group: bool,
    /// For all projects but 0
    #[arg(long, short = 'P')]
    project: bool,
}

#[derive(Args, Clone, Copy, Debug)]
struct Limits {
    /// Bytes that may be exceeded for the grace period, with K, M, G or T; `none`: no limit
    #[arg(long, value_name = "SIZE", value_parser = parse_limit)]
    soft: Option<u64>,
    /// Bytes that are never exceeded
    #[arg(long, value_name = "SIZE", value_parser = parse_limit)]
    hard: Option<u64>,
    /// Number of files that may be exceeded for the grace period; `none`: no limit
    #[arg(long, value_name = "N", value_parser = parse_count)]
    soft_files: Option<u64>,
    /// Number of files that is never exceeded
    #[arg(long, value_name = "N", value_parser = parse_count)]
    hard_files: Option<u64>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Turning quotas on reads all inodes; changes wait meanwhile. So does each opening of a pool with \
quotas.

Examples:
  vellum quota on pool.img
  vellum quota off /mnt")]
struct Switch {
    /// The pool, POOL:NAME, or the directory on which it is mounted
    pool: PathBuf,
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    printing: Printing,
}

#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("whom").required(true).args(["user", "group", "project"]),
    group = ArgGroup::new("what").required(true).multiple(true)
        .args(["soft", "hard", "soft_files", "hard_files", "default"]),
    after_help = "\
A limit that is not given stays as it is. Usage may be above a new limit: then it can only shrink.

Examples:
  vellum quota set pool.img --user alice --soft 900M --hard 1G
  vellum quota set /mnt --project 7 --hard-files 10000 --hard none
  vellum quota set /mnt --group staff --default"
)]
struct Set {
    /// The pool, POOL:NAME, or the directory on which it is mounted
    pool: PathBuf,
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    limits: Limits,
    /// Give up its own limits, so that the defaults hold
    #[arg(long, conflicts_with_all = ["soft", "hard", "soft_files", "hard_files"])]
    default: bool,
    #[command(flatten)]
    printing: Printing,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Without a limit or a grace period, shows what holds. Grace periods that run already keep their \
ends.

Examples:
  vellum quota default pool.img
  vellum quota default pool.img --user --soft 1G --grace 3d
  vellum quota default /mnt --project --hard none")]
struct SetDefaults {
    /// The pool, POOL:NAME, or the directory on which it is mounted
    pool: PathBuf,
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    kinds: Kinds,
    #[command(flatten)]
    limits: Limits,
    /// How long a soft limit of bytes may be exceeded: 7d, 12h, 30m, 90s or a number of seconds
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    grace: Option<u64>,
    /// The same for files
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    grace_files: Option<u64>,
    #[command(flatten)]
    printing: Printing,
}

/// What `--json` writes.
#[derive(Serialize)]
struct Shown {
    pool: String,
    is_on: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    quotas: Option<Vec<ShownLine>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    defaults: Option<Vec<Defaults>>,
}

#[derive(Serialize)]
struct ShownLine {
    #[serde(flatten)]
    line: Line,
    name: Option<String>,
    bytes_exceeded: bool,
    bytes_grace_left_s: Option<u64>,
    files_exceeded: bool,
    files_grace_left_s: Option<u64>,
}

impl Quota {
    pub(crate) fn printing(&self) -> Printing {
        match &self.change {
            None => self.printing,
            Some(Change::On(args) | Change::Off(args)) => args.printing,
            Some(Change::Set(args)) => args.printing,
            Some(Change::Default(args)) => args.printing,
        }
    }
}

pub(crate) fn run(args: &Quota) -> Outcome {
    match (&args.change, &args.pool) {
        (Some(Change::On(args)), _) => switch(args, true),
        (Some(Change::Off(args)), _) => switch(args, false),
        (Some(Change::Set(args)), _) => set(args),
        (Some(Change::Default(args)), _) => defaults(args),
        (None, Some(pool)) => report(pool, args),
        (None, None) => Err(Failure::usage("name the pool")),
    }
}

fn report(pool: &Path, args: &Quota) -> Outcome {
    let place = Place::of(pool, &args.opening);
    let request = QuotaRequest::Report {
        of: args.whose.id()?,
    };
    let told = place.ask(false, request)?;
    match args.printing.json {
        true => print_json(&Shown::quotas(&place, told)),
        false => print(text::table(&told.quotas)),
    }
}

fn switch(args: &Switch, is_on: bool) -> Outcome {
    let place = Place::of(&args.pool, &args.opening);
    let told = place.ask(true, QuotaRequest::Switch { is_on })?;
    if args.printing.json {
        return print_json(&Shown::of(&place, told.is_on));
    }
    if args.printing.has_summary() {
        let state = if told.is_on { "on" } else { "off" };
        say!("{}: quotas are {state}", place.pool.display());
    }
    Ok(())
}

fn set(args: &Set) -> Outcome {
    let place = Place::of(&args.pool, &args.opening);
    let Some(of) = args.whose.id()? else {
        return Err(Failure::usage(
            "say whose limits: --user, --group or --project",
        ));
    };
    let request = match args.default {
        true => QuotaRequest::Reset { of },
        false => QuotaRequest::Set {
            of,
            limits: args.limits.change(),
        },
    };
    let told = place.ask(true, request)?;
    if args.printing.json {
        return print_json(&Shown::quotas(&place, told));
    }
    if args.printing.has_summary() {
        for line in &told.quotas {
            say!("{}: {}", place.pool.display(), line.told());
        }
    }
    Ok(())
}

fn defaults(args: &SetDefaults) -> Outcome {
    let place = Place::of(&args.pool, &args.opening);
    const NS: u64 = 1_000_000_000;
    let limits = args.limits.change();
    let changes_nothing =
        limits == LimitsChange::default() && args.grace.is_none() && args.grace_files.is_none();
    let kinds = match args.kinds.kind() {
        Some(kind) => vec![kind],
        None if changes_nothing => QuotaKind::ALL.to_vec(),
        None => {
            return Err(Failure::usage("say for whom: --user, --group or --project"));
        }
    };
    let told = place.open(!changes_nothing, |asked| {
        let request = |kind| QuotaRequest::Defaults {
            kind,
            limits,
            bytes_grace_ns: args.grace.map(|seconds| seconds.saturating_mul(NS)),
            inodes_grace_ns: args.grace_files.map(|seconds| seconds.saturating_mul(NS)),
        };
        let told = kinds.iter().map(|&kind| asked.ask(request(kind)));
        told.collect::<Outcome<Vec<Told>>>()
    })?;
    let told: Vec<Defaults> = told.into_iter().filter_map(|told| told.defaults).collect();
    if args.printing.json {
        return print_json(&Shown {
            defaults: Some(told),
            ..Shown::of(&place, true)
        });
    }
    let lines = told.iter().map(|defaults| defaults.told() + "\n");
    match changes_nothing {
        true => print(lines.collect::<String>()),
        false if args.printing.has_summary() => {
            lines.for_each(|line| say!("{}: {}", place.pool.display(), line.trim_end()));
            Ok(())
        }
        false => Ok(()),
    }
}

impl Shown {
    fn of(place: &Place<'_>, is_on: bool) -> Self {
        Self {
            pool: place.pool.display().to_string(),
            is_on,
            quotas: None,
            defaults: None,
        }
    }

    fn quotas(place: &Place<'_>, told: Told) -> Self {
        let shown = |line: Line| ShownLine {
            name: line.name(),
            bytes_exceeded: line.bytes.is_over(),
            bytes_grace_left_s: line.bytes.grace_left_s(),
            files_exceeded: line.files.is_over(),
            files_grace_left_s: line.files.grace_left_s(),
            line,
        };
        Self {
            quotas: Some(told.quotas.into_iter().map(shown).collect()),
            ..Self::of(place, told.is_on)
        }
    }
}

impl Whose {
    /// The user, group or project that the options name.
    fn id(&self) -> Outcome<Option<(QuotaKind, u32)>> {
        let named = |error: nix::Error, what: &str, name: &str| {
            Failure::new(format!("looking up the {what} `{name}`: {}", error.desc()))
        };
        let (kind, name, known) = match self {
            Self {
                user: Some(name), ..
            } => {
                let found = User::from_name(name).map_err(|error| named(error, "user", name))?;
                (QuotaKind::User, name, found.map(|user| user.uid.as_raw()))
            }
            Self {
                group: Some(name), ..
            } => {
                let found = Group::from_name(name).map_err(|error| named(error, "group", name))?;
                (
                    QuotaKind::Group,
                    name,
                    found.map(|group| group.gid.as_raw()),
                )
            }
            Self {
                project: Some(name),
                ..
            } => (QuotaKind::Project, name, None),
            _ => return Ok(None),
        };
        let number = || name.parse().ok().filter(|&id| id != u32::MAX);
        let id = known.or_else(number).ok_or_else(|| match kind {
            QuotaKind::User => Failure::new(format!("there is no user `{name}`")),
            QuotaKind::Group => Failure::new(format!("there is no group `{name}`")),
            QuotaKind::Project => {
                Failure::usage(format!("`{name}` is not a project: write its number"))
            }
        })?;
        Ok(Some((kind, id)))
    }
}

impl Kinds {
    fn kind(&self) -> Option<QuotaKind> {
        match self {
            Self { user: true, .. } => Some(QuotaKind::User),
            Self { group: true, .. } => Some(QuotaKind::Group),
            Self { project: true, .. } => Some(QuotaKind::Project),
            _ => None,
        }
    }
}

impl Limits {
    fn change(self) -> LimitsChange {
        LimitsChange {
            hard_bytes: self.hard,
            soft_bytes: self.soft,
            hard_inodes: self.hard_files,
            soft_inodes: self.soft_files,
        }
    }
}

/// The pool, and how to open it if it is not mounted.
struct Place<'p> {
    pool: &'p Path,
    opening: &'p Opening,
}

/// The file system that answers requests.
struct Asking<'p> {
    named: &'p Path,
    by: By,
}

enum By {
    Mount(Mounted),
    /// The command has opened the pool itself.
    Pool(Pool),
}

impl<'p> Place<'p> {
    fn of(pool: &'p Path, opening: &'p Opening) -> Self {
        Self { pool, opening }
    }

    /// Sends a request.
    fn ask(&self, is_change: bool, request: QuotaRequest) -> Outcome<Told> {
        self.open(is_change, |asked| asked.ask(request))
    }

    /// Opens the pool, unless it is mounted, for as long as `run` sends requests.
    fn open<T>(&self, is_change: bool, run: impl FnOnce(&Asking<'_>) -> Outcome<T>) -> Outcome<T> {
        if let Some(mounted) = info::live_mount_of(self.pool) {
            return run(&Asking {
                named: self.pool,
                by: By::Mount(mounted),
            });
        }
        let path = &info::pool_of(self.pool);
        let pool = match is_change {
            true => location::open(path, self.opening, false)?,
            false => location::open_to_look(path, self.opening)?,
        };
        let asking = Asking {
            named: path,
            by: By::Pool(pool),
        };
        let told = run(&asking);
        let By::Pool(pool) = asking.by else {
            return told;
        };
        let closed = location::close(pool, path);
        let told = told?;
        closed.map(|()| told)
    }
}

impl Asking<'_> {
    fn ask(&self, request: QuotaRequest) -> Outcome<Told> {
        let answer = match &self.by {
            By::Mount(mounted) => info::ask(mounted, ControlRequest::Quota(request))?,
            By::Pool(pool) => {
                // Whoever can open a pool can do anything with it.
                let cred = Cred {
                    privileged: true,
                    ..Cred::current()
                };
                answer(&pool.fs(), &cred, request)
            }
        };
        match answer {
            Answer::Done(told) => Ok(told),
            Answer::Refused(refusal) => Err(self.failure(&refusal, request)),
        }
    }

    /// The failure for a request that was refused, and what to do.
    fn failure(&self, refusal: &Refusal, request: QuotaRequest) -> Failure {
        let (place, word) = (self.named.display(), quoted(self.named));
        let failed = |text: &str| Failure::new(format!("{place}: {text}"));
        match (refusal.why, request) {
            (Why::Off, _) => {
                failed("quotas are off").advise(format!("`vellum quota on {word}` turns them on"))
            }
            (Why::NotPermitted, QuotaRequest::Report { .. }) => {
                failed("users may see their own quota and those of their groups only")
                    .advise("run this as root, or as the user who mounted it")
            }
            (Why::NotPermitted, _) => {
                failed("not permitted").advise("run this as root, or as the user who mounted it")
            }
            (Why::ReadOnly, _) => {
                failed("it is open for reading only, so its quotas cannot be changed").advise(
                    format!("`vellum umount {word}`, and mount it without -o ro"),
                )
            }
            (Why::Invalid, _) => failed(&refusal.text).advise(
                "a limit that is not given stays as it is: give both, or `none` for no limit",
            ),
            (Why::Other, _) => failed(&refusal.text),
        }
    }
}
