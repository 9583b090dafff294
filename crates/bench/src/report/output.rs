//! Where a report goes: to the terminal as text or JSON, to a page, to parts of other documents.

use std::fmt::Display;
use std::path::PathBuf;

use serde::Serialize;

use super::{Page, Parts};
use crate::Result;
use crate::target::Target;

/// How a report is given.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Output {
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Write a page with plots, beside what the paper says
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Write plots (SVG) and tables (Markdown), a file each, and what was to be reached
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
}

impl Output {
    /// Prints a report, and writes what was asked for of its page.
    ///
    /// # Errors
    /// A file cannot be written, a figure cannot be drawn.
    pub(crate) fn publish(
        &self,
        report: &(impl Serialize + Display),
        page: &Page<'_>,
        targets: &[Target],
    ) -> Result<()> {
        if self.json {
            println!(
                "{}",
                serde_json::to_string_pretty(report).unwrap_or_default()
            );
        } else {
            print!("{report}");
        }
        if let Some(path) = &self.report {
            page.write(path)?;
        }
        let parts = Parts {
            machine: page.machine,
            figures: page.figures,
            targets,
        };
        (self.plots.iter()).try_for_each(|dir| parts.write(dir))
    }
}
