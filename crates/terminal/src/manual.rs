//! Manual pages and completions, from a command line's own description.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command, Subcommand};

use crate::failure::{Failure, Outcome};
use crate::output::print;

/// What a program writes for those who install it.
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

/// Where the manual pages go.
#[derive(Args, Debug)]
pub struct Man {
    /// Write a page for every command to this directory, instead of the main page to standard
    /// output
    #[arg(long)]
    pub dir: Option<PathBuf>,
}

impl Manual {
    /// Writes it, for `command`, which is installed as `program`.
    ///
    /// # Errors
    /// If it cannot be written.
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
