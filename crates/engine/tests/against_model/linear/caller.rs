//! A thread that makes random calls, and records them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vellum::{Cred, Error, FileKind, Fs, ListPosition, Node, RenameFlags};
use vellum_model::linear::names::{Answer, Call, DirName, Event, Id};

use crate::fixture::Backend;
use vellum_testing::Random;

/// The names that calls use.
pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

const PLAIN: u32 = 0;
const NO_REPLACE: u32 = 1;
const EXCHANGE: u32 = 2;

/// Kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    MakeFile,
    MakeDirectory,
    Unlink,
    Rmdir,
    Rename(u32),
    Link,
    Lookup,
    List,
    Count,
}

/// The distribution of a history's calls. With few names and few kinds, calls conflict more often.
#[derive(Debug)]
pub(super) struct Style {
    /// Number of names in use.
    names: u64,
    kinds: Vec<Kind>,
}

impl Style {
    /// All kinds of calls, but either listings or link counts: each agrees with the names, but the
    /// two may disagree with each other for a moment.
    pub(super) fn all(random: &mut Random) -> Self {
        let look = [Kind::List, Kind::Count][random.below(2) as usize];
        let kinds = vec![
            Kind::MakeFile,
            Kind::MakeDirectory,
            Kind::Unlink,
            Kind::Rmdir,
            Kind::Rename(PLAIN),
            Kind::Rename(PLAIN),
            Kind::Rename(NO_REPLACE),
            Kind::Rename(EXCHANGE),
            Kind::Link,
            Kind::Lookup,
            look,
        ];
        Self {
            names: NAMES.len() as u64,
            kinds,
        }
    }

    /// Only listings or link counts.
    pub(super) fn looking(&self) -> Self {
        let is_look = |kind: &Kind| matches!(kind, Kind::List | Kind::Count);
        let look = self.kinds.iter().copied().find(is_look);
        Self {
            names: self.names,
            kinds: vec![Kind::Lookup, look.unwrap_or(Kind::Lookup)],
        }
    }

    /// A random selection of kinds.
    pub(super) fn some(random: &mut Random) -> Self {
        let mut style = Self::all(random);
        style.names = 1 + random.below(style.names);
        let left_out = random.below(style.kinds.len() as u64 - 2);
        for _ in 0..left_out {
            let which = random.below(style.kinds.len() as u64) as usize;
            style.kinds.swap_remove(which);
        }
        style
    }
}

/// One thread's view of a directory and of what it found there.
pub(super) struct Caller<M: Backend> {
    pub(super) fs: Arc<Fs<M>>,
    /// The shared directory first, then objects created or found in it.
    pub(super) held: Vec<Node<M>>,
    /// The thread's number; `None` if no other thread makes calls meanwhile.
    pub(super) thread: Option<usize>,
    pub(super) clock: Arc<AtomicU64>,
    pub(super) events: Vec<Event>,
}

pub(super) fn ident<M: Backend>(node: &Node<M>) -> Id {
    (node.ino(), node.generation())
}

impl<M: Backend> Caller<M> {
    pub(super) fn new(
        fs: &Arc<Fs<M>>,
        held: &[Node<M>],
        thread: Option<usize>,
        clock: &Arc<AtomicU64>,
    ) -> Self {
        Self {
            fs: Arc::clone(fs),
            held: held.to_vec(),
            thread,
            clock: Arc::clone(clock),
            events: Vec::new(),
        }
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn record(&mut self, call: Call, run: impl FnOnce(&mut Self) -> Result<Answer, Error>) {
        let begin = self.tick();
        let outcome = run(self).map_err(|error| error.errno());
        let end = self.tick();
        self.events.push(Event {
            thread: self.thread,
            call,
            outcome,
            begin,
            end,
        });
    }

    fn place(&self, dir: usize, name: usize) -> DirName {
        DirName {
            dir: ident(&self.held[dir]),
            name: NAMES[name],
        }
    }

    fn keep(&mut self, node: Node<M>) -> Answer {
        let ident = ident(&node);
        self.held.push(node);
        Answer::Inode(ident)
    }

    fn make(&mut self, dir: usize, name: usize, is_dir: bool) {
        let at = self.place(dir, name);
        self.record(Call::Make { at, is_dir }, |me| {
            let (cred, name) = (Cred::root(), NAMES[name].as_bytes());
            let made = if is_dir {
                me.fs.mkdir(&cred, &me.held[dir], name, 0o755)
            } else {
                let kind = FileKind::File;
                me.fs.mknod(&cred, &me.held[dir], name, kind, 0o644, 0)
            };
            made.map(|node| me.keep(node))
        });
    }

    pub(super) fn remove(&mut self, dir: usize, name: usize, is_dir: bool) {
        let at = self.place(dir, name);
        self.record(Call::Remove { at, is_dir }, |me| {
            let remove = if is_dir { Fs::rmdir } else { Fs::unlink };
            let name = NAMES[name].as_bytes();
            remove(&me.fs, &Cred::root(), &me.held[dir], name).map(|()| Answer::Done)
        });
    }

    fn rename(&mut self, from: (usize, usize), to: (usize, usize), flags: u32) {
        let call = Call::Rename {
            from: self.place(from.0, from.1),
            to: self.place(to.0, to.1),
            flags,
        };
        self.record(call, |me| {
            let (from_dir, to_dir) = (&me.held[from.0], &me.held[to.0]);
            let [from, to] = [from.1, to.1].map(|name| NAMES[name].as_bytes());
            let flags = RenameFlags::from_bits_retain(flags);
            me.fs
                .rename(&Cred::root(), from_dir, from, to_dir, to, flags)
                .map(|()| Answer::Done)
        });
    }

    fn link(&mut self, inode: usize, to: (usize, usize)) {
        let call = Call::Link {
            inode: ident(&self.held[inode]),
            to: self.place(to.0, to.1),
        };
        self.record(call, |me| {
            let name = NAMES[to.1].as_bytes();
            me.fs
                .link(&Cred::root(), &me.held[inode], &me.held[to.0], name)
                .map(|()| Answer::Done)
        });
    }

    pub(super) fn lookup(&mut self, dir: usize, name: usize) {
        let at = self.place(dir, name);
        self.record(Call::Lookup { at }, |me| {
            let name = NAMES[name].as_bytes();
            let found = me.fs.lookup(&Cred::root(), &me.held[dir], name)?;
            Ok(me.keep(found))
        });
    }

    pub(super) fn count(&mut self, inode: usize) {
        let call = Call::Count {
            inode: ident(&self.held[inode]),
        };
        self.record(call, |me| {
            let attr = me.fs.attr(&me.held[inode])?;
            Ok(Answer::Links(attr.nlink))
        });
    }

    pub(super) fn list(&mut self, dir: usize) {
        let begin = self.tick();
        let mut found = [const { Vec::new() }; NAMES.len()];
        let mut each = |entry: vellum::ListEntry<'_>| {
            let name = NAMES.iter().position(|name| name.as_bytes() == entry.name);
            found[name.expect("no call creates other names")].push(entry.ino);
            true
        };
        let mut position = ListPosition::default();
        let listed = self.fs.list(&self.held[dir], 0, &mut position, &mut each);
        listed.expect("the directory can be listed");
        let end = self.tick();
        for (name, inodes) in found.iter().enumerate() {
            // A name is listed twice, before and after its replacement, if it was replaced
            // meanwhile.
            if inodes.len() < 2 {
                self.events.push(Event {
                    thread: self.thread,
                    call: Call::Observe {
                        at: self.place(dir, name),
                    },
                    outcome: Ok(Answer::Seen(inodes.first().copied())),
                    begin,
                    end,
                });
            }
        }
    }

    /// An open directory: most often the first.
    fn some_dir(&self, random: &mut Random) -> usize {
        let which = random.below(2 * self.held.len() as u64) as usize;
        let held = self.held.get(which);
        if held.is_some_and(|node| node.kind() == FileKind::Directory) {
            which
        } else {
            0
        }
    }

    pub(super) fn random_call(&mut self, random: &mut Random, style: &Style) {
        let mut spot = || (self.some_dir(random), random.below(style.names) as usize);
        let ((dir, name), mut other) = (spot(), spot());
        if style.kinds.contains(&Kind::Count) {
            // The link counts of two directories change one after the other.
            other.0 = dir;
        }
        let inode = random.below(self.held.len() as u64) as usize;
        match style.kinds[random.below(style.kinds.len() as u64) as usize] {
            Kind::MakeFile => self.make(dir, name, false),
            Kind::MakeDirectory => self.make(dir, name, true),
            Kind::Unlink => self.remove(dir, name, false),
            Kind::Rmdir => self.remove(dir, name, true),
            Kind::Rename(flags) => self.rename((dir, name), other, flags),
            Kind::Link => self.link(inode, other),
            Kind::Lookup => self.lookup(dir, name),
            Kind::List => self.list(dir),
            Kind::Count => self.count(inode),
        }
    }
}
