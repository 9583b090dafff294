//! A worker's record: a line before each operation, a line after it returned, a line for each kill.
//!
//! `> STEP` was asked for; `<` it returned, as the model says; `killed done` or `killed undone`:
//! the mount was killed, every handle closed, and the operation under way, if any, turned out to
//! have happened or not.

use crate::kernel::agreement::hardening;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use vellum_model::{Cred, Model, Op, Outcome, Step, apply};

/// Slots of handles that steps may use.
const SLOTS: u8 = 8;

/// What a record comes to.
pub(crate) struct Record {
    /// Everything that returned.
    pub(crate) model: Model,
    /// Asked for, and not returned.
    pub(crate) pending: Option<Step>,
    /// How many operations returned.
    pub(crate) returned: u64,
    /// How many were under way at a kill, and how many of these had happened.
    pub(crate) cut: u64,
    pub(crate) happened: u64,
    now: i64,
    file: File,
}

impl Record {
    /// Reads the record of a worker; what comes next is appended to it.
    pub(crate) fn open(path: &Path, worker: usize) -> Result<Record, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
        let file = File::options().append(true).open(path);
        let mut record = Record {
            model: first_tree(worker),
            pending: None,
            returned: 0,
            cut: 0,
            happened: 0,
            now: 1,
            file: file.map_err(|error| failed(&error))?,
        };
        for line in text.lines() {
            record.replay(line).map_err(|error| failed(&error))?;
        }
        Ok(record)
    }

    fn replay(&mut self, line: &str) -> Result<(), String> {
        if let Some(step) = line.strip_prefix("> ") {
            self.pending = Some(step.parse().map_err(|error| format!("{error}"))?);
            return Ok(());
        }
        match line {
            "<" => {
                let step = self.pending.take().ok_or("a return without a call")?;
                self.apply(&step);
                self.returned += 1;
            }
            "killed done" | "killed undone" => self.resolve(line == "killed done"),
            _ => return Err(format!("cannot read `{line}`")),
        }
        Ok(())
    }

    /// Applies a step to the model.
    fn apply(&mut self, step: &Step) -> Outcome {
        self.now += 1;
        apply(&mut self.model, &step.op, &step.cred, self.now)
    }

    fn resolve(&mut self, done: bool) {
        self.cut += 1;
        self.happened += u64::from(done);
        if let Some(step) = self.pending.take().filter(|_| done) {
            self.apply(&step);
        }
        for slot in 0..SLOTS {
            let op = Op::CloseSlot { slot };
            // Most are not open.
            let _ = apply(&mut self.model, &op, &Cred::superuser(), self.now);
        }
    }

    fn append(&mut self, line: &str) {
        let line = format!("{line}\n");
        let written = self.file.write_all(line.as_bytes());
        written.expect("the record is on a file system that is not killed");
    }

    /// Notes that a step is going to be asked for.
    pub(crate) fn ask(&mut self, step: &Step) {
        self.append(&format!("> {step}"));
        self.pending = Some(step.clone());
    }

    /// The tree as it is once the step under way is done.
    pub(crate) fn after(&self) -> Model {
        let mut model = self.model.clone();
        if let Some(step) = &self.pending {
            apply(&mut model, &step.op, &step.cred, self.now + 1);
        }
        model
    }

    /// Does the step under way in the model, and gives what it must answer.
    pub(crate) fn finish(&mut self) -> Option<Outcome> {
        let step = self.pending.take()?;
        Some(self.apply(&step))
    }

    /// Notes that the step that was finished returned.
    pub(crate) fn returned(&mut self) {
        self.append("<");
        self.returned += 1;
    }

    /// Notes a kill, and what became of the step under way.
    pub(crate) fn killed(&mut self, done: bool) {
        self.append(if done { "killed done" } else { "killed undone" });
        self.resolve(done);
    }
}

/// The directories that are there before the work begins.
fn first_tree(worker: usize) -> Model {
    let mut model = Model::new(1);
    model.hardening = hardening();
    for path in [format!("/w{worker}"), "/shared".to_owned()] {
        let op = Op::Mkdir {
            path: path.into_bytes(),
            mode: 0o755,
        };
        let made = apply(&mut model, &op, &Cred::superuser(), 1);
        assert!(matches!(made, Outcome::Ok(_)), "an empty tree takes names");
    }
    model
}
