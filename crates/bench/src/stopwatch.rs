//! Measures a thread's time without the time that it waited for a processor that others used.
//!
//! On a shared machine that wait is most of the noise: a loop of some milliseconds is either
//! preempted or not. Waiting for anything else (a disk, a lock, a device) counts.

use std::time::{Duration, Instant};

/// The calling thread's statistics: nanoseconds run, nanoseconds waited, times scheduled.
const SCHEDULER: &str = "/proc/thread-self/schedstat";

/// An upper bound for reading the statistics without a preemption.
const READING: Duration = Duration::from_micros(50);
/// The number of starts that are repeated because of a preemption.
const TRIES: u32 = 100;

/// A running clock of the calling thread.
pub(crate) struct Stopwatch {
    waited: Duration,
    start: Instant,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        let mut tries = 0;
        loop {
            let before = Instant::now();
            let (waited, start) = (waited(), Instant::now());
            tries += 1;
            // A wait after the statistics were read would be subtracted from a time that it isn't
            // part of.
            if start - before < READING || tries == TRIES {
                return Self { waited, start };
            }
        }
    }

    /// The time since the start. Must be called by the thread that started it.
    pub(crate) fn elapsed(&self) -> Duration {
        let before = self.start.elapsed();
        let waited = waited().saturating_sub(self.waited);
        let behind = self.start.elapsed();
        // A wait behind the first look at the clock is part of the second only.
        let elapsed = match behind - before < READING {
            true => before,
            false => behind,
        };
        // A short wait as long as the whole time was not part of it.
        elapsed
            .checked_sub(waited)
            .filter(|time| !time.is_zero())
            .unwrap_or(elapsed)
    }
}

/// How long this thread has waited for a processor; zero if the kernel doesn't report it.
fn waited() -> Duration {
    let text = std::fs::read_to_string(SCHEDULER).unwrap_or_default();
    let ns = text.split(' ').nth(1).and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Includes threads that are preempted in the middle of a look at the clock.
    #[test]
    fn no_time_is_nothing() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5000 {
                        let watch = Stopwatch::start();
                        std::hint::black_box([0_u8; 4096].iter().sum::<u8>());
                        assert!(watch.elapsed() > Duration::ZERO);
                    }
                });
            }
        });
    }

    #[test]
    fn sleeping_counts() {
        let watch = Stopwatch::start();
        std::thread::sleep(Duration::from_millis(20));
        assert!(watch.elapsed() > Duration::from_millis(1));
    }
}
