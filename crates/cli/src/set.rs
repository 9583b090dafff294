//! `vellum set`: changes what a pool says of itself.

use std::path::PathBuf;

use clap::Args;
use rustix::rand::{GetRandomFlags, getrandom};
use vellum::experiments::{settle_table, write_table};
use vellum_check::{MemoryImage, survey};
use vellum_terminal::{Failure, Outcome, status};

use crate::args::Opening;
use crate::location;
use crate::mount::options;
use crate::units::{Identity, parse_uuid};

#[derive(Debug, Args)]
#[group(required = true, multiple = true, args = ["label", "uuid", "options"])]
#[command(after_help = "\
The pool must not be in use. If it was not closed cleanly, it is recovered first. After a power \
cut the pool has the old settings or the new ones.

A copy of a pool's file or device gets a UUID of its own with --uuid random. Its external data \
devices go on knowing the pool by the UUID that mkfs gave it.

A new mount takes over the options that the pool has, unless it is given others: relatime, \
strictatime, noatime, diratime, nodiratime, lazytime, nolazytime, async, dirsync, sync, direct, \
nodirect, barrier, nobarrier, commit=SECONDS, writeback, nowriteback, xattr, noxattr, uring=auto, \
uring=off. Options that decide who may do what are those of each mount.

Examples:
  vellum set pool.img --label build-cache
  vellum set pool.img:builds --label \"\"
  vellum set copy.img --uuid random
  vellum set pool.img --option noatime,commit=30")]
pub(crate) struct Set {
    /// The pool, or POOL:NAME
    pub(crate) pool: PathBuf,
    /// A label for people to read, at most 64 bytes; empty: none
    #[arg(long, short = 'L')]
    pub(crate) label: Option<String>,
    /// A UUID that no other pool has, or `random`
    #[arg(long, short = 'U', value_parser = parse_uuid)]
    pub(crate) uuid: Option<Identity>,
    /// Options for mounts of the pool, instead of those that it has; empty: none
    #[arg(
        long = "option",
        short = 'o',
        value_delimiter = ',',
        value_name = "OPTION"
    )]
    pub(crate) options: Option<Vec<String>>,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

/// Changes the settings of a pool.
pub(crate) fn run(args: &Set) -> Outcome {
    let mount_options = args.options.as_deref().map(list).transpose()?;
    // Recovers the pool, and refuses one that is damaged or that another command has to finish.
    let recovered = location::open(&args.pool, &args.opening, false)?;
    location::close(recovered, &args.pool)?;
    let pool = location::open_as_it_is(&args.pool, &args.opening)?;
    let image = MemoryImage(&pool);
    let closed = survey::superblock(&image)
        .filter(|superblock| survey::is_closed_cleanly(&image, superblock));
    let superblock = closed.ok_or_else(|| {
        Failure::new(format!(
            "{}: another process has used it meanwhile: repeat the command",
            args.pool.display()
        ))
        .with_status(status::BUSY)
    })?;
    let mut settings = superblock.settings();
    if let Some(label) = &args.label {
        settings.label.clone_from(label);
    }
    match args.uuid {
        Some(Identity::Given(uuid)) => settings.uuid = uuid,
        Some(Identity::Random) => {
            let drawn = getrandom(&mut settings.uuid, GetRandomFlags::empty());
            drawn.map_err(|errno| Failure::io("drawing a UUID", &errno.into()))?;
        }
        None => {}
    }
    settings.mount_options = mount_options.unwrap_or(settings.mount_options);
    let set = superblock.with_settings(&settings);
    let set = set.map_err(|error| Failure::usage(error.to_string()))?;
    let written = settle_table(&pool, &superblock).and_then(|()| write_table(&pool, &set));
    written.map_err(|error| Failure::at(args.pool.display(), &error))
}

/// The options as the pool keeps them. Fails if it cannot keep one of them.
fn list(options: &[String]) -> Outcome<String> {
    let given = || options.iter().filter(|option| !option.is_empty());
    match given().find(|option| !options::can_be_kept(option)) {
        Some(option) => Err(Failure::usage(format!(
            "a pool cannot keep the mount option `{option}`"
        ))
        .advise("`vellum set --help` lists those that it can keep")),
        None => Ok(given().map(String::as_str).collect::<Vec<_>>().join(",")),
    }
}
