//! Random calls beside each other are *linearizable*: there is an order of all calls, in which no
//! call comes after one that began when it had returned, such that the reference model, asked in
//! that order, gives every answer that was given, and ends with the same tree.
//!
//! Each schedule draws calls of its own, by the schedule's randomness, so that a printed schedule
//! replays them too. Calls name entries of three directories held open, because finding a path of
//! several components is several steps, as it is everywhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shuttle::rand::{Rng, thread_rng};
use vellum_layout::FileKind;
use vellum_model::{Cred as ModelCred, DirEntry, Ino, Kind, Model};

use super::shuttle_memory::Shuttled;
use super::world::{World, explore};
use crate::error::{Error, Result};
use crate::fs::{Cred, Node, RenameFlags};

/// Inode number and generation.
type Id = (u64, u32);

/// A name in one of the three directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spot {
    dir: usize,
    name: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    File(Spot),
    Mkdir(Spot),
    /// A further name for the file that is held.
    Link(Spot),
    Unlink(Spot),
    Rmdir(Spot),
    Rename(Spot, Spot, RenameFlags),
    See(Spot),
    /// Takes the names of a directory out of the index.
    Forget(usize),
    Squeeze,
    Maintain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Done,
    /// Made or found.
    Is(Id),
    /// The error number.
    Failed(i32),
}

/// A call, and when (counted in begins and returns) it began and returned.
#[derive(Clone, Copy, Debug)]
struct Event {
    call: Call,
    answer: Answer,
    began: u64,
    returned: u64,
}

/// An entry: its directory, name, inode and that inode's link count.
type Line = (Id, String, Id, u32);

/// What every thread holds open.
struct Held {
    /// `/`, `/p` and `/q`.
    dirs: [Node<Shuttled>; 3],
    file: Node<Shuttled>,
}

fn id(node: &Node<Shuttled>) -> Id {
    (node.ino(), node.generation())
}

fn spot() -> Spot {
    let dir = thread_rng().gen_range(0..3);
    let names: &[_] = match dir {
        0 => &["p", "q", "a"],
        _ => &["a", "b"],
    };
    Spot {
        dir,
        name: names[thread_rng().gen_range(0..names.len())],
    }
}

impl Call {
    fn draw() -> Self {
        match thread_rng().gen_range(0..18) {
            0 | 1 => Self::File(spot()),
            2 | 3 => Self::Mkdir(spot()),
            4 => Self::Link(spot()),
            5 | 6 => Self::Unlink(spot()),
            7 | 8 => Self::Rmdir(spot()),
            9 | 10 => Self::Rename(spot(), spot(), RenameFlags::empty()),
            11 => Self::Rename(spot(), spot(), RenameFlags::NO_REPLACE),
            12 => Self::Rename(spot(), spot(), RenameFlags::EXCHANGE),
            13..=15 => Self::See(spot()),
            16 => Self::Forget(thread_rng().gen_range(0..3)),
            17 if thread_rng().gen_bool(0.5) => Self::Squeeze,
            _ => Self::Maintain,
        }
    }

    fn run(self, world: &World, held: &Held) -> Result<Answer> {
        let (fs, root) = (&world.fs, Cred::root());
        let at = |spot: Spot| (&held.dirs[spot.dir], spot.name.as_bytes());
        match self {
            Self::File(to) => {
                let (dir, name) = at(to);
                let made = fs.mknod(&root, dir, name, FileKind::File, 0o644, 0)?;
                return Ok(Answer::Is(id(&made)));
            }
            Self::Mkdir(to) => {
                let (dir, name) = at(to);
                return Ok(Answer::Is(id(&fs.mkdir(&root, dir, name, 0o755)?)));
            }
            Self::See(of) => {
                let (dir, name) = at(of);
                return Ok(Answer::Is(id(&fs.lookup(&root, dir, name)?)));
            }
            Self::Link(to) => fs.link(&root, &held.file, at(to).0, at(to).1)?,
            Self::Unlink(of) => fs.unlink(&root, at(of).0, at(of).1)?,
            Self::Rmdir(of) => fs.rmdir(&root, at(of).0, at(of).1)?,
            Self::Rename(from, to, flags) => {
                let (from, to) = (at(from), at(to));
                fs.rename(&root, from.0, from.1, to.0, to.1, flags)?;
            }
            Self::Forget(dir) => world.forget_in(&held.dirs[dir]),
            Self::Squeeze => world.squeeze(),
            Self::Maintain => world.maintain(),
        }
        Ok(Answer::Done)
    }
}

/// The model, with what it knows of the engine's inodes.
#[derive(Clone)]
struct Reference {
    model: Model,
    dirs: [Ino; 3],
    file: Ino,
    inos: BTreeMap<Id, Ino>,
}

impl Reference {
    /// Asks the model; whether it gives the same answer.
    fn agrees(&mut self, event: &Event) -> bool {
        match self.ask(event.call) {
            Ok(None) => event.answer == Answer::Done,
            Ok(Some(ino)) => match event.answer {
                Answer::Is(id) => *self.inos.entry(id).or_insert(ino) == ino,
                _ => false,
            },
            Err(errno) => event.answer == Answer::Failed(errno.0),
        }
    }

    fn ask(&mut self, call: Call) -> vellum_model::Result<Option<Ino>> {
        let (model, root) = (&mut self.model, ModelCred::superuser());
        let at = |spot: Spot| (self.dirs[spot.dir], spot.name.as_bytes());
        match call {
            Call::File(to) => {
                return model
                    .create(at(to).0, at(to).1, 0o644, true, &root, 1)
                    .map(Some);
            }
            Call::Mkdir(to) => return model.mkdir(at(to).0, at(to).1, 0o755, &root, 1).map(Some),
            Call::See(of) => return model.lookup(at(of).0, at(of).1, &root).map(Some),
            Call::Link(to) => model.link(self.file, at(to).0, at(to).1, &root, 1)?,
            Call::Unlink(of) => model.unlink(at(of).0, at(of).1, &root, 1)?,
            Call::Rmdir(of) => model.rmdir(at(of).0, at(of).1, &root, 1)?,
            Call::Rename(from, to, flags) => {
                let (from, to) = (at(from), at(to));
                model.rename(from.0, from.1, to.0, to.1, flags.bits(), &root, 1)?;
            }
            Call::Forget(_) | Call::Squeeze | Call::Maintain => {}
        }
        Ok(None)
    }

    /// Whether the model's tree is `tree`.
    fn has_tree(&mut self, tree: &[Line]) -> bool {
        let mut count = 0;
        let mut dirs = vec![Ino::ROOT];
        while let Some(dir) = dirs.pop() {
            let entries = self.model.readdir(dir, 1).expect("it is a directory");
            let real = |e: &&DirEntry| !matches!(&e.name[..], b"." | b"..");
            for entry in entries.iter().filter(real) {
                count += 1;
                if entry.kind == Kind::Dir {
                    dirs.push(entry.ino);
                }
            }
        }
        let fits = |(dir, name, child, nlink): &Line| {
            let (Some(&dir), Some(&child)) = (self.inos.get(dir), self.inos.get(child)) else {
                return false;
            };
            let found = self
                .model
                .lookup(dir, name.as_bytes(), &ModelCred::superuser());
            found == Ok(child)
                && self
                    .model
                    .getattr(child)
                    .is_ok_and(|attr| attr.nlink == *nlink)
        };
        count == tree.len() && tree.iter().all(fits)
    }
}

/// Whether there is an order of what is left of each thread's events that explains them and `tree`.
fn has_order(reference: &Reference, left: &[&[Event]], tree: &[Line]) -> bool {
    let first = left.iter().filter_map(|events| events.first());
    let Some(end) = first.map(|event| event.returned).min() else {
        return reference.clone().has_tree(tree);
    };
    (0..left.len()).any(|thread| {
        let Some((next, rest)) = left[thread].split_first() else {
            return false;
        };
        let mut reference = reference.clone();
        if next.began > end || !reference.agrees(next) {
            return false;
        }
        let mut left = left.to_vec();
        left[thread] = rest;
        has_order(&reference, &left, tree)
    })
}

/// Makes `/p`, `/q`, a held file `/p/a`, and what `calls` say, here and in the model.
fn begin(world: &World, calls: &[Call]) -> (Held, Reference) {
    let dirs = [
        world.fs.root(),
        world.mkdir("/p").unwrap(),
        world.mkdir("/q").unwrap(),
    ];
    let file = world.file("/p/a").unwrap();
    let held = Held { dirs, file };
    let (mut model, root) = (Model::new(0), ModelCred::superuser());
    let p = model.mkdir(Ino::ROOT, b"p", 0o755, &root, 1).unwrap();
    let q = model.mkdir(Ino::ROOT, b"q", 0o755, &root, 1).unwrap();
    let file = model.create(p, b"a", 0o644, true, &root, 1).unwrap();
    for ino in [p, q, file] {
        model.open(ino, 0, &root, 1).unwrap();
    }
    let ids = held.dirs.iter().chain([&held.file]).map(id);
    let mut reference = Reference {
        model,
        dirs: [Ino::ROOT, p, q],
        file,
        inos: ids.zip([Ino::ROOT, p, q, file]).collect(),
    };
    let clock = AtomicU64::new(0);
    for &call in calls {
        assert!(reference.agrees(&observe(world, &held, &clock, call)));
    }
    (held, reference)
}

fn observe(world: &World, held: &Held, clock: &AtomicU64, call: Call) -> Event {
    let began = clock.fetch_add(1, Ordering::Relaxed);
    let failed = |error: Error| Answer::Failed(error.errno());
    let answer = call.run(world, held).unwrap_or_else(failed);
    let returned = clock.fetch_add(1, Ordering::Relaxed);
    Event {
        call,
        answer,
        began,
        returned,
    }
}

fn tree_of(world: &World) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut paths = vec![String::new()];
    while let Some(path) = paths.pop() {
        let dir = world
            .node(if path.is_empty() { "/" } else { &path })
            .unwrap();
        for (name, _) in world.list(&format!("{path}/")).unwrap() {
            let below = format!("{path}/{name}");
            let child = world.node(&below).unwrap();
            let nlink = world.fs.attr(&child).unwrap().nlink;
            lines.push((id(&dir), name, id(&child), nlink));
            if child.kind() == FileKind::Directory {
                paths.push(below);
            }
        }
    }
    lines
}

/// Draws `calls` calls for each of `threads` threads and looks for an order that explains them.
fn calls_have_an_order(world: &World, threads: usize, calls: usize) {
    let draw = |count: usize| -> Vec<Call> { (0..count).map(|_| Call::draw()).collect() };
    let (held, reference) = begin(world, &draw(3));
    let (held, clock) = (Arc::new(held), Arc::new(AtomicU64::new(0)));
    let job = |calls: Vec<Call>| {
        let (held, clock) = (Arc::clone(&held), Arc::clone(&clock));
        let run = move |world: World| -> Vec<Event> {
            let observe = |call| observe(&world, &held, &clock, call);
            calls.into_iter().map(observe).collect()
        };
        Box::new(run) as Box<dyn FnOnce(World) -> Vec<Event> + Send>
    };
    let given = world.together((0..threads).map(|_| job(draw(calls))).collect());
    let left: Vec<&[Event]> = given.iter().map(Vec::as_slice).collect();
    let tree = tree_of(world);
    assert!(
        has_order(&reference, &left, &tree),
        "no order of these calls explains their answers:\n{}\nfrom {:#?}\nto {tree:?}",
        given.iter().map(|events| show(events)).collect::<String>(),
        reference.model.snapshot(false),
    );
}

fn show(events: &[Event]) -> String {
    let line = |e: &Event| {
        format!(
            "  {}..{} {:?}: {:?}\n",
            e.began, e.returned, e.call, e.answer
        )
    };
    events.iter().map(line).chain(["\n".into()]).collect()
}

#[test]
fn calls_of_two_threads_have_an_order() {
    explore(4000, |world| calls_have_an_order(&world, 2, 3));
}

#[test]
fn calls_of_three_threads_have_an_order() {
    explore(4000, |world| calls_have_an_order(&world, 3, 2));
}
