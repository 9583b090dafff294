//! The report: rows as JSON and as a table.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::Machine;

/// `path` of rows through the library.
pub(crate) const LIBRARY: &str = "library";
/// `path` of rows through a mount.
pub(crate) const MOUNT: &str = "mount";

/// What a run gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What it ran on.
    pub machine: Machine,
    /// A row for each operation and peer.
    pub rows: Vec<Row>,
    /// What cached files take; absent when single operations were asked for.
    pub cache: Option<CacheReport>,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

/// One operation beside one peer. Counts are per operation and include background work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The operation.
    pub op: String,
    /// How Vellum was used: `library` or `mount`.
    pub path: String,
    /// Threads that did it at once.
    pub threads: usize,
    /// For two threads: `shared` (one directory) or `private` (a directory each).
    pub directories: Option<String>,
    /// In which order things were visited.
    pub order: String,
    /// Time of an operation, as the thread sees it: median of the rounds.
    pub vellum_ns: f64,
    /// The same for first accesses after the pool was opened.
    pub cold_ns: Option<f64>,
    /// The peer, as it was named.
    pub peer: String,
    /// Type of the peer's file system.
    pub peer_kind: String,
    /// Time of an operation on the peer: median of the rounds.
    pub peer_ns: f64,
    /// `peer_ns / vellum_ns`.
    pub ratio: f64,
    /// Cache lines flushed; lines stored past the cache count.
    pub lines_flushed: f64,
    /// Fences.
    pub fences: f64,
    /// Bytes stored into the pool.
    pub pool_bytes_written: f64,
    /// Lines of indices looked at.
    pub probes: f64,
    /// Things allocated in pool or arena.
    pub allocations: f64,
    /// From the fastest to the slowest round of Vellum, as a part of the median.
    pub spread: f64,
    /// The same of the peer.
    pub peer_spread: f64,
    /// Operations a second of all threads, as a multiple of those of one thread.
    pub scaling: Option<f64>,
    /// Speed in a shared directory as a part of that in private ones: median over rounds.
    pub shared_to_private: Option<f64>,
    /// `ratio` is to be at least this.
    pub budget_ratio: Option<f64>,
    /// `lines_flushed` is to be at most this.
    pub budget_lines_flushed: Option<f64>,
    /// `fences` is to be at most this.
    pub budget_fences: Option<f64>,
    /// `shared_to_private` is to be at least this.
    pub budget_shared_to_private: Option<f64>,
    /// The fields that missed their budget.
    pub missed: Vec<String>,
}

/// DRAM that cached files take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheReport {
    /// Files in the cache.
    pub files: u64,
    /// Names in the index.
    pub index_entries: u64,
    /// Buckets of the index.
    pub index_buckets: u64,
    /// Bytes of the arena, most of which may never have been touched.
    pub arena_bytes: u64,
    /// Bytes of memory in use before the first file was looked at: what an open pool takes, however
    /// many files are in the cache (free space, thread slots, the mapping's aids).
    pub fixed_resident_bytes: u64,
    /// The same with every file in the cache: pages of 4 KiB of the arena, and a little of the
    /// heap.
    pub resident_bytes: u64,
    /// What a file in the cache adds: `(resident_bytes - fixed_resident_bytes) / files`.
    pub dram_bytes_per_file: f64,
    /// At most this.
    pub budget_bytes_per_file: f64,
    /// Whether it is more.
    pub missed: bool,
    /// How it was measured.
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
    /// Rows that missed a budget.
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
             with 32 KiB, with names of their own one allocation each\n"
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
