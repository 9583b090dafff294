//! The ioctl of fstrim(8): the space of free blocks goes back to the file system or device below.

use rustix::io::Errno;
use vellum_transport::{Reply, Request};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::adapter::Adapter;
use crate::convert::errno;

/// `FITRIM` of the kernel (`linux/fs.h`).
pub(crate) const FITRIM: u32 = 0xC018_5879;

/// `struct fstrim_range`. The whole pool is trimmed, whatever the range says.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct TrimRange {
    start: u64,
    /// In the answer: the bytes given back.
    len: u64,
    /// The shortest run of free bytes.
    least: u64,
}

impl Adapter {
    /// Answers it.
    pub(crate) fn trim(&self, request: &Request<'_>, sent: &[u8], reply: Reply) {
        let Ok((mut range, _)) = TrimRange::read_from_prefix(sent) else {
            return reply.error(Errno::INVAL);
        };
        if request.uid != 0 {
            return reply.error(Errno::PERM);
        }
        // Not as a request of the server: an unmount does not wait for it, and ends it.
        match self.server.fs.trim(range.least, &|_, _| {}) {
            Ok(bytes) => {
                range.len = bytes;
                reply.ioctl(range.as_bytes());
            }
            Err(error) => reply.error(errno(&error)),
        }
    }
}
