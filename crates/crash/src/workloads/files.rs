//! The files of `crates/crash/workloads`, which are compiled into the program.

use vellum::{MappingKind, NamespaceKind};
use vellum_layout::{ANCHORS_BYTES, BLOCK_BYTES, Superblock};

use super::text::WorkloadFile;
use crate::memories::Shared;
use crate::session::{Session, blank_image};
use crate::threads::ThreadWorkload;
use crate::workload::{PoolKind, Step, Workload};

/// A file: its name and its text.
type File = (&'static str, &'static str);

macro_rules! file {
    ($name:literal) => {
        (
            concat!("crates/crash/workloads/", $name),
            include_str!(concat!("../../workloads/", $name)),
        )
    };
}

/// Single operations, in the order in which they are explored.
const SINGLE: [File; 12] = [
    file!("making.txt"),
    file!("removing.txt"),
    file!("renaming.txt"),
    file!("writing.txt"),
    file!("sizing.txt"),
    file!("attributes.txt"),
    file!("xattrs.txt"),
    file!("flags.txt"),
    file!("quotas.txt"),
    file!("opening.txt"),
    file!("background.txt"),
    file!("evicting.txt"),
];

fn read((name, text): File, named: &[(&str, String)]) -> WorkloadFile {
    WorkloadFile::parse_with(name, text, named).unwrap_or_else(|error| panic!("{error}"))
}

fn sequences(file: File) -> Vec<Workload> {
    read(file, &[]).sequences
}

/// Every single operation with every class of arguments (seq-1). A name is the operation and the
/// class: `rename-over-link`.
pub fn single_operations() -> Vec<Workload> {
    SINGLE.into_iter().flat_map(sequences).collect()
}

pub(super) fn chosen() -> Vec<Workload> {
    sequences(file!("chosen.txt"))
}

pub(super) fn sites() -> Vec<Workload> {
    sequences(file!("sites.txt"))
}

/// For mappings that keep a tree for each file.
pub(super) fn trees() -> Vec<Workload> {
    sequences(file!("trees.txt"))
}

pub(super) fn extents() -> Vec<Workload> {
    let full = format!("create f 644 - | {}", full_leaf(0));
    let named = [("FULL_LEAF", full), ("SECOND_LEAF", full_leaf(254))];
    read(file!("extents.txt"), &named).sequences
}

/// Uses every entry of a leaf, from this one of the file on: every other block is written, and most
/// are punched again, which keeps their entries.
fn full_leaf(first: u64) -> String {
    let write = |entry: u64| format!("write f {} 7 100", entry * 8192);
    let mut steps: Vec<String> = (first..first + 150).map(write).collect();
    let (from, len) = (first * 8192, 149 * 8192);
    steps.push(format!("fallocate f 3 {from} {len}"));
    steps.push("2* maintain".to_owned());
    steps.extend((first + 150..first + 254).map(write));
    steps.join(" | ")
}

pub(super) fn level() -> Vec<Workload> {
    sequences(file!("level.txt"))
}

pub(super) fn cuckoo() -> Vec<Workload> {
    sequences(file!("cuckoo.txt"))
}

/// Exactly full pools with a mapping that has this many data blocks.
pub(super) fn full(mapping: MappingKind, blocks: u64) -> Vec<Workload> {
    let but = |left: u64| {
        let bytes = (blocks - left) * BLOCK_BYTES;
        format!("create g 644 - | fallocate g 0 0 {bytes}")
    };
    let named = [("ALL", but(0)), ("ALL_BUT_ONE", but(1))];
    let data = read(file!("full.txt"), &named).sequences.into_iter();
    let data = data.map(|workload| workload.on(mapping));
    let nodes = sequences(file!("full-of-nodes.txt")).into_iter();
    let nodes = nodes.filter(|workload| workload.mapping == mapping);
    data.chain(nodes).collect()
}

/// For the namespace *adaptive*.
pub(super) fn adaptive() -> Vec<Workload> {
    sequences(file!("adaptive.txt"))
}

/// For the namespace *adaptive*: areas that come and go.
pub(super) fn areas() -> Vec<Workload> {
    sequences(file!("areas.txt"))
}

/// For the namespace *adaptive*: roots of areas, rounds of evolving, recoveries of moves.
pub(super) fn roots() -> Vec<Workload> {
    sequences(file!("roots.txt"))
}

/// For the namespace *tree*.
pub(super) fn tree_logs() -> Vec<Workload> {
    sequences(file!("tree-logs.txt"))
}

/// For every medium on which only syncs make anything durable.
pub(super) fn of_disks() -> Vec<Workload> {
    sequences(file!("disks.txt"))
}

pub(super) fn grown() -> Vec<Workload> {
    let but = |left: u64| {
        let bytes = (room(PoolKind::Grown).1 - left) * BLOCK_BYTES;
        format!("create p 644 - | fallocate p 0 0 {bytes}")
    };
    let named = [("FULL", but(0)), ("NEARLY_FULL", but(2))];
    read(file!("grown.txt"), &named).sequences
}

/// Pools of this mapping and kind that grow.
pub(super) fn growing(mapping: MappingKind, pool_kind: PoolKind) -> Vec<Workload> {
    let image = blank_image(2, mapping, NamespaceKind::Direct, pool_kind);
    let superblock = Superblock::unseal(&image).expect("a new pool has a superblock");
    let full = superblock.geometry().segment_blocks * BLOCK_BYTES;
    let grow = |blocks: u64| format!("grow {}", superblock.pool_bytes + blocks * BLOCK_BYTES);
    let named = [
        ("FULL", format!("create p 644 - | fallocate p 0 0 {full}")),
        ("GROW", grow(32)),
        ("GROW_MORE", grow(64)),
        ("GROW_FAR", grow(560)),
    ];
    let sequences = read(file!("growing.txt"), &named).sequences.into_iter();
    sequences.map(|workload| workload.on(mapping)).collect()
}

/// Pools of this mapping and namespace with a small metadata region.
pub(super) fn narrow(mapping: MappingKind, namespace: NamespaceKind) -> Vec<Workload> {
    let kind = (mapping, namespace);
    let first = ["create f 644 -".to_owned()];
    let fill = creations(kind, "g", &first);
    let empty = each(fill.len() as u64, "unlink g#");
    let more = each(40, "create x# 644 -");
    let others = ["maintain", "close-pool", "open-pool"].map(str::to_owned);
    let history = [
        &first[..],
        &fill,
        &more,
        &empty,
        &each(40, "unlink x#"),
        &others,
    ]
    .concat();
    let again = creations(kind, "h", &history);
    let named = [
        ("FILL", fill.join(" | ")),
        ("MORE", more.join(" | ")),
        ("EMPTY", empty.join(" | ")),
        ("EMPTIED", history.join(" | ")),
        ("AGAIN", again.join(" | ")),
    ];
    let sequences = read(file!("narrow.txt"), &named).sequences.into_iter();
    let on = |workload: Workload| {
        let workload = workload.on(mapping);
        match namespace {
            NamespaceKind::Direct => workload.logged(PoolKind::Narrow),
            other => workload.within(other).logged(PoolKind::Narrow),
        }
    };
    sequences.map(on).collect()
}

/// The step for each number from 1 on, in the place of `#`.
fn each(count: u64, step: &str) -> Vec<String> {
    let numbers = (1..=count).map(|number| number.to_string());
    numbers.map(|number| step.replace('#', &number)).collect()
}

/// The creations for which such a pool has metadata after these steps.
fn creations(kind: (MappingKind, NamespaceKind), name: &str, before: &[String]) -> Vec<String> {
    let (mapping, namespace) = kind;
    let image = blank_image(2, mapping, namespace, PoolKind::Narrow);
    let mut session: Session = Session::new(Shared::of(image), 64);
    let mut step = |step: &str| {
        let done = session.step(&Step::parse(step));
        done.expect("a pool in memory has room for another file");
        session.fs().map_or(0, |fs| fs.stat_fs().blocks_free)
    };
    step("open-pool");
    let free = before.iter().map(|line| step(line)).last();
    let steps = (1..).map(|number| format!("create {name}{number} 644 -"));
    steps.take_while(|line| Some(step(line)) == free).collect()
}

/// For a medium with a log.
pub(super) fn logged(medium: PoolKind) -> Vec<Workload> {
    let (records, blocks) = room(medium);
    let but = |left: u64| format!("fallocate p 0 0 {}", (blocks - left) * BLOCK_BYTES);
    // Each of these makes a record of one block, and so does the opening.
    let records = ["chmod f 600 | sync", "chmod f 640 | sync"]
        .into_iter()
        .cycle()
        .take(records - 3);
    let full: Vec<&str> = ["create f 644 -"].into_iter().chain(records).collect();
    let named = [
        ("OTHERS", but(3)),
        ("MOST", but(6)),
        ("FULL_LOG", full.join(" | ")),
    ];
    read(file!("logged.txt"), &named).sequences
}

pub(super) fn split() -> Vec<Workload> {
    sequences(file!("split.txt"))
}

/// The number of one-block records that fit into the log of the explorer's pools, and the number of
/// blocks of files in them.
pub(super) fn room(medium: PoolKind) -> (usize, u64) {
    let image = blank_image(2, MappingKind::default(), Default::default(), medium);
    let of = |superblock: Superblock| (superblock.log_bytes, superblock.geometry().segment_blocks);
    let (log_bytes, blocks) = Superblock::unseal(&image).map_or((0, 0), of);
    let records = log_bytes.saturating_sub(ANCHORS_BYTES) / BLOCK_BYTES;
    (records as usize, blocks)
}

/// Workloads of threads, a file each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfThreads {
    Names,
    Following,
    Looking,
    Reopened,
    Bytes,
    Xattrs,
    Flags,
    Quotas,
    Background,
    Three,
    Tables,
    Journals,
    Areas,
    /// On pools where only syncs make anything durable.
    Synced,
    /// The same, with a log.
    Logged,
}

impl OfThreads {
    pub(crate) fn workloads(self) -> Vec<ThreadWorkload> {
        let file = match self {
            Self::Names => file!("threads/names.txt"),
            Self::Following => file!("threads/following.txt"),
            Self::Looking => file!("threads/looking.txt"),
            Self::Reopened => file!("threads/reopened.txt"),
            Self::Bytes => file!("threads/bytes.txt"),
            Self::Xattrs => file!("threads/xattrs.txt"),
            Self::Flags => file!("threads/flags.txt"),
            Self::Quotas => file!("threads/quotas.txt"),
            Self::Background => file!("threads/background.txt"),
            Self::Three => file!("threads/three.txt"),
            Self::Tables => file!("threads/tables.txt"),
            Self::Journals => file!("threads/journals.txt"),
            Self::Areas => file!("threads/areas.txt"),
            Self::Synced => file!("threads/synced.txt"),
            Self::Logged => file!("threads/logged.txt"),
        };
        read(file, &[]).threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_begin_with_the_operation() {
        for workload in single_operations() {
            let parts = workload.name.split_once('-');
            let (first, _) = parts.unwrap_or((&workload.name, ""));
            assert_eq!(first, workload.operation(), "{}", workload.name);
        }
    }
}
