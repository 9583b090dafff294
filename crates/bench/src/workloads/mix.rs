//! Mixes of operations on records, as text that users edit; YCSB's A to F are built in.

use serde::Deserialize;

use super::file::read_named;
use crate::Result;
use crate::error::Error;

/// The built-in mixes, in the order in which YCSB runs them on one store: names and texts.
const SHIPPED: [(&str, &str); 6] = [
    ("A", include_str!("mixes/a.toml")),
    ("B", include_str!("mixes/b.toml")),
    ("C", include_str!("mixes/c.toml")),
    ("F", include_str!("mixes/f.toml")),
    ("D", include_str!("mixes/d.toml")),
    ("E", include_str!("mixes/e.toml")),
];

/// The most records of a scan.
const SCAN_MAX: u64 = 1 << 20;

/// The distribution of requests over records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Zipf's law, scattered over all records
    Zipfian,
    /// More likely the later they were added
    Latest,
    /// All equally likely
    Uniform,
}

/// The action on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Deed {
    Read,
    Update,
    Insert,
    Scan,
    /// Reads and writes the same record.
    Modify,
}

/// A workload: the percentages of its operations.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mix {
    pub(super) name: String,
    pub(super) distribution: Distribution,
    pub(super) operations: Vec<Part>,
}

/// Operations of one kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    #[serde(rename = "do")]
    pub(super) deed: Deed,
    pub(super) percent: u64,
    /// The most records of a scan.
    #[serde(default = "hundred")]
    pub(super) most: u64,
}

fn hundred() -> u64 {
    100
}

impl Mix {
    /// All built-in mixes.
    pub(super) fn shipped() -> Result<Vec<Self>> {
        let parse = |(name, text)| Self::parse(text, name);
        SHIPPED.into_iter().map(parse).collect()
    }

    /// Whether a name is that of a built-in mix.
    pub(super) fn is_shipped(name: &str) -> bool {
        SHIPPED.iter().any(|(shipped, _)| *shipped == name)
    }

    /// The mix that a user named: a built-in one, or a file.
    ///
    /// # Errors
    /// The file cannot be read, or has a field or value that no mix has; the error names the line.
    pub(super) fn named(name: &str) -> Result<Self> {
        Self::parse(&read_named(name, &SHIPPED)?, name)
    }

    fn parse(text: &str, place: &str) -> Result<Self> {
        let refuse = |why: String| Error::Option(format!("workload {place}: {why}"));
        let mix: Self = toml::from_str(text).map_err(|error| refuse(error.to_string()))?;
        mix.check().map_err(|why| refuse(why.into()))?;
        Ok(mix)
    }

    fn check(&self) -> std::result::Result<(), &'static str> {
        let percents = self.operations.iter().map(|part| part.percent);
        let sum = percents.fold(0_u64, u64::saturating_add);
        if sum != 100 {
            return Err("the percents of its operations make a hundred");
        }
        let most = self.operations.iter().map(|part| part.most);
        if most.into_iter().any(|most| !(1..=SCAN_MAX).contains(&most)) {
            return Err("a scan reads 1 to 1048576 records at most");
        }
        Ok(())
    }

    /// The operations for a random number below 100.
    pub(super) fn part(&self, draw: u64) -> &Part {
        let mut left = draw;
        let drawn = self.operations.iter().find(|part| {
            let is_it = left < part.percent;
            left = left.saturating_sub(part.percent);
            is_it
        });
        drawn.expect("the parts of a mix are a hundred")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_mixes_are_those_of_ycsb() {
        let shipped = Mix::shipped().expect("sound");
        let told: Vec<_> = shipped
            .iter()
            .map(|mix| {
                let drawn = |deed| {
                    let is_it = |draw: &u64| mix.part(*draw).deed == deed;
                    (0..100).filter(is_it).count()
                };
                let deeds = [
                    Deed::Read,
                    Deed::Update,
                    Deed::Insert,
                    Deed::Scan,
                    Deed::Modify,
                ];
                (&*mix.name, deeds.map(drawn), mix.distribution)
            })
            .collect();
        let zipfian = Distribution::Zipfian;
        assert_eq!(
            told,
            [
                ("A", [50, 50, 0, 0, 0], zipfian),
                ("B", [95, 5, 0, 0, 0], zipfian),
                ("C", [100, 0, 0, 0, 0], zipfian),
                ("F", [50, 0, 0, 0, 50], zipfian),
                ("D", [95, 0, 5, 0, 0], Distribution::Latest),
                ("E", [0, 0, 5, 95, 0], zipfian),
            ]
        );
        assert!(
            SHIPPED
                .iter()
                .zip(&shipped)
                .all(|(text, mix)| text.0 == mix.name)
        );
    }

    #[test]
    fn mistakes_are_named() {
        let text = SHIPPED[5].1;
        let wrong = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            let error = Mix::parse(&text.replacen(from, to, 1), "mine.toml");
            error.expect_err(to).to_string()
        };
        let said = wrong("do = \"scan\"", "do = \"fly\"");
        assert!(
            said.contains("mine.toml") && said.contains("fly") && said.contains("line"),
            "{said}"
        );
        assert!(wrong("95", "96").contains("a hundred"));
        assert!(wrong("95", "18446744073709551615").contains("a hundred"));
        assert!(wrong("most = 100", "most = 0").contains("1 to 1048576"));
        assert!(wrong("zipfian", "gauss").contains("gauss"));
    }
}
