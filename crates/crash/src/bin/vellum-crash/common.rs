//! What every command has that runs for minutes.

use clap::Args;
use vellum_terminal::Printing;

/// How many threads, and what is shown.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Threads [default: one a CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// Show each workload, or what caught each mutant, too
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

impl Common {
    /// Threads to use where `usual` would be.
    pub(crate) fn threads(&self, usual: usize) -> usize {
        self.threads.map_or(usual, usize::from)
    }
}
