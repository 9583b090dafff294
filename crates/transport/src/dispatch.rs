//! The file system behind the doors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustix::io::Errno;

use crate::abi::InHeader;
use crate::count::RequestCounts;
use crate::reply::{Reply, Sink};
use crate::request::{Message, Request, message};

/// Answers requests, on several threads at once.
pub trait FileSystem: Send + Sync {
    /// Answers a request, at once or later. A panic answers it with `EIO`, and the mount goes on.
    fn answer(&self, request: Request<'_>, reply: Reply);

    /// Whether the answer may wait for a disk, or take long. Such a request holds up no others.
    fn may_wait(&self, request: &Request<'_>) -> bool;

    /// The kernel forgets a file, as often as `lookups` says. Each returned entry was one lookup.
    fn forget(&self, node: u64, lookups: u64);
}

/// Hands messages to the file system, and counts them.
#[derive(Clone, Copy)]
pub(crate) struct Dispatcher<'f> {
    pub(crate) file_system: &'f dyn FileSystem,
    pub(crate) counts: &'f RequestCounts,
}

impl Dispatcher<'_> {
    /// Has a message answered. `argument` and `rest`: see [`message`].
    pub(crate) fn dispatch(
        &self,
        sink: &Arc<dyn Sink>,
        header: &InHeader,
        argument: &[u8],
        rest: &[u8],
    ) {
        self.answer(sink, header, message(header, argument, rest));
    }

    /// The same unless the answer may wait. Returns whether the message is answered.
    pub(crate) fn dispatch_if_quick(
        &self,
        sink: &Arc<dyn Sink>,
        header: &InHeader,
        argument: &[u8],
        rest: &[u8],
    ) -> bool {
        let decoded = message(header, argument, rest);
        if let Ok(Message::Request(request)) = &decoded
            && self.file_system.may_wait(request)
        {
            return false;
        }
        self.answer(sink, header, decoded);
        true
    }

    fn answer(&self, sink: &Arc<dyn Sink>, header: &InHeader, decoded: Result<Message<'_>, Errno>) {
        let InHeader { opcode, node, .. } = *header;
        tracing::debug!(opcode, node, "a request");
        self.counts.count(opcode);
        let reply = || Reply::new(header.unique, Arc::clone(sink));
        match decoded {
            Ok(Message::Request(request)) => guard(|| self.file_system.answer(request, reply())),
            Ok(Message::Forget(forgotten)) => {
                let forget = |node, lookups| self.file_system.forget(node, lookups);
                forgotten.each(|node, lookups| guard(|| forget(node, lookups)));
            }
            Ok(Message::Destroy) => reply().empty(),
            Ok(Message::Init(..)) => reply().error(Errno::IO),
            Err(errno) => {
                tracing::error!(opcode, "the kernel sent a malformed request");
                reply().error(errno);
            }
        }
    }
}

/// Runs a handler, and reports a panic in it.
fn guard(run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        tracing::error!("a request failed by a panic and was answered with EIO");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::abi::opcode;
    use crate::reply::tests::kept;
    use crate::request::Operation;

    /// Panics at every name, and keeps what is forgotten.
    #[derive(Default)]
    struct Panics(Mutex<Vec<(u64, u64)>>);

    impl FileSystem for Panics {
        fn answer(&self, request: Request<'_>, reply: Reply) {
            match request.operation {
                Operation::Lookup { .. } => panic!("on purpose"),
                Operation::GetAttr => reply.empty(),
                _ => reply.error(Errno::NOSYS),
            }
        }

        fn may_wait(&self, request: &Request<'_>) -> bool {
            request.operation == Operation::Sync
        }

        fn forget(&self, node: u64, lookups: u64) {
            self.0.lock().expect("no panic").push((node, lookups));
        }
    }

    #[test]
    fn every_request_but_forgetting_has_one_answer() {
        let file_system = Panics::default();
        let counts = RequestCounts::default();
        let dispatcher = Dispatcher {
            file_system: &file_system,
            counts: &counts,
        };
        let errors = |opcode, argument: &[u8], rest: &[u8]| -> Vec<i32> {
            let header = InHeader {
                opcode,
                node: 3,
                ..InHeader::default()
            };
            let (sink, answers) = kept();
            dispatcher.dispatch(&sink, &header, argument, rest);
            drop(sink);
            let error = |bytes: Vec<u8>| i32::from_ne_bytes(bytes[4..8].try_into().expect("four"));
            answers.iter().map(error).collect()
        };
        let of = |errno: Errno| vec![-errno.raw_os_error()];
        assert_eq!(errors(opcode::LOOKUP, &[], b"name\0"), of(Errno::IO));
        assert_eq!(errors(opcode::LOOKUP, &[], b"name"), of(Errno::IO));
        assert_eq!(errors(opcode::GETATTR, &[], &[]), [0]);
        assert_eq!(errors(opcode::STATFS, &[], &[]), of(Errno::NOSYS));
        assert_eq!(errors(999, &[], &[]), of(Errno::NOSYS));
        assert_eq!(errors(opcode::INIT, &[0; 16], &[]), of(Errno::IO));
        assert_eq!(errors(opcode::DESTROY, &[], &[]), [0]);
        let lookups = 7u64.to_ne_bytes();
        assert_eq!(errors(opcode::FORGET, &lookups, &[]), []);
        assert_eq!(*file_system.0.lock().expect("no panic"), [(3, 7)]);
        assert_eq!(counts.by_kind().next(), Some(("other", 1)));
    }
}
