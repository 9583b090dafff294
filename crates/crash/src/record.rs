//! Runs a workload once and records everything.

use std::collections::BTreeMap;

use vellum::{prefer_thread_slot, sites};
use vellum_layout::{BLOCK_BYTES, PoolState, Superblock};
use vellum_media::{Event, Op};
use vellum_model::{
    BLOCK_SIZE, Cred, Errno, Model, Op as ModelOp, Outcome, Snapshot, SnapshotBody, apply,
};

use crate::compare::Expected;
use crate::memories::{Explored, Shared, image_after};
use crate::session::{CLOCK_START, Session, USER, image_of, mount};
use crate::tree::{Tree, read_tree};
use crate::workload::{BlocksAlone, PowerCut, Step, Workload};

/// The recording of a workload.
pub struct Recorded {
    /// The workload.
    pub workload: Workload,
    /// The pool before the first event.
    pub(crate) base: Vec<u8>,
    /// All events of the pool since it was formatted. A marker follows each explored step. Marker 0
    /// follows each step of the setup, and precedes the first explored one.
    pub(crate) log: Vec<Event>,
    /// The number of events before the first explored step.
    pub(crate) begin: usize,
    /// What its crashes may show.
    pub(crate) expected: Expected,
    /// The number of names and files that the arena can hold.
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
        /// The difference.
        what: String,
    },
}

/// Runs `workload` and records it.
///
/// # Errors
/// The engine disagrees with the model even without a crash.
pub fn record(workload: &Workload) -> Result<Recorded, RecordError> {
    let steps = workload.setup.len() + workload.explored.len();
    let mut recorder = Recorder {
        workload,
        cache_entries: match workload.crowded {
            true => 64,
            false if steps > 400 => 4096,
            false => 256,
        },
        base: image_of(workload),
    };
    if let Some(cut) = &workload.cut {
        recorder.base = recorder.image_after(cut)?;
    }
    let (mut log, begin) = recorder.run()?;
    log.truncate(recorder.end_of(&log));
    let mut model = recorder.model();
    let mut stages = vec![model.snapshot(false)];
    let mut attempted = Vec::new();
    for step in &workload.explored {
        attempted.push(attempt(&model, step));
        model_step(&mut model, step);
        stages.push(model.snapshot(false));
    }
    let between = |(step, trees): (&Step, &[Snapshot])| {
        let without = || without_privileges(&trees[0], &trees[1]);
        let between = step.drops_privileges().then(without);
        between.filter(|between| *between != trees[0])
    };
    let between = workload.explored.iter().zip(stages.windows(2)).map(between);
    let between = between.collect();
    let trees = (0..stages.len()).map(|done| recorder.tree_after(&workload.explored[..done]));
    let trees: Vec<Tree> = trees.collect::<Result<_, _>>()?;
    for (done, (tree, stage)) in trees.iter().zip(&stages).enumerate() {
        let differences = vellum_model::diff(stage, &tree.nodes);
        if !differences.is_empty() {
            let step = format!("the tree after {done} explored steps");
            return Err(recorder.error(&step, differences.join("; ")));
        }
    }
    let steps = log.split(|event| matches!(event.op, Op::Marker(_)));
    // The thread that executes the operations: its flushes wait for no other thread's.
    let thread = log.last().map(|marker| marker.thread);
    let is_fence = |event: &Event| event.op == Op::Fence && Some(event.thread) == thread;
    let mut fences: Vec<_> = steps.map(|events| events.iter().any(is_fence)).collect();
    // A power cut has settled everything, one way or the other.
    let setup = workload.setup.iter().filter(|_| workload.cut.is_none());
    let setup: Vec<Step> = setup.cloned().collect();
    let settled = fences.drain(..=setup.len()).take(setup.len());
    let settled = settled.collect::<Vec<_>>();
    let settled = settled.iter().rposition(|&fences| fences).unwrap_or(0);
    let unsettled = setup[settled..].to_vec();
    let mut expected = Expected {
        explored: workload.explored.clone(),
        stages,
        between,
        attempted,
        trees,
        fences,
        unsettled,
        halves: BTreeMap::new(),
        commits: workload.pool_kind.commits(),
    };
    for (number, step) in workload.explored.iter().enumerate() {
        if let Some(halves) = step.halves() {
            let between = [&workload.explored[..number], &halves[..1]].concat();
            let halves = expected.with_halves(number, halves, recorder.tree_after(&between)?);
            expected.halves.insert(number, halves);
        }
    }
    Ok(Recorded {
        workload: workload.clone(),
        base: recorder.base,
        log,
        begin,
        expected,
        cache_entries: recorder.cache_entries,
    })
}

struct Recorder<'a> {
    workload: &'a Workload,
    cache_entries: u64,
    base: Vec<u8>,
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
        let opened = perform(&mut session, &Step::Open);
        opened.map_err(|error| self.error("opening", error.to_string()))?;
        Ok(session)
    }

    /// A session in which the setup has run.
    fn begin(&self, pool: &Shared) -> Result<Session, RecordError> {
        if self.workload.cut.is_some() {
            return Ok(Session::new(pool.clone(), self.cache_entries));
        }
        let mut session = self.open(pool)?;
        let mut model = Model::new(CLOCK_START);
        for step in &self.workload.setup {
            self.both(&mut session, &mut model, step)?;
            pool.0.marker(0);
        }
        Ok(session)
    }

    /// The image after a power cut behind the setup, if everything stored has arrived.
    fn image_after(&self, cut: &PowerCut) -> Result<Vec<u8>, RecordError> {
        let pool = Shared::of(self.base.clone());
        let mut session = self.open(&pool)?;
        let mut model = Model::new(CLOCK_START);
        for step in &self.workload.setup {
            self.both(&mut session, &mut model, step)?;
        }
        let image = pool.0.image();
        pool.0.start_recording();
        perform(&mut session, &cut.step)
            .map_err(|error| self.error("the step cut", error.to_string()))?;
        let log = pool.0.take_log();
        let last = log
            .iter()
            .rposition(|event| event.op == Op::Fence && sites::name(event.site) == cut.after);
        let last =
            last.ok_or_else(|| self.error("the step cut", format!("no fence {}", cut.after)))?;
        let mut image = image_after(&image, &log[..last]);
        self.forget_boot(&mut image)?;
        Ok(image)
    }

    /// Makes the pool one that an earlier boot of the machine left.
    fn forget_boot(&self, image: &mut [u8]) -> Result<(), RecordError> {
        let superblock = Superblock::unseal(&image[..BLOCK_BYTES as usize])
            .map_err(|error| self.error("the step cut", error.to_string()))?;
        let at = (superblock.geometry().state_at + PoolState::BOOT_ID) as usize;
        image[at..at + 16].fill(0xB0);
        Ok(())
    }

    /// The model after the setup.
    fn model(&self) -> Model {
        let mut model = Model::new(CLOCK_START);
        for step in &self.workload.setup {
            model_step(&mut model, step);
        }
        if let Some(cut) = &self.workload.cut {
            if cut.done {
                model_step(&mut model, &cut.step);
            }
            model.close_all();
        }
        model
    }

    fn run(&self) -> Result<(Vec<Event>, usize), RecordError> {
        let pool = Shared::of(self.base.clone());
        pool.0.start_recording();
        let mut session = self.begin(&pool)?;
        let mut model = self.model();
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

    /// Executes a step on both sides and compares the outcomes.
    fn both(
        &self,
        session: &mut Session,
        model: &mut Model,
        step: &Step,
    ) -> Result<(), RecordError> {
        let done = perform(session, step).map_err(|error| error.errno());
        let expected = match model_step(model, step) {
            Outcome::Ok(_) => Ok(()),
            Outcome::Err(errno) => Err(errno.0),
        };
        if done == expected {
            return Ok(());
        }
        let what = format!("errno {done:?}, expected {expected:?}");
        Err(self.error(&step.to_string(), what))
    }

    /// The engine's tree after the setup and `steps`, from a run of its own, because reading the
    /// tree leaves traces in the pool.
    fn tree_after(&self, steps: &[Step]) -> Result<Tree, RecordError> {
        let pool = Shared::of(self.base.clone());
        let mut session = self.begin(&pool)?;
        for step in steps {
            // Failures that the model also has are part of the workload.
            let _ = perform(&mut session, step);
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

/// The snapshot `before`, with the permission bits and extended attributes of `after`.
fn without_privileges(before: &Snapshot, after: &Snapshot) -> Snapshot {
    let mut between = before.clone();
    for (path, node) in &mut between {
        if let Some(after) = after.get(path) {
            node.mode = after.mode;
            node.xattrs.clone_from(&after.xattrs);
        }
    }
    between
}

/// Trees whose bytes may show in the middle of a step, beside those before and after it.
fn attempt(model: &Model, step: &Step) -> Vec<Snapshot> {
    match (step, step.shifted()) {
        (Step::Full(op), _) => refused(model, op).into_iter().collect(),
        (_, Some(range)) => shifted(model, step, range.offset / BLOCK_SIZE as u64),
        _ => Vec::new(),
    }
}

/// While bytes of a file move into a hole, each block from `first` on is that of before, that of
/// afterwards, or a hole, in a file of the larger size.
fn shifted(model: &Model, step: &Step, first: u64) -> Vec<Snapshot> {
    let before = model.snapshot(false);
    let mut model = model.clone();
    model_step(&mut model, step);
    let after = model.snapshot(false);
    let mut trees = vec![before.clone(), after.clone(), before.clone()];
    for (path, node) in &before {
        let Some(larger) = after
            .get(path)
            .map(|after| after.body.size().max(node.body.size()))
        else {
            continue;
        };
        let bodies = trees.iter_mut().filter_map(|tree| tree.get_mut(path));
        for (node, is_hole) in bodies.zip([false, false, true]) {
            if let SnapshotBody::File { size, blocks } = &mut node.body {
                *size = larger;
                blocks.retain(|&index, _| !is_hole || index < first);
            }
        }
    }
    trees
}

/// What may show while a step finds the pool full in the middle and has not reverted its changes
/// yet: the tree that it was to make, but with the old sizes.
fn refused(model: &Model, op: &ModelOp) -> Option<Snapshot> {
    let wanted = Step::Op(op.clone());
    if !wanted.changes_bytes() {
        return None;
    }
    let before = model.snapshot(false);
    let mut model = model.clone();
    model_step(&mut model, &wanted);
    let mut after = model.snapshot(false);
    for (path, node) in &mut after {
        let SnapshotBody::File { size, .. } = &mut node.body else {
            continue;
        };
        *size = (*size).min(before.get(path)?.body.size());
    }
    Some(after)
}

/// Executes a step. What callers do not do themselves in production runs in a thread of its own.
pub(crate) fn perform(session: &mut Session, step: &Step) -> crate::session::Result<()> {
    prefer_thread_slot(0);
    match step {
        Step::Open | Step::Recover | Step::Maintain => std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                prefer_thread_slot(0);
                session.step(step)
            });
            let ended = there.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        }),
        _ => session.step(step),
    }
}

/// The model's outcome of a step.
pub(crate) fn model_step(model: &mut Model, step: &Step) -> Outcome {
    match step {
        Step::Op(op) => apply(model, op, &Cred::superuser(), CLOCK_START),
        Step::User(op) => apply(model, op, &Cred::user(USER, USER, &[]), CLOCK_START),
        Step::Full(_) => Outcome::Err(Errno::ENOSPC),
        Step::Together(ops) => {
            let cred = Cred::superuser();
            let outcomes = ops.iter().map(|op| apply(model, op, &cred, CLOCK_START));
            let mut failures = outcomes.filter(|outcome| matches!(outcome, Outcome::Err(_)));
            failures
                .next()
                .unwrap_or(Outcome::Ok(vellum_model::Payload::Done))
        }
        Step::Close | Step::ExportReplica | Step::Recover => {
            model.close_all();
            Outcome::Ok(vellum_model::Payload::Done)
        }
        Step::Unnamed(path) => {
            let cred = Cred::superuser();
            let [create, append] = Step::named_at_once(path);
            match apply(model, &create, &cred, CLOCK_START) {
                Outcome::Ok(_) => apply(model, &append, &cred, CLOCK_START),
                failed => failed,
            }
        }
        Step::Blocks(blocks) => opened_and_closed(model, blocks),
        Step::Split(dir) | Step::Merge(dir) => is_there(model, dir),
        Step::Maintain
        | Step::Evolve(_)
        | Step::Checkpoint
        | Step::Grow(_)
        | Step::Trim
        | Step::Open => Outcome::Ok(vellum_model::Payload::Done),
    }
}

/// A directory that becomes an area's root, or stops being one, does not change if it exists.
fn is_there(model: &mut Model, dir: &str) -> Outcome {
    let stat = ModelOp::Stat {
        path: dir.as_bytes().to_vec(),
        follow: true,
    };
    match apply(model, &stat, &Cred::superuser(), CLOCK_START) {
        Outcome::Ok(_) => Outcome::Ok(vellum_model::Payload::Done),
        failed => failed,
    }
}

/// The effect on a file of allocating blocks and freeing them again.
fn opened_and_closed(model: &mut Model, blocks: &BlocksAlone) -> Outcome {
    const SLOT: u8 = u8::MAX;
    let open = ModelOp::Open {
        slot: SLOT,
        path: blocks.path.clone().into_bytes(),
        flags: libc::O_RDWR,
        mode: 0,
    };
    match apply(model, &open, &Cred::superuser(), CLOCK_START) {
        Outcome::Ok(_) => {
            let close = ModelOp::CloseSlot { slot: SLOT };
            apply(model, &close, &Cred::superuser(), CLOCK_START)
        }
        failed => failed,
    }
}
