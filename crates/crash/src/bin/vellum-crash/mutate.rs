//! `vellum crash mutate`: tests that every persistent step of the engine is needed.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use vellum_crash::{MutateOptions, MutationProgress, MutationReport, mutate, workloads};
use vellum_terminal::output::{print_json, say};
use vellum_terminal::{Failure, Outcome, progress, verdict};

use crate::common::Common;

/// With `--quick`, the recoveries of one in this many workloads are searched for steps.
const QUICK_ONE_IN: usize = 12;

#[derive(Debug, Args)]
#[command(after_help = "\
Every flush, fence, and store past the cache has a site: a name, such as create/log-word, in the
engine's source. One by one, each is left out at each place where it is taken, and the steps on both
sides of each fence change places, in the recorded logs of the workloads that reach it and of the
recoveries after them. A crash that shows something wrong then catches the mutant: what was changed
is needed.

Exit status:
  0  every mutant is caught
  1  some are not
  2  wrong usage

Examples:
  vellum crash mutate
  vellum crash mutate --quick --site create/ --site journal/
  vellum crash mutate --site mapping/extent/
  vellum crash mutate rename --site journal/
  vellum crash mutate --json | jq .missed")]
pub(crate) struct Mutate {
    /// Only workloads whose names contain one of these (see `vellum crash list`) [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Only steps whose site, or place in the source, contains this; repeatable [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) site: Vec<String>,
    /// States tried at a crash point that has more
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub(crate) states: usize,
    /// Search for steps that only recoveries take in one workload out of twelve; without this
    /// option in every workload, which takes a minute
    #[arg(long)]
    pub(crate) quick: bool,
    /// Try nothing new after this time; a mutant that is not caught by then counts as missed
    #[arg(long, value_name = "SECONDS")]
    pub(crate) budget: Option<u64>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Runs the command.
pub(crate) fn run(args: &Mutate) -> Outcome<ExitCode> {
    let mut options = MutateOptions {
        only: args.site.clone(),
        workloads: args.names.clone(),
        states_per_point: args.states,
        one_look_in: if args.quick { QUICK_ONE_IN } else { 1 },
        time: args.budget.map(Duration::from_secs),
        ..MutateOptions::default()
    };
    options.threads = args.common.threads(options.threads);
    let progress = MutationProgress::default();
    let template = "{wide_bar} {pos}/{len} mutants {msg}";
    let bar = progress::bar(args.common.printing.hides_progress(), template);
    let report = progress::watched(
        &bar,
        |bar| show(bar, &progress),
        || mutate(&workloads(), &options, &progress),
    );
    if report.mutants == 0 {
        let failure = Failure::usage("no such workload reaches a site of such a name");
        return Err(failure.advise("see `vellum crash list` and `docs/crash/operations.md`"));
    }
    if args.common.printing.json {
        print_json(&report)?;
    } else {
        tell(args, &report);
    }
    Ok(verdict(report.missed.is_empty()))
}

fn tell(args: &Mutate, report: &MutationReport) {
    if args.common.verbose {
        for caught in &report.caught_by {
            say!("caught {} by {}", caught.mutant, caught.id);
            say!("  {}", caught.violation);
        }
    }
    for missed in &report.missed {
        say!("missed {} in {} workloads", missed.mutant, missed.tried);
    }
    say!(
        "{} sites in {} places, {} mutants, {} caught, {} missed, {:.0} s",
        report.sites,
        report.places,
        report.mutants,
        report.caught,
        report.missed.len(),
        report.seconds
    );
}

fn show(bar: &ProgressBar, progress: &MutationProgress) {
    let [mutants, done, missed] = progress.counts().map(|count| count as u64);
    bar.set_length(mutants);
    bar.set_position(done);
    bar.set_message(match (mutants, missed) {
        (0, _) => "recording".to_owned(),
        (_, 0) => String::new(),
        (_, missed) => format!("{missed} missed"),
    });
}
