//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use vellum::{MappingKind, NamespaceKind};
use vellum_terminal::Printing;
use vellum_terminal::manual::Manual;

use crate::data::DataDevices;
use crate::dataset::Datasets;
use crate::images::Prune;
use crate::location::PathInPool;
use crate::mkfs::tuning::Setting;
use crate::mount::Mount;
use crate::replica::Replica;
use crate::transfer::End;
use crate::units::{Identity, parse_size, parse_uuid};

const EXIT_STATUS: &str = "\
Exit status:
  0  done
  1  something failed; the message says what
  2  wrong usage
  3  the pool or the mount is in use
  `check` and `repair` have the exit status of fsck(8), see `vellum check --help`.

Environment:
  VELLUM_LOG  what is logged to standard error: error, warn (default), info, debug, trace";

/// A file system for persistent memory.
///
/// A pool is an ordinary file, a block device or a device-DAX node. It is used linked into a
/// program, mounted, or with the commands below, which take `POOL:/path` for a path in a pool. A
/// pool can have several datasets (`vellum dataset`): where a pool is taken, `POOL:NAME` is one of
/// them.
#[derive(Debug, Parser)]
#[command(name = "vellum", version, after_long_help = EXIT_STATUS, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a pool
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
    /// Make durable what was done in a mount
    Sync(Sync),
    /// Export and import the metadata of a pool with its external data device, which can move
    Replica {
        /// What to do
        #[command(subcommand)]
        what: Replica,
    },
    /// Show what a pool is, what it holds, and what survives what
    Info(Info),
    /// Remove metadata from memory whose pools are gone
    Prune(Prune),
    /// Check a pool, without changing it
    Check(Check),
    /// Mend a damaged pool
    Repair(Repair),
    /// Convert a pool to another namespace
    Convert(Convert),
    /// Let the areas of a pool come and go by how they are used
    Evolve(Evolve),
    /// Show structures of a pool
    Inspect(Inspect),
    /// Draw the areas of a pool
    Map(Map),
    /// Explore what a power cut may leave of every operation (vellum-crash)
    #[command(disable_help_flag = true)]
    Crash(Further),
    /// List a directory in a pool
    Ls(Ls),
    /// Show the attributes of a file in a pool
    Stat(Stat),
    /// Write the contents of files in a pool to standard output
    Cat(Cat),
    /// Copy a file into a pool
    Put(Put),
    /// Copy a file out of a pool
    Get(Get),
    /// Make directories in a pool
    Mkdir(Mkdir),
    /// Remove files in a pool
    Rm(Rm),
    /// Rename within a pool
    Mv(Mv),
    /// Copy files and directories into a pool, out of one, and between pools
    Cp(Cp),
    /// Copy a directory tree into a pool
    Import(Import),
    /// Copy a directory tree out of a pool
    Export(Export),
    /// Measure Vellum beside other file systems (vellum-bench)
    #[command(disable_help_flag = true)]
    Bench(Further),
    /// Show the version
    Version,
    #[command(flatten)]
    Manual(Manual),
}

impl Command {
    /// What it prints, if it has that as JSON, or quietly.
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
            | Self::Ls(Ls { printing, .. })
            | Self::Stat(Stat { printing, .. })
            | Self::Cp(Cp { printing, .. })
            | Self::Import(Import { printing, .. })
            | Self::Export(Export { printing, .. }) => *printing,
            Self::Replica { what } => what.printing(),
            Self::Dataset { what } => what.printing(),
            Self::Data { what } => what.printing(),
            _ => return None,
        })
    }
}

/// The arguments of a command that is a program of its own.
#[derive(Debug, Args)]
pub(crate) struct Further {
    /// What the program is to do; see its --help
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENT"
    )]
    pub(crate) arguments: Vec<OsString>,
}

/// What a pool lies on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Medium {
    /// What it turns out to be: persistent memory, memory, or else a disk
    #[default]
    Auto,
    /// Persistent memory (DAX), or fail
    Pmem,
    /// An ordinary file or a block device
    Disk,
    /// Memory that need not survive a reboot
    Memory,
}

/// What a power cut leaves of a pool on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiskDurability {
    /// All that was done before a sync: metadata are in memory, made durable by a log
    Log,
    /// No promise: metadata go through the page cache, which writes back in any order
    None,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Namespace {
    /// A log for each directory, and one index of all names
    #[default]
    Direct,
    /// Names with their whole paths, as ADAM has them, in areas that come and go by how directories
    /// are used: to compare with
    Adaptive,
    /// A log and a radix tree for each directory, as NOVA has them: to compare with
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

/// How to open the pool.
#[derive(Args, Clone, Debug)]
pub(crate) struct Opening {
    /// What to take the pool's medium for
    #[arg(long, value_enum, default_value_t)]
    pub(crate) medium: Medium,
    /// The file or device with the data, of a pool that has them apart, if they are not where they
    /// were last; once for each
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Vec<PathBuf>,
}

/// What a new pool, or a new dataset of one, is to be like.
#[derive(Args, Clone, Debug)]
pub(crate) struct Making {
    /// Its bytes, with K, M, G or T (binary); without it mkfs takes a device whole, and what has
    /// its data apart is as large as it has to be
    #[arg(long, value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// The data are to lie on another file or device. Metadata and their log stay in the pool
    /// (--medium disk), or metadata and undo records of them in persistent memory (--medium pmem;
    /// to try it, --medium memory)
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
    /// Bytes of that file; a device is taken whole without it
    #[arg(long, value_parser = parse_size, value_name = "SIZE", requires = "data")]
    pub(crate) data_size: Option<u64>,
    /// What it is to lie on
    #[arg(long, value_enum, default_value_t)]
    pub(crate) medium: Medium,
    /// On a disk, what a power cut leaves [default: log]
    #[arg(long, value_enum)]
    pub(crate) durability: Option<DiskDurability>,
    /// A name for people, at most 64 bytes
    #[arg(long, short = 'L', default_value = "")]
    pub(crate) label: String,
    /// Its identity, which no other pool may have, or `random`
    #[arg(long, short = 'U', value_parser = parse_uuid, default_value = "random")]
    pub(crate) uuid: Identity,
    /// What only experts set, separated by commas; `-O help` lists the keys
    #[arg(short = 'O', value_name = "KEY=VALUE", value_delimiter = ',', value_parser = Setting::parse)]
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
    /// Overwrite what is there, a pool or anything else
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
    /// The directory, or the pool that is mounted, with all its datasets, or POOL:NAME
    pub(crate) dir: PathBuf,
    /// Take the mount from the tree of names at once; it ends when its last user has finished
    #[arg(long, short)]
    pub(crate) lazy: bool,
    /// Cut off whoever uses it, in other mount namespaces (containers) too, and close the pool;
    /// what they have written is in it. Of what is mounted in other namespaces alone, too; and, by
    /// its POOL, of what is mounted nowhere any more while files of it are open
    #[arg(long, short, conflicts_with = "lazy")]
    pub(crate) force: bool,
    /// Then complete the metadata replica on the external data device, as `vellum replica export`
    /// does
    #[arg(long, conflicts_with = "lazy")]
    pub(crate) export_replica: bool,
    /// Seconds to wait until the pool is closed
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub(crate) timeout: u64,
    /// What to take the pool's medium for, with --export-replica
    #[arg(long, value_enum, default_value_t, requires = "export_replica")]
    pub(crate) medium: Medium,
}

#[derive(Debug, Args)]
#[command(after_help = "\
sync(2) and syncfs(2) do not reach a mount, because the kernel keeps them to itself: `sync` and \
`sync -f` do nothing for it. This does what fsync of any file or directory in the mount does, and \
first has the kernel write back what was stored to mapped files. When it returns, what any process \
had done there before survives what the medium survives, see `vellum info`.

Examples:
  vellum sync /mnt
  vellum sync pool.img")]
pub(crate) struct Sync {
    /// The directory, or a path in it, or the pool that is mounted, with all its datasets, or
    /// POOL:NAME
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
On a mounted pool the mount is asked, so that the numbers are current.

Examples:
  vellum info pool.img
  vellum info --json pool.img | jq .space.free_bytes
  vellum info --images")]
pub(crate) struct Info {
    /// The pool, or the directory it is mounted on; with --images a directory in memory [default:
    /// /dev/shm]
    #[arg(required_unless_present = "images")]
    pub(crate) pool: Option<PathBuf>,
    /// List the metadata of pools in memory instead: whose they are, how large and old, and whether
    /// they are in use, can be taken in by the next opening of their pool, or are of use to nobody
    #[arg(long)]
    pub(crate) images: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The check shares the format with the file system and no code. It changes nothing; a pool that was \
not closed cleanly is judged by what recovery would make of it. Of a pool with several file \
systems one that nobody has open can be checked while others are mounted.

Exit status, as fsck(8):
  0   no damage
  4   damage found (nothing is corrected)
  8   the check could not be carried out, or not of everything
  16  wrong usage
Sums are possible.

Examples:
  vellum check pool.img
  vellum check pool.img:builds
  vellum check --json pool.img | jq '.findings[].place'")]
pub(crate) struct Check {
    /// The pool, or POOL:NAME
    pub(crate) pool: PathBuf,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// The file or device with the data, of a pool that has them apart, if they are not where they
    /// were last; once for each
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Vec<PathBuf>,
    /// Count what a crash leaves behind as damage too
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
What is wrong is what `vellum check` finds. The repair is planned in memory until the checker \
finds nothing any more, and only then written. Nothing that can be read is given up: files that \
lost their names go to /lost+found as #INODE, unless their names are found again. A pool that was \
not closed cleanly and is sound needs no repair: the next opening recovers it.

Without --yes it asks about each class of damage, at a terminal; what is not answered at the end \
of the input is left alone.

What the repair overwrites is saved first, by default in POOL.undo-DATE; a device needs --undo \
FILE or --no-undo. `--restore FILE` puts it back, as long as the pool was not used in between. A \
repair that was interrupted is finished by another.

Exit status, as fsck(8):
  0   nothing was wrong
  1   all damage is mended
  4   damage is left
  8   the repair could not be carried out; the pool is in use, or can be neither read nor written
  16  wrong usage
Sums are possible; with --dry-run it is what it would be.

Examples:
  vellum repair pool.img
  vellum repair --dry-run pool.img
  vellum repair --yes --undo /backup/pool.undo /dev/pmem0
  vellum repair pool.img --restore pool.img.undo-20260501T123456Z")]
pub(crate) struct Repair {
    /// The pool
    pub(crate) pool: PathBuf,
    /// Mend everything, without asking
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Say what would be done, and change nothing
    #[arg(long, short = 'n', conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// Save what is overwritten in this file [default: POOL.undo-DATE]
    #[arg(long, value_name = "FILE")]
    pub(crate) undo: Option<PathBuf>,
    /// Save nothing
    #[arg(long, conflicts_with = "undo")]
    pub(crate) no_undo: bool,
    /// Put back what an earlier repair overwrote
    #[arg(long, value_name = "FILE", conflicts_with_all = ["yes", "dry_run", "undo", "no_undo"])]
    pub(crate) restore: Option<PathBuf>,
    /// Discard what a killed process left in memory and had not synced: the pool is as of its last
    /// commit (pools with a log)
    #[arg(long, conflicts_with_all = ["dry_run", "restore"])]
    pub(crate) discard_image: bool,
    /// Take the external data device as it is, though it or the pool is an old copy; then mend what
    /// does not fit
    #[arg(long, conflicts_with_all = ["dry_run", "restore"])]
    pub(crate) force_data_device: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The pool must not be in use. The names of the other namespace are written beside those of this \
one, and the checker proves the outcome, before one word decides: a power cut leaves the old pool, \
or one of which the same command, run again, finishes the conversion. Files, positions in \
directories and times stay as they are.

Examples:
  vellum convert pool.img --namespace tree
  vellum convert --dry-run pool.img --namespace direct")]
pub(crate) struct Convert {
    /// The pool
    pub(crate) pool: PathBuf,
    /// The namespace that it is to have
    #[arg(long, value_enum)]
    pub(crate) namespace: Namespace,
    /// Say what would be done; recover the pool, or finish an earlier conversion, at most
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[command(after_help = "\
An open pool does this by itself, every 5 seconds: a directory of more than 512 KiB of names (less \
in pools below 1 GiB) that is renamed gets an area of its own; a smaller area of which the \
directory was not renamed for 64 rounds, and is read no more than others, goes back into the one \
above. How directories were used is forgotten when a pool is closed, so that on one that is not in \
use small areas go, and nothing else happens. Where a pool is mounted its mount is asked to, which \
it does for the superuser and for the user who mounted it.

Examples:
  vellum evolve pool.img
  vellum evolve --json pool.img | jq '.decisions[].path'")]
pub(crate) struct Evolve {
    /// The pool, of the namespace adaptive
    pub(crate) pool: PathBuf,
    /// Rounds [default: until nothing more is to be done]
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
    /// where merged ones went
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
Each area is a box in that of the area above it, as large as its names are many, in the colour of \
its label. The mount of a pool that is mounted is asked.

Examples:
  vellum map pool.img --out map.svg")]
pub(crate) struct Map {
    /// The pool, of the namespace adaptive
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
Examples:
  vellum stat pool.img:/src/main.rs
  vellum stat --json pool.img:/src")]
pub(crate) struct Stat {
    /// Files
    #[arg(required = true)]
    pub(crate) places: Vec<PathInPool>,
    /// Follow a symbolic link at the end
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
An existing file gets the new contents; into an existing directory the file goes under its own name.

Examples:
  vellum put notes.txt pool.img:/notes.txt
  vellum put photo.jpg pool.img:/pictures/
  date | vellum put - pool.img:/date")]
pub(crate) struct Put {
    /// The file; - is standard input
    pub(crate) file: PathBuf,
    /// Where to
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
    /// Where to; - is standard output
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
    /// Make missing directories above too; an existing one is no error
    #[arg(long, short)]
    pub(crate) parents: bool,
    /// Permission bits, octal [default: 777 less the umask]
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
    /// Directories too, with all that is in them
    #[arg(long, short)]
    pub(crate) recursive: bool,
    /// A missing file is no error
    #[arg(long, short)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[command(after_help = "\
An existing file is replaced; into an existing directory the file goes under its own name.

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
A path with `:/` in it, or `:` at its end, is in a pool. As cp(1) does, it copies into a directory \
that exists, and else to the name that is given; contents replace those of a file that exists. A \
symbolic link there is replaced, not followed. Without -p and -a a new file has the permission \
bits that the umask leaves. Holes stay holes. What could not be copied is reported, and makes the \
exit status 1.

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
    /// Directories too, with all that is in them, and symbolic links as such
    #[arg(long, short, short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Keep permission bits, times, and owners if root copies
    #[arg(long, short)]
    pub(crate) preserve: bool,
    /// As -r and -p, and several names of a file are so again
    #[arg(long, short)]
    pub(crate) archive: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[command(after_help = "\
What is in DIR goes into the directory in the pool, which is made if there is none. Permission \
bits, times, symbolic links, hard links, holes and special files are kept, and owners if root \
imports. What could not be carried is reported, and makes the exit status 1.

Examples:
  vellum import ~/src pool.img:/src")]
pub(crate) struct Import {
    /// The directory
    pub(crate) dir: PathBuf,
    /// Where to
    pub(crate) place: PathInPool,
    /// Replace files that exist
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The contrary of `vellum import`: what is in the directory in the pool goes into DIR.

Examples:
  vellum export pool.img:/src /tmp/src")]
pub(crate) struct Export {
    /// The directory in the pool
    pub(crate) place: PathInPool,
    /// Where to
    pub(crate) dir: PathBuf,
    /// Replace files that exist
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

fn parse_mode(text: &str) -> Result<u16, String> {
    match u16::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!(
            "`{text}` is no mode: write octal digits such as 755"
        )),
    }
}
