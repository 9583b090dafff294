//! Checks of options that several commands have.

use crate::Result;
use crate::error::Error;

/// Checks `--rounds` and `--files`.
pub(crate) fn check_counts(rounds: usize, files: usize) -> Result<()> {
    let refuse = |text: &str| Err(Error::Option(text.into()));
    if rounds == 0 {
        return refuse("--rounds must be at least 1");
    }
    if !(2..=99_999).contains(&files) {
        return refuse("--files must be from 2 to 99999");
    }
    Ok(())
}

/// Checks that `--only` names what there is.
pub(crate) fn check_only(only: &[String], known: &[&str]) -> Result<()> {
    match only.iter().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(Error::Option(format!(
            "--only {name}: it is one of {}",
            known.join(", ")
        ))),
        None => Ok(()),
    }
}
