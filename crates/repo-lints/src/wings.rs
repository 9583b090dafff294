//! The wings of the engine: a wing uses only wings below it.

use crate::sites::{is_shipped, shipped_part};
use crate::{Finding, Source};

const ENGINE: &str = "crates/engine/src/";
const RULE: &str = "wings";

/// The wings, from the top down. Wings in one row must not use each other.
const WINGS: &[&[&str]] = &[
    &["experiments", "internals"],
    &["checking"],
    &["pool"],
    &["fs"],
    &["devices"],
    &["namespace", "mapping", "reading"],
    &["durability"],
    &["core"],
    &["logs"],
    &["error"],
    &["sites", "disk_sites"],
];

/// Checks that no module of the engine uses a wing above it or beside it, except in tests.
pub fn check_wings(sources: &[Source]) -> Vec<Finding> {
    let own = sources
        .iter()
        .filter(|source| is_shipped(&source.path))
        .filter_map(|source| {
            let name = source.path.strip_prefix(ENGINE)?;
            let wing = name.split(['/', '.']).next()?;
            (wing != "lib").then_some((source, wing))
        });
    own.flat_map(|(source, wing)| check_source(source, wing))
        .collect()
}

fn check_source(source: &Source, wing: &str) -> Vec<Finding> {
    let row = |name: &str| WINGS.iter().position(|row| row.contains(&name));
    let finding = |line, message| Finding {
        path: source.path.clone(),
        line,
        rule: RULE,
        message,
    };
    let Some(own) = row(wing) else {
        let message = format!("`{wing}` is not a wing: give it a row in repo-lints/src/wings.rs");
        return vec![finding(1, message)];
    };
    let mut findings = Vec::new();
    for (number, line) in shipped_part(&source.text).lines().enumerate() {
        if line.trim_start().starts_with("//") {
            continue;
        }
        for used in line.split("crate::").skip(1) {
            let end = used.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let used = &used[..end.unwrap_or(used.len())];
            let message = match row(used) {
                _ if used == wing => continue,
                Some(other) if other > own => continue,
                Some(_) => format!("`{wing}` uses `{used}`, which is not below it"),
                None => format!("`crate::{used}` by way of lib.rs: name its wing"),
            };
            findings.push(finding(number + 1, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        let source = Source {
            path: format!("{ENGINE}{path}"),
            text: text.to_owned(),
        };
        let findings = check_wings(&[source]);
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_wing_uses_wings_below_it() {
        let below = "use crate::core::Core;\n/// See [`crate::pool::Pool`].\nuse crate::fs::Fs;\n";
        assert!(found("fs/open.rs", below).is_empty());
        assert_eq!(found("core/slots.rs", below), [3]);
        assert_eq!(found("mapping/mod.rs", "use crate::namespace::Area;"), [1]);
    }

    #[test]
    fn paths_through_lib_are_refused_and_every_module_has_a_row() {
        assert_eq!(found("fs/open.rs", "\nuse crate::{Error, Result};"), [2]);
        assert_eq!(found("fs/open.rs", "let e = crate::Error::Stale;"), [1]);
        assert_eq!(found("stray.rs", ""), [1]);
    }

    #[test]
    fn tests_may_use_all() {
        let text =
            "use crate::error::Result;\n#[cfg(test)]\nmod tests {\n    use crate::Pool;\n}\n";
        assert!(found("core/times.rs", text).is_empty());
        assert!(found("checking/kernels.rs", "use crate::fs::Fs;").is_empty());
    }
}
