//! What every command has that runs for minutes.

use clap::Args;

/// How many threads, and what is shown.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Threads [default: one a CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Show each workload, or what caught each mutant, too
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

impl Common {
    /// Threads to use where `usual` would be.
    pub(crate) fn threads(&self, usual: usize) -> usize {
        self.threads.map_or(usual, usize::from)
    }

    /// Whether nobody is to see how far it is.
    pub(crate) fn hides_progress(&self) -> bool {
        self.quiet || self.json
    }
}
