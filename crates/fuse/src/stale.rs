//! Makes the kernel drop pages: stale ones after a direct write, and dirty ones, which it writes
//! back first.
//!
//! Before a direct write (`O_DIRECT`) the kernel drops the pages of its range. After the write it
//! drops the pages that readers have filled meanwhile, but not after an asynchronous write
//! (`io_submit`, `io_uring`; fs/fuse/file.c, `fuse_aio_complete`, in Linux up to 6.18 at least).
//! Such a page stays stale until something else drops it. So this module makes the kernel drop the
//! cached pages of the range before the direct write is answered.
//!
//! What programs have stored in pages through a mapping counts as written, although the pool does
//! not have it yet. So they are dropped, too, for a file that is about to be immutable or
//! append-only, and before a hole is reported.
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
    /// Pages that programs may have changed, and then this.
    Changed(Pages, Then),
}

/// What follows a drop.
pub(crate) type Then = Box<dyn FnOnce() + Send>;

/// Pages of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    pub(crate) ino: u64,
    pub(crate) offset: u64,
    /// Their number of bytes; 0: all behind `offset`.
    pub(crate) len: u64,
}

impl Dropping {
    fn answer(self) {
        match self {
            Self::Written(written) => written.reply(),
            Self::Changed(_, then) => then(),
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
#[derive(Clone)]
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

    /// Makes the kernel write back and drop pages, then does the rest.
    pub(crate) fn drop_changed_then(&self, pages: Pages, then: Then) {
        if let Err(unheard) = self.0.send(Dropping::Changed(pages, then)) {
            unheard.0.answer();
        }
    }
}

impl Asked {
    /// Drops pages and answers writes until all senders are gone.
    pub(crate) fn serve(self, kernel: &Notifier) {
        for dropping in self.0 {
            let Pages { ino, offset, len } = match dropping {
                Dropping::Written(Written {
                    ino, offset, len, ..
                }) => Pages { ino, offset, len },
                Dropping::Changed(pages, _) => pages,
            };
            if let Err(error) = kernel.drop_pages(ino, offset, len) {
                tracing::debug!(%error, ino, "the kernel did not drop pages");
            }
            dropping.answer();
        }
    }
}
