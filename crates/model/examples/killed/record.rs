//! A worker's record: a line before each operation, a line after it returned, and a line for each
//! kill.
//!
//! `> STEP` was called; `<` it returned with the model's result; `killed done` or `killed undone`:
//! the mount was killed, every handle was closed, and the operation in flight, if any, turned out
//! to have happened or not.

use crate::kernel::agreement::hardening;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use vellum_model::{Cred, Model, Op, Outcome, Step, apply};

/// Slots of handles that steps may use.
const SLOTS: u8 = 8;

/// The state of a record.
pub(crate) struct Record {
    /// The effect of everything that returned.
    pub(crate) model: Model,
    /// A step that was called and did not return.
    pub(crate) pending: Option<Step>,
    /// How many operations returned.
    pub(crate) returned: u64,
    /// How many operations were in flight at a kill, and how many of these had happened.
    pub(crate) cut: u64,
    pub(crate) happened: u64,
    now: i64,
    file: File,
}

impl Record {
    /// Reads the record of a worker; later lines are appended to it.
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
            // Most slots are not open.
            let _ = apply(&mut self.model, &op, &Cred::superuser(), self.now);
        }
    }

    fn append(&mut self, line: &str) {
        let line = format!("{line}\n");
        let written = self.file.write_all(line.as_bytes());
        written.expect("the record is on a file system that is not killed");
    }

    /// Records that a step is about to be called.
    pub(crate) fn ask(&mut self, step: &Step) {
        self.append(&format!("> {step}"));
        self.pending = Some(step.clone());
    }

    /// The tree after the step in flight.
    pub(crate) fn after(&self) -> Model {
        let mut model = self.model.clone();
        if let Some(step) = &self.pending {
            apply(&mut model, &step.op, &step.cred, self.now + 1);
        }
        model
    }

    /// Does the step in flight in the model, and returns its expected result.
    pub(crate) fn finish(&mut self) -> Option<Outcome> {
        let step = self.pending.take()?;
        Some(self.apply(&step))
    }

    /// Records that the finished step returned.
    pub(crate) fn returned(&mut self) {
        self.append("<");
        self.returned += 1;
    }

    /// Records a kill, and the fate of the step in flight.
    pub(crate) fn killed(&mut self, done: bool) {
        self.append(if done { "killed done" } else { "killed undone" });
        self.resolve(done);
    }
}

/// The directories that exist before the work begins.
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
