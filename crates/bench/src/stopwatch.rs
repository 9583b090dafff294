//! Time that a thread took, without the time it waited for a processor that others had.
//!
//! On a shared machine that wait is most of the noise: a loop of some milliseconds is either put
//! aside or not. Waiting for anything else (a disk, a lock, a device) counts.

use std::time::{Duration, Instant};

/// Nanoseconds run, nanoseconds waited, times scheduled: of the calling thread.
const SCHEDULER: &str = "/proc/thread-self/schedstat";

/// More than reading it takes, if nothing comes between.
const READING: Duration = Duration::from_micros(50);
/// Starts given up because something came between.
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
            // A wait behind what was read would be taken off a time that it isn't part of.
            if start - before < READING || tries == TRIES {
                return Self { waited, start };
            }
        }
    }

    /// Time since the start. To be asked by the thread that started it.
    pub(crate) fn elapsed(&self) -> Duration {
        let before = self.start.elapsed();
        let waited = waited().saturating_sub(self.waited);
        let behind = self.start.elapsed();
        // A wait behind the first look at the clock is part of the second only.
        let elapsed = match behind - before < READING {
            true => before,
            false => behind,
        };
        // A short wait that is all of a short time was not part of it.
        elapsed
            .checked_sub(waited)
            .filter(|time| !time.is_zero())
            .unwrap_or(elapsed)
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

    /// Threads that are put aside in the middle of a look at the clock, too.
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
