//! Workload files: the work of threads on a set of files, as text that users edit.

use std::borrow::Cow;
use std::path::Path;

use serde::{Deserialize, Deserializer};

use crate::Result;
use crate::error::{Error, doing};

/// The built-in personalities: names and texts.
const SHIPPED: [(&str, &str); 4] = [
    ("fileserver", include_str!("personalities/fileserver.toml")),
    ("webproxy", include_str!("personalities/webproxy.toml")),
    ("webserver", include_str!("personalities/webserver.toml")),
    ("varmail", include_str!("personalities/varmail.toml")),
];

/// The most names in a set of files.
const COUNT_MAX: u32 = 1_000_000;
/// The most times that a step is repeated.
const TIMES_MAX: u32 = 10_000;
/// The largest size of any kind.
const SIZE_MAX: u64 = 1 << 40;

/// A workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) files: Files,
    pub(crate) steps: Vec<Step>,
    pub(crate) variants: Vec<Sizes>,
}

/// The set of files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Files {
    /// The number of names.
    pub(crate) count: u32,
    /// The number of names in a directory.
    pub(crate) a_directory: u32,
}

/// A step that a thread executes, in order and again and again.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    #[serde(rename = "do")]
    pub(crate) what: Deed,
    #[serde(default = "once")]
    pub(crate) times: u32,
    #[serde(default)]
    pub(crate) sync: bool,
}

fn once() -> u32 {
    1
}

/// The action on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Deed {
    Create,
    Append,
    Read,
    Stat,
    Delete,
    Log,
}

/// A variant: sizes in bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sizes {
    pub(crate) name: String,
    /// The mean size of a file.
    #[serde(deserialize_with = "size")]
    pub(crate) file: u64,
    /// Bytes of a single read.
    #[serde(deserialize_with = "size")]
    pub(crate) read: u64,
    /// Bytes of a single write.
    #[serde(deserialize_with = "size")]
    pub(crate) write: u64,
    /// The mean number of bytes appended at once.
    #[serde(deserialize_with = "size")]
    pub(crate) append: u64,
}

/// Parses `65536` and `"64 KiB"`.
fn size<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "a number of bytes, or one with a unit, like \"64 KiB\""
    )]
    enum Written {
        Bytes(u64),
        Text(String),
    }
    let written = match Written::deserialize(from)? {
        Written::Bytes(bytes) => Some(bytes),
        Written::Text(text) => parse_size(&text),
    };
    let wrong = "a size is from 1 byte to 1 TiB, in B, KiB, MiB or GiB";
    written
        .filter(|bytes| (1..=SIZE_MAX).contains(bytes))
        .ok_or_else(|| serde::de::Error::custom(wrong))
}

fn parse_size(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The text of a workload: a built-in one, or a file.
pub(super) fn read_named(
    name: &str,
    shipped: &[(&str, &'static str)],
) -> Result<Cow<'static, str>> {
    if let Some((_, text)) = shipped.iter().find(|(shipped, _)| *shipped == name) {
        return Ok(Cow::Borrowed(text));
    }
    let text = std::fs::read_to_string(Path::new(name));
    let text = text.map_err(doing(format!("read the workload {name}")))?;
    Ok(Cow::Owned(text))
}

impl Workload {
    /// All built-in workloads.
    pub(crate) fn shipped() -> Result<Vec<Self>> {
        let parse = |(name, text)| Self::parse(text, name);
        SHIPPED.into_iter().map(parse).collect()
    }

    /// The workload that a user named: a built-in one, or a file.
    ///
    /// # Errors
    /// The file cannot be read, or has a field or value that no workload has; the error names the
    /// line.
    pub(crate) fn named(name: &str) -> Result<Self> {
        Self::parse(&read_named(name, &SHIPPED)?, name)
    }

    /// Whether a name is that of a built-in workload.
    pub(crate) fn is_shipped(name: &str) -> bool {
        SHIPPED.iter().any(|(shipped, _)| *shipped == name)
    }

    fn parse(text: &str, place: &str) -> Result<Self> {
        let refuse = |why: String| Error::Option(format!("workload {place}: {why}"));
        let workload: Self = toml::from_str(text).map_err(|error| refuse(error.to_string()))?;
        workload.check().map_err(|why| refuse(why.into()))?;
        Ok(workload)
    }

    fn check(&self) -> std::result::Result<(), &'static str> {
        if !(1..=COUNT_MAX).contains(&self.files.count) || self.files.a_directory == 0 {
            return Err("there are 1 to 1000000 files, at least one in a directory");
        }
        if self.steps.is_empty() || self.variants.is_empty() {
            return Err("at least one step and one variant are needed");
        }
        if self
            .steps
            .iter()
            .any(|step| !(1..=TIMES_MAX).contains(&step.times))
        {
            return Err("a step is done 1 to 10000 times");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_workloads_follow_the_papers() {
        let shipped = Workload::shipped().expect("sound");
        let names: Vec<&str> = shipped.iter().map(|workload| &*workload.name).collect();
        assert_eq!(names, ["fileserver", "webproxy", "webserver", "varmail"]);
        for workload in &shipped {
            let sizes = |name: &str| {
                let found = workload.variants.iter().find(|sizes| sizes.name == name);
                let found = found.expect("a variant");
                (found.file >> 10, found.read >> 10)
            };
            let (small, large) = match &*workload.name {
                "fileserver" => ((512, 16), (512, 64)),
                "webproxy" => ((64, 16), (64, 1024)),
                "webserver" => ((256, 8), (256, 1024)),
                _ => ((128, 16), (128, 1024)),
            };
            assert_eq!(sizes("small"), small, "{}", workload.name);
            assert_eq!(sizes("large"), large, "{}", workload.name);
        }
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let text = SHIPPED[0].1;
        let wrong = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            let error = Workload::parse(&text.replacen(from, to, 1), "mine.toml");
            error.expect_err(to).to_string()
        };
        let said = wrong("do = \"append\"", "do = \"fly\"");
        assert!(
            said.contains("mine.toml") && said.contains("fly") && said.contains("line"),
            "{said}"
        );
        let said = wrong("\"512 KiB\"", "\"512 KB\"");
        assert!(said.contains("a size is"), "{said}");
        let said = wrong("\"512 KiB\"", "0");
        assert!(said.contains("a size is"), "{said}");
        let said = wrong("read = \"16 KiB\"\n", "");
        assert!(said.contains("read"), "{said}");
        let said = wrong("count = 1000", "count = 0");
        assert!(said.contains("1 to 1000000 files"), "{said}");
        let said = wrong("count", "cuont");
        assert!(said.contains("cuont"), "{said}");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("64 KiB"), Some(65_536));
        assert_eq!(parse_size("3MiB"), Some(3 << 20));
        assert_eq!(parse_size("7"), Some(7));
        for wrong in [
            "",
            "KiB",
            "1 kB",
            "-1",
            "99999999999999999999",
            "99999999999 GiB",
        ] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }
}
