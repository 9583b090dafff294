//! Every mapping against a model: a map from (id, logical) to state.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use vellum_layout::{GeometryRequest, MapState, MappingKind};
use vellum_media::{Persistent, Simulated, Site};

use super::harness::{Bench, Harness};
use super::{BlockNo, Flush, Found, MapId, Mapping, Seek};

const MIB: u64 = 1 << 20;

/// The inode slots of the files whose blocks are mapped.
const FILES: std::ops::Range<u32> = 5..8;

pub(super) fn into(to: MapState) -> super::Step {
    let flush = Some(Flush::all(Site::UNNAMED));
    super::Step { to, flush }
}

/// Reserves and claims. Returns the unclaimed rest.
pub(super) fn try_claim<T: Mapping<Simulated> + ?Sized>(
    h: &Bench<T>,
    id: MapId,
    first: u32,
    blocks: usize,
    step: super::Step,
) -> crate::error::Result<Vec<BlockNo>> {
    let op = h.core.op_begin().unwrap();
    let mut room = h.map.reserve(&op, blocks as u64)?;
    let mut out = vec![BlockNo(0); blocks];
    let done = h.map.claim(&op, id, first, step, &mut room, &mut out);
    h.map.unreserve(&op, room);
    h.core.pool.fence(Site::UNNAMED);
    done.map(|()| out)
}

/// Claims a block in an operation that has met lost bytes.
pub(super) fn claim_amid_loss<T: Mapping<Simulated> + ?Sized>(
    h: &Bench<T>,
    id: MapId,
    logical: u32,
    step: super::Step,
) -> crate::error::Result<()> {
    let op = h.core.op_begin().unwrap();
    h.core.word(h.core.geometry.pool_bytes);
    let mut room = h.map.reserve(&op, 1)?;
    let mut out = [BlockNo(0)];
    let done = h.map.claim(&op, id, logical, step, &mut room, &mut out);
    h.map.unreserve(&op, room);
    done
}

pub(super) fn claim<T: Mapping<Simulated> + ?Sized>(
    h: &Bench<T>,
    id: MapId,
    first: u32,
    blocks: usize,
    state: MapState,
) -> Vec<BlockNo> {
    try_claim(h, id, first, blocks, into(state)).unwrap()
}

pub(super) fn release<T: Mapping<Simulated> + ?Sized>(
    h: &Bench<T>,
    id: MapId,
    first: u64,
    end: u64,
    in_use: u64,
) -> u64 {
    let op = h.core.op_begin().unwrap();
    let gone = h
        .map
        .release(Flush::all(Site::UNNAMED), &op, id, first, end, in_use)
        .unwrap();
    h.core.pool.fence(Site::UNNAMED);
    gone
}

pub(super) fn find<T: Mapping<Simulated> + ?Sized>(
    h: &Bench<T>,
    id: MapId,
    first: u32,
    blocks: usize,
) -> Vec<Found> {
    let op = h.core.op_begin().unwrap();
    let mut found = vec![Found::Hole; blocks];
    h.map.lookup(&op, id, first, &mut found).unwrap();
    found
}

/// A step of a test on a mapping.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Claim {
        id: u32,
        first: u32,
        blocks: u32,
        written: bool,
    },
    Release {
        id: u32,
        first: u64,
        end: u64,
    },
    Convert {
        id: u32,
        logical: u32,
    },
    Settle,
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let id = FILES;
    let logical = prop_oneof![0..64u32, (u32::MAX - 40)..=u32::MAX];
    prop_oneof![
        4 => (id.clone(), logical.clone(), 1..40u32, any::<bool>())
            .prop_map(|(id, first, blocks, written)| Step::Claim { id, first, blocks, written }),
        2 => (id.clone(), logical.clone(), 1..70u64, any::<bool>()).prop_map(
            |(id, first, blocks, all)| {
                let first = u64::from(first);
                Step::Release { id, first, end: if all { 1 << 32 } else { first + blocks } }
            }
        ),
        1 => (id, logical).prop_map(|(id, logical)| Step::Convert { id, logical }),
        1 => Just(Step::Settle),
    ]
}

/// Executes the steps and compares with the model. Returns the mapped blocks.
pub(super) fn behave<T: Mapping<Simulated> + ?Sized>(
    h: &Bench<T>,
    steps: Vec<Step>,
) -> Result<HashSet<BlockNo>, TestCaseError> {
    for id in FILES {
        h.make_file(id.into());
    }
    let segment_blocks = h.core.geometry.segment_blocks;
    let mut model: HashMap<(u32, u32), MapState> = HashMap::new();
    for step in steps {
        match step {
            Step::Claim {
                id,
                first,
                blocks,
                written,
            } => {
                let state = if written {
                    MapState::Mapped
                } else {
                    MapState::Unwritten
                };
                for logical in first..=first.saturating_add(blocks - 1) {
                    if !model.contains_key(&(id, logical)) && (model.len() as u64) < segment_blocks
                    {
                        h.settle();
                        claim(h, id, logical, 1, state);
                        model.insert((id, logical), state);
                    }
                }
            }
            Step::Release { id, first, end } => {
                let gone = release(h, id, first, end.min(1 << 32), u64::MAX);
                let before = model.len();
                model.retain(|&(of, logical), _| {
                    of != id || !(first..end).contains(&u64::from(logical))
                });
                prop_assert_eq!(gone, (before - model.len()) as u64);
            }
            Step::Convert { id, logical } => {
                if let Some(block) = find(h, id, logical, 1)[0].block() {
                    let op = h.core.op_begin().unwrap();
                    h.map
                        .set_state(&op, id, logical, &[block], into(MapState::Mapped))
                        .unwrap();
                    model.insert((id, logical), MapState::Mapped);
                }
            }
            Step::Settle => {
                h.settle();
            }
        }
    }
    for id in FILES {
        for first in [0, u32::MAX - 127] {
            for (i, found) in (0..).zip(find(h, id, first, 127)) {
                let logical = first + i;
                let expected = model.get(&(id, logical)).copied();
                let got = match found {
                    Found::Hole => None,
                    Found::Unwritten(_) => Some(MapState::Unwritten),
                    Found::Mapped(_) => Some(MapState::Mapped),
                };
                prop_assert_eq!(got, expected, "{} {}", id, logical);
            }
        }
        let op = h.core.op_begin().unwrap();
        let count = model.keys().filter(|key| key.0 == id).count() as u64;
        prop_assert_eq!(h.map.count(&op, id, 1 << 32).unwrap(), count);
        let data = |from: u64| {
            model
                .iter()
                .filter(|(key, state)| {
                    key.0 == id && **state == MapState::Mapped && u64::from(key.1) >= from
                })
                .map(|(key, _)| u64::from(key.1))
                .min()
        };
        for from in [0, 7, 30, u64::from(u32::MAX) - 10] {
            prop_assert_eq!(
                h.map.seek(&op, id, from, 1 << 32, Seek::Data).unwrap(),
                data(from)
            );
            let hole = (from..1 << 32)
                .find(|&logical| model.get(&(id, logical as u32)) != Some(&MapState::Mapped));
            prop_assert_eq!(
                h.map.seek(&op, id, from, 1 << 32, Seek::Hole).unwrap(),
                hole
            );
        }
    }
    let mut seen = HashSet::new();
    for id in FILES {
        for found in [find(h, id, 0, 127), find(h, id, u32::MAX - 127, 128)].concat() {
            prop_assert!(
                found.block().is_none_or(|block| seen.insert(block)),
                "a block is mapped twice"
            );
        }
    }
    prop_assert_eq!(seen.len(), model.len());
    Ok(seen)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn every_mapping_behaves_as_a_map(
        steps in prop::collection::vec(step(), 1..60),
        kind in prop::sample::select(&MappingKind::ALL),
    ) {
        let h = Harness::of(kind, MIB);
        let blocks = behave(&h, steps)?.len() as u64;
        let h = h.reattach();
        prop_assert_eq!(h.free(), h.core.geometry.segment_blocks - blocks);
    }
}

/// The share of a file's blocks that lie right behind their logical predecessors, per mille.
fn layout_score(found: &[Found]) -> u64 {
    let follows = |pair: &&[Found]| match (pair[0].block(), pair[1].block()) {
        (Some(first), Some(second)) => second.0 == first.0 + 1,
        _ => false,
    };
    let following = found.windows(2).filter(follows).count() as u64;
    following * 1000 / (found.len() as u64 - 1)
}

#[test]
fn files_are_fragmented_as_requested() {
    for mapping in MappingKind::ALL {
        for fragmentation in [0, 300, 700, 1000] {
            let h = Harness::asked(GeometryRequest {
                pool_bytes: 32 * MIB,
                mapping,
                fragmentation,
                ..GeometryRequest::default()
            });
            h.make_file(5);
            claim(&h, 5, 0, 600, MapState::Mapped);
            let score = layout_score(&find(&h, 5, 0, 600));
            // Spans of HashFS lie apart at any fragmentation.
            let most = if mapping.has_home_lines() { 992 } else { 1000 };
            let asked = u64::from(1000 - fragmentation).min(most);
            assert!(
                score.abs_diff(asked) < 60,
                "{mapping:?}: {score}, not {asked}"
            );
        }
    }
}

/// The mappings that share the block allocator.
fn allocated() -> impl Iterator<Item = MappingKind> {
    let apart = |mapping: &MappingKind| !mapping.has_home_lines();
    MappingKind::ALL.into_iter().filter(apart)
}

/// Blocks of a large page.
const LARGE: u32 = 512;

/// Whether an aligned 2 MiB of a file lie on an aligned 2 MiB of the pool.
fn is_large(h: &Harness, id: MapId, page: u32) -> bool {
    let found = find(h, id, page * LARGE, LARGE as usize);
    let first = found[0].block().map(|block| h.map.data_at(block));
    first.is_some_and(|at| at.is_multiple_of(2 * MIB)) && layout_score(&found) == 1000
}

#[test]
fn large_files_lie_on_large_pages() {
    const PAGES: u32 = 4;
    for mapping in allocated() {
        // At once; as allocation ahead requests them; as writes of 1 MiB, 1 MB, 64 KiB and one
        // block do.
        for piece in [PAGES * LARGE, 257, 256, 245, 16, 1] {
            let h = Harness::of(mapping, 64 * MIB);
            (5..8).for_each(|ino| _ = h.make_file(ino));
            for first in (0..PAGES * LARGE).step_by(piece as usize) {
                let blocks = piece.min(PAGES * LARGE - first) as usize;
                claim(&h, 5, first, blocks, MapState::Mapped);
                claim(&h, 6, first, blocks, MapState::Mapped);
                // A hole after each block, so that no block has a goal from its predecessor.
                claim(&h, 7, first * 2, 1, MapState::Mapped);
            }
            // A file that begins with a small request is not known to be large at first.
            let known = u32::from(piece < LARGE / 2);
            for page in known..PAGES {
                let large = (is_large(&h, 5, page), is_large(&h, 6, page));
                assert_eq!(large, (true, true), "{mapping:?}, {piece}, {page}");
            }
        }
    }
}

/// A disk gets one request for many small files. Files that grow in turn do not get in each other's
/// way.
#[test]
fn small_files_lie_side_by_side_and_growing_files_apart() {
    for mapping in allocated() {
        let h = Harness::of(mapping, 64 * MIB);
        let files = 5_u32..105;
        files.clone().for_each(|ino| _ = h.make_file(ino.into()));
        for ino in files.clone() {
            claim(&h, ino, 0, 2, MapState::Mapped);
        }
        let place = |ino| find(&h, ino, 0, 2)[0].block().map(|block| block.0);
        let follows = |ino: &u32| place(*ino).map(|block| block + 2) == place(*ino + 1);
        let following = files.filter(follows).count();
        assert!(following >= 95, "{mapping:?}: {following} of 99");
        for first in 2..40 {
            claim(&h, 5, first, 1, MapState::Mapped);
            claim(&h, 6, first, 1, MapState::Mapped);
        }
        for ino in [5, 6] {
            let score = layout_score(&find(&h, ino, 0, 40));
            assert!(score > 900, "{mapping:?}: {score}");
        }
    }
}

#[test]
fn a_fragmented_pool_is_filled_to_the_last_block() {
    for mapping in MappingKind::ALL {
        let h = Harness::of(mapping, 8 * MIB);
        (5..7).for_each(|ino| _ = h.make_file(ino));
        let segment = h.core.geometry.segment_blocks;
        for first in (0..segment).step_by(100) {
            let blocks = (segment - first).min(100) as usize;
            claim(&h, 5, first as u32, blocks, MapState::Mapped);
        }
        assert_eq!(h.free(), 0);
        // Frees a third of the blocks everywhere, and one whole large page.
        let page = h.core.geometry.data_at.next_multiple_of(2 * MIB);
        let found = find(&h, 5, 0, segment as usize);
        for (first, found) in (0..).zip(found) {
            let at = h.map.data_at(found.block().unwrap());
            if first % 3 == 0 || (page..page + 2 * MIB).contains(&at) {
                release(&h, 5, first, first + 1, u64::MAX);
            }
        }
        h.settle();
        assert!(h.free() > segment / 2 && h.free() < segment, "{mapping:?}");
        let mut end = 0;
        while h.free() > 0 {
            let blocks = h.free().min(256);
            claim(&h, 6, end, blocks as usize, MapState::Mapped);
            end += blocks as u32;
        }
        if !mapping.has_home_lines() {
            assert!(is_large(&h, 6, 0), "{mapping:?}");
        }
        let mut seen = HashSet::new();
        let found = [
            find(&h, 5, 0, segment as usize),
            find(&h, 6, 0, end as usize),
        ]
        .concat();
        for block in found.into_iter().filter_map(Found::block) {
            assert!(seen.insert(block), "{mapping:?}: {block:?} twice");
        }
        assert_eq!(seen.len() as u64, segment, "{mapping:?}");
    }
}
