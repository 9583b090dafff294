//! The command `vellum`: creates, mounts, checks and inspects pools.
//!
//! Each command has a module. `args` holds the command line, and `location` opens pools for all
//! commands.
#![forbid(unsafe_code)]
// These macros panic if standard output or error is closed; `vellum_terminal::output` prints
// instead.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod areas;
mod args;
mod bytes;
mod check;
mod convert;
mod copies;
mod data;
mod dataset;
mod df;
mod du;
mod files;
mod further;
#[cfg(test)]
mod fuzz;
mod helper;
mod images;
mod info;
mod killed;
mod location;
mod logging;
mod map;
mod mkfs;
mod mount;
mod quota;
mod remount;
mod repair;
mod replica;
mod resize;
mod served;
mod set;
mod snapshot;
mod spelling;
mod sync;
mod transfer;
mod tree;
mod trim;
mod umount;
mod units;
mod walk;
mod way;

use std::process::ExitCode;
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use rustix::process::Signal;
use vellum_terminal::output::{print, print_failure, warn_line};
use vellum_terminal::{Failure, Outcome, Printing, status};

use crate::args::{Cli, Command};
use crate::spelling::Current;

fn main() -> ExitCode {
    // With a handler, what would make a file larger than RLIMIT_FSIZE fails (EFBIG). Without, it
    // would end the process. Programs that this one starts have none.
    let _ = signal_hook::flag::register(Signal::XFSZ.as_raw(), Arc::default());
    let Current { words, notes } = helper::arguments();
    for note in notes {
        warn_line!("{note}");
    }
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => return misused(&error),
    };
    logging::start(&cli.command);
    match run(cli.command) {
        Ok(status) => status,
        Err(failure) => {
            logging::tell(&failure);
            if asks_for_json() {
                print_failure(&failure);
            }
            helper::exit(failure.status)
        }
    }
}

/// Whether the command line asks for JSON, also if it is wrong otherwise.
fn asks_for_json() -> bool {
    let mut options = std::env::args_os().take_while(|word| word != "--");
    options.any(|word| word == "--json")
}

/// Prints an error of the command line and returns its exit status. Help and version are successes;
/// `check` and `repair` have a status of their own for wrong usage.
fn misused(error: &clap::Error) -> ExitCode {
    let refusal = Printing::refusal(error);
    match &refusal {
        Some(refusal) => warn_line!("{refusal}"),
        // An error here is ignored: standard error is closed.
        None => drop(error.print()),
    }
    if error.use_stderr() && asks_for_json() {
        let wrong = || Failure::usage(error.render().to_string().trim_end());
        print_failure(&refusal.unwrap_or_else(wrong));
    }
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ if helper::is_of_fsck() => ExitCode::from(status::CHECK_USAGE),
        _ if std::env::args_os()
            .nth(1)
            .is_some_and(|command| command == "check" || command == "repair") =>
        {
            ExitCode::from(status::CHECK_USAGE)
        }
        _ => helper::exit(status::USAGE),
    }
}

fn run(command: Command) -> Outcome<ExitCode> {
    match command {
        Command::Check(args) => return check::run(&args),
        Command::Repair(args) => return repair::run(&args),
        Command::Crash(args) => return Err(further::run("vellum-crash", &args)),
        Command::Bench(args) => return Err(further::run("vellum-bench", &args)),
        Command::Convert(args) => convert::run(&args),
        Command::Evolve(args) => areas::evolve(&args),
        Command::Inspect(args) => areas::inspect(&args),
        Command::Map(args) => map::run(&args),
        Command::Mkfs(args) => mkfs::run(&args),
        Command::Dataset { what } => dataset::run(&what),
        Command::Data { what } => data::run(&what),
        Command::Mount(args) => return mount::run(&args),
        Command::Umount(args) => umount::run(&args),
        Command::Set(args) => set::run(&args),
        Command::Resize(args) => resize::run(&args),
        Command::Trim(args) => trim::run(&args),
        Command::Snapshot(args) => snapshot::run(&args),
        Command::Sync(args) => sync::run(&args),
        Command::Replica { what } => replica::run(&what),
        Command::Info(args) => info::run(&args),
        Command::Quota(args) => quota::run(&args),
        Command::Prune(args) => images::prune(&args),
        Command::Ls(args) => files::ls(&args),
        Command::Tree(args) => tree::run(&args),
        Command::Stat(args) => files::stat(&args),
        Command::Du(args) => du::run(&args),
        Command::Df(args) => df::run(&args),
        Command::Cat(args) => files::cat(&args),
        Command::Put(args) => files::put(&args),
        Command::Get(args) => files::get(&args),
        Command::Mkdir(args) => files::mkdir(&args),
        Command::Rm(args) => files::rm(&args),
        Command::Mv(args) => files::mv(&args),
        Command::Cp(args) => transfer::cp(&args),
        Command::Import(args) => transfer::import(&args),
        Command::Export(args) => transfer::export(&args),
        Command::Version => print(concat!("vellum ", env!("CARGO_PKG_VERSION"), "\n")),
        Command::Manual(manual) => manual.write(Cli::command(), "vellum"),
    }
    .map(|()| ExitCode::SUCCESS)
}
