//! Linearizability of names: small histories of a few threads in one directory and below it. The
//! calls of each history must have an order that explains their results and respects their times.

mod caller;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use vellum::media::{LatencyModel, Real, Simulated};
use vellum::{Cred, FileKind, Fs, NamespaceKind, Node};
use vellum_model::linear::names::{Event, Names, history};

use super::areas;
use super::fixture::{Backend, Shape, Soundness, beside, check_open, on_each_namespace};
use super::sequences::case_count;
use super::shuttled::{Shuttled, explore, together};
use caller::{Caller, NAMES, Style, ident};
use vellum_testing::Random;

/// A directory that some threads share, with their clock and their recorded calls.
struct Shared<M: Backend> {
    fs: Arc<Fs<M>>,
    dir: Node<M>,
    clock: Arc<AtomicU64>,
    history: Mutex<Vec<Event>>,
}

/// The state in which the threads of a round start.
struct Round<M: Backend> {
    style: Style,
    /// What the first thread calls, if it only lists or counts.
    looking: Option<Style>,
    held: Vec<Node<M>>,
}

impl<M: Backend> Shared<M> {
    fn new(fs: &Arc<Fs<M>>) -> Self {
        let dir = fs.mkdir(&Cred::root(), &fs.root(), b"shared", 0o755);
        Self {
            fs: Arc::clone(fs),
            dir: dir.expect("there is room"),
            clock: Arc::default(),
            history: Mutex::default(),
        }
    }

    fn caller(&self, held: &[Node<M>], thread: Option<usize>) -> Caller<M> {
        Caller::new(&self.fs, held, thread, &self.clock)
    }

    fn note(&self, mut events: Vec<Event>) {
        let mut history = self.history.lock().expect("no thread failed");
        history.append(&mut events);
    }

    /// Creates objects to start with.
    fn begin_round(&self, random: &mut Random) -> Round<M> {
        let style = if random.below(4) == 0 {
            Style::all(random)
        } else {
            Style::some(random)
        };
        let mut caller = self.caller(std::slice::from_ref(&self.dir), None);
        let everything = Style::all(random);
        for _ in 0..random.below(6) {
            caller.random_call(random, &everything);
        }
        self.note(std::mem::take(&mut caller.events));
        let looking = (random.below(3) == 0).then(|| style.looking());
        Round {
            style,
            looking,
            held: caller.held,
        }
    }

    /// Makes the calls of one thread.
    fn call(&self, round: &Round<M>, thread: usize, calls: u64, random: &mut Random) {
        let mut caller = self.caller(&round.held, Some(thread));
        let looking = round.looking.as_ref().filter(|_| thread == 0);
        let style = looking.unwrap_or(&round.style);
        let calls = if looking.is_some() { 2 * calls } else { calls };
        for _ in 0..1 + random.below(calls) {
            for _ in 0..random.below(200) {
                std::hint::spin_loop();
            }
            caller.random_call(random, style);
        }
        self.note(std::mem::take(&mut caller.events));
    }

    /// Looks at everything once more while nothing changes, judges the history, and removes
    /// everything.
    fn end_round(&self, story: &str) {
        let mut caller = self.caller(std::slice::from_ref(&self.dir), None);
        let mut seen = 0;
        while seen < caller.held.len() {
            if caller.held[seen].kind() == FileKind::Directory {
                (0..NAMES.len()).for_each(|name| caller.lookup(seen, name));
                caller.list(seen);
            }
            caller.count(seen);
            seen += 1;
        }
        let mut events = std::mem::take(&mut *self.history.lock().expect("no thread failed"));
        events.append(&mut caller.events);
        if !history(&events).is_linearizable(&Names::new(ident(&self.dir))) {
            events.sort_by_key(|event| event.begin);
            let lines: Vec<_> = events.iter().map(|event| event.to_string()).collect();
            panic!("{story} has no order:\n{}", lines.join("\n"));
        }
        drop(caller);
        self.clear(&self.dir);
    }

    /// Removes everything below `dir`, and checks that nothing is left.
    fn clear(&self, dir: &Node<M>) {
        let (fs, cred) = (&self.fs, Cred::root());
        for name in NAMES.map(str::as_bytes) {
            let Ok(node) = fs.lookup(&cred, dir, name) else {
                continue;
            };
            let is_dir = node.kind() == FileKind::Directory;
            if is_dir {
                self.clear(&node);
            }
            let remove = if is_dir { Fs::rmdir } else { Fs::unlink };
            remove(fs, &cred, dir, name).expect("no other thread removes it");
        }
        let attr = fs.attr(dir).expect("nothing is damaged");
        let children = fs.children(dir).expect("a directory");
        assert_eq!((attr.nlink, children), (2, 0), "links and children");
    }
}

/// Starts threads at the same moment. They wait busily, because waking up takes longer than a
/// history.
struct Start {
    missing: AtomicU64,
}

impl Start {
    fn wait(&self) {
        self.missing.fetch_sub(1, Ordering::SeqCst);
        let mut tries = 0u32;
        while self.missing.load(Ordering::SeqCst) > 0 {
            tries += 1;
            if tries.is_multiple_of(256) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }
}

/// Runs rounds of `threads` threads with `calls` calls each, during background work, and judges
/// each round's history.
fn rounds<M: Backend>(fs: &Arc<Fs<M>>, threads: usize, calls: u64, count: u32, seed: u64) {
    let shared = Shared::new(fs);
    let mut random = Random::new(seed);
    let work = |stop: &AtomicBool| {
        let mut random = Random::new(seed);
        while !stop.load(Ordering::Relaxed) {
            fs.maintain().expect("nothing is damaged");
            areas::change_one(fs, &mut random);
            let _ = fs.stat_from_root(&Cred::root(), b"/filler/7", true);
            std::thread::yield_now();
        }
    };
    beside(work, || {
        for round in 0..count {
            let begun = shared.begin_round(&mut random);
            let start = Start {
                missing: AtomicU64::new(threads as u64),
            };
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let (shared, begun, start, seed) = (&shared, &begun, &start, random.word());
                    scope.spawn(move || {
                        start.wait();
                        shared.call(begun, thread, calls, &mut Random::new(seed));
                    });
                }
            });
            drop(begun);
            shared.end_round(&format!("round {round}"));
        }
    });
}

/// Creates so many names elsewhere that caches are always too small.
fn fill<M: Backend>(fs: &Arc<Fs<M>>, count: u32) {
    let cred = Cred::root();
    let dir = fs
        .mkdir(&cred, &fs.root(), b"filler", 0o755)
        .expect("there is room");
    for number in 0..count {
        let name = format!("{number}");
        fs.mknod(&cred, &dir, name.as_bytes(), FileKind::File, 0o644, 0)
            .expect("there is room");
    }
}

fn end<M: Backend>(fs: &Arc<Fs<M>>) {
    while fs.maintain().expect("nothing is damaged") > 0 {}
    check_open(&**fs, Soundness::InUse).unwrap();
    fs.close().expect("nothing is open");
    check_open(&**fs, Soundness::Closed).unwrap();
}

#[test]
fn two_threads_on_mapped_memory() {
    on_each_namespace(case_count(3000), |namespace, count| {
        let fs = <Real as Backend>::make(&Shape::new(8 << 20, 2, 1 << 20).with(namespace));
        rounds(&fs, 2, 6, count, 1);
        end(&fs);
    });
}

#[test]
fn three_threads_on_mapped_memory() {
    on_each_namespace(case_count(3000), |namespace, count| {
        let fs = <Real as Backend>::make(&Shape::new(8 << 20, 3, 1 << 20).with(namespace));
        rounds(&fs, 3, 4, count, 2);
        end(&fs);
    });
}

#[test]
fn three_threads_on_slow_media() {
    on_each_namespace(case_count(2000), |namespace, count| {
        let fs = <Simulated as Backend>::make(&Shape::new(8 << 20, 4, 1 << 20).with(namespace));
        fs.pool().set_latency(LatencyModel {
            flush_ns: 500,
            fence_ns: 3000,
            read_ns_per_line: 0,
        });
        rounds(&fs, 3, 4, count, 3);
        end(&fs);
    });
}

#[test]
fn three_threads_while_names_are_evicted() {
    on_each_namespace(case_count(2000), |namespace, count| {
        let fs = <Simulated as Backend>::make(&Shape::new(8 << 20, 4, 64).with(namespace));
        fill(&fs, 60);
        fs.pool().set_latency(LatencyModel {
            flush_ns: 200,
            fence_ns: 1000,
            read_ns_per_line: 0,
        });
        rounds(&fs, 3, 4, count, 4);
        end(&fs);
    });
}

/// One history under a schedule of [`explore`].
fn scheduled(seed: u64, threads: usize, calls: u64, is_crowded: bool) {
    let cache_entries = if is_crowded { 64 } else { 1 << 20 };
    let namespaces = NamespaceKind::ALL.len() as u64;
    // Half of the schedules use the default namespace, the others take turns.
    let namespace = match seed % 2 {
        0 => NamespaceKind::default(),
        _ => NamespaceKind::ALL[(seed / 2 % namespaces) as usize],
    };
    let fs = <Shuttled as Backend>::make(&Shape::new(1 << 20, 4, cache_entries).with(namespace));
    if is_crowded {
        fill(&fs, 60);
    }
    let shared = Arc::new(Shared::new(&fs));
    let mut random = Random::new(seed);
    let round = Arc::new(shared.begin_round(&mut random));
    let mut jobs: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for thread in 0..threads {
        let (shared, round, seed) = (Arc::clone(&shared), Arc::clone(&round), random.word());
        jobs.push(Box::new(move || {
            shared.call(&round, thread, calls, &mut Random::new(seed));
        }));
    }
    drop(round);
    if is_crowded || random.below(4) == 0 {
        let background = Arc::clone(&fs);
        jobs.push(Box::new(move || {
            let mut random = Random::new(seed);
            for _ in 0..2 {
                background.maintain().expect("nothing is damaged");
                areas::change_one(&background, &mut random);
            }
        }));
    }
    together(jobs);
    shared.end_round(&format!("seed {seed}"));
    drop(shared);
    end(&fs);
}

#[test]
fn two_threads_under_schedules() {
    explore(case_count(3000), 1, |seed| scheduled(seed, 2, 3, false));
}

#[test]
fn three_threads_under_schedules() {
    explore(case_count(3000), 2, |seed| scheduled(seed, 3, 2, false));
}

#[test]
fn three_threads_under_schedules_while_names_are_evicted() {
    explore(case_count(1000), 3, |seed| scheduled(seed, 3, 3, true));
}
