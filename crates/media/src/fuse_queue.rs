//! A queue of a FUSE connection by io_uring.
//!
//! The kernel has a queue for each processor. The thread of a queue submits *slots*, each with
//! memory for a request and its answer; the kernel completes a slot when there is a request, and
//! the answer submits it again. The kernel writes to the memory of a submitted slot while the
//! thread of the queue is inside a call of the ring, and never to that of a completed one. So a
//! completed slot is handed out as a [`FuseRequest`], which owns the memory and may be used on any
//! thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// The payload begins behind a page. The kernel uses the first [`HEADER_BYTES`] of that page.
const PAGE_BYTES: usize = 4096;
/// The header of the request or answer, the fixed argument, and [`COMMIT_AT`] and [`LEN_AT`].
const HEADER_BYTES: usize = 288;
/// The bytes of the header of a request or answer, and of the fixed argument.
const PART_BYTES: usize = 128;
/// Where the kernel puts the number by which it knows the request.
const COMMIT_AT: usize = 2 * PART_BYTES + 8;
/// Where the length of the payload is.
const LEN_AT: usize = 2 * PART_BYTES + 16;
/// The command that submits a slot for the first time.
const REGISTER: u32 = 1;
/// The command that submits a slot with an answer.
const COMMIT_AND_FETCH: u32 = 2;
/// The flag of a call of a ring that has it complete entries.
const GET_EVENTS: u32 = 1;
/// Where an entry of a ring has its `len`. The crate `io-uring` sets none in this kind of entry.
const ENTRY_LEN_AT: usize = 24;
/// How long the end of a queue waits for the kernel.
const LATE: Duration = Duration::from_millis(500);
/// The number of the completion of a wake-up.
const WAKE: u64 = u64::MAX;

/// Memory of a slot, at an address that stays.
struct Memory {
    at: NonNull<u8>,
    payload_bytes: usize,
}

// SAFETY: it owns the memory, to which nothing refers but the kernel (see the head of the file).
unsafe impl Send for Memory {}

impl Memory {
    fn new(payload_bytes: usize) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: new memory is mapped, at an address of the kernel's choice.
        let at = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                PAGE_BYTES + payload_bytes,
                protection,
                flags,
            )?
        };
        let at = NonNull::new(at.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { at, payload_bytes })
    }

    fn bytes(&self) -> &[u8] {
        let len = PAGE_BYTES + self.payload_bytes;
        // SAFETY: the mapping has `len` bytes, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let len = PAGE_BYTES + self.payload_bytes;
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), len) }
    }

    /// Its parts as the kernel wants them: headers, payload.
    fn parts(&self) -> [libc::iovec; 2] {
        let at = self.at.as_ptr();
        [
            libc::iovec {
                iov_base: at.cast(),
                iov_len: HEADER_BYTES,
            },
            libc::iovec {
                iov_base: at.wrapping_add(PAGE_BYTES).cast(),
                iov_len: self.payload_bytes,
            },
        ]
    }

    fn number<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut number = [0; N];
        number.copy_from_slice(&self.bytes()[at..at + N]);
        number
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let len = PAGE_BYTES + self.payload_bytes;
        // SAFETY: nothing refers to the mapping any more.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), len) };
    }
}

/// A request that is to be answered by [`FuseQueue::answer`]. If it is dropped, it never is, and
/// its slot is lost.
pub struct FuseRequest {
    slot: usize,
    memory: Memory,
}

impl FuseRequest {
    /// The number of its slot.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Its header, followed by anything.
    pub fn header(&self) -> [u8; PART_BYTES] {
        self.memory.number(0)
    }

    /// Its fixed argument, followed by anything.
    pub fn argument(&self) -> [u8; PART_BYTES] {
        self.memory.number(PART_BYTES)
    }

    /// The rest of its bytes.
    pub fn payload(&self) -> &[u8] {
        let len = u32::from_ne_bytes(self.memory.number(LEN_AT)) as usize;
        let payload = &self.memory.bytes()[PAGE_BYTES..];
        &payload[..len.min(payload.len())]
    }

    /// The memory for the bytes of its answer. The rest of the request is there.
    pub fn buffer(&mut self) -> &mut [u8] {
        &mut self.memory.bytes_mut()[PAGE_BYTES..]
    }
}

/// What a queue waits for.
pub enum FuseEvent {
    /// A request.
    Request(FuseRequest),
    /// [`FuseWaker::wake`] was called.
    Woken,
}

/// Wakes the thread of a queue, from any thread.
#[derive(Clone)]
pub struct FuseWaker(Arc<OwnedFd>);

impl FuseWaker {
    /// Lets the queue return [`FuseEvent::Woken`].
    pub fn wake(&self) {
        // It fails only if the queue has not seen 2^64 calls.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Forgets the calls so far.
    fn take(&self) {
        // It fails only if there was none.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// A queue that takes no requests yet.
pub struct IdleFuseQueue {
    ring: IoUring<Entry128, cqueue::Entry>,
    number: u16,
    memory: Vec<Memory>,
    waker: FuseWaker,
}

/// A queue that takes requests. It stays on the thread that started it.
pub struct FuseQueue {
    ring: IoUring<Entry128, cqueue::Entry>,
    number: u16,
    /// The memory of submitted slots.
    submitted: Vec<Option<Memory>>,
    /// Where the memory of each slot is.
    memory_at: Vec<NonNull<u8>>,
    waker: FuseWaker,
}

/// The command of a slot. `parts`: its memory, at the first time.
fn command(number: u16, command: u32, commit: u64, slot: usize, parts: Option<u64>) -> Entry128 {
    let mut area = [0; 80];
    area[8..16].copy_from_slice(&commit.to_ne_bytes());
    area[16..18].copy_from_slice(&number.to_ne_bytes());
    let built = opcode::UringCmd80::new(types::Fixed(0), command)
        .cmd(area)
        .addr(parts)
        .build();
    built.user_data(slot as u64)
}

impl IdleFuseQueue {
    /// Queue `number` of a connection, with `slots` slots whose payloads have `payload_bytes`.
    ///
    /// # Errors
    /// Fails if the kernel has no such rings, does not permit them, or has no memory.
    pub fn new(
        connection: impl AsFd,
        number: u16,
        slots: usize,
        payload_bytes: usize,
    ) -> io::Result<Self> {
        let entries = (slots as u32 + 1).next_power_of_two();
        let ring = IoUring::<Entry128, cqueue::Entry>::builder()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(entries)?;
        ring.submitter()
            .register_files(&[connection.as_fd().as_raw_fd()])?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let waker = rustix::event::eventfd(0, flags)?;
        let memory = (0..slots).map(|_| Memory::new(payload_bytes));
        Ok(Self {
            ring,
            number,
            memory: memory.collect::<io::Result<_>>()?,
            waker: FuseWaker(Arc::new(waker)),
        })
    }

    /// What wakes this queue.
    pub fn waker(&self) -> FuseWaker {
        self.waker.clone()
    }

    /// Takes requests from now on, on this thread.
    ///
    /// # Errors
    /// Fails if the operating system does. Errors of single slots are returned by
    /// [`FuseQueue::wait`].
    pub fn start(self) -> io::Result<FuseQueue> {
        let Self {
            ring,
            number,
            memory,
            waker,
        } = self;
        ring.submitter().register_enable_rings()?;
        let parts: Vec<_> = memory.iter().map(Memory::parts).collect();
        let mut queue = FuseQueue {
            ring,
            number,
            memory_at: memory.iter().map(|memory| memory.at).collect(),
            submitted: memory.into_iter().map(Some).collect(),
            waker,
        };
        for (slot, parts) in parts.iter().enumerate() {
            queue.push(&register(number, slot, parts))?;
        }
        queue.expect_wake()?;
        // The kernel reads `parts` during this call.
        queue.ring.submit()?;
        Ok(queue)
    }
}

/// The first command of a slot.
fn register(number: u16, slot: usize, parts: &[libc::iovec; 2]) -> Entry128 {
    let mut entry = command(number, REGISTER, 0, slot, Some(parts.as_ptr() as u64));
    // SAFETY: an entry has 128 bytes, and `len`, a `u32`, is at this offset of the kernel's
    // `io_uring_sqe`.
    unsafe {
        let len = (&raw mut entry)
            .cast::<u8>()
            .add(ENTRY_LEN_AT)
            .cast::<u32>();
        len.write(parts.len() as u32);
    }
    entry
}

impl FuseQueue {
    fn push(&mut self, entry: &Entry128) -> io::Result<()> {
        // SAFETY: the memory of submitted slots lives until the kernel has completed them (see
        // `drop`), and a wake-up has no memory.
        unsafe { self.ring.submission().push(entry) }.map_err(io::Error::other)
    }

    fn expect_wake(&mut self) -> io::Result<()> {
        let descriptor = types::Fd(self.waker.0.as_raw_fd());
        let poll = opcode::PollAdd::new(descriptor, libc::POLLIN as u32);
        self.push(&poll.build().user_data(WAKE).into())
    }

    /// Waits for a request, and submits the slots of answered ones.
    ///
    /// # Errors
    /// Fails if the kernel refuses a slot, as it does when the connection has ended. If it has not,
    /// it has to be ended then, because requests to this queue would wait for ever.
    pub fn wait(&mut self) -> io::Result<FuseEvent> {
        loop {
            if let Some(event) = self.enter(1)? {
                return Ok(event);
            }
        }
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// As [`FuseQueue::wait`].
    pub fn look(&mut self) -> io::Result<Option<FuseEvent>> {
        self.enter(0)
    }

    /// Has the kernel submit and complete slots, until `least` are completed. Returns the first.
    fn enter(&mut self, least: u32) -> io::Result<Option<FuseEvent>> {
        let submitted = self.ring.submission().len() as u32;
        // Also with completions at hand: the kernel hands idle slots out only in this call.
        if submitted > 0 || self.ring.completion().is_empty() {
            let submitter = self.ring.submitter();
            // SAFETY: it is passed no signals. For the submitted entries, see `push`.
            let entered =
                unsafe { submitter.enter::<libc::sigset_t>(submitted, least, GET_EVENTS, None) };
            match entered {
                Err(error) if !is_passing(&error) => return Err(error),
                _ => {}
            }
        }
        let Some(done) = self.ring.completion().next() else {
            return Ok(None);
        };
        if done.user_data() == WAKE {
            self.waker.take();
            self.expect_wake()?;
            return Ok(Some(FuseEvent::Woken));
        }
        let slot = done.user_data() as usize;
        let memory = self.submitted.get_mut(slot).and_then(Option::take);
        let memory = memory.ok_or(Errno::IO)?;
        if done.result() < 0 {
            return Err(io::Error::from_raw_os_error(-done.result()));
        }
        Ok(Some(FuseEvent::Request(FuseRequest { slot, memory })))
    }

    /// Answers a request with a header and the first `len` bytes of its buffer.
    ///
    /// # Errors
    /// As [`FuseQueue::wait`].
    ///
    /// # Panics
    /// If the request is not of this queue.
    pub fn answer(
        &mut self,
        mut request: FuseRequest,
        header: &[u8; 16],
        len: usize,
    ) -> io::Result<()> {
        let slot = request.slot;
        assert_eq!(self.memory_at.get(slot), Some(&request.memory.at));
        let bytes = request.memory.bytes_mut();
        bytes[..header.len()].copy_from_slice(header);
        bytes[LEN_AT..LEN_AT + 4].copy_from_slice(&(len as u32).to_ne_bytes());
        let commit = u64::from_ne_bytes(request.memory.number(COMMIT_AT));
        self.submitted[slot] = Some(request.memory);
        self.push(&command(self.number, COMMIT_AND_FETCH, commit, slot, None))
    }
}

/// Whether a call of a ring may succeed when it is repeated.
fn is_passing(error: &io::Error) -> bool {
    let passing = [Errno::INTR, Errno::AGAIN, Errno::BUSY];
    Errno::from_io_error(error).is_some_and(|errno| passing.contains(&errno))
}

impl Drop for FuseQueue {
    /// The kernel may still complete slots after a ring is closed. So this waits for them, which is
    /// short if the connection has ended, and leaks the memory of those that are late.
    fn drop(&mut self) {
        let until = Instant::now() + LATE;
        while self.submitted.iter().any(Option::is_some) && Instant::now() < until {
            let pause = types::Timespec::new().nsec(LATE.subsec_nanos() / 10);
            let args = types::SubmitArgs::new().timespec(&pause);
            // A time-out is an error.
            let _ = self.ring.submitter().submit_with_args(1, &args);
            for done in self.ring.completion() {
                if let Some(slot) = self.submitted.get_mut(done.user_data() as usize) {
                    *slot = None;
                }
            }
        }
        self.submitted.drain(..).for_each(std::mem::forget);
    }
}
