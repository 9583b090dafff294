//! Power cuts inside every operation on a file's bytes. Whatever subset of the unfenced stores the
//! medium kept, the file is as `docs/crash/operations.md` says, no bytes of other files show, and
//! no block is lost.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;

use vellum_layout::{BLOCK_BYTES, Inode, MapRoot, MapState, MappingKind};
use vellum_media::{Event, LINE_BYTES, Op};
use vellum_testing::is_whole;

use super::tests::{MIB, content, dirty, dirty_of, files};
use super::*;
use crate::mapping::Verdict;
use crate::mapping::harness::Harness;

const B: u64 = BLOCK_BYTES;
const INO: u64 = 9;

/// A small number generator with a seed, so that a failure repeats.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) % end
    }
}

/// Selects the stores that survive without a fence.
#[derive(Clone, Copy, Debug)]
enum Luck {
    None,
    All,
    /// A random number of each line's stores.
    Some(u64),
}

/// The pool after `log[..cut]`: of each line a prefix of its stores that includes the fenced ones.
fn image_after(base: &[u8], log: &[Event], cut: usize, luck: Luck) -> Vec<u8> {
    #[derive(Default)]
    struct Line {
        stores: Vec<(u64, u64)>,
        flushed: usize,
        durable: usize,
    }
    let mut lines: HashMap<u64, Line> = HashMap::new();
    for event in &log[..cut] {
        match event.op {
            Op::Store {
                at,
                after,
                non_temporal,
                ..
            } => {
                let line = lines.entry(at / LINE_BYTES).or_default();
                line.stores.push((at, after));
                if non_temporal {
                    line.flushed = line.stores.len();
                }
            }
            Op::Flush { line } => {
                let line = lines.entry(line / LINE_BYTES).or_default();
                line.flushed = line.stores.len();
            }
            Op::Fence => lines
                .values_mut()
                .for_each(|line| line.durable = line.flushed),
            Op::Marker(_) | Op::Behind { .. } | Op::Release { .. } => {}
        }
    }
    let mut image = base.to_vec();
    for (number, line) in lines {
        let open = (line.stores.len() - line.durable) as u64;
        let kept = match luck {
            Luck::None => 0,
            Luck::All => open,
            Luck::Some(seed) => Numbers(seed ^ number << 20).below(open + 1),
        };
        for (at, value) in &line.stores[..line.durable + kept as usize] {
            image[*at as usize..*at as usize + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    image
}

/// Does what recovery decides: the inode's own blocks stay, except for MAPPED ones beyond its end.
fn recover(h: &Harness, image: Vec<u8>) -> Harness {
    let geometry = h.core.geometry;
    let word = |field: u64| {
        let at = (geometry.slot_at(INO) + field) as usize;
        u64::from_le_bytes(image[at..at + 8].try_into().unwrap())
    };
    let (root, size) = (MapRoot(word(Inode::ROOT)).get(), word(Inode::SIZE));
    let judge = move |id, logical, state| {
        let own = root.is_some_and(|(_, own)| own == id);
        let beyond = u64::from(logical) >= size.div_ceil(B);
        if own && !(state == MapState::Mapped && beyond) {
            Verdict::Keep
        } else {
            Verdict::Free
        }
    };
    h.recovered(image, &judge)
}

/// Checks that the file has its old or its new content, for each byte inside the old size and as a
/// whole beyond it, and that all blocks can be freed.
fn check(h: &Harness, before: &[u8], after: &[u8], done: bool) {
    let t = Translation::new(true);
    let file = h.open_file(INO);
    let f = files(h);
    let got = content(h, file, &t);
    if done {
        assert!(got == after, "an operation that returned is durable");
    }
    assert!(
        [before.len(), after.len()].contains(&got.len()),
        "size {}",
        got.len()
    );
    for (i, byte) in got.iter().enumerate() {
        let old = before.get(i) == Some(byte);
        assert!(old || after.get(i) == Some(byte), "byte {i} is {byte:#x}");
    }
    if got.len() > before.len() {
        assert!(
            got[before.len()..] == after[before.len()..],
            "the size covers only written bytes"
        );
    }
    let size = got.len() as u64;
    f.truncate(file, size + 3 * B + 5).unwrap();
    let longer = content(h, file, &t);
    assert!(longer[..got.len()] == got);
    assert!(
        longer[got.len()..].iter().all(|&byte| byte == 0),
        "new bytes are zero"
    );
    f.append(file, &t, &[1; 5000]).unwrap();
    f.truncate(file, 0).unwrap();
    h.settle();
    assert_eq!(h.free(), h.core.geometry.segment_blocks, "no block is lost");
    assert_eq!(f.blocks(file).unwrap(), 0);
}

/// One random operation.
fn operate(h: &Harness, file: Cachelet, t: &Translation, numbers: &mut Numbers) {
    let f = files(h);
    let mut offset = || match numbers.below(2) {
        0 => numbers.below(12 * B),
        _ => numbers.below(12) * B,
    };
    let (at, len) = (offset(), 1 + offset() / 3);
    let data: Vec<u8> = (0..len)
        .map(|i| (i % 97) as u8 + 1 + numbers.below(3) as u8)
        .collect();
    match numbers.below(9) {
        0..3 => drop(f.write_at(file, t, at, &data).unwrap()),
        3 => drop(f.append(file, t, &data).unwrap()),
        4 | 5 => f.truncate(file, at).unwrap(),
        6 => f.allocate(file, Allocate::Grow, at, len).unwrap(),
        7 => f.allocate(file, Allocate::KeepSize, at, len).unwrap(),
        _ => f.allocate(file, Allocate::PunchHole, at, len).unwrap(),
    }
}

/// Cuts around every flush and fence, and some between stores.
fn cuts(log: &[Event]) -> Vec<usize> {
    let is_cut = |i: usize| {
        i == log.len()
            || i.is_multiple_of(101)
            || matches!(log[i].op, Op::Fence)
            || i > 0
                && !matches!(
                    log[i - 1].op,
                    Op::Store {
                        non_temporal: true,
                        ..
                    }
                )
    };
    (0..=log.len()).filter(|&i| is_cut(i)).collect()
}

fn explore(mapping: MappingKind, seed: u64) {
    let mut numbers = Numbers(seed);
    let h = match mapping {
        MappingKind::HashFs => dirty(MIB, if seed.is_multiple_of(3) { 1 } else { 8 }),
        _ => dirty_of(mapping, MIB),
    };
    let file = h.make_file(INO);
    let t = Translation::new(true);
    for _ in 0..numbers.below(6) {
        operate(&h, file, &t, &mut numbers);
    }
    h.settle();
    let base = h.core.pool.image();
    let before = content(&h, file, &t);
    h.core.pool.start_recording();
    operate(&h, file, &t, &mut numbers);
    let log = h.core.pool.take_log();
    let after = content(&h, file, &t);
    for cut in cuts(&log) {
        for luck in [Luck::None, Luck::All, Luck::Some(seed), Luck::Some(!seed)] {
            let image = image_after(&base, &log, cut, luck);
            let done = cut == log.len();
            let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
                check(&recover(&h, image), &before, &after, done);
            }));
            assert!(
                result.is_ok(),
                "{mapping:?}, seed {seed}, {luck:?}, cut {cut} of {}",
                log.len()
            );
        }
    }
}

/// A long run has twice as many seeds.
#[test]
fn power_cuts_inside_operations_on_bytes() {
    let seeds = if is_whole() { 60 } else { 30 };
    for mapping in MappingKind::ALL {
        (0..seeds).for_each(|seed| explore(mapping, seed));
    }
}

#[test]
#[ignore = "takes minutes"]
fn power_cuts_inside_many_more_operations_on_bytes() {
    for mapping in MappingKind::ALL {
        (1000..6000).for_each(|seed| explore(mapping, seed));
    }
}
