//! Size: many files, large directories, long paths, files with many names, sparse files; opening a
//! pool of many files, and using full pools for long.
//!
//! The pools of a figure are open together and take turns, round by round, so that a disturbance
//! affects all sizes; the first round does not count. A target is what the worst size may cost over
//! the smallest, in the same round.

mod crowd;
mod depth;
mod directory;
mod files;
mod instructions;
mod links;
mod opening;
mod soak;
mod sparse;

use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::ProgressBar;
use tempfile::TempDir;
use vellum::{CreateOptions, LINK_MAX, NamespaceKind, PoolOptions};

use crate::Result;
use crate::callgrind::counted;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::library::Library;
use crate::machine::Machine;
use crate::mapping::{Grid, Sample};
use crate::progress::bar;
pub use crate::report::Report;
use crate::report::{About, Outcome, Output};
use crate::scratch::dir_in;
use crate::side::{Side, timed};
use crate::target::Target;

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// Creating, looking up, listing and removing in pools of more and more files
    Files,
    /// The same in larger and larger directories
    Directory,
    /// Paths of up to 4095 bytes
    Depth,
    /// Files with more and more names
    Links,
    /// Blocks scattered over larger and larger files, with every mapping
    Sparse,
    /// Opening a pool of many files after a clean close, a kill, and a power cut
    Opening,
    /// Creations, writes, renames and removals for long, in pools that are 50, 80 and 95 % full
    Soak,
}

impl Figure {
    fn measure(self, setting: &Setting<'_>) -> Result<Outcome> {
        match self {
            Self::Files => files::measure(setting),
            Self::Directory => directory::measure(setting),
            Self::Depth => depth::measure(setting),
            Self::Links => links::measure(setting),
            Self::Sparse => sparse::measure(setting),
            Self::Opening => opening::measure(setting),
            Self::Soak => soak::measure(setting),
        }
    }
}

/// The options.
#[derive(Clone, Debug, clap::Args)]
pub struct ScaleOptions {
    /// Figures to measure [default: all]
    #[arg(long, value_name = "FIGURE", num_args = 1.., value_delimiter = ',', value_enum)]
    pub figure: Vec<Figure>,
    /// The form of the report
    #[command(flatten)]
    pub output: Output,
    /// Namespaces of the pools [default: all]
    #[arg(
        long,
        value_name = "NAMESPACE",
        num_args = 1..,
        value_delimiter = ',',
        value_parser = namespaces()
    )]
    pub namespace: Vec<NamespaceKind>,
    /// Rounds that count; one more warms up
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Files of the largest pool of `files`, and of the pools of `opening`; each takes about 500
    /// bytes of memory
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    pub files: usize,
    /// Names in the largest directory
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub names: usize,
    /// Names of the file that has the most
    #[arg(long, value_name = "N", default_value_t = 60_000)]
    pub links: usize,
    /// Size of the largest sparse file, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 40)]
    pub sparse_bytes: u64,
    /// Operations of `soak` on each pool
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    pub operations: u64,
    /// Data of the pools of `sparse` and `soak`, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub pool_bytes: u64,
    /// Directory for the pools
    #[arg(long, value_name = "DIR", default_value = crate::peer::MEMORY_DIR)]
    pub pool_dir: PathBuf,
    /// Also count the instructions in the smallest and the largest pool of `files` (needs valgrind)
    #[arg(long)]
    pub instructions: bool,
    /// Do the work of `files` for another process that counts instructions
    #[arg(long, hide = true, num_args = 3, value_names = ["POOL", "DIRS", "FILES"])]
    pub counted: Vec<String>,
    /// Directory on a disk, for the pools with a log of `opening`
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub disk: PathBuf,
}

/// Parses the name of a namespace.
fn namespaces() -> impl TypedValueParser<Value = NamespaceKind> {
    let names = NamespaceKind::ALL.map(NamespaceKind::name);
    PossibleValuesParser::new(names).map(|name| {
        let mut all = NamespaceKind::ALL.into_iter();
        all.find(|kind| kind.name() == name).unwrap_or_default()
    })
}

const ABOUT: About = About {
    title: "Vellum: size",
    introduction: "How much more the same costs where there is more of everything, measured on \
                   this machine. The papers show no such figures; in brackets the ratio of the \
                   namespace direct to a value.",
    baseline: "the namespace direct",
};

/// The namespace that sentences are about and ratios compare with.
const DEFAULT: &str = "direct";
/// The claim of a figure that no paper has.
const NO_CLAIM: &str = "The papers show no such figure.";
/// The most that the largest size may cost over the smallest.
const GROWTH: f64 = 1.3;
/// Each size is this many times the one before, and there are at most this many.
const STEP: usize = 10;
const SIZES: u32 = 4;
/// The most files.
const FILES_MAX: usize = 100_000_000;
/// Operations of a round, at most.
const OPS: usize = 2000;

impl ScaleOptions {
    fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(Error::Option(text));
        if self.rounds == 0 {
            return refuse("--rounds must be at least 1".into());
        }
        for (option, count) in [("--files", self.files), ("--names", self.names)] {
            if !(10..=FILES_MAX).contains(&count) {
                return refuse(format!("{option} must be from 10 to {FILES_MAX}"));
            }
        }
        let most = LINK_MAX as usize - OPS;
        if !(10..=most).contains(&self.links) {
            return refuse(format!("--links must be from 10 to {most}"));
        }
        if !(sparse::LEAST_BYTES..=sparse::MOST_BYTES).contains(&self.sparse_bytes) {
            let (least, most) = (sparse::LEAST_BYTES, sparse::MOST_BYTES);
            return refuse(format!("--sparse-bytes must be from {least} to {most}"));
        }
        if self.operations < soak::OPERATIONS_MIN {
            let least = soak::OPERATIONS_MIN;
            return refuse(format!("--operations must be at least {least}"));
        }
        if self.pool_bytes < POOL_MIN_BYTES {
            return refuse(format!("--pool-bytes must be at least {POOL_MIN_BYTES}"));
        }
        Ok(())
    }

    /// The namespaces to measure, each once.
    fn namespaces(&self) -> Vec<NamespaceKind> {
        let mut all = NamespaceKind::ALL.to_vec();
        all.retain(|kind| self.namespace.is_empty() || self.namespace.contains(kind));
        all
    }
}

/// The least data of a pool.
const POOL_MIN_BYTES: u64 = 16 << 20;

/// The options and tools of a run.
struct Setting<'a> {
    options: &'a ScaleOptions,
    interrupt: &'a Interrupt,
}

/// A pool, in a directory that is removed with it.
struct Pooled {
    library: Library,
    // Field order: the pool is closed before its directory is removed.
    dir: TempDir,
}

impl Pooled {
    fn path(&self) -> PathBuf {
        pool_path(&self.dir)
    }
}

fn pool_path(dir: &TempDir) -> PathBuf {
    dir.path().join("pool")
}

impl Setting<'_> {
    /// Fails if the run was interrupted.
    fn check(&self) -> Result<()> {
        self.interrupt.check()
    }

    /// A progress bar of this many steps.
    fn progress(&self, what: &'static str, steps: usize) -> ProgressBar {
        let bar = bar(self.options.output.printing, steps);
        bar.set_message(what);
        bar
    }

    /// The rounds, including the one that warms up.
    fn rounds(&self) -> std::ops::RangeInclusive<usize> {
        0..=self.options.rounds
    }

    /// The names of the namespaces to measure.
    fn sides(&self) -> Vec<String> {
        let each = self.options.namespaces().into_iter();
        each.map(|kind| kind.name().to_owned()).collect()
    }

    /// A new pool in memory.
    fn pool(&self, options: &CreateOptions) -> Result<Pooled> {
        self.pool_opened(options, PoolOptions::new())
    }

    /// The same, opened with these options.
    fn pool_opened(&self, options: &CreateOptions, opened: PoolOptions) -> Result<Pooled> {
        let dir = dir_in(&self.options.pool_dir)?;
        let library = Library::create_with(pool_path(&dir), options, opened)?;
        Ok(Pooled { library, dir })
    }
}

/// A pool's options: this namespace, so many bytes of metadata, and so many of data.
fn pool_of(namespace: NamespaceKind, metadata_bytes: u64, data_bytes: u64) -> CreateOptions {
    CreateOptions::new(metadata_bytes + data_bytes)
        .namespace(namespace)
        .metadata_bytes(Some(metadata_bytes))
}

/// Measures `ops` operations. The counts include the background work that they leave, the time does
/// not.
fn work(library: &Library, ops: usize, run: impl FnOnce() -> Result<()>) -> Result<Sample> {
    library.settle()?;
    let before = library.counts();
    let mut run = Some(run);
    let sample = timed(library, ops, || {
        counted(&mut || run.take().map_or(Ok(()), |run| run()))
    })?;
    library.settle()?;
    Ok(Sample {
        counts: library.counts() - before,
        ..sample
    })
}

/// Sizes up to `most`, in steps of [`STEP`].
fn sizes(most: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = (0..SIZES).map(|step| most / STEP.pow(step)).collect();
    sizes.retain(|&size| size > 0);
    sizes.reverse();
    sizes
}

/// The target of each side: what any label may cost over the first.
fn growth(grid: &Grid, sides: &[String], what: &str, first: &str) -> Vec<Target> {
    let each = sides.iter().filter_map(|side| {
        let (worst, ratio) = grid.worst_over_first(side)?;
        let what = format!("{side}, {what}, {worst} over {first}");
        Some(Target::at_most(what, ratio, GROWTH))
    });
    each.collect()
}

/// Measures, and prints the report.
///
/// # Errors
/// An option makes no sense, there is not enough space, or a signal came.
pub fn main_scale(options: &ScaleOptions) -> Result<()> {
    if let [pool, dirs, files] = options.counted.as_slice() {
        return instructions::run_counted(pool, dirs, files);
    }
    measure(options)?.publish(&options.output)
}

/// Measures.
///
/// # Errors
/// As [`main_scale`].
pub fn measure(options: &ScaleOptions) -> Result<Report> {
    options.check()?;
    let interrupt = Interrupt::watch();
    let mut machine = Machine::look();
    machine.pool = options.pool_dir.display().to_string();
    machine.instructions = format!("{:?}", vellum::media::Isa::chosen());
    (machine.files, machine.rounds) = (options.files, options.rounds);
    let setting = Setting {
        options,
        interrupt: &interrupt,
    };
    let wanted = match options.figure.as_slice() {
        [] => Figure::value_variants(),
        named => named,
    };
    let settings = vec![
        ("Files", options.files.to_string()),
        ("Names of a directory", options.names.to_string()),
        ("Names of a file", options.links.to_string()),
        ("Bytes of a sparse file", options.sparse_bytes.to_string()),
        ("Operations of a soak", options.operations.to_string()),
        ("Disk", options.disk.display().to_string()),
    ];
    let report = Report::new(ABOUT, machine, settings);
    report.measure(wanted.iter().map(|figure| figure.measure(&setting)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_steps_up_to_the_largest() {
        assert_eq!(sizes(10_000_000), [10_000, 100_000, 1_000_000, 10_000_000]);
        assert_eq!(sizes(50), [5, 50]);
    }
}
