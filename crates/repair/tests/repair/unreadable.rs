//! Unreadable blocks: their contents are lost, everything else survives, and files that lost bytes
//! are reported.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;

use crate::support::{self, Content, assert_survived, fill_blocks, read_tree, strictly, write};
use crate::testimage::trees::{Forest, forest};
use crate::testimage::{Sample, TestImage, closed, sample};
use vellum_check::{Class, Image, MemoryImage};
use vellum_layout::{BLOCK_BYTES, Geometry, MappingKind, PoolState, SLOT_BYTES};
use vellum_media::{CrashPoints, MappedPool, Memory, OpenMode, SimPool};
use vellum_repair::undo::Undo;
use vellum_repair::{ApplyError, Options, Plan, apply, plan};

/// The byte that fills unreadable blocks.
const GARBAGE: u8 = 0xA5;

/// An image with some unreadable blocks.
struct Holed {
    bytes: Vec<u8>,
    lost: BTreeSet<u64>,
}

impl Holed {
    fn of(bytes: &[u8], lost: &[u64]) -> Self {
        let mut bytes = bytes.to_vec();
        for &at in lost {
            bytes[at as usize..(at + BLOCK_BYTES) as usize].fill(GARBAGE);
        }
        let lost = lost.iter().copied().collect();
        Self { bytes, lost }
    }

    /// The same image with zeros in unreadable blocks.
    fn with_zeros(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for &at in &self.lost {
            bytes[at as usize..(at + BLOCK_BYTES) as usize].fill(0);
        }
        bytes
    }

    fn plan(&self) -> Plan {
        let options = Options {
            now_ns: support::LATER,
            ..Options::default()
        };
        plan(self, options)
    }

    /// Repairs it: then it is sound, and a second repair has nothing to do.
    #[track_caller]
    fn repaired(&self) -> (Plan, Vec<u8>) {
        let plan = self.plan();
        assert_eq!(plan.refused, None);
        assert!(plan.mends_all(), "{:#?} {}", plan.actions, plan.after);
        let mut image = self.bytes.clone();
        write(&plan, &mut image);
        let report = strictly(&image);
        assert!(report.is_sound(), "{report} {:#?}", plan.actions);
        assert!(support::plan_of(&image).is_empty());
        (plan, image)
    }
}

impl Image for Holed {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, at: u64, out: &mut [u8]) -> std::io::Result<()> {
        let end = at + out.len() as u64;
        let first = at / BLOCK_BYTES * BLOCK_BYTES;
        if self.lost.range(first..end).next().is_some() {
            return Err(std::io::Error::other("gone"));
        }
        self.bytes.read(at, out)
    }
}

/// An open and a closed pool with unique contents in every block.
fn pools() -> [Sample; 2] {
    [sample(), closed()].map(|mut sample| {
        let geometry = sample.image.geometry;
        fill_blocks(&mut sample.image.bytes, &geometry);
        sample
    })
}

fn block_of(at: u64) -> u64 {
    at / BLOCK_BYTES * BLOCK_BYTES
}

/// Every block that belongs to no file.
fn outside_files(geometry: &Geometry) -> impl Iterator<Item = u64> {
    let replica = std::iter::once(geometry.last_copy_at);
    (0..geometry.data_at)
        .step_by(BLOCK_BYTES as usize)
        .chain(replica)
}

#[test]
fn any_block_outside_files_is_lost_and_the_rest_survives() {
    for pool in pools() {
        let met = lose_each(&pool.image);
        assert!(met > 10, "{met}");
    }
}

/// Loses each block of `pool` that belongs to no file, and repairs it; returns how many of them are
/// read.
#[track_caller]
fn lose_each(pool: &TestImage) -> usize {
    let sound = pool.bytes.clone();
    let mut met = 0;
    for at in outside_files(&pool.geometry) {
        let holed = Holed::of(&sound, &[at]);
        let plan = holed.plan();
        if plan.is_empty() {
            assert!(
                plan.before.is_sound(),
                "{at:#x}: nothing reads it: {}",
                plan.before
            );
            continue;
        }
        let (plan, after) = holed.repaired();
        assert_eq!(plan.exit_code(), 1, "{at:#x}: {:#?}", plan.actions);
        assert!(plan.classes().contains_key(&Class::Unreadable), "{at:#x}");
        assert_survived(&sound, &holed.with_zeros(), &after, &plan);
        met += 1;
    }
    met
}

/// An open and a closed pool of each mapping with trees.
fn forests() -> impl Iterator<Item = Forest> {
    use MappingKind::{Extent, ExtentCached, Radix};
    let kinds = [Radix, Extent, ExtentCached].into_iter();
    let kinds = kinds.flat_map(|kind| [(kind, false), (kind, true)]);
    kinds.map(|(kind, closed)| {
        let mut forest = forest(kind);
        if closed {
            forest.image.close();
        }
        let geometry = forest.image.geometry;
        fill_blocks(&mut forest.image.bytes, &geometry);
        forest
    })
}

#[test]
fn nodes_of_trees_are_lost_and_the_rest_survives() {
    for forest in forests() {
        let met = lose_each(&forest.image);
        assert!(met > 5, "{met}");
    }
}

#[test]
fn files_that_lose_bytes_by_a_node_are_reported() {
    for forest in forests() {
        let at = block_of(forest.image.at(forest.small.nodes[0]));
        let (plan, after) = Holed::of(&forest.image.bytes, &[at]).repaired();
        let told: Vec<String> = plan.lost.iter().map(ToString::to_string).collect();
        let ino = forest.small.ino;
        let expected = format!(
            "/small (inode {ino}): bytes 0 to {} read as zeros, because their \
             locations are lost",
            4 * BLOCK_BYTES - 6
        );
        assert_eq!(told, [expected]);
        let small = read_tree(&after).remove(&b"/small"[..]);
        let zeros = vec![0; 4 * BLOCK_BYTES as usize - 5];
        assert_eq!(small, Some(Content::File(zeros)));
    }
}

/// Files keep their names, and their bytes up to the end of the last block.
#[test]
fn a_lost_block_of_inodes_loses_no_bytes_of_files() {
    for pool in pools() {
        let sound = pool.image.bytes.clone();
        let at = block_of(pool.image.at(pool.file));
        let (plan, after) = Holed::of(&sound, &[at]).repaired();
        assert!(plan.lost.is_empty(), "{:#?}", plan.lost);
        let (old, new) = (read_tree(&sound), read_tree(&after));
        let mut files = 0;
        for (path, content) in &old {
            match (content, new.get(path)) {
                (Content::Link(_), _) => {}
                (Content::File(old), Some(Content::File(new))) => {
                    assert!(new.starts_with(old), "{}", path.escape_ascii());
                    files += 1;
                }
                (_, found) => {
                    let path = path.escape_ascii();
                    assert_eq!(found, Some(content), "{path}: {:#?}", plan.actions);
                }
            }
        }
        assert!(files > 20, "{files}");
    }
}

/// The remains of files whose inodes and names are lost are found in lost+found.
#[test]
fn blocks_without_an_inode_or_a_name_become_files() {
    for pool in pools() {
        let sound = pool.image.bytes.clone();
        let entries: BTreeSet<u64> = [
            pool.file_entry,
            pool.dir_entry,
            pool.entries[0],
            pool.entries[19],
        ]
        .map(|slot| block_of(pool.image.at(slot)))
        .into();
        let mut lost: Vec<u64> = entries.into_iter().collect();
        lost.push(block_of(pool.image.at(pool.file)));
        let holed = Holed::of(&sound, &lost);
        let (_, after) = holed.repaired();
        let Some(Content::File(bytes)) = read_tree(&sound).remove(&b"/file"[..]) else {
            panic!("it was a file");
        };
        let path = format!("/lost+found/#{}", pool.file);
        let Some(Content::File(found)) = read_tree(&after).remove(path.as_bytes()) else {
            panic!("{path} is missing");
        };
        assert!(found.starts_with(&bytes));
    }
}

#[test]
fn files_that_lose_their_locations_are_reported() {
    for pool in pools() {
        let sound = pool.image.bytes.clone();
        let geometry = pool.image.geometry;
        let table = (geometry.table_at..geometry.table_at + geometry.segment_blocks * 8)
            .step_by(BLOCK_BYTES as usize);
        let mut met = 0;
        for at in table {
            let (plan, after) = Holed::of(&sound, &[at]).repaired();
            let new = read_tree(&after);
            for (path, content) in read_tree(&sound) {
                if new.get(&path) != Some(&content) {
                    let told = plan
                        .lost
                        .iter()
                        .any(|lost| lost.inode == pool.file || lost.inode == pool.other);
                    assert!(told, "{} lost bytes: {:#?}", path.escape_ascii(), plan.lost);
                    assert!(plan.lost.iter().all(|lost| !lost.is_certain));
                    met += 1;
                }
            }
        }
        assert!(met > 0);
    }
}

#[test]
fn blocks_of_files_stay_and_their_files_are_reported() {
    for pool in pools() {
        let geometry = pool.image.geometry;
        let data = (0..geometry.segment_blocks).map(|block| geometry.data_at + block * BLOCK_BYTES);
        // A loss elsewhere shows that the medium is unreliable.
        let mut lost: Vec<u64> = data.collect();
        lost.push(0);
        let (plan, after) = Holed::of(&pool.image.bytes, &lost).repaired();
        assert_eq!(plan.exit_code(), 5, "bytes stay lost");
        let paths: BTreeSet<&str> = plan.lost.iter().map(|lost| lost.path.as_str()).collect();
        assert!(paths.contains("/dir/other"), "{paths:?}");
        let bytes: u64 = plan.lost.iter().map(|lost| lost.bytes).sum();
        let sizes = [pool.file, pool.other].map(|ino| pool.image.get_inode(ino).size);
        assert_eq!(bytes, sizes.iter().sum::<u64>(), "{:#?}", plan.lost);
        let at = geometry.data_at as usize;
        assert!(
            after[at..at + BLOCK_BYTES as usize]
                .iter()
                .all(|&byte| byte == GARBAGE)
        );
    }
}

/// The state after a power cut: a lost block is readable once all of it was written.
fn left(bytes: Vec<u8>, lost: &[u64]) -> Holed {
    let still = |at: &&u64| {
        let block = &bytes[**at as usize..(**at + BLOCK_BYTES) as usize];
        block
            .chunks(64)
            .any(|line| line.iter().all(|&byte| byte == GARBAGE))
    };
    let lost: Vec<u64> = lost.iter().filter(still).copied().collect();
    Holed::of(&bytes, &lost)
}

/// One of this many power cuts is checked.
const EACH: u64 = 9;

#[test]
fn an_interrupted_repair_of_lost_blocks_is_finished_by_another() {
    for pool in pools() {
        let sound = pool.image.bytes.clone();
        let geometry = pool.image.geometry;
        let extent = pool.image.get_inode(pool.dir).root;
        for lost in [
            vec![block_of(pool.image.at(pool.file))],
            vec![block_of(pool.image.at(extent)), geometry.table_at],
            vec![geometry.state_at, geometry.chunk_table_at],
            vec![0, block_of(pool.image.at(pool.short) + SLOT_BYTES)],
        ] {
            let holed = Holed::of(&sound, &lost);
            let (plan, whole) = holed.repaired();
            let pool = SimPool::from_image(holed.bytes.clone());
            pool.start_recording();
            apply(&pool, &plan).unwrap();
            let log = pool.take_log();
            assert!(pool.image() == whole);
            let mut points = CrashPoints::new(holed.bytes.clone(), &log);
            let mut cuts = 0;
            while let Some(point) = points.next_point() {
                for state in point.states(1, cuts) {
                    cuts += 1;
                    if cuts % EACH != 0 {
                        continue;
                    }
                    let again = left(point.image(&state), &lost);
                    let (plan, after) = again.repaired_or_sound();
                    assert_survived(&sound, &holed.with_zeros(), &after, &plan);
                }
            }
            assert!(cuts > 50, "{cuts}");
        }
    }
}

impl Holed {
    #[track_caller]
    fn repaired_or_sound(&self) -> (Plan, Vec<u8>) {
        let plan = self.plan();
        if plan.is_empty() {
            assert!(plan.before.is_sound(), "{}", plan.before);
            return (plan, self.bytes.clone());
        }
        self.repaired()
    }
}

#[test]
fn losses_can_be_declined() {
    let pool = closed();
    let holed = Holed::of(&pool.image.bytes, &[block_of(pool.image.at(pool.file))]);
    let declined = [Class::Unreadable].into();
    let options = Options {
        declined: Some(&declined),
        now_ns: support::LATER,
        progress: None,
    };
    let plan = plan(&holed, options);
    assert_eq!(plan.exit_code(), 12);
    assert!(plan.is_empty() && plan.refused.is_some_and(|why| why.contains("copy")));
}

fn open(path: &Path, read_only: bool) -> MappedPool {
    let mode = OpenMode {
        read_only,
        ..OpenMode::default()
    };
    MappedPool::open(path, mode).unwrap()
}

fn plan_of(pool: &MappedPool) -> Plan {
    let options = Options {
        now_ns: support::LATER,
        ..Options::default()
    };
    plan(&MemoryImage(pool), options)
}

/// Pages of a mapped file that raise SIGBUS.
#[test]
fn pages_of_a_mapped_pool_are_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    for pool in pools() {
        let sound = pool.image.bytes.clone();
        let geometry = pool.image.geometry;
        let lost = [
            block_of(pool.image.at(pool.file)),
            geometry.chunk_table_at,
            geometry.table_at,
        ];
        std::fs::write(&path, &sound).unwrap();
        let mapped = open(&path, false);
        lost.iter().for_each(|&at| mapped.take_away(at).unwrap());
        let plan = plan_of(&mapped);
        assert!(plan.mends_all(), "{:?} {:#?}", plan.refused, plan.after);
        assert_eq!(plan.classes()[&Class::Unreadable], 3, "{:#?}", plan.actions);
        let undo = Undo::of(&plan, &MemoryImage(&mapped)).unwrap();
        apply(&mapped, &plan).unwrap();
        drop(mapped);
        let after = std::fs::read(&path).unwrap();
        assert!(strictly(&after).is_sound());
        let zeros = Holed::of(&sound, &lost).with_zeros();
        assert_survived(&sound, &zeros, &after, &plan);
        undo.restore(&open(&path, false)).unwrap();
        assert!(std::fs::read(&path).unwrap() == zeros);
    }
}

/// The file is truncated while it is mapped.
#[test]
fn a_pool_whose_file_lost_its_end_is_mended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let [_, pool] = pools();
    let len = pool.image.bytes.len() as u64;
    std::fs::write(&path, &pool.image.bytes).unwrap();
    let mapped = open(&path, false);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(len - BLOCK_BYTES).unwrap();
    let plan = plan_of(&mapped);
    assert!(plan.mends_all(), "{:?} {:#?}", plan.refused, plan.after);
    apply(&mapped, &plan).unwrap();
    drop(mapped);
    let after = std::fs::read(&path).unwrap();
    assert_eq!(after.len() as u64, len);
    assert!(strictly(&after).is_sound());
    assert_eq!(read_tree(&after), read_tree(&pool.image.bytes));
}

#[test]
fn if_nothing_can_be_written_nothing_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let [_, pool] = pools();
    std::fs::write(&path, &pool.image.bytes).unwrap();
    let mapped = open(&path, true);
    let at = block_of(pool.image.at(pool.file));
    mapped.take_away(at).unwrap();
    let plan = plan_of(&mapped);
    let state = pool.image.geometry.state_at + PoolState::WORD;
    let before = mapped.load(state, Ordering::Relaxed);
    match apply(&mapped, &plan) {
        Err(ApplyError::Unwritable {
            at: found, changed, ..
        }) => {
            assert_eq!((found, changed), (at, false));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(mapped.load(state, Ordering::Relaxed), before);
}
