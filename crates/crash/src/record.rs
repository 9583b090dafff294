//! Running a workload once, with everything written down.

use vellum_media::{Event, Op};
use vellum_model::{Cred, Errno, Model, Outcome, Snapshot, apply};

use crate::memories::{Explored, Shared};
use crate::session::{CLOCK_START, Session, USER, blank_image, mount};
use crate::tree::{Tree, read_tree};
use crate::workload::{Step, Workload};

/// What a workload did.
pub struct Recorded {
    /// The workload.
    pub workload: Workload,
    /// The pool before the first event.
    pub(crate) base: Vec<u8>,
    /// Everything that happened to the pool from formatting on. A marker follows each explored
    /// step; marker 0 follows each step of the setup, and stands before the first explored one.
    pub(crate) log: Vec<Event>,
    /// Events before the first explored step.
    pub(crate) begin: usize,
    /// Whether each explored step fenced.
    pub(crate) fences: Vec<bool>,
    /// The model's trees before the first explored step and after each.
    pub(crate) stages: Vec<Snapshot>,
    /// The setup's last steps, from the last that fenced on.
    pub(crate) unsettled: Vec<Step>,
    /// For each explored step of two parts, the model's tree between them.
    pub(crate) between: Vec<Option<Snapshot>>,
    /// The engine's trees at the same times, for the times in them.
    pub(crate) trees: Vec<Tree>,
    /// Names and files that the arena can hold.
    pub(crate) cache_entries: u64,
}

/// Why a workload could not be recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A step had another outcome than in the model.
    #[error("{workload}: step {step:?}: {what}")]
    Outcome {
        /// The workload.
        workload: String,
        /// The step.
        step: String,
        /// What was different.
        what: String,
    },
}

/// Runs `workload` and records it.
///
/// # Errors
/// The engine disagrees with the model even without a crash.
pub fn record(workload: &Workload) -> Result<Recorded, RecordError> {
    let steps = workload.setup.len() + workload.explored.len();
    let recorder = Recorder {
        workload,
        cache_entries: if steps > 400 { 4096 } else { 256 },
        blank: blank_image(2),
    };
    let (mut log, begin) = recorder.run()?;
    log.truncate(recorder.end_of(&log));
    let mut model = Model::new(CLOCK_START);
    workload.setup.iter().for_each(|step| {
        model_step(&mut model, step);
    });
    let mut stages = vec![model.snapshot(false)];
    for step in &workload.explored {
        model_step(&mut model, step);
        stages.push(model.snapshot(false));
    }
    let between = |(step, trees): (&Step, &[Snapshot])| {
        step.drops_set_ids()
            .then(|| without_set_ids(&trees[0], &trees[1]))
    };
    let between = workload.explored.iter().zip(stages.windows(2)).map(between);
    let between = between.collect();
    let trees = (0..stages.len()).map(|done| recorder.tree_after(done));
    let trees: Vec<Tree> = trees.collect::<Result<_, _>>()?;
    for (done, (tree, stage)) in trees.iter().zip(&stages).enumerate() {
        let differences = vellum_model::diff(stage, &tree.nodes);
        if !differences.is_empty() {
            let step = format!("the tree after {done} explored steps");
            return Err(recorder.error(&step, differences.join("; ")));
        }
    }
    let steps = log.split(|event| matches!(event.op, Op::Marker(_)));
    let mut fences: Vec<_> = steps
        .map(|events| events.iter().any(|event| event.op == Op::Fence))
        .collect();
    let setup = fences.drain(..=workload.setup.len());
    let settled = setup.take(workload.setup.len()).collect::<Vec<_>>();
    let settled = settled.iter().rposition(|&fences| fences).unwrap_or(0);
    let unsettled = workload.setup[settled..].to_vec();
    Ok(Recorded {
        workload: workload.clone(),
        base: recorder.blank,
        fences,
        unsettled,
        between,
        log,
        begin,
        stages,
        trees,
        cache_entries: recorder.cache_entries,
    })
}

struct Recorder<'a> {
    workload: &'a Workload,
    cache_entries: u64,
    blank: Vec<u8>,
}

impl Recorder<'_> {
    fn error(&self, step: &str, what: String) -> RecordError {
        let workload = self.workload.name.clone();
        let step = step.to_owned();
        RecordError::Outcome {
            workload,
            step,
            what,
        }
    }

    fn open(&self, pool: &Shared) -> Result<Session, RecordError> {
        let mut session = Session::new(pool.clone(), self.cache_entries);
        let opened = session.step(&Step::Open);
        opened.map_err(|error| self.error("opening", error.to_string()))?;
        Ok(session)
    }

    fn run(&self) -> Result<(Vec<Event>, usize), RecordError> {
        let pool = Shared::of(self.blank.clone());
        pool.0.start_recording();
        let mut session = self.open(&pool)?;
        let mut model = Model::new(CLOCK_START);
        for step in &self.workload.setup {
            self.both(&mut session, &mut model, step)?;
            pool.0.marker(0);
        }
        pool.0.marker(0);
        for (step, done) in self.workload.explored.iter().zip(1..) {
            self.both(&mut session, &mut model, step)?;
            pool.0.marker(done);
        }
        let log = pool.0.take_log();
        let first = log.iter().rposition(|event| event.op == Op::Marker(0));
        Ok((log, first.unwrap_or(0)))
    }

    fn end_of(&self, log: &[Event]) -> usize {
        let last = Op::Marker(self.workload.explored.len() as u64);
        let end = log.iter().position(|event| event.op == last);
        end.map_or(log.len(), |end| end + 1)
    }

    /// Does a step on both sides and compares how it ended.
    fn both(
        &self,
        session: &mut Session,
        model: &mut Model,
        step: &Step,
    ) -> Result<(), RecordError> {
        let done = session.step(step).map_err(|error| error.errno());
        let expected = match model_step(model, step) {
            Outcome::Ok(_) => Ok(()),
            Outcome::Err(errno) => Err(errno.0),
        };
        if done == expected {
            return Ok(());
        }
        let what = format!("errno {done:?}, expected {expected:?}");
        Err(self.error(&format!("{step:?}"), what))
    }

    /// The engine's tree after the setup and `done` explored steps, in a run of its own, because
    /// looking leaves traces in the pool.
    fn tree_after(&self, done: usize) -> Result<Tree, RecordError> {
        let pool = Shared::of(self.blank.clone());
        let mut session = self.open(&pool)?;
        for step in self
            .workload
            .setup
            .iter()
            .chain(&self.workload.explored[..done])
        {
            // Failures that the model shares are part of the workload.
            let _ = session.step(step);
        }
        let failed = |error: vellum::Error| self.error("reading the tree", error.to_string());
        match session.fs() {
            Some(fs) => read_tree(fs).map_err(failed),
            None => {
                let fs =
                    mount::<Explored>(&pool, self.cache_entries, CLOCK_START).map_err(failed)?;
                read_tree(&fs).map_err(failed)
            }
        }
    }
}

/// `before`, with the permission bits of `after`.
fn without_set_ids(before: &Snapshot, after: &Snapshot) -> Snapshot {
    let mut between = before.clone();
    for (path, node) in &mut between {
        if let Some(after) = after.get(path) {
            node.mode = after.mode;
        }
    }
    between
}

/// What the model says to a step.
pub(crate) fn model_step(model: &mut Model, step: &Step) -> Outcome {
    match step {
        Step::Op(op) => apply(model, op, &Cred::superuser(), CLOCK_START),
        Step::User(op) => apply(model, op, &Cred::user(USER, USER, &[]), CLOCK_START),
        Step::Full(_) => Outcome::Err(Errno::ENOSPC),
        Step::Close | Step::Recover => {
            model.close_all();
            Outcome::Ok(vellum_model::Payload::Done)
        }
        Step::Maintain | Step::Open => Outcome::Ok(vellum_model::Payload::Done),
    }
}
