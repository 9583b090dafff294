//! `vellum crash run`, `sum`, `replay` and `list`: explores what a power cut can leave of every
//! operation.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::ProgressBar;
use serde::Serialize;
use vellum_crash::{
    Budget, MAKINGS, Mode, Options, Part, Progress, ReplayError, Step, Summary, Workload,
    WorkloadFile, all_thread_workloads, all_workloads, replay_of, run_all, run_file,
};
use vellum_terminal::output::{print, print_json};
use vellum_terminal::{Failure, Outcome, Printing, progress, verdict};

use crate::common::Common;

#[derive(Debug, Args)]
#[command(after_help = "\
Each workload runs once on a simulated pool. At every point where a power cut could leave something
new, the states that it may leave are recovered, checked, compared with what had returned, used,
cut again, closed and checked again. Every violation has an identifier for `vellum crash replay`.

Crash models:
  x86   cache lines arrive independently; everything before the workload is durable
  lazy  the same, and lines left unflushed before the workload may still be lost
  eadr  caches survive: stores arrive in order
  kill  the process is killed in the middle, another opens the pool and closes it; the power fails
        at any point of that
  lies  a sync of a disk does nothing: what was promised may be missing, or is refused as lost

Exit status:
  0  no violations
  1  violations
  2  wrong usage

Examples:
  vellum crash run --all --budget short
  vellum crash run --all --budget 60 --json | jq .totals
  vellum crash run --all --budget long --part 3/8
  vellum crash run rename --mode x86
  vellum crash run --workloads mine.txt --budget long")]
pub(crate) struct Run {
    /// Every workload of the budget
    #[arg(long, required_unless_present_any = ["names", "workloads"])]
    pub(crate) all: bool,
    /// Only workloads of this file, instead of the built-in ones
    #[arg(long, value_name = "FILE")]
    pub(crate) workloads: Option<PathBuf>,
    /// Workloads whose names contain one of these (see `vellum crash list`)
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// How much: short (four minutes on two CPUs: single operations, a sample of sequences), long
    /// (an hour: everything except most workloads on disks, with more states of each), or a number
    /// of seconds after which everything ends
    #[arg(long, default_value = "short", value_parser = parse_budget)]
    pub(crate) budget: Budget,
    /// Only these crash models [default: all]
    #[arg(long, value_name = "MODE", value_parser = modes())]
    pub(crate) mode: Vec<Mode>,
    /// Only the K-th of N parts
    #[arg(long, value_name = "K/N", value_parser = parse_part)]
    pub(crate) part: Option<Part>,
    /// States tried at a crash point that has more [default: by budget]
    #[arg(long, value_name = "N")]
    pub(crate) states: Option<usize>,
    /// Seed of the samples
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit status:
  0  no violations
  1  violations, fewer images than requested, or a report cannot be read
  2  wrong usage

Examples:
  vellum crash run --all --budget long --part 1/2 --json >1.json
  vellum crash run --all --budget long --part 2/2 --json >2.json
  vellum crash sum 1.json 2.json
  vellum crash sum --least 500000 --least-on-disks 20000 whole.json")]
pub(crate) struct Sum {
    /// Output of `vellum crash run --json`
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Fail if fewer different images were judged, or a workload was left out or cut short
    #[arg(long, value_name = "IMAGES")]
    pub(crate) least: Option<u64>,
    /// Fail if fewer of these images were of pools on disks
    #[arg(long, value_name = "IMAGES", requires = "least")]
    pub(crate) least_on_disks: Option<u64>,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit status:
  0  nothing is wrong
  1  the violation is still there
  2  wrong usage, or the identifier fits nothing: workloads or the file system have changed

Examples:
  vellum crash replay x86:rename@57:0x4,2,1
  vellum crash replay x86:rename@57:0x4,2,1 --image crashed.img && vellum check crashed.img
  vellum crash replay --workloads mine.txt x86:mine@57:0x4,2,1")]
pub(crate) struct Replay {
    /// An identifier that `vellum crash run` printed
    pub(crate) id: String,
    /// Write the image that the crash left to this file, as a pool to inspect
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Option<PathBuf>,
    /// The identifier belongs to a workload of this file
    #[arg(long, value_name = "FILE")]
    pub(crate) workloads: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vellum crash list
  vellum crash list --json | jq -r '.[].name'")]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) printing: Printing,
}

fn modes() -> impl TypedValueParser<Value = Mode> {
    let names = Mode::ALL.map(Mode::name);
    PossibleValuesParser::new(names).try_map(|name| {
        let mode: Result<Mode, ()> = name.parse();
        mode.map_err(|()| format!("`{name}` is not a crash model"))
    })
}

fn parse_budget(text: &str) -> Result<Budget, String> {
    match text {
        "short" => Ok(Budget::Short),
        "long" => Ok(Budget::Long),
        _ => match text.parse() {
            Ok(seconds) => Ok(Budget::Time(Duration::from_secs(seconds))),
            Err(_) => Err(format!(
                "`{text}` is not a budget: write short, long, or seconds"
            )),
        },
    }
}

fn parse_part(text: &str) -> Result<Part, String> {
    let numbers = text.split_once('/');
    let numbers = numbers.and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    match numbers {
        Some((number, of)) if number >= 1 && number <= of => Ok(Part { number, of }),
        _ => Err(format!("`{text}` is not a part: write 1/8 to 8/8")),
    }
}

pub(crate) fn explore(args: &Run) -> Outcome<ExitCode> {
    let mut options = args.budget.options();
    options.only.clone_from(&args.names);
    options.seed = args.seed;
    if !args.mode.is_empty() {
        options.modes.clone_from(&args.mode);
    }
    if let Some(states) = args.states {
        options.states_per_point = states;
        options.states_on_disks = 0;
    }
    options.threads = args.common.threads(options.threads);
    options.part = args.part;
    let chosen = Chosen::of(args, &options)?;
    let progress = Progress::default();
    let template = "{wide_bar} {pos}/{len} workloads, {msg}";
    let bar = progress::bar(args.common.printing.hides_progress(), template);
    let report = progress::watched(
        &bar,
        |bar| show(bar, &progress),
        || match &chosen {
            Chosen::File(file) => run_file(file, &options, &progress),
            Chosen::Budget(workloads) => run_all(workloads, &options, &progress),
        },
    );
    let summary = report.summary();
    if args.common.verbose && !args.common.printing.json {
        print(report.to_string())?;
        return Ok(exit_status(&summary));
    }
    show_summary(&summary, args.common.printing.json)
}

/// The chosen workloads.
enum Chosen {
    /// The built-in workloads that the budget includes.
    Budget(Vec<Workload>),
    /// The workloads of a file.
    File(WorkloadFile),
}

impl Chosen {
    fn of(args: &Run, options: &Options) -> Outcome<Self> {
        let (chosen, is_any, advice) = if let Some(file) = &args.workloads {
            let file = read_workloads(file)?;
            let mut names = file.sequences.iter().map(|workload| &workload.name);
            let mut of_threads = file.threads.iter().map(|workload| &workload.name);
            let is_any = names.any(|name| options.chooses(name))
                || of_threads.any(|name| options.chooses(name));
            (Self::File(file), is_any, "see the file")
        } else {
            let workloads = args.budget.workloads(options);
            let mut threads = all_thread_workloads().into_iter();
            let mut makings = MAKINGS.iter();
            let is_any = !workloads.is_empty()
                || threads.any(|workload| options.chooses(&workload.name))
                || makings.any(|(name, _)| options.chooses(name));
            (Self::Budget(workloads), is_any, "see `vellum crash list`")
        };
        if is_any {
            return Ok(chosen);
        }
        Err(Failure::usage("no workload has such a name").advise(advice))
    }
}

fn read_workloads(file: &Path) -> Outcome<WorkloadFile> {
    let text = std::fs::read_to_string(file).map_err(|e| Failure::io(file.display(), &e))?;
    let parsed = WorkloadFile::parse(&file.display().to_string(), &text);
    parsed.map_err(|error| Failure::usage(error.to_string()))
}

pub(crate) fn sum(args: &Sum) -> Outcome<ExitCode> {
    let mut all = Summary::default();
    for file in &args.files {
        let text = std::fs::read_to_string(file).map_err(|e| Failure::io(file.display(), &e))?;
        let report = serde_json::from_str(&text)
            .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
        all.add(report);
    }
    let status = show_summary(&all, args.printing.json)?;
    if let Some(least) = args.least_on_disks
        && all.on_disks() < least
    {
        return Err(Failure::new(format!(
            "{} different images on disks were judged, {least} were requested",
            all.on_disks()
        )));
    }
    match args.least {
        Some(least) if all.totals.distinct < least => Err(Failure::new(format!(
            "{} different images were judged, {least} were requested",
            all.totals.distinct
        ))),
        Some(_) if !all.left_out.is_nothing() => Err(Failure::new(format!(
            "{} workloads were left out and {} cut short because the time was up",
            all.left_out.workloads, all.left_out.cut_short
        ))),
        _ => Ok(status),
    }
}

fn show_summary(summary: &Summary, json: bool) -> Outcome<ExitCode> {
    if json {
        print_json(summary)?;
    } else {
        print(summary.to_string())?;
    }
    Ok(exit_status(summary))
}

fn exit_status(summary: &Summary) -> ExitCode {
    verdict(summary.totals.violations == 0)
}

fn show(bar: &ProgressBar, progress: &Progress) {
    let (workloads, done) = progress.workloads();
    bar.set_length(workloads);
    bar.set_position(done);
    let distinct = progress.distinct();
    let rate = distinct as f64 / bar.elapsed().as_secs_f64().max(0.001);
    let mut message = format!("{distinct} states, {rate:.0}/s");
    if progress.violations() > 0 {
        // Writing to a string cannot fail.
        let _ = write!(message, ", {} violations", progress.violations());
    }
    bar.set_message(message);
}

pub(crate) fn replay(args: &Replay) -> Outcome<ExitCode> {
    let replay = match &args.workloads {
        Some(file) => replay_of(&read_workloads(file)?, &args.id),
        None => vellum_crash::replay(&args.id),
    };
    let replay = replay.map_err(|error| match error {
        ReplayError::Record(_) | ReplayError::Making(_) => Failure::new(error.to_string()),
        _ => Failure::usage(error.to_string()),
    })?;
    if let Some(file) = &args.image {
        std::fs::write(file, &replay.image).map_err(|e| Failure::io(file.display(), &e))?;
    }
    print(replay.to_string())?;
    Ok(verdict(replay.wrong.is_empty()))
}

/// A workload in the list.
#[derive(Serialize)]
struct Listed {
    name: String,
    operations: Vec<&'static str>,
    setup: Vec<String>,
    /// The steps of each thread; a sequence has one thread.
    threads: Vec<Vec<String>>,
}

impl Listed {
    fn of(name: String, setup: &[Step], threads: &[Vec<Step>]) -> Self {
        let lines = |steps: &[Step]| steps.iter().map(ToString::to_string).collect();
        let steps = threads.iter().flatten();
        Self {
            name,
            operations: steps.map(Step::operation).collect(),
            setup: lines(setup),
            threads: threads.iter().map(|steps| lines(steps)).collect(),
        }
    }
}

impl Listed {
    /// A run of mkfs over `before`.
    fn making(name: &str, before: &str) -> Self {
        Self {
            name: name.to_owned(),
            operations: vec!["mkfs"],
            setup: vec![before.to_owned()],
            threads: vec![vec!["mkfs".to_owned()]],
        }
    }
}

pub(crate) fn list(args: &List) -> Outcome {
    let sequences = all_workloads().into_iter();
    let sequences = sequences.map(|of| Listed::of(of.name, &of.setup, &[of.explored]));
    let threads = all_thread_workloads().into_iter();
    let threads =
        threads.map(|workload| Listed::of(workload.name, &workload.setup, &workload.threads));
    let makings = MAKINGS.iter();
    let makings = makings.map(|(name, before)| Listed::making(name, before));
    let listed: Vec<_> = makings.chain(sequences).chain(threads).collect();
    if args.printing.json {
        return print_json(&listed);
    }
    let mut text = String::new();
    for Listed { name, threads, .. } in listed {
        let threads: Vec<_> = threads.iter().map(|steps| steps.join("; ")).collect();
        text.push_str(&format!("{name}: {}\n", threads.join(" | ")));
    }
    print(text)
}
