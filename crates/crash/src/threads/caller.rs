//! A thread's calls, with what they answered as far as that must be explained.

use std::collections::BTreeMap;

use vellum::{Cred, FileKind, ListPosition, OpenOptions};
use vellum_model::{Kind, Op, Outcome, Payload, Range, StatView};

use super::hooked::Scheduled;
use crate::session::{Result, Session};
use crate::workload::Step;

/// What a call answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    /// Success, and nothing else that matters.
    Done,
    /// An error number.
    Failed(i32),
    /// Attributes.
    Attributes {
        kind: char,
        mode: u32,
        nlink: u32,
        size: u64,
    },
    /// The names in a directory, each with what it is; those that were given twice are left out.
    Names(BTreeMap<Vec<u8>, Option<char>>),
    /// The bytes of a file.
    Bytes(Vec<u8>),
}

/// Does `step` and gives the answer.
pub(crate) fn call(session: &mut Session<Scheduled>, step: &Step) -> Answer {
    let asked = match step {
        Step::Op(Op::Stat { path, follow }) => attributes(session, path, *follow),
        Step::Op(Op::Readdir { path }) => names(session, path),
        Step::Op(Op::Read { path, range }) => bytes(session, path, *range),
        _ => session.step(step).map(|()| Answer::Done),
    };
    asked.unwrap_or_else(|error| Answer::Failed(error.errno()))
}

fn attributes(session: &Session<Scheduled>, path: &[u8], follow: bool) -> Result<Answer> {
    let fs = session.open_fs()?;
    let attr = fs.stat(&Cred::root(), &fs.root(), path, follow)?;
    let kind = letter(attr.kind);
    Ok(Answer::Attributes {
        kind,
        mode: u32::from(attr.mode),
        nlink: attr.nlink,
        size: if kind == 'd' { 0 } else { attr.size },
    })
}

fn names(session: &Session<Scheduled>, path: &[u8]) -> Result<Answer> {
    let fs = session.open_fs()?;
    let dir = fs.find(&Cred::root(), &fs.root(), path, true)?;
    let mut names = BTreeMap::new();
    fs.list(&dir, 0, &mut ListPosition::default(), &mut |entry| {
        let given = names.entry(entry.name.to_vec());
        let again = matches!(given, std::collections::btree_map::Entry::Occupied(_));
        *given.or_insert(None) = (!again).then(|| letter(entry.kind));
        true
    })?;
    Ok(Answer::Names(names))
}

fn bytes(session: &Session<Scheduled>, path: &[u8], range: Range) -> Result<Answer> {
    let fs = session.open_fs()?;
    let options = OpenOptions {
        read: true,
        ..OpenOptions::default()
    };
    let handle = fs.open(&Cred::root(), &fs.root(), path, &options)?;
    let mut bytes = vec![0; range.len as usize];
    let count = handle.read_at(range.offset, &mut bytes)?;
    bytes.truncate(count);
    Ok(Answer::Bytes(bytes))
}

fn letter(kind: FileKind) -> char {
    match kind {
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::File => 'f',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    }
}

fn model_letter(kind: Kind) -> char {
    match kind {
        Kind::Dir => 'd',
        Kind::Symlink => 'l',
        Kind::File => 'f',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
    }
}

/// The model's answer, as far as it matters.
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
            kind: model_letter(kind),
            mode,
            nlink,
            size,
        },
        Outcome::Ok(Payload::Bytes(bytes)) => Answer::Bytes(bytes),
        Outcome::Ok(_) => Answer::Done,
    }
}
