//! Standard output. That its reader went away (`vellum ls | head`) is no failure; that it was
//! closed from the beginning (`vellum info POOL >&-`) is one, of what the program was asked for.

use std::fmt;
use std::io::{self, Write};

use serde::Serialize;

pub use crate::{say, warn_line};

use crate::closed::was_closed;
use crate::failure::{Failure, Outcome};

/// What a command is asked for.
pub fn print(text: impl AsRef<[u8]>) -> Outcome {
    if was_closed() {
        return Err(Failure::new("standard output is closed"));
    }
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::io("standard output", &error))
        }
        _ => Ok(()),
    }
}

/// The same for programs.
pub fn print_json(value: &impl Serialize) -> Outcome {
    let mut text =
        serde_json::to_vec_pretty(value).map_err(|error| Failure::new(error.to_string()))?;
    text.push(b'\n');
    print(&text)
}

/// A line about what is done, which is done whether or not somebody reads it.
pub fn say_line(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// A line on standard error, whether or not somebody reads it.
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
