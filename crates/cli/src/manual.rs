//! Manual pages and completions, from the command line's own description.

use std::io;
use std::path::Path;

use clap::CommandFactory;

use crate::args::{Cli, Man};
use crate::failure::{Failure, Outcome};
use crate::output::print;

/// Writes the manual pages.
pub(crate) fn pages(args: &Man) -> Outcome {
    let command = Cli::command();
    match &args.dir {
        Some(dir) => write_all(command, dir).map_err(|e| Failure::io(dir.display(), &e)),
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(command)
                .render(&mut text)
                .map_err(|e| Failure::io("standard output", &e))?;
            print(text)
        }
    }
}

fn write_all(command: clap::Command, dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(command, dir)
}

/// Writes completions to standard output.
pub(crate) fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "vellum", &mut text);
    print(text)
}
