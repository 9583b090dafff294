//! The threads that work for a pool: reclaiming, evolving, committing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::RealFs;
use super::lifecycle::COMMIT_INTERVAL;

/// Shortest and longest pause of the background thread.
const REST: std::ops::Range<Duration> = Duration::from_millis(5)..Duration::from_millis(200);

/// After moving a directory, evolving pauses this many times as long as the move took.
const REST_AFTER_MOVE: u32 = 8;

/// A thread that works for a pool, until it is dropped.
#[derive(Debug)]
pub(super) struct Worker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Forgets a thread that belongs to the parent process: a fork does not copy it.
    pub(super) fn forget(mut self) {
        std::mem::forget(self.thread.take());
    }

    pub(super) fn start(name: &str, work: impl FnOnce(&AtomicBool) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || work(&told))
            .inspect_err(|error| tracing::warn!(%error, "no thread {name} for background work"))
            .ok();
        Self { stop, thread }
    }
}

/// Reclaims until `stop` is set.
pub(super) fn keep(fs: &RealFs, stop: &AtomicBool) {
    let mut rest = REST.start;
    while !stop.load(Ordering::Relaxed) {
        std::thread::park_timeout(rest);
        rest = match fs.maintain() {
            Ok(0) => (rest * 2).min(REST.end),
            Ok(_) => REST.start,
            Err(error) => {
                tracing::error!(%error, "background work failed");
                REST.end
            }
        };
    }
}

/// Runs a round of evolving every `interval`, until `stop` is set.
pub(super) fn evolve(fs: &RealFs, interval: Duration, stop: &AtomicBool) {
    let goes_on = || !stop.load(Ordering::Relaxed);
    let mut ended = Instant::now();
    while goes_on() {
        let due = interval.saturating_sub(ended.elapsed());
        if !due.is_zero() {
            std::thread::park_timeout(due);
            continue;
        }
        let mut rest = |spent: Duration| {
            std::thread::park_timeout(spent * REST_AFTER_MOVE);
            goes_on()
        };
        if !fs.is_damaged()
            && let Err(error) = fs.evolve_resting(&mut rest)
        {
            tracing::error!(%error, "a round of evolving failed");
        }
        ended = Instant::now();
    }
}

/// Commits at the pool's interval, and keeps half of the log free, if there is one. Checkpoints go
/// step by step, with a pause after each that is as long as the step took, or until a commit is
/// due. On other media operations commit by themselves.
pub(super) fn commit(fs: &RealFs, stop: &AtomicBool) {
    let interval = fs.commit_every();
    fs.wake_when_half_full(std::thread::current());
    let mut committed = Instant::now();
    let mut is_warned = false;
    while !stop.load(Ordering::Relaxed) {
        let due = interval.saturating_sub(committed.elapsed());
        let result = if fs.is_damaged() {
            Ok(interval)
        } else if due.is_zero() {
            committed = Instant::now();
            if fs.has_lost_image() && !std::mem::replace(&mut is_warned, true) {
                tracing::warn!(
                    "the image of the pool was removed: if this process is killed, what was not \
                     synced is lost"
                );
            }
            fs.sync().map(|()| Duration::ZERO)
        } else if fs.is_log_half_full() {
            let begin = Instant::now();
            fs.checkpoint().map(|_| begin.elapsed().min(due))
        } else {
            Ok(due)
        };
        let rest = result.unwrap_or_else(|error| {
            tracing::error!(%error, "the regular commit, or a checkpoint, failed");
            COMMIT_INTERVAL
        });
        std::thread::park_timeout(rest);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("a background thread had failed");
            }
        }
    }
}
