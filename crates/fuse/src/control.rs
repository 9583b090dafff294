//! The control channel of a mounted file system: requests by an ioctl on its root.
//!
//! An answer is JSON text of any length, but an ioctl carries 8 KiB. So a request names the offset
//! from which it wants the text. The mount keeps the last text that did not fit, under a token.

mod quotas;

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use vellum::media::{CONTROL_BYTES, CONTROL_IOCTL, control};
use vellum::{CopyScope, Cred};
use vellum_transport::{Door, RequestCounts};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::mounts;
use crate::session::Stopper;
use crate::set_ids::Changer;

pub use quotas::{LimitsChange, QuotaRequest};

/// A request to a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    /// What the mount serves, and how. Any user may request this.
    Information,
    /// The areas of the namespace adaptive. Only the superuser and the user of the mount's process
    /// may request this and evolving, because the answers show every directory.
    Areas,
    /// Runs rounds of evolving and returns their result.
    Evolve {
        /// The number of rounds. `None`: until nothing is left to do.
        rounds: Option<u64>,
    },
    /// Shows or changes quotas. Any user may request this; whoever answers decides by the
    /// credentials.
    Quota(QuotaRequest),
    /// Makes the pool as large as this many bytes. For the superuser and the user of the mount's
    /// process.
    Grow {
        /// The new size of the pool.
        bytes: u64,
    },
    /// Gives the space of free blocks back. For the same users.
    Trim {
        /// The shortest run of free bytes.
        least_bytes: u64,
    },
    /// Begins to copy the pool into an empty file of the caller. For the same users.
    Copy(CopyRequest),
    /// How far a copy is. For the same users.
    CopyState {
        /// Which one.
        id: u64,
    },
}

/// A request to copy the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRequest {
    /// What is copied.
    pub scope: CopyScope,
    /// The file, by the caller's descriptor.
    pub fd: u32,
    /// The caller, as the mount's process sees it; 0: not at all. Whoever sends the request need
    /// not know it.
    pub pid: u32,
}

impl CopyRequest {
    /// Bit of the argument: only metadata are copied. The descriptor is below.
    const METADATA: u64 = 1 << 32;

    fn argument(self) -> u64 {
        let scope = match self.scope {
            CopyScope::Whole => 0,
            CopyScope::Metadata => Self::METADATA,
        };
        scope | u64::from(self.fd)
    }

    fn of(argument: u64, pid: u32) -> Self {
        let scope = match argument & Self::METADATA {
            0 => CopyScope::Whole,
            _ => CopyScope::Metadata,
        };
        Self {
            scope,
            fd: argument as u32,
            pid,
        }
    }
}

/// The connection to the kernel that a request came by.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The way of the kernel's requests.
    pub door: Door,
    /// Their counts.
    pub counts: Arc<RequestCounts>,
}

/// Answers requests of a user, as JSON. The user of the mount's process is privileged, too.
pub type Answers =
    dyn Fn(ControlRequest, &Cred, &Connection) -> vellum::Result<String> + Send + Sync;

/// The bytes of a request, followed by those about quotas ([`quotas::Body`]) and by zeros.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RequestHead {
    number: u64,
    argument: u64,
    /// The token of the answer that is to be continued; 0: a new request.
    token: u64,
    /// The offset of the wanted part in the answer.
    from: u64,
}

/// The header of a part of an answer.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct ReplyHead {
    /// The length of the whole answer.
    len: u64,
    /// The token for requesting the rest.
    token: u64,
}

/// The ioctl number that ends the mount at once. It is not a request.
const STOP: u64 = 4;
/// The number of all requests about quotas.
const QUOTA: u64 = 5;
/// The bytes of an answer that one exchange carries.
const PART_BYTES: usize = CONTROL_BYTES - size_of::<ReplyHead>();
/// How often a request is repeated when the requests of others replaced its answer.
const TRIES: usize = 16;

impl ControlRequest {
    fn sent_head(self) -> RequestHead {
        let (number, argument) = match self {
            Self::Information => (1, 0),
            Self::Areas => (2, 0),
            Self::Evolve { rounds } => (3, rounds.map_or(0, |rounds| rounds.saturating_add(1))),
            Self::Quota(_) => (QUOTA, 0),
            Self::Grow { bytes } => (6, bytes),
            Self::Trim { least_bytes } => (7, least_bytes),
            Self::Copy(request) => (8, request.argument()),
            Self::CopyState { id } => (9, id),
        };
        RequestHead {
            number,
            argument,
            ..RequestHead::default()
        }
    }

    fn sent_body(self) -> quotas::Body {
        match self {
            Self::Quota(request) => request.body(),
            _ => quotas::Body::default(),
        }
    }

    /// The request of process `pid` with this head, and with these bytes behind it.
    fn of(sent_head: &RequestHead, rest: &[u8], pid: u32) -> Option<Self> {
        match sent_head.number {
            1 => Some(Self::Information),
            2 => Some(Self::Areas),
            3 => Some(Self::Evolve {
                rounds: sent_head.argument.checked_sub(1),
            }),
            QUOTA => {
                let (body, _) = quotas::Body::read_from_prefix(rest).ok()?;
                QuotaRequest::of(&body).map(Self::Quota)
            }
            6 => Some(Self::Grow {
                bytes: sent_head.argument,
            }),
            7 => Some(Self::Trim {
                least_bytes: sent_head.argument,
            }),
            8 => Some(Self::Copy(CopyRequest::of(sent_head.argument, pid))),
            9 => Some(Self::CopyState {
                id: sent_head.argument,
            }),
            _ => None,
        }
    }

    fn is_for_all(self) -> bool {
        matches!(self, Self::Information | Self::Quota(_))
    }
}

/// The last answer that was longer than an exchange.
#[derive(Debug, Default)]
struct Long {
    token: u64,
    /// The user who asked. Nobody else gets the rest.
    uid: u32,
    text: Vec<u8>,
}

/// Answers the requests on the root.
pub(crate) struct ControlChannel {
    answers: Option<Arc<Answers>>,
    connection: Connection,
    stopper: Stopper,
    long: Mutex<Long>,
}

impl ControlChannel {
    pub(crate) fn new(
        answers: Option<Arc<Answers>>,
        connection: Connection,
        stopper: Stopper,
    ) -> Self {
        Self {
            answers,
            connection,
            stopper,
            long: Mutex::default(),
        }
    }

    /// Answers an ioctl on the root.
    pub(crate) fn answer(
        &self,
        number: u32,
        caller: Changer,
        sent: &[u8],
    ) -> Result<Vec<u8>, Errno> {
        if number != CONTROL_IOCTL {
            return Err(Errno::NOTTY);
        }
        let (sent_head, rest) = RequestHead::read_from_prefix(sent).map_err(|_| Errno::INVAL)?;
        let request = ControlRequest::of(&sent_head, rest, caller.pid);
        let cred = cred(caller);
        if !request.is_some_and(ControlRequest::is_for_all) && !cred.privileged {
            return Err(Errno::PERM);
        }
        if sent_head.number == STOP {
            self.stopper.cut_off();
            return Ok(reply(&[], 0, 0));
        }
        let answers = self.answers.as_deref().ok_or(Errno::NOTTY)?;
        let request = request.ok_or(Errno::NOTTY)?;
        if sent_head.token != 0 {
            return self.more(&sent_head, cred.uid);
        }
        let text = answers(request, &cred, &self.connection)
            .map_err(|error| crate::convert::errno(&error))?;
        let text = text.into_bytes();
        if text.len() <= PART_BYTES {
            return Ok(reply(&text, 0, 0));
        }
        let mut long = self.long.lock().unwrap_or_else(PoisonError::into_inner);
        let token = long.token + 1;
        let uid = cred.uid;
        *long = Long { token, uid, text };
        Ok(reply(&long.text, token, 0))
    }

    /// The next part of the kept answer; `EAGAIN` if another answer has replaced it.
    fn more(&self, sent_head: &RequestHead, uid: u32) -> Result<Vec<u8>, Errno> {
        let long = self.long.lock().unwrap_or_else(PoisonError::into_inner);
        let from = usize::try_from(sent_head.from).unwrap_or(usize::MAX);
        let is_its = long.token == sent_head.token && long.uid == uid;
        match is_its && from <= long.text.len() {
            true => Ok(reply(&long.text, long.token, from)),
            false => Err(Errno::AGAIN),
        }
    }
}

/// The credentials of the caller.
fn cred(caller: Changer) -> Cred {
    let serves = rustix::process::geteuid().as_raw();
    let privileged = caller.uid == 0 || caller.uid == serves;
    Cred {
        groups: match privileged {
            true => Vec::new(),
            false => caller.groups(),
        },
        privileged,
        ..Cred::user(caller.uid, caller.gid)
    }
}

/// The bytes of the reply with the part of an answer from offset `from` on.
fn reply(text: &[u8], token: u64, from: usize) -> Vec<u8> {
    let len = text.len() as u64;
    let end = text.len().min(from + PART_BYTES);
    let mut bytes = ReplyHead { len, token }.as_bytes().to_vec();
    bytes.extend_from_slice(&text[from..end]);
    bytes.resize(CONTROL_BYTES, 0);
    bytes
}

/// Sends a request to the file system with this root. Returns its answer, as JSON.
///
/// # Errors
/// Fails if the file system is not a Vellum mount, does not know the request, or does not answer it
/// (to this user).
pub fn ask(root: &File, request: ControlRequest) -> io::Result<String> {
    for _ in 0..TRIES {
        match answer_of(root, request) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            answered => {
                let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
                return String::from_utf8(answered?).map_err(invalid);
            }
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Ends the file system with this root at once. It is detached, and its users in all mount
/// namespaces are cut off. Its pool is closed cleanly after this has returned.
///
/// # Errors
/// Fails if the file system is not a Vellum mount, runs a release that does not know this request,
/// or does not obey this user.
pub fn stop(root: &File) -> io::Result<()> {
    let sent_head = RequestHead {
        number: STOP,
        ..RequestHead::default()
    };
    let mut bytes = bytes_of(&sent_head, &quotas::Body::default());
    match control(root, &mut bytes) {
        // It ended before it could answer.
        Err(error) if mounts::has_ended(&error) => Ok(()),
        sent_head => sent_head.map(drop),
    }
}

/// The bytes of a request.
fn bytes_of(sent_head: &RequestHead, body: &quotas::Body) -> [u8; CONTROL_BYTES] {
    let mut bytes = [0; CONTROL_BYTES];
    let (head, rest) = bytes.split_at_mut(size_of::<RequestHead>());
    head.copy_from_slice(sent_head.as_bytes());
    rest[..size_of::<quotas::Body>()].copy_from_slice(body.as_bytes());
    bytes
}

fn answer_of(root: &File, request: ControlRequest) -> io::Result<Vec<u8>> {
    let mut sent_head = request.sent_head();
    let mut text = Vec::new();
    loop {
        let mut bytes = bytes_of(&sent_head, &request.sent_body());
        control(root, &mut bytes)?;
        let (reply, part) = ReplyHead::read_from_prefix(&bytes[..])
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let left = usize::try_from(reply.len)
            .unwrap_or(usize::MAX)
            .saturating_sub(text.len());
        text.extend_from_slice(&part[..left.min(PART_BYTES)]);
        if left <= PART_BYTES {
            return Ok(text);
        }
        (sent_head.token, sent_head.from) = (reply.token, text.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(request: ControlRequest) -> String {
        match request {
            ControlRequest::Information => "short".into(),
            ControlRequest::Areas => (0..9000)
                .map(|i| char::from(b'a' + (i % 26) as u8))
                .collect(),
            ControlRequest::Evolve { rounds } => format!("{rounds:?}"),
            ControlRequest::Quota(request) => format!("{request:?}"),
            ControlRequest::Grow { bytes } => format!("{bytes}"),
            ControlRequest::Trim { least_bytes } => format!("{least_bytes}"),
            ControlRequest::Copy(request) => format!("{request:?}"),
            ControlRequest::CopyState { id } => format!("{id}"),
        }
    }

    fn by(uid: u32) -> Changer {
        Changer {
            uid,
            gid: uid,
            pid: 0,
        }
    }

    fn of(answers: Option<Arc<Answers>>) -> ControlChannel {
        let connection = Connection {
            door: Door::Device,
            counts: Arc::default(),
        };
        ControlChannel::new(answers, connection, Stopper::unheard())
    }

    fn channel() -> ControlChannel {
        of(Some(Arc::new(|request, cred: &Cred, _: &_| {
            let whose = match (request, cred.privileged) {
                (ControlRequest::Quota(_), false) => format!(" for {}", cred.uid),
                _ => String::new(),
            };
            Ok(text_of(request) + &whose)
        })))
    }

    fn exchange(
        channel: &ControlChannel,
        uid: u32,
        sent_head: RequestHead,
    ) -> Result<(ReplyHead, Vec<u8>), Errno> {
        let sent = bytes_of(&sent_head, &quotas::Body::default());
        exchange_bytes(channel, uid, &sent)
    }

    fn exchange_bytes(
        channel: &ControlChannel,
        uid: u32,
        sent: &[u8],
    ) -> Result<(ReplyHead, Vec<u8>), Errno> {
        let bytes = channel.answer(CONTROL_IOCTL, by(uid), sent)?;
        assert_eq!(bytes.len(), CONTROL_BYTES);
        let (reply, part) = ReplyHead::read_from_prefix(&bytes).unwrap();
        Ok((reply, part.to_vec()))
    }

    #[test]
    fn a_short_answer_takes_one_exchange() {
        let channel = channel();
        for rounds in [None, Some(0), Some(7)] {
            let request = ControlRequest::Evolve { rounds };
            let (reply, part) = exchange(&channel, 0, request.sent_head()).unwrap();
            assert_eq!(&part[..reply.len as usize], text_of(request).as_bytes());
        }
    }

    #[test]
    fn a_long_answer_takes_several_exchanges() {
        let channel = channel();
        let sent_head = ControlRequest::Areas.sent_head();
        let whole = text_of(ControlRequest::Areas).into_bytes();
        let (reply, first) = exchange(&channel, 0, sent_head).unwrap();
        assert_eq!((reply.len, &first[..]), (9000, &whole[..PART_BYTES]));
        let (token, from) = (reply.token, PART_BYTES as u64);
        let more = RequestHead {
            token,
            from,
            ..sent_head
        };
        let (_, rest) = exchange(&channel, 0, more).unwrap();
        assert_eq!(&rest[..9000 - PART_BYTES], &whole[PART_BYTES..]);
        // Nobody else gets it, by whatever request.
        let stranger = rustix::process::geteuid().as_raw() + 1;
        let other = RequestHead { number: 1, ..more };
        assert_eq!(
            exchange(&channel, 0, other).map(|(_, part)| part).as_ref(),
            Ok(&rest)
        );
        assert_eq!(
            exchange(&channel, stranger, other).unwrap_err(),
            Errno::AGAIN
        );
        // There is nothing beyond the end, and nothing after another answer has replaced this one.
        let behind = RequestHead { from: 9001, ..more };
        assert_eq!(exchange(&channel, 0, behind).unwrap_err(), Errno::AGAIN);
        exchange(&channel, 0, sent_head).unwrap();
        assert_eq!(exchange(&channel, 0, more).unwrap_err(), Errno::AGAIN);
    }

    #[test]
    fn other_users_see_no_names() {
        let channel = channel();
        let stranger = rustix::process::geteuid().as_raw() + 1;
        assert!(exchange(&channel, stranger, ControlRequest::Information.sent_head()).is_ok());
        let stop = RequestHead {
            number: STOP,
            ..RequestHead::default()
        };
        let evolve = ControlRequest::Evolve { rounds: None }.sent_head();
        for sent_head in [ControlRequest::Areas.sent_head(), evolve, stop] {
            let said = exchange(&channel, stranger, sent_head).unwrap_err();
            assert_eq!(said, Errno::PERM);
        }
    }

    #[test]
    fn other_users_ask_about_quotas_by_their_own_credentials() {
        let channel = channel();
        let stranger = rustix::process::geteuid().as_raw() + 1;
        let asked = QuotaRequest::Switch { is_on: true };
        let request = ControlRequest::Quota(asked);
        let sent = bytes_of(&request.sent_head(), &request.sent_body());
        for (uid, said) in [
            (0, format!("{asked:?}")),
            (stranger, format!("{asked:?} for {stranger}")),
        ] {
            let (reply, part) = exchange_bytes(&channel, uid, &sent).unwrap();
            assert_eq!(&part[..reply.len as usize], said.as_bytes());
        }
    }

    #[test]
    fn a_copy_is_requested_for_a_file_of_the_caller() {
        let channel = channel();
        for scope in [CopyScope::Whole, CopyScope::Metadata] {
            let of = |pid| CopyRequest { scope, fd: 7, pid };
            let sent_head = ControlRequest::Copy(of(99)).sent_head();
            let (reply, part) = exchange(&channel, 0, sent_head).unwrap();
            let said = format!("{:?}", of(0));
            assert_eq!(&part[..reply.len as usize], said.as_bytes());
        }
    }

    #[test]
    fn an_unknown_request_is_refused() {
        let channel = channel();
        assert_eq!(
            channel.answer(CONTROL_IOCTL, by(0), &[]).unwrap_err(),
            Errno::INVAL
        );
        let sent_head = RequestHead {
            number: 99,
            ..RequestHead::default()
        };
        assert_eq!(exchange(&channel, 0, sent_head).unwrap_err(), Errno::NOTTY);
        // A request about quotas without a body.
        let sent_head = RequestHead {
            number: QUOTA,
            ..RequestHead::default()
        };
        assert_eq!(exchange(&channel, 0, sent_head).unwrap_err(), Errno::NOTTY);
        let (number, sent) = (CONTROL_IOCTL + 1, [0; CONTROL_BYTES]);
        assert_eq!(
            channel.answer(number, by(0), &sent).unwrap_err(),
            Errno::NOTTY
        );
        assert_eq!(
            of(None)
                .answer(
                    CONTROL_IOCTL,
                    by(0),
                    ControlRequest::Information.sent_head().as_bytes()
                )
                .unwrap_err(),
            Errno::NOTTY
        );
    }
}
