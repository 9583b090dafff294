//! Random concurrent calls are *linearizable*: there is an order of all calls, in which no call
//! comes after one that began when it had returned, such that the reference model, called in that
//! order, returns every actual result and ends with the same tree.
//!
//! Each schedule draws its own calls with the schedule's random numbers, so a printed schedule
//! replays them too. Calls name entries of three directories that are held open, because the lookup
//! of a longer path is several steps, as in every file system.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shuttle::rand::{Rng, thread_rng};
use vellum_layout::FileKind;
use vellum_model::linear::names::{self, Answer, DirName, Event, Id, Line, Names};

use super::shuttle_memory::Shuttled;
use super::world::{World, explore};
use crate::error::Result;
use crate::fs::{Cred, Node, RenameFlags};

/// A name in one of the three directories.
type Spot = (usize, &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    File(Spot),
    Mkdir(Spot),
    /// Another name for the file that is held.
    Link(Spot),
    Unlink(Spot),
    Rmdir(Spot),
    Rename(Spot, Spot, RenameFlags),
    See(Spot),
    /// Removes the names of a directory from the index.
    Forget(usize),
    Squeeze,
    Maintain,
}

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
    (dir, names[thread_rng().gen_range(0..names.len())])
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
        let at = |(dir, name): Spot| (&held.dirs[dir], name.as_bytes());
        match self {
            Self::File(to) => {
                let (dir, name) = at(to);
                let made = fs.mknod(&root, dir, name, FileKind::File, 0o644, 0)?;
                return Ok(Answer::Inode(id(&made)));
            }
            Self::Mkdir(to) => {
                let (dir, name) = at(to);
                let made = fs.mkdir(&root, dir, name, 0o755)?;
                return Ok(Answer::Inode(id(&made)));
            }
            Self::See(of) => {
                let (dir, name) = at(of);
                return Ok(Answer::Inode(id(&fs.lookup(&root, dir, name)?)));
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

    /// The corresponding call on names, if there is one.
    fn on_names(self, held: &Held) -> Option<names::Call> {
        let at = |(dir, name): Spot| DirName {
            dir: id(&held.dirs[dir]),
            name,
        };
        Some(match self {
            Self::File(to) => make(at(to), false),
            Self::Mkdir(to) => make(at(to), true),
            Self::Link(to) => names::Call::Link {
                inode: id(&held.file),
                to: at(to),
            },
            Self::Unlink(of) => names::Call::Remove {
                at: at(of),
                is_dir: false,
            },
            Self::Rmdir(of) => names::Call::Remove {
                at: at(of),
                is_dir: true,
            },
            Self::Rename(from, to, flags) => names::Call::Rename {
                from: at(from),
                to: at(to),
                flags: flags.bits(),
            },
            Self::See(of) => names::Call::Lookup { at: at(of) },
            Self::Forget(_) | Self::Squeeze | Self::Maintain => return None,
        })
    }
}

fn make(at: DirName, is_dir: bool) -> names::Call {
    names::Call::Make { at, is_dir }
}

/// A thread that makes calls, and the times at which calls of all threads begin and end.
#[derive(Clone)]
struct Caller {
    thread: Option<usize>,
    held: Arc<Held>,
    clock: Arc<AtomicU64>,
}

impl Caller {
    /// Creates `/p`, `/q`, and a held file `/p/a`, before other threads run. Also returns these
    /// calls.
    fn begin(world: &World) -> (Self, Vec<Event>) {
        let dirs = [
            world.fs.root(),
            world.mkdir("/p").unwrap(),
            world.mkdir("/q").unwrap(),
        ];
        let file = world.file("/p/a").unwrap();
        let ids = dirs.each_ref().map(id);
        let at = |dir: usize, name| DirName {
            dir: ids[dir],
            name,
        };
        let made = [
            (make(at(0, "p"), true), ids[1]),
            (make(at(0, "q"), true), ids[2]),
            (make(at(1, "a"), false), id(&file)),
        ];
        let caller = Self {
            thread: None,
            held: Arc::new(Held { dirs, file }),
            clock: Arc::default(),
        };
        let event = |(call, id)| caller.event(call, || Ok(Answer::Inode(id)));
        let events = made.into_iter().map(event).collect();
        (caller, events)
    }

    fn event(&self, call: names::Call, run: impl FnOnce() -> Result<Answer>) -> Event {
        let begin = self.clock.fetch_add(1, Ordering::Relaxed);
        let outcome = run().map_err(|error| error.errno());
        let end = self.clock.fetch_add(1, Ordering::Relaxed);
        Event {
            thread: self.thread,
            call,
            outcome,
            begin,
            end,
        }
    }

    /// Makes calls one after the other. A call on names becomes an event.
    fn run(&self, world: &World, calls: &[Call]) -> Vec<Event> {
        let mut events = Vec::new();
        for call in calls {
            let run = || call.run(world, &self.held);
            match call.on_names(&self.held) {
                Some(on_names) => events.push(self.event(on_names, run)),
                None => drop(run().expect("nothing is damaged")),
            }
        }
        events
    }
}

/// Every name of the tree, in order.
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
            lines.push((id(&dir), name.into_bytes(), id(&child), nlink));
            if child.kind() == FileKind::Directory {
                paths.push(below);
            }
        }
    }
    lines.sort();
    lines
}

/// Draws `calls` calls for each of `threads` threads, and searches for an order that explains them
/// and the final tree.
fn calls_have_an_order(world: &World, threads: usize, calls: usize) {
    let draw = |count: usize| -> Vec<Call> { (0..count).map(|_| Call::draw()).collect() };
    let (caller, mut events) = Caller::begin(world);
    events.extend(caller.run(world, &draw(3)));
    let job = |thread: usize| {
        let (calls, mut caller) = (draw(calls), caller.clone());
        caller.thread = Some(thread);
        let run = move |world: World| caller.run(&world, &calls);
        Box::new(run) as Box<dyn FnOnce(World) -> Vec<Event> + Send>
    };
    let given = world.together((0..threads).map(job).collect());
    events.extend(given.into_iter().flatten());
    let tree = tree_of(world);
    let start = Names::new(id(&caller.held.dirs[0]));
    let found = names::history(&events).endings(&start, |state| match state.tree() == tree {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    let lines: Vec<String> = events.iter().map(Event::to_string).collect();
    assert!(
        found.is_break(),
        "no order of these calls explains their results:\n{}\nand the tree {tree:?}",
        lines.join("\n"),
    );
}

#[test]
fn calls_of_two_threads_have_an_order() {
    explore(4000, |world| calls_have_an_order(&world, 2, 3));
}

#[test]
fn calls_of_three_threads_have_an_order() {
    explore(4000, |world| calls_have_an_order(&world, 3, 2));
}
