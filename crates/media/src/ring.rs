//! Several requests to a file at once (io_uring).
//!
//! A *batch* is submitted by one call and awaited as a whole: the call returns only after all of
//! its requests were answered, so that a request's memory is borrowed for as long as the kernel
//! uses it. A request that was not done completely, for whatever reason, counts as not done: the
//! caller repeats it by an ordinary call, which reports any error. So this module returns no
//! errors.
//!
//! A thread has a ring to itself for a batch. Rings are created on demand, at most [`RINGS_MAX`]
//! per pool; a thread that finds none does without. If the kernel refuses the first one, as in many
//! containers, no other is tried. A child of `fork` does not touch its parent's rings.

use crate::process::Process;
use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most requests of a batch.
pub(crate) const BATCH_MAX: usize = 64;
/// Most rings of a pool, and so most batches in flight. Each takes some 10 KiB of kernel memory.
const RINGS_MAX: usize = 8;
/// How often to check for an answer that cannot be waited for.
const LOOK: Duration = Duration::from_micros(100);

/// A request: bytes of a file, and memory.
pub(crate) trait Request {
    /// Offset of the bytes in the file.
    fn file_at(&self) -> u64;
    /// The memory that they are read into or written from.
    fn memory(&mut self) -> Bytes<'_>;
}

/// The memory of a request.
pub(crate) enum Bytes<'m> {
    /// Memory to fill.
    Read(&'m mut [u8]),
    /// Memory to write.
    Write(&'m [u8]),
}

impl Bytes<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Read(memory) => memory.len(),
            Self::Write(memory) => memory.len(),
        }
    }
}

/// The rings of a pool.
pub(crate) struct Rings(Mutex<Idle>);

struct Idle {
    rings: Vec<IoUring>,
    /// How many more rings may be created.
    more: usize,
    /// The process that created them.
    made_by: Option<Process>,
}

impl Rings {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Idle {
            rings: Vec::new(),
            more: RINGS_MAX,
            made_by: None,
        }))
    }

    /// As if the kernel refused them.
    #[cfg(test)]
    pub(crate) fn refused() -> Self {
        let rings = Self::new();
        rings.idle().more = 0;
        rings
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Borrows a ring for any number of batches.
    pub(crate) fn lend(&self) -> Option<Lent<'_>> {
        let ring = self.take()?;
        Some(Lent {
            rings: self,
            ring: Some(ring),
        })
    }

    fn take(&self) -> Option<IoUring> {
        let process = Process::current();
        let mut idle = self.idle();
        if *idle.made_by.get_or_insert(process) != process {
            return None;
        }
        if let Some(ring) = idle.rings.pop() {
            return Some(ring);
        }
        idle.more = idle.more.checked_sub(1)?;
        let made = IoUring::new(BATCH_MAX as u32).ok();
        if made.is_none() {
            idle.more = 0;
        }
        made
    }
}

/// A borrowed ring, used by one thread until it is dropped.
pub(crate) struct Lent<'r> {
    rings: &'r Rings,
    /// `None` once the kernel refused requests.
    ring: Option<IoUring>,
}

impl Lent<'_> {
    /// Does up to [`BATCH_MAX`] requests at once, in any order; calls `answered` for each one that
    /// was completed.
    pub(crate) fn run<R: Request>(
        &mut self,
        file: BorrowedFd<'_>,
        requests: &mut [R],
        mut answered: impl FnMut(&mut R),
    ) {
        let Some(mut ring) = self.ring.take() else {
            return;
        };
        let mut flight = Flight::begun(&mut ring, file, requests);
        while let Some((number, is_whole)) = flight.next() {
            if is_whole {
                answered(&mut requests[number]);
            }
        }
        let is_broken = flight.is_broken;
        drop(flight);
        self.ring = (!is_broken).then_some(ring);
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.rings.idle().rings.extend(self.ring.take());
    }
}

/// A batch in the kernel. Dropping it waits for the requests in flight.
struct Flight<'r> {
    ring: &'r mut IoUring,
    /// Requests not yet answered, with their numbers of bytes.
    open: [Option<u32>; BATCH_MAX],
    /// The kernel refuses requests. Those not yet submitted never will be: the ring is closed.
    is_broken: bool,
}

impl<'r> Flight<'r> {
    fn begun<R: Request>(ring: &'r mut IoUring, file: BorrowedFd<'_>, requests: &mut [R]) -> Self {
        let file = types::Fd(file.as_raw_fd());
        let mut open = [None; BATCH_MAX];
        let mut queue = ring.submission();
        for (number, request) in requests.iter_mut().enumerate().take(BATCH_MAX) {
            let at = request.file_at();
            let memory = request.memory();
            let Ok(len) = u32::try_from(memory.len()) else {
                continue;
            };
            let entry = match memory {
                Bytes::Read(to) => opcode::Read::new(file, to.as_mut_ptr(), len)
                    .offset(at)
                    .build(),
                Bytes::Write(from) => opcode::Write::new(file, from.as_ptr(), len)
                    .offset(at)
                    .build(),
            };
            // SAFETY: the memory is borrowed from the requests, which `Lent::run` borrows
            // exclusively until this flight is dropped; no code accesses a request there before it
            // was answered. Dropping waits for the answers to all requests that the kernel took.
            // Requests that it did not take stay in the queue of a ring that is not used again. The
            // file is borrowed for as long.
            if unsafe { queue.push(&entry.user_data(number as u64)) }.is_ok() {
                open[number] = Some(len);
            }
        }
        drop(queue);
        Self {
            ring,
            open,
            is_broken: false,
        }
    }

    /// Waits for a request; returns its number and whether it was completed. `None`: nothing is in
    /// flight.
    fn next(&mut self) -> Option<(usize, bool)> {
        loop {
            let answer = self.ring.completion().next();
            if let Some(answer) = answer {
                let number = answer.user_data() as usize;
                if let Some(len) = self.open.get_mut(number).and_then(Option::take) {
                    return Some((number, u32::try_from(answer.result()) == Ok(len)));
                }
                continue;
            }
            match self.in_flight() {
                0 => return None,
                // Half of them, so that threads are woken a few times only, and handle completed
                // requests while the rest is in flight.
                more => self.wait(more.div_ceil(2)),
            }
        }
    }

    /// The number of requests that will be answered.
    fn in_flight(&mut self) -> usize {
        let open = self.open.iter().flatten().count();
        match self.is_broken {
            false => open,
            true => open - self.ring.submission().len().min(open),
        }
    }

    /// Submits the remaining requests, and waits for this many answers, perhaps fewer.
    fn wait(&mut self, answers: usize) {
        if self.is_broken {
            std::thread::sleep(LOOK);
            return;
        }
        let entered = self.ring.submit_and_wait(answers);
        let is_interrupted =
            |error: &std::io::Error| error.raw_os_error() == Some(Errno::INTR.raw_os_error());
        self.is_broken = entered.is_err_and(|error| !is_interrupted(&error));
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        while self.next().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    struct Part {
        at: u64,
        memory: Vec<u8>,
        writes: bool,
        is_done: bool,
    }

    impl Part {
        fn new(at: u64, memory: Vec<u8>, writes: bool) -> Self {
            Self {
                at,
                memory,
                writes,
                is_done: false,
            }
        }
    }

    impl Request for Part {
        fn file_at(&self) -> u64 {
            self.at
        }

        fn memory(&mut self) -> Bytes<'_> {
            match self.writes {
                true => Bytes::Write(&self.memory),
                false => Bytes::Read(&mut self.memory),
            }
        }
    }

    /// Whether the kernel lets this process have rings.
    fn has_rings() -> bool {
        IoUring::new(1).is_ok()
    }

    fn run(rings: &Rings, file: &File, parts: &mut [Part]) {
        if let Some(mut ring) = rings.lend() {
            ring.run(file.as_fd(), parts, |part| part.is_done = true);
        }
    }

    #[test]
    fn all_of_a_batch_is_done() {
        let rings = Rings::new();
        let file = tempfile::tempfile().unwrap();
        let content = |number: u64| vec![number as u8 + 1; 100 + number as usize];
        let places = || (0..BATCH_MAX as u64).map(|number| (number, (number * 37 % 64) * 200));
        for round in 0..5 {
            let mut parts: Vec<Part> = places()
                .map(|(number, at)| Part::new(at, content(number + round), true))
                .collect();
            run(&rings, &file, &mut parts);
            assert!(parts.iter().all(|part| part.is_done == has_rings()));
            let mut parts: Vec<Part> = places()
                .map(|(number, at)| Part::new(at, vec![0; content(number + round).len()], false))
                .collect();
            run(&rings, &file, &mut parts);
            for (part, (number, _)) in parts.iter().zip(places()) {
                assert_eq!(part.is_done, has_rings());
                assert!(!part.is_done || part.memory == content(number + round));
            }
        }
    }

    #[test]
    fn short_and_failed_requests_are_not_done() {
        let rings = Rings::new();
        let file = tempfile::tempfile().unwrap();
        file.set_len(1000).unwrap();
        let mut parts = vec![
            Part::new(0, vec![7; 1000], false),
            Part::new(1, vec![7; 1000], false),
            Part::new(5000, vec![7; 10], false),
        ];
        run(&rings, &file, &mut parts);
        let done: Vec<bool> = parts.iter().map(|part| part.is_done).collect();
        assert_eq!(done, [has_rings(), false, false]);
        let read_only = File::open("/proc/self/exe").unwrap();
        let mut parts = vec![Part::new(0, vec![7; 10], true)];
        run(&rings, &read_only, &mut parts);
        assert!(!parts[0].is_done);
    }

    #[test]
    fn a_thread_without_a_ring_does_without() {
        let rings = Rings::refused();
        let mut parts = vec![Part::new(0, vec![7; 10], true)];
        run(&rings, &tempfile::tempfile().unwrap(), &mut parts);
        assert!(!parts[0].is_done);
    }

    #[test]
    fn rings_are_few_and_used_again() {
        let rings = Rings::new();
        let lent: Vec<_> = (0..=RINGS_MAX).map_while(|_| rings.lend()).collect();
        assert_eq!(lent.len(), if has_rings() { RINGS_MAX } else { 0 });
        drop(lent);
        assert_eq!(rings.lend().is_some(), has_rings());
    }

    /// A child would use its parent's queues.
    #[test]
    fn rings_of_another_process_are_left_alone() {
        let rings = Rings::new();
        rings.idle().made_by = Some(Process::other());
        assert!(rings.lend().is_none());
    }

    #[test]
    fn a_panic_waits_for_requests_in_flight() {
        let rings = Rings::new();
        let file = tempfile::tempfile().unwrap();
        let mut parts: Vec<Part> = (0..BATCH_MAX as u64)
            .map(|number| Part::new(number << 16, vec![1; 1 << 16], true))
            .collect();
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            if let Some(mut ring) = rings.lend() {
                ring.run(file.as_fd(), &mut parts, |_| panic!("an answer"));
            }
        }));
        assert_eq!(panics.is_err(), has_rings());
        let len = file.metadata().unwrap().len();
        assert_eq!(len, if has_rings() { 64 << 16 } else { 0 });
    }

    /// As if a filter of system calls let rings be created but not entered.
    #[test]
    fn requests_that_the_kernel_does_not_take_are_not_done() {
        let (Ok(mut ring), file) = (
            IoUring::new(BATCH_MAX as u32),
            tempfile::tempfile().unwrap(),
        ) else {
            return;
        };
        let mut parts = vec![Part::new(0, vec![7; 10], true)];
        let mut flight = Flight::begun(&mut ring, file.as_fd(), &mut parts);
        flight.is_broken = true;
        assert_eq!(flight.next(), None);
        drop(flight);
        drop(ring);
        assert_eq!(file.metadata().unwrap().len(), 0);
    }
}
