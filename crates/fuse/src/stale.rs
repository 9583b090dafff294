//! Makes the kernel drop stale pages after a direct write.
//!
//! Before a direct write (`O_DIRECT`) the kernel drops the pages of its range. After the write it
//! drops the pages that readers have filled meanwhile, but not after an asynchronous write
//! (`io_submit`, `io_uring`; fs/fuse/file.c, `fuse_aio_complete`, in Linux up to 6.18 at least).
//! Such a page stays stale until something else drops it. So this module makes the kernel drop the
//! cached pages of the range before the direct write is answered. The same for a file that is about
//! to be immutable or append-only: what is in its pages was written before.
//!
//! Dropping waits for pages that are being read or written back, which needs answers to other
//! requests. So it has a thread of its own, which answers no requests.

use std::sync::mpsc::{Receiver, Sender, channel};

use vellum_transport::{Notifier, Reply};

use crate::server::Answer;

/// A write that has succeeded or failed, but is not answered yet.
pub(crate) struct Written {
    pub(crate) ino: u64,
    pub(crate) offset: u64,
    /// The requested number of bytes.
    pub(crate) len: u64,
    pub(crate) answer: Answer<u32>,
    pub(crate) reply: Reply,
}

enum Dropping {
    Written(Written),
    /// All pages of this file, and then this.
    All(u64, Box<dyn FnOnce() + Send>),
}

impl Dropping {
    fn answer(self) {
        match self {
            Self::Written(written) => written.reply(),
            Self::All(_, then) => then(),
        }
    }
}

impl Written {
    /// Answers the write.
    pub(crate) fn reply(self) {
        match self.answer {
            Ok(len) => self.reply.written(len),
            Err(errno) => self.reply.error(errno),
        }
    }
}

/// Requests that pages be dropped.
pub(crate) struct Stale(Sender<Dropping>);

/// The receiver of the requests of a [`Stale`].
pub(crate) struct Asked(Receiver<Dropping>);

impl Stale {
    pub(crate) fn new() -> (Self, Asked) {
        let (sender, receiver) = channel();
        (Self(sender), Asked(receiver))
    }

    /// Makes the kernel drop its pages of the written range, then answers the write.
    pub(crate) fn drop_then_reply(&self, written: Written) {
        if let Err(unheard) = self.0.send(Dropping::Written(written)) {
            unheard.0.answer();
        }
    }

    /// Makes the kernel write back and drop all pages of a file, then does the rest.
    pub(crate) fn drop_all_then(&self, ino: u64, then: Box<dyn FnOnce() + Send>) {
        if let Err(unheard) = self.0.send(Dropping::All(ino, then)) {
            unheard.0.answer();
        }
    }
}

impl Asked {
    /// Drops pages and answers writes until all senders are gone.
    pub(crate) fn serve(self, kernel: &Notifier) {
        for dropping in self.0 {
            let (ino, offset, len) = match dropping {
                Dropping::Written(Written {
                    ino, offset, len, ..
                }) => (ino, offset, len),
                Dropping::All(ino, _) => (ino, 0, 0),
            };
            if let Err(error) = kernel.drop_pages(ino, offset, len) {
                tracing::debug!(%error, ino, "the kernel did not drop pages");
            }
            dropping.answer();
        }
    }
}
