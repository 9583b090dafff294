//! Memory every access of which lets another thread go first, for schedules that [`shuttle`] draws.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64 as Counter, Ordering};

use shuttle::scheduler::{PctScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::sync::atomic::AtomicU64;
use shuttle::{Config, FailurePersistence, Runner};
use vellum::Result;
use vellum::media::{HeapMemory, MediaKind, Memories, Memory, Persistent};

use super::kit::Kit;
use super::random::Random;

/// Preemptions that the scheduler of probabilistic concurrency testing chooses.
const PCT_DEPTH: usize = 3;
/// Bytes moved without another thread going first.
const PIECE: usize = 64;

thread_local! {
    /// Whether accesses let others go first. All threads of a schedule run on one of the system.
    static ARMED: Cell<bool> = const { Cell::new(false) };
}

/// Pool and arena of [`ShuttleMemory`].
pub(crate) struct Shuttled;

pub(crate) struct ShuttleMemory {
    heap: HeapMemory,
    point: AtomicU64,
}

impl Memories for Shuttled {
    type Pool = ShuttleMemory;
    type Arena = ShuttleMemory;
}

impl Kit for Shuttled {
    fn pool(len: u64) -> ShuttleMemory {
        ShuttleMemory::new(len)
    }

    fn arena(len: u64) -> Result<ShuttleMemory> {
        Ok(ShuttleMemory::new(len))
    }
}

/// Lets a thread go on for a while before it draws another: what goes wrong between two calls of one
/// thread needs the others to stand still.
struct Bursts {
    seeds: Range<u64>,
    random: Random,
    /// How many steps a thread makes on average.
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
        self.random.next()
    }
}

/// Runs `scenario` with numbers that count from `seed` << 32, under `count` schedules drawn in bursts and as many that
/// probabilistic concurrency testing chooses.
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
        ARMED.set(false);
        scenario(next.fetch_add(1, Ordering::Relaxed));
    });
}

/// Runs jobs beside each other, each access to memory being a point where another may go on.
pub(crate) fn together(jobs: Vec<Box<dyn FnOnce() + Send>>) {
    ARMED.set(true);
    let threads: Vec<_> = jobs.into_iter().map(shuttle::thread::spawn).collect();
    for thread in threads {
        thread.join().expect("the job ends");
    }
    ARMED.set(false);
}

impl ShuttleMemory {
    fn new(len: u64) -> Self {
        Self {
            heap: HeapMemory::new(len),
            point: AtomicU64::new(0),
        }
    }

    /// The memory behind, after others may have gone on.
    fn at_point(&self) -> &HeapMemory {
        if ARMED.get() {
            self.point.load(Ordering::SeqCst);
        }
        &self.heap
    }
}

impl Memory for ShuttleMemory {
    fn len(&self) -> u64 {
        self.heap.len()
    }

    fn damaged(&self) -> Option<u64> {
        self.heap.damaged()
    }

    fn load(&self, at: u64, order: Ordering) -> u64 {
        self.at_point().load(at, order)
    }

    fn store(&self, at: u64, value: u64, order: Ordering) {
        self.at_point().store(at, value, order);
    }

    fn compare_exchange(&self, at: u64, current: u64, new: u64) -> std::result::Result<u64, u64> {
        self.at_point().compare_exchange(at, current, new)
    }

    fn fetch_add(&self, at: u64, value: u64) -> u64 {
        self.at_point().fetch_add(at, value)
    }

    fn fetch_or(&self, at: u64, bits: u64) -> u64 {
        self.at_point().fetch_or(at, bits)
    }

    fn fetch_and(&self, at: u64, bits: u64) -> u64 {
        self.at_point().fetch_and(at, bits)
    }

    fn read(&self, at: u64, out: &mut [u8]) {
        for (piece, from) in out.chunks_mut(PIECE).zip((at..).step_by(PIECE)) {
            self.at_point().read(from, piece);
        }
    }

    fn write(&self, at: u64, data: &[u8]) {
        for (piece, to) in data.chunks(PIECE).zip((at..).step_by(PIECE)) {
            self.at_point().write(to, piece);
        }
    }

    fn bytes_equal(&self, at: u64, expected: &[u8]) -> bool {
        self.at_point().bytes_equal(at, expected)
    }

    fn match_line(&self, at: u64, mask: u64, want: u64) -> u8 {
        self.at_point().match_line(at, mask, want)
    }

    fn load_line(&self, at: u64) -> [u64; 8] {
        self.at_point().load_line(at)
    }

    fn prefetch(&self, _at: u64) {}

    fn relax(&self, tries: u32) {
        if ARMED.get() {
            shuttle::thread::yield_now();
        } else {
            assert!(tries < 1000, "nobody is left that could end this wait");
        }
    }
}

impl Persistent for ShuttleMemory {
    fn flush(&self, _at: u64, _len: u64) {}

    fn fence(&self) {}

    fn write_through(&self, at: u64, data: &[u8]) {
        self.write(at, data);
    }

    fn zero_through(&self, at: u64, len: u64) {
        self.write(at, &vec![0; len as usize]);
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn kind(&self) -> MediaKind {
        MediaKind::Memory
    }
}
