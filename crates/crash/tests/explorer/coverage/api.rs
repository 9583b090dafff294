//! The functions of the engine that users can call, read from its source as formatted by rustfmt.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Traits that Rust implements by looking only at the value itself.
const PLAIN_TRAITS: [&str; 6] = ["Clone", "Copy", "Debug", "Default", "Deref", "From"];

/// A function of the engine.
struct Function {
    /// `Volume::read`, `File as Write::write`, `attach`.
    name: String,
    /// Whether users, or Rust itself, can call it.
    is_public: bool,
    body: String,
}

/// The engine's source.
pub(super) struct Engine {
    functions: Vec<Function>,
    /// The names that `lib.rs` exports, and those of its public modules.
    pub(super) exported: BTreeSet<String>,
}

impl Engine {
    pub(super) fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/src");
        let texts: Vec<(PathBuf, String)> = sources_in(&root)
            .into_iter()
            .map(|path| (path.clone(), fs::read_to_string(&path).expect("a source")))
            .collect();
        let text_of = |name: &str| {
            let mut all = texts.iter();
            all.find(|(path, _)| path.ends_with(name))
                .map_or("", |(_, text)| text)
        };
        let mut exported = BTreeSet::new();
        for file in ["lib.rs", "internals.rs", "experiments.rs", "reading/mod.rs"] {
            exported.extend(let_out(text_of(&format!("src/{file}"))));
        }
        let functions = texts.iter().flat_map(|(_, text)| functions(text));
        Self {
            functions: functions.collect(),
            exported,
        }
    }

    /// The names of functions of exported types, and of exported free functions.
    pub(super) fn public(&self) -> BTreeSet<String> {
        let is_known = |function: &&Function| {
            let owner = function.name.split([' ', ':']).next().unwrap_or_default();
            function.is_public && self.exported.contains(owner)
        };
        let known = self.functions.iter().filter(is_known);
        known.map(|function| function.name.clone()).collect()
    }

    /// For each function in some files, which may call each other: the methods of `Fs` and
    /// `Handle`, and the free functions, that it calls in the end.
    ///
    /// # Panics
    /// If one of these is not public, so that users could not call it themselves.
    pub(super) fn ways(&self, paths: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/src");
        let own: Vec<Function> = paths
            .iter()
            .flat_map(|path| {
                let text = fs::read_to_string(root.join(path)).expect(path);
                assert!(
                    !text.contains(".core"),
                    "{path} goes behind the file system"
                );
                functions(&text)
            })
            .collect();
        let mut ways: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut left: Vec<(&Function, &Function)> =
            own.iter().map(|function| (function, function)).collect();
        let mut seen = BTreeSet::new();
        while let Some((of, at)) = left.pop() {
            let found = ways.entry(of.name.clone()).or_default();
            for call in calls(&at.body) {
                found.extend(self.way(&call));
                let inner = own.iter().filter(|inner| call.is_of(&at.name, &inner.name));
                let inner = inner.filter(|inner| seen.insert((&of.name, &inner.name)));
                left.extend(inner.map(|inner| (of, inner)));
            }
        }
        ways
    }

    /// The function of the file system that a call is for, if it is for one.
    fn way(&self, call: &Call) -> Option<String> {
        let called = |name: &str| self.functions.iter().find(|function| function.name == name);
        let found = match call.receiver.as_str() {
            "fs" => called(&format!("Fs::{}", call.name)),
            "handle" => called(&format!("Handle::{}", call.name)),
            "" if self.exported.contains(&call.name) => called(&call.name),
            _ => None,
        }?;
        assert!(
            found.is_public,
            "{} is called, which users cannot",
            found.name
        );
        Some(found.name.clone())
    }
}

/// A name followed by arguments.
struct Call {
    /// The word before the dot, the type before `::`, or empty.
    receiver: String,
    name: String,
}

impl Call {
    /// Whether this call, in the function `caller`, may be for `function`.
    fn is_of(&self, caller: &str, function: &str) -> bool {
        let owner_of = |name: &str| name.split([' ', ':']).next().unwrap_or_default().to_owned();
        let owner = match self.receiver.as_str() {
            "self" | "Self" => owner_of(caller),
            "file" | "source" | "target" => "File".to_owned(),
            "remove" | "canonical" => return function == self.name,
            "" => return function == self.name,
            other => other.to_owned(),
        };
        let (_, name) = function.rsplit_once(':').unwrap_or_default();
        owner_of(function) == owner && name == self.name
    }
}

fn calls(text: &str) -> Vec<Call> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let last = |text: &str| {
        let before = text.trim_end_matches(is_name);
        (before.len(), text[before.len()..].to_owned())
    };
    let found = text.match_indices('(').map(|(at, _)| {
        // `attach::<Real>(`
        let before = &text[..at];
        let before = match before.strip_suffix('>') {
            Some(generic) => generic.rsplit_once("::<").map_or(before, |(name, _)| name),
            None => before,
        };
        let (start, name) = last(before);
        let before = &text[..start];
        let receiver = match before.strip_suffix('.').or(before.strip_suffix("::")) {
            Some(receiver) => last(receiver.trim_end().trim_end_matches("()")).1,
            None => String::new(),
        };
        Call { receiver, name }
    });
    found.filter(|call| !call.name.is_empty()).collect()
}

/// The sources in a directory and all directories below it.
fn sources_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let sources = paths.flat_map(|path| match path.is_dir() {
        true => sources_in(&path),
        false => vec![path],
    });
    sources
        .filter(|path| path.extension() == Some("rs".as_ref()))
        .collect()
}

/// The names that a module exports: its own public ones, and those that it re-exports.
fn let_out(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let items = text.split("\npub ").skip(1);
    let names = items.flat_map(|item| {
        let (kind, rest) = item.split_once(' ').unwrap_or_default();
        let names = match kind {
            // `a::{B, C as D};`
            "use" => rest.split(';').next().unwrap_or_default(),
            "mod" => "",
            _ => rest.split(|c| !is_name(c)).next().unwrap_or_default(),
        };
        let names = names.rsplit("::").next().unwrap_or_default();
        let names = names.trim_matches(['{', '}']).split(',');
        let names = names.filter_map(|name| name.split_whitespace().last());
        // The module behind a `*` is read by itself.
        names.filter(|&name| name != "*")
    });
    names.map(str::to_owned).collect()
}

/// The functions of a source without its tests.
fn functions(text: &str) -> Vec<Function> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut around: Option<Block> = None;
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        if code.starts_with("impl") {
            around = block(code, indent);
        }
        if around
            .as_ref()
            .is_some_and(|block| indent == block.indent && code == "}")
        {
            around = None;
        }
        let code_of = code.strip_prefix("pub ").unwrap_or(code);
        let code_of = code_of.strip_prefix("pub(crate) ").unwrap_or(code_of);
        let code_of = code_of.strip_prefix("pub(super) ").unwrap_or(code_of);
        let Some(head) = code_of.strip_prefix("fn ") else {
            continue;
        };
        let of = around
            .as_ref()
            .map(|block| (block.name.as_str(), block.is_trait));
        let end = head.find(['(', '<']).expect("a function has arguments");
        let (owner, is_trait) = of.unwrap_or_default();
        let closing = format!("{}}}", " ".repeat(indent));
        let body = lines[at..].iter().take_while(|line| **line != closing);
        found.push(Function {
            name: format!("{owner}{}", &head[..end]),
            is_public: is_trait || code.starts_with("pub "),
            body: body.skip(1).copied().collect::<Vec<_>>().join("\n"),
        });
    }
    found
}

/// Functions of one type.
struct Block {
    /// `Volume::`, `File as Write::`.
    name: String,
    is_trait: bool,
    indent: usize,
}

/// The block of functions that begins with this line; `None` for traits that concern only the value
/// itself.
fn block(line: &str, indent: usize) -> Option<Block> {
    let mut rest = line.strip_prefix("impl")?;
    if rest.starts_with('<') {
        let mut depth = 0;
        let end = rest.find(|c| {
            depth += i32::from(c == '<') - i32::from(c == '>');
            depth == 0
        });
        rest = &rest[end? + 1..];
    }
    let word = |text: &str| -> String {
        // Inside the macro for the traits of files.
        let text = text.trim().trim_start_matches('&').replace("$file", "File");
        let text = text.rsplit("::").next().unwrap_or_default();
        let end = text.find(|c: char| !c.is_alphanumeric());
        text[..end.unwrap_or(text.len())].to_owned()
    };
    let before_generics = |text: &str| text.split('<').next().unwrap_or_default().to_owned();
    match rest.split_once(" for ") {
        Some((of, owner)) => {
            let of = word(&before_generics(of));
            let name = format!("{} as {of}::", word(&before_generics(owner)));
            let is_plain = PLAIN_TRAITS.contains(&of.as_str());
            (!is_plain).then_some(Block {
                name,
                is_trait: true,
                indent,
            })
        }
        None => Some(Block {
            name: format!("{}::", word(&before_generics(rest))),
            is_trait: false,
            indent,
        }),
    }
}
