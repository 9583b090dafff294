//! The options `--json` and `--quiet`, which mean the same in every command that has them.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser};

use crate::failure::{Failure, Outcome};

/// The output options of a command.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Printing {
    /// Print JSON, without progress bars
    #[arg(long)]
    pub json: bool,
    /// Print only the requested output and errors: no progress, no summary, no warnings
    #[arg(long, short)]
    pub quiet: bool,
}

impl Printing {
    /// Whether progress is hidden.
    pub fn hides_progress(self) -> bool {
        self.quiet || self.json
    }

    /// Whether a summary is printed.
    pub fn has_summary(self) -> bool {
        !self.hides_progress()
    }

    /// The failure of a command that was given one of these options but does not have it.
    pub fn refusal(error: &clap::Error) -> Option<Failure> {
        let option = match (error.kind(), error.get(ContextKind::InvalidArg)) {
            (ErrorKind::UnknownArgument, Some(ContextValue::String(option))) => option.as_str(),
            _ => return None,
        };
        let why = match option {
            "--json" => "this command has no output as JSON",
            "--quiet" | "-q" => "this command prints nothing that could be left out",
            _ => return None,
        };
        Some(Failure::usage(format!("{option}: {why}")))
    }
}

/// Parses the command line of a program. Ends the program if clap answers it itself (help, version,
/// errors).
///
/// # Errors
/// Fails if `--json` or `--quiet` is given to a command that does not have it.
pub fn parsed<T: Parser>() -> Outcome<T> {
    T::try_parse().map_err(|error| Printing::refusal(&error).unwrap_or_else(|| error.exit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    struct Prints {
        #[command(flatten)]
        printing: Printing,
    }

    #[derive(Debug, Parser)]
    struct PrintsNothing {}

    #[test]
    fn output_options_are_refused_where_they_have_no_effect() {
        let Printing { json, quiet } = Prints::parse_from(["p", "--json", "-q"]).printing;
        assert!(json && quiet);
        for (option, why) in [
            ("--json", "as JSON"),
            ("--quiet", "left out"),
            ("-q", "left out"),
        ] {
            let error = PrintsNothing::try_parse_from(["p", option]).expect_err("refused");
            let refusal = Printing::refusal(&error).expect("a failure").to_string();
            assert!(
                refusal.contains(option) && refusal.contains(why),
                "{refusal}"
            );
        }
        let other = PrintsNothing::try_parse_from(["p", "--other"]).expect_err("refused");
        assert!(Printing::refusal(&other).is_none());
    }
}
