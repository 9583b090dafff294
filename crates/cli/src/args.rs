//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use vellum::{MappingKind, NamespaceKind};
use vellum_terminal::Printing;
use vellum_terminal::manual::Manual;

use crate::data::DataDevices;
use crate::dataset::Datasets;
use crate::df::Df;
use crate::du::Du;
use crate::images::Prune;
use crate::info::Info;
use crate::location::PathInPool;
use crate::mkfs::tuning::Setting;
use crate::mount::Mount;
use crate::quota::Quota;
use crate::replica::Replica;
use crate::resize::Resize;
use crate::set::Set;
use crate::snapshot::Snapshot;
use crate::transfer::{End, Export, Import};
use crate::tree::Tree;
use crate::trim::Trim;
use crate::units::{Identity, parse_size, parse_uuid};

const EXIT_STATUS: &str = "\
Exit status:
  0  done
  1  something failed; the message says what
  2  wrong usage
  3  the pool or the mount is in use
  `check` and `repair` exit with the statuses of fsck(8), see `vellum check --help`.

Environment:
  VELLUM_LOG  the level of messages on standard error: error, warn (default), info, debug, trace";

/// A file system for persistent memory.
///
/// A pool is an ordinary file, a block device or a device-DAX node. Programs use it as a linked
/// library or through a mount; the commands below work on it directly. They write a path in a pool
/// as `POOL:/path`; while the pool is mounted, they reach it through the mount, with the rights of
/// their user. A pool can hold several datasets (`vellum dataset`). Wherever a command takes a
/// POOL, `POOL:NAME` selects one of its datasets.
#[derive(Debug, Parser)]
#[command(name = "vellum", version, after_long_help = EXIT_STATUS, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a pool
    Mkfs(Mkfs),
    /// List, add and remove the datasets of a pool
    Dataset {
        /// What to do
        #[command(subcommand)]
        what: Datasets,
    },
    /// Add external data devices to a pool
    Data {
        /// What to do
        #[command(subcommand)]
        what: DataDevices,
    },
    /// Mount a pool on a directory
    Mount(Mount),
    /// Unmount a pool, and wait until it is closed
    Umount(Umount),
    /// Make all changes in a mount durable
    Sync(Sync),
    /// Change the label of a pool
    Set(Set),
    /// Give a pool more room, also while it is mounted
    Resize(Resize),
    /// Give the space of free blocks back to the file system or device below
    Trim(Trim),
    /// Copy a pool to a file that is a pool, also while it is mounted
    Snapshot(Snapshot),
    /// Move a pool to another machine with its external data device: export and import its metadata
    Replica {
        /// What to do
        #[command(subcommand)]
        what: Replica,
    },
    /// Show a pool's layout, contents and mount, and what survives a crash
    Info(Info),
    /// Show and limit what users, groups and projects use of a pool
    Quota(Box<Quota>),
    /// Remove metadata images from memory whose pools are gone
    Prune(Prune),
    /// Check a pool without changing it
    Check(Check),
    /// Repair a damaged pool
    Repair(Repair),
    /// Convert a pool to another namespace
    Convert(Convert),
    /// Split and merge the areas of a pool by how directories are used
    Evolve(Evolve),
    /// Show structures of a pool
    Inspect(Inspect),
    /// Draw the areas of a pool
    Map(Map),
    /// Explore every state that a power cut can leave (vellum-crash)
    #[command(disable_help_flag = true)]
    Crash(Further),
    /// List a directory in a pool
    Ls(Ls),
    /// Draw a directory tree in a pool
    Tree(Tree),
    /// Show the attributes of a file in a pool
    Stat(Stat),
    /// Show the space that files and directories in a pool take
    Du(Du),
    /// Show the space of pools
    Df(Df),
    /// Write the contents of files in a pool to standard output
    Cat(Cat),
    /// Copy a file into a pool
    Put(Put),
    /// Copy a file out of a pool
    Get(Get),
    /// Create directories in a pool
    Mkdir(Mkdir),
    /// Remove files in a pool
    Rm(Rm),
    /// Rename a file within a pool
    Mv(Mv),
    /// Copy files and directories into a pool, out of one, or between pools
    Cp(Cp),
    /// Copy a directory tree into a pool
    Import(Import),
    /// Copy a directory tree out of a pool
    Export(Export),
    /// Measure Vellum against other file systems (vellum-bench)
    #[command(disable_help_flag = true)]
    Bench(Further),
    /// Show the version
    Version,
    #[command(flatten)]
    Manual(Manual),
}

impl Command {
    /// The output options of the command, if it has any.
    pub(crate) fn printing(&self) -> Option<Printing> {
        Some(match self {
            Self::Mkfs(Mkfs { printing, .. })
            | Self::Info(Info { printing, .. })
            | Self::Prune(Prune { printing, .. })
            | Self::Check(Check { printing, .. })
            | Self::Repair(Repair { printing, .. })
            | Self::Convert(Convert { printing, .. })
            | Self::Evolve(Evolve { printing, .. })
            | Self::Inspect(Inspect { printing, .. })
            | Self::Resize(Resize { printing, .. })
            | Self::Trim(Trim { printing, .. })
            | Self::Snapshot(Snapshot { printing, .. })
            | Self::Ls(Ls { printing, .. })
            | Self::Tree(Tree { printing, .. })
            | Self::Stat(Stat { printing, .. })
            | Self::Du(Du { printing, .. })
            | Self::Df(Df { printing, .. })
            | Self::Cp(Cp { printing, .. })
            | Self::Import(Import { printing, .. })
            | Self::Export(Export { printing, .. }) => *printing,
            Self::Quota(args) => args.printing(),
            Self::Replica { what } => what.printing(),
            Self::Dataset { what } => what.printing(),
            Self::Data { what } => what.printing(),
            _ => return None,
        })
    }
}

/// The arguments of a command that another program executes.
#[derive(Debug, Args)]
pub(crate) struct Further {
    /// Arguments of that program; see its --help
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENT"
    )]
    pub(crate) arguments: Vec<OsString>,
}

/// The kind of device that a pool is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Medium {
    /// Detect persistent memory or memory; anything else is a disk
    #[default]
    Auto,
    /// Persistent memory (DAX); fail on anything else
    Pmem,
    /// An ordinary file or a block device
    Disk,
    /// Memory that need not survive a reboot
    Memory,
}

/// How much of a pool on a disk survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiskDurability {
    /// Everything before a sync survives: metadata live in memory, and a log makes them durable
    Log,
    /// No promise: metadata live in the page cache, which writes them back in any order
    None,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Namespace {
    /// A log for each directory, and one index of all names
    #[default]
    Direct,
    /// Names with their whole paths, as in ADAM, in areas that are split and merged by how
    /// directories are used; for comparison
    Adaptive,
    /// A log and a radix tree for each directory, as in NOVA; for comparison
    Tree,
}

impl From<Namespace> for NamespaceKind {
    fn from(namespace: Namespace) -> Self {
        match namespace {
            Namespace::Direct => Self::Direct,
            Namespace::Adaptive => Self::Adaptive,
            Namespace::Tree => Self::Tree,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mapping {
    /// A hash table that is also the block allocator
    #[default]
    Hashfs,
    /// A radix tree for each file
    Radix,
    /// An extent tree for each file
    Extent,
    /// An extent tree for each file, read through a page cache
    ExtentCached,
    /// One cuckoo hash table for all files
    Cuckoo,
    /// One level hash table for all files, which grows
    Level,
}

impl From<Mapping> for MappingKind {
    fn from(mapping: Mapping) -> Self {
        match mapping {
            Mapping::Hashfs => Self::HashFs,
            Mapping::Radix => Self::Radix,
            Mapping::Extent => Self::Extent,
            Mapping::ExtentCached => Self::ExtentCached,
            Mapping::Cuckoo => Self::Cuckoo,
            Mapping::Level => Self::Level,
        }
    }
}

/// How to open the pool. Commands that work through a mount open none.
#[derive(Args, Clone, Debug)]
pub(crate) struct Opening {
    /// Treat the pool's device as
    #[arg(long, value_enum, default_value_t)]
    pub(crate) medium: Medium,
    /// The external data device (or file) of the pool, if it is not where it was last; repeat the
    /// option for each
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Vec<PathBuf>,
}

/// The properties of a new pool or dataset.
#[derive(Args, Clone, Debug)]
pub(crate) struct Making {
    /// Size, with K, M, G or T (powers of 1024). Default: the whole device; with --data, as much as
    /// the metadata need
    #[arg(long, value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// Put the data of files on this external data device (or file). The pool keeps the metadata:
    /// with a log on a disk (--medium disk), or with undo records in persistent memory (--medium
    /// pmem; --medium memory to try it)
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
    /// Size of the external data device. Default: the whole device
    #[arg(long, value_parser = parse_size, value_name = "SIZE", requires = "data")]
    pub(crate) data_size: Option<u64>,
    /// Treat the device as
    #[arg(long, value_enum, default_value_t)]
    pub(crate) medium: Medium,
    /// On a disk, how much survives a power cut [default: log]
    #[arg(long, value_enum)]
    pub(crate) durability: Option<DiskDurability>,
    /// A label for people to read, at most 64 bytes
    #[arg(long, short = 'L', default_value = "")]
    pub(crate) label: String,
    /// A UUID that no other pool has, or `random`
    #[arg(long, short = 'U', value_parser = parse_uuid, default_value = "random")]
    pub(crate) uuid: Identity,
    /// Turn quotas on (see `vellum quota`)
    #[arg(long)]
    pub(crate) quota: bool,
    /// Take space from the file system below only as data blocks are used
    #[arg(long, conflicts_with = "data")]
    pub(crate) sparse: bool,
    /// Settings for experts, separated by commas; `-O help` lists the keys
    #[arg(
        short = 'O',
        value_name = "KEY=VALUE",
        value_delimiter = ',',
        value_parser = Setting::parse
    )]
    pub(crate) settings: Vec<Setting>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vellum mkfs pool.img --size 4G
  vellum mkfs pool.img --size 4G -L build-cache
  vellum mkfs pool.img --size 4G --durability none
  vellum mkfs pool.img --data /dev/sdb1
  vellum mkfs pool.img --data data.img --data-size 100G
  vellum mkfs /mnt/pmem/pool --medium pmem --data /dev/sdb1
  vellum mkfs /mnt/pmem/pool --size 64G --medium pmem -O mapping=extent,metadata=8G
  vellum mkfs /dev/dax0.0")]
pub(crate) struct Mkfs {
    /// The pool: a new file, or a device
    #[arg(required_unless_present = "settings")]
    pub(crate) pool: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) making: Making,
    /// Overwrite existing contents, a pool or anything else
    #[arg(long, short)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vellum umount /mnt
  vellum umount pool.img
  vellum umount --lazy /mnt
  vellum umount --force /mnt
  vellum umount --export-replica /mnt")]
pub(crate) struct Umount {
    /// The directory; or the pool, to unmount all its datasets; or POOL:NAME
    pub(crate) dir: PathBuf,
    /// Detach the mount from the directory at once; it ends when its last user has finished
    #[arg(long, short)]
    pub(crate) lazy: bool,
    /// End the mount although it is in use, in other mount namespaces (containers) too, and close
    /// the pool. What its users have written is kept. This also ends mounts that exist in other
    /// namespaces only. Naming the POOL ends one that is no longer mounted anywhere but still has
    /// open files
    #[arg(long, short, conflicts_with = "lazy")]
    pub(crate) force: bool,
    /// Then write the metadata replica to the external data device, as `vellum replica export` does
    #[arg(long, conflicts_with = "lazy")]
    pub(crate) export_replica: bool,
    /// How long to wait until the pool is closed
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub(crate) timeout: u64,
    /// Treat the pool's device as, with --export-replica
    #[arg(long, value_enum, default_value_t, requires = "export_replica")]
    pub(crate) medium: Medium,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The kernel does not pass sync(2) and syncfs(2) on to a mount, so `sync` and `sync -f` do nothing \
for it. This command does what fsync of any file or directory in the mount does. First it makes \
the kernel write back the changes to mapped files. When it returns, all earlier changes of all \
processes are durable, as `vellum info` describes.

Examples:
  vellum sync /mnt
  vellum sync pool.img")]
pub(crate) struct Sync {
    /// The directory or a path in it; or the pool, to sync all its mounted datasets; or POOL:NAME
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The checker shares no code with the file system, only the format. It changes nothing. It judges a \
pool that was not closed cleanly by the state that recovery would produce. A dataset that is not \
open can be checked while other datasets of its pool are mounted.

With --online it checks a mounted pool. Changes wait for an instant, and the metadata are copied, \
as they are then, to a temporary file (TMPDIR), which is checked. The output says what only a pool \
at rest can be checked for.

Exit status, as fsck(8):
  0   no damage
  4   damage found (nothing is corrected)
    8   the check could not be done, or not completely
  16  wrong usage
Statuses are added up if several apply.

Examples:
  vellum check pool.img
  vellum check pool.img:builds
  vellum check --online /mnt
  vellum check --json pool.img | jq '.findings[].place'")]
pub(crate) struct Check {
    /// The pool, or POOL:NAME; with --online also the directory on which it is mounted
    pub(crate) pool: PathBuf,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// The external data device (or file) of the pool, if it is not where it was last; repeat the
    /// option for each
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Vec<PathBuf>,
    /// Count leftovers of a crash as damage too
    #[arg(long)]
    pub(crate) strict: bool,
    /// Check a mounted pool, beside its use
    #[arg(long, conflicts_with_all = ["data", "strict"])]
    pub(crate) online: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Repairs the damage that `vellum check` finds. The repair is planned in memory until the checker \
finds no damage in the result; only then is it written. Everything that can be read is kept: files \
that lost their names go to /lost+found as #INODE, unless their names are found again. A pool that \
was not closed cleanly but is sound needs no repair: the next opening recovers it.

Without --yes, the command asks about each class of damage; it needs a terminal for that. Classes \
that are unanswered at the end of input are left alone.

The bytes that the repair overwrites are saved first, by default in POOL.undo-DATE; a device needs \
--undo FILE or --no-undo. `--restore FILE` puts them back, as long as the pool was not used in \
between. To finish an interrupted repair, run it again.

Exit status, as fsck(8):
  0   no damage
  1   all damage was repaired
  4   damage is left
  8   the repair could not be done: the pool is in use, or cannot be read or written
  16  wrong usage
Statuses are added up if several apply. With --dry-run it is the status of the repair as planned.

Examples:
  vellum repair pool.img
  vellum repair --dry-run pool.img
  vellum repair --yes --undo /backup/pool.undo /dev/pmem0
  vellum repair pool.img --restore pool.img.undo-20260501T123456Z")]
pub(crate) struct Repair {
    /// The pool
    pub(crate) pool: PathBuf,
    /// Repair everything without asking
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Show what would be done, and change nothing
    #[arg(long, short = 'n', conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// Leave a pool alone that was closed cleanly
    #[arg(long, conflicts_with_all = ["restore", "json"])]
    pub(crate) unless_clean: bool,
    /// Save the overwritten bytes in this file [default: POOL.undo-DATE]
    #[arg(long, value_name = "FILE")]
    pub(crate) undo: Option<PathBuf>,
    /// Do not save the overwritten bytes
    #[arg(long, conflicts_with = "undo")]
    pub(crate) no_undo: bool,
    /// Put back the bytes that an earlier repair overwrote
    #[arg(long, value_name = "FILE", conflicts_with_all = ["yes", "dry_run", "undo", "no_undo"])]
    pub(crate) restore: Option<PathBuf>,
    /// Discard the changes that a killed process left in memory unsynced; the pool goes back to its
    /// last commit (pools with a log)
    #[arg(long, conflicts_with_all = ["dry_run", "restore"])]
    pub(crate) discard_image: bool,
    /// Accept the external data device although it or the pool is an old copy; then repair what
    /// does not match
    #[arg(long, conflicts_with_all = ["dry_run", "restore"])]
    pub(crate) force_data_device: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The pool must not be in use. The names in the new namespace are written beside the old ones, and \
the checker proves the result. Then one 8-byte store switches the pool over. After a power cut the \
pool is either the old one, or one for which the same command, run again, finishes the conversion. \
Files, positions in directories and times are kept.

Examples:
  vellum convert pool.img --namespace tree
  vellum convert --dry-run pool.img --namespace direct")]
pub(crate) struct Convert {
    /// The pool
    pub(crate) pool: PathBuf,
    /// The new namespace
    #[arg(long, value_enum)]
    pub(crate) namespace: Namespace,
    /// Show what would be done; at most recover the pool or finish an earlier conversion
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[command(after_help = "\
An open pool does this by itself every 5 seconds. A directory with more than 512 KiB of names \
(less in pools below 1 GiB) that was renamed gets an area of its own. An area is merged into the \
one above when it is smaller, its directory was not renamed for 64 rounds, and the directory is \
read no more than others. The use of directories is forgotten when a pool is closed, so on a pool \
that is not in use the command only merges small areas. If the pool is mounted, the mount does the \
work; it obeys the superuser and the user who mounted it.

Examples:
  vellum evolve pool.img
  vellum evolve --json pool.img | jq '.decisions[].path'")]
pub(crate) struct Evolve {
    /// The pool, with the namespace adaptive
    pub(crate) pool: PathBuf,
    /// Number of rounds [default: until nothing is left to do]
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<u64>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

/// What to show of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Structure {
    /// The areas of the namespace adaptive: their numbers, labels, names and root directories, and
    /// where merged areas went
    Areas,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vellum inspect areas pool.img
  vellum inspect --json areas pool.img | jq '.areas[].path'")]
pub(crate) struct Inspect {
    /// What to show
    #[arg(value_enum)]
    pub(crate) what: Structure,
    /// The pool
    pub(crate) pool: PathBuf,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each area is a box inside the box of the area above it. Its size follows its number of names, its \
colour its label. For a mounted pool, the mount answers.

Examples:
  vellum map pool.img --out map.svg")]
pub(crate) struct Map {
    /// The pool, with the namespace adaptive
    pub(crate) pool: PathBuf,
    /// The SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vellum ls pool.img:/
  vellum ls -la pool.img:/src
  vellum ls --json pool.img:/src | jq '.[].name'")]
pub(crate) struct Ls {
    /// Directories or files
    #[arg(required = true)]
    pub(crate) places: Vec<PathInPool>,
    /// Show kinds, modes, owners, sizes and times
    #[arg(long, short)]
    pub(crate) long: bool,
    /// Show names that begin with a dot
    #[arg(long, short)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[command(after_help = "\
In a mounted pool, the generations of links and special files are not shown, and of files that the \
user may not read neither generation nor flags nor project.

Examples:
  vellum stat pool.img:/src/main.rs
  vellum stat --json pool.img:/src")]
pub(crate) struct Stat {
    /// Files
    #[arg(required = true)]
    pub(crate) places: Vec<PathInPool>,
    /// Follow a symbolic link in the last component
    #[arg(long, short = 'L')]
    pub(crate) dereference: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vellum cat pool.img:/etc/motd
  vellum cat pool.img:/a pool.img:/b > both")]
pub(crate) struct Cat {
    /// Files
    #[arg(required = true)]
    pub(crate) places: Vec<PathInPool>,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[command(after_help = "\
An existing file is overwritten. In an existing directory, the file gets its own name.

Examples:
  vellum put notes.txt pool.img:/notes.txt
  vellum put photo.jpg pool.img:/pictures/
  date | vellum put - pool.img:/date")]
pub(crate) struct Put {
    /// The file, or - for standard input
    pub(crate) file: PathBuf,
    /// The target
    pub(crate) place: PathInPool,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vellum get pool.img:/notes.txt notes.txt
  vellum get pool.img:/notes.txt .
  vellum get pool.img:/notes.txt - | wc")]
pub(crate) struct Get {
    /// The file in the pool
    pub(crate) place: PathInPool,
    /// The target, or - for standard output
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vellum mkdir pool.img:/src
  vellum mkdir -p pool.img:/a/b/c")]
pub(crate) struct Mkdir {
    /// Directories
    #[arg(required = true)]
    pub(crate) places: Vec<PathInPool>,
    /// Create missing parent directories too; an existing directory is no error
    #[arg(long, short)]
    pub(crate) parents: bool,
    /// Permission bits, octal [default: 777 minus the umask]
    #[arg(long, short, value_parser = parse_mode)]
    pub(crate) mode: Option<u16>,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vellum rm pool.img:/notes.txt
  vellum rm -r pool.img:/src")]
pub(crate) struct Rm {
    /// Files
    #[arg(required = true)]
    pub(crate) places: Vec<PathInPool>,
    /// Remove directories too, with all their contents
    #[arg(long, short)]
    pub(crate) recursive: bool,
    /// Ignore missing files
    #[arg(long, short)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[command(after_help = "\
An existing file is replaced. In an existing directory, the file keeps its own name.

Examples:
  vellum mv pool.img:/a pool.img:/b
  vellum mv pool.img:/notes.txt pool.img:/old/")]
pub(crate) struct Mv {
    /// The file
    pub(crate) from: PathInPool,
    /// Its new name, in the same pool
    pub(crate) to: PathInPool,
    /// Fail if the new name exists
    #[arg(long, short)]
    pub(crate) no_clobber: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A path that contains `:/` or ends with `:` is in a pool. As with cp(1), an existing directory as \
TARGET receives the copies; any other TARGET is the name of the copy. An existing file is \
overwritten; a symbolic link at the target is replaced, not followed. Without -p and -a, the umask \
applies to new files, or the access control list that the directory has for them. Holes stay \
holes. Files and attributes that could not be copied are reported, and the exit \
status is 1.

Examples:
  vellum cp notes.txt pool.img:/
  vellum cp -a ~/src pool.img:/
  vellum cp pool.img:/a pool.img:/b /tmp
  vellum cp -r pool.img:/src other.img:/backup")]
pub(crate) struct Cp {
    /// Files and directories: paths, or POOL:/path
    #[arg(required = true, value_name = "SOURCE")]
    pub(crate) sources: Vec<End>,
    /// The directory or file: a path, or POOL:/path
    #[arg(value_name = "TARGET")]
    pub(crate) target: End,
    /// Copy directories with all their contents, and symbolic links as links
    #[arg(long, short, short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Keep permission bits, access control lists, `user.` attributes and times, and owners and
    /// all other extended attributes if root copies
    #[arg(long, short)]
    pub(crate) preserve: bool,
    /// As -r and -p, and keep hard links
    #[arg(long, short)]
    pub(crate) archive: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

fn parse_mode(text: &str) -> Result<u16, String> {
    match u16::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!(
            "`{text}` is not a mode: write octal digits such as 755"
        )),
    }
}
