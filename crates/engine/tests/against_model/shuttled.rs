//! Schedules that [`shuttle`] draws for threads on memory whose every access lets another thread
//! run first.

use std::ops::Range;
use std::sync::atomic::{AtomicU64 as Counter, Ordering};

use shuttle::scheduler::{PctScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, Runner};
use vellum::Result;

use super::fixture::Backend;
pub(crate) use super::shuttle_memory::Shuttled;
use super::shuttle_memory::{ShuttleMemory, arm};
use vellum_testing::Random;

/// Number of preemptions that the scheduler of probabilistic concurrency testing chooses.
const PCT_DEPTH: usize = 3;

impl Backend for Shuttled {
    fn pool(len: u64) -> ShuttleMemory {
        ShuttleMemory::new(len)
    }

    fn arena(len: u64) -> Result<ShuttleMemory> {
        Ok(ShuttleMemory::new(len))
    }
}

/// Lets a thread run for a while before it draws another one: errors between two calls of one
/// thread need the others to stand still.
struct Bursts {
    seeds: Range<u64>,
    random: Random,
    /// Average number of steps that a thread makes.
    mean: u64,
}

impl Scheduler for Bursts {
    fn new_execution(&mut self) -> Option<Schedule> {
        let seed = self.seeds.next()?;
        self.random = Random::new(seed);
        self.mean = 4 << (2 * self.random.below(4));
        Some(Schedule::new(seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let is_current = |task: &&Task| Some(task.id()) == current;
        if !is_yielding && self.random.below(self.mean) > 0 && runnable.iter().any(is_current) {
            return current;
        }
        let others = runnable.iter().filter(|task| !is_current(task)).count();
        let which = self.random.below(others.max(1) as u64) as usize;
        let mut drawn = runnable
            .iter()
            .filter(|task| others == 0 || !is_current(task));
        drawn.nth(which).map(|task| task.id())
    }

    fn next_u64(&mut self) -> u64 {
        self.random.word()
    }
}

/// Runs `scenario` with numbers that count from `seed << 32`, under `count` schedules drawn in
/// bursts, and as many that probabilistic concurrency testing chooses.
pub(crate) fn explore(count: u32, seed: u64, scenario: fn(u64)) {
    let first = seed << 32;
    let bursts = Bursts {
        seeds: first..first + u64::from(count),
        random: Random::new(first),
        mean: 1,
    };
    run(bursts, first, scenario);
    run(
        PctScheduler::new_from_seed(seed, PCT_DEPTH, count as usize),
        first + u64::from(count),
        scenario,
    );
}

fn run(scheduler: impl Scheduler + 'static, first: u64, scenario: fn(u64)) {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    config.stack_size = 1 << 20;
    config.max_steps = shuttle::MaxSteps::FailAfter(20_000_000);
    let next = Counter::new(first);
    Runner::new(scheduler, config).run(move || {
        arm(false);
        scenario(next.fetch_add(1, Ordering::Relaxed));
    });
}

/// Runs jobs concurrently; another thread may run at each access to memory.
pub(crate) fn together(jobs: Vec<Box<dyn FnOnce() + Send>>) {
    arm(true);
    let threads: Vec<_> = jobs.into_iter().map(shuttle::thread::spawn).collect();
    for thread in threads {
        thread.join().expect("the job ends");
    }
    arm(false);
}
