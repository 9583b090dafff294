//! The ioctls by which `chattr` and `lsattr` set and read flags and project ids, and read
//! generations (`linux/fs.h`). The kernel has checked who asks.

use std::sync::Arc;

use rustix::io::Errno;
use vellum::FileFlags;
use vellum_transport::{Operation, Reply, Request};

use crate::adapter::Adapter;
use crate::server::Server;
use crate::stale::Pages;

const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const GET_GENERATION: u32 = 0x8008_7601;
const GET_ATTRIBUTES: u32 = 0x801C_581F;
const SET_ATTRIBUTES: u32 = 0x401C_5820;

/// Bytes of `struct fsxattr`: flags, extent size, extents, project id, another extent size, and
/// padding.
const ATTRIBUTES_BYTES: usize = 28;

/// The bits of the flags in `struct fsxattr`.
const BITS: [(FileFlags, u32); 5] = [
    (FileFlags::IMMUTABLE, 0x8),
    (FileFlags::APPEND_ONLY, 0x10),
    (FileFlags::NO_ATIME, 0x40),
    (FileFlags::NO_DUMP, 0x80),
    (FileFlags::PROJECT_INHERIT, 0x200),
];

/// A flag that there is not.
const UNKNOWN: FileFlags = FileFlags::from_bits_retain(1 << 31);

/// What to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    flags: FileFlags,
    project: Option<u32>,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

impl Change {
    /// Decodes the bytes of an ioctl; `None`: it sets no flags.
    fn of(number: u32, sent: &[u8]) -> Option<Result<Self, Errno>> {
        let decoded = match number {
            SET_FLAGS => word(sent, 0).map(|bits| Self {
                flags: FileFlags::from_bits_retain(bits),
                project: None,
            }),
            SET_ATTRIBUTES => word(sent, 0).zip(word(sent, 12)).map(|(bits, project)| {
                let known = BITS.iter().filter(|(_, bit)| bits & bit != 0);
                let flags = known.map(|(flag, _)| *flag).collect();
                let all: u32 = BITS.iter().map(|(_, bit)| bit).sum();
                Self {
                    flags: if bits & !all == 0 { flags } else { UNKNOWN },
                    project: Some(project),
                }
            }),
            _ => return None,
        };
        Some(decoded.ok_or(Errno::INVAL))
    }
}

fn attributes(flags: FileFlags, project: u32) -> [u8; ATTRIBUTES_BYTES] {
    let has = |(flag, bit): &(FileFlags, u32)| if flags.contains(*flag) { *bit } else { 0 };
    let bits: u32 = BITS.iter().map(has).sum();
    let mut bytes = [0; ATTRIBUTES_BYTES];
    bytes[..4].copy_from_slice(&bits.to_ne_bytes());
    bytes[12..16].copy_from_slice(&project.to_ne_bytes());
    bytes
}

/// Whether an ioctl is one of these.
pub(crate) fn is_of_flags(number: u32) -> bool {
    matches!(
        number,
        GET_FLAGS | SET_FLAGS | GET_GENERATION | GET_ATTRIBUTES | SET_ATTRIBUTES
    )
}

/// Whether an ioctl sets flags.
pub(crate) fn sets_flags(number: u32) -> bool {
    matches!(number, SET_FLAGS | SET_ATTRIBUTES)
}

impl Adapter {
    /// Answers these ioctls.
    pub(crate) fn of_flags(&self, request: &Request<'_>, reply: Reply) {
        let Operation::Ioctl {
            number,
            sent,
            expected,
        } = request.operation
        else {
            return reply.error(Errno::NOTTY);
        };
        let node = request.node;
        match Change::of(number, sent) {
            Some(Ok(change)) => self.set_flags(request, change, reply),
            Some(Err(errno)) => reply.error(errno),
            None if number == GET_GENERATION => match self.server.generation(node) {
                Ok(generation) => {
                    let bytes = u64::from(generation).to_ne_bytes();
                    reply.ioctl(&bytes[..bytes.len().min(expected as usize)]);
                }
                Err(errno) => reply.error(errno),
            },
            None => match self.server.flags(node) {
                Ok((flags, _)) if number == GET_FLAGS => {
                    let mut bytes = [0; 8];
                    bytes[..4].copy_from_slice(&flags.bits().to_ne_bytes());
                    reply.ioctl(&bytes[..bytes.len().min(expected as usize)]);
                }
                Ok((flags, project)) => reply.ioctl(&attributes(flags, project)),
                Err(errno) => reply.error(errno),
            },
        }
    }

    /// Sets flags. What programs have stored in the kernel's pages, also through mappings, counts
    /// as written before a flag that forbids it.
    fn set_flags(&self, request: &Request<'_>, change: Change, reply: Reply) {
        let (node, uid) = (request.node, request.uid);
        let (server, kernel) = (Arc::clone(&self.server), self.kernel.clone());
        let set = move || match set_flags(&server, node, change, uid) {
            Ok(()) => {
                // The change time is another. It fails if the kernel does not know the file.
                let _ = kernel.drop_attributes(node);
                reply.ioctl(&[]);
            }
            Err(errno) => reply.error(errno),
        };
        match change.flags.intersects(FileFlags::GUARDED) {
            true => {
                let (ino, offset, len) = (node, 0, 0);
                let all = Pages { ino, offset, len };
                self.stale.drop_changed_then(all, Box::new(set));
            }
            false => set(),
        }
    }
}

fn set_flags(server: &Server, node: u64, change: Change, uid: u32) -> Result<(), Errno> {
    server.set_flags(node, change.flags, change.project, uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_is_set() {
        for bits in 0..1 << 5 {
            let chosen = BITS
                .iter()
                .enumerate()
                .filter(|(at, _)| bits >> at & 1 == 1);
            let flags: FileFlags = chosen.map(|(_, (flag, _))| *flag).collect();
            let bytes = attributes(flags, 7);
            let project = Some(7);
            let change = Change { flags, project };
            assert_eq!(Change::of(SET_ATTRIBUTES, &bytes), Some(Ok(change)));
            let change = Change {
                flags,
                project: None,
            };
            let sent = flags.bits().to_ne_bytes();
            assert_eq!(Change::of(SET_FLAGS, &sent), Some(Ok(change)));
        }
    }

    #[test]
    fn what_is_cut_or_unknown_is_refused() {
        let sent = attributes(FileFlags::all(), 7);
        for len in 0..16 {
            let cut = Change::of(SET_ATTRIBUTES, &sent[..len]);
            assert_eq!(cut, Some(Err(Errno::INVAL)));
        }
        assert_eq!(Change::of(SET_FLAGS, &[1, 2]), Some(Err(Errno::INVAL)));
        assert_eq!(Change::of(GET_FLAGS, &[]), None);
        let unknown = Change::of(SET_ATTRIBUTES, &[0xFF; ATTRIBUTES_BYTES]);
        assert_eq!(unknown.unwrap().unwrap().flags, UNKNOWN);
    }
}
