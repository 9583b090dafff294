//! The report: rows as JSON and as a table.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use vellum::NamespaceKind;

use super::instructions::Instructions;
use crate::Machine;

/// The `path` of rows through the library.
pub(crate) const LIBRARY: &str = "library";
/// The `path` of rows through a mount.
pub(crate) const MOUNT: &str = "mount";

/// The report of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// A row for each operation and peer.
    pub rows: Vec<Row>,
    /// Instructions of operations, if they were requested.
    pub instructions: Vec<Instructions>,
    /// The memory of cached files; absent when single operations were requested.
    pub cache: Option<CacheReport>,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

/// One operation, compared with one peer. Counts are per operation and include background work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The operation.
    pub op: String,
    /// How Vellum was used: `library` or `mount`.
    pub path: String,
    /// The number of threads that executed it at the same time.
    pub threads: usize,
    /// For two threads: `shared` (one directory) or `private` (a directory each).
    pub directories: Option<String>,
    /// The order of visits.
    pub order: String,
    /// The time of an operation, as the thread sees it: the median of the rounds.
    pub vellum_ns: f64,
    /// The same for first accesses after the pool was opened.
    pub cold_ns: Option<f64>,
    /// The name of the peer.
    pub peer: String,
    /// The type of the peer's file system.
    pub peer_kind: String,
    /// The time of an operation on the peer: the median of the rounds.
    pub peer_ns: f64,
    /// `peer_ns / vellum_ns`.
    pub ratio: f64,
    /// Cache lines flushed, including lines stored past the cache.
    pub lines_flushed: f64,
    /// Fences.
    pub fences: f64,
    /// Bytes stored into the pool.
    pub pool_bytes_written: f64,
    /// Lines of indices that were accessed.
    pub probes: f64,
    /// Allocations in the pool or the arena.
    pub allocations: f64,
    /// The range of Vellum's rounds, as a fraction of the median.
    pub spread: f64,
    /// The range of the peer's rounds, as a fraction of the median.
    pub peer_spread: f64,
    /// Operations per second of all threads, as a multiple of those of one thread.
    pub scaling: Option<f64>,
    /// The same of the peer.
    pub peer_scaling: Option<f64>,
    /// The speed in a shared directory as a fraction of that in private ones: the median over
    /// rounds.
    pub shared_to_private: Option<f64>,
    /// The budget: `ratio` must be at least this.
    pub budget_ratio: Option<f64>,
    /// The budget: `lines_flushed` must be at most this.
    pub budget_lines_flushed: Option<f64>,
    /// The budget: `fences` must be at most this.
    pub budget_fences: Option<f64>,
    /// The budget: `shared_to_private` must be at least this.
    pub budget_shared_to_private: Option<f64>,
    /// The fields that missed their budget.
    pub missed: Vec<String>,
}

/// The DRAM of cached files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheReport {
    /// Files in the cache.
    pub files: u64,
    /// Names in the index.
    pub index_entries: u64,
    /// Buckets of the index.
    pub index_buckets: u64,
    /// Bytes of the arena. Most of them may never have been touched.
    pub arena_bytes: u64,
    /// Bytes of memory in use before the first file was used. This is what an open pool takes,
    /// however many files are in the cache (free space, thread slots, the mapping's saved allocator
    /// state).
    pub fixed_resident_bytes: u64,
    /// The same with every file in the cache: pages of 4 KiB of the arena, and a little of the
    /// heap.
    pub resident_bytes: u64,
    /// The bytes that a cached file adds: `(resident_bytes - fixed_resident_bytes) / files`.
    pub dram_bytes_per_file: f64,
    /// The budget: `dram_bytes_per_file` must be at most this.
    pub budget_bytes_per_file: f64,
    /// Whether the budget was missed.
    pub missed: bool,
    /// The method of the measurement.
    pub note: String,
}

const COLUMNS: [(&str, usize); 14] = [
    ("operation", 27),
    ("threads", 9),
    ("ns", 8),
    ("spread", 6),
    ("cold ns", 8),
    ("peer", 14),
    ("ns", 9),
    ("spread", 6),
    ("ratio", 7),
    ("(min)", 6),
    ("lines (max)", 12),
    ("fences (max)", 12),
    ("bytes", 7),
    ("probes", 6),
];

impl Report {
    /// The number of rows that missed a budget.
    pub fn missed(&self) -> usize {
        self.rows
            .iter()
            .filter(|row| !row.missed.is_empty())
            .count()
    }

    /// The report as text.
    pub fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_table(&mut text);
        text
    }

    fn write_table(&self, out: &mut String) -> std::fmt::Result {
        let machine = &self.machine;
        writeln!(
            out,
            "{}, {} cores, Linux {}, load {:.2} to {:.2}; vellum {}",
            machine.cpu,
            machine.cores,
            machine.kernel,
            machine.load_before,
            machine.load_after,
            machine.version
        )?;
        writeln!(
            out,
            "pool of {} MiB in {} ({}, {}); {} files a directory; medians of {} rounds",
            machine.pool_bytes >> 20,
            machine.pool,
            machine.media,
            machine.instructions,
            machine.files,
            machine.rounds
        )?;
        writeln!(out, "order of visits: {}", machine.order)?;
        writeln!(
            out,
            "names are relative to an open directory on both sides; readdir of peers: getdents64 \
             with 32 KiB; readdir_owned: one allocation per name\n"
        )?;
        for (title, width) in COLUMNS {
            write!(out, "{title:>width$} ")?;
        }
        writeln!(out, " budget")?;
        for row in &self.rows {
            let cells = row.cells();
            for ((_, width), cell) in COLUMNS.iter().zip(&cells) {
                write!(out, "{cell:>width$} ")?;
            }
            writeln!(out, " {}", row.verdict())?;
        }
        self.write_instructions(out)?;
        if let Some(cache) = &self.cache {
            cache.write(out)?;
        }
        for note in &self.notes {
            writeln!(out, "\n{note}")?;
        }
        writeln!(
            out,
            "\n{} of {} rows missed a budget",
            self.missed(),
            self.rows.len()
        )
    }

    /// A row for each operation, and a column for each namespace.
    fn write_instructions(&self, out: &mut String) -> std::fmt::Result {
        let namespaces = NamespaceKind::ALL.map(NamespaceKind::name);
        for (i, of) in self.instructions.iter().enumerate() {
            if self.instructions[..i]
                .iter()
                .any(|before| before.op == of.op)
            {
                continue;
            }
            if i == 0 {
                write!(out, "\n{:>27}", "instructions")?;
                for namespace in namespaces {
                    write!(out, " {namespace:>10}")?;
                }
                writeln!(out)?;
            }
            write!(out, "{:>27}", of.op)?;
            for namespace in namespaces {
                let mut all = self.instructions.iter();
                let found = all.find(|other| other.op == of.op && other.namespace == namespace);
                write!(
                    out,
                    " {:>10.0}",
                    found.map_or(0.0, |found| found.instructions)
                )?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

impl Row {
    fn cells(&self) -> [String; 14] {
        let percent = |part: f64| format!("{:.0}%", part * 100.0);
        let with_max = |value: f64, max: Option<f64>| match max {
            Some(max) => format!("{value:.2} ({max})"),
            None => format!("{value:.2}"),
        };
        [
            match self.path.as_str() {
                LIBRARY => self.op.clone(),
                path => format!("{path}: {}", self.op),
            },
            match &self.directories {
                Some(directories) => format!("{} {directories}", self.threads),
                None => self.threads.to_string(),
            },
            format!("{:.0}", self.vellum_ns),
            percent(self.spread),
            self.cold_ns.map_or("-".into(), |ns| format!("{ns:.0}")),
            self.peer_label(),
            format!("{:.0}", self.peer_ns),
            percent(self.peer_spread),
            format!("{:.2}", self.ratio),
            self.budget_ratio.map_or("-".into(), |min| min.to_string()),
            with_max(self.lines_flushed, self.budget_lines_flushed),
            with_max(self.fences, self.budget_fences),
            format!("{:.0}", self.pool_bytes_written),
            format!("{:.2}", self.probes),
        ]
    }

    fn peer_label(&self) -> String {
        if self.path == MOUNT {
            return self.peer.clone();
        }
        let known = self.peer.contains(&self.peer_kind);
        if known || self.peer.len() + self.peer_kind.len() > 12 {
            self.peer_kind.clone()
        } else {
            format!("{} {}", self.peer_kind, self.peer)
        }
    }

    fn verdict(&self) -> String {
        let mut text = match (self.missed.is_empty(), self.has_budget()) {
            (true, true) => "met".into(),
            (true, false) => "-".into(),
            (false, _) => format!("MISSED {}", self.missed.join(", ")),
        };
        if let Some(scaling) = self.scaling {
            let _ = write!(text, "; scaling {scaling:.2}");
        }
        if let (Some(part), Some(min)) = (self.shared_to_private, self.budget_shared_to_private) {
            let _ = write!(text, "; shared/private {part:.2} (min {min})");
        }
        text
    }

    fn has_budget(&self) -> bool {
        self.budget_lines_flushed.is_some()
            || self.budget_ratio.is_some()
            || self.budget_shared_to_private.is_some()
    }
}

impl CacheReport {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "\nDRAM of {} cached files: {:.1} bytes a file (max {}): {}; beside {} KiB however \
             many there are; {} names, {} buckets",
            self.files,
            self.dram_bytes_per_file,
            self.budget_bytes_per_file,
            if self.missed { "MISSED" } else { "met" },
            self.fixed_resident_bytes >> 10,
            self.index_entries,
            self.index_buckets
        )?;
        writeln!(out, "{}", self.note)
    }
}
