//! House rules for the Rust sources.

use crate::{Finding, Source};

/// The maximum lines of a file. A longer file must be split.
pub const LINES_MAX: usize = 800;

/// The most columns of a line. Rustfmt breaks no strings, comments, or arguments of macros.
pub const COLUMNS_MAX: usize = 100;

/// Where code may be that the compiler cannot prove: the crate that accesses memory, the module in
/// which the engine lends bytes that its leases protect, the function that runs before Rust's
/// runtime, and the border to C: its pointers, the table and the records that its threads share,
/// and its tests, which call across.
const UNPROVEN_ALLOWED: &[&str] = &[
    "crates/media/",
    LENDING,
    STARTING,
    BORROWED,
    TABLE,
    RECORDS,
    CALLERS,
];
const LENDING: &str = "crates/engine/src/fs/file/view.rs";
const STARTING: &str = "crates/terminal/src/closed.rs";
const BORROWED: &str = "crates/capi/src/borrowed.rs";
const TABLE: &str = "crates/capi/src/table.rs";
const RECORDS: &str = "crates/capi/src/threads.rs";
const CALLERS: &str = "crates/capi/tests/";

// Written in halves, so that this file obeys its own rules.
const UNPROVEN: &str = concat!("un", "safe");
/// Gives a function of the border to C its name there. That is no block of code.
const EXPORTED: &str = concat!("#[un", "safe(no_mangle)]");
const LEFTOVER_WORDS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
];
const LEFTOVER_MACROS: &[&str] = &[
    concat!("to", "do!"),
    concat!("unimpl", "emented!"),
    concat!("db", "g!"),
];

/// Applies every rule of style to one Rust file.
pub fn check_style(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    check_length(source, &mut findings);
    check_width(source, &mut findings);
    check_leftovers(source, &mut findings);
    check_unproven(source, &mut findings);
    check_crate_attribute(source, &mut findings);
    findings
}

fn check_length(source: &Source, findings: &mut Vec<Finding>) {
    let lines = source.text.lines().count();
    if lines > LINES_MAX {
        findings.push(Finding {
            path: source.path.clone(),
            line: LINES_MAX + 1,
            rule: "length",
            message: format!("{lines} lines, at most {LINES_MAX}: split it by what its parts do"),
        });
    }
}

fn check_width(source: &Source, findings: &mut Vec<Finding>) {
    for (line, text) in numbered(source) {
        // A row of a table cannot be broken.
        let is_row = text.trim_start_matches(['/', '!', ' ']).starts_with('|');
        let columns = text.chars().count();
        if columns > COLUMNS_MAX && !is_row {
            findings.push(Finding::too_wide(source, line, columns, COLUMNS_MAX));
        }
    }
}

fn check_leftovers(source: &Source, findings: &mut Vec<Finding>) {
    for (line, text) in numbered(source) {
        for word in LEFTOVER_WORDS.iter().chain(LEFTOVER_MACROS) {
            if has_word(text, word) {
                findings.push(Finding {
                    path: source.path.clone(),
                    line,
                    rule: "leftover",
                    message: format!("`{word}`: do it, or file it as an issue"),
                });
            }
        }
    }
}

fn check_unproven(source: &Source, findings: &mut Vec<Finding>) {
    if UNPROVEN_ALLOWED
        .iter()
        .any(|path| source.path.starts_with(path))
    {
        return;
    }
    let exports = source.path.starts_with("crates/capi/src/");
    for (line, text) in numbered(source) {
        let is_name = exports && text.trim() == EXPORTED;
        if has_word(text, UNPROVEN) && !is_name {
            findings.push(Finding {
                path: source.path.clone(),
                line,
                rule: "one door to memory",
                message: format!(
                    "`{UNPROVEN}` belongs in {} only",
                    UNPROVEN_ALLOWED.join(", ")
                ),
            });
        }
    }
}

/// Checks that the root of every crate except media forbids unproven code before its first item.
fn check_crate_attribute(source: &Source, findings: &mut Vec<Finding>) {
    let parts: Vec<&str> = source.path.split('/').collect();
    let ["crates", name, "src", "lib.rs"] = parts[..] else {
        return;
    };
    if name == "media" {
        return;
    }
    let mut wanted = vec![
        format!("#![forbid({UNPROVEN}_code)]"),
        format!("#![deny({UNPROVEN}_op_in_{UNPROVEN}_fn)]"),
    ];
    let folder = format!("crates/{name}/");
    if [LENDING, STARTING, BORROWED]
        .iter()
        .any(|path| path.starts_with(&folder))
    {
        wanted.push(format!("#![deny({UNPROVEN}_code)]"));
    }
    let in_head = |line: &&str| {
        let line = line.trim();
        line.is_empty() || line.starts_with("//") || line.starts_with("#![")
    };
    let head = source.text.lines().take_while(in_head);
    if !head
        .into_iter()
        .any(|line| wanted.iter().any(|attribute| line.trim() == attribute))
    {
        findings.push(Finding {
            path: source.path.clone(),
            line: 1,
            rule: "crate attribute",
            message: format!("must begin with `{}`", wanted.join("` or `")),
        });
    }
}

fn numbered(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    source
        .text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
}

/// Whether `word` occurs in `text` and is not a part of a longer identifier.
fn has_word(text: &str, word: &str) -> bool {
    let in_identifier = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        let after = text[start + word.len()..].chars().next();
        let closed = word.ends_with('!') || !after.is_some_and(in_identifier);
        closed && !before.is_some_and(in_identifier)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        check_style(&source)
            .iter()
            .map(|finding| (finding.line, finding.rule))
            .collect()
    }

    #[test]
    fn a_file_has_at_most_800_lines() {
        assert_eq!(rules("crates/model/src/a.rs", &"\n".repeat(800)), []);
        assert_eq!(
            rules("crates/model/src/a.rs", &"\n".repeat(801)),
            [(801, "length")]
        );
    }

    #[test]
    fn a_line_has_at_most_100_columns() {
        let path = "crates/model/src/a.rs";
        let comment = |columns: usize| format!("    // {}", "a".repeat(columns - 7));
        assert_eq!(rules(path, &comment(100)), []);
        assert_eq!(rules(path, &comment(101)), [(1, "width")]);
        assert_eq!(rules(path, &format!("/// | {} |", "a".repeat(100))), []);
        assert_eq!(
            rules(path, &format!("let a = \"{}\";", "a".repeat(100))),
            [(1, "width")]
        );
    }

    #[test]
    fn leftovers_are_found_as_words() {
        for word in LEFTOVER_WORDS {
            let text = format!("fn f() {{}}\n// {word}: later\n");
            assert_eq!(
                rules("crates/media/src/a.rs", &text),
                [(2, "leftover")],
                "{word}"
            );
            let part = format!("let path = \"/tmp/a{word}{word}\"; // {word}S");
            assert_eq!(rules("crates/media/src/a.rs", &part), [], "{word}");
        }
        for name in LEFTOVER_MACROS {
            let text = format!("fn f() {{ {name}(1) }}");
            assert_eq!(rules("tests/a.rs", &text), [(1, "leftover")], "{name}");
            assert_eq!(rules("tests/a.rs", &format!("my_{name}(1)")), [], "{name}");
        }
    }

    #[test]
    fn one_door_to_memory() {
        let text = format!("fn f() {{\n    {UNPROVEN} {{ g() }}\n}}\n");
        assert_eq!(
            rules("crates/engine/src/a.rs", &text),
            [(2, "one door to memory")]
        );
        assert_eq!(
            rules("crates/engine/tests/a.rs", &text),
            [(2, "one door to memory")]
        );
        assert_eq!(rules("examples/a.rs", &text), [(2, "one door to memory")]);
        assert_eq!(rules("crates/media/src/a.rs", &text), []);
        assert_eq!(
            rules("crates/capi/src/files.rs", &text),
            [(2, "one door to memory")]
        );
        assert_eq!(rules(BORROWED, &text), []);
    }

    #[test]
    fn names_in_c_are_exported_at_the_border_to_it() {
        let text = format!("{EXPORTED}\nfn a() {{}}\n");
        assert_eq!(rules("crates/capi/src/files.rs", &text), []);
        assert_eq!(
            rules("crates/engine/src/a.rs", &text),
            [(1, "one door to memory")]
        );
    }

    #[test]
    fn a_crate_root_forbids_unproven_code() {
        let forbid = format!("#![forbid({UNPROVEN}_code)]");
        let deny = format!("#![deny({UNPROVEN}_op_in_{UNPROVEN}_fn)]");
        let root = "crates/model/src/lib.rs";
        assert_eq!(
            rules(root, &format!("//! A model.\n\n{forbid}\nmod a;\n")),
            []
        );
        assert_eq!(rules(root, &format!("{deny}\nmod a;\n")), []);
        assert_eq!(
            rules(root, &format!("mod a;\n{forbid}\n")),
            [(1, "crate attribute")]
        );
        assert_eq!(
            rules(root, &format!("// {forbid}\nmod a;\n")),
            [(1, "crate attribute")]
        );
        assert_eq!(rules("crates/media/src/lib.rs", "mod a;\n"), []);
        assert_eq!(rules("crates/model/src/tree/lib.rs", "mod a;\n"), []);
    }
}
