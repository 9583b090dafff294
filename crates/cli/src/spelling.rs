//! Former spellings of commands and options, which still work.
//!
//! A command line is rewritten to the current spellings before it is parsed. Help, manual pages and
//! completions show only these. A note on standard error names the new spelling of each former one.

use std::ffi::OsString;

use clap::Command;

use crate::args::Cli;

/// The place of an option's value in its new spelling.
const VALUE: &str = "{}";

/// An option whose spelling changed.
struct Former {
    /// The commands that have it. Empty: every command.
    commands: &'static [&'static str],
    /// The former option, with `=` and a value if only this value is meant.
    old: &'static str,
    /// The new words. The option has a value if they contain [`VALUE`].
    new: &'static str,
}

const fn former(commands: &'static [&'static str], old: &'static str, new: &'static str) -> Former {
    Former { commands, old, new }
}

/// Commands that create a pool or a dataset.
const MAKING: &[&str] = &["mkfs", "dataset add"];

/// The former options. The first match applies.
const OPTIONS: &[Former] = &[
    former(&["repair", "mount"], "--last-epoch", "--discard-image"),
    former(&["repair"], "--accept-data", "--force-data-device"),
    former(&["umount"], "--flush", "--export-replica"),
    former(MAKING, "--media=file", "--medium disk --durability none"),
    former(&[], "--media=dax", "--medium pmem"),
    former(&[], "--media=file", "--medium disk"),
    former(&[], "--media=logged", "--medium disk"),
    former(&[], "--media", "--medium {}"),
    former(MAKING, "--namespace", "-O namespace={}"),
    former(MAKING, "--mapping", "-O mapping={}"),
    former(MAKING, "--run-blocks", "-O run-blocks={}"),
    former(MAKING, "--span-lines", "-O span-lines={}"),
    former(MAKING, "--layout-score", "-O layout-score={}"),
    former(MAKING, "--metadata", "-O metadata={}"),
    former(MAKING, "--thread-slots", "-O thread-slots={}"),
    former(MAKING, "--no-copy", "-O replica=off"),
];

/// Commands whose spelling changed.
const COMMANDS: &[(&str, &str)] = &[
    ("flush", "replica export"),
    ("attach", "replica import"),
    ("fs", "dataset"),
];

/// A command line in the current spelling.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) words: Vec<OsString>,
    /// A note for each former spelling.
    pub(crate) notes: Vec<String>,
}

/// Whether a word is the former spelling of a command.
pub(crate) fn is_former_command(word: &str) -> bool {
    COMMANDS.iter().any(|(old, _)| *old == word)
}

/// Rewrites a command line to the current spelling.
pub(crate) fn current(given: Vec<OsString>) -> Current {
    use clap::CommandFactory;
    let mut given = given;
    let mut notes = Vec::new();
    rename_command(&mut given, &mut notes);
    let root = Cli::command();
    let (name, command, depth) = command_of(&root, &given);
    // Commands that other programs execute have options of their own.
    if command
        .get_arguments()
        .any(clap::Arg::is_trailing_var_arg_set)
    {
        return Current {
            words: given,
            notes,
        };
    }
    let rest = given.split_off(depth);
    let mut reader = Reader {
        name,
        command,
        rest: rest.into(),
        positions: Vec::new(),
        current: Current {
            words: given,
            notes,
        },
    };
    reader.read();
    reader.order();
    reader.current
}

fn rename_command(words: &mut Vec<OsString>, notes: &mut Vec<String>) {
    let at = match words.get(1) {
        Some(help) if help == "help" => 2,
        _ => 1,
    };
    let is_named = |(old, _): &&(&str, &str)| words.get(at).is_some_and(|word| word == old);
    if let Some((old, new)) = COMMANDS.iter().find(is_named) {
        notes.push(note(&format!("vellum {old}"), &format!("vellum {new}")));
        words.splice(at..=at, new.split(' ').map(OsString::from));
    }
}

fn note(old: &str, new: &str) -> String {
    format!("vellum: `{old}` is spelled `{new}` now")
}

/// Returns the full name of the command that the first words name, the command, and the number of
/// these words.
fn command_of<'c>(root: &'c Command, words: &[OsString]) -> (String, &'c Command, usize) {
    let (mut name, mut command, mut depth) = (Vec::new(), root, 1.min(words.len()));
    while let Some(word) = words.get(depth).and_then(|word| word.to_str())
        && let Some(below) = command.find_subcommand(word)
    {
        name.push(word);
        (command, depth) = (below, depth + 1);
    }
    (name.join(" "), command, depth)
}

/// Rewrites the words behind a command.
struct Reader<'c> {
    name: String,
    command: &'c Command,
    rest: std::collections::VecDeque<OsString>,
    /// The positions of the words that belong to no option.
    positions: Vec<usize>,
    current: Current,
}

impl Reader<'_> {
    fn read(&mut self) {
        while let Some(word) = self.rest.pop_front() {
            match word.to_str() {
                Some("--") => {
                    self.push(word);
                    while let Some(word) = self.rest.pop_front() {
                        self.push_position(word);
                    }
                }
                Some(option) if option.starts_with("--") => self.read_long(option),
                Some(flags) if flags.len() > 1 && flags.starts_with('-') => self.read_short(flags),
                _ => self.push_position(word),
            }
        }
    }

    fn push(&mut self, word: impl Into<OsString>) {
        self.current.words.push(word.into());
    }

    fn push_position(&mut self, word: OsString) {
        self.positions.push(self.current.words.len());
        self.push(word);
    }

    fn push_value(&mut self) {
        let value = self.rest.pop_front();
        self.current.words.extend(value);
    }

    fn read_long(&mut self, word: &str) {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word, None),
        };
        if self.replace(option, value) {
            return;
        }
        self.push(word);
        let is_it = |arg: &&clap::Arg| arg.get_long() == option.strip_prefix("--");
        let known = self.command.get_arguments().find(is_it);
        if value.is_none() && known.is_some_and(|arg| arg.get_action().takes_values()) {
            self.push_value();
        }
    }

    fn read_short(&mut self, flags: &str) {
        self.push(flags);
        let takes_value = |flag: char| {
            let mut all = self.command.get_arguments();
            let known = all.find(|arg| arg.get_short() == Some(flag));
            known.is_some_and(|arg| arg.get_action().takes_values())
        };
        // The rest of the word is the value of the first flag that takes one.
        if flags.chars().skip(1).position(takes_value) == Some(flags.chars().count() - 2) {
            self.push_value();
        }
    }

    /// Writes the new spelling of an option, if it is a former one.
    fn replace(&mut self, option: &str, value: Option<&str>) -> bool {
        let next = || self.rest.front().and_then(|word| word.to_str());
        let given = value.or_else(next).unwrap_or_default().to_owned();
        let fits = |of: &&Former| {
            let is_of = of.commands.is_empty() || of.commands.contains(&self.name.as_str());
            is_of
                && match of.old.split_once('=') {
                    Some((old, only)) => old == option && only == given,
                    None => of.old == option,
                }
        };
        let Some(of) = OPTIONS.iter().find(fits) else {
            return false;
        };
        let has_value = of.new.contains(VALUE) || of.old.contains('=');
        if has_value && value.is_none() {
            self.rest.pop_front();
        }
        let (old, new) = match has_value {
            true => (format!("{option} {given}"), of.new.replace(VALUE, &given)),
            false => (option.to_owned(), of.new.to_owned()),
        };
        self.current.notes.push(note(&old, &new));
        for word in of.new.split(' ') {
            self.push(word.replace(VALUE, &given));
        }
        true
    }

    /// Moves the structure of `inspect` before the pool. The former order was `inspect POOL areas`.
    fn order(&mut self) {
        let [first, second] = self.positions[..] else {
            return;
        };
        let mut arguments = self.command.get_positionals();
        let shown = arguments.next().map(clap::Arg::get_possible_values);
        let names = |at: usize| {
            let word = self.current.words[at].to_str().unwrap_or_default();
            let shown = shown.iter().flatten();
            shown.into_iter().any(|value| value.matches(word, false))
        };
        if self.name == "inspect" && !names(first) && names(second) {
            let what = self.current.words[second].to_string_lossy().into_owned();
            let old = format!("vellum inspect POOL {what}");
            let new = format!("vellum inspect {what} POOL");
            self.current.notes.push(note(&old, &new));
            self.current.words.swap(first, second);
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    fn split(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    /// Former command lines, and their current spelling.
    const LINES: &[(&str, &str)] = &[
        ("repair --last-epoch p", "repair --discard-image p"),
        ("mount p d --last-epoch", "mount p d --discard-image"),
        (
            "repair --accept-data p -y",
            "repair --force-data-device p -y",
        ),
        (
            "mkfs p --media file",
            "mkfs p --medium disk --durability none",
        ),
        (
            "dataset add p n --media=file",
            "dataset add p n --medium disk --durability none",
        ),
        ("fs list p", "dataset list p"),
        (
            "fs add p n --mapping=radix",
            "dataset add p n -O mapping=radix",
        ),
        ("info p --media file", "info p --medium disk"),
        ("info p --media dax", "info p --medium pmem"),
        ("mkfs p --media logged", "mkfs p --medium disk"),
        ("ls p:/ --media=memory", "ls p:/ --medium memory"),
        ("info p --media memory", "info p --medium memory"),
        ("mkfs p --namespace tree", "mkfs p -O namespace=tree"),
        (
            "dataset add p n --mapping=radix",
            "dataset add p n -O mapping=radix",
        ),
        ("mkfs --mapping radix p", "mkfs -O mapping=radix p"),
        ("mkfs p --run-blocks 1", "mkfs p -O run-blocks=1"),
        ("mkfs p --span-lines 2", "mkfs p -O span-lines=2"),
        ("mkfs p --layout-score 0.5", "mkfs p -O layout-score=0.5"),
        ("mkfs p --metadata 1G", "mkfs p -O metadata=1G"),
        ("mkfs p --thread-slots 4", "mkfs p -O thread-slots=4"),
        (
            "mkfs p --data d --no-copy",
            "mkfs p --data d -O replica=off",
        ),
        ("flush --all p", "replica export --all p"),
        ("attach p --data d", "replica import p --data d"),
        (
            "attach p --data d --media dax",
            "replica import p --data d --medium pmem",
        ),
        ("umount --flush d", "umount --export-replica d"),
        ("inspect p areas", "inspect areas p"),
        (
            "inspect --data areas p areas --json",
            "inspect --data areas areas p --json",
        ),
    ];

    #[test]
    fn each_former_spelling_is_understood_and_told() {
        for (old, new) in LINES {
            let (old, new) = (format!("vellum {old}"), format!("vellum {new}"));
            let Current { words, notes } = current(split(&old));
            assert_eq!(words, split(&new), "{old}");
            assert!(!notes.is_empty() && notes.iter().all(|note| note.contains(" now")));
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{new}: {error}");
            }
            // The current spelling stays as it is.
            let again = current(words.clone());
            assert_eq!((again.words, again.notes.len()), (words, 0), "{new}");
        }
    }

    #[test]
    fn each_former_spelling_has_a_line_and_is_in_no_help() {
        for Former { commands, old, .. } in OPTIONS {
            let (option, only) = old.split_once('=').unwrap_or((old, ""));
            let has = |line: &str| {
                let words: Vec<&str> = line.split(' ').collect();
                let is_it =
                    |pair: &[&str]| pair[0] == option && (only.is_empty() || pair[1] == only);
                (commands.is_empty() || commands.iter().any(|command| line.starts_with(command)))
                    && (words.windows(2).any(is_it) || only.is_empty() && line.ends_with(option))
            };
            assert!(
                LINES.iter().any(|(line, _)| has(line)),
                "{commands:?} {old}"
            );
        }
        for (old, _) in COMMANDS {
            assert!(LINES.iter().any(|(line, _)| line.starts_with(old)), "{old}");
            assert!(Cli::command().find_subcommand(old).is_none(), "{old}");
        }
    }

    #[test]
    fn what_is_no_option_stays_as_it_is() {
        for line in [
            "vellum repair -- --last-epoch",
            "vellum repair p --undo --last-epoch",
            "vellum mount -o --last-epoch p d",
            "vellum crash --last-epoch",
            "vellum ls --last-epoch",
            "vellum inspect areas areas",
            "vellum inspect p nonsense",
            "vellum --last-epoch",
            "vellum",
        ] {
            let words = split(line);
            let unchanged = Current {
                words: words.clone(),
                notes: Vec::new(),
            };
            assert_eq!(current(words), unchanged, "{line}");
        }
        assert_eq!(current(Vec::new()), Current::default());
    }
}
