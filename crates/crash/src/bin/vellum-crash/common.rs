//! Options of every command that runs for minutes.

use clap::Args;
use vellum_terminal::Printing;

/// The number of threads, and the amount of output.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Threads [default: one a CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// Also show each workload, or what caught each mutant
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

impl Common {
    /// The number of threads to use where `usual` is the default.
    pub(crate) fn threads(&self, usual: usize) -> usize {
        self.threads.map_or(usual, usize::from)
    }
}
