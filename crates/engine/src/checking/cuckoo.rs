//! Entries of a cuckoo table that move while other threads look for them, change them, or remove
//! them.

use std::collections::HashMap;

use vellum_layout::{CuckooPlan, MapState, MapWord, MappingKind};
use vellum_media::Site;

use super::kernels::{Stage, explore_on};
use super::loom_memory::Swaps;
use crate::mapping::{BlockNo, Flush, Found, Step};

/// Files whose only block has an entry in one of two full lines, and a new file whose block finds
/// both full, so that the first of the others moves.
struct Crowd {
    moves: u32,
    comes: u32,
}

impl Crowd {
    fn of(stage: &Stage) -> Self {
        let core = stage.core();
        let plan = CuckooPlan::new(core.geometry.segment_blocks);
        let homes = |id: u32| plan.homes(core.seed, MapWord::key(id, 0));
        let comes = 100;
        let full = homes(comes);
        // Entries that fill a line can only leave it for a third line.
        let others = |line: u64| {
            let fits = move |&id: &u32| {
                let [first, second] = homes(id);
                first == line && !full.contains(&second)
            };
            (comes + 1..).filter(fits).take(4)
        };
        let op = core.op_begin().unwrap();
        let ids: Vec<u32> = full.into_iter().flat_map(others).collect();
        for &id in &ids {
            stage.claim(&op, id, 0);
        }
        let moves = ids[0];
        Self { moves, comes }
    }

    /// Claims the new file's block, which moves the other.
    fn come(&self, stage: &Stage) {
        let op = stage.core().op_begin().unwrap();
        stage.claim(&op, self.comes, 0);
    }

    /// Checks that both entries are where lookups find them, each once.
    fn check(stage: &Stage, there: &[u32], gone: &[u32]) {
        let core = stage.core();
        let op = core.op_begin().unwrap();
        for &id in there {
            assert_eq!(stage.data(&op, id, 0), Some(id.into()), "{id}");
        }
        for &id in gone {
            assert_eq!(stage.data(&op, id, 0), None, "{id}");
        }
        let words = core.geometry.table_bytes() / 8;
        let mut entries = HashMap::new();
        for at in (0..words)
            .step_by(2)
            .map(|i| core.geometry.table_at + i * 8)
        {
            let word = MapWord(core.word(at));
            assert_ne!(word.state(), MapState::Limbo, "a mark remains");
            let before = entries.insert(word.0, at).filter(|_| word != MapWord::FREE);
            assert_eq!(before, None, "a key is there twice");
        }
    }
}

#[test]
fn an_entry_that_moves_is_found() {
    explore_on(MappingKind::Cuckoo, None, 1, Swaps::Plain, |stage| {
        let Crowd { moves, comes } = Crowd::of(&stage);
        let crowd = Crowd { moves, comes };
        stage.together(vec![
            Box::new(move |stage: Stage| crowd.come(&stage)),
            Box::new(move |stage: Stage| {
                let op = stage.core().op_begin().unwrap();
                assert_eq!(stage.data(&op, moves, 0), Some(moves.into()));
            }),
        ]);
        Crowd::check(&stage, &[moves, comes], &[]);
    });
}

#[test]
fn a_moving_entry_is_changed_at_its_new_place() {
    explore_on(MappingKind::Cuckoo, None, 1, Swaps::Plain, |stage| {
        let Crowd { moves, comes } = Crowd::of(&stage);
        let crowd = Crowd { moves, comes };
        stage.together(vec![
            Box::new(move |stage: Stage| crowd.come(&stage)),
            Box::new(move |stage: Stage| {
                let op = stage.core().op_begin().unwrap();
                let mut found = [Found::Hole];
                stage.fs.mapping.lookup(&op, moves, 0, &mut found).unwrap();
                let block = [found[0].block().unwrap_or(BlockNo(0))];
                let step = Step {
                    to: MapState::Unwritten,
                    flush: Some(Flush::all(Site::UNNAMED)),
                };
                stage
                    .fs
                    .mapping
                    .set_state(&op, moves, 0, &block, step)
                    .unwrap();
            }),
        ]);
        Crowd::check(&stage, &[comes], &[moves]);
    });
}

#[test]
fn a_moving_entry_that_is_removed_stays_removed() {
    explore_on(MappingKind::Cuckoo, None, 1, Swaps::Plain, |stage| {
        let Crowd { moves, comes } = Crowd::of(&stage);
        let crowd = Crowd { moves, comes };
        stage.together(vec![
            Box::new(move |stage: Stage| crowd.come(&stage)),
            Box::new(move |stage: Stage| {
                let op = stage.core().op_begin().unwrap();
                let gone = stage
                    .fs
                    .mapping
                    .release(Flush::all(Site::UNNAMED), &op, moves, 0, 1, 1)
                    .unwrap();
                assert_eq!(gone, 1);
            }),
        ]);
        Crowd::check(&stage, &[comes], &[moves]);
    });
}
