//! The places in the engine's source that flush, fence, store past the cache, or rely on an order
//! within a line.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const ENGINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../engine/src");

/// Methods that are steps when they are called on a `pool`.
const STEPS: [&str; 7] = [
    "behind",
    "flush",
    "fence",
    "store_through",
    "write_fresh",
    "write_through",
    "zero_through",
];

/// A file that ships with the engine, without its comments and tests.
pub(super) struct Source {
    path: String,
    pub(super) text: String,
    passed_on: Vec<Function>,
}

/// A function that reports its caller's place as its own (`#[track_caller]`).
struct Function {
    name: String,
    /// Its lines, counted from 1.
    lines: std::ops::RangeInclusive<usize>,
}

/// A name followed by arguments.
struct Call<'a> {
    name: &'a str,
    line: usize,
    /// Whether it is called on something named `pool`.
    of_pool: bool,
}

/// The shipped sources of the engine.
pub(super) fn sources() -> Vec<Source> {
    let mut files = Vec::new();
    list(Path::new(ENGINE), &mut files);
    files.iter().filter_map(|file| read(file)).collect()
}

/// The places as mutants name them: lines that take steps, or that call functions which take steps
/// in their name.
pub(super) fn in_source() -> BTreeSet<String> {
    let sources = sources();
    let mut takers = BTreeSet::new();
    let is_step = |call: &Call<'_>, takers: &BTreeSet<&str>| {
        takers.contains(call.name) || call.of_pool && STEPS.contains(&call.name)
    };
    loop {
        let found: Vec<&str> = sources
            .iter()
            .flat_map(|source| {
                let steps = calls(&source.text).filter(|call| is_step(call, &takers));
                steps.filter_map(|call| source.taker_at(call.line))
            })
            .collect();
        let known = takers.len();
        takers.extend(found);
        if takers.len() == known {
            break;
        }
    }
    let places = sources.iter().flat_map(|source| {
        let own = |call: &Call<'_>| source.taker_at(call.line).is_none();
        let steps = calls(&source.text).filter(|call| is_step(call, &takers));
        let places = steps.filter(own);
        places.map(|call| format!("{}:{}", source.path, call.line))
    });
    places.collect()
}

impl Source {
    /// The function around a line that reports its caller's place.
    fn taker_at(&self, line: usize) -> Option<&str> {
        let mut around = self.passed_on.iter();
        let function = around.find(|function| function.lines.contains(&line))?;
        Some(&function.name)
    }
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => list(&path, files),
            false => files.push(path),
        }
    }
}

fn read(file: &Path) -> Option<Source> {
    let path = file.strip_prefix(ENGINE).unwrap().to_str().unwrap();
    let is_test = path.starts_with("checking/") || path.ends_with("tests.rs");
    // Steps of commits, of sessions, of metadata replicas, and of tables of datasets have mutants
    // of their own, next to the code that needs them.
    let own = ["logs/undo.rs", "devices/session.rs", "pool/datasets.rs"];
    let has_own = own.contains(&path) || path.starts_with("devices/replica/");
    let is_list = path == "sites.rs" || path == "fs/file/crash.rs";
    if is_test || path.contains("/tests/") || has_own || is_list {
        return None;
    }
    let text = std::fs::read_to_string(file).unwrap();
    let shipped = text.split("#[cfg(test)]\nmod tests {").next()?;
    let without_comment = |line: &str| line.split("//").next().unwrap_or("").to_owned();
    let lines: Vec<String> = shipped.lines().map(without_comment).collect();
    Some(Source {
        path: path.to_owned(),
        passed_on: passed_on(&lines),
        text: lines.join("\n"),
    })
}

/// The functions that report their callers' places, in code formatted by rustfmt.
fn passed_on(lines: &[String]) -> Vec<Function> {
    let marked = lines.iter().zip(1..);
    let marked = marked.filter(|(line, _)| line.trim() == "#[track_caller]");
    let function = |(_, mark): (&String, usize)| {
        let head = (mark..lines.len()).find(|&at| lines[at].contains("fn "))?;
        let (before, name) = lines[head].split_once("fn ")?;
        let indent = before.len() - before.trim_start().len();
        let end = format!("{}}}", &before[..indent]);
        let last = (head..lines.len()).find(|&at| lines[at].trim_end() == end)?;
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let name = name.split(|c| !is_name(c)).next()?.to_owned();
        let lines = head + 1..=last + 1;
        Some(Function { name, lines })
    };
    marked.filter_map(function).collect()
}

/// The text before a call's parenthesis, without type arguments (`::<S>`).
fn without_types(text: &str) -> &str {
    let types = text
        .strip_suffix('>')
        .and_then(|in_front| in_front.rsplit_once("::<"));
    let is_list = |types: &str| !types.contains(['\n', '(', ';', '{']);
    types.map_or(
        text,
        |(called, types)| if is_list(types) { called } else { text },
    )
}

fn calls(text: &str) -> impl Iterator<Item = Call<'_>> {
    text.match_indices('(').filter_map(|(at, _)| {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let called = without_types(&text[..at]);
        let before = called.trim_end_matches(is_name);
        let name = &called[before.len()..];
        let receiver = before.strip_suffix('.').map(str::trim_end);
        let of_pool = receiver.is_some_and(|receiver| receiver.ends_with("pool"));
        let line = before.matches('\n').count() + 1;
        let call = Call {
            name,
            line,
            of_pool,
        };
        (!name.is_empty() && !before.ends_with("fn ")).then_some(call)
    })
}

#[test]
fn a_call_that_is_passed_on_is_its_callers() {
    let text = "    #[track_caller]\n    fn a(&self) \
         {\n        self.pool\n            .flush(x);\n    }\n    fn b() \
         { self.a(); other.flush(1); self.a::<S>(x) }";
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let source = Source {
        path: String::new(),
        passed_on: passed_on(&lines),
        text: text.to_owned(),
    };
    let found: Vec<_> = calls(text)
        .map(|call| (call.name, call.line, call.of_pool))
        .collect();
    assert_eq!(
        found,
        [
            ("flush", 4, true),
            ("a", 6, false),
            ("flush", 6, false),
            ("a", 6, false)
        ]
    );
    assert_eq!(source.taker_at(4), Some("a"));
    assert_eq!(source.taker_at(6), None);
}
