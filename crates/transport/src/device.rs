//! The door by `/dev/fuse`: threads that read requests and write answers.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::{self, NotifyInvalInode, OutHeader, feature};
use crate::count::RequestCounts;
use crate::dispatch::{Dispatcher, FileSystem};
use crate::init::{Agreement, REQUEST_MAX_BYTES, Wanted, agree, too_old};
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

impl Device {
    /// Reads a request, or returns `None` when the mount has ended.
    fn read<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(len) => return Ok(Some(&buffer[..len])),
                // `ENOENT`: its process has withdrawn the request.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::NODEV) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
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
        std::thread::scope(|scope| {
            let others = start_readers(scope, self.dispatcher, &self.device, threads);
            let outcome = self.serve();
            others.into_iter().fold(outcome, |outcome, other| {
                let ended = other
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a panic")));
                outcome.and(ended)
            })
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

/// Starts `threads - 1` threads that read requests.
fn start_readers<'s>(
    scope: &'s Scope<'s, '_>,
    dispatcher: Dispatcher<'s>,
    device: &Device,
    threads: usize,
) -> Vec<ScopedJoinHandle<'s, io::Result<()>>> {
    let start = |number: usize| {
        let device = Device(vellum_media::clone_fuse(&device.0)?);
        std::thread::Builder::new()
            .name(format!("vellum-fuse-{number}"))
            .spawn_scoped(scope, move || serve(dispatcher, &Arc::new(device)))
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

/// Serves the requests of one descriptor.
fn serve(dispatcher: Dispatcher<'_>, device: &Arc<Device>) -> io::Result<()> {
    let sink: Arc<dyn Sink> = Arc::clone(device) as Arc<dyn Sink>;
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Some(bytes) = device.read(&mut buffer)? {
        let (header, body) = split(bytes).ok_or_else(malformed)?;
        let fixed = body.len().min(fixed_len(header.opcode));
        let (argument, rest) = body.split_at(fixed);
        dispatcher.dispatch(&sink, &header, argument, rest);
    }
    Ok(())
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
