//! Pages that the kernel has to drop once a direct write is done.
//!
//! Before a direct write (`O_DIRECT`) the kernel drops the pages of its range, and those that
//! readers have filled since, once it is done: but not where the write was asynchronous
//! (`io_submit`, `io_uring`; fs/fuse/file.c, `fuse_aio_complete`, in Linux up to 6.18 at least).
//! Such a page stays stale until something else drops it. So a direct write is answered only after
//! the kernel has dropped, because we say so, what it may have cached of the range.
//!
//! Dropping waits for pages that are being read or written back, which ends when other requests are
//! answered: so it has a thread of its own, which answers none.

use std::sync::mpsc::{Receiver, Sender, channel};

use fuser::{INodeNo, Notifier, ReplyWrite};

use crate::server::Answer;

/// A write that was made, or failed, and was not answered.
pub(crate) struct Written {
    pub(crate) ino: INodeNo,
    pub(crate) offset: u64,
    /// Bytes that it was to write.
    pub(crate) len: usize,
    pub(crate) answer: Answer<u32>,
    pub(crate) reply: ReplyWrite,
}

impl Written {
    /// Answers it.
    pub(crate) fn reply(self) {
        match self.answer {
            Ok(len) => self.reply.written(len),
            Err(errno) => self.reply.error(errno),
        }
    }
}

/// Has pages dropped.
pub(crate) struct Stale(Sender<Written>);

/// What a [`Stale`] asks for.
pub(crate) struct Asked(Receiver<Written>);

impl Stale {
    pub(crate) fn new() -> (Self, Asked) {
        let (sender, receiver) = channel();
        (Self(sender), Asked(receiver))
    }

    /// Has the kernel drop its pages of what was written, and answers then.
    pub(crate) fn drop_then_reply(&self, written: Written) {
        if let Err(unheard) = self.0.send(written) {
            unheard.0.reply();
        }
    }
}

impl Asked {
    /// Drops and answers until there is nobody to ask.
    pub(crate) fn serve(self, kernel: &Notifier) {
        for written in self.0 {
            let (from, len) = (written.offset as i64, written.len as i64);
            if let Err(error) = kernel.inval_inode(written.ino, from, len) {
                tracing::debug!(%error, ino = written.ino.0, "the kernel drops no pages");
            }
            written.reply();
        }
    }
}
