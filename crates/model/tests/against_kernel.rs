//! Random operations on the model and on the kernel's own file system, as several users, with every
//! outcome compared.
//!
//! The tests need the superuser (to change users, and to make a temporary directory the root of a
//! thread) and a temporary directory on ext4, or on a mount of Vellum (`tests/mount/80-model.sh`);
//! elsewhere they print a message and pass. `VELLUM_REPLAY=file` replays the steps of a file, one
//! per line.

mod kernel;

use kernel::agreement::{
    self, ON_EXT4, agree, drops_set_ids_first, has_room, is_decided_by_the_kernel,
    looks_like_a_write, sets_what_is_missing, shifts_in_other_ways, told_mode,
};
use kernel::{Kernel, flags};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vellum_model::strategy::{self, Xattrs};
use vellum_model::{Block, Cred, Ino, Kind, Model, NodeSnapshot, Op, Step, Times, apply, diff};

const EXT4_MAGIC: u64 = 0xEF53;
const FUSE_MAGIC: u64 = 0x6573_5546;

/// Longer than a tick of the kernel's coarse clock, by which it sets access times.
const TICK: Duration = Duration::from_millis(12);

/// Whether the temporary directory is suitable; prints a message if not.
fn usable() -> bool {
    let dir = std::env::temp_dir();
    let magic = rustix::fs::statfs(&dir)
        .map(|fs| fs.f_type as u64)
        .unwrap_or_default();
    ON_EXT4.store(magic == EXT4_MAGIC, Ordering::Relaxed);
    let usable = matches!(magic, EXT4_MAGIC | FUSE_MAGIC) && rustix::process::geteuid().is_root();
    if !usable {
        println!(
            "skipped: needs the superuser, and ext4 or a mount of Vellum at {}",
            dir.display()
        );
    }
    usable
}

/// The kernel's clock, by which the model distinguishes past and future.
fn clock_nanos() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("it is later than 1970").as_nanos() as i64
}

/// The model and the kernel, side by side.
struct Pair {
    model: Model,
    kernel: Kernel,
    now: i64,
}

impl Pair {
    fn new(root: &Path) -> Pair {
        let mut model = Model::new(clock_nanos());
        model.hardening = agreement::hardening();
        Pair {
            model,
            kernel: Kernel::enter(root).expect("the superuser changes its root"),
            now: clock_nanos(),
        }
    }

    /// Applies a step to both and reports differences.
    fn step(&mut self, step: &Step) -> Result<(), String> {
        let is_skipped = !has_room(&self.model, step)
            || sets_what_is_missing(step)
            || looks_like_a_write(&self.model, step)
            || shifts_in_other_ways(&self.model, step);
        if is_skipped {
            return Ok(());
        }
        self.now += 1;
        let preallocated = self.is_preallocated(&step.op);
        let expected = apply(&mut self.model, &step.op, &step.cred, self.now);
        if drops_set_ids_first(step, &expected) || is_decided_by_the_kernel(step, &expected) {
            return Ok(());
        }
        let found = self.kernel.apply(&step.op, &step.cred);
        if agree(&step.op, &expected, &found, preallocated) {
            return Ok(());
        }
        Err(format!(
            "{step}\n  model:  {expected:?}\n  kernel: {found:?}"
        ))
    }

    fn compare_trees(&self) -> Result<(), String> {
        let (mut model, mut kernel) = (self.model.snapshot(false), self.kernel.snapshot());
        for node in model.values_mut().chain(kernel.values_mut()) {
            node.mode = told_mode(node.mode);
        }
        // Nobody sees those of other files.
        let has_flags = |node: &NodeSnapshot| matches!(node.body.kind(), Kind::File | Kind::Dir);
        for node in model.values_mut().filter(|node| !has_flags(node)) {
            (node.flags, node.project) = (0, 0);
        }
        let differences = diff(&model, &kernel);
        if differences.is_empty() {
            Ok(())
        } else {
            Err(format!("trees differ:\n{}", differences.join("\n")))
        }
    }

    /// Whether the file of a seek has unwritten blocks.
    fn is_preallocated(&self, op: &Op) -> bool {
        let (Op::SeekData { path, .. } | Op::SeekHole { path, .. }) = op else {
            return false;
        };
        self.model
            .resolve(Ino::ROOT, path, true, &Cred::superuser())
            .and_then(|ino| self.model.content(ino))
            .is_ok_and(|content| {
                content
                    .blocks()
                    .values()
                    .any(|block| *block == Block::Unwritten)
            })
    }
}

/// Runs a body on its own thread with a pair in a new directory.
fn with_pair<T: Send>(body: impl FnOnce(&mut Pair) -> T + Send) -> T {
    let dir = tempfile::Builder::new()
        .prefix("vellum-model-")
        .tempdir()
        .expect("a temporary directory");
    let path = dir.path();
    let done = std::thread::scope(|scope| scope.spawn(move || body(&mut Pair::new(path))).join());
    flags::clear_below(path);
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs steps and compares the trees at the end; a failure lists the steps up to it.
fn run(steps: &[Step]) -> Result<(), String> {
    with_pair(|pair| {
        for (index, step) in steps.iter().enumerate() {
            pair.step(step).map_err(|difference| {
                let lines: Vec<String> = steps[..=index].iter().map(Step::to_string).collect();
                format!("{}\n\nstep {index}: {difference}", lines.join("\n"))
            })?;
        }
        pair.compare_trees().map_err(|difference| {
            let lines: Vec<String> = steps.iter().map(Step::to_string).collect();
            format!("{}\n\n{difference}", lines.join("\n"))
        })
    })
}

/// The first step of a sequence: the permissions of the root directory.
fn opening() -> impl Strategy<Value = Step> {
    proptest::sample::select(vec!["777", "1777", "755", "2777"])
        .prop_map(|mode| format!("0:0 chmod . {mode}").parse().expect("a step"))
}

fn sequence(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    let xattrs = Xattrs::WithLists;
    (opening(), strategy::steps(longest, xattrs)).prop_map(|(first, mut steps)| {
        steps.insert(0, first);
        steps
    })
}

/// A runner whose values only depend on the seed.
fn seeded(seed: u8) -> TestRunner {
    TestRunner::new_with_rng(
        Config::default(),
        TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]),
    )
}

fn draw<T>(strategy: &impl Strategy<Value = T>, runner: &mut TestRunner) -> T {
    strategy
        .new_tree(runner)
        .expect("the strategy never rejects")
        .current()
}

#[test]
fn fixed_seeds_agree() {
    if !usable() {
        return;
    }
    for seed in 0..60 {
        let steps = draw(&sequence(500), &mut seeded(seed));
        if let Err(difference) = run(&steps) {
            panic!("seed {seed}\n{difference}");
        }
    }
}

#[test]
fn random_sequences_agree() {
    if !usable() {
        return;
    }
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(150);
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&sequence(60), |steps| {
        run(&steps).map_err(TestCaseError::fail)
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn recorded_steps_agree() {
    if !usable() {
        return;
    }
    for steps in recorded() {
        if let Err(difference) = run(&steps) {
            panic!("{difference}");
        }
    }
}

/// The recorded sequences, or those of the file that `VELLUM_REPLAY` names.
fn recorded() -> Vec<Vec<Step>> {
    let text = match std::env::var("VELLUM_REPLAY") {
        Ok(path) => std::fs::read_to_string(path).expect("a file of steps"),
        Err(_) => include_str!("kernel/cases.txt").to_owned(),
    };
    let cases = text.split("\n\n");
    cases
        .map(|case| {
            let lines = case
                .lines()
                .filter(|line| !line.is_empty() && !line.starts_with('#'));
            lines.map(|line| line.parse().expect("a step")).collect()
        })
        .collect()
}

/// Times by inode number, for the kernel and for the model, of every path of the model.
type Clocks = (BTreeMap<u64, Times>, BTreeMap<u64, Times>);

fn clocks(pair: &Pair) -> Clocks {
    let mut clocks = Clocks::default();
    for (path, node) in pair.model.snapshot(true) {
        let ino = pair
            .model
            .resolve(Ino::ROOT, &path, false, &Cred::superuser())
            .expect("the model knows its paths");
        let (number, times) = pair
            .kernel
            .times_of(&path)
            .expect("the kernel has the same paths");
        // The model does not count following a link as reading it.
        let still = |times: Times| {
            if node.body.kind() == Kind::Symlink {
                Times { atime: 0, ..times }
            } else {
                times
            }
        };
        clocks.0.insert(number, still(times));
        clocks
            .1
            .insert(ino.0, still(node.times.expect("asked for")));
    }
    clocks
}

/// Which of access, modification and change time changed for each path, for inodes that existed
/// before.
fn changes(pair: &Pair, before: &Clocks, after: &Clocks) -> Vec<(String, [bool; 3], [bool; 3])> {
    let changed = |before: Times, after: Times| {
        [
            before.atime != after.atime,
            before.mtime != after.mtime,
            before.ctime != after.ctime,
        ]
    };
    let mut changes = Vec::new();
    for path in pair.model.snapshot(false).into_keys() {
        let ino = pair
            .model
            .resolve(Ino::ROOT, &path, false, &Cred::superuser())
            .expect("the model knows its paths");
        let (number, _) = pair
            .kernel
            .times_of(&path)
            .expect("the kernel has the same paths");
        if let (Some(&model), Some(&kernel)) = (before.1.get(&ino.0), before.0.get(&number)) {
            let name = path.escape_ascii().to_string();
            changes.push((
                name,
                changed(model, after.1[&ino.0]),
                changed(kernel, after.0[&number]),
            ));
        }
    }
    changes
}

/// Compares which times change at each step; access times only if `pause` lets the coarse clock
/// tick in between.
fn compare_times(steps: &[Step], pause: Option<Duration>) {
    with_pair(|pair| {
        let mut before = clocks(pair);
        for (index, step) in steps.iter().enumerate() {
            if let Some(pause) = pause {
                std::thread::sleep(pause);
            }
            pair.step(step)
                .unwrap_or_else(|difference| panic!("{difference}"));
            let after = clocks(pair);
            for (path, mut model, mut kernel) in changes(pair, &before, &after) {
                if pause.is_none() {
                    (model[0], kernel[0]) = (false, false);
                }
                let so_far: Vec<String> = steps[..=index].iter().map(Step::to_string).collect();
                assert_eq!(
                    model,
                    kernel,
                    "{path}: atime, mtime, ctime of model and kernel\n{}",
                    so_far.join("\n")
                );
            }
            before = after;
        }
    });
}

#[test]
fn the_same_times_change() {
    if !usable() {
        return;
    }
    for seed in 100..124 {
        compare_times(&draw(&sequence(400), &mut seeded(seed)), None);
    }
}

#[test]
fn the_same_access_times_change() {
    if !usable() {
        return;
    }
    for steps in recorded() {
        compare_times(&steps, Some(TICK));
    }
    for seed in 200..212 {
        compare_times(&draw(&sequence(80), &mut seeded(seed)), Some(TICK));
    }
}
