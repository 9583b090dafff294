//! Concurrent calls on names, with the model as the object.

use std::collections::BTreeMap;
use std::fmt;

use super::{After, History, Specification};
use crate::{Cred, Errno, Ino, Model};

/// An inode of the implementation: number and generation.
pub type Id = (u64, u32);

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirName {
    /// The directory.
    pub dir: Id,
    /// The name.
    pub name: &'static str,
}

/// A call. Directories and files are given by inode, so that they are known whatever their names
/// are.
#[expect(missing_docs, reason = "fields are what their names and types say")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Creates a file or a directory.
    Make { at: DirName, is_dir: bool },
    /// Removes it.
    Remove { at: DirName, is_dir: bool },
    /// `renameat2`.
    Rename {
        from: DirName,
        to: DirName,
        flags: u32,
    },
    /// Adds another name to a file.
    Link { inode: Id, to: DirName },
    /// Looks up a name.
    Lookup { at: DirName },
    /// The link count of an inode.
    Count { inode: Id },
    /// The entry of one name in a listing, at some moment of its own: a listing is not one
    /// operation.
    Observe { at: DirName },
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Success.
    Done,
    /// The created or found inode.
    Inode(Id),
    /// A link count.
    Links(u32),
    /// The inode number of a name, if it exists; a listing has no generations.
    Seen(Option<u64>),
}

/// A result, or the number of an error.
pub type Outcome = Result<Answer, i32>;

/// A call, and when it ran.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The calling thread; `None` for a call without concurrent ones.
    pub thread: Option<usize>,
    /// The call.
    pub call: Call,
    /// Its result.
    pub outcome: Outcome,
    /// When it began: a time at which nothing else began or ended.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.thread {
            Some(thread) => write!(f, "thread {thread} ")?,
            None => f.write_str("alone    ")?,
        }
        let (begin, end) = (self.begin, self.end);
        write!(f, "{begin}..{end}: {:?}: {:?}", self.call, self.outcome)
    }
}

/// The history of these events.
pub fn history(events: &[Event]) -> History<Event> {
    let intervals = events.iter().map(|event| (*event, event.begin, event.end));
    History::of_intervals(intervals)
}

/// An error that no call returns.
const IMPOSSIBLE: Errno = Errno(-1);

/// A model, and the implementation's inodes for its own.
#[derive(Clone, Debug)]
pub struct Names {
    model: Model,
    inodes: BTreeMap<Id, Ino>,
}

/// An existing name: its directory, the name, its inode, and that inode's link count.
pub type Line = (Id, Vec<u8>, Id, u32);

impl Names {
    /// An empty directory, `base`.
    pub fn new(base: Id) -> Self {
        Self {
            model: Model::new(0),
            inodes: [(base, Ino::ROOT)].into(),
        }
    }

    /// Every existing name, in order. Names with an unknown inode are left out.
    pub fn tree(&self) -> Vec<Line> {
        let of = |(&dir, &ino): (&Id, &Ino)| {
            let entries = self.model.entries(ino).into_iter().flatten();
            let line = move |(name, &child): (&Vec<u8>, &Ino)| {
                Some((dir, name.clone(), self.id(child)?, self.links(child)))
            };
            entries.filter_map(line).collect::<Vec<_>>()
        };
        self.inodes.iter().flat_map(of).collect()
    }

    fn ino(&self, id: Id) -> Result<Ino, Errno> {
        self.inodes.get(&id).copied().ok_or(IMPOSSIBLE)
    }

    fn id(&self, ino: Ino) -> Option<Id> {
        let mut known = self.inodes.iter();
        known.find_map(|(&id, &known)| (known == ino).then_some(id))
    }

    fn links(&self, ino: Ino) -> u32 {
        self.model.getattr(ino).map_or(0, |attr| attr.nlink)
    }

    fn find(&self, at: DirName) -> Result<Ino, Errno> {
        let (dir, name) = self.resolve(at)?;
        self.model.lookup(dir, name, &Cred::superuser())
    }

    fn resolve(&self, at: DirName) -> Result<(Ino, &'static [u8]), Errno> {
        Ok((self.ino(at.dir)?, at.name.as_bytes()))
    }

    /// Executes a call. `found` has the id of a created inode, which the model cannot know.
    fn call(&mut self, call: &Call, found: Outcome) -> Result<Answer, Errno> {
        let root = &Cred::superuser();
        match *call {
            Call::Make { at, is_dir } => {
                let (dir, name) = self.resolve(at)?;
                let made = if is_dir {
                    self.model.mkdir(dir, name, 0o755, root, 1)?
                } else {
                    self.model.create(dir, name, 0o644, true, root, 1)?
                };
                let Ok(Answer::Inode(id)) = found else {
                    return Err(IMPOSSIBLE);
                };
                // A created inode may be held open until the end.
                self.model.open(made, libc::O_RDONLY, root, 1)?;
                self.inodes.insert(id, made);
                Ok(Answer::Inode(id))
            }
            Call::Remove { at, is_dir } => {
                let (dir, name) = self.resolve(at)?;
                let remove = if is_dir { Model::rmdir } else { Model::unlink };
                remove(&mut self.model, dir, name, root, 1).map(|()| Answer::Done)
            }
            Call::Rename { from, to, flags } => {
                let ((of, from), (at, to)) = (self.resolve(from)?, self.resolve(to)?);
                let moved = self.model.rename(of, from, at, to, flags, root, 1);
                moved.map(|()| Answer::Done)
            }
            Call::Link { inode, to } => {
                let (file, (dir, name)) = (self.ino(inode)?, self.resolve(to)?);
                let linked = self.model.link(file, dir, name, root, 1);
                linked.map(|()| Answer::Done)
            }
            Call::Lookup { at } => {
                let id = self.id(self.find(at)?);
                id.map(Answer::Inode).ok_or(IMPOSSIBLE)
            }
            Call::Count { inode } => Ok(Answer::Links(self.links(self.ino(inode)?))),
            Call::Observe { at } => match self.find(at) {
                Ok(ino) => Ok(Answer::Seen(self.id(ino).map(|(number, _)| number))),
                Err(Errno::ENOENT) => Ok(Answer::Seen(None)),
                Err(errno) => Err(errno),
            },
        }
    }
}

/// Calls only see the link count of each inode, and the inodes of the names in each directory.
impl Specification for Names {
    type Call = Event;
    type Key = (Vec<(Id, u32)>, Vec<Line>);

    fn after(&self, event: &Event) -> After<Self> {
        let mut next = self.clone();
        let outcome = next.call(&event.call, event.outcome);
        if outcome.map_err(|errno| errno.0) != event.outcome {
            return After::Nothing;
        }
        match (event.call, event.outcome) {
            (Call::Lookup { .. } | Call::Count { .. } | Call::Observe { .. }, _) | (_, Err(_)) => {
                After::Same
            }
            _ => After::Other(next),
        }
    }

    fn key(&self) -> Self::Key {
        let links = |(&id, &ino): (&Id, &Ino)| (id, self.links(ino));
        (self.inodes.iter().map(links).collect(), self.tree())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Id = (2, 1);
    const INNER: Id = (3, 1);
    const FILE: Id = (4, 1);

    fn event(call: Call, outcome: Outcome, begin: u64, end: u64) -> Event {
        Event {
            thread: None,
            call,
            outcome,
            begin,
            end,
        }
    }

    fn is_linearizable(events: &[Event]) -> bool {
        history(events).is_linearizable(&Names::new(BASE))
    }

    #[test]
    fn a_seen_name_stays_visible() {
        let at = DirName {
            dir: BASE,
            name: "a",
        };
        let make = Call::Make { at, is_dir: false };
        let (seen, unseen) = (Ok(Answer::Inode((7, 1))), Err(libc::ENOENT));
        let look = Call::Lookup { at };
        let history = |one, other| {
            [
                event(make, seen, 0, 9),
                event(look, one, 1, 2),
                event(look, other, 3, 4),
            ]
        };
        assert!(is_linearizable(&history(unseen, seen)));
        assert!(!is_linearizable(&history(seen, unseen)));
    }

    #[test]
    fn the_search_orders_calls_across_directories() {
        let [above, below] = [(BASE, "a"), (INNER, "b")].map(|(dir, name)| DirName { dir, name });
        let make = |at, is_dir| Call::Make { at, is_dir };
        let remove = |at, is_dir| Call::Remove { at, is_dir };
        let done = Ok(Answer::Done);
        let mut calls = [
            (make(above, true), Ok(Answer::Inode(INNER))),
            (make(below, false), Ok(Answer::Inode(FILE))),
            (remove(above, true), Err(libc::ENOTEMPTY)),
            (remove(below, false), done),
            (remove(above, true), done),
            (make(below, false), Err(libc::ENOENT)),
            (Call::Count { inode: FILE }, Ok(Answer::Links(0))),
        ];
        let in_turn = |calls: &[(Call, Outcome)]| {
            let calls = (0..).zip(calls);
            let events: Vec<Event> = calls
                .map(|(number, &(call, outcome))| event(call, outcome, 2 * number, 2 * number + 1))
                .collect();
            is_linearizable(&events)
        };
        assert!(in_turn(&calls));
        calls.swap(2, 4);
        assert!(!in_turn(&calls));
    }
}
