//! How a thread waits for the next request: it looks for a moment before it sleeps.

use std::io;
use std::thread::{available_parallelism, yield_now};
use std::time::{Duration, Instant};

/// How long a thread looks for the next request before it sleeps, if the last one came that soon.
///
/// Without it the kernel wakes a client, while its answer is being returned, on an idle processor.
/// Its next request comes to the queue of that one, and so on in turn: each costs the awakening of
/// an idle processor. (Measured, `fstatfs` by one client on two processors: 11 to 24 us, and 8 to
/// 13 us with it; 8 us with or without it if the client is bound to its processor.)
///
/// A request by `/dev/fuse` meets a thread that is awake, on another processor than its client.
const LOOKS: Duration = Duration::from_micros(50);

/// If others had the processor for so long meanwhile, it is not idle.
const TAKEN: Duration = Duration::from_micros(500);

/// For how long a thread then sleeps at once. One that gave its processor away gets it back when
/// the others had their share, milliseconds later, but one that slept when a request comes.
pub(crate) const SLEEPS: Duration = Duration::from_millis(500);

/// How quickly requests come to a thread.
pub(crate) struct Pace {
    /// Looking costs a processor, which only pays if there are others.
    may_look: bool,
    /// When it began to look or to wait.
    began: Instant,
    is_quick: bool,
    /// Since then its processor was not idle.
    taken_at: Option<Instant>,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self {
            may_look: available_parallelism().is_ok_and(|processors| processors.get() > 1),
            began: Instant::now(),
            is_quick: false,
            taken_at: None,
        }
    }

    /// Looks for the next request, if that pays. `None`: the thread waits for it.
    pub(crate) fn look<T>(
        &mut self,
        mut look: impl FnMut() -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        self.began = Instant::now();
        if self.taken_at.is_some_and(|at| self.began - at > SLEEPS) {
            self.taken_at = None;
        }
        let mut now = self.began;
        while self.may_look && self.is_quick && !self.is_taken() && now - self.began < LOOKS {
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            // What else wants this processor has it first.
            yield_now();
            let before = std::mem::replace(&mut now, Instant::now());
            self.given(now - before);
        }
        Ok(None)
    }

    /// Others had the processor for so long.
    fn given(&mut self, time: Duration) {
        if time > TAKEN {
            self.taken_at = Some(Instant::now());
        }
    }

    /// Whether others want the processor of this thread.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken_at.is_some()
    }

    /// The thread has waited for the next request, which is there.
    pub(crate) fn waited(&mut self) {
        self.is_quick = self.began.elapsed() < LOOKS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace() -> Pace {
        Pace {
            may_look: true,
            is_quick: true,
            ..Pace::new()
        }
    }

    fn looks(pace: &mut Pace) -> bool {
        let found = pace.look(|| Ok(Some(())));
        found.expect("no error").is_some()
    }

    #[test]
    fn a_thread_looks_if_the_last_request_came_soon() {
        let mut pace = pace();
        assert!(looks(&mut pace));
        std::thread::sleep(LOOKS);
        pace.waited();
        assert!(!looks(&mut pace));
        pace.waited();
        pace.is_quick = true;
        pace.may_look = false;
        assert!(!looks(&mut pace));
    }

    #[test]
    fn a_thread_does_not_look_where_others_want_the_processor() {
        let mut pace = pace();
        pace.given(TAKEN);
        assert!(looks(&mut pace));
        pace.given(2 * TAKEN);
        assert!(pace.is_taken() && !looks(&mut pace));
        pace.taken_at = pace.began.checked_sub(2 * SLEEPS);
        assert!(looks(&mut pace) && !pace.is_taken());
    }
}
