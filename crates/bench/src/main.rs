//! `vellum-bench`: the benchmarks without the rest of the command line.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use vellum_bench::commits::{CommitsOptions, main_commits};
use vellum_bench::fsmac::{FsmacOptions, main_fsmac};
use vellum_bench::mapping::{MappingOptions, main_mapping};
use vellum_bench::namespace::{NamespaceOptions, main_namespace};
use vellum_bench::ops::{OpsOptions, main_ops};
use vellum_bench::reading::{ReadingOptions, main_reading};

/// Measures Vellum beside other file systems.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Single operations: counts and times beside their budgets.
    Ops(OpsOptions),
    /// File mapping by itself, every mapping beside the others (HashFS).
    Mapping(MappingOptions),
    /// Names and directories, every namespace beside the others (ADAM).
    Namespace(NamespaceOptions),
    /// Reading by search and by page table (AFPT).
    Reading(ReadingOptions),
    /// Metadata in memory, data on a disk (FSMAC).
    Fsmac(FsmacOptions),
    /// Commits of logged pools, beside `fsync` of the file system under them.
    Commits(CommitsOptions),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().what {
        What::Ops(options) => main_ops(options),
        What::Mapping(options) => main_mapping(&options),
        What::Namespace(options) => main_namespace(&options),
        What::Reading(options) => main_reading(&options),
        What::Fsmac(options) => main_fsmac(&options),
        What::Commits(options) => main_commits(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "vellum-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
