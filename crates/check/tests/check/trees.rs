//! Trees of files, with injected damage or as a crash leaves them: one test for each class of a
//! tree, with every mapping that has trees.

use crate::testimage::trees::{Forest, forest};
use vellum_check::{Class, Finding, Options, Severity, check};
use vellum_layout::{
    BLOCK_BYTES, ExtentBody, ExtentKind, ExtentRoot, ExtentSeal, MapRoot, MappingKind,
    SLOTS_PER_BLOCK, TreeTarget, TreeWord,
};

const TREES: [MappingKind; 3] = [
    MappingKind::Radix,
    MappingKind::Extent,
    MappingKind::ExtentCached,
];

const STRICT: Options = Options {
    strict_clean: true,
    progress: None,
};

#[test]
fn sound_trees_are_sound() {
    for mapping in TREES {
        let (open, mut closed) = (forest(mapping), forest(mapping));
        closed.image.close();
        for forest in [open, closed] {
            let report = check(&forest.image.bytes, STRICT);
            assert!(report.is_sound(), "{mapping:?}: {report}");
            let summary = &report.summary;
            assert_eq!((summary.blocks_mapped, summary.blocks_unwritten), (7, 1));
        }
    }
}

/// Changes open and closed pools of each mapping: `class` is found at `place`, in open ones with
/// this severity, in closed ones as damage; a strict check finds damage in both.
#[track_caller]
fn found(
    class: Class,
    severity: Severity,
    place: impl Fn(&Forest) -> String,
    change: impl Fn(&mut Forest),
) {
    for mapping in TREES {
        for (is_closed, severity) in [(false, severity), (true, Severity::Damage)] {
            let mut forest = forest(mapping);
            if is_closed {
                forest.image.close();
            }
            change(&mut forest);
            let report = check(&forest.image.bytes, Options::default());
            let place = place(&forest);
            let fits = |found: &Finding| found.place == place && found.severity == severity;
            assert!(
                report.of(class).any(fits),
                "{mapping:?}: {class:?} at {place} is not in:\n{report}"
            );
            assert!(check(&forest.image.bytes, STRICT).damage > 0);
        }
    }
}

fn small(s: &Forest) -> String {
    format!("inode {}", s.small.ino)
}

fn flip(s: &mut Forest, at: u64) {
    let word = s.image.word(at);
    s.image.set_word(at, word ^ 1 << 7);
}

/// Makes the word of block 3 of `small` lead to `block`, with a correct check.
fn point(s: &mut Forest, block: u32) {
    let (id, logical) = (s.small.ino as u32, 3);
    let at = s.small.words[&logical];
    let (at, word) = match s.image.geometry.mapping {
        MappingKind::Radix => (at, TreeWord::new(TreeTarget::Mapped(block), id, logical).0),
        _ => {
            let place = block.wrapping_sub(logical);
            let body = ExtentBody::new(ExtentSeal::new(id), place, ExtentKind::Mapped);
            (at + ExtentBody::AT, body.0)
        }
    };
    s.image.set_word(at, word);
}

#[test]
fn a_word_that_does_not_fit_its_position() {
    found(Class::MapWord, Severity::Damage, small, |s| {
        let at = s.small.words[&3];
        flip(s, at);
    });
}

#[test]
fn a_word_in_the_inode_that_does_not_fit() {
    found(Class::MapWord, Severity::Damage, small, |s| {
        let at = s.image.tree_word_at(s.small.ino);
        flip(s, at);
    });
}

#[test]
fn a_node_that_is_not_sound() {
    found(Class::MapWord, Severity::Damage, small, |s| {
        let at = s.image.at(s.small.nodes[0]);
        s.image.set_bytes(at, &[0xA5; 64]);
    });
}

#[test]
fn a_word_that_leads_out_of_the_segment() {
    for beyond in [0, 1 << 20] {
        found(Class::MapWord, Severity::Damage, small, |s| {
            let block = s.image.geometry.segment_blocks as u32 + beyond;
            point(s, block);
        });
    }
}

#[test]
fn a_word_that_leads_to_no_node() {
    found(Class::MapWord, Severity::Damage, small, |s| {
        lead(s, s.small.ino, 0);
    });
}

/// Makes the word in an inode lead to the node in `slot`.
fn lead(s: &mut Forest, ino: u64, slot: u64) {
    let (id, block) = (ino as u32, (slot / SLOTS_PER_BLOCK) as u32);
    let word = match s.image.geometry.mapping {
        MappingKind::Radix => TreeWord::new(TreeTarget::Node { block, level: 1 }, id, 0).0,
        _ => {
            let (node, level) = (block, 0);
            ExtentRoot::Node { node, level }.word(ExtentSeal::new(id))
        }
    };
    let at = s.image.tree_word_at(ino);
    s.image.set_word(at, word);
}

#[test]
fn a_node_of_two_files() {
    let node = |s: &Forest| format!("slot {}", s.small.nodes[0]);
    found(Class::SlotShared, Severity::Damage, node, |s| {
        lead(s, s.scattered.ino, s.small.nodes[0]);
    });
}

#[test]
fn a_root_that_names_another_inode() {
    found(Class::MapSegment, Severity::Damage, small, |s| {
        let (ino, other) = (s.small.ino, s.scattered.ino as u32);
        let root = MapRoot::new(0, other).0;
        s.image.edit_inode(ino, |inode| inode.root = root);
    });
}

#[test]
fn a_block_of_two_files() {
    let block = |s: &Forest| format!("block {}", s.scattered.blocks[&600]);
    found(Class::MapTwice, Severity::Damage, block, |s| {
        let block = s.scattered.blocks[&600];
        point(s, block);
    });
}

#[test]
fn a_tree_behind_no_root() {
    let block = |s: &Forest| format!("block {}", s.small.blocks[&0]);
    found(Class::MapNobody, Severity::Residue, block, |s| {
        let ino = s.small.ino;
        s.image.edit_inode(ino, |inode| inode.root = 0);
    });
}

#[test]
fn blocks_past_the_end_of_file() {
    let block = |s: &Forest| format!("block {}", s.scattered.blocks[&600]);
    found(Class::MapPastEnd, Severity::Residue, block, |s| {
        let ino = s.scattered.ino;
        s.image
            .edit_inode(ino, |inode| inode.size = BLOCK_BYTES + 9);
    });
}

/// What a close saved of nodes and of blocks.
#[test]
fn saved_maps_that_are_wrong() {
    for mapping in TREES {
        let mut leaky = forest(mapping);
        leaky.image.leak(leaky.small.nodes[0] as usize + 64);
        leaky.image.close();
        let mut lossy = forest(mapping);
        lossy.image.forget(lossy.small.nodes[0]);
        lossy.image.close();
        for forest in [leaky, lossy] {
            let report = check(&forest.image.bytes, Options::default());
            assert!(report.has(Class::LiveMap), "{mapping:?}: {report}");
        }
        let mut saved_state = forest(mapping);
        saved_state.image.close();
        let at = saved_state.image.geometry.saved_state().free_at();
        let word = saved_state.image.word(at);
        saved_state.image.set_word(at, word ^ 1 << 20);
        saved_state.image.seal_saved_state(|_| {});
        let report = check(&saved_state.image.bytes, Options::default());
        assert!(report.has(Class::SavedState), "{mapping:?}: {report}");
    }
}

/// A counter of inodes, and one of blocks, that a close saved wrongly.
#[test]
fn saved_counters_that_are_wrong() {
    for mapping in TREES {
        for (which, delta) in [(0, 1), (1, -1)] {
            let mut forest = forest(mapping);
            forest.image.miscount(which, delta);
            forest.image.close();
            let report = check(&forest.image.bytes, Options::default());
            assert!(report.has(Class::SavedCounters), "{mapping:?}: {report}");
        }
    }
}
