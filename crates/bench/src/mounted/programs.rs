//! Programs in mounted pools and in directories of peers.

use std::path::Path;

use super::laps::Laps;
use super::material::{self, command};
use super::report::Report;
use super::subjects::Subject;
use super::{PROGRAMS, Setting};
use crate::error::doing;
use crate::tree::Tree;
use crate::{Result, tool};

/// Stands for the directory of the material in a command line.
const MATERIAL: &str = "{}";
/// How many copies of the source tree a file system must hold.
const COPIES: u64 = 4;
/// Space for the metadata of a name.
const NAME_BYTES: u64 = 4096;

/// Programs that work on each other's results.
struct Group {
    /// Commands that do nothing, and fail where the programs cannot run.
    needs: &'static [&'static str],
    /// Makes the material, by the number of files.
    make: fn(&Path, usize) -> Result<()>,
    /// Space for what does not depend on the source tree.
    bytes: u64,
    steps: &'static [Step],
}

struct Step {
    /// The name of the row. `None`: it only prepares.
    name: Option<&'static str>,
    line: &'static str,
}

const fn timed(name: &'static str, line: &'static str) -> Step {
    let name = Some(name);
    Step { name, line }
}

const fn untimed(line: &'static str) -> Step {
    Step { name: None, line }
}

const GROUPS: [Group; 5] = [
    Group {
        needs: &["tar --version", "find --version"],
        make: material::archive,
        bytes: 64 << 20,
        steps: &[
            timed("tar", "tar xf {}/tree.tar"),
            timed("find", "find tree -size +8k"),
            timed("cp", "cp -a tree copy"),
            timed("rm", "rm -rf copy"),
        ],
    },
    Group {
        needs: &["git --version"],
        make: material::repository,
        bytes: 64 << 20,
        steps: &[
            timed("clone", "git clone --quiet --no-hardlinks {}/repository ."),
            timed("checkout", "git checkout --quiet second"),
            timed("status", "git status --porcelain"),
        ],
    },
    Group {
        needs: &["cargo --version"],
        make: material::workspace,
        bytes: 512 << 20,
        steps: &[
            untimed("cp -a {}/workspace/. ."),
            timed("cargo", "cargo build --quiet --offline"),
        ],
    },
    Group {
        needs: &["npm --version"],
        make: material::packages,
        bytes: 128 << 20,
        steps: &[
            untimed("cp -a {}/application/. ."),
            timed(
                "npm",
                "npm install --offline --install-links --no-audit --no-fund --loglevel=error",
            ),
        ],
    },
    Group {
        needs: &["python3 -m venv --help", "python3 -m ensurepip --version"],
        make: material::wheel,
        bytes: 256 << 20,
        steps: &[
            timed("venv", "python3 -m venv ."),
            timed(
                "pip",
                "bin/python -m pip install --quiet --no-index {}/bench-1.0-py3-none-any.whl",
            ),
        ],
    },
];

/// The names of rows.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(Group::names)
}

/// Measures the wanted programs.
pub(super) fn measure(setting: &Setting<'_>, report: &mut Report) -> Result<()> {
    let wants = |name| setting.options.wants(PROGRAMS, name);
    let groups = GROUPS.iter().filter(|group| group.names().any(wants));
    let mut groups: Vec<_> = groups.collect();
    groups.retain(|group| {
        let missing = group.needs.iter().find_map(|line| tool::missing(line));
        let names: Vec<_> = group.names().collect();
        let note = |why| format!("No rows of {}: {why}.", names.join(", "));
        report.notes.extend(missing.as_ref().map(note));
        missing.is_none()
    });
    let Some(spare) = groups.iter().map(|group| group.bytes).max() else {
        return Ok(());
    };
    let tree = Tree::drawn(setting.options.files);
    let metadata = 2 * tree.names() as u64 * NAME_BYTES;
    let subjects = setting.subjects(COPIES * tree.bytes() + metadata + spare)?;
    setting.add_steps(groups.len() * subjects.len());
    for group in groups {
        for laps in group.measure(setting, &subjects)? {
            if wants(laps.name()) {
                report.programs.extend(laps.rows(&subjects));
            }
        }
    }
    report.notes.push(
        "Programs: caches are warm. What a program reads was written just before, and what it is \
         given is in the kernel's cache."
            .into(),
    );
    Ok(())
}

impl Group {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.steps.iter().filter_map(|step| step.name)
    }

    fn measure(&self, setting: &Setting<'_>, subjects: &[Subject]) -> Result<Vec<Laps>> {
        let material = setting.make_dir()?;
        (self.make)(material.path(), setting.options.files)?;
        let steps = self.steps.iter();
        let named = steps.filter_map(|step| Some((step.name?, step.line)));
        let mut all: Vec<Laps> = named
            .map(|(name, line)| Laps::new(name, line.replace(MATERIAL, "MATERIAL"), subjects))
            .collect();
        for round in 0..=setting.options.rounds {
            for (number, subject) in subjects.iter().enumerate() {
                setting.interrupt.check()?;
                let work = subject.dir().join("work");
                std::fs::create_dir(&work).map_err(doing("make a directory"))?;
                setting
                    .progress
                    .set_message(self.names().next().unwrap_or_default());
                let mut laps = all.iter_mut();
                for step in self.steps {
                    let run = || step.run(material.path(), &work);
                    let lap = subject.lap(|| setting.unless_interrupted(run()));
                    match step.name.and_then(|_| laps.next()) {
                        Some(laps) => laps.add(round, number, lap?),
                        None => drop(lap?),
                    }
                }
                std::fs::remove_dir_all(&work).map_err(doing("remove what programs made"))?;
                setting.progress.inc(1);
            }
        }
        Ok(all)
    }
}

impl Step {
    /// Runs the command in `work`.
    fn run(&self, material: &Path, work: &Path) -> Result<()> {
        let mut words = self.line.split_whitespace();
        let program = words.next().unwrap_or_default();
        let material_text = material.display().to_string();
        let mut command = command(program, material);
        command
            .args(words.map(|word| word.replace(MATERIAL, &material_text)))
            .current_dir(work);
        tool::run(&mut command).map(drop)
    }
}
