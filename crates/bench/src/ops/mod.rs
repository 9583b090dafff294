//! Single operations: counts and times, compared with budgets and with peers.
//!
//! Operations run in one thread (except in rows with `threads: 2`, each on a processor of its own),
//! in directories of 10 000 files, on a pool whose pages are all present. In each round every side
//! does the same, one after the other; the first round does not count. Counts begin before an
//! operation's loop and end when no background work is left over from it, so refills, frees and
//! recycling are included. Times are those of the loop, without the time in which other programs
//! used the processor.

mod budget;
mod cache;
mod collect;
mod instructions;
mod names;
mod reading;
mod report;
mod rounds;
mod threads;
mod workload;
mod writing;

use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use vellum::CreateOptions;
use vellum_terminal::Printing;
use vellum_transport::Door;

pub use instructions::Instructions;
pub use report::{CacheReport, Report, Row};

use crate::Result;
use crate::checks::{check_counts, check_only};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::library::Library;
use crate::machine::{Machine, load};
use crate::mount::{self, Mount};
use crate::order::SEED;
use crate::peer::{EXT4_RAM, Peer};
use crate::progress::bar;
use crate::scratch::dir_in;
use crate::serve::{NULL_FS, NULL_FS_KIND, serve};
use crate::side::BLOCK;
use report::{LIBRARY, MOUNT};
pub(crate) use rounds::Label;
use rounds::{Bench, Vellum};
pub(crate) use workload::AnyWorkload;

/// Bytes of an ext4 in memory in addition to the large file.
const IMAGE_SPARE_BYTES: u64 = 1 << 30;

/// The options.
#[derive(Clone, Debug, clap::Args)]
pub struct OpsOptions {
    /// Directories of file systems to compare with; `ext4-ram` creates an ext4 in memory for the
    /// run (superuser)
    #[arg(long, value_name = "DIR", num_args = 1..)]
    #[arg(required_unless_present_any = ["serve", "counted"])]
    pub peer: Vec<String>,
    /// JSON instead of a table
    #[command(flatten)]
    pub printing: Printing,
    /// Measure these operations only
    #[arg(long, value_name = "OP", num_args = 1.., value_delimiter = ',')]
    pub only: Vec<String>,
    /// Rounds that count; one more warms up
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub rounds: usize,
    /// Files in a directory
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub files: usize,
    /// Size of the file that is read at random, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub large_file_bytes: u64,
    /// Directory for the pool
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub pool_dir: PathBuf,
    /// Leave out the same operations through a mount, and the comparison with a file system that
    /// does nothing
    #[arg(long)]
    pub no_mount: bool,
    /// Also count the instructions of each operation, in every namespace (needs valgrind)
    #[arg(long)]
    pub instructions: bool,
    /// Run the operations for another process that counts their instructions
    #[arg(long, hide = true, num_args = 2, value_names = ["NAMESPACE", "POOL"])]
    pub counted: Vec<PathBuf>,
    /// Serve a mount for another process that measures
    #[arg(long, hide = true, num_args = 2, value_names = ["WHAT", "DIR"])]
    pub serve: Vec<PathBuf>,
    /// The way of the served mount's requests [default: as the kernel offers it]
    #[arg(long, hide = true, value_parser = parse_door)]
    pub door: Option<Door>,
}

/// Parses the name of a door.
fn parse_door(name: &str) -> std::result::Result<Door, String> {
    let mut doors = [Door::Ring, Door::Device].into_iter();
    let unknown = || "a door is io_uring or /dev/fuse".into();
    doors.find(|door| door.name() == name).ok_or_else(unknown)
}

impl OpsOptions {
    fn check(&self) -> Result<()> {
        check_counts(self.rounds, self.files)?;
        if self.large_file_bytes < BLOCK as u64 {
            let text = format!("--large-file-bytes must be at least {BLOCK}");
            return Err(Error::Option(text));
        }
        let known: Vec<&str> = budget::BUDGETS.iter().map(|budget| budget.op).collect();
        check_only(&self.only, &known)
    }

    fn wants(&self, op: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == op)
    }

    fn pool_bytes(&self) -> u64 {
        pool_bytes(self.files, self.large_file_bytes)
    }
}

/// Twice the size of the large file plus 64 KiB for each file: a wide margin for blocks and
/// metadata.
pub(crate) fn pool_bytes(files: usize, large_file_bytes: u64) -> u64 {
    let small = files as u64 * 64 * 1024;
    (2 * (large_file_bytes + small)).next_multiple_of(64 << 20)
}

/// Measures, and prints the report.
///
/// # Errors
/// As [`run`], or writing to the standard output fails.
pub fn main_ops(options: OpsOptions) -> Result<()> {
    if let [what, dir] = options.serve.as_slice() {
        return serve(what, dir, options.files, options.door);
    }
    if let [namespace, pool] = options.counted.as_slice() {
        return instructions::run_counted(&options, &namespace.to_string_lossy(), pool);
    }
    let report = run(&options)?;
    crate::report::print(options.printing.json, &report, report.table())
}

/// Measures, and removes everything that it created: also after errors, and after SIGINT, SIGTERM
/// and SIGHUP.
///
/// # Errors
/// A peer cannot be set up, an operation failed or had another effect than it should, or a signal
/// came.
pub fn run(options: &OpsOptions) -> Result<Report> {
    options.check()?;
    let interrupt = Interrupt::watch();
    let mut machine = Machine::look();
    let pool = dir_in(&options.pool_dir)?;
    let workloads = chosen(options);
    let (with_mount, notes) = match mount::missing() {
        _ if options.no_mount => (false, Vec::new()),
        None => (true, Vec::new()),
        Some(why) => (false, vec![format!("no rows through a mount: {why}")]),
    };
    for note in &notes {
        crate::report::note(note);
    }
    let lots = if with_mount { 2 } else { 1 };
    let progress = bar(
        options.printing,
        lots * workloads.len() * (options.rounds + 1),
    );
    let run = Run {
        options,
        pool_dir: pool.path(),
        workloads,
        interrupt: &interrupt,
        progress: &progress,
    };
    let mut rows = run.library(&mut machine)?;
    if with_mount {
        rows.extend(run.mount()?);
    }
    progress.set_message("memory of caches");
    let cache = options
        .only
        .is_empty()
        .then(|| cache::measure(pool.path(), options.files))
        .transpose()?;
    let mut counted = Vec::new();
    if options.instructions {
        progress.set_message("instructions");
        counted = instructions::measure(options)?;
    }
    progress.finish_and_clear();
    interrupt.check()?;
    machine.load_after = load();
    rows.retain(|row| options.wants(&row.op));
    Ok(Report {
        machine,
        rows,
        instructions: counted,
        cache,
        notes,
    })
}

/// A running measurement.
struct Run<'a> {
    options: &'a OpsOptions,
    /// The directory for pools, which is removed with everything in it.
    pool_dir: &'a Path,
    workloads: Vec<Box<dyn AnyWorkload>>,
    interrupt: &'a Interrupt,
    progress: &'a ProgressBar,
}

impl Run<'_> {
    /// Rows through the library, compared with every peer.
    fn library(&self, machine: &mut Machine) -> Result<Vec<Row>> {
        let options = self.options;
        let image_bytes = options.pool_bytes() + IMAGE_SPARE_BYTES;
        let peers: Vec<Peer> = options
            .peer
            .iter()
            .map(|name| Peer::new(name, image_bytes))
            .collect::<Result<_>>()?;
        let pool = self.pool_dir.join("linked");
        let mut library = Library::create(pool, options.pool_bytes(), true)?;
        describe(machine, options, &library)?;
        let mut bench = Bench {
            vellum: Vellum::Library(&mut library),
            peers: peers.iter().map(|peer| &peer.kernel).collect(),
            interrupt: self.interrupt,
            progress: self.progress,
        };
        let collected = bench.run(&self.workloads, options.rounds)?;
        let labels: Vec<Label> = peers.iter().map(Peer::label).collect();
        Ok(collect::rows(&collected, LIBRARY, &labels))
    }

    /// Rows through a mount, compared with a mount of the null file system.
    fn mount(&self) -> Result<Vec<Row>> {
        let through = Through {
            pool: &self.pool_dir.join("mounted"),
            pool_bytes: self.options.pool_bytes(),
            files: self.options.files,
            rounds: self.options.rounds,
            door: None,
        };
        through.rows(&self.workloads, self.interrupt, self.progress)
    }
}

/// Operations through a mount, compared with a mount of the null file system.
pub(crate) struct Through<'a> {
    /// Where the pool is created.
    pub(crate) pool: &'a Path,
    pub(crate) pool_bytes: u64,
    /// Names in listings of the null file system.
    pub(crate) files: usize,
    pub(crate) rounds: usize,
    /// The way of the requests of both.
    pub(crate) door: Option<Door>,
}

impl Through<'_> {
    pub(crate) fn rows(
        &self,
        workloads: &[Box<dyn AnyWorkload>],
        interrupt: &Interrupt,
        progress: &ProgressBar,
    ) -> Result<Vec<Row>> {
        Library::make(self.pool, &CreateOptions::new(self.pool_bytes))?;
        let mount = Mount::of_pool(self.pool, self.door)?;
        let null_fs = Mount::null_fs(self.files, self.door)?;
        let mut bench = Bench {
            vellum: Vellum::Mount(&mount.kernel),
            peers: vec![&null_fs.kernel],
            interrupt,
            progress,
        };
        let collected = bench.run(workloads, self.rounds)?;
        let label = Label {
            name: NULL_FS.into(),
            kind: NULL_FS_KIND.into(),
        };
        Ok(collect::rows(&collected, MOUNT, &[label]))
    }
}

fn describe(machine: &mut Machine, options: &OpsOptions, library: &Library) -> Result<()> {
    machine.pool = options.pool_dir.display().to_string();
    machine.pool_bytes = library.size_bytes()?;
    machine.media = format!("{:?}", library.fs().media_kind());
    machine.instructions = format!("{:?}", library.fs().isa());
    machine.files = options.files;
    machine.rounds = options.rounds;
    machine.order = format!("shuffled: Fisher-Yates, SplitMix64, seed {SEED:#x}");
    Ok(())
}

/// The workloads with a requested operation.
fn chosen(options: &OpsOptions) -> Vec<Box<dyn AnyWorkload>> {
    let mut chosen = all(options.files, options.large_file_bytes);
    chosen.retain(|workload| workload.parts().iter().any(|part| options.wants(part.op)));
    chosen
}

/// The workloads whose operations are requests of a mount: all but one, which reads from the
/// kernel's cache.
pub(crate) fn requests(files: usize) -> Vec<Box<dyn AnyWorkload>> {
    let mut all = all(files, BLOCK as u64);
    all.retain(|workload| workload.parts()[0].op != "pread_4k_random");
    all
}

/// Every workload, in the order of the report.
fn all(files: usize, large_file_bytes: u64) -> Vec<Box<dyn AnyWorkload>> {
    vec![
        Box::new(reading::Stat::shallow(files)),
        Box::new(reading::Stat::deep(files)),
        Box::new(reading::OpenClose::new(files)),
        Box::new(names::Files::new(files)),
        Box::new(names::Directories::new(files)),
        Box::new(names::Rename::same(files)),
        Box::new(names::Rename::across(files)),
        Box::new(reading::List::new(files)),
        Box::new(reading::ReadRandom::new(files, large_file_bytes)),
        Box::new(writing::Append::new(files)),
        Box::new(writing::CreateWriteSync::new(files)),
        Box::new(threads::TwoThreads::new(files)),
    ]
}

impl OpsOptions {
    /// Whether the run needs the superuser, because it creates and mounts a loop device.
    pub fn needs_superuser(&self) -> bool {
        self.peer.iter().any(|peer| peer == EXT4_RAM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_run_has_every_row_in_the_shape_of_the_format() {
        let options = OpsOptions {
            peer: vec![
                "/dev/shm".into(),
                std::env::temp_dir().display().to_string(),
            ],
            printing: Printing::default(),
            only: Vec::new(),
            rounds: 1,
            files: 100,
            large_file_bytes: 1 << 20,
            pool_dir: "/dev/shm".into(),
            no_mount: true,
            instructions: false,
            counted: Vec::new(),
            serve: Vec::new(),
            door: None,
        };
        let report = run(&options).expect("run");
        let json = serde_json::to_value(&report).expect("JSON");
        assert!(json["machine"]["cpu"].is_string());
        let rows = json["rows"].as_array().expect("rows");
        for peer in &options.peer {
            for budget in budget::BUDGETS {
                let found = rows.iter().filter(|row| {
                    row["op"] == budget.op && row["threads"] == 1 && row["peer"] == **peer
                });
                assert_eq!(found.count(), 1, "{} beside {peer}", budget.op);
            }
            for op in ["create", "unlink", "stat"] {
                for directories in ["shared", "private"] {
                    let found = rows.iter().filter(|row| {
                        row["op"] == op
                            && row["threads"] == 2
                            && row["directories"] == directories
                            && row["peer"] == **peer
                    });
                    assert_eq!(found.count(), 1, "{op} in {directories} beside {peer}");
                }
            }
        }
        for row in rows {
            assert!(row["path"] == "library", "{row}");
            for number in [
                "vellum_ns",
                "peer_ns",
                "ratio",
                "lines_flushed",
                "fences",
                "pool_bytes_written",
                "probes",
                "spread",
            ] {
                assert!(row[number].is_number(), "{number} of {row}");
            }
        }
        let table = report.table();
        assert!(table.contains("create_write4k_fsync") && table.contains("shuffled"));
        assert!(report.cache.expect("cache").files > 0);
    }

    #[test]
    fn only_the_requested_operations() {
        let mut options = OpsOptions {
            peer: vec!["/dev/shm".into()],
            printing: Printing::default(),
            only: vec!["unlink".into()],
            rounds: 1,
            files: 10,
            large_file_bytes: 1 << 20,
            pool_dir: "/dev/shm".into(),
            no_mount: true,
            instructions: false,
            counted: Vec::new(),
            serve: Vec::new(),
            door: None,
        };
        let report = run(&options).expect("run");
        assert!(!report.rows.is_empty());
        assert!(report.rows.iter().all(|row| row.op == "unlink"));
        options.only = vec!["fly".into()];
        assert!(matches!(run(&options), Err(Error::Option(_))));
    }
}
