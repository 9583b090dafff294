//! Settings of a pool for experts: `-O KEY=VALUE,...`.

use std::str::FromStr;

use clap::ValueEnum;
use vellum_terminal::{Failure, Outcome};

use crate::args::{Mapping, Namespace};
use crate::units::{parse_score, parse_size};

/// The word that asks for the list of keys.
const HELP: &str = "help";

/// All settings; the default where a key is not set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tuning {
    pub(crate) namespace: Namespace,
    pub(crate) mapping: Option<Mapping>,
    pub(crate) run_blocks: Option<u32>,
    pub(crate) span_lines: Option<u16>,
    /// In per mille: 1000 minus the layout score.
    pub(crate) fragmentation: u16,
    pub(crate) metadata: Option<u64>,
    /// Data space never becomes metadata.
    pub(crate) has_fixed_metadata: bool,
    pub(crate) thread_slots: Option<u32>,
    /// The external data device has no space for a metadata replica.
    pub(crate) has_no_replica: bool,
    pub(crate) hash_seed: Option<u64>,
}

/// A key, and what it sets.
struct Key {
    name: &'static str,
    /// The syntax of a value.
    value: &'static str,
    meaning: &'static str,
    default: &'static str,
    set: fn(Tuning, &str) -> Result<Tuning, String>,
}

const KEYS: [Key; 10] = [
    Key {
        name: "namespace",
        value: "direct|adaptive|tree",
        meaning: "How names are kept: a log for each directory and one index of all names \
                  (direct), whole paths in areas as in ADAM (adaptive), or a log and a radix tree \
                  for each directory as in NOVA (tree); the last two are for comparison",
        default: "direct",
        set: |tuning, value| {
            Ok(Tuning {
                namespace: Namespace::from_str(value, false)?,
                ..tuning
            })
        },
    },
    Key {
        name: "mapping",
        value: "hashfs|radix|extent|extent-cached|cuckoo|level",
        meaning: "How file blocks are found: a hash table that is also the block allocator \
                  (hashfs), a radix tree or an extent tree for each file, or one cuckoo or level \
                  hash table for all files",
        default: "hashfs; with a log, or --data, extent, unless run-blocks or span-lines is set",
        set: |tuning, value| {
            Ok(Tuning {
                mapping: Some(Mapping::from_str(value, false)?),
                ..tuning
            })
        },
    },
    Key {
        name: "run-blocks",
        value: "1|8",
        meaning: "Consecutive blocks of a file that hashfs places together",
        default: "8",
        set: |tuning, value| {
            Ok(Tuning {
                run_blocks: Some(number(value)?),
                ..tuning
            })
        },
    },
    Key {
        name: "span-lines",
        value: "N",
        meaning: "Adjacent lines of the table in which hashfs looks for consecutive runs of a \
                  file: 1, 2, 4 and so on up to 256",
        default: "16; with run-blocks=1: 1",
        set: |tuning, value| {
            Ok(Tuning {
                span_lines: Some(number(value)?),
                ..tuning
            })
        },
    },
    Key {
        name: "layout-score",
        value: "SCORE",
        meaning: "Fragments files on purpose: the share of blocks, 0 to 1, that may follow their \
                  predecessors",
        default: "1",
        set: |tuning, value| {
            Ok(Tuning {
                fragmentation: 1000 - parse_score(value)?,
                ..tuning
            })
        },
    },
    Key {
        name: "metadata",
        value: "SIZE",
        meaning: "Space for names and inodes that is never data",
        default: "a sixteenth of the pool; with a log, or --data, a 64th of the data",
        set: |tuning, value| {
            Ok(Tuning {
                metadata: Some(parse_size(value)?),
                ..tuning
            })
        },
    },
    Key {
        name: "metadata-grows",
        value: "on|off",
        meaning: "Whether free data space becomes metadata when those are short; only in pools \
                  without a log that hold their own data",
        default: "on",
        set: |tuning, value| {
            Ok(Tuning {
                has_fixed_metadata: !is_on(value)?,
                ..tuning
            })
        },
    },
    Key {
        name: "thread-slots",
        value: "N",
        meaning: "Operations that can be in flight at once, 2 to 1024",
        default: "by the size of the pool",
        set: |tuning, value| {
            Ok(Tuning {
                thread_slots: Some(number(value)?),
                ..tuning
            })
        },
    },
    Key {
        name: "replica",
        value: "on|off",
        meaning: "Space on the external data device for a replica of metadata that are in memory; \
                  without it `vellum replica export` is not possible",
        default: "on",
        set: |tuning, value| {
            Ok(Tuning {
                has_no_replica: !is_on(value)?,
                ..tuning
            })
        },
    },
    Key {
        name: "hash-seed",
        value: "N",
        meaning: "The seed of the hashes in the pool. Who knows it can choose names that collide, \
                  so set it for reproducible measurements only",
        default: "drawn at random",
        set: |tuning, value| {
            Ok(Tuning {
                hash_seed: Some(number(value)?),
                ..tuning
            })
        },
    },
];

fn is_on(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".into()),
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| "write a number in the allowed range".into())
}

/// One setting of `-O`: a known key with a valid value, or `help`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Help,
    Set { key: usize, value: String },
}

impl Setting {
    /// Reads `KEY=VALUE`, or `help`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == HELP {
            return Ok(Self::Help);
        }
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        // mkfs.ext4 writes such names with underscores.
        let name = name.replace('_', "-");
        let key = KEYS.iter().position(|key| key.name == name);
        let key = key.ok_or("no such key; `vellum mkfs -O help` lists them")?;
        (KEYS[key].set)(Tuning::default(), value)
            .map_err(|why| format!("{name}={}: {why}", KEYS[key].value))?;
        let value = value.to_owned();
        Ok(Self::Set { key, value })
    }
}

impl Tuning {
    /// The result of all settings; the last one for a key wins.
    pub(crate) fn of(settings: &[Setting]) -> Outcome<Self> {
        let mut tuning = Self::default();
        for setting in settings {
            if let Setting::Set { key, value } = setting {
                tuning = (KEYS[*key].set)(tuning, value).map_err(Failure::usage)?;
            }
        }
        Ok(tuning)
    }
}

/// The list of keys.
pub(crate) fn help() -> String {
    let mut text = String::from("Keys for -O, as in -O run-blocks=1,metadata=1G:\n");
    for key in &KEYS {
        text += &format!("\n  {}={}\n", key.name, key.value);
        for line in filled(&format!("{} [default: {}]", key.meaning, key.default)) {
            text += &format!("      {line}\n");
        }
    }
    text
}

/// Lines of at most 90 columns.
fn filled(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        if lines[last].len() + 1 + word.len() > 90 {
            lines.push(word.to_owned());
        } else {
            let gap = if lines[last].is_empty() { "" } else { " " };
            lines[last] += &format!("{gap}{word}");
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning(settings: &[&str]) -> Tuning {
        let settings: Vec<_> = settings.iter().map(|text| Setting::parse(text)).collect();
        let settings: Result<Vec<_>, _> = settings.into_iter().collect();
        Tuning::of(&settings.expect("known")).expect("read")
    }

    #[test]
    fn settings_are_read_and_the_last_counts() {
        let read = tuning(&[
            "mapping=radix",
            "run_blocks=1",
            "span-lines=2",
            "layout-score=0.25",
            "metadata=1G",
            "metadata-grows=off",
            "thread-slots=4",
            "replica=off",
            "hash-seed=7",
            "namespace=tree",
            "thread-slots=5",
        ]);
        assert_eq!(
            (read.mapping, read.namespace),
            (Some(Mapping::Radix), Namespace::Tree)
        );
        assert_eq!((read.run_blocks, read.span_lines), (Some(1), Some(2)));
        assert_eq!((read.fragmentation, read.metadata), (750, Some(1 << 30)));
        assert_eq!((read.thread_slots, read.hash_seed), (Some(5), Some(7)));
        assert!(read.has_fixed_metadata);
        assert!(read.has_no_replica && !tuning(&["replica=off", "replica=on"]).has_no_replica);
    }

    #[test]
    fn invalid_settings_are_refused_with_the_valid_ones() {
        for (text, why) in [
            ("nonsense=1", "-O help"),
            ("", "-O help"),
            ("mapping=other", "hashfs|radix"),
            ("run-blocks", "number"),
            ("thread-slots=-1", "number"),
            ("replica=perhaps", "on or off"),
            ("metadata=4X", "64M"),
            ("layout-score=2", "0 to 1"),
        ] {
            let error = Setting::parse(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn every_key_is_listed_with_its_default() {
        assert_eq!(Setting::parse(HELP), Ok(Setting::Help));
        let help = help();
        for key in &KEYS {
            assert!(
                help.contains(&format!("  {}={}\n", key.name, key.value)),
                "{help}"
            );
        }
        assert_eq!(help.matches("[default: ").count(), KEYS.len());
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
    }
}
