//! Histories: calls on names with what they answered and when they ran, and the search for an order
//! that explains them (Wing and Gong), the model being the sequential object.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use vellum_model::{Cred, Errno, Ino, Model};

/// The names that calls use, by number.
pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

/// Stands for the calls before all threads'.
pub(super) const FIRST: usize = usize::MAX - 1;
/// Stands for the calls after all threads'.
pub(super) const LAST: usize = usize::MAX;

/// An inode: number and generation.
pub(super) type Ident = (u64, u32);

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) dir: Ident,
    pub(super) name: usize,
}

/// What was called. Directories and files are held, so that they are meant whatever they are
/// called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Make {
        at: Place,
        is_dir: bool,
    },
    Remove {
        at: Place,
        is_dir: bool,
    },
    Rename {
        from: Place,
        to: Place,
        flags: u32,
    },
    Link {
        inode: Ident,
        to: Place,
    },
    Lookup {
        at: Place,
    },
    /// The link count of an inode.
    Count {
        inode: Ident,
    },
    /// What a listing says of one name, at some moment of its own: a listing is not one operation.
    Observe {
        at: Place,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Inode(Ident),
    Links(u32),
    /// Inode number of a name; a listing knows no generation.
    Seen(Option<u64>),
}

/// An answer or an errno.
pub(super) type Outcome = Result<Answer, i32>;

#[derive(Clone, Copy)]
pub(super) struct Event {
    pub(super) thread: usize,
    pub(super) call: Call,
    pub(super) outcome: Outcome,
    /// Moments at which nothing else began or ended.
    pub(super) begin: u64,
    pub(super) end: u64,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            thread,
            call,
            outcome,
            begin,
            end,
        } = self;
        match *thread {
            FIRST => write!(f, "before  ")?,
            LAST => write!(f, "after   ")?,
            thread => write!(f, "thread {thread}")?,
        }
        write!(f, " {begin}..{end}: {call:?}: {outcome:?}")
    }
}

/// What no call answers.
const IMPOSSIBLE: i32 = -1;

/// A model, and what its inodes are in the engine.
#[derive(Clone)]
pub(super) struct State {
    model: Model,
    inodes: BTreeMap<Ident, Ino>,
}

/// All that tells two states apart for what may still be called: each inode with its link count
/// and, of a directory, what its names stand for.
type Fingerprint = Vec<(Ident, u32, [Option<Ident>; NAMES.len()])>;

impl State {
    /// An empty directory, `base`.
    pub(super) fn new(base: Ident) -> Self {
        Self {
            model: Model::new(0),
            inodes: [(base, Ino::ROOT)].into(),
        }
    }

    /// Does what `event` called; `None` if it would not have come to what it did.
    fn after(&self, event: &Event) -> Option<Self> {
        let mut next = self.clone();
        (next.apply(&event.call, event.outcome) == event.outcome).then_some(next)
    }

    fn ino(&self, ident: Ident) -> Result<Ino, Errno> {
        self.inodes.get(&ident).copied().ok_or(Errno(IMPOSSIBLE))
    }

    fn ident(&self, ino: Ino) -> Option<Ident> {
        let mut known = self.inodes.iter();
        known.find_map(|(&ident, &known)| (known == ino).then_some(ident))
    }

    fn find(&self, at: Place) -> Result<Ino, Errno> {
        let name = NAMES[at.name].as_bytes();
        self.model
            .lookup(self.ino(at.dir)?, name, &Cred::superuser())
    }

    /// `found` tells the identity of what is made, which the model cannot know.
    fn apply(&mut self, call: &Call, found: Outcome) -> Outcome {
        self.run(call, found).map_err(|errno| errno.0)
    }

    fn run(&mut self, call: &Call, found: Outcome) -> Result<Answer, Errno> {
        let root = &Cred::superuser();
        match *call {
            Call::Make { at, is_dir } => {
                let (dir, name) = (self.ino(at.dir)?, NAMES[at.name].as_bytes());
                let made = if is_dir {
                    self.model.mkdir(dir, name, 0o755, root, 1)?
                } else {
                    self.model.create(dir, name, 0o644, true, root, 1)?
                };
                let Ok(Answer::Inode(ident)) = found else {
                    return Err(Errno(IMPOSSIBLE));
                };
                // Whatever was made may be held by somebody till the end.
                self.model.open(made, libc::O_RDONLY, root, 1)?;
                self.inodes.insert(ident, made);
                Ok(Answer::Inode(ident))
            }
            Call::Remove { at, is_dir } => {
                let (dir, name) = (self.ino(at.dir)?, NAMES[at.name].as_bytes());
                let remove = if is_dir { Model::rmdir } else { Model::unlink };
                remove(&mut self.model, dir, name, root, 1).map(|()| Answer::Done)
            }
            Call::Rename { from, to, flags } => {
                let (from_dir, to_dir) = (self.ino(from.dir)?, self.ino(to.dir)?);
                let [from, to] = [from, to].map(|place| NAMES[place.name].as_bytes());
                self.model
                    .rename(from_dir, from, to_dir, to, flags, root, 1)
                    .map(|()| Answer::Done)
            }
            Call::Link { inode, to } => {
                let (file, dir) = (self.ino(inode)?, self.ino(to.dir)?);
                self.model
                    .link(file, dir, NAMES[to.name].as_bytes(), root, 1)
                    .map(|()| Answer::Done)
            }
            Call::Lookup { at } => {
                let ident = self.ident(self.find(at)?);
                ident.map(Answer::Inode).ok_or(Errno(IMPOSSIBLE))
            }
            Call::Count { inode } => {
                let attr = self.model.getattr(self.ino(inode)?)?;
                Ok(Answer::Links(attr.nlink))
            }
            Call::Observe { at } => match self.find(at) {
                Ok(ino) => Ok(Answer::Seen(self.ident(ino).map(|(number, _)| number))),
                Err(Errno::ENOENT) => Ok(Answer::Seen(None)),
                Err(errno) => Err(errno),
            },
        }
    }

    fn fingerprint(&self) -> Fingerprint {
        let mut known = self.inodes.iter();
        let names = |dir| {
            std::array::from_fn(|name| {
                let found = self.find(Place { dir, name });
                found.ok().and_then(|ino| self.ident(ino))
            })
        };
        let links = |ino| self.model.getattr(ino).map_or(0, |attr| attr.nlink);
        known
            .by_ref()
            .map(|(&ident, &ino)| (ident, links(ino), names(ident)))
            .collect()
    }
}

/// Whether some order of the events fits, from `start`.
pub(super) fn is_linearizable(start: &State, events: &[Event]) -> bool {
    assert!(events.len() <= 128, "events are bits of a word");
    let mut by_begin = events.to_vec();
    by_begin.sort_by_key(|event| event.begin);
    search(start, &by_begin, 0, &mut HashSet::new())
}

fn search(
    state: &State,
    events: &[Event],
    done: u128,
    dead_ends: &mut HashSet<(u128, Fingerprint)>,
) -> bool {
    let left = || {
        let all = events.iter().enumerate();
        all.filter(|(index, _)| done >> index & 1 == 0)
    };
    let Some(first_end) = left().map(|(_, event)| event.end).min() else {
        return true;
    };
    let key = (done, state.fingerprint());
    if dead_ends.contains(&key) {
        return false;
    }
    // Only what began before anything else ended can come first.
    for (index, event) in left().filter(|(_, event)| event.begin < first_end) {
        if let Some(next) = state.after(event)
            && search(&next, events, done | 1 << index, dead_ends)
        {
            return true;
        }
    }
    dead_ends.insert(key);
    false
}

#[test]
fn the_search_finds_what_cannot_be() {
    let base = (2, 1);
    let event = |thread, call, outcome, begin, end| Event {
        thread,
        call,
        outcome,
        begin,
        end,
    };
    let at = Place { dir: base, name: 0 };
    let make = Call::Make { at, is_dir: false };
    let (seen, unseen) = (Ok(Answer::Inode((7, 1))), Err(libc::ENOENT));
    let look = Call::Lookup { at };
    let possible = [
        event(0, make, seen, 0, 9),
        event(1, look, unseen, 1, 2),
        event(1, look, seen, 3, 4),
    ];
    assert!(is_linearizable(&State::new(base), &possible));
    let impossible = [
        event(0, make, seen, 0, 9),
        event(1, look, seen, 1, 2),
        event(1, look, unseen, 3, 4),
    ];
    assert!(!is_linearizable(&State::new(base), &impossible));
}

#[test]
fn the_search_tells_orders_across_directories() {
    let (base, inner) = ((2, 1), (3, 1));
    let mut moment = 0;
    let mut event = |call, outcome| {
        moment += 2;
        Event {
            thread: 0,
            call,
            outcome,
            begin: moment,
            end: moment + 1,
        }
    };
    let (above, below) = (
        Place { dir: base, name: 0 },
        Place {
            dir: inner,
            name: 1,
        },
    );
    let done = Ok(Answer::Done);
    let mut events = vec![
        event(
            Call::Make {
                at: above,
                is_dir: true,
            },
            Ok(Answer::Inode(inner)),
        ),
        event(
            Call::Make {
                at: below,
                is_dir: false,
            },
            Ok(Answer::Inode((4, 1))),
        ),
        event(
            Call::Remove {
                at: above,
                is_dir: true,
            },
            Err(libc::ENOTEMPTY),
        ),
        event(
            Call::Remove {
                at: below,
                is_dir: false,
            },
            done,
        ),
        event(
            Call::Remove {
                at: above,
                is_dir: true,
            },
            done,
        ),
        event(
            Call::Make {
                at: below,
                is_dir: false,
            },
            Err(libc::ENOENT),
        ),
        event(Call::Count { inode: (4, 1) }, Ok(Answer::Links(0))),
    ];
    assert!(is_linearizable(&State::new(base), &events));
    events.swap(2, 4);
    for (moment, event) in events.iter_mut().enumerate() {
        (event.begin, event.end) = (2 * moment as u64, 2 * moment as u64 + 1);
    }
    assert!(!is_linearizable(&State::new(base), &events));
}
