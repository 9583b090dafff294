//! Former words of the project, which code and documents must not use: the field has a word for
//! each. `docs/GLOSSARY.md` explains the words that only this project has.

use crate::{Finding, Source};

/// A former word.
#[derive(Clone, Copy, Debug)]
struct Former {
    /// Its parts, in lower case: `data media` matches `DataMedia`, `data_media` and `Data media`.
    old: &'static str,
    /// The present word.
    new: &'static str,
}

const fn former(old: &'static str, new: &'static str) -> Former {
    Former { old, new }
}

const FORMER: &[Former] = &[
    former("accept data", "force data device"),
    former("aids", "saved allocator state"),
    former("anew", "fresh, again, recreated"),
    former("ask mount", "control channel"),
    former("carried bytes", "replica bytes"),
    former("carried copy", "metadata replica"),
    former("carry pool", "export replica"),
    former("closed in order", "closed cleanly"),
    former("data apart", "external data device"),
    former("data media", "external data devices"),
    former("data medium", "external data device"),
    former("desk", "control channel"),
    former("entrance", "pool header"),
    former("harmed", "damaged"),
    former("hollow", "null file system"),
    former("keeper", "background thread, reclaimer"),
    former("mapping alone", "mapping probe"),
    former("planted", "injected"),
    former("riding", "journaled"),
    former("road", "read path"),
    former("roads", "read paths"),
    former("under way", "in flight, running"),
    former("versions at", "undo at"),
    former("writing off", "read only after damage"),
    former("zone", "data segment"),
    former("zones", "data segments"),
];

/// Files that must name former words: this file, the code for former spellings, the history,
/// measured results, and the lists of steps, whose names are part of identifiers that users keep.
const MAY_NAME: &[&str] = &[
    "CHANGELOG.md",
    "bench/results/",
    "crates/cli/src/spelling.rs",
    "crates/cli/tests/cli/spelling.rs",
    "crates/engine/src/disk_sites.rs",
    "crates/engine/src/sites.rs",
    "crates/repo-lints/src/words.rs",
];

/// Separates words that do not form one term.
const PUNCTUATION: &str = ".";

/// Finds former words in a file.
pub fn check_words(source: &Source) -> Vec<Finding> {
    if MAY_NAME.iter().any(|path| source.path.starts_with(path)) {
        return Vec::new();
    }
    let lines = source.text.lines().enumerate();
    lines
        .flat_map(|(index, line)| {
            let words = words(line);
            let found = FORMER.iter().filter(move |former| has(&words, former.old));
            found.map(move |former| finding(source, index + 1, former))
        })
        .collect()
}

fn finding(source: &Source, line: usize, former: &Former) -> Finding {
    Finding {
        path: source.path.clone(),
        line,
        rule: "words",
        message: format!("`{}` is called `{}` now", former.old, former.new),
    }
}

/// The words of a line in lower case, those of identifiers one by one; [`PUNCTUATION`]
/// stands for what separates them. Names of steps, such as `close/aids` or
/// `sites::CLOSE_AIDS`, are left out.
fn words(line: &str) -> Vec<String> {
    let is_no_step = |token: &&str| {
        let name = token.trim_matches(|c: char| !c.is_alphanumeric());
        !name.contains('/') && !name.contains("sites::")
    };
    let tokens: Vec<&str> = line.split(' ').filter(is_no_step).collect();
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for letter in tokens.join(" ").chars() {
        if !letter.is_alphabetic() {
            let is_joint = matches!(letter, ' ' | '_' | '-');
            words.extend((!is_joint).then(|| PUNCTUATION.to_owned()));
            words.push(String::new());
        } else if letter.is_uppercase() && was_lower {
            words.push(String::new());
        }
        if let (true, Some(word)) = (letter.is_alphabetic(), words.last_mut()) {
            word.extend(letter.to_lowercase());
        }
        was_lower = letter.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

fn has(words: &[String], old: &str) -> bool {
    let old: Vec<&str> = old.split(' ').collect();
    words.windows(old.len()).any(|found| found == old)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        let source = Source {
            path: path.into(),
            text: text.into(),
        };
        let findings = check_words(&source);
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn former_words_are_found_in_prose_and_in_identifiers() {
        for text in [
            "a zone of the pool",
            "ZoneError",
            "zone_blocks",
            "DATA_MEDIUM",
            "a Data medium",
            "--accept-data",
        ] {
            assert_eq!(found("docs/a.md", text), [1], "{text}");
        }
    }

    #[test]
    fn longer_words_that_contain_a_former_one_are_not_found() {
        for text in [
            "the horizon",
            "a broad way",
            "bookkeeper",
            "before `close/aids`.",
            "no data. Media are",
        ] {
            assert_eq!(found("docs/a.md", text), [0; 0], "{text}");
        }
    }

    #[test]
    fn the_history_may_name_former_words() {
        assert_eq!(found("CHANGELOG.md", "a zone"), [0; 0]);
    }
}
