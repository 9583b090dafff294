//! Manual pages and completions, generated from the description of a command line.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command, Subcommand};

use crate::failure::{Failure, Outcome};
use crate::output::print;

/// The files that a program generates for its installation.
#[derive(Debug, Subcommand)]
pub enum Manual {
    /// Write the manual pages
    #[command(hide = true)]
    Man(Man),
    /// Write completions for a shell
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// The output of the manual pages.
#[derive(Args, Debug)]
pub struct Man {
    /// Write a page for every command to this directory, instead of the main page to standard
    /// output
    #[arg(long)]
    pub dir: Option<PathBuf>,
}

impl Manual {
    /// Writes the files for `command`, which is installed as `program`.
    ///
    /// # Errors
    /// Fails if they cannot be written.
    pub fn write(&self, command: Command, program: &str) -> Outcome {
        match self {
            Self::Man(Man { dir: Some(dir) }) => {
                write_all(command, dir).map_err(|e| Failure::io(dir.display(), &e))
            }
            Self::Man(Man { dir: None }) => {
                let mut text = Vec::new();
                clap_mangen::Man::new(command)
                    .render(&mut text)
                    .map_err(|e| Failure::io("standard output", &e))?;
                print(text)
            }
            Self::Completions { shell } => {
                let (mut command, mut text) = (command, Vec::new());
                clap_complete::generate(*shell, &mut command, program, &mut text);
                print(text)
            }
        }
    }
}

fn write_all(command: Command, dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(command, dir)
}
