//! The door by `/dev/fuse`: threads that read requests and write answers.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle, available_parallelism};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::{self, InHeader, NotifyInvalInode, OutHeader, feature};
use crate::count::RequestCounts;
use crate::dispatch::{Dispatcher, FileSystem};
use crate::init::{Agreement, REQUEST_MAX_BYTES, Wanted, agree, too_old};
use crate::pace::Pace;
use crate::readers::{Leave, Next, Readers};
use crate::reply::{Reply, Sink};
use crate::request::{Message, fixed_len, message, split};
use crate::ring::{Beside, Ring};

/// The size of the buffer of a thread: the largest write, and space for what precedes its data.
const BUFFER_BYTES: usize = REQUEST_MAX_BYTES as usize + 4096;

/// How long a connection takes to end that has begun to.
const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// A descriptor of a connection. Each has its own queue of requests in flight, so that threads do
/// not wait for each other.
struct Device(OwnedFd);

/// What a descriptor returns.
enum Read {
    /// A request, and its length in bytes.
    Request(usize),
    /// The mount has ended.
    Ended,
}

impl Device {
    /// Waits for a request, or returns `None` when the mount has ended.
    fn read<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        loop {
            match self.look(buffer)? {
                Some(Read::Request(len)) => return Ok(Some(&buffer[..len])),
                Some(Read::Ended) => return Ok(None),
                None => {}
            }
        }
    }

    /// Reads a request. `None`: there is none, and the descriptor does not wait.
    fn look(&self, buffer: &mut [u8]) -> io::Result<Option<Read>> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(len) => return Ok(Some(Read::Request(len))),
                Err(Errno::AGAIN) => return Ok(None),
                // `ENOENT`: its process has withdrawn the request.
                Err(Errno::NOENT | Errno::INTR) => {}
                Err(Errno::NODEV) => return Ok(Some(Read::Ended)),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// One more descriptor of the connection.
    fn another(&self) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self(vellum_media::clone_fuse(&self.0)?)))
    }

    /// The same; its reads return at once.
    fn another_that_looks(&self) -> io::Result<Arc<Self>> {
        let other = self.another()?;
        let flags = rustix::fs::fcntl_getfl(&other.0)?;
        rustix::fs::fcntl_setfl(&other.0, flags | OFlags::NONBLOCK)?;
        Ok(other)
    }
}

impl Sink for Device {
    fn send(&self, header: OutHeader, body: [&[u8]; 2]) -> Result<(), Errno> {
        let parts = [header.as_bytes(), body[0], body[1]].map(IoSlice::new);
        rustix::io::writev(&self.0, &parts).map(drop)
    }
}

/// A connection that has agreed with the kernel.
pub struct Session {
    device: Arc<Device>,
    ring: Option<Ring>,
    counts: Arc<RequestCounts>,
}

/// The way of requests from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Threads read them from `/dev/fuse`.
    Device,
    /// A queue for each processor.
    Ring,
}

impl Door {
    /// The name in texts and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "/dev/fuse",
            Self::Ring => "io_uring",
        }
    }
}

/// Tells the kernel of changes.
#[derive(Clone)]
pub struct Notifier(Arc<Device>);

fn without_ring(error: &io::Error) {
    tracing::warn!(%error, "cannot make the queues of io_uring: requests come by /dev/fuse");
}

fn malformed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the kernel sent a malformed request",
    )
}

impl Session {
    /// Agrees with the kernel on the protocol.
    ///
    /// # Errors
    /// Fails if the kernel is too old, or if the mount has ended.
    pub fn start(connection: OwnedFd, wanted: Wanted) -> io::Result<Self> {
        let device = Arc::new(Device(connection));
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let Some(bytes) = device.read(&mut buffer)? else {
                return Err(io::ErrorKind::NotConnected.into());
            };
            let (header, body) = split(bytes).ok_or_else(malformed)?;
            let (argument, rest) = body
                .split_at_checked(fixed_len(header.opcode))
                .ok_or_else(malformed)?;
            let Ok(Message::Init(asked, more)) = message(&header, argument, rest) else {
                return Err(malformed());
            };
            let reply = Reply::new(header.unique, Arc::clone(&device) as Arc<dyn Sink>);
            let offered = more & feature::OVER_IO_URING != 0;
            // Before the kernel counts on them.
            let ring = match offered && wanted.ring {
                true => Ring::new(&device.0).inspect_err(without_ring).ok(),
                false => None,
            };
            match agree(&asked, wanted, ring.as_ref().map(Ring::max_write)) {
                Agreement::Agreed(out) => {
                    reply.data(out.as_bytes());
                    let (major, minor) = (asked.major, asked.minor);
                    let features = format_args!("{:#x}", out.features);
                    tracing::debug!(major, minor, %features, "agreed with the kernel on FUSE");
                    let counts = Arc::default();
                    return Ok(Self {
                        device,
                        ring,
                        counts,
                    });
                }
                Agreement::AskAgain(out) => reply.data(out.as_bytes()),
                Agreement::TooOld(errno) => {
                    reply.error(errno);
                    return Err(io::Error::new(io::ErrorKind::Unsupported, too_old(&asked)));
                }
            }
        }
    }

    /// What tells the kernel of changes.
    pub fn notifier(&self) -> Notifier {
        Notifier(Arc::clone(&self.device))
    }

    /// The way of its requests.
    pub fn door(&self) -> Door {
        match self.ring {
            Some(_) => Door::Ring,
            None => Door::Device,
        }
    }

    /// The counts of its requests.
    pub fn counts(&self) -> Arc<RequestCounts> {
        Arc::clone(&self.counts)
    }

    /// Serves requests, on this thread and `threads - 1` more, until the mount has ended. By
    /// io_uring, there is a thread for each processor, and `threads` for requests that may wait.
    ///
    /// `abort` has to end the connection. It is called if a thread fails whose requests would wait
    /// for ever.
    ///
    /// # Errors
    /// Fails if requests cannot be read.
    pub fn run(
        self,
        file_system: &dyn FileSystem,
        threads: usize,
        abort: &(dyn Fn() + Sync),
    ) -> io::Result<()> {
        let Self {
            device,
            ring,
            counts,
        } = self;
        let dispatcher = Dispatcher {
            file_system,
            counts: &counts,
        };
        let served = Served {
            device,
            dispatcher,
            abort,
        };
        match ring {
            Some(ring) => ring.run(dispatcher, threads, &served),
            None => served.by_threads(threads),
        }
    }
}

/// A connection that is served.
struct Served<'s> {
    device: Arc<Device>,
    dispatcher: Dispatcher<'s>,
    abort: &'s (dyn Fn() + Sync),
}

impl Served<'_> {
    fn by_threads(&self, threads: usize) -> io::Result<()> {
        let readers = Readers::new(available_parallelism().map_or(1, usize::from));
        std::thread::scope(|scope| {
            let others = self.start_readers(scope, &readers, threads);
            let outcome = self.read(&self.device, &readers, Next::Read);
            others.into_iter().fold(outcome, |outcome, other| {
                let panicked = |_| Err(io::Error::other("a panic"));
                outcome.and(other.join().unwrap_or_else(panicked))
            })
        })
    }

    /// Starts `threads - 1` threads that read requests.
    fn start_readers<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        readers: &'s Readers<Held>,
        threads: usize,
    ) -> Vec<ScopedJoinHandle<'s, io::Result<()>>> {
        let start = |number: usize| {
            let device = self.device.another()?;
            std::thread::Builder::new()
                .name(format!("vellum-fuse-{number}"))
                .spawn_scoped(scope, move || self.read(&device, readers, readers.begin()))
        };
        let mut others = Vec::new();
        for number in 1..threads {
            match start(number) {
                Ok(other) => others.push(other),
                Err(error) => {
                    tracing::warn!(%error, number, "the mount has fewer threads than wanted");
                    break;
                }
            }
        }
        others
    }

    /// Serves requests, and `next` before. If it fails, it ends the connection: no other thread
    /// may read.
    fn read(
        &self,
        device: &Arc<Device>,
        readers: &Readers<Held>,
        next: Next<Held>,
    ) -> io::Result<()> {
        let run = || {
            let mut reader = Reader {
                dispatcher: self.dispatcher,
                readers,
                waits: Arc::clone(device),
                looks: device.another_that_looks()?,
                buffer: vec![0; BUFFER_BYTES],
            };
            reader.run(next)
        };
        let ended = catch_unwind(AssertUnwindSafe(run));
        readers.end();
        let ended = ended.unwrap_or_else(|_| Err(io::Error::other("a panic")));
        ended.inspect_err(|error| {
            tracing::error!(%error, "a thread that reads requests failed");
            (self.abort)();
        })
    }
}

impl Beside for Served<'_> {
    fn serve(&self) -> io::Result<()> {
        serve(self.dispatcher, &self.device)
    }

    fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.device.0, PollFlags::empty())];
        let polled = poll(&mut polled, Some(&AT_ONCE)).map(|_| polled[0].revents());
        polled.is_ok_and(|events| events.contains(PollFlags::ERR))
    }

    fn abort(&self) {
        (self.abort)();
    }
}

/// Serves the requests of one descriptor.
fn serve(dispatcher: Dispatcher<'_>, device: &Arc<Device>) -> io::Result<()> {
    let sink: Arc<dyn Sink> = Arc::clone(device) as Arc<dyn Sink>;
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Some(bytes) = device.read(&mut buffer)? {
        let (header, argument, rest) = parts(bytes)?;
        dispatcher.dispatch(&sink, &header, argument, rest);
    }
    Ok(())
}

/// Header, argument and rest of a request.
fn parts(bytes: &[u8]) -> io::Result<(InHeader, &[u8], &[u8])> {
    let (header, body) = split(bytes).ok_or_else(malformed)?;
    let fixed = body.len().min(fixed_len(header.opcode));
    let (argument, rest) = body.split_at(fixed);
    Ok((header, argument, rest))
}

/// A request that waits for a thread. Its answer goes to the descriptor that it came from.
struct Held {
    device: Arc<Device>,
    bytes: Vec<u8>,
}

/// If so many requests one after the other are there already, one thread cannot keep up.
const CROWD: u32 = 16;

/// A thread that reads requests.
struct Reader<'s> {
    dispatcher: Dispatcher<'s>,
    readers: &'s Readers<Held>,
    /// Its descriptor that waits, and the one that does not.
    waits: Arc<Device>,
    looks: Arc<Device>,
    buffer: Vec<u8>,
}

impl Reader<'_> {
    fn run(&mut self, mut next: Next<Held>) -> io::Result<()> {
        let mut pace = Pace::new();
        let mut crowd = 0;
        loop {
            next = match next {
                Next::Read => self.read(&mut pace, &mut crowd)?,
                Next::Serve(held) => {
                    let (header, argument, rest) = parts(&held.bytes)?;
                    let sink = held.device as Arc<dyn Sink>;
                    self.dispatcher.dispatch(&sink, &header, argument, rest);
                    self.readers.come_back()
                }
                Next::End => return Ok(()),
            }
        }
    }

    /// Reads a request and serves it. `crowd` counts requests that were there already.
    fn read(&mut self, pace: &mut Pace, crowd: &mut u32) -> io::Result<Next<Held>> {
        let mut looks = 0;
        let found = pace.look(|| {
            looks += 1;
            self.looks.look(&mut self.buffer)
        })?;
        *crowd = if looks == 1 && found.is_some() {
            *crowd + 1
        } else {
            0
        };
        if *crowd == CROWD {
            *crowd = 0;
            self.readers.call_another();
        }
        let (read, device) = match found {
            Some(read) => (read, &self.looks),
            None => match self.readers.pause(pace.is_taken()) {
                Next::Read => {
                    let Some(read) = self.waits.look(&mut self.buffer)? else {
                        return Ok(Next::Read);
                    };
                    pace.waited();
                    (read, &self.waits)
                }
                instead => return Ok(instead),
            },
        };
        match read {
            Read::Request(len) => self.serve(device, &self.buffer[..len]),
            Read::Ended => Ok(Next::End),
        }
    }

    /// Serves a request of a descriptor, unless another thread has to.
    fn serve(&self, device: &Arc<Device>, bytes: &[u8]) -> io::Result<Next<Held>> {
        let (header, argument, rest) = parts(bytes)?;
        let sink = Arc::clone(device) as Arc<dyn Sink>;
        let dispatcher = self.dispatcher;
        if dispatcher.dispatch_if_quick(&sink, &header, argument, rest) {
            return Ok(Next::Read);
        }
        let hold = || Held {
            device: Arc::clone(device),
            bytes: bytes.to_vec(),
        };
        let leave = self.readers.leave(hold);
        if leave != Leave::Held {
            dispatcher.dispatch(&sink, &header, argument, rest);
        }
        Ok(match leave {
            Leave::Away => self.readers.come_back(),
            Leave::Alone | Leave::Held => Next::Read,
        })
    }
}

impl Notifier {
    /// Makes the kernel drop its cached pages of a range of a file. It waits for pages that are
    /// being read or written, so no thread that serves requests may call this.
    ///
    /// # Errors
    /// Fails if the kernel does not know the file, or if the mount has ended.
    pub fn drop_pages(&self, node: u64, offset: u64, len: u64) -> io::Result<()> {
        self.invalidate(node, offset as i64, len as i64)
    }

    /// Makes the kernel drop its cached attributes of a file.
    ///
    /// # Errors
    /// As [`Notifier::drop_pages`].
    pub fn drop_attributes(&self, node: u64) -> io::Result<()> {
        self.invalidate(node, -1, 0)
    }

    fn invalidate(&self, node: u64, offset: i64, len: i64) -> io::Result<()> {
        let body = NotifyInvalInode { node, offset, len };
        let header = OutHeader {
            len: (size_of::<OutHeader>() + size_of::<NotifyInvalInode>()) as u32,
            error: abi::NOTIFY_INVAL_INODE,
            unique: 0,
        };
        Ok(self.0.send(header, [body.as_bytes(), &[]])?)
    }
}
