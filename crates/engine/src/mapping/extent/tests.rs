//! Extent trees: shapes, counts, large trees against a model, and power cuts inside every change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vellum_layout::{ExtentRoot, Geometry, GeometryRequest, MapState, MappingKind};
use vellum_media::{CrashPoints, Event, Memory, Op as Access, Persistent, Simulated, Site, count};

use super::*;
use crate::mapping::Verdict;
use crate::mapping::harness::Bench;
use crate::mapping::tests;

const MIB: u64 = 1 << 20;
const ID: MapId = 5;

/// A small random number generator, so that a failure is repeatable.
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

/// The expected state of each logical block.
type Model = BTreeMap<u32, (BlockNo, MapState)>;

/// A file on a pool of its own.
struct File<T: ?Sized> {
    h: Bench<T>,
}

fn request(pool_bytes: u64, metadata_bytes: Option<u64>) -> GeometryRequest {
    GeometryRequest {
        pool_bytes,
        metadata_bytes,
        ..GeometryRequest::default()
    }
}

fn file_on<P: Pages + 'static>(
    mapping: MappingKind,
    asked: GeometryRequest,
) -> File<ExtentTrees<P>> {
    let asked = GeometryRequest { mapping, ..asked };
    let make = |at: u64, geometry: &Geometry, _| {
        Box::new(ExtentTrees::<P>::new(at, geometry, geometry.blocks()))
    };
    let h = Bench::made(asked, 1, Arc::new(make));
    h.make_file(ID.into());
    File { h }
}

fn extents(pool_bytes: u64, metadata_bytes: Option<u64>) -> File<Extents> {
    file_on(MappingKind::Extent, request(pool_bytes, metadata_bytes))
}

fn cached(pool_bytes: u64, metadata_bytes: Option<u64>) -> File<CachedExtents> {
    file_on(
        MappingKind::ExtentCached,
        request(pool_bytes, metadata_bytes),
    )
}

impl<P: Pages> File<ExtentTrees<P>>
where
    ExtentTrees<P>: Mapping<Simulated>,
{
    fn claim(&self, first: u32, blocks: usize, step: Step) -> Result<Vec<BlockNo>> {
        let op = self.h.core.op_begin().unwrap();
        let mut room = self.h.map.reserve(&op, blocks as u64).unwrap();
        let mut out = vec![BlockNo(0); blocks];
        let claimed = self.h.map.claim(&op, ID, first, step, &mut room, &mut out);
        self.h.map.unreserve(&op, room);
        self.h.core.pool.fence(Site::UNNAMED);
        claimed.map(|()| out)
    }

    fn set(&self, first: u32, blocks: &[BlockNo], state: MapState) -> Result<()> {
        let op = self.h.core.op_begin().unwrap();
        let set = self.h.map.set_state(&op, ID, first, blocks, flushed(state));
        self.h.core.pool.fence(Site::UNNAMED);
        set
    }

    fn release(&self, first: u64, end: u64) -> Result<u64> {
        let op = self.h.core.op_begin().unwrap();
        let gone = self
            .h
            .map
            .release(Flush::all(Site::UNNAMED), &op, ID, first, end, u64::MAX);
        self.h.core.pool.fence(Site::UNNAMED);
        gone
    }

    fn find(&self, first: u32, blocks: u32) -> Vec<Found> {
        tests::find(&self.h, ID, first, blocks as usize)
    }

    /// Number of extents of the file.
    fn extents(&self) -> usize {
        let (op, mut count) = (self.h.core.op_begin().unwrap(), 0);
        let tree = self.h.map.tree(&self.h.core, ID);
        tree.each(&op, 0, walk::LOGICAL_END, &mut |_| {
            count += 1;
            true
        })
        .unwrap();
        count
    }

    fn root(&self) -> ExtentRoot {
        self.h.map.tree(&self.h.core, ID).root().unwrap()
    }

    fn level(&self) -> Option<u32> {
        match self.root() {
            ExtentRoot::Node { level, .. } => Some(level),
            _ => None,
        }
    }

    fn settle(&self) {
        self.h.settle();
    }

    /// Allocates every metadata block.
    fn exhaust_nodes(&self) {
        let op = self.h.core.op_begin().unwrap();
        while op.alloc_any_block().is_ok() {}
    }

    fn compare(&self, model: &Model, end: u32) {
        assert_eq!(self.find(0, end), expected(model, end));
        let op = self.h.core.op_begin().unwrap();
        let count = self.h.map.count(&op, ID, end.into()).unwrap();
        assert_eq!(count, model.len() as u64);
    }
}

fn expected(model: &Model, end: u32) -> Vec<Found> {
    (0..end)
        .map(|logical| match model.get(&logical) {
            None => Found::Hole,
            Some(&(block, MapState::Mapped)) => Found::Mapped(block),
            Some(&(block, _)) => Found::Unwritten(block),
        })
        .collect()
}

fn flushed(to: MapState) -> Step {
    let flush = Some(Flush::all(Site::UNNAMED));
    Step { to, flush }
}

const LATER: Step = Step {
    to: MapState::Unwritten,
    flush: None,
};

/// Claims blocks and enters them into the model.
fn claim_into<P: Pages>(
    file: &File<ExtentTrees<P>>,
    model: &mut Model,
    first: u32,
    len: usize,
    step: Step,
) {
    let blocks = file.claim(first, len, step).unwrap();
    model.extend((first..).zip(blocks.iter().map(|&block| (block, step.to))));
}

/// Makes one random change before logical block `end`.
fn change<P: Pages>(
    file: &File<ExtentTrees<P>>,
    model: &mut Model,
    numbers: &mut Numbers,
    end: u32,
) {
    let first = numbers.below(end.into()) as u32;
    let most = if numbers.below(8) == 0 { 60 } else { 4 };
    let most = 1 + numbers.below(most) as u32;
    let range = first..(first + most).min(end);
    match numbers.below(10) {
        0..5 => {
            let holes = range.take_while(|logical| !model.contains_key(logical));
            let step = [
                flushed(MapState::Mapped),
                flushed(MapState::Unwritten),
                LATER,
            ][numbers.below(3) as usize];
            let len = holes.count();
            if len > 0 {
                claim_into(file, model, first, len, step);
            }
        }
        5..8 => {
            let state = model.get(&first).map(|&(_, state)| state);
            let run: Vec<BlockNo> = range
                .map_while(|logical| model.get(&logical))
                .take_while(|(_, of)| Some(*of) == state)
                .map(|&(block, _)| block)
                .collect();
            let to = if state == Some(MapState::Mapped) {
                MapState::Unwritten
            } else {
                MapState::Mapped
            };
            if !run.is_empty() {
                file.set(first, &run, to).unwrap();
                for (logical, &block) in (first..).zip(&run) {
                    model.insert(logical, (block, to));
                }
            }
        }
        _ => {
            let until = if numbers.below(40) == 0 {
                end
            } else {
                range.end
            };
            let gone = file.release(first.into(), until.into()).unwrap();
            let before = model.len();
            model.retain(|logical, _| !(first..until).contains(logical));
            assert_eq!(gone, (before - model.len()) as u64);
        }
    }
}

fn large_tree<P: Pages>(file: File<ExtentTrees<P>>, seed: u64, end: u32) {
    let (mut numbers, mut model) = (Numbers(seed), Model::new());
    for step in 0..6000 {
        change(&file, &mut model, &mut numbers, end);
        if step % 16 == 0 {
            file.settle();
        }
        if step % 500 == 0 {
            file.compare(&model, end);
        }
    }
    file.compare(&model, end);
    let h = file.h.reattach();
    let blocks = h.core.geometry.segment_blocks;
    assert_eq!(h.free(), blocks - model.len() as u64);
    let file = File { h };
    file.compare(&model, end);
    file.release(0, end.into()).unwrap();
    file.settle();
    assert_eq!(file.root(), ExtentRoot::Empty);
    assert_eq!(file.h.free(), blocks);
}

#[test]
fn large_trees_behave_as_a_map() {
    for seed in 0..3 {
        large_tree(extents(16 * MIB, None), seed, 2500);
        large_tree(cached(16 * MIB, None), seed, 2500);
    }
}

#[test]
fn a_file_of_one_extent_has_no_node() {
    let file = extents(16 * MIB, None);
    let mut blocks = Vec::new();
    for first in (0..100).step_by(5) {
        let before = count::of_this_thread();
        blocks.extend(file.claim(first, 5, flushed(MapState::Mapped)).unwrap());
        let cost = count::of_this_thread() - before;
        // The inode's line is flushed with the size that shows the blocks.
        assert_eq!((cost.lines_flushed, cost.fences), (0, 1));
    }
    let block = blocks[0].0;
    let (len, state) = (100, MapState::Mapped);
    assert_eq!(file.root(), ExtentRoot::Extent { block, len, state });
    file.exhaust_nodes();
    assert_eq!(file.release(60, 100).unwrap(), 40);
    assert!(matches!(file.release(10, 20), Err(Error::NoSpace(_))));
    let found: Vec<Found> = blocks.iter().map(|&block| Found::Mapped(block)).collect();
    assert_eq!(file.find(0, 60), found[..60], "nothing has changed");
}

#[test]
fn preallocated_blocks_are_filled_in_place() {
    let file = extents(16 * MIB, None);
    let blocks = file.claim(0, 200, flushed(MapState::Unwritten)).unwrap();
    file.set(0, &blocks[..1], MapState::Mapped).unwrap();
    file.exhaust_nodes();
    for first in 1..199 {
        file.set(first, &blocks[first as usize..][..1], MapState::Mapped)
            .unwrap();
        assert_eq!(file.extents(), 2);
    }
    file.set(199, &blocks[199..], MapState::Mapped).unwrap();
    assert_eq!(file.extents(), 1);
    // And backwards from the end.
    for last in (100..200).rev() {
        file.set(last, &blocks[last as usize..][..1], MapState::Unwritten)
            .unwrap();
        assert_eq!(file.extents(), 2);
    }
    assert_eq!(file.find(99, 1), [Found::Mapped(blocks[99])]);
    assert_eq!(file.find(100, 1), [Found::Unwritten(blocks[100])]);
}

#[test]
fn holes_filled_in_order_become_one_extent() {
    let file = extents(16 * MIB, None);
    for first in 0..300 {
        let blocks = file.claim(first, 1, LATER).unwrap();
        file.set(first, &blocks, MapState::Mapped).unwrap();
    }
    assert_eq!(file.extents(), 1);
}

#[test]
fn full_leaves_get_neighbours_and_stay_full() {
    let file = extents(8 * MIB, None);
    let mut model = Model::new();
    for first in 0..1000 {
        claim_into(&file, &mut model, 2 * first, 1, flushed(MapState::Mapped));
    }
    assert_eq!(file.level(), Some(1));
    let retired = file.h.map.nodes.retired(&file.h.core);
    assert_eq!(retired, 0, "no node was rewritten");
    file.compare(&model, 2000);
    assert_eq!(file.release(600, 2000).unwrap(), 700);
    model.retain(|&logical, _| logical < 600);
    file.compare(&model, 2000);
    let retired = file.h.map.nodes.retired(&file.h.core);
    assert_eq!(retired, 2, "two of the four leaves are empty");
}

#[test]
fn blocks_put_in_backwards_make_a_high_tree() {
    let file = extents(192 * MIB, Some(32 * MIB));
    let mut model = Model::new();
    let end = 33_000;
    for first in (0..end).rev() {
        claim_into(&file, &mut model, 3 * first, 1, flushed(MapState::Mapped));
        if first % 64 == 0 {
            file.settle();
        }
    }
    assert_eq!(file.level(), Some(2), "half full leaves, 254 to a node");
    file.compare(&model, 3 * end);
    for first in end..end + 600 {
        claim_into(&file, &mut model, 3 * first, 1, flushed(MapState::Mapped));
    }
    let end = 3 * (end + 600);
    let file = File {
        h: file.h.reattach(),
    };
    file.compare(&model, end);
    assert_eq!(file.release(5000, 90_000).unwrap(), 28_333);
    model.retain(|logical, _| !(5000..90_000).contains(logical));
    file.compare(&model, end);
}

#[test]
fn nodes_are_read_through_the_cache() {
    let file = cached(64 * MIB, Some(2 * MIB));
    let mut model = Model::new();
    for first in 0..12_000 {
        claim_into(&file, &mut model, 2 * first, 1, flushed(MapState::Mapped));
    }
    let tallies = || file.h.map.pages.tallies(&file.h.core);
    file.compare(&model, 24_000);
    let (hits, misses) = tallies();
    for _ in 0..100 {
        file.find(77, 1);
        file.find(20_000, 1);
    }
    let (hits_now, misses_now) = tallies();
    assert!(misses_now - misses <= 3 && hits_now - hits >= 150);
    let mut numbers = Numbers(1);
    let before = misses_now;
    for _ in 0..3000 {
        let logical = numbers.below(24_000) as u32;
        let found = model.get(&logical).map(|&(block, _)| block);
        assert_eq!(file.find(logical, 1)[0].block(), found);
    }
    assert!(tallies().1 > before + 100, "not all nodes fit");
}

/// Whether a cut after this event shows a state that a cut after its neighbours does not.
fn is_cut(log: &[Event], done: usize) -> bool {
    let is_part_of_a_node = matches!(
        log[done - 1].op,
        Access::Store {
            non_temporal: true,
            ..
        }
    );
    !is_part_of_a_node || done.is_multiple_of(197)
}

/// After a cut anywhere in `change`, each block is in its old or its new state. After the caller's
/// fence it is in its new state.
fn cut_power(
    file: &File<Extents>,
    model: &mut Model,
    end: u32,
    change: impl FnOnce(&File<Extents>, &mut Model),
) {
    file.settle();
    let before = expected(model, end);
    let base = file.h.core.pool.image();
    file.h.core.pool.start_recording();
    change(file, model);
    let log = file.h.core.pool.take_log();
    let after = expected(model, end);
    let geometry = file.h.core.geometry;
    let mut points = CrashPoints::new(base, &log);
    while let Some(point) = points.next_point() {
        let done = point.events_done();
        if !is_cut(&log, done) {
            continue;
        }
        for state in point.states(12, done as u64) {
            let h = file
                .h
                .recovered(point.image(&state), &|_, _, _| Verdict::Keep);
            let found = File { h };
            let got = found.find(0, end);
            for (logical, found) in got.iter().enumerate() {
                let fits = *found == before[logical] || *found == after[logical];
                assert!(
                    fits,
                    "block {logical} is {found:?}, cut {done} of {}",
                    log.len()
                );
            }
            if done == log.len() {
                assert_eq!(got, after, "a change that returned is durable");
            }
            let used = got.iter().filter(|found| **found != Found::Hole).count();
            let blocks = geometry.segment_blocks;
            assert_eq!(found.h.free(), blocks - used as u64);
            found.release(0, end.into()).unwrap();
            found.settle();
            assert_eq!(found.h.free(), blocks);
        }
    }
}

#[test]
fn power_cuts_inside_random_changes() {
    for seed in 0..12 {
        let (mut numbers, mut model) = (Numbers(1000 + seed), Model::new());
        let file = extents(3 * MIB, Some(MIB));
        let end = [16, 60, 600][(seed % 3) as usize];
        for step in 0..3 * end {
            if model.len() < 400 {
                change(&file, &mut model, &mut numbers, end);
            }
            if step % 16 == 0 {
                file.settle();
            }
        }
        for _ in 0..6 {
            cut_power(&file, &mut model, end, |file, model| {
                change(file, model, &mut numbers, end);
            });
        }
    }
}

#[test]
fn power_cuts_inside_changes_of_nodes() {
    let end = 1200;
    let put = |first: u32| {
        move |file: &File<Extents>, model: &mut Model| {
            claim_into(file, model, first, 1, flushed(MapState::Mapped));
        }
    };
    let file = extents(4 * MIB, Some(MIB));
    let mut model = Model::new();
    for first in 0..254 {
        claim_into(&file, &mut model, 4 * first, 1, flushed(MapState::Mapped));
    }
    assert_eq!(file.level(), Some(0));
    cut_power(&file, &mut model, end, put(501));
    assert_eq!(file.level(), Some(1), "a leaf became two");
    for first in 0..126 {
        claim_into(
            &file,
            &mut model,
            4 * first + 2,
            1,
            flushed(MapState::Mapped),
        );
    }
    cut_power(&file, &mut model, end, put(1));
    cut_power(&file, &mut model, end, put(1100));
    cut_power(&file, &mut model, end, |file, model| {
        file.release(300, 900).unwrap();
        model.retain(|logical, _| !(300..900).contains(logical));
    });
    cut_power(&file, &mut model, end, put(700));
    cut_power(&file, &mut model, end, |file, model| {
        file.release(0, end.into()).unwrap();
        model.clear();
    });
    assert_eq!(file.root(), ExtentRoot::Empty);
}

#[test]
fn power_cuts_while_borders_move() {
    for at in 0..12u32 {
        let file = extents(2 * MIB, Some(MIB));
        let mut model = Model::new();
        // The number of extents before the border varies its position in a line.
        for first in 0..at {
            claim_into(&file, &mut model, 2 * first, 1, flushed(MapState::Mapped));
        }
        let first = 2 * at + 1;
        claim_into(&file, &mut model, first, 12, flushed(MapState::Unwritten));
        let to_mapped = |from: u32, len: u32| {
            move |file: &File<Extents>, model: &mut Model| {
                let blocks: Vec<BlockNo> = (from..from + len).map(|i| model[&i].0).collect();
                file.set(from, &blocks, MapState::Mapped).unwrap();
                for (logical, block) in (from..).zip(blocks) {
                    model.insert(logical, (block, MapState::Mapped));
                }
            }
        };
        for (from, len) in [(0, 2), (2, 1), (10, 2), (9, 1), (5, 2), (7, 2), (3, 2)] {
            cut_power(&file, &mut model, 64, to_mapped(first + from, len));
        }
    }
}

#[test]
fn damage_is_an_error_and_never_another_files_block() {
    let file = extents(4 * MIB, None);
    let mut model = Model::new();
    for first in 0..300 {
        claim_into(&file, &mut model, 2 * first, 1, flushed(MapState::Mapped));
    }
    let root_at = file.h.map.tree(&file.h.core, ID).root_at();
    let (pool, image) = (&file.h.core.pool, file.h.core.pool.image());
    let word = |at: u64| u64::from_le_bytes(image[at as usize..][..8].try_into().unwrap());
    let mut numbers = Numbers(3);
    let meta = file.h.core.geometry.meta_at..file.h.core.geometry.table_at;
    let used: Vec<u64> = meta
        .step_by(8)
        .filter(|&at| word(at) != 0 && at / 4096 != root_at / 4096)
        .chain([root_at])
        .collect();
    for _ in 0..400 {
        let at = used[numbers.below(used.len() as u64) as usize];
        let bit = 1 << numbers.below(64);
        pool.write(at, &(word(at) ^ bit).to_le_bytes());
        let op = file.h.core.op_begin().unwrap();
        // A leaf other than the cursor's may be the damaged one.
        file.h.map.tree(&file.h.core, ID).note_change();
        let mut found = vec![Found::Hole; 600];
        let result = file.h.map.lookup(&op, ID, 0, &mut found);
        for (found, expected) in found.iter().zip(expected(&model, 600)) {
            let may = result.is_err() && *found == Found::Hole;
            assert!(may || *found == expected, "word at {at:#x}, bit {bit:#x}");
        }
        pool.write(at, &word(at).to_le_bytes());
    }
}

/// While one thread changes the blocks around them, other threads always find the blocks that stay.
fn read_beside_changes<P: Pages>(file: &File<ExtentTrees<P>>) {
    let end = 900;
    let mut model = Model::new();
    claim_into(file, &mut model, 0, end as usize, flushed(MapState::Mapped));
    let stays = |logical: u32| logical.is_multiple_of(3);
    let expected = expected(&model, end);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (expected, done) = (&expected, &done);
            scope.spawn(move || {
                let mut numbers = Numbers(seed);
                while !done.load(Ordering::Relaxed) {
                    let first = numbers.below(u64::from(end) - 20) as u32;
                    let found = file.find(first, 20);
                    for (logical, found) in (first..).zip(found) {
                        let fits = !stays(logical) || found == expected[logical as usize];
                        assert!(fits, "block {logical} is {found:?}");
                    }
                }
            });
        }
        let mut numbers = Numbers(7);
        for _ in 0..3000 {
            let first = numbers.below(end.into()) as u32;
            if !stays(first) {
                change_one(file, &mut model, &mut numbers, first);
            }
            file.settle();
        }
        done.store(true, Ordering::Relaxed);
    });
    file.compare(&model, end);
}

/// Changes the state of one block, removes it, or inserts one.
fn change_one<P: Pages>(
    file: &File<ExtentTrees<P>>,
    model: &mut Model,
    numbers: &mut Numbers,
    first: u32,
) {
    let other = |state| match state {
        MapState::Mapped => MapState::Unwritten,
        _ => MapState::Mapped,
    };
    match model.get(&first).copied() {
        None => claim_into(file, model, first, 1, flushed(MapState::Mapped)),
        Some((block, state)) if numbers.below(3) > 0 => {
            file.set(first, &[block], other(state)).unwrap();
            model.insert(first, (block, other(state)));
        }
        Some(_) => {
            file.release(first.into(), u64::from(first) + 1).unwrap();
            model.remove(&first);
        }
    }
}

#[test]
fn readers_always_find_what_stays() {
    read_beside_changes(&extents(8 * MIB, None));
    read_beside_changes(&cached(8 * MIB, None));
}
