//! Reading by search and by page table (AFPT): the paper's figures, each by one command.
//!
//! In each round the same locations are read by search and by one other path, one after the other.
//! With the default rule, a file of a peer and plain memory are read too. The first round does not
//! count. Ratios compare times of the same round.

mod competitive;
mod figures;
mod files;
mod openings;
mod report;
mod targets;

use std::path::PathBuf;

use clap::ValueEnum;
use vellum::MappingKind;
use vellum::media::MediaChoice;
use vellum::reading::Rule;

pub use openings::Opening;
pub use report::{Competition, CostsNs, Laid, PoolCosts, Report, Row};

use crate::Result;
use crate::error::Error;
use crate::figure::bytes;
use crate::interrupt::Interrupt;
use crate::machine::{Machine, load};
use crate::progress::bar;
use crate::report::{Output, Page};
use crate::variant::{Variant, Variants};
use crate::workloads::{Subject, TraceOptions, WorkloadOptions, traces};

/// The sides, by their names in rows and in legends.
const SIDES: [(&str, &str); 7] = [
    ("search", "search"),
    ("mmu", "page table at once"),
    ("threshold", "the paper's rule"),
    ("layout", "the default rule"),
    ("peer", "peer (system calls)"),
    ("memcpy", "memcpy"),
    ("memcpy-small", "memcpy, pages of 4 KiB"),
];

/// A figure of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// Time of a request against its size, sequential and random (Fig 6)
    BlockSize,
    /// Reading a whole file repeatedly, against its size (Fig 10)
    FileSize,
    /// The costs of the rules compared with the optimum, by the costs of this machine and of the
    /// paper's
    Competitive,
    /// Views of 32 KiB in place, and copies of them
    View,
    /// Filebench's personalities, small and large requests (Fig 7)
    Filebench,
    /// Requests mixed as in five enterprise traces, or a recorded trace (Fig 8)
    Traces,
}

impl Figure {
    /// The name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::BlockSize => "block-size",
            Self::FileSize => "file-size",
            Self::Competitive => "competitive",
            Self::View => "view",
            Self::Filebench => "filebench",
            Self::Traces => "traces",
        }
    }
}

/// The options.
#[derive(Clone, Debug, clap::Args)]
pub struct ReadingOptions {
    /// Figures to measure [default: all]
    #[arg(long, value_name = "FIGURE", num_args = 1.., value_delimiter = ',', value_enum)]
    pub figure: Vec<Figure>,
    /// Directory of the file system to compare with
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub peer: PathBuf,
    /// The form of the report
    #[command(flatten)]
    pub output: Output,
    /// The pools [default: HashFS]
    #[command(flatten)]
    pub variants: Variants,
    /// Options of `filebench`
    #[command(flatten)]
    pub workloads: WorkloadOptions,
    /// Options of `traces`
    #[command(flatten)]
    pub traces: TraceOptions,
    /// Rounds that count; one more warms up
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Size of the file in bytes, for `block-size`, `view` and `traces`; of the largest file, for
    /// `file-size`
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    pub file_bytes: u64,
    /// Bytes that each path reads in a round
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    pub round_bytes: u64,
    /// Directory for the pool
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub pool_dir: PathBuf,
}

impl ReadingOptions {
    fn check(&self) -> Result<()> {
        let refuse = |text: &str| Err(Error::Option(text.into()));
        if self.rounds == 0 {
            return refuse("--rounds must be at least 1");
        }
        if self.file_bytes < 4 << 20 {
            return refuse("--file-bytes must be at least 4194304");
        }
        if self.round_bytes == 0 {
            return refuse("--round-bytes must be at least 1");
        }
        self.traces.check()?;
        self.workloads.check()?;
        self.workloads
            .check_named(self.wants(Figure::Filebench), false)
    }

    /// Whether some figure reads files of a pool.
    fn wants_files(&self) -> bool {
        let figures = [
            Figure::BlockSize,
            Figure::FileSize,
            Figure::View,
            Figure::Competitive,
        ];
        figures.into_iter().any(|figure| self.wants(figure))
    }

    /// Each kind of pool with each rule.
    fn subjects(&self) -> Vec<Subject> {
        let by_rule = |variant| {
            let rules = [Rule::Search, Rule::Mmu, Rule::Threshold, Rule::Layout];
            rules.map(move |rule| Subject {
                variant,
                rule,
                media: MediaChoice::Auto,
            })
        };
        self.pools().into_iter().flat_map(by_rule).collect()
    }

    fn pools(&self) -> Vec<Variant> {
        self.variants.list(&[MappingKind::HashFs])
    }

    /// The number of rounds of a pool.
    fn steps(&self) -> usize {
        let passes = files::PASSES.len();
        let rows = [
            (
                Figure::BlockSize,
                2 * passes * files::Fixture::request_sizes(self.file_bytes).count(),
            ),
            (
                Figure::FileSize,
                passes * files::Fixture::file_lengths(self.file_bytes).count(),
            ),
            (Figure::View, 1),
        ];
        let wanted = rows.into_iter().filter(|(figure, _)| self.wants(*figure));
        wanted.map(|(_, rows)| rows).sum::<usize>() * (self.rounds + 1)
    }

    /// The options and their values.
    fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("File", bytes(self.file_bytes)),
            ("Read in a round", bytes(self.round_bytes)),
            ("Peer", self.peer.display().to_string()),
        ];
        settings.extend(self.workloads.settings());
        settings.extend(self.traces.settings());
        settings
    }

    fn wants(&self, figure: Figure) -> bool {
        self.figure.is_empty() || self.figure.contains(&figure)
    }
}

/// Measures, and prints the report.
///
/// # Errors
/// An option makes no sense, there is not enough space, a signal came, or the page cannot be
/// written.
pub fn main_reading(options: &ReadingOptions) -> Result<()> {
    publish(options, &measure(options)?)
}

/// Prints a report, and writes the page and the tables that the options ask for.
///
/// # Errors
/// Fails if a target is missed, or on an error of the operating system.
pub fn publish(options: &ReadingOptions, report: &Report) -> Result<()> {
    let figures = figures::draw(report);
    let page = Page {
        title: "Vellum: reading by search and by page table",
        introduction: "The figures of AFPT (adaptive file page table), measured on this machine. \
                       Every side reads the same locations in the same round; ratios compare \
                       values of one run.",
        machine: &report.machine,
        settings: report.settings.clone(),
        figures: &figures,
    };
    options.output.publish(report, &page, &report.targets)
}

/// Measures.
///
/// # Errors
/// As [`main_reading`].
pub fn measure(options: &ReadingOptions) -> Result<Report> {
    options.check()?;
    let interrupt = Interrupt::watch();
    let mut report = Report::new(Machine::look(), options.settings());
    report.machine.rounds = options.rounds;
    report.machine.pool = options.pool_dir.display().to_string();
    report.machine.order = format!("peer in {}", options.peer.display());
    if options.wants_files() {
        read_files(options, &interrupt, &mut report)?;
    }
    if options.wants(Figure::Competitive) {
        report.competitive.extend(competitive::play_paper());
    }
    run_workloads(options, &interrupt, &mut report)?;
    report.targets = targets::all(&report);
    report.machine.load_after = load();
    Ok(report)
}

/// The figures of whole workloads, each by every rule.
fn run_workloads(
    options: &ReadingOptions,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Result<()> {
    let subjects = options.subjects();
    let peers = [options.peer.display().to_string()];
    let sides = subjects.len() + peers.len();
    if options.wants(Figure::Filebench) {
        let plan = options
            .workloads
            .filebench(options.rounds, &options.pool_dir)?;
        let progress = bar(options.output.printing, plan.steps(sides));
        let rows = plan.measure(&subjects, &peers, interrupt, &progress)?;
        report.workloads.extend(rows);
        progress.finish_and_clear();
    }
    if options.wants(Figure::Traces) {
        let run = options.workloads.run(options.rounds, &options.pool_dir);
        let plan = traces::Plan::of(run, &options.traces, options.file_bytes)?;
        let progress = bar(options.output.printing, plan.steps(sides));
        let rows = plan.measure(&subjects, &peers, interrupt, &progress)?;
        report.workloads.extend(rows);
        progress.finish_and_clear();
    }
    Ok(())
}

/// The figures that read files of each kind of pool.
fn read_files(options: &ReadingOptions, interrupt: &Interrupt, report: &mut Report) -> Result<()> {
    let variants = options.pools();
    let progress = bar(options.output.printing, options.steps() * variants.len());
    for variant in variants {
        progress.set_message(variant.label());
        let mut fixture = files::Fixture::make(options, variant, interrupt, &progress)?;
        let costs = fixture.costs()?;
        fixture.describe(&mut report.machine);
        if options.wants(Figure::BlockSize) {
            report.rows.extend(fixture.block_sizes()?);
        }
        if options.wants(Figure::FileSize) {
            let (rows, openings) = fixture.file_sizes()?;
            report.rows.extend(rows);
            report.openings.extend(openings);
        }
        if options.wants(Figure::View) {
            report.rows.extend(fixture.views()?);
        }
        if let (true, Some(costs)) = (options.wants(Figure::Competitive), &costs) {
            let here = competitive::play_here(variant, costs);
            report.competitive.extend(here);
        }
        report.pools.push(PoolCosts {
            variant,
            memory_on_large_pages: fixture.gathered(),
            costs: costs.as_ref().map(CostsNs::from),
        });
    }
    progress.finish_and_clear();
    Ok(())
}
