//! Kinds of pools, where these are compared.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use vellum::{CreateOptions, MappingKind};

/// The layout score of a pool without deliberate fragmentation.
const WHOLE: u16 = 1000;

/// A kind of pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// File mapping.
    pub mapping: MappingKind,
    /// The requested layout score, per mille.
    pub layout_score: u16,
}

/// The kinds of pools to measure, as options of a command.
#[derive(Clone, Debug, clap::Args)]
pub struct Variants {
    /// File mappings of the pools
    #[arg(
        long,
        value_name = "MAPPING",
        num_args = 1..,
        value_delimiter = ',',
        value_parser = parser()
    )]
    pub mapping: Vec<Choice>,
    /// Layout scores of the pools, 0 to 1: the share of a file's blocks that follow their
    /// predecessors
    #[arg(
        long,
        value_name = "SCORE",
        num_args = 1..,
        value_delimiter = ',',
        value_parser = parse_score,
        default_value = "1"
    )]
    pub layout_score: Vec<u16>,
}

/// A mapping, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Every mapping.
    All,
    /// One mapping.
    One(MappingKind),
}

/// Parses `all` or the name of a mapping.
fn parser() -> impl TypedValueParser<Value = Choice> {
    let names = MappingKind::ALL.into_iter().map(MappingKind::name);
    PossibleValuesParser::new(names.chain(["all"])).map(|name| {
        let mut all = MappingKind::ALL.into_iter();
        all.find(|kind| kind.name() == name)
            .map_or(Choice::All, Choice::One)
    })
}

/// Parses a layout score, 0 to 1; returns it per mille.
fn parse_score(text: &str) -> Result<u16, String> {
    match text.parse::<f64>() {
        Ok(score) if (0.0..=1.0).contains(&score) => Ok((score * f64::from(WHOLE)).round() as u16),
        _ => Err("a layout score is a number from 0 to 1".into()),
    }
}

impl Variants {
    /// Every mapping with every score, each once; `default` if no mapping is named.
    pub fn list(&self, default: &[MappingKind]) -> Vec<Variant> {
        let mut mappings: Vec<MappingKind> = Vec::new();
        for choice in &self.mapping {
            match choice {
                Choice::All => mappings.extend(MappingKind::ALL),
                Choice::One(mapping) => mappings.push(*mapping),
            }
        }
        if mappings.is_empty() {
            mappings.extend(default);
        }
        let scores = &self.layout_score;
        let mut list: Vec<Variant> = Vec::new();
        for mapping in mappings {
            for &layout_score in scores {
                let variant = Variant {
                    mapping,
                    layout_score,
                };
                if !list.contains(&variant) {
                    list.push(variant);
                }
            }
        }
        list
    }
}

impl Variant {
    /// The options for creating a pool of this kind.
    pub(crate) fn create(self, size_bytes: u64) -> CreateOptions {
        CreateOptions::new(size_bytes)
            .mapping(self.mapping)
            .fragmentation(WHOLE - self.layout_score)
    }

    /// The layout score, 0 to 1.
    pub fn score(self) -> f64 {
        f64::from(self.layout_score) / f64::from(WHOLE)
    }

    /// The label in legends: the mapping, and the score if it is not 1.
    pub fn label(self) -> String {
        match self.layout_score {
            WHOLE => self.mapping.name().into(),
            _ => format!("{} {:.2}", self.mapping.name(), self.score()),
        }
    }
}

impl Serialize for Variant {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = to.serialize_struct("Variant", 2)?;
        fields.serialize_field("mapping", self.mapping.name())?;
        fields.serialize_field("layout_score", &self.score())?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        variants: Variants,
    }

    fn list(arguments: &[&str]) -> Vec<String> {
        let line = Line::try_parse_from([&["x"], arguments].concat()).expect("arguments");
        let list = line.variants.list(&[MappingKind::HashFs]);
        list.into_iter().map(Variant::label).collect()
    }

    #[test]
    fn every_mapping_with_every_score() {
        assert_eq!(list(&[]), ["hashfs"]);
        assert_eq!(
            list(&["--mapping", "radix,extent", "--layout-score", "1", "0.85"]),
            ["radix", "radix 0.85", "extent", "extent 0.85"]
        );
        assert_eq!(
            list(&["--mapping", "all", "radix"]).len(),
            MappingKind::ALL.len()
        );
    }

    #[test]
    fn what_is_no_mapping_and_no_score_is_refused() {
        for wrong in [["--mapping", "b-tree"], ["--layout-score", "1.2"]] {
            assert!(Line::try_parse_from([&["x"], &wrong[..]].concat()).is_err());
        }
    }
}
