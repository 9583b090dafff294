//! `vellum-bench`: the benchmarks without the rest of the command line.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use vellum_bench::ops::{OpsOptions, main_ops};

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
}

fn main() -> ExitCode {
    let What::Ops(options) = Arguments::parse().what;
    match main_ops(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vellum-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
