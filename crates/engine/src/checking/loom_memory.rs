//! Memory whose words are atomics of [`loom`], so that every order of accesses that the memory
//! model allows is tried.
//!
//! Only words that threads share need that, and only while several threads run: a word that one
//! thread uses, or that no thread writes, is an ordinary one. The check finds out which words are
//! shared: an execution that meets a new one is discarded, and the check restarts with this
//! knowledge ([`check`]).
//!
//! Loom treats sequentially consistent accesses as acquiring and releasing ones; only its fences
//! are fully sequentially consistent. So a kernel that passes needs no more than that, unless it
//! uses [`Swaps::Barriers`].

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use loom::sync::atomic::{AtomicU64, fence};
use loom::thread::ThreadId;
use vellum_media::{
    FileBytes, HeapMemory, ImageMemory, MediaKind, Medium, Memories, Memory, Persistent, Site,
    Transactions,
};

/// Pool and arena of [`LoomMemory`].
pub(crate) struct Loomed;

impl Memories for Loomed {
    type Pool = LoomMemory;
    type Arena = LoomMemory;
}

/// The strength of atomic read-modify-writes, besides acquiring and releasing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swaps {
    /// Nothing more.
    Plain,
    /// Barriers, as locked instructions of x86 are, and as on AArch64 they are to neighbouring
    /// acquiring loads and releasing stores.
    Barriers,
}

/// What one execution of a check passes on to the next.
pub(crate) struct Knowledge {
    swaps: Swaps,
    shared: Mutex<[BTreeSet<u64>; 2]>,
    threads: Mutex<Vec<ThreadId>>,
    /// Whether an execution treated a shared word as an ordinary one.
    learning: AtomicBool,
    executions: AtomicUsize,
}

/// One of the two memories.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Pool,
    Arena,
}

/// Memory for [`loom`]; ordinary until it is armed.
pub(crate) struct LoomMemory {
    heap: HeapMemory,
    knowledge: Arc<Knowledge>,
    part: Part,
    /// The shared words, once armed.
    shared: OnceLock<HashMap<u64, AtomicU64>>,
    /// For each word, a bit for each thread that used it, [`WRITTEN`] and [`SHARED`].
    uses: Vec<AtomicU8>,
    watching: AtomicBool,
}

const WRITTEN: u8 = 1 << 7;
const SHARED: u8 = 1 << 6;
/// The bits that stand for threads.
const THREADS: u8 = SHARED - 1;
/// Stack of a thread, in words.
const STACK_WORDS: usize = 1 << 16;

/// Checks every execution of `kernel` with at most `preemptions` preemptions, or one more in long
/// checks.
pub(crate) fn check(
    preemptions: usize,
    swaps: Swaps,
    kernel: impl Fn(&Arc<Knowledge>) + Send + Sync + 'static,
) {
    let knowledge = Arc::new(Knowledge {
        swaps,
        shared: Mutex::default(),
        threads: Mutex::default(),
        learning: AtomicBool::new(false),
        executions: AtomicUsize::new(0),
    });
    let kernel = Arc::new(kernel);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions + usize::from(super::long_factor().is_some()));
    builder.max_branches = 20_000;
    loop {
        let (known, kernel) = (Arc::clone(&knowledge), Arc::clone(&kernel));
        known.executions.store(0, Ordering::Relaxed);
        let execute = move || {
            let (known, kernel) = (Arc::clone(&known), Arc::clone(&kernel));
            known.threads.lock().unwrap().clear();
            known.executions.fetch_add(1, Ordering::Relaxed);
            crate::core::slots::prefer_thread_slot(0);
            spawn(move || {
                kernel(&known);
                if known.learning.load(Ordering::Relaxed) {
                    // Restarts without a panic message.
                    resume_unwind(Box::new("a shared word was met"));
                }
            })
            .join()
            .unwrap();
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| builder.check(execute)));
        match outcome {
            Ok(()) => break,
            // The model did not know all synchronisation, so this failure proves nothing.
            Err(_) if knowledge.learning.swap(false, Ordering::Relaxed) => {}
            Err(panic) => resume_unwind(panic),
        }
    }
    let count = knowledge.executions.load(Ordering::Relaxed);
    println!("{count} executions");
    assert!(count > 1, "nothing ran concurrently");
}

/// Runs jobs concurrently on memories that one thread has used so far.
pub(crate) fn beside(memories: &[&LoomMemory], jobs: Vec<Box<dyn FnOnce() + Send>>) {
    memories.iter().for_each(|memory| memory.arm());
    let threads: Vec<_> = jobs.into_iter().map(spawn).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    memories.iter().for_each(|memory| memory.quiet());
}

/// Starts a thread of the model with enough stack for the engine's buffers.
fn spawn<T: Send + 'static>(
    job: impl FnOnce() -> T + Send + 'static,
) -> loom::thread::JoinHandle<T> {
    let builder = loom::thread::Builder::new().stack_size(STACK_WORDS);
    builder.spawn(job).unwrap()
}

impl LoomMemory {
    /// Zeroed memory that is not yet armed.
    pub(crate) fn new(knowledge: &Arc<Knowledge>, part: Part, len: u64) -> Self {
        Self {
            heap: HeapMemory::new(len),
            knowledge: Arc::clone(knowledge),
            part,
            shared: OnceLock::new(),
            uses: std::iter::repeat_with(|| AtomicU8::new(0))
                .take(len.div_ceil(8) as usize)
                .collect(),
            watching: AtomicBool::new(false),
        }
    }

    /// Called before several threads run.
    fn arm(&self) {
        let known = self.knowledge.shared.lock().unwrap();
        let words = known[self.part as usize].iter().map(|&word| {
            self.uses[word as usize].store(SHARED, Ordering::Relaxed);
            let value = self.heap.load(word * 8, Ordering::Relaxed);
            (word, AtomicU64::new(value))
        });
        assert!(self.shared.set(words.collect()).is_ok());
        self.watching.store(true, Ordering::Relaxed);
    }

    /// Called after the threads ended.
    fn quiet(&self) {
        self.watching.store(false, Ordering::Relaxed);
    }

    /// The word at `at`, if threads share it.
    fn shared(&self, at: u64, writes: bool) -> Option<&AtomicU64> {
        let words = self.shared.get()?;
        let uses = self.uses.get((at / 8) as usize)?;
        if uses.load(Ordering::Relaxed) & SHARED != 0 {
            // What is dropped while a failed check unwinds must not let other threads run.
            return (!std::thread::panicking()).then(|| &words[&(at / 8)]);
        }
        if self.watching.load(Ordering::Relaxed) {
            let mine = 1 << self.knowledge.this_thread() | if writes { WRITTEN } else { 0 };
            let all = uses.fetch_or(mine, Ordering::Relaxed) | mine;
            if all & WRITTEN != 0 && (all & THREADS).count_ones() > 1 {
                let mut known = self.knowledge.shared.lock().unwrap();
                known[self.part as usize].insert(at / 8);
                self.knowledge.learning.store(true, Ordering::Relaxed);
            }
        }
        None
    }

    fn change(&self, at: u64, change: impl Fn(&AtomicU64) -> u64, plain: impl Fn() -> u64) -> u64 {
        match self.shared(at, true) {
            Some(word) => self.knowledge.swap(|| change(word)),
            None => plain(),
        }
    }
}

impl Knowledge {
    /// The number of the running thread.
    fn this_thread(&self) -> usize {
        let id = loom::thread::current().id();
        let mut threads = self.threads.lock().unwrap();
        let known = threads.iter().position(|&thread| thread == id);
        known.unwrap_or_else(|| {
            threads.push(id);
            threads.len() - 1
        })
    }

    fn swap<T>(&self, swap: impl FnOnce() -> T) -> T {
        let barrier = || {
            if self.swaps == Swaps::Barriers {
                fence(Ordering::SeqCst);
            }
        };
        barrier();
        let given = swap();
        barrier();
        given
    }
}

/// Splits the bytes `[at, at + len)` by words: offset of the word, first byte in it, and its range
/// in the buffer.
fn pieces(at: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let here = at + from as u64;
        let first = (here % 8) as usize;
        let to = len.min(from + 8 - first);
        let piece = (here - first as u64, first, from..to);
        let more = from < len;
        from = to;
        more.then_some(piece)
    })
}

impl Memory for LoomMemory {
    fn len(&self) -> u64 {
        self.heap.len()
    }

    fn damaged(&self) -> Option<u64> {
        self.heap.damaged()
    }

    fn load(&self, at: u64, order: Ordering) -> u64 {
        match self.shared(at, false) {
            Some(word) => word.load(order),
            None => self.heap.load(at, order),
        }
    }

    fn store(&self, at: u64, value: u64, order: Ordering) {
        match self.shared(at, true) {
            Some(word) => word.store(value, order),
            None => self.heap.store(at, value, order),
        }
    }

    fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        let order = Ordering::SeqCst;
        match self.shared(at, true) {
            Some(word) => {
                let swap = || word.compare_exchange(current, new, order, order);
                self.knowledge.swap(swap)
            }
            None => self.heap.compare_exchange(at, current, new),
        }
    }

    fn fetch_add(&self, at: u64, value: u64) -> u64 {
        self.change(
            at,
            |word| word.fetch_add(value, Ordering::SeqCst),
            || self.heap.fetch_add(at, value),
        )
    }

    fn fetch_or(&self, at: u64, bits: u64) -> u64 {
        self.change(
            at,
            |word| word.fetch_or(bits, Ordering::SeqCst),
            || self.heap.fetch_or(at, bits),
        )
    }

    fn fetch_and(&self, at: u64, bits: u64) -> u64 {
        self.change(
            at,
            |word| word.fetch_and(bits, Ordering::SeqCst),
            || self.heap.fetch_and(at, bits),
        )
    }

    fn read(&self, at: u64, out: &mut [u8]) {
        for (word, first, range) in pieces(at, out.len()) {
            let value = self.load(word, Ordering::Relaxed).to_ne_bytes();
            let len = range.len();
            out[range].copy_from_slice(&value[first..first + len]);
        }
    }

    fn write(&self, at: u64, data: &[u8]) {
        for (word, first, range) in pieces(at, data.len()) {
            let mut value = [0; 8];
            if range.len() < 8 {
                value = self.load(word, Ordering::Relaxed).to_ne_bytes();
            }
            value[first..first + range.len()].copy_from_slice(&data[range]);
            self.store(word, u64::from_ne_bytes(value), Ordering::Relaxed);
        }
    }

    fn bytes_equal(&self, at: u64, expected: &[u8]) -> bool {
        pieces(at, expected.len()).all(|(word, first, range)| {
            let value = self.load(word, Ordering::Relaxed).to_ne_bytes();
            value[first..first + range.len()] == expected[range]
        })
    }

    fn match_line(&self, at: u64, mask: u64, want: u64) -> u8 {
        (0..8).fold(0, |bits, i| {
            let word = self.load(at + 8 * i, Ordering::Acquire);
            bits | u8::from(word & mask == want) << i
        })
    }

    fn load_line(&self, at: u64) -> [u64; 8] {
        std::array::from_fn(|i| self.load(at + 8 * i as u64, Ordering::Relaxed))
    }

    fn prefetch(&self, _at: u64) {}

    fn relax(&self, _tries: u32) {
        loom::thread::yield_now();
    }

    fn barrier(&self) {
        if self.shared.get().is_some() && !std::thread::panicking() {
            fence(Ordering::SeqCst);
        }
    }

    fn load_barrier(&self) {
        if self.shared.get().is_some() && !std::thread::panicking() {
            fence(Ordering::Acquire);
        }
    }

    fn swaps_are_barriers(&self) -> bool {
        self.knowledge.swaps == Swaps::Barriers
    }
}

impl Persistent for LoomMemory {
    fn flush(&self, _site: Site, _at: u64, _len: u64) {}

    fn fence(&self, _site: Site) {}

    fn write_through(&self, _site: Site, at: u64, data: &[u8]) {
        self.write(at, data);
    }

    fn zero_through(&self, _site: Site, at: u64, len: u64) {
        self.write(at, &vec![0; len as usize]);
    }
}

impl Medium for LoomMemory {
    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn kind(&self) -> MediaKind {
        MediaKind::Memory
    }
}

impl Transactions for LoomMemory {}

impl ImageMemory for LoomMemory {}

impl FileBytes for LoomMemory {}
