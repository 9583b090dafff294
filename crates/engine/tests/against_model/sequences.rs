//! Random sequences of operations by several users, on the engine and on the model. Every outcome
//! is compared, and the trees after background work, after a crash that lost nothing, and after a
//! clean close.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use vellum::media::{Real, Simulated, SimulatedLogged};
use vellum::{Error, Fs, MappingKind, NamespaceKind};
use vellum_driver::{Driver, cred_of};
use vellum_model::strategy::{self, Xattrs};
use vellum_model::{CAPABILITY, Cred, Errno, Model, NodeSnapshot, Op, Outcome, Step, apply};

use super::areas;
use super::fixture::{
    Backend, CLOCK_START, Direct, Shape, SimulatedExternal, SimulatedSplit, Soundness, check,
    check_open,
};
use super::tree;
use vellum_testing::Random;

/// What happens between steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    Nothing,
    /// Background work.
    Maintain,
    /// A directory becomes the root of an area, or stops being one.
    Areas(u64),
    /// A crash that lost nothing, with handles open.
    Crash,
    /// A clean close.
    Reopen,
}

fn between() -> impl Strategy<Value = Between> {
    prop_oneof![
        60 => Just(Between::Nothing),
        4 => Just(Between::Maintain),
        6 => any::<u64>().prop_map(Between::Areas),
        1 => Just(Between::Crash),
        1 => Just(Between::Reopen),
    ]
}

type Case = (Shape, Vec<(Step, Between)>);

fn shapes() -> impl Strategy<Value = Shape> {
    let mapping = prop::sample::select(&MappingKind::ALL);
    let shape = prop::sample::select(vec![
        Shape::new(1 << 20, 2, 1 << 20),
        Shape {
            run_blocks: 1,
            ..Shape::new(2 << 20, 3, 1 << 20)
        },
        Shape {
            span_lines: Some(1),
            ..Shape::new(2 << 20, 2, 64)
        },
        Shape {
            metadata_bytes: Some(64 << 10),
            ..Shape::new(1 << 20, 2, 1 << 20)
        },
    ]);
    let namespace = prop::sample::select(&NamespaceKind::ALL);
    (shape, mapping, namespace).prop_map(|(shape, mapping, namespace)| Shape {
        mapping,
        namespace,
        ..shape
    })
}

fn cases(longest: usize) -> impl Strategy<Value = Case> {
    let opening = prop::sample::select(vec!["777", "1777", "755", "2777"]).prop_map(|mode| {
        format!("0:0 chmod . {mode}")
            .parse::<Step>()
            .expect("a step")
    });
    let steps = prop_oneof![
        4 => strategy::steps(longest, Xattrs::WithLists),
        1 => strategy::quota_steps(longest, Xattrs::WithLists),
    ];
    (shapes(), opening, steps, vec(between(), longest + 1)).prop_map(
        |(shape, opening, steps, between)| {
            let steps = std::iter::once(opening).chain(steps).zip(between).collect();
            (shape, steps)
        },
    )
}

struct Pair<M: Backend> {
    shape: Shape,
    model: Model,
    subject: Driver<M>,
    now: i64,
    /// The users that opened the handles: later permission checks depend on nobody else.
    openers: BTreeMap<u8, Cred>,
}

type Verdict = Result<(), String>;

impl<M: Backend> Pair<M> {
    fn new(shape: Shape) -> Self {
        Self {
            shape,
            model: Model::new(CLOCK_START),
            subject: Driver::new(M::make(&shape)),
            now: CLOCK_START,
            openers: BTreeMap::new(),
        }
    }

    fn fs(&self) -> &Arc<Fs<M>> {
        self.subject.fs()
    }

    fn step(&mut self, step: &Step) -> Verdict {
        self.now += 1;
        let cred = step
            .op
            .handle_slot()
            .and_then(|slot| self.openers.get(&slot));
        let cred = cred.unwrap_or(&step.cred).clone();
        let Some(found) = outcome(&mut self.subject, step, &cred) else {
            return self.nothing_changed(step);
        };
        let expected = apply(&mut self.model, &step.op, &cred, self.now);
        if let (Op::Open { slot, .. }, Outcome::Ok(_)) = (&step.op, &expected) {
            self.openers.insert(*slot, cred);
        }
        if expected == found {
            return Ok(());
        }
        Err(format!(
            "{step}\n  model:  {expected:?}\n  engine: {found:?}"
        ))
    }

    /// Handles a full pool: the engine's tree is unchanged, except that a write first drops set-id
    /// bits and capabilities.
    fn nothing_changed(&mut self, step: &Step) -> Verdict {
        if is_change_of_content(&step.op) {
            self.take_over_privileges();
        }
        tree::compare(&self.model, self.fs())
            .map_err(|text| format!("{step}: no space, but {text}"))?;
        // The comparison has opened and closed the files that have names.
        self.model.end_process_locks();
        let ended = self.subject.end_process_locks();
        ended.map_err(|error| format!("{step}: {error}"))
    }

    /// Copies the modes of the engine's files to the model, and removes capabilities that they do
    /// not have.
    fn take_over_privileges(&mut self) {
        let root = Cred::superuser();
        let model = self.model.snapshot(false);
        for (path, node) in tree::snapshot(self.fs()).expect("the tree can be listed") {
            let Some(there) = model.get(&path) else {
                continue;
            };
            let is_capable = |node: &NodeSnapshot| node.xattrs.contains_key(CAPABILITY);
            let remove = (is_capable(there) && !is_capable(&node)).then(|| Op::RemoveXattr {
                path: path.clone(),
                name: CAPABILITY.to_vec(),
                follow: false,
            });
            let has_other_ids =
                there.mode != node.mode && there.mode & !0o6000 == node.mode & !0o6000;
            let chmod = has_other_ids.then_some(Op::Chmod {
                path,
                mode: node.mode,
            });
            for op in remove.into_iter().chain(chmod) {
                let outcome = apply(&mut self.model, &op, &root, self.now);
                assert!(matches!(outcome, Outcome::Ok(_)), "{op}: {outcome}");
            }
        }
    }

    fn compare(&self, when: &str) -> Verdict {
        tree::compare(&self.model, self.fs()).map_err(|text| format!("{when}: {text}"))
    }

    fn between(&mut self, what: Between) -> Verdict {
        match what {
            Between::Nothing => Ok(()),
            Between::Maintain => {
                self.fs()
                    .maintain()
                    .map_err(|error| format!("maintain: {error:?}"))?;
                Ok(())
            }
            Between::Areas(seed) => {
                areas::change_one(self.fs(), &mut Random::new(seed));
                Ok(())
            }
            Between::Crash => self.crash(),
            Between::Reopen => self.reopen(),
        }
    }

    /// Crashes with every store durable and nothing closed; the tree must be the same.
    fn crash(&mut self) -> Verdict {
        let image = M::image(self.fs());
        check(&image, Soundness::InUse)?;
        let (fs, opened) =
            M::open(&image, &self.shape).map_err(|error| format!("recovery: {error:?}"))?;
        if opened.was_clean {
            return Err("a pool that was not closed is clean".into());
        }
        self.model.close_all();
        self.subject = Driver::new(fs);
        self.compare("after a crash")?;
        check_open(self.fs(), Soundness::Recovered)
    }

    /// Closes cleanly and opens again. As much space must be free as after a crash.
    fn reopen(&mut self) -> Verdict {
        self.model.close_all();
        self.subject.close_all();
        let crashed = M::image(self.fs());
        self.fs()
            .close()
            .map_err(|error| format!("close: {error:?}"))?;
        let image = M::image(self.fs());
        check(&image, Soundness::Closed)?;
        let open = |image: &[u8]| {
            M::open(image, &self.shape).map_err(|error| format!("opening: {error:?}"))
        };
        let (fs, opened) = open(&image)?;
        if !opened.was_clean {
            return Err("a pool that was closed is not clean".into());
        }
        let space = |fs: &Arc<Fs<M>>| (fs.stat_fs().blocks_free, fs.stat_fs().files);
        let (mut recovered, _) = open(&crashed)?;
        if space(&fs) != space(&recovered) {
            // If the metadata are nearly full, a close frees even the last dead entries of
            // directories that are known.
            tree::compare(&self.model, &recovered)?;
            recovered
                .close()
                .map_err(|error| format!("close after recovery: {error:?}"))?;
            recovered = open(&M::image(&recovered))?.0;
        }
        if space(&fs) != space(&recovered) {
            return Err(format!(
                "space after a close {:?}, after a crash {:?}",
                fs.stat_fs(),
                recovered.stat_fs()
            ));
        }
        self.subject = Driver::new(fs);
        self.compare("after a clean close")
    }

    fn end(&mut self) -> Verdict {
        self.compare("at the end")?;
        self.crash_aside()?;
        self.model.close_all();
        self.subject.close_all();
        while self
            .fs()
            .maintain()
            .map_err(|error| format!("maintain: {error:?}"))?
            > 0
        {}
        self.compare("after background work")?;
        check_open(self.fs(), Soundness::InUse)?;
        self.reopen()?;
        self.crash()
    }

    /// Recovers a copy of the pool while this file system stays open with its handles.
    fn crash_aside(&mut self) -> Verdict {
        let image = M::image(self.fs());
        check(&image, Soundness::InUse)?;
        let (fs, _) = M::open(&image, &self.shape)
            .map_err(|error| format!("recovery with open handles: {error:?}"))?;
        tree::compare(&self.model, &fs).map_err(|text| format!("with open handles: {text}"))?;
        check_open(&fs, Soundness::Recovered)
    }
}

/// The engine's outcome. `None` if the pool is full.
pub(crate) fn outcome<M: Backend>(
    driver: &mut Driver<M>,
    step: &Step,
    cred: &Cred,
) -> Option<Outcome> {
    match driver.apply(&step.op, &cred_of(cred)) {
        Ok(payload) => Some(Outcome::Ok(payload)),
        Err(Error::NoSpace(_)) => None,
        Err(error) => {
            assert!(error.errno() != libc::EUCLEAN, "{step}: {error}");
            Some(Outcome::Err(Errno(error.errno())))
        }
    }
}

fn is_change_of_content(op: &Op) -> bool {
    matches!(
        op,
        Op::Write { .. }
            | Op::Append { .. }
            | Op::WriteSlot { .. }
            | Op::Fallocate { .. }
            | Op::FallocateSlot { .. }
            | Op::Truncate { .. }
            | Op::TruncateSlot { .. }
    )
}

fn run<M: Backend>((shape, steps): &Case) -> Verdict {
    let mut pair = Pair::<M>::new(*shape);
    let story = |upto: usize, what: String| {
        let lines: Vec<_> = steps[..upto]
            .iter()
            .map(|(step, between)| match between {
                Between::Nothing => step.to_string(),
                other => format!("{step}\n  {other:?}"),
            })
            .collect();
        format!("{shape:?}\n{}\n\n{what}", lines.join("\n"))
    };
    for (index, (step, between)) in steps.iter().enumerate() {
        pair.step(step)
            .and_then(|()| pair.between(*between))
            .map_err(|what| story(index + 1, what))?;
    }
    let verdict = pair.end().map_err(|what| story(steps.len(), what));
    assert!(!pair.fs().is_damaged());
    verdict
}

/// The number of cases to run: `VELLUM_CASES` or the default, times `VELLUM_LONG_CHECKS`.
pub(crate) fn case_count(default: u32) -> u32 {
    let number = |name| std::env::var(name).ok()?.parse().ok();
    number("VELLUM_CASES").unwrap_or_else(|| default * number("VELLUM_LONG_CHECKS").unwrap_or(1))
}

/// The seed of all random choices: a fixed one, or `VELLUM_SEED`.
pub(crate) fn seed() -> u8 {
    std::env::var("VELLUM_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1)
}

/// Runs a case. A panic counts as a failure like any other.
fn fails<M: Backend>(case: &Case) -> Option<String> {
    let run = std::panic::AssertUnwindSafe(|| run::<M>(case));
    match std::panic::catch_unwind(run) {
        Ok(verdict) => verdict.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
            let lines: Vec<_> = case
                .1
                .iter()
                .map(|(step, b)| format!("{step} {b:?}"))
                .collect();
            Some(format!(
                "{:?}\n{}\n\npanic: {text:?}",
                case.0,
                lines.join("\n")
            ))
        }
    }
}

/// Removes steps, ever fewer at a time, as long as the case still fails. Returns the last failure.
fn shrink<M: Backend>((shape, mut steps): Case, mut failure: String) -> String {
    let mut chunk = steps.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + chunk).min(steps.len()));
            match fails::<M>(&(shape, fewer.clone())) {
                Some(text) => (steps, failure) = (fewer, text),
                None => at += chunk,
            }
        }
        chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
    }
    for at in 0..steps.len() {
        let mut plainer = steps.clone();
        plainer[at].1 = Between::Nothing;
        if plainer != steps
            && let Some(text) = fails::<M>(&(shape, plainer.clone()))
        {
            (steps, failure) = (plainer, text);
        }
    }
    failure
}

/// Runs random cases. Reports the first failure with as few steps as still fail.
fn explore<M: Backend>(cases_wanted: u32, longest: usize) {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed(); 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = cases(longest);
    for number in 0..case_count(cases_wanted) {
        let case = strategy
            .new_tree(&mut runner)
            .expect("the strategy never rejects")
            .current();
        if let Some(failure) = fails::<M>(&case) {
            panic!("case {number}: {}", shrink::<M>(case, failure));
        }
    }
}

#[test]
fn short_sequences_agree_on_the_simulated_pool() {
    explore::<Simulated>(120, 40);
}

#[test]
fn long_sequences_agree_on_the_simulated_pool() {
    explore::<Simulated>(30, 400);
}

#[test]
fn sequences_agree_on_mapped_memory() {
    explore::<Real>(60, 150);
}

#[test]
fn sequences_agree_past_the_page_cache() {
    explore::<Direct>(20, 100);
}

#[test]
fn sequences_agree_on_a_logged_pool() {
    explore::<SimulatedLogged>(60, 100);
}

#[test]
fn sequences_agree_on_a_logged_pool_with_its_data_on_another_disk() {
    explore::<SimulatedExternal>(60, 100);
}

#[test]
fn sequences_agree_on_a_split_pool() {
    explore::<SimulatedSplit>(60, 100);
}
