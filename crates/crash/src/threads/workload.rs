//! Workloads of concurrent threads.

use vellum::{MappingKind, NamespaceKind};

use crate::reduce::Parts;
use crate::workload::{PoolKind, Step, Workload};

/// Calls of two or three threads on an existing tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadWorkload {
    /// Its name: `threads/` and the kinds of calls.
    pub name: String,
    /// The steps that prepare the pool in one thread; the pool is empty and open at first.
    pub setup: Vec<Step>,
    /// The steps of each thread, in order.
    pub threads: Vec<Vec<Step>>,
    /// The number of names and files that the arena can hold.
    pub cache_entries: u64,
    /// Whether the pool is closed in the end, by the thread that opened it.
    pub closes: bool,
    /// File mapping of the pool.
    pub mapping: MappingKind,
    /// Thread slots of the pool, each with a journal: at least as many as there are threads.
    pub thread_slots: u32,
    /// The namespace of the pool.
    pub namespace: NamespaceKind,
    /// What the pool lies on. On a logged pool, everything before a returned sync is there after a
    /// crash, and possibly some of what followed.
    pub pool_kind: PoolKind,
}

/// The default number of thread slots: one more than there are threads.
const THREAD_SLOTS: u32 = 4;

impl ThreadWorkload {
    /// A workload of lines as in [`Workload::new`].
    pub fn new(name: &str, setup: &[&str], threads: &[&[&str]]) -> Self {
        let parse = |lines: &&[&str]| lines.iter().map(|line| Step::parse(line)).collect();
        let setup = Workload::new(name, setup, &[]).setup;
        Self::of_steps(name, setup, threads.iter().map(parse).collect())
    }

    /// A workload of steps.
    pub(crate) fn of_steps(name: &str, setup: Vec<Step>, threads: Vec<Vec<Step>>) -> Self {
        Self {
            name: format!("threads/{name}"),
            setup,
            threads,
            cache_entries: 256,
            closes: false,
            mapping: MappingKind::default(),
            thread_slots: THREAD_SLOTS,
            namespace: NamespaceKind::default(),
            pool_kind: PoolKind::default(),
        }
    }

    /// The same on a pool of this kind, whose name prefixes the workload's; the setup ends with a
    /// sync.
    pub(crate) fn logged(mut self, pool_kind: PoolKind) -> Self {
        let name = self.name.trim_start_matches("threads/");
        self.name = format!("threads/{}-{name}", pool_kind.name());
        self.pool_kind = pool_kind;
        self.setup.push(Step::parse("sync"));
        self
    }

    /// The same with an arena that is too small for the tree.
    pub(crate) fn crowded(mut self) -> Self {
        self.cache_entries = 64;
        self
    }

    /// The same on a pool that has exactly one thread slot for each thread.
    pub(crate) fn in_all_slots(mut self) -> Self {
        self.thread_slots = self.threads.len() as u32;
        self
    }

    /// The same on a pool with another file mapping; its name prefixes the workload's.
    pub(crate) fn on(mut self, mapping: MappingKind) -> Self {
        let name = self.name.trim_start_matches("threads/");
        self.name = format!("threads/{}-{name}", mapping.name());
        self.mapping = mapping;
        self
    }

    /// The same on a pool with another namespace; its name prefixes the workload's.
    pub(crate) fn within(mut self, namespace: NamespaceKind) -> Self {
        let name = self.name.trim_start_matches("threads/");
        self.name = format!("threads/{}-{name}", namespace.name());
        self.namespace = namespace;
        self
    }

    /// The operation that a run without a crash counts for.
    pub(super) fn operation(&self) -> &'static str {
        let mut steps = self.threads.iter().flatten();
        steps.next().map_or("nothing", Step::operation)
    }
}

/// A thread that has no step left keeps its number.
impl Parts for ThreadWorkload {
    fn name(&self) -> &str {
        &self.name
    }

    fn parts(&self) -> Vec<Vec<Step>> {
        let setup = std::iter::once(&self.setup);
        setup.chain(&self.threads).cloned().collect()
    }

    fn with(&self, name: String, parts: Vec<Vec<Step>>) -> Self {
        let mut parts = parts.into_iter();
        Self {
            name,
            setup: parts.next().unwrap_or_default(),
            threads: parts.collect(),
            ..self.clone()
        }
    }
}
