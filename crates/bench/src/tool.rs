//! Runs programs of the system.

use std::process::{Command, Stdio};

use crate::Result;
use crate::error::{Error, doing};

/// Runs a program without input; returns its trimmed output.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(doing(words(command)))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(Error::Tool {
            command: words(command),
            said: format!("{}; {}", output.status, text(&output.stderr)),
        })
    }
}

fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(|word| word.to_string_lossy());
    words.collect::<Vec<_>>().join(" ")
}

/// Why a command that does nothing fails, such as one that reports a version: its program is
/// missing, or a part of it.
pub(crate) fn missing(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    run(command.args(words))
        .err()
        .map(|error| error.to_string())
}
