//! The output of a report: to the terminal as text or JSON, as a page, or as parts of other
//! documents.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use serde::Serialize;
use vellum_terminal::Printing;

use super::{Page, Parts};
use crate::Result;
use crate::error::doing;
use crate::target::Target;

/// The form of a report.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Output {
    /// JSON instead of tables
    #[command(flatten)]
    pub printing: Printing,
    /// Write a page with plots and the paper's claims
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Write plots (SVG) and tables (Markdown), one file each, and the targets
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
}

/// Prints a report on standard output, as JSON or as text. A closed pipe is not an error.
///
/// # Errors
/// Writing failed.
pub(crate) fn print(is_json: bool, report: &impl Serialize, text: impl Display) -> Result<()> {
    let text = match is_json {
        true => serde_json::to_string_pretty(report).unwrap_or_default() + "\n",
        false => text.to_string(),
    };
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(doing("write the report")(error))
        }
        _ => Ok(()),
    }
}

/// Prints a line on standard error, and ignores failures.
pub(crate) fn note(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "vellum bench: {line}");
}

impl Output {
    /// Prints a report, and writes the requested page and parts.
    ///
    /// # Errors
    /// A file cannot be written, or a figure cannot be drawn.
    pub(crate) fn publish(
        &self,
        report: &(impl Serialize + Display),
        page: &Page<'_>,
        targets: &[Target],
    ) -> Result<()> {
        print(self.printing.json, report, report)?;
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
