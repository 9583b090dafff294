//! `vellum-bench`, which `vellum bench` runs: compares Vellum with other file systems.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use vellum_bench::commits::{CommitsOptions, main_commits};
use vellum_bench::fsmac::{FsmacOptions, main_fsmac};
use vellum_bench::mapping::{MappingOptions, main_mapping};
use vellum_bench::mounted::{MountOptions, main_mount};
use vellum_bench::namespace::{NamespaceOptions, main_namespace};
use vellum_bench::ops::{OpsOptions, main_ops};
use vellum_bench::reading::{ReadingOptions, main_reading};
use vellum_terminal::manual::Manual;
use vellum_terminal::output::warn_line;
use vellum_terminal::{Failure, Outcome};

/// Compare Vellum with other file systems.
#[derive(Debug, Parser)]
#[command(name = "vellum-bench", bin_name = "vellum bench", version)]
struct Cli {
    #[command(subcommand)]
    what: Bench,
}

/// What to measure.
#[derive(Debug, Subcommand)]
enum Bench {
    /// Single operations: counts, times and budgets
    Ops(OpsOptions),
    /// File mapping by itself, for every mapping (HashFS)
    Mapping(MappingOptions),
    /// Names and directories, for every namespace (ADAM)
    Namespace(NamespaceOptions),
    /// Reading by search and by page table (AFPT)
    Reading(ReadingOptions),
    /// Metadata in memory, data on a disk: pools with a log against ext4 (FSMAC)
    Fsmac(FsmacOptions),
    /// Commits of logged pools against fsync of the underlying file system
    Commits(CommitsOptions),
    /// Requests, programs and transfers through a mount, beside other file systems
    Mount(MountOptions),
    #[command(flatten)]
    Manual(Manual),
}

fn main() -> ExitCode {
    match vellum_terminal::parsed::<Cli>().and_then(|cli| run(cli.what)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            warn_line!("{failure}");
            ExitCode::from(failure.status)
        }
    }
}

fn run(what: Bench) -> Outcome {
    let measured = match what {
        Bench::Ops(options) => main_ops(options),
        Bench::Mapping(options) => main_mapping(&options),
        Bench::Namespace(options) => main_namespace(&options),
        Bench::Reading(options) => main_reading(&options),
        Bench::Fsmac(options) => main_fsmac(&options),
        Bench::Commits(options) => main_commits(&options),
        Bench::Mount(options) => main_mount(&options),
        Bench::Manual(manual) => return manual.write(Cli::command(), "vellum-bench"),
    };
    measured.map_err(|error| Failure::new(error.to_string()))
}
