//! The door by `/dev/fuse`: threads that read requests and write answers.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::{self, NotifyInvalInode, OutHeader};
use crate::dispatch::{FileSystem, dispatch};
use crate::init::{Agreement, REQUEST_MAX_BYTES, agree, too_old};
use crate::reply::{Reply, Sink};
use crate::request::{Message, fixed_len, message, split};

/// The size of the buffer of a thread: the largest write, and space for what precedes its data.
const BUFFER_BYTES: usize = REQUEST_MAX_BYTES as usize + 4096;

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
pub struct Session(Arc<Device>);

/// Tells the kernel of changes.
pub struct Notifier(Arc<Device>);

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
    pub fn start(connection: OwnedFd) -> io::Result<Self> {
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
            let Ok(Message::Init(asked)) = message(&header, argument, rest) else {
                return Err(malformed());
            };
            let reply = Reply::new(header.unique, Arc::clone(&device) as Arc<dyn Sink>);
            match agree(&asked) {
                Agreement::Agreed(out) => {
                    reply.data(out.as_bytes());
                    let (major, minor) = (asked.major, asked.minor);
                    let features = format_args!("{:#x}", out.features);
                    tracing::debug!(major, minor, %features, "agreed with the kernel on FUSE");
                    return Ok(Self(device));
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
        Notifier(Arc::clone(&self.0))
    }

    /// Serves requests, on this thread and `threads - 1` more, until the mount has ended.
    ///
    /// # Errors
    /// Fails if requests cannot be read.
    pub fn run(self, file_system: &dyn FileSystem, threads: usize) -> io::Result<()> {
        std::thread::scope(|scope| {
            let start = |number: usize| {
                let device = Device(vellum_media::clone_fuse(&self.0.0)?);
                std::thread::Builder::new()
                    .name(format!("vellum-fuse-{number}"))
                    .spawn_scoped(scope, move || serve(file_system, &Arc::new(device)))
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
            let outcome = serve(file_system, &self.0);
            others.into_iter().fold(outcome, |outcome, other| {
                let ended = other
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a panic")));
                outcome.and(ended)
            })
        })
    }
}

/// Serves the requests of one descriptor.
fn serve(file_system: &dyn FileSystem, device: &Arc<Device>) -> io::Result<()> {
    let sink: Arc<dyn Sink> = Arc::clone(device) as Arc<dyn Sink>;
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Some(bytes) = device.read(&mut buffer)? {
        let (header, body) = split(bytes).ok_or_else(malformed)?;
        let fixed = body.len().min(fixed_len(header.opcode));
        let (argument, rest) = body.split_at(fixed);
        dispatch(file_system, &sink, &header, argument, rest);
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
        let body = NotifyInvalInode {
            node,
            offset: offset as i64,
            len: len as i64,
        };
        let header = OutHeader {
            len: (size_of::<OutHeader>() + size_of::<NotifyInvalInode>()) as u32,
            error: abi::NOTIFY_INVAL_INODE,
            unique: 0,
        };
        Ok(self.0.send(header, [body.as_bytes(), &[]])?)
    }
}
