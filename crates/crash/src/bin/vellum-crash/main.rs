//! `vellum-crash`, which `vellum crash` runs: explores what a power cut can leave of every
//! operation.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod common;
mod explore;
mod mutate;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use vellum_terminal::Outcome;
use vellum_terminal::manual::Manual;
use vellum_terminal::output::warn_line;

/// Explore what a power cut can leave of every operation.
#[derive(Debug, Parser)]
#[command(name = "vellum-crash", bin_name = "vellum crash", version)]
struct Cli {
    #[command(subcommand)]
    what: Crash,
}

/// The commands.
#[derive(Debug, Subcommand)]
enum Crash {
    /// Explore the crashes of workloads
    Run(explore::Run),
    /// Add up reports, for example of the parts of a run
    Sum(explore::Sum),
    /// Repeat one crash
    Replay(explore::Replay),
    /// List the workloads
    List(explore::List),
    /// Leave out each flush and fence in turn, to see whether the explorer notices
    Mutate(mutate::Mutate),
    #[command(flatten)]
    Manual(Manual),
}

fn main() -> ExitCode {
    match vellum_terminal::parsed::<Cli>().and_then(|cli| run(&cli.what)) {
        Ok(status) => status,
        Err(failure) => {
            warn_line!("{failure}");
            ExitCode::from(failure.status)
        }
    }
}

fn run(what: &Crash) -> Outcome<ExitCode> {
    let done = match what {
        Crash::Run(args) => return explore::explore(args),
        Crash::Sum(args) => return explore::sum(args),
        Crash::Replay(args) => return explore::replay(args),
        Crash::Mutate(args) => return mutate::run(args),
        Crash::List(args) => explore::list(args),
        Crash::Manual(manual) => manual.write(Cli::command(), "vellum-crash"),
    };
    done.map(|()| ExitCode::SUCCESS)
}
