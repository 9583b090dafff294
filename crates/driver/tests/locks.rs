//! Record locks of several processes, as the kernel gives them to real processes and as the library
//! does: grants, refusals, waits, deadlocks, and who is found in the way.
//!
//! Requests come one after the other, and the next one only when every process has its answer or
//! waits. Nobody asks for what a waiting process asks for, and nobody waits for two, or asks which
//! of two is in the way: then it does not matter in which order the kernel's threads run when a
//! lock is released, and the kernel finds every deadlock.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, yield_now};
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use vellum::media::Real;
use vellum::{Cred, Handle, HeldLock, LockKind, LockOwner, LockRange, LockWait, OpenOptions, Pool};
use vellum_testing::{Random, in_own_process};

const PROCESSES: usize = 4;
const FILES: usize = 2;
const BYTES: u64 = 10;
const STEPS: usize = 4000;
/// A child that lives longer is killed.
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Try(LockKind),
    Wait(LockKind),
    Unlock,
    Find(LockKind),
}

#[derive(Clone, Copy, Debug)]
struct Request {
    what: What,
    file: usize,
    first: u64,
    last: u64,
}

impl Request {
    fn unlock_all(file: usize) -> Self {
        Self {
            what: What::Unlock,
            file,
            first: 0,
            last: 2 * BYTES,
        }
    }

    fn range(&self) -> LockRange {
        LockRange::new(self.first..=self.last).expect("it has bytes")
    }

    /// The kind of lock that it asks for.
    fn kind(&self) -> Option<LockKind> {
        match self.what {
            What::Try(kind) | What::Wait(kind) => Some(kind),
            What::Unlock | What::Find(_) => None,
        }
    }

    fn excludes(&self, other: &Self) -> bool {
        let is_exclusive = [self.kind(), other.kind()].contains(&Some(LockKind::Exclusive));
        let both = self.kind().is_some() && other.kind().is_some();
        let overlap = self.first <= other.last && other.first <= self.last;
        both && is_exclusive && self.file == other.file && overlap
    }
}

/// The answer that a process gets.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Done,
    Failed(i32),
    /// The lock in the way: the number of the process, first and last byte.
    Found(Option<(usize, LockKind, u64, u64)>),
}

// --- The kernel ---

/// A child of this process. It carries out the requests that it reads.
struct Child {
    pid: i32,
    requests: PipeWriter,
    answers: BufReader<PipeReader>,
    is_asked: bool,
}

/// Without an end it would keep a failed test's output open.
impl Drop for Child {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.pid).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        waitpid(Some(pid), WaitOptions::empty()).unwrap();
    }
}

struct Kernel(Vec<Child>);

fn kind_number(kind: LockKind) -> i32 {
    match kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
    }
}

/// A request, or an answer, as numbers in a line.
fn numbers(line: &str) -> Vec<i64> {
    let words = line.split_whitespace();
    words.map(|word| word.parse().expect("a number")).collect()
}

/// Executes a request, and returns the answer.
fn obey(files: &[File], request: &[i64]) -> String {
    let mut lock = libc::flock {
        l_type: request[1] as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: request[3],
        l_len: request[4],
        l_pid: 0,
    };
    let file = &files[request[2] as usize];
    let done = match request[0] {
        0 => fcntl(file, FcntlArg::F_SETLK(&lock)),
        1 => fcntl(file, FcntlArg::F_SETLKW(&lock)),
        _ => fcntl(file, FcntlArg::F_GETLK(&mut lock)),
    };
    let errno = done.err().map_or(0, |errno| errno as i32);
    let (kind, first, len, pid) = (lock.l_type, lock.l_start, lock.l_len, lock.l_pid);
    format!("{errno} {kind} {first} {len} {pid}")
}

fn serve(dir: &Path, requests: PipeReader, mut answers: PipeWriter) {
    let open = |number: usize| {
        let mut options = File::options();
        let options = options.read(true).write(true);
        options.open(dir.join(number.to_string())).unwrap()
    };
    let files: Vec<File> = (0..FILES).map(open).collect();
    for line in BufReader::new(requests).lines() {
        let answer = obey(&files, &numbers(&line.unwrap()));
        writeln!(answers, "{answer}").unwrap();
    }
}

impl Kernel {
    fn new(dir: &Path) -> Self {
        for number in 0..FILES {
            File::create(dir.join(number.to_string())).unwrap();
        }
        let child = |_| {
            let (hears, requests) = std::io::pipe().unwrap();
            let (answers, tells) = std::io::pipe().unwrap();
            let (hears, tells) = (&mut Some(hears), &mut Some(tells));
            let run = || serve(dir, hears.take().unwrap(), tells.take().unwrap());
            Child {
                pid: vellum::media::fork(PATIENCE, run).unwrap(),
                requests,
                answers: BufReader::new(answers),
                is_asked: false,
            }
        };
        Self((0..PROCESSES).map(child).collect())
    }

    fn ask(&mut self, process: usize, request: &Request) {
        let (call, kind) = match request.what {
            What::Try(kind) => (0, kind_number(kind)),
            What::Wait(kind) => (1, kind_number(kind)),
            What::Unlock => (0, libc::F_UNLCK),
            What::Find(kind) => (2, kind_number(kind)),
        };
        let len = request.last - request.first + 1;
        let (file, first) = (request.file, request.first);
        let child = &mut self.0[process];
        writeln!(child.requests, "{call} {kind} {file} {first} {len}").unwrap();
        child.is_asked = true;
    }

    /// The answers, once every process has one or waits. Whoever releases a lock is answered when
    /// those that get it are not listed as waiting any more: so the asked process comes first, and
    /// the others are looked at again after each answer.
    fn answers(&mut self, asked: usize, is_find: bool) -> Vec<(usize, Answer)> {
        let pids: Vec<i32> = self.0.iter().map(|child| child.pid).collect();
        let mut given = Vec::new();
        while let Some((process, told)) = self.next_answer(asked) {
            given.push((process, answer(&told, is_find, &pids)));
        }
        given.sort_by_key(|answer| answer.0);
        given
    }

    fn next_answer(&mut self, asked: usize) -> Option<(usize, Vec<i64>)> {
        for process in std::iter::once(asked).chain(0..PROCESSES) {
            let child = &mut self.0[process];
            if !child.is_asked {
                continue;
            }
            while !has_line(&child.answers) && !is_blocked(child.pid) {
                yield_now();
            }
            if has_line(&child.answers) {
                child.is_asked = false;
                let mut line = String::new();
                child.answers.read_line(&mut line).unwrap();
                return Some((process, numbers(&line)));
            }
        }
        None
    }
}

fn answer(told: &[i64], is_find: bool, pids: &[i32]) -> Answer {
    let number = |at: usize| told[at] as i32;
    match number(0) {
        0 if is_find && number(1) == libc::F_UNLCK => Answer::Found(None),
        0 if is_find => {
            let owner = pids.iter().position(|&pid| pid == number(4)).unwrap();
            let kind = match number(1) {
                libc::F_RDLCK => LockKind::Shared,
                _ => LockKind::Exclusive,
            };
            let (first, last) = (told[2] as u64, (told[2] + told[3] - 1) as u64);
            Answer::Found(Some((owner, kind, first, last)))
        }
        0 => Answer::Done,
        errno => Answer::Failed(errno),
    }
}

fn has_line(answers: &BufReader<PipeReader>) -> bool {
    rustix::io::ioctl_fionread(answers.get_ref()).unwrap() > 0
}

/// Whether the kernel lists a request of this process as waiting.
fn is_blocked(pid: i32) -> bool {
    let listed = std::fs::read_to_string("/proc/locks").unwrap();
    let waiting = listed.lines().filter(|line| line.contains("-> POSIX"));
    let pid = pid.to_string();
    let mut pids = waiting.filter_map(|line| line.split_whitespace().nth(5));
    pids.any(|of| of == pid)
}

// --- The library ---

struct Library {
    pool: Pool,
    threads: Vec<JoinHandle<()>>,
    requests: Vec<Sender<Request>>,
    answers: Receiver<(usize, Answer)>,
    asked: usize,
}

fn ask_library(files: &[Handle<Real>], process: usize, request: &Request) -> Answer {
    let (file, range) = (&files[request.file], request.range());
    let owner = LockOwner::Process(process as u64);
    let told = match request.what {
        What::Try(kind) => file.lock_range(owner, kind, range, LockWait::NO),
        What::Wait(kind) => file.lock_range(owner, kind, range, LockWait::FOREVER),
        What::Unlock => file.unlock_range(owner, range),
        What::Find(kind) => {
            let found = file.find_lock(owner, kind, range).unwrap();
            return Answer::Found(found.map(|lock| numbered(&lock)));
        }
    };
    match told {
        Ok(()) => Answer::Done,
        Err(error) => Answer::Failed(error.errno()),
    }
}

fn numbered(lock: &HeldLock) -> (usize, LockKind, u64, u64) {
    let LockOwner::Process(owner) = lock.owner else {
        panic!("no handle has locks");
    };
    let end = lock.range.end().expect("every lock has an end");
    (owner as usize, lock.kind, lock.range.start(), end - 1)
}

impl Library {
    fn new() -> Self {
        let pool = Pool::memory(16 << 20).unwrap();
        let (fs, cred) = (pool.fs(), Cred::root());
        let open = |number: usize| {
            let options = OpenOptions::new().read(true).write(true);
            let name = number.to_string();
            fs.create(&cred, &fs.root(), name.as_bytes(), &options)
                .unwrap()
        };
        // One handle for each file: owners are told apart by their numbers.
        let files = Arc::new((0..FILES).map(open).collect::<Vec<_>>());
        let (tells, answers) = channel();
        let thread = |process: usize| {
            let (requests, hears) = channel::<Request>();
            let (files, tells) = (Arc::clone(&files), tells.clone());
            let serve = move || {
                for request in hears {
                    let answer = ask_library(&files, process, &request);
                    tells.send((process, answer)).unwrap();
                }
            };
            (requests, std::thread::spawn(serve))
        };
        let (requests, threads) = (0..PROCESSES).map(thread).unzip();
        Self {
            pool,
            threads,
            requests,
            answers,
            asked: 0,
        }
    }

    fn ask(&mut self, process: usize, request: &Request) {
        self.requests[process].send(*request).unwrap();
        self.asked += 1;
    }

    fn answers(&mut self) -> Vec<(usize, Answer)> {
        let mut given = Vec::new();
        while self.asked > self.pool.fs().lock_waits() {
            match self.answers.try_recv() {
                Ok(answer) => {
                    given.push(answer);
                    self.asked -= 1;
                }
                Err(_) => yield_now(),
            }
        }
        given.sort_by_key(|answer| answer.0);
        given
    }

    fn end(self) {
        drop(self.requests);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

// --- Both ---

struct Pair {
    kernel: Kernel,
    library: Library,
    /// What processes asked for and have no answer to.
    waiting: [Option<Request>; PROCESSES],
    /// The locks of each process: file and byte.
    held: [BTreeMap<(usize, u64), LockKind>; PROCESSES],
    story: Vec<String>,
}

impl Pair {
    fn new(dir: &Path) -> Self {
        Self {
            kernel: Kernel::new(dir),
            library: Library::new(),
            waiting: [None; PROCESSES],
            held: Default::default(),
            story: Vec::new(),
        }
    }

    /// Returns the answers to both, which must be the same.
    fn ask(&mut self, process: usize, request: Request) -> Vec<(usize, Answer)> {
        self.story.push(format!("{process}: {request:?}"));
        self.waiting[process] = Some(request);
        self.kernel.ask(process, &request);
        self.library.ask(process, &request);
        let is_find = matches!(request.what, What::Find(_));
        let of_kernel = self.kernel.answers(process, is_find);
        let of_library = self.library.answers();
        let story = self.story.len().saturating_sub(40);
        assert_eq!(
            of_kernel,
            of_library,
            "kernel, library\n{}",
            self.story[story..].join("\n")
        );
        for (process, answer) in &of_library {
            if let (Some(request), Answer::Done) = (self.waiting[*process].take(), answer) {
                self.note(*process, &request);
            }
        }
        of_library
    }

    fn note(&mut self, process: usize, request: &Request) {
        for byte in request.first..=request.last {
            let held = &mut self.held[process];
            match request.kind() {
                Some(kind) => held.insert((request.file, byte), kind),
                None => held.remove(&(request.file, byte)),
            };
        }
    }

    /// How many processes have locks that exclude a request.
    fn in_the_way(&self, process: usize, request: &Request) -> usize {
        let excludes = |held: &BTreeMap<(usize, u64), LockKind>| {
            let bytes = (request.file, request.first)..=(request.file, request.last);
            let is_exclusive = |kind| kind == LockKind::Exclusive;
            let mut kinds = held.range(bytes).map(|(_, &kind)| kind);
            let asked = match request.what {
                What::Find(kind) => Some(kind),
                _ => request.kind(),
            };
            kinds.any(|kind| is_exclusive(kind) || asked.is_some_and(is_exclusive))
        };
        let others = (0..PROCESSES).filter(|&other| other != process);
        others.filter(|&other| excludes(&self.held[other])).count()
    }

    /// Whether both must answer a request alike.
    fn is_clear(&self, process: usize, request: &Request) -> bool {
        let waiting = self.waiting.iter().flatten();
        let meets = waiting.clone().any(|other| request.excludes(other));
        let is_of_one = matches!(request.what, What::Wait(_) | What::Find(_));
        let most = self.in_the_way(process, request) <= 1;
        self.waiting[process].is_none() && !meets && (!is_of_one || most)
    }

    fn end(mut self) {
        while self.waiting.iter().any(Option::is_some) {
            let idle = |process: &usize| self.waiting[*process].is_none();
            let idle: Vec<usize> = (0..PROCESSES).filter(idle).collect();
            for process in idle {
                for file in 0..FILES {
                    self.ask(process, Request::unlock_all(file));
                }
            }
        }
        self.library.end();
    }
}

fn drawn(random: &mut Random) -> Request {
    let kind = match random.below(2) {
        0 => LockKind::Shared,
        _ => LockKind::Exclusive,
    };
    let what = match random.below(8) {
        0..2 => What::Try(kind),
        2..5 => What::Wait(kind),
        5..7 => What::Unlock,
        _ => What::Find(kind),
    };
    let file = random.below(FILES as u64) as usize;
    if what == What::Unlock && random.below(2) == 0 {
        return Request::unlock_all(file);
    }
    let first = random.below(BYTES);
    Request {
        what,
        file,
        first,
        last: first + random.below(BYTES / 2),
    }
}

#[test]
fn processes_lock_as_in_the_kernel() {
    in_own_process(processes_lock_as_in_the_kernel, || {
        let dir = tempfile::tempdir().unwrap();
        let (mut pair, mut random) = (Pair::new(dir.path()), Random::new(1));
        let (mut waits, mut refused) = (0, 0);
        for _ in 0..STEPS {
            let (process, request) = (random.below(PROCESSES as u64) as usize, drawn(&mut random));
            if !pair.is_clear(process, &request) {
                continue;
            }
            let answers = pair.ask(process, request);
            waits += usize::from(answers.iter().all(|(of, _)| *of != process));
            let deadlock = Answer::Failed(libc::EDEADLK);
            refused += usize::from(answers.contains(&(process, deadlock)));
        }
        println!("{waits} waits, {refused} deadlocks");
        assert!(waits > 50 && refused > 5);
        pair.end();
    });
}

#[test]
fn cycles_are_refused_as_in_the_kernel() {
    in_own_process(cycles_are_refused_as_in_the_kernel, || {
        for count in [2, 3, 4] {
            let dir = tempfile::tempdir().unwrap();
            let mut pair = Pair::new(dir.path());
            let byte = |number: usize, what| Request {
                what,
                file: number % FILES,
                first: number as u64,
                last: number as u64,
            };
            for process in 0..count {
                pair.ask(process, byte(process, What::Try(LockKind::Exclusive)));
            }
            for process in 0..count {
                let next = byte((process + 1) % count, What::Wait(LockKind::Shared));
                let answers = pair.ask(process, next);
                let expected = match process + 1 == count {
                    true => vec![(process, Answer::Failed(libc::EDEADLK))],
                    false => Vec::new(),
                };
                assert_eq!(answers, expected);
            }
            pair.end();
        }
    });
}
