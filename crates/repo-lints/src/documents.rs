//! House rules for the documents: links lead somewhere, lines end at 120 columns, decision records
//! are numbered.

use crate::{Finding, Source};

const RECORDS: &str = "docs/decisions/";

/// The maximum columns of a line of prose.
pub const COLUMNS_MAX: usize = 120;

/// Checks that every relative link of a Markdown file leads to a path for which `exists` holds. The
/// paths are relative to the repository's root.
pub fn check_links(document: &Source, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let folder = document
        .path
        .rsplit_once('/')
        .map_or("", |(folder, _)| folder);
    let mut findings = Vec::new();
    for (line, link) in links(&document.text) {
        let target = link.split(['#', '?']).next().unwrap_or_default();
        if target.is_empty() || is_absolute(&link) {
            continue;
        }
        let resolved = resolve(folder, target);
        if !resolved.as_deref().is_some_and(&exists) {
            let place = resolved.unwrap_or_else(|| "a place outside the repository".to_owned());
            findings.push(Finding {
                path: document.path.clone(),
                line,
                rule: "links",
                message: format!("`{link}` leads to {place}, which isn't there"),
            });
        }
    }
    findings
}

/// Checks that no line of prose is too long. Tables, code, and words without a space cannot be
/// broken.
pub fn check_width(document: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_code = false;
    for (index, line) in document.text.lines().enumerate() {
        let text = line.trim_start();
        let is_fence = text.starts_with("```") || text.starts_with("~~~");
        in_code ^= is_fence;
        let columns = line.chars().count();
        let can_be_broken = text.contains(' ') && !text.starts_with(['|', '#', '<']);
        let is_prose = !in_code && !is_fence && can_be_broken && !line.starts_with("    ");
        if is_prose && columns > COLUMNS_MAX {
            findings.push(Finding::too_wide(document, index + 1, columns, COLUMNS_MAX));
        }
    }
    findings
}

/// Checks that the decision records among `paths` are numbered 0001, 0002, ... without a gap.
pub fn check_records(paths: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut numbered: Vec<(usize, &str)> = Vec::new();
    let mut report = |path: &str, message: String| {
        findings.push(Finding {
            path: path.to_owned(),
            line: 1,
            rule: "decision records",
            message,
        });
    };
    for path in paths {
        let Some(name) = path
            .strip_prefix(RECORDS)
            .filter(|name| *name != "README.md")
        else {
            continue;
        };
        match record_number(name) {
            Some(number) => numbered.push((number, path)),
            None => report(
                path,
                "its name isn't NNNN-title.md (lower case, hyphens)".to_owned(),
            ),
        }
    }
    numbered.sort();
    let mut expected = 1;
    for (number, path) in numbered {
        if number != expected {
            report(
                path,
                format!("is numbered {number:04}; the next number is {expected:04}"),
            );
        }
        expected = number + 1;
    }
    findings
}

fn record_number(name: &str) -> Option<usize> {
    let (digits, title) = name.strip_suffix(".md")?.split_once('-')?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let well_formed = digits.len() == 4 && !title.is_empty() && title.chars().all(plain);
    digits.parse().ok().filter(|_| well_formed)
}

/// The targets of `[text](target)`, `![text](target)` and `[label]: target`, outside code, with
/// their line numbers.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        if let Some(mark) = ["```", "~~~"]
            .into_iter()
            .find(|mark| trimmed.starts_with(mark))
        {
            match fence {
                None => fence = Some(mark),
                Some(open) if open == mark => fence = None,
                Some(_) => {}
            }
            continue;
        }
        if fence.is_some() {
            continue;
        }
        let prose = without_code(line);
        for (start, _) in prose.match_indices("](") {
            let rest = &prose[start + 2..];
            found.extend(target(&rest[..closing(rest)]).map(|target| (index + 1, target)));
        }
        if let Some((label, rest)) = prose.trim_start().split_once("]:")
            && label.starts_with('[')
            && !label.starts_with("[^")
        {
            found.extend(target(rest).map(|target| (index + 1, target)));
        }
    }
    found
}

/// A link's target without its title and angle brackets.
fn target(link: &str) -> Option<String> {
    let link = link.trim();
    match link.strip_prefix('<') {
        Some(bracketed) => bracketed.split('>').next(),
        None => link.split_whitespace().next(),
    }
    .map(|target| target.replace("%20", " "))
}

/// The offset in `rest` of the closing parenthesis for one that was opened before it.
fn closing(rest: &str) -> usize {
    let mut depth = 1;
    for (index, c) in rest.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index;
        }
    }
    rest.len()
}

/// The line with the insides of its code spans left out.
fn without_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    let last = parts.len() - 1;
    let kept = parts
        .iter()
        .enumerate()
        .filter(|(index, _)| index % 2 == 0 || *index == last);
    kept.map(|(_, part)| *part).collect::<Vec<_>>().join("``")
}

fn is_absolute(link: &str) -> bool {
    let scheme = link.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|s| !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric()))
}

/// `target` as seen from `folder`, relative to the root; `None` if that's outside the root.
fn resolve(folder: &str, target: &str) -> Option<String> {
    let base = if target.starts_with('/') { "" } else { folder };
    let mut parts: Vec<&str> = Vec::new();
    for part in base.split('/').chain(target.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(text: &str) -> Vec<(usize, String)> {
        let document = Source {
            path: "docs/A.md".to_owned(),
            text: text.to_owned(),
        };
        let there = [
            "README.md",
            "docs",
            "docs/B.md",
            "docs/decisions/0001-a.md",
            "docs/a (1).svg",
        ];
        check_links(&document, |path| there.contains(&path))
            .into_iter()
            .map(|finding| (finding.line, finding.message))
            .collect()
    }

    #[test]
    fn a_line_of_prose_has_at_most_120_columns() {
        let lines = |text: String| {
            let path = "docs/A.md".to_owned();
            let findings = check_width(&Source { path, text });
            findings
                .into_iter()
                .map(|finding| finding.line)
                .collect::<Vec<_>>()
        };
        let words = |columns: usize| format!("a {}", "b".repeat(columns - 2));
        assert!(lines(words(120)).is_empty());
        assert_eq!(lines(format!("{}\n{}", words(120), words(121))), [2]);
        let code = format!("```\n{}\n```\n    {}\n", words(130), words(130));
        assert!(lines(format!("{code}| {} |\n{}", words(130), "b".repeat(130))).is_empty());
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let text = "[b](B.md) and ![c](<a (1).svg>), ![c](a%20(1).svg \"title\")\n\
                    [up](../README.md#promises), [here](#x), [r](decisions/0001-a.md), [d](.)\n\
                    [web](https://example.org/a.md), <mailto:a@example.org>, `[code](gone.md)`\n\
                    ```\n[fenced](gone.md)\n```\n[ref]: B.md\n[^note]: gone.md\n";
        assert_eq!(broken(text), []);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let text =
            "[b](b.md)\n\n[up](../../README.md) [c](./decisions/0002-b.md#x)\n[ref]: gone.md\n";
        let lines: Vec<usize> = broken(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 3, 3, 4]);
        assert_eq!(
            broken("[b](b.md)")[0].1,
            "`b.md` leads to docs/b.md, which isn't there"
        );
    }

    #[test]
    fn records_are_numbered_without_a_gap() {
        let records = |names: &[&str]| {
            let paths: Vec<String> = names
                .iter()
                .map(|name| format!("{RECORDS}{name}"))
                .collect();
            check_records(&paths)
                .into_iter()
                .map(|finding| finding.path)
                .collect::<Vec<_>>()
        };
        assert!(records(&[]).is_empty());
        assert!(records(&["README.md", "0001-a.md", "0002-b-2.md"]).is_empty());
        assert_eq!(
            records(&["0001-a.md", "0003-c.md", "0004-d.md"]),
            [format!("{RECORDS}0003-c.md")]
        );
        assert_eq!(
            records(&["0001-a.md", "0001-b.md"]),
            [format!("{RECORDS}0001-b.md")]
        );
        assert_eq!(records(&["0002-a.md"]), [format!("{RECORDS}0002-a.md")]);
        assert_eq!(records(&["1-a.md", "0001_b.md", "0001-B.md"]).len(), 3);
    }
}
