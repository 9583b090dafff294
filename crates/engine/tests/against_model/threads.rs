//! Several threads, each with a directory and a model of its own: they share every structure of the
//! engine and must not notice each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use vellum::media::{Real, Simulated, SimulatedLogged};
use vellum::{Cred, Fs};
use vellum_driver::Driver;
use vellum_model::strategy::{self, Xattrs};
use vellum_model::{Model, Step, apply};

use super::areas;
use super::fixture::{
    Backend, CLOCK_START, Shape, SimulatedExternal, SimulatedSplit, Soundness, beside, check_open,
    on_each_namespace,
};
use super::sequences::{case_count, outcome, seed};
use super::tree;
use vellum_testing::Random;

const THREADS: u64 = 4;

/// Whether a step stays below the thread's directory and is done by the superuser, so that it does
/// not matter who opened a handle.
fn stays_below(step: &Step) -> bool {
    let text = step.to_string();
    let leaves = text.contains("..") || text.contains(" /");
    step.cred.is_superuser() && !leaves
}

fn steps_of(thread: u64, round: u64) -> Vec<Step> {
    let mut bytes = [seed(); 32];
    bytes[..8].copy_from_slice(&(round << 8 | thread).to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let tree = strategy::steps(700, Xattrs::WithLists)
        .new_tree(&mut runner)
        .expect("the strategy never rejects");
    tree.current().into_iter().filter(stays_below).collect()
}

/// Runs a thread's steps in its directory. Returns its model.
fn run<M: Backend>(fs: &Arc<Fs<M>>, thread: u64, round: u64) -> Model {
    let name = format!("thread-{thread}");
    let start = fs
        .lookup(&Cred::root(), &fs.root(), name.as_bytes())
        .expect("the directory was created");
    let mut subject = Driver::below(Arc::clone(fs), start.clone());
    let mut model = Model::new(CLOCK_START);
    for (index, step) in steps_of(thread, round).iter().enumerate() {
        let found = outcome(&mut subject, step, &step.cred);
        let found = found.unwrap_or_else(|| panic!("thread {thread}: {step}: no space"));
        let expected = apply(&mut model, &step.op, &step.cred, CLOCK_START + index as i64);
        assert_eq!(
            expected, found,
            "thread {thread}, round {round}, step {index}: {step}"
        );
    }
    subject.close_all();
    model.close_all();
    tree::compare_below(&model, fs, &start).unwrap();
    model
}

fn make_directories<M: Backend>(fs: &Arc<Fs<M>>, prefix: &str) {
    for thread in 0..THREADS {
        let name = format!("{prefix}-{thread}");
        fs.mkdir(&Cred::root(), &fs.root(), name.as_bytes(), 0o755)
            .expect("there is room");
    }
}

/// Runs `round` on all threads during background work. Then, and again after a crash, every tree is
/// as its thread expects, and the pool is sound.
fn one_round<M: Backend>(shape: &Shape, round: u64) {
    let fs = M::make(shape);
    make_directories(&fs, "thread");
    let background = |stop: &AtomicBool| {
        let mut random = Random::new(round);
        while !stop.load(Ordering::Relaxed) {
            fs.maintain().expect("nothing is damaged");
            areas::change_one(&fs, &mut random);
            std::thread::yield_now();
        }
    };
    let models: Vec<Model> = beside(background, || {
        std::thread::scope(|scope| {
            let fs = &fs;
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| scope.spawn(move || run(fs, thread, round)))
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Model>| {
                thread.join().expect("no thread failed")
            };
            threads.into_iter().map(join).collect()
        })
    });
    let image = M::image(&fs);
    check_open(&*fs, Soundness::InUse).unwrap();
    let (recovered, _) = M::open(&image, shape).expect("recovery succeeds");
    check_open(&*recovered, Soundness::Recovered).unwrap();
    for fs in [&fs, &recovered] {
        for (thread, model) in models.iter().enumerate() {
            let name = format!("thread-{thread}");
            let start = fs
                .lookup(&Cred::root(), &fs.root(), name.as_bytes())
                .expect("it is there");
            tree::compare_below(model, fs, &start).unwrap();
        }
    }
    fs.close().expect("nothing is open");
    check_open(&*fs, Soundness::Closed).unwrap();
}

#[test]
fn threads_in_directories_of_their_own_agree_with_their_models() {
    on_each_namespace(case_count(12), |namespace, count| {
        let shape = Shape::new(48 << 20, 3, 1 << 20).with(namespace);
        (0..count.into()).for_each(|round| one_round::<Real>(&shape, round));
    });
}

#[test]
fn threads_with_small_caches_agree_with_their_models() {
    on_each_namespace(case_count(6), |namespace, count| {
        let shape = Shape::new(32 << 20, 6, 64).with(namespace);
        (1000..1000 + u64::from(count)).for_each(|round| one_round::<Simulated>(&shape, round));
    });
}

#[test]
fn threads_on_a_logged_pool_agree_with_their_models() {
    let shape = Shape::new(48 << 20, 3, 1 << 20);
    (2000..2000 + u64::from(case_count(4)))
        .for_each(|round| one_round::<SimulatedLogged>(&shape, round));
    one_round::<SimulatedExternal>(&shape, 3000);
    one_round::<SimulatedSplit>(&shape, 3001);
}
