//! Tests files against a model: bytes, and the state of each block.

use proptest::prelude::*;
use vellum_layout::{BLOCK_BYTES, MapState, MapWord, MappingKind};
use vellum_media::{Memory, Simulated, count};

use super::*;
use crate::mapping::harness::Harness;

pub(super) const MIB: u64 = 1 << 20;
const B: u64 = BLOCK_BYTES;

pub(super) fn files(h: &Harness) -> Files<'_, Simulated> {
    Files {
        core: &h.core,
        mapping: &*h.map,
        user: None,
        keeps_privileges: false,
        holds_lease: false,
        cuts: false,
    }
}

/// A pool whose free blocks hold bytes that no file may ever show.
pub(super) fn dirty(pool_bytes: u64, run_blocks: u32) -> Harness {
    soil(Harness::of_runs(pool_bytes, run_blocks))
}

/// As [`dirty`], with a mapping.
pub(super) fn dirty_of(mapping: MappingKind, pool_bytes: u64) -> Harness {
    soil(Harness::of(mapping, pool_bytes))
}

fn soil(h: Harness) -> Harness {
    let bytes = h.core.geometry.segment_blocks * B;
    h.core
        .pool
        .write(h.core.geometry.data_at, &vec![0xAA; bytes as usize]);
    h
}

pub(super) fn content(h: &Harness, file: Cachelet, translation: &Translation) -> Vec<u8> {
    let mut bytes = vec![0x55; files(h).size(file) as usize + 10];
    let read = files(h)
        .read_at(file, translation, None, 0, &mut bytes)
        .unwrap();
    bytes.truncate(read);
    bytes
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (seed.wrapping_mul(31).wrapping_add(i as u64) % 251) as u8 + 1)
        .collect()
}

#[test]
fn writes_come_back_with_zeros_around() {
    let h = dirty(4 * MIB, 8);
    let (file, t) = (h.make_file(9), Translation::new(false));
    let f = files(&h);
    assert_eq!(f.write_at(file, &t, 10_000, b"hello").unwrap(), 5);
    let mut expected = vec![0; 10_000];
    expected.extend(b"hello");
    assert_eq!(content(&h, file, &t), expected);
    assert_eq!(f.blocks(file).unwrap(), 1);
    assert_eq!(f.append(file, &t, b" world").unwrap(), (10_005, 6));
    assert_eq!(f.write_at(file, &t, 1, b"x").unwrap(), 1);
    expected.extend(b" world");
    expected[1] = b'x';
    assert_eq!(content(&h, file, &t), expected);
    assert_eq!(f.blocks(file).unwrap(), 2);
    f.truncate(file, 20_000).unwrap();
    expected.resize(20_000, 0);
    assert_eq!(content(&h, file, &t), expected);
    f.truncate(file, 10_003).unwrap();
    f.truncate(file, 12_000).unwrap();
    expected.truncate(10_003);
    expected.resize(12_000, 0);
    assert_eq!(content(&h, file, &t), expected);
    assert_eq!(f.write_at(file, &t, 5, b"").unwrap(), 0);
    let mut none = [];
    assert_eq!(f.read_at(file, &t, None, 0, &mut none).unwrap(), 0);
    assert_eq!(f.read_at(file, &t, None, 12_000, &mut [0]).unwrap(), 0);
}

#[test]
fn counts_of_an_aligned_append() {
    let h = Harness::new(16 * MIB);
    let (file, t) = (h.make_file(9), Translation::new(false));
    let data = [7; B as usize];
    for _ in 0..20 {
        let before = count::of_this_thread();
        files(&h).append(file, &t, &data).unwrap();
        let cost = count::of_this_thread() - before;
        assert_eq!(
            (cost.lines_flushed, cost.fences),
            (66, 2),
            "64 of data, entry, inode"
        );
        assert_eq!(cost.allocations, 1);
        assert!(cost.probes <= 2);
    }
}

#[test]
fn counts_of_overwriting_filling_and_reading() {
    let h = Harness::new(16 * MIB);
    let (file, t) = (h.make_file(9), Translation::new(true));
    let f = files(&h);
    f.truncate(file, 64 * B).unwrap();
    let cost = |run: &mut dyn FnMut()| {
        let before = count::of_this_thread();
        run();
        let cost = count::of_this_thread() - before;
        (cost.lines_flushed, cost.fences)
    };
    let data = [7; B as usize];
    let write = |at: u64| f.write_at(file, &t, at, &data).unwrap();
    assert_eq!(
        cost(&mut || _ = write(B)),
        (66, 2),
        "a hole: 64 of data, times, entry"
    );
    assert_eq!(cost(&mut || _ = write(B)), (65, 1), "in place");
    assert_eq!(
        cost(&mut || _ = f.read_at(file, &t, None, B, &mut [0; 100]).unwrap()),
        (0, 0)
    );
    assert_eq!(cost(&mut || f.truncate(file, 65 * B).unwrap()), (1, 1));
    assert_eq!(cost(&mut || f.truncate(file, 0).unwrap()), (2, 2));
}

#[test]
fn reading_in_order_probes_once_a_run() {
    let h = Harness::new(16 * MIB);
    let (file, t) = (h.make_file(9), Translation::new(true));
    files(&h)
        .write_at(file, &t, 0, &vec![1; 64 * B as usize])
        .unwrap();
    let before = count::of_this_thread();
    for at in 0..128 {
        files(&h)
            .read_at(file, &t, None, at * B / 2, &mut [0; B as usize / 2])
            .unwrap();
    }
    assert_eq!((count::of_this_thread() - before).probes, 8);
}

#[test]
fn limits_have_their_errors() {
    let h = Harness::new(4 * MIB);
    let (file, t) = (h.make_file(9), Translation::new(false));
    let f = files(&h);
    let too_large = |result: Result<()>| assert!(matches!(result, Err(Error::TooLarge)));
    too_large(f.truncate(file, SIZE_MAX_BYTES + 1));
    too_large(f.write_at(file, &t, SIZE_MAX_BYTES, b"x").map(drop));
    too_large(f.write_at(file, &t, u64::MAX, b"x").map(drop));
    too_large(f.allocate(file, Allocate::Grow, SIZE_MAX_BYTES, 1));
    too_large(f.allocate(file, Allocate::KeepSize, u64::MAX, u64::MAX));
    assert!(matches!(
        f.allocate(file, Allocate::Grow, 0, 0),
        Err(Error::Invalid(_))
    ));
    too_large(f.allocate(file, Allocate::PunchHole, u64::MAX, u64::MAX));
    assert_eq!(f.size(file), 0);
    f.truncate(file, SIZE_MAX_BYTES - 2).unwrap();
    assert_eq!(
        f.append(file, &t, b"abcd").unwrap(),
        (SIZE_MAX_BYTES - 2, 2)
    );
    too_large(f.append(file, &t, b"x").map(drop));
    let mut last = [9; 8];
    assert_eq!(
        f.read_at(file, &t, None, SIZE_MAX_BYTES - 4, &mut last)
            .unwrap(),
        4
    );
    assert_eq!(last, [0, 0, b'a', b'b', 9, 9, 9, 9]);
    assert_eq!(f.seek_data(file, 5).unwrap(), SIZE_MAX_BYTES - B);
    assert_eq!(
        f.seek_hole(file, SIZE_MAX_BYTES - 1).unwrap(),
        SIZE_MAX_BYTES
    );
    assert!(matches!(
        f.seek_data(file, SIZE_MAX_BYTES),
        Err(Error::NoData)
    ));
    assert!(matches!(
        f.seek_hole(file, SIZE_MAX_BYTES),
        Err(Error::NoData)
    ));
    f.truncate(file, 0).unwrap();
    h.settle();
    assert_eq!(h.free(), h.core.geometry.segment_blocks);
}

#[test]
fn space_runs_out_exactly_and_comes_back() {
    let h = dirty(4 * MIB, 8);
    let (file, other, t) = (h.make_file(9), h.make_file(10), Translation::new(false));
    let f = files(&h);
    let total = h.core.geometry.segment_blocks;
    let block = [3; B as usize];
    for _ in 0..total {
        f.append(file, &t, &block).unwrap();
    }
    let u = Translation::new(false);
    assert!(matches!(f.append(other, &u, b"x"), Err(Error::NoSpace(_))));
    assert_eq!((f.size(other), f.blocks(other).unwrap()), (0, 0));
    f.write_at(file, &t, 77, b"in place").unwrap();
    // Blocks in limbo count as free, and are waited for.
    f.truncate(file, 3 * B).unwrap();
    assert_eq!(
        f.write_at(other, &u, 0, &vec![4; (total - 3) as usize * B as usize])
            .unwrap() as u64,
        (total - 3) * B
    );
    assert!(content(&h, other, &u).iter().all(|&byte| byte == 4));
    f.truncate(other, B).unwrap();
    // A long write is short when space runs out.
    let long = vec![5; 3 * MIB as usize + 12 * B as usize];
    let written = f.append(file, &t, &long).unwrap();
    assert_eq!(written.0, 3 * B);
    assert!((written.1 as u64).is_multiple_of(MIB) && written.1 > 0);
    f.truncate(file, 0).unwrap();
    f.truncate(other, 0).unwrap();
    h.settle();
    assert_eq!(h.free(), total);
}

/// Leaves three free entries in the table, although the count still includes all that were free.
fn hide_free_blocks(h: &Harness) {
    let at = |block| h.core.geometry.table_at + 8 * block;
    let free = (0..h.core.geometry.segment_blocks).filter(|&block| h.core.word(at(block)) == 0);
    for block in free.skip(3).collect::<Vec<_>>() {
        let word = MapWord::new(MapState::Mapped, 77, block as u32);
        h.core.set_word(at(block), word.0);
    }
}

#[test]
fn blocks_that_were_not_claimed_stayed_in_the_count() {
    for (first, allocates) in [(0, false), (0, true), (2 * B, false), (2 * B, true)] {
        let h = dirty(MIB, 8);
        let (file, t) = (h.make_file(9), Translation::new(false));
        let f = files(&h);
        f.write_at(file, &t, 0, &vec![1; first as usize]).unwrap();
        hide_free_blocks(&h);
        let (stay, result) = match allocates {
            true => (3, f.allocate(file, Allocate::Grow, 0, 12 * B)),
            false => (0, f.append(file, &t, &[2; 10 * B as usize]).map(drop)),
        };
        assert!(matches!(result, Err(Error::Damaged { .. })), "{result:?}");
        let counts = (f.size(file), f.blocks(file).unwrap());
        assert_eq!(counts, (first, first / B + stay));
        let later = f.append(file, &t, b"more");
        assert!(
            matches!(later, Err(Error::ReadOnlyAfterDamage)),
            "{later:?}"
        );
    }
}

#[test]
fn preallocation_holds_space_and_reads_as_zeros() {
    let h = dirty(4 * MIB, 8);
    let (file, other, t) = (h.make_file(9), h.make_file(10), Translation::new(false));
    let f = files(&h);
    let total = h.core.geometry.segment_blocks;
    assert!(matches!(
        f.allocate(file, Allocate::Grow, 0, (total + 1) * B),
        Err(Error::NoSpace(_))
    ));
    assert_eq!(h.free(), total, "nothing is allocated");
    f.allocate(file, Allocate::Grow, 100, 5 * B).unwrap();
    assert_eq!(f.size(file), 100 + 5 * B);
    assert_eq!(content(&h, file, &t), vec![0; 100 + 5 * B as usize]);
    assert!(matches!(f.seek_data(file, 0), Err(Error::NoData)));
    f.allocate(file, Allocate::KeepSize, 0, total * B).unwrap();
    assert_eq!(f.blocks(file).unwrap(), total);
    assert!(matches!(
        f.append(other, &Translation::new(false), b"x"),
        Err(Error::NoSpace(_))
    ));
    let bytes = pattern(1, 20 * B as usize);
    assert_eq!(f.write_at(file, &t, 50, &bytes).unwrap(), bytes.len());
    let got = content(&h, file, &t);
    assert_eq!((&got[..50], &got[50..]), (&[0; 50][..], &bytes[..]));
    f.truncate(file, f.size(file)).unwrap();
    assert_eq!(
        f.blocks(file).unwrap(),
        21,
        "blocks beyond the new size are freed"
    );
    f.allocate(file, Allocate::KeepSize, 30 * B, B).unwrap();
    f.allocate(file, Allocate::PunchHole, 0, 100 * B).unwrap();
    let left = f.blocks(file).unwrap();
    assert_eq!(left, 1, "blocks behind the end are out of reach");
    f.truncate(file, f.size(file)).unwrap();
    assert_eq!(f.blocks(file).unwrap(), 0);
    h.settle();
    assert_eq!(h.free(), total);
}

#[test]
fn a_dead_file_frees_everything() {
    let h = dirty(4 * MIB, 8);
    let t = Translation::new(false);
    let f = files(&h);
    for ino in [9, 10] {
        let file = h.make_file(ino);
        f.write_at(file, &t, 3 * B, &[1; 3 * B as usize]).unwrap();
        if ino == 10 {
            f.allocate(file, Allocate::KeepSize, 1 << 40, 9 * B)
                .unwrap();
        }
        let op = h.core.op_begin().unwrap();
        f.release_all(&op, file).unwrap();
        drop(op);
        h.settle();
        assert_eq!(h.free(), h.core.geometry.segment_blocks);
    }
}

#[test]
fn blocks_are_counted_after_reopening() {
    let h = dirty(4 * MIB, 8);
    let (file, t) = (h.make_file(9), Translation::new(false));
    let f = files(&h);
    f.write_at(file, &t, 0, &[1; 3 * B as usize]).unwrap();
    f.write_at(file, &t, 100 * B, &[1]).unwrap();
    f.allocate(file, Allocate::KeepSize, 300 * B, 2 * B)
        .unwrap();
    let h = h.reattach();
    let file = h.open_file(9);
    let f = files(&h);
    let t = Translation::new(false);
    f.append(file, &t, b"more").unwrap();
    assert_eq!(f.blocks(file).unwrap(), 6);
    f.append(file, &t, &[1; B as usize]).unwrap();
    assert_eq!(f.blocks(file).unwrap(), 7);
    f.truncate(file, 1).unwrap();
    assert_eq!(f.blocks(file).unwrap(), 1);
}

#[test]
fn access_times_are_relative() {
    let h = Harness::new(4 * MIB);
    let (file, t) = (h.make_file(9), Translation::new(false));
    let f = files(&h);
    f.append(file, &t, b"abc").unwrap();
    let time = |field| h.core.get(file, field) as i64;
    let read = |t: &Translation| f.read_at(file, t, None, 0, &mut [0; 3]).unwrap();
    read(&Translation::new(true));
    assert_eq!(time(field::ATIME), 0);
    read(&t);
    let first = time(field::ATIME);
    assert!(first > time(field::MTIME));
    assert_eq!(
        h.core.word(h.core.inode_at(file) + Inode::ATIME),
        first as u64
    );
    read(&t);
    assert_eq!(time(field::ATIME), first);
    f.append(file, &t, b"d").unwrap();
    read(&t);
    assert!(time(field::ATIME) > first);
}

#[test]
fn appenders_never_overlap() {
    let h = dirty(8 * MIB, 8);
    let file = h.make_file(9);
    std::thread::scope(|scope| {
        for mark in [1u8, 2] {
            let h = &h;
            scope.spawn(move || {
                let t = Translation::new(false);
                for i in 0..400u16 {
                    let mut record = [mark; 700];
                    record[1..3].copy_from_slice(&i.to_le_bytes());
                    files(h).append(file, &t, &record).unwrap();
                }
            });
        }
    });
    let bytes = content(&h, file, &Translation::new(true));
    assert_eq!(bytes.len(), 800 * 700);
    let mut next = [0u16; 3];
    for record in bytes.chunks(700) {
        let mark = record[0];
        assert_eq!(
            u16::from_le_bytes([record[1], record[2]]),
            next[usize::from(mark)]
        );
        next[usize::from(mark)] += 1;
        assert!(record[3..].iter().all(|&byte| byte == mark));
    }
}

/// Files are truncated and grow while they are read. No read sees bytes of other files.
#[test]
fn readers_beside_truncation_see_only_the_files_bytes() {
    let h = dirty(MIB, 8);
    let pairs = [(h.make_file(9), 1u8), (h.make_file(10), 2)];
    std::thread::scope(|scope| {
        let writers = pairs.map(|(file, mark)| {
            let h = &h;
            scope.spawn(move || {
                let t = Translation::new(false);
                for round in 0..600 {
                    let len = 1 + round * 977 % (50 * B as usize);
                    files(h).append(file, &t, &vec![mark; len]).unwrap();
                    files(h).truncate(file, (round as u64 % 5) * 3000).unwrap();
                    if round % 7 == 0 {
                        files(h)
                            .allocate(file, Allocate::PunchHole, B, 9 * B)
                            .unwrap();
                    }
                }
            })
        });
        let tables = [Translation::new(false), Translation::new(false)];
        let mut round = 0;
        while writers.iter().any(|writer| !writer.is_finished()) {
            round += 1;
            for ((file, mark), t) in pairs.into_iter().zip(&tables) {
                let mut bytes = vec![0; 20_000];
                let read = files(&h)
                    .read_at(file, t, None, round * 1000 % 100_000, &mut bytes)
                    .unwrap();
                assert!(bytes[..read].iter().all(|&byte| byte == 0 || byte == mark));
            }
        }
    });
}

/// The state of a block of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Hole,
    Unwritten,
    Data,
}

#[derive(Clone, Debug)]
struct Model {
    bytes: Vec<u8>,
    /// May reach beyond the size.
    blocks: Vec<Kind>,
}

const MODEL_BLOCKS: usize = 64;

impl Model {
    fn kinds(&mut self, from: usize, to: usize, change: impl Fn(Kind) -> Kind) {
        for kind in &mut self.blocks[from.min(MODEL_BLOCKS)..to.min(MODEL_BLOCKS)] {
            *kind = change(*kind);
        }
    }

    fn write(&mut self, at: usize, data: &[u8]) {
        let end = at + data.len();
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(data);
        self.kinds(at / B as usize, end.div_ceil(B as usize), |_| Kind::Data);
    }

    fn truncate(&mut self, size: usize) {
        let cut = size <= self.bytes.len();
        self.bytes.resize(size, 0);
        if cut {
            self.kinds(size.div_ceil(B as usize), MODEL_BLOCKS, |_| Kind::Hole);
        }
    }

    fn allocate(&mut self, mode: Allocate, at: usize, len: usize) {
        let (b, size, end) = (B as usize, self.bytes.len(), at + len);
        if mode == Allocate::PunchHole {
            self.bytes[at.min(size)..end.min(size)].fill(0);
            let last = if end >= size {
                size.div_ceil(b)
            } else {
                end / b
            };
            if at < size && at.div_ceil(b) < last {
                self.kinds(at.div_ceil(b), last, |_| Kind::Hole);
            }
            return;
        }
        self.kinds(at / b, end.div_ceil(b), |kind| match kind {
            Kind::Hole => Kind::Unwritten,
            kind => kind,
        });
        if mode == Allocate::Grow && end > size {
            self.bytes.resize(end, 0);
        }
    }

    fn seek(&self, at: usize, data: bool) -> Option<u64> {
        let size = self.bytes.len();
        if at >= size {
            return None;
        }
        let end = size.div_ceil(B as usize);
        let found = (at / B as usize..end).find(|&i| (self.blocks[i] == Kind::Data) == data);
        match found {
            Some(block) => Some((block * B as usize).max(at).min(size) as u64),
            None if data => None,
            None => Some(size as u64),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        at: usize,
        len: usize,
    },
    Append {
        len: usize,
    },
    Read {
        at: usize,
        len: usize,
    },
    Truncate {
        size: usize,
    },
    Allocate {
        mode: Allocate,
        at: usize,
        len: usize,
    },
    Reopen,
}

fn offset() -> impl Strategy<Value = usize> {
    let end = MODEL_BLOCKS / 2 * B as usize;
    prop_oneof![
        0..end,
        (0..MODEL_BLOCKS / 2).prop_map(|block| block * B as usize)
    ]
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        1..200usize,
        1..30_000usize,
        (1..8usize).prop_map(|blocks| blocks * B as usize)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let mode = prop_oneof![
        Just(Allocate::Grow),
        Just(Allocate::KeepSize),
        Just(Allocate::PunchHole),
        Just(Allocate::PunchHole)
    ];
    prop_oneof![
        6 => (offset(), length()).prop_map(|(at, len)| Step::Write { at, len }),
        2 => length().prop_map(|len| Step::Append { len }),
        4 => (offset(), length()).prop_map(|(at, len)| Step::Read { at, len }),
        3 => offset().prop_map(|size| Step::Truncate { size }),
        4 => (mode, offset(), length())
            .prop_map(|(mode, at, len)| Step::Allocate { mode, at, len }),
        1 => Just(Step::Reopen),
    ]
}

fn compare(h: &Harness, file: Cachelet, t: &Translation, model: &Model) {
    let f = files(h);
    assert_eq!(f.size(file), model.bytes.len() as u64);
    assert!(content(h, file, t) == model.bytes, "bytes differ");
    let blocks = model
        .blocks
        .iter()
        .filter(|kind| **kind != Kind::Hole)
        .count() as u64;
    assert_eq!(f.blocks(file).unwrap(), blocks);
    for at in (0..model.bytes.len() + 5000).step_by(1777) {
        assert_eq!(
            f.seek_data(file, at as u64).ok(),
            model.seek(at, true),
            "data from {at}"
        );
        assert_eq!(
            f.seek_hole(file, at as u64).ok(),
            model.seek(at, false),
            "hole from {at}"
        );
    }
    assert_eq!(h.free() + blocks, h.core.geometry.segment_blocks);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn behaves_as_bytes(
        steps in prop::collection::vec(step(), 1..40),
        mapping in prop::sample::select(&MappingKind::ALL),
    ) {
        let mut h = dirty_of(mapping, MIB);
        let mut file = h.make_file(9);
        let mut t = Translation::new(false);
        let mut model = Model { bytes: Vec::new(), blocks: vec![Kind::Hole; MODEL_BLOCKS] };
        for (i, step) in steps.into_iter().enumerate() {
            let f = files(&h);
            match step {
                Step::Write { at, len } => {
                    let data = pattern(i as u64, len);
                    prop_assert_eq!(f.write_at(file, &t, at as u64, &data).unwrap(), len);
                    model.write(at, &data);
                }
                Step::Append { len } => {
                    let data = pattern(i as u64, len);
                    let at = model.bytes.len();
                    if at + len <= MODEL_BLOCKS * B as usize {
                        let appended = f.append(file, &t, &data).unwrap();
                        prop_assert_eq!(appended, (at as u64, len));
                        model.write(at, &data);
                    }
                }
                Step::Read { at, len } => {
                    let mut got = vec![0xEE; len];
                    let read = f.read_at(file, &t, None, at as u64, &mut got).unwrap();
                    let expected = model.bytes.get(at..).unwrap_or_default();
                    prop_assert_eq!(read, expected.len().min(len));
                    prop_assert!(got[..read] == expected[..read]);
                }
                Step::Truncate { size } => {
                    f.truncate(file, size as u64).unwrap();
                    model.truncate(size);
                }
                Step::Allocate { mode, at, len } => {
                    f.allocate(file, mode, at as u64, len as u64).unwrap();
                    model.allocate(mode, at, len);
                }
                Step::Reopen => {
                    compare(&h, file, &t, &model);
                    h = h.reattach();
                    file = h.open_file(9);
                    t = Translation::new(false);
                }
            }
        }
        compare(&h, file, &t, &model);
        h.settle();
        compare(&h, file, &t, &model);
        prop_assert_eq!(h.core.arena.damaged(), None);
    }
}
