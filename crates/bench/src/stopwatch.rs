//! Time that a thread took, without the time it waited for a processor that others had.
//!
//! On a shared machine that wait is most of the noise: a loop of some milliseconds is either put
//! aside or not. Waiting for anything else (a disk, a lock, a device) counts.

use std::time::{Duration, Instant};

/// Nanoseconds run, nanoseconds waited, times scheduled: of the calling thread.
const SCHEDULER: &str = "/proc/thread-self/schedstat";

/// A running clock of the calling thread.
pub(crate) struct Stopwatch {
    waited: Duration,
    start: Instant,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self {
            waited: waited(),
            start: Instant::now(),
        }
    }

    /// Time since the start. To be asked by the thread that started it.
    pub(crate) fn elapsed(&self) -> Duration {
        let elapsed = self.start.elapsed();
        elapsed.saturating_sub(waited().saturating_sub(self.waited))
    }
}

/// How long this thread has waited for a processor; zero where the kernel doesn't tell.
fn waited() -> Duration {
    let text = std::fs::read_to_string(SCHEDULER).unwrap_or_default();
    let ns = text.split(' ').nth(1).and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_counts() {
        let watch = Stopwatch::start();
        std::thread::sleep(Duration::from_millis(20));
        assert!(watch.elapsed() > Duration::from_millis(1));
    }
}
