//! Compares the engine's list of sites (`engine/src/sites.rs`) with its sources.

use crate::{Finding, Source};

const LIST: &str = "crates/engine/src/sites.rs";
const ENGINE: &str = "crates/engine/src/";

/// A site in the list.
struct Listed<'a> {
    line: usize,
    constant: &'a str,
    name: &'a str,
}

/// Checks that every site of the engine's list is used exactly once outside tests, and that its
/// constant has the matching name. Checks also that no code uses an unnamed site. The compiler
/// checks that each call names *some* site.
pub fn check_sites(sources: &[Source]) -> Vec<Finding> {
    let Some(list) = sources.iter().find(|source| source.path == LIST) else {
        return vec![finding(LIST, 1, "the list of sites is missing".into())];
    };
    let listed: Vec<Listed> = list
        .text
        .lines()
        .enumerate()
        .filter_map(|(line, text)| parse(line + 1, text))
        .collect();
    let shipped: Vec<(&str, &str)> = sources
        .iter()
        .filter(|source| is_shipped(&source.path))
        .map(|source| (source.path.as_str(), shipped_part(&source.text)))
        .collect();
    let mut findings: Vec<Finding> = listed
        .iter()
        .flat_map(|site| check_site(site, &listed, &shipped))
        .collect();
    for (path, text) in shipped {
        for (line, text) in text.lines().enumerate() {
            if text.contains("Site::") {
                let message = "a site that is not in the list of sites".into();
                findings.push(finding(path, line + 1, message));
            }
        }
    }
    findings
}

fn check_site(site: &Listed<'_>, listed: &[Listed<'_>], shipped: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |message: String| findings.push(finding(LIST, site.line, message));
    let wanted = site.name.to_uppercase().replace(['/', '-'], "_");
    if site.constant != wanted {
        say(format!("`{}` must be called {wanted}", site.name));
    }
    if listed
        .iter()
        .filter(|other| other.name == site.name)
        .count()
        > 1
    {
        say(format!("`{}` is in the list twice", site.name));
    }
    let uses = shipped
        .iter()
        .map(|(_, text)| uses(text, site.constant))
        .sum::<usize>();
    if uses != 1 {
        say(format!("`{}` is used {uses} times, not once", site.name));
    }
    findings
}

/// A line `CONSTANT = "name",` of the list.
fn parse(line: usize, text: &str) -> Option<Listed<'_>> {
    let (constant, rest) = text.trim().split_once(" = \"")?;
    Some(Listed {
        line,
        constant,
        name: rest.strip_suffix("\",")?,
    })
}

/// Whether this is a source of the engine other than the list and tests.
pub(crate) fn is_shipped(path: &str) -> bool {
    path.starts_with(ENGINE)
        && path != LIST
        && !path.contains("/checking/")
        && !path.ends_with("/tests.rs")
        && !path.ends_with("/file/crash.rs")
}

/// The text of a file before its unit tests.
pub(crate) fn shipped_part(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or(text)
}

fn uses(text: &str, constant: &str) -> usize {
    let path = format!("sites::{constant}");
    text.match_indices(&path)
        .filter(|(at, _)| {
            let next = text[at + path.len()..].chars().next();
            !next.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
        })
        .count()
}

fn finding(path: &str, line: usize, message: String) -> Finding {
    Finding {
        path: path.to_owned(),
        line,
        rule: "sites",
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules_broken(list: &str, engine: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        check_sites(&[
            source(LIST, list),
            source("crates/engine/src/a.rs", engine),
            source(
                "crates/engine/src/checking/b.rs",
                "sites::A_B Site::UNNAMED",
            ),
        ])
        .into_iter()
        .map(|finding| finding.message)
        .collect()
    }

    #[test]
    fn each_site_is_used_once() {
        let list = "    A_B = \"a/b\",\n    A_B_C = \"a/b-c\",\n";
        assert_eq!(rules_broken(list, "(sites::A_B, x) sites::A_B_C"), [""; 0]);
        assert_eq!(
            rules_broken(list, "sites::A_B_C"),
            ["`a/b` is used 0 times, not once"]
        );
        assert_eq!(
            rules_broken(list, "sites::A_B sites::A_B_C sites::A_B"),
            ["`a/b` is used 2 times, not once"]
        );
        let tested =
            "sites::A_B sites::A_B_C\n#[cfg(test)]\nmod tests {\n sites::A_B Site::UNNAMED }";
        assert_eq!(rules_broken(list, tested), [""; 0]);
    }

    #[test]
    fn sites_are_listed_under_their_names() {
        assert_eq!(
            rules_broken("A_C = \"a/b\",", "sites::A_C"),
            ["`a/b` must be called A_B"]
        );
        assert_eq!(
            rules_broken("A_B = \"a/b\",", "sites::A_B\nSite::UNNAMED"),
            ["a site that is not in the list of sites"]
        );
        assert_eq!(check_sites(&[]).len(), 1);
    }
}
