//! The gate that keeps operations from beginning while a commit cuts, under every order of accesses
//! that the memory model allows.

use std::sync::Arc;

use vellum_layout::{MappingKind, NamespaceKind};

use super::kernels::{Job, Stage};
use super::loom_memory::{Knowledge, Swaps, check};
use crate::core::cachelet::{Cachelet, field};
use crate::core::slots::prefer_thread_slot;
use crate::durability::commit::Gate;
use crate::logs::Commits;
use crate::logs::undo::UndoLog;

/// Words that operations change together.
const CHANGED: [u64; 2] = [field::SIZE, field::ATIME];
/// Words that a cut changes together.
const CUT: [u64; 2] = [field::MTIME, field::CTIME];
const OBJECT: Cachelet = Cachelet(60);

fn sees_both_or_none(stage: &Stage, words: [u64; 2]) {
    let [one, other] = words.map(|word| stage.core().get(OBJECT, word));
    assert_eq!(one, other, "an operation ran during a cut");
}

fn sets_both(stage: &Stage, words: [u64; 2]) {
    for word in words {
        stage.core().set(OBJECT, word, 1);
    }
}

/// An operation on this slot, or on the other one if that is in use.
fn operates(slot: u32) -> Job {
    Box::new(move |stage: Stage| {
        prefer_thread_slot(slot);
        let _op = stage.core().op_begin().unwrap();
        sets_both(&stage, CHANGED);
        sees_both_or_none(&stage, CUT);
    })
}

/// Two cuts: an operation that waited for the first one must not run during the second one either.
fn cuts() -> Job {
    Box::new(|stage: Stage| {
        for _ in 0..2 {
            let _gate = Gate::close(stage.core());
            sees_both_or_none(&stage, CHANGED);
            sets_both(&stage, CUT);
        }
    })
}

/// A stage whose operations check the gate.
fn committing(known: &Arc<Knowledge>) -> Stage {
    let kinds = (NamespaceKind::Direct, MappingKind::HashFs);
    let mut stage = Stage::new(known, kinds, Some(8));
    let fs = Arc::get_mut(&mut stage.fs).unwrap();
    fs.core.commits = Some(Commits::UndoLog(UndoLog::of_nothing()));
    stage
}

/// Tests a slot that was in use before, and one that was never used.
#[test]
fn no_operation_runs_during_a_cut() {
    for slot in [0, 1] {
        for swaps in [Swaps::Plain, Swaps::Barriers] {
            check(5, swaps, move |known| {
                let stage = committing(known);
                stage.together(vec![operates(slot), cuts()]);
                sees_both_or_none(&stage, CHANGED);
                sees_both_or_none(&stage, CUT);
            });
        }
    }
}
