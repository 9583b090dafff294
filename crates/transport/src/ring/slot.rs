//! A request by io_uring, from its arrival to its answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::ThreadId;

use rustix::io::Errno;
use vellum_media::{FuseRequest, FuseWaker};
use zerocopy::{FromBytes, transmute};

use crate::abi::{InHeader, OutHeader, opcode};
use crate::dispatch::Dispatcher;
use crate::reply::Sink;

/// A finished request.
pub(super) struct Done {
    pub(super) slot: usize,
    pub(super) header: [u8; 16],
    pub(super) body: Body,
}

/// The bytes of an answer.
pub(super) enum Body {
    /// The first bytes of the request's buffer.
    InPlace(usize),
    /// These, because the request itself was still in the buffer.
    Kept(Vec<u8>),
}

/// The way from answers to the queue's thread.
pub(super) struct Back {
    done: Mutex<Vec<Done>>,
    waker: FuseWaker,
    /// The queue's thread.
    thread: ThreadId,
}

impl Back {
    /// Of a queue whose thread is this one.
    pub(super) fn new(waker: FuseWaker) -> Self {
        Self {
            done: Mutex::default(),
            waker,
            thread: std::thread::current().id(),
        }
    }

    fn push(&self, done: Done) {
        let mut all = locked(&self.done);
        let is_first = all.is_empty();
        all.push(done);
        drop(all);
        // The queue's thread itself takes it before it waits.
        if is_first && std::thread::current().id() != self.thread {
            self.waker.wake();
        }
    }

    /// Exchanges the finished requests for an empty list.
    pub(super) fn take(&self, empty: &mut Vec<Done>) {
        std::mem::swap(&mut *locked(&self.done), empty);
    }
}

/// Where a request is while it is answered.
pub(super) struct Slot {
    number: usize,
    request: Mutex<Option<FuseRequest>>,
    back: Arc<Back>,
}

impl Slot {
    pub(super) fn new(number: usize, back: &Arc<Back>) -> Arc<Self> {
        Arc::new(Self {
            number,
            request: Mutex::new(None),
            back: Arc::clone(back),
        })
    }

    /// A request has arrived.
    pub(super) fn put(&self, request: FuseRequest) {
        *locked(&self.request) = Some(request);
    }

    /// The request is finished. Waits for the end of its handler, whose last act is the answer.
    pub(super) fn take(&self) -> Option<FuseRequest> {
        locked(&self.request).take()
    }

    /// Has the request answered, on this thread.
    pub(super) fn answer(self: &Arc<Self>, dispatcher: Dispatcher<'_>) {
        self.dispatch(|sink, header, argument, rest| {
            dispatcher.dispatch(sink, header, argument, rest);
        });
    }

    /// The same unless the answer may wait. Returns whether the request is answered.
    pub(super) fn answer_if_quick(self: &Arc<Self>, dispatcher: Dispatcher<'_>) -> bool {
        let answered = self.dispatch(|sink, header, argument, rest| {
            dispatcher.dispatch_if_quick(sink, header, argument, rest)
        });
        answered.unwrap_or(true)
    }

    /// Passes the request to `run`, if there is one.
    fn dispatch<T>(
        self: &Arc<Self>,
        run: impl FnOnce(&Arc<dyn Sink>, &InHeader, &[u8], &[u8]) -> T,
    ) -> Option<T> {
        let sink: Arc<dyn Sink> = Arc::clone(self) as Arc<dyn Sink>;
        let request = locked(&self.request);
        let (header, argument, rest) = request.as_ref().and_then(parts)?;
        if has_rest(header.opcode) {
            return Some(run(&sink, &header, &argument, rest));
        }
        // The answer may be written into the buffer.
        drop(request);
        Some(run(&sink, &header, &argument, &[]))
    }

    /// Passes the buffer of the request to `fill` if the request is not in it.
    fn with_buffer<T>(&self, fill: impl FnOnce(Option<&mut [u8]>) -> T) -> T {
        match self.request.try_lock() {
            Ok(mut request) => fill(request.as_mut().map(FuseRequest::buffer)),
            Err(TryLockError::Poisoned(poisoned)) => {
                fill(poisoned.into_inner().as_mut().map(FuseRequest::buffer))
            }
            Err(TryLockError::WouldBlock) => fill(None),
        }
    }

    fn finish(&self, header: OutHeader, body: Body) {
        self.back.push(Done {
            slot: self.number,
            header: transmute!(header),
            body,
        });
    }
}

impl Sink for Slot {
    fn send(&self, header: OutHeader, body: [&[u8]; 2]) -> Result<(), Errno> {
        let len = body[0].len() + body[1].len();
        let sent = self.with_buffer(|buffer| match buffer.and_then(|b| b.get_mut(..len)) {
            Some(buffer) => {
                let (first, second) = buffer.split_at_mut(body[0].len());
                first.copy_from_slice(body[0]);
                second.copy_from_slice(body[1]);
                Body::InPlace(len)
            }
            None => Body::Kept(body.concat()),
        });
        self.finish(header, sent);
        Ok(())
    }

    fn fill(
        &self,
        size: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<usize, Errno>,
    ) -> Option<Result<usize, Errno>> {
        self.with_buffer(|buffer| buffer.and_then(|b| b.get_mut(..size)).map(fill))
    }

    fn send_filled(&self, header: OutHeader, len: usize) {
        self.finish(header, Body::InPlace(len));
    }
}

/// Whether the rest of a request has something.
fn has_rest(opcode: u32) -> bool {
    !matches!(
        opcode,
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS | opcode::GETATTR
    )
}

/// Header, argument and rest.
fn parts(request: &FuseRequest) -> Option<(InHeader, [u8; 128], &[u8])> {
    let (header, _) = InHeader::read_from_prefix(&request.header()).ok()?;
    Some((header, request.argument(), request.payload()))
}

/// Locks what a panic leaves consistent.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
