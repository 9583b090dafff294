//! Seeking data and holes (`SEEK_DATA`, `SEEK_HOLE`).
//!
//! The kernel asks before it has written dirty pages back. What programs have stored into a hole
//! through a mapping is data, although the pool does not have it yet, and so is what the kernel
//! gathers with `-o writeback`. So the kernel writes its pages of a hole back before the hole is
//! reported.

use std::sync::Arc;

use rustix::io::Errno;
use vellum_transport::Reply;

use crate::adapter::reply_with;
use crate::server::{Seek, Server};
use crate::stale::{Pages, Stale};

/// A seek that is not answered yet.
pub(crate) struct Seeking {
    pub(crate) server: Arc<Server>,
    pub(crate) stale: Stale,
    /// Whether the kernel gathers writes, so that the pool does not even know the size.
    pub(crate) gathers: bool,
    pub(crate) ino: u64,
    pub(crate) offset: u64,
    pub(crate) seek: Seek,
    pub(crate) reply: Reply,
}

impl Seeking {
    /// Answers it, once the kernel has written back what decides.
    pub(crate) fn answer(self) {
        self.answer_from(0);
    }

    /// The same. The kernel has written back what it had before `settled`.
    fn answer_from(self, settled: u64) {
        let Some(pages) = self.undecided(settled) else {
            let Self {
                server,
                ino,
                offset,
                seek,
                reply,
                ..
            } = self;
            return reply_with(reply, server.seek(ino, offset, seek), Reply::offset);
        };
        let settled = match pages.len {
            0 => u64::MAX,
            len => pages.offset + len,
        };
        let stale = self.stale.clone();
        stale.drop_changed_then(pages, Box::new(move || self.answer_from(settled)));
    }

    /// The pages on which the answer depends, and that the kernel may have changed.
    fn undecided(&self, settled: u64) -> Option<Pages> {
        let &Self {
            ref server,
            ino,
            offset,
            seek,
            ..
        } = self;
        let pages = |offset, len| Some(Pages { ino, offset, len });
        if self.gathers {
            return pages(0, 0).filter(|_| settled == 0);
        }
        let hole = match seek {
            Seek::Data => offset,
            Seek::Hole => server.seek(ino, offset, seek).ok()?,
        };
        if hole < settled || !server.may_be_cached(ino) || server.bytes_from(ino, hole) == 0 {
            return None;
        }
        match server.seek(ino, hole, Seek::Data) {
            Ok(end) if end > hole => pages(hole, end - hole),
            Err(Errno::NXIO) => pages(hole, 0),
            _ => None,
        }
    }
}
