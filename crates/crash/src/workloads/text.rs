//! Workloads as text. The built-in ones are files of `crates/crash/workloads`; `--workloads FILE`
//! has others.
//!
//! ```text
//! # A comment is a line of its own.
//! let FILE = create f 644 -
//! mapping extent
//!
//! workload join-last
//!   setup FILE | truncate f 20000 | write f 0 3 4096
//!   crash write f 4096 4 4096 | sync
//! ```
//!
//! Steps are separated by ` | `; a line that ends in `|` continues in the next one. A step is what
//! [`Step`] parses. `N*` before a step repeats it N times, with `#` replaced by 1 to N. `let`
//! defines a name in capital letters, which stands for steps from then on.
//!
//! | line | meaning |
//! |---|---|
//! | `workload NAME` | begins a workload, to which the lines below belong |
//! | `setup STEPS` | prepares the pool, which is open and empty at first |
//! | `crash STEPS` | the steps to explore |
//! | `thread STEPS` | instead of `crash`: the steps of one thread, explored with the others |
//! | `cut done SITE: STEP` | ends the setup with a power cut, as explained below |
//! | `mapping NAME`, `namespace NAME` | the pool's mapping, and its namespace |
//! | `medium NAME` | what the pool lies on: `memory`, `logged`, `external`, `split` or `grown` |
//! | `arena small` | the arena is too small for the tree |
//! | `close` | for threads: the pool is closed in the end |
//! | `slots all` | for threads: the pool has exactly one slot for each thread |
//!
//! After a `cut` line, the power fails in its step, behind the step's last fence of that name.
//! Recovery finds the step done, or `undone`.
//!
//! Lines before the first workload hold for the whole file. Names of workloads begin with every
//! mapping, namespace or medium that is not the default.

use std::collections::{BTreeMap, BTreeSet};

use vellum::{MappingKind, NamespaceKind};

use crate::threads::ThreadWorkload;
use crate::workload::{PoolKind, PowerCut, Step, Workload, repeated};

/// The workloads of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadFile {
    /// Sequences of steps.
    pub sequences: Vec<Workload>,
    /// Workloads of concurrent threads.
    pub threads: Vec<ThreadWorkload>,
}

/// Why a file could not be parsed, and in which line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct WorkloadError {
    file: String,
    line: usize,
    what: String,
}

/// The result of a line; an error becomes a [`WorkloadError`] where the file and line are known.
type Result<T> = std::result::Result<T, String>;

/// The properties of a pool.
#[derive(Clone, Default)]
struct Pool {
    mapping: MappingKind,
    namespace: NamespaceKind,
    medium: PoolKind,
    has_small_arena: bool,
}

/// A workload as it is written.
#[derive(Default)]
struct Section {
    line: usize,
    name: String,
    pool: Pool,
    setup: Vec<Step>,
    crash: Vec<Step>,
    threads: Vec<Vec<Step>>,
    cut: Option<PowerCut>,
    closes: bool,
    fills_slots: bool,
}

/// A file that is being parsed.
#[derive(Default)]
struct Reader {
    named: BTreeMap<String, Vec<Step>>,
    /// The properties for every workload.
    pool: Pool,
    sections: Vec<Section>,
}

impl WorkloadFile {
    /// Parses the text of the file called `file`.
    ///
    /// # Errors
    /// A line cannot be parsed, or a workload is incomplete.
    pub fn parse(file: &str, text: &str) -> std::result::Result<Self, WorkloadError> {
        Self::parse_with(file, text, &[])
    }

    /// The same, with these names defined as these steps.
    pub(super) fn parse_with(
        file: &str,
        text: &str,
        named: &[(&str, String)],
    ) -> std::result::Result<Self, WorkloadError> {
        let at = |line| {
            move |what| WorkloadError {
                file: file.to_owned(),
                line,
                what,
            }
        };
        let mut reader = Reader::default();
        for (name, steps) in named {
            reader.name(name, steps).map_err(at(0))?;
        }
        for (number, line) in whole_lines(text) {
            reader.read(number, &line).map_err(at(number))?;
        }
        let (mut parsed, mut names) = (Self::default(), BTreeSet::new());
        for section in reader.sections {
            let line = section.line;
            let name = parsed.add(section).map_err(at(line))?;
            if !names.insert(name.clone()) {
                return Err(at(line)(format!("there is a workload `{name}` above")));
            }
        }
        Ok(parsed)
    }

    /// Adds a workload; returns its name.
    fn add(&mut self, section: Section) -> Result<String> {
        match (section.crash.is_empty(), section.threads.is_empty()) {
            (true, true) => Err("the workload has no `crash`, and no `thread`".to_owned()),
            (false, false) => Err("the workload has both `crash` and `thread`".to_owned()),
            (false, true) if section.closes || section.fills_slots => {
                Err("`close` and `slots` are for workloads that have threads".to_owned())
            }
            (false, true) => {
                let workload = section.sequence();
                let name = fits(&workload.name, workload.pool_kind)?;
                self.sequences.push(workload);
                Ok(name)
            }
            (true, false) if section.cut.is_some() => {
                Err("a workload that has threads has no `cut`".to_owned())
            }
            (true, false) => {
                let workload = section.of_threads();
                let name = fits(&workload.name, workload.pool_kind)?;
                self.threads.push(workload);
                Ok(name)
            }
        }
    }
}

/// The name, if its prefix does not claim another medium than `medium`.
fn fits(name: &str, medium: PoolKind) -> Result<String> {
    match PoolKind::of_workload(name) {
        said if said == medium => Ok(name.to_owned()),
        said => {
            let said = said.name();
            Err(format!(
                "`{name}`: only a line `medium {said}` makes names begin with `{said}-`"
            ))
        }
    }
}

/// The lines without comments and empty lines, with their numbers; continuation lines are joined.
fn whole_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match lines.last_mut() {
            Some((_, before)) if before.ends_with('|') => *before += &format!(" {line}"),
            _ => lines.push((number, line.to_owned())),
        }
    }
    lines
}

impl Reader {
    fn read(&mut self, number: usize, line: &str) -> Result<()> {
        let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
        match key {
            "let" => {
                let parts = rest.split_once(" = ");
                let (name, steps) = parts.ok_or("write `let NAME = STEPS`")?;
                return self.name(name, steps);
            }
            "workload" => {
                self.sections.push(Section {
                    line: number,
                    name: workload_name(rest)?,
                    pool: self.pool.clone(),
                    ..Section::default()
                });
                return Ok(());
            }
            "mapping" | "namespace" | "medium" | "arena" => return self.pool().set(key, rest),
            _ => {}
        }
        let steps = match key {
            "setup" | "crash" | "thread" => self.steps(rest)?,
            _ => Vec::new(),
        };
        let section = self.sections.last_mut();
        let section = section.ok_or_else(|| format!("`{key}` stands before any `workload`"))?;
        match (key, rest) {
            ("setup", _) => section.setup.extend(steps),
            ("crash", _) => section.crash.extend(steps),
            ("thread", _) => section.threads.push(steps),
            ("cut", cut) => section.cut = Some(power_cut(cut)?),
            ("close", "") => section.closes = true,
            ("slots", "all") => section.fills_slots = true,
            _ => return Err(format!("`{line}` is not a line of a workload")),
        }
        Ok(())
    }

    /// The pool that a line describes.
    fn pool(&mut self) -> &mut Pool {
        match self.sections.last_mut() {
            Some(section) => &mut section.pool,
            None => &mut self.pool,
        }
    }

    fn name(&mut self, name: &str, steps: &str) -> Result<()> {
        if !is_name(name) {
            return Err(format!("`{name}`: names of steps are capital letters"));
        }
        let steps = self.steps(steps)?;
        self.named.insert(name.to_owned(), steps);
        Ok(())
    }

    fn steps(&self, text: &str) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        for step in text.split(" | ") {
            if is_name(step) {
                let named = self.named.get(step);
                let named = named.ok_or_else(|| format!("there is no `let {step}` above"))?;
                steps.extend(named.iter().cloned());
            } else {
                steps.extend(repeated(step).map_err(|error| error.to_string())?);
            }
        }
        Ok(steps)
    }
}

impl Pool {
    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "mapping" => self.mapping = one_of(value, key, &MappingKind::ALL, MappingKind::name)?,
            "namespace" => {
                self.namespace = one_of(value, key, &NamespaceKind::ALL, NamespaceKind::name)?;
            }
            "medium" => self.medium = one_of(value, key, &PoolKind::ALL, PoolKind::name)?,
            _ if value == "small" => self.has_small_arena = true,
            _ => {
                return Err(format!(
                    "`{value}`: an arena is `small`; leave the line out for the default"
                ));
            }
        }
        Ok(())
    }
}

impl Section {
    fn sequence(self) -> Workload {
        let mut workload = Workload::of_steps(&self.name, self.setup, self.crash);
        workload.cut = self.cut;
        workload.crowded = self.pool.has_small_arena;
        if self.pool.mapping != MappingKind::default() {
            workload = workload.on(self.pool.mapping);
        }
        if self.pool.namespace != NamespaceKind::default() {
            workload = workload.within(self.pool.namespace);
        }
        match self.pool.medium {
            PoolKind::Memory => workload,
            medium => workload.logged(medium),
        }
    }

    fn of_threads(self) -> ThreadWorkload {
        let mut workload = ThreadWorkload::of_steps(&self.name, self.setup, self.threads);
        workload.closes = self.closes;
        if self.pool.has_small_arena {
            workload = workload.crowded();
        }
        if self.fills_slots {
            workload = workload.in_all_slots();
        }
        if self.pool.mapping != MappingKind::default() {
            workload = workload.on(self.pool.mapping);
        }
        if self.pool.namespace != NamespaceKind::default() {
            workload = workload.within(self.pool.namespace);
        }
        match self.pool.medium {
            PoolKind::Memory => workload,
            medium => workload.logged(medium),
        }
    }
}

/// Whether a word names steps.
fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_uppercase())
        && word.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
}

fn workload_name(word: &str) -> Result<String> {
    let is_of_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-+".contains(&b);
    if word.is_empty() || !word.bytes().all(is_of_name) {
        return Err(format!(
            "`{word}`: names of workloads are lower-case words with hyphens"
        ));
    }
    Ok(word.to_owned())
}

fn power_cut(text: &str) -> Result<PowerCut> {
    let words = text.split_once(": ");
    let words = words.and_then(|(words, step)| Some((words.split_once(' ')?, step)));
    let Some(((how @ ("done" | "undone"), site), step)) = words else {
        return Err("write `cut done SITE: STEP`, or `undone`".to_owned());
    };
    Ok(PowerCut {
        step: step.parse::<Step>().map_err(|error| error.to_string())?,
        after: site.to_owned(),
        done: how == "done",
    })
}

fn one_of<T: Copy>(word: &str, key: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T> {
    let found = all.iter().copied().find(|&one| name(one) == word);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|&one| name(one)).collect();
        format!("`{word}` is not a {key}: {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# Two.\nlet FILE = create f 644 -\nnamespace tree\n";

    #[test]
    fn lines_become_workloads() {
        let text = "\
            workload cut-short\n  mapping radix\n  setup FILE |\n    2* mkdir d# 755\n\
            cut undone write/data-durable: append f 7 9\n crash open-pool\n\
            workload create+rename\n medium logged\n thread FILE\n thread rename f g 0 | sync\n\
            slots all\n close\n";
        let parsed = WorkloadFile::parse("some.txt", &format!("{HEAD}{text}")).unwrap();
        let [cut] = &parsed.sequences[..] else {
            panic!("{parsed:?}");
        };
        let setup = ["create f 644 -", "mkdir d1 755", "mkdir d2 755"];
        let mut expected = Workload::new("cut-short", &setup, &["open-pool"]);
        expected.cut = Some(PowerCut {
            step: Step::parse("append f 7 9"),
            after: "write/data-durable".to_owned(),
            done: false,
        });
        let expected = expected.on(MappingKind::Radix).within(NamespaceKind::Tree);
        assert_eq!(*cut, expected);
        let threads: [&[&str]; 2] = [&["create f 644 -"], &["rename f g 0", "sync"]];
        let mut expected = ThreadWorkload::new("create+rename", &[], &threads).in_all_slots();
        expected.closes = true;
        let expected = expected
            .within(NamespaceKind::Tree)
            .logged(PoolKind::Logged);
        assert_eq!(parsed.threads, [expected]);
    }

    #[test]
    fn errors_name_their_lines() {
        for (text, says) in [
            (
                "crash sync",
                "some.txt:4: `crash` stands before any `workload`",
            ),
            ("workload A", "some.txt:4: `A`: names of workloads are"),
            (
                "namespace direct\nworkload logged-a\n crash sync",
                "some.txt:5: `logged-a`: only a line `medium logged` makes names begin with",
            ),
            (
                "workload a\n\n crash OTHER",
                "some.txt:6: there is no `let OTHER` above",
            ),
            (
                "workload a\n crash rename f",
                "some.txt:5: cannot read a path in",
            ),
            (
                "workload a\n crash evolve much",
                "`much` is not a number of rounds",
            ),
            (
                "workload a\n crash blocks f 1",
                "write `blocks FILE FIRST COUNT`",
            ),
            ("workload a\n setup x* sync", "`x` is not a number of times"),
            (
                "workload a",
                "some.txt:4: the workload has no `crash`, and no `thread`",
            ),
            (
                "workload a\n crash sync\n thread sync",
                "both `crash` and `thread`",
            ),
            (
                "workload a\n crash sync\n close",
                "are for workloads that have threads",
            ),
            (
                "workload a\n cut f\n crash sync",
                "write `cut done SITE: STEP`",
            ),
            ("mapping none", "`none` is not a mapping: hashfs, "),
            ("workload a\n arena large", "an arena is `small`"),
            ("let a = sync", "names of steps are capital letters"),
            ("let A sync", "write `let NAME = STEPS`"),
            (
                "workload a\n what",
                "some.txt:5: `what` is not a line of a workload",
            ),
            (
                "workload a\n crash sync\nworkload a\n crash maintain",
                "some.txt:6: there is a workload `tree-a` above",
            ),
        ] {
            let error = WorkloadFile::parse("some.txt", &format!("{HEAD}{text}\n"));
            let error = error.expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
