//! Standard output. A reader that goes away (`vellum ls | head`) is not a failure. An output that
//! was closed from the beginning (`vellum info POOL >&-`) is a failure for the requested output of
//! a program.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

pub use crate::{say, warn_line};

use crate::closed::was_closed;
use crate::failure::{Failure, Outcome};

/// Whether [`print()`] was called.
static HAS_PRINTED: AtomicBool = AtomicBool::new(false);

/// Prints the requested output of a command.
pub fn print(text: impl AsRef<[u8]>) -> Outcome {
    if was_closed() {
        return Err(Failure::new("standard output is closed"));
    }
    HAS_PRINTED.store(true, Ordering::Relaxed);
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::io("standard output", &error))
        }
        _ => Ok(()),
    }
}

/// Prints the requested output of a command as JSON.
pub fn print_json(value: &impl Serialize) -> Outcome {
    let mut text =
        serde_json::to_vec_pretty(value).map_err(|error| Failure::new(error.to_string()))?;
    text.push(b'\n');
    print(&text)
}

/// Prints a failure as JSON, if the command has printed nothing yet: so what it prints is JSON,
/// whatever happens. Errors are ignored.
pub fn print_failure(failure: &Failure) {
    if !HAS_PRINTED.load(Ordering::Relaxed) {
        let _ = print_json(&serde_json::json!({ "error": failure }));
    }
}

/// Prints a line about the progress of a command, which goes on even if nobody reads it.
pub fn say_line(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Prints a line to standard error. Errors are ignored.
pub fn warn(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// [`warn`] with a format.
#[macro_export]
macro_rules! warn_line {
    ($($format:tt)+) => {
        $crate::output::warn(format_args!($($format)+))
    };
}

/// [`say_line`] with a format.
#[macro_export]
macro_rules! say {
    ($($format:tt)+) => {
        $crate::output::say_line(format_args!($($format)+))
    };
}
