//! The calls of a thread, and their results as far as an order of calls has to explain them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use vellum::{Cred, ListPosition};
use vellum_driver::kind_of;
use vellum_model::{Errno, Kind, Op, Outcome, Payload, StatView};

use super::hooked::Scheduled;
use crate::session::{Result, Session};
use crate::workload::Step;

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    /// Success, and nothing else that matters.
    Done,
    /// An error number.
    Failed(i32),
    /// Attributes.
    Attributes {
        kind: Kind,
        mode: u32,
        nlink: u32,
        size: u64,
    },
    /// The names in a directory, each with its kind; names that were listed twice are left out.
    Names(BTreeMap<Vec<u8>, Option<Kind>>),
    /// The bytes of a file, the value of an extended attribute, or the names of all.
    Bytes(Vec<u8>),
}

/// Executes `step` and returns the result.
pub(crate) fn call(session: &mut Session<Scheduled>, step: &Step) -> Answer {
    let answered = match step {
        Step::Op(Op::Readdir { path }) => names(session, path).map(Answer::Names),
        _ => session
            .answer(step)
            .map(|payload| answer_of(Outcome::Ok(payload))),
    };
    answered.unwrap_or_else(|error| answer_of(Outcome::Err(Errno(error.errno()))))
}

/// Reads a directory while others change it, so that a name may appear twice.
fn names(session: &Session<Scheduled>, path: &[u8]) -> Result<BTreeMap<Vec<u8>, Option<Kind>>> {
    let fs = session.open_fs()?;
    let dir = fs.find(&Cred::root(), &fs.root(), path, true)?;
    let mut names = BTreeMap::new();
    fs.list(&dir, 0, &mut ListPosition::default(), &mut |entry| {
        match names.entry(entry.name.to_vec()) {
            Entry::Vacant(name) => drop(name.insert(Some(kind_of(entry.kind)))),
            Entry::Occupied(mut name) => drop(name.insert(None)),
        }
        true
    })?;
    Ok(names)
}

/// The part of an outcome that matters.
pub(crate) fn answer_of(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Err(errno) => Answer::Failed(errno.0),
        Outcome::Ok(Payload::Stat(StatView {
            kind,
            mode,
            nlink,
            size,
            ..
        })) => Answer::Attributes {
            kind,
            mode,
            nlink,
            size,
        },
        Outcome::Ok(Payload::Bytes(bytes)) => Answer::Bytes(bytes),
        Outcome::Ok(Payload::Xattrs(names)) => Answer::Bytes(Vec::from_iter(names).join(&b'\0')),
        Outcome::Ok(_) => Answer::Done,
    }
}
