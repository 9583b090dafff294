//! The report.

use serde::{Deserialize, Serialize};
use vellum_transport::Door;

use crate::Machine;
use crate::serve::Requests;

/// The report of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The measured ways of the kernel's requests: `io_uring`, `/dev/fuse`.
    pub doors: Vec<String>,
    /// Single operations by one client.
    pub requests: Vec<Operation>,
    /// The same by two clients at the same time.
    pub scaling: Vec<Scaling>,
    /// A row for each program and subject.
    pub programs: Vec<Row>,
    /// A row for each transfer and subject.
    pub transfers: Vec<Row>,
    /// The state of caches; what was left out, and why.
    pub notes: Vec<String>,
}

/// An operation by one client through a mount, beside a file system that does nothing and is served
/// by the same door.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// The operation.
    pub op: String,
    /// The way of the requests.
    pub door: String,
    /// The time of an operation: the median of the rounds.
    pub vellum_ns: f64,
    /// The range of the rounds, as a fraction of the median.
    pub spread: f64,
    /// The time with the file system that does nothing: the median of the rounds.
    pub null_ns: f64,
    /// The range of its rounds, as a fraction of the median.
    pub null_spread: f64,
    /// `null_ns / vellum_ns`.
    pub ratio: f64,
}

/// Operations a second of two clients, each on a processor of its own, as a multiple of those of
/// one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// The operation.
    pub op: String,
    /// `shared`: in one directory; `private`: in a directory each.
    pub directories: String,
    /// The way of the requests.
    pub door: String,
    /// The multiple of Vellum.
    pub vellum: f64,
    /// The multiple of the file system that does nothing.
    pub null: f64,
    /// `vellum / null`.
    pub ratio: f64,
}

/// A program or a transfer on one subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its name, as `--only` takes it.
    pub name: String,
    /// The command, or a description.
    pub what: String,
    /// The file system: `vellum by` a door, or the kind and the name of a peer.
    pub subject: String,
    /// The way of the requests; absent for peers.
    pub door: Option<String>,
    /// Its time: the median of the rounds.
    pub seconds: f64,
    /// The range of the rounds, as a fraction of the median.
    pub spread: f64,
    /// For a transfer: MiB (2^20 bytes) a second at that time.
    pub mib_per_second: Option<f64>,
    /// The ratio to each peer.
    pub ratios: Vec<Ratio>,
    /// The kernel's requests in the last round; 0 for peers.
    pub requests: u64,
    /// The same by kind, under the kernel's names.
    pub requests_by_kind: Requests,
}

/// A ratio to a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The peer, as a subject.
    pub peer: String,
    /// The seconds of the peer over those of the row: the median over rounds.
    pub ratio: f64,
}

impl Report {
    pub(super) fn new(machine: Machine, doors: &[Door]) -> Self {
        Self {
            machine,
            doors: doors.iter().map(|door| door.name().into()).collect(),
            requests: Vec::new(),
            scaling: Vec::new(),
            programs: Vec::new(),
            transfers: Vec::new(),
            notes: Vec::new(),
        }
    }
}
