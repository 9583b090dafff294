//! The door by io_uring: a queue and a thread for each processor. A request is answered on the
//! processor that asks, or by a worker if the answer may wait.
//!
//! What comes by `/dev/fuse` beside it (lookups that are over, interrupts) is served as by that
//! door alone.

mod plan;
mod slot;

use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
use vellum_media::{FuseEvent, FuseQueue, FuseWaker, IdleFuseQueue};
use zerocopy::transmute;

use crate::abi::OutHeader;
use crate::dispatch::Dispatcher;
use crate::pace::Pace;
use plan::Plan;
use slot::{Back, Body, Done, Slot};

/// The queues of a connection, before they take requests.
pub(crate) struct Ring {
    plan: Plan,
    queues: Vec<IdleFuseQueue>,
}

/// What serves a connection, beside its queues.
pub(crate) trait Beside: Sync {
    /// Serves what comes by `/dev/fuse` until the connection has ended.
    fn serve(&self) -> io::Result<()>;

    /// Whether the connection has ended or ends just now.
    fn has_ended(&self) -> bool;

    /// Ends the connection.
    fn abort(&self);
}

/// What the threads of a connection share.
#[derive(Clone, Copy)]
struct Shared<'s> {
    dispatcher: Dispatcher<'s>,
    beside: &'s dyn Beside,
    has_ended: &'s AtomicBool,
}

impl Ring {
    /// Makes a queue for each processor.
    pub(crate) fn new(connection: impl AsFd) -> io::Result<Self> {
        let many = || io::Error::other("this machine may have too many processors");
        let plan = Plan::new().ok_or_else(many)?;
        let payload = plan.payload_bytes as usize;
        let queue = |number| IdleFuseQueue::new(connection.as_fd(), number, plan.slots, payload);
        Ok(Self {
            plan,
            queues: (0..plan.queues).map(queue).collect::<io::Result<_>>()?,
        })
    }

    /// The largest read or write request, in bytes.
    pub(crate) fn max_write(&self) -> u32 {
        self.plan.payload_bytes
    }

    /// Has requests answered by a thread for each queue, and `workers` more for those that may
    /// wait, until the connection has ended. If a thread fails, it ends the connection, because
    /// requests to its queue would wait for ever.
    pub(crate) fn run(
        self,
        dispatcher: Dispatcher<'_>,
        workers: usize,
        beside: &dyn Beside,
    ) -> io::Result<()> {
        let has_ended = AtomicBool::new(false);
        let shared = Shared {
            dispatcher,
            beside,
            has_ended: &has_ended,
        };
        let wakers: Vec<_> = self.queues.iter().map(IdleFuseQueue::waker).collect();
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            let started = self.start(scope, shared, workers, &mut threads);
            if started.is_err() {
                beside.abort();
            }
            let outcome = beside.serve().inspect_err(|_| beside.abort());
            has_ended.store(true, Ordering::Release);
            wakers.iter().for_each(FuseWaker::wake);
            threads
                .into_iter()
                .fold(started.and(outcome), |all, thread| {
                    let panicked = |_| Err(io::Error::other("a panic"));
                    all.and(thread.join().unwrap_or_else(panicked))
                })
        })
    }

    /// Starts the threads. Those that were started before a failure are in `threads`.
    fn start<'s>(
        self,
        scope: &'s Scope<'s, '_>,
        shared: Shared<'s>,
        workers: usize,
        threads: &mut Vec<ScopedJoinHandle<'s, io::Result<()>>>,
    ) -> io::Result<()> {
        let (jobs, taken): (_, Receiver<Arc<Slot>>) = unbounded();
        for number in 0..workers.max(1) {
            let taken = taken.clone();
            let work = move || {
                taken.iter().for_each(|slot| slot.answer(shared.dispatcher));
                Ok(())
            };
            let named = Builder::new().name(format!("vellum-work-{number}"));
            threads.push(named.spawn_scoped(scope, work)?);
        }
        for (number, queue) in self.queues.into_iter().enumerate() {
            let (jobs, slots) = (jobs.clone(), self.plan.slots);
            let work = move || {
                let serve = || serve(queue, number, slots, shared, &jobs);
                let ended = catch_unwind(AssertUnwindSafe(serve));
                shared.ended(ended.unwrap_or_else(|_| Err(io::Error::other("a panic"))))
            };
            let named = Builder::new().name(format!("vellum-ring-{number}"));
            threads.push(named.spawn_scoped(scope, work)?);
        }
        Ok(())
    }
}

impl Shared<'_> {
    /// The end of a queue. What the kernel refuses while the connection ends is no failure.
    fn ended(&self, ended: io::Result<()>) -> io::Result<()> {
        let Err(error) = ended else {
            return Ok(());
        };
        if self.has_ended.load(Ordering::Acquire) || self.beside.has_ended() {
            return Ok(());
        }
        tracing::error!(%error, "a queue of requests failed");
        self.beside.abort();
        Err(error)
    }
}

/// Answers the requests of a queue until the connection has ended.
fn serve(
    idle: IdleFuseQueue,
    number: usize,
    slots: usize,
    shared: Shared<'_>,
    jobs: &Sender<Arc<Slot>>,
) -> io::Result<()> {
    let mut cpu = CpuSet::new();
    cpu.set(number);
    // It fails for a processor that is absent, whose queue gets no requests.
    let _ = sched_setaffinity(None, &cpu);
    let back = Arc::new(Back::new(idle.waker()));
    let slots: Vec<_> = (0..slots).map(|slot| Slot::new(slot, &back)).collect();
    let mut queue = idle.start()?;
    let mut done = Vec::new();
    let mut pace = Pace::new();
    while !shared.has_ended.load(Ordering::Acquire) {
        back.take(&mut done);
        for done in done.drain(..) {
            give(&mut queue, &slots, done)?;
        }
        let event = match pace.look(|| queue.look())? {
            Some(event) => event,
            None => {
                let event = queue.wait()?;
                pace.waited();
                event
            }
        };
        if let FuseEvent::Request(request) = event {
            let slot = &slots[request.slot()];
            slot.put(request);
            let is_answered = slot.answer_if_quick(shared.dispatcher);
            if !is_answered && jobs.send(Arc::clone(slot)).is_err() {
                slot.answer(shared.dispatcher);
            }
        }
    }
    Ok(())
}

/// Returns an answer to the kernel.
fn give(queue: &mut FuseQueue, slots: &[Arc<Slot>], done: Done) -> io::Result<()> {
    let Some(mut request) = slots[done.slot].take() else {
        return Ok(());
    };
    let (mut header, mut len) = (done.header, 0);
    match done.body {
        Body::InPlace(filled) => len = filled,
        Body::Kept(bytes) => match request.buffer().get_mut(..bytes.len()) {
            Some(buffer) => {
                buffer.copy_from_slice(&bytes);
                len = bytes.len();
            }
            None => {
                let sent: OutHeader = transmute!(header);
                header = transmute!(OutHeader {
                    error: -Errno::IO.raw_os_error(),
                    ..sent
                });
            }
        },
    }
    queue.answer(request, &header, len)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::count::RequestCounts;
    use crate::dispatch::FileSystem;
    use crate::reply::Reply;
    use crate::request::Request;

    struct Nothing;

    impl FileSystem for Nothing {
        fn answer(&self, _: Request<'_>, _: Reply) {}

        fn may_wait(&self, _: &Request<'_>) -> bool {
            false
        }

        fn forget(&self, _: u64, _: u64) {}
    }

    /// A connection that ends when it is aborted.
    #[derive(Default)]
    struct Aborted(AtomicUsize);

    impl Beside for Aborted {
        fn serve(&self) -> io::Result<()> {
            while !self.has_ended() {
                std::thread::yield_now();
            }
            Ok(())
        }

        fn has_ended(&self) -> bool {
            self.0.load(Ordering::Acquire) > 0
        }

        fn abort(&self) {
            self.0.fetch_add(1, Ordering::AcqRel);
        }
    }

    #[test]
    fn a_queue_that_fails_ends_the_connection() {
        // It has no such queues.
        let (pipe, _) = std::io::pipe().expect("a pipe");
        let Ok(ring) = Ring::new(&pipe) else {
            // The kernel has no such rings, or does not permit them.
            return;
        };
        let counts = RequestCounts::default();
        let dispatcher = Dispatcher {
            file_system: &Nothing,
            counts: &counts,
        };
        let beside = Aborted::default();
        let ended = ring.run(dispatcher, 2, &beside);
        assert!(ended.is_err());
        assert!(beside.has_ended());
    }
}
