//! Damaged trees are mended: their sound parts survive in new trees.

use crate::support::{self, Content, assert_kept, fill_blocks, read_tree, repaired};
use crate::testimage::trees::{Forest, forest};
use vellum_check::{Class, Options, check};
use vellum_layout::{
    BLOCK_BYTES, ExtentBody, ExtentKind, ExtentRoot, ExtentSeal, MapRoot, MappingKind,
    SLOTS_PER_BLOCK, TreeTarget, TreeWord,
};

const TREES: [MappingKind; 3] = [
    MappingKind::Radix,
    MappingKind::Extent,
    MappingKind::ExtentCached,
];

/// The bytes of a file, if it is readable.
fn bytes(image: &[u8], path: &[u8]) -> Vec<u8> {
    match read_tree(image).remove(path) {
        Some(Content::File(bytes)) => bytes,
        other => panic!("{}: {other:?}", path.escape_ascii()),
    }
}

/// Damages pools of each mapping, open and closed, and mends them; calls `judge` with the pool
/// before the damage and after the repair.
#[track_caller]
fn mended(class: Class, damage: impl Fn(&mut Forest), judge: impl Fn(&Forest, &[u8], &[u8])) {
    mended_if(&[false, true], class, damage, judge);
}

/// As [`mended`], for closed or open pools according to `closed`.
#[track_caller]
fn mended_if(
    closed: &[bool],
    class: Class,
    damage: impl Fn(&mut Forest),
    judge: impl Fn(&Forest, &[u8], &[u8]),
) {
    for (mapping, &closed) in TREES
        .iter()
        .flat_map(|kind| closed.iter().map(move |c| (*kind, c)))
    {
        let mut forest = forest(mapping);
        if closed {
            forest.image.close();
        }
        let geometry = forest.image.geometry;
        fill_blocks(&mut forest.image.bytes, &geometry);
        let sound = forest.image.bytes.clone();
        let report = check(&sound, Options::default());
        assert!(report.is_sound(), "{mapping:?}: {report}");
        damage(&mut forest);
        let before = forest.image.bytes.clone();
        let report = check(&before, Options::default());
        assert!(
            report.has(class),
            "{mapping:?}: {class:?} is not in {report}"
        );
        let (plan, after) = repaired(&before);
        assert_eq!(plan.exit_code(), 1);
        assert_kept(&before, &after, &plan);
        judge(&forest, &sound, &after);
    }
}

/// Offset of the word about a logical block, or of the entry's body.
fn place_word(s: &Forest, at: u64) -> u64 {
    match s.image.geometry.mapping {
        MappingKind::Radix => at,
        _ => at + ExtentBody::AT,
    }
}

fn flip(s: &mut Forest, at: u64) {
    let word = s.image.word(at);
    s.image.set_word(at, word ^ 1 << 7);
}

/// `sound` with zeros in the blocks from `first` to `last`.
fn holed(sound: &[u8], first: usize, last: usize) -> Vec<u8> {
    let mut bytes = sound.to_vec();
    let (from, to) = (
        first * BLOCK_BYTES as usize,
        (last + 1) * BLOCK_BYTES as usize,
    );
    let to = to.min(bytes.len());
    bytes[from..to].fill(0);
    bytes
}

/// A tree begins in the inode named by the root.
#[test]
fn a_root_that_names_another_inode_is_corrected() {
    for other in [3, 0x80008] {
        mended(
            Class::MapSegment,
            |s| {
                let ino = s.scattered.ino;
                s.image
                    .edit_inode(ino, |inode| inode.root = MapRoot::new(0, other).0);
            },
            |_, sound, after| {
                assert_eq!(bytes(after, b"/scattered"), bytes(sound, b"/scattered"));
            },
        );
    }
}

#[test]
fn an_unsound_word_loses_its_target() {
    mended(
        Class::MapWord,
        |s| {
            let at = place_word(s, s.scattered.words[&600]);
            flip(s, at);
        },
        |_, sound, after| {
            let sound = bytes(sound, b"/scattered");
            assert_eq!(bytes(after, b"/scattered"), holed(&sound, 600, 600));
        },
    );
}

#[test]
fn an_unsound_key_loses_its_extent() {
    mended(
        Class::MapWord,
        |s| {
            let at = s.small.words[&3];
            flip(s, at);
        },
        |_, sound, after| {
            let sound = bytes(sound, b"/small");
            assert_eq!(bytes(after, b"/small"), holed(&sound, 3, 3));
        },
    );
}

#[test]
fn an_unsound_root_loses_only_the_tree() {
    mended(
        Class::MapWord,
        |s| {
            let at = s.image.tree_word_at(s.small.ino);
            flip(s, at);
        },
        |_, sound, after| {
            let lost = holed(&bytes(sound, b"/small"), 0, 3);
            assert_eq!(bytes(after, b"/small"), lost);
            for path in [&b"/scattered"[..], b"/single"] {
                assert_eq!(bytes(after, path), bytes(sound, path));
            }
        },
    );
}

/// The head of a node is damaged, or a leaf of a radix tree.
#[test]
fn an_unsound_node_loses_its_targets() {
    mended(
        Class::MapWord,
        |s| {
            let at = s.image.at(s.small.nodes[0]);
            s.image.set_bytes(at, &[0xA5; 64]);
        },
        |_, sound, after| {
            let lost = holed(&bytes(sound, b"/small"), 0, 3);
            assert_eq!(bytes(after, b"/small"), lost);
        },
    );
}

/// The word of one file leads, with a correct check, to the node of another.
#[test]
fn a_node_of_two_files_belongs_to_the_file_in_its_contents() {
    mended(
        Class::SlotShared,
        |s| {
            let (ino, slot) = (s.scattered.ino, s.small.nodes[0]);
            let (id, block) = (ino as u32, (slot / SLOTS_PER_BLOCK) as u32);
            let word = match s.image.geometry.mapping {
                MappingKind::Radix => {
                    let target = TreeTarget::Node { block, level: 1 };
                    TreeWord::new(target, id, 0).0
                }
                _ => {
                    let (node, level) = (block, 0);
                    ExtentRoot::Node { node, level }.word(ExtentSeal::new(id))
                }
            };
            let at = s.image.tree_word_at(ino);
            s.image.set_word(at, word);
        },
        |_, sound, after| {
            assert_eq!(bytes(after, b"/small"), bytes(sound, b"/small"));
            let lost = holed(&bytes(sound, b"/scattered"), 0, 600);
            assert_eq!(bytes(after, b"/scattered"), lost);
        },
    );
}

/// Makes the word of block 3 of `small` lead to `block`.
fn point(s: &mut Forest, block: u32) {
    let (id, logical) = (s.small.ino as u32, 3);
    let word = match s.image.geometry.mapping {
        MappingKind::Radix => TreeWord::new(TreeTarget::Mapped(block), id, logical).0,
        _ => {
            let place = block.wrapping_sub(logical);
            ExtentBody::new(ExtentSeal::new(id), place, ExtentKind::Mapped).0
        }
    };
    let at = place_word(s, s.small.words[&logical]);
    s.image.set_word(at, word);
}

#[test]
fn a_block_of_two_files_is_copied() {
    mended(
        Class::MapTwice,
        |s| {
            let block = s.scattered.blocks[&600];
            point(s, block);
        },
        |s, sound, after| {
            assert_eq!(bytes(after, b"/scattered"), bytes(sound, b"/scattered"));
            let part = |bytes: &[u8], block: usize| {
                bytes[block * BLOCK_BYTES as usize..]
                    .iter()
                    .take(4000)
                    .copied()
                    .collect::<Vec<_>>()
            };
            let shared = part(&bytes(sound, b"/scattered"), 600);
            assert_eq!(part(&bytes(after, b"/small"), 3), shared);
            let places = support::word(after, s.image.geometry.data_at);
            assert_ne!(places, 0, "the first block is where it was");
        },
    );
}

#[test]
fn a_written_block_takes_precedence_over_a_reserved_one() {
    mended(
        Class::MapTwice,
        |s| {
            let block = s.scattered.blocks[&2];
            point(s, block);
        },
        |_, sound, after| {
            assert_eq!(bytes(after, b"/scattered"), bytes(sound, b"/scattered"));
        },
    );
}

#[test]
fn blocks_past_the_end_are_freed() {
    mended_if(
        &[true],
        Class::MapPastEnd,
        |s| {
            let ino = s.scattered.ino;
            s.image
                .edit_inode(ino, |inode| inode.size = BLOCK_BYTES + 9);
        },
        |_, sound, after| {
            let mut short = bytes(sound, b"/scattered");
            short.truncate(BLOCK_BYTES as usize + 9);
            assert_eq!(bytes(after, b"/scattered"), short);
        },
    );
}

#[test]
fn a_lost_root_is_found_by_the_tree() {
    for mapping in TREES {
        let mut forest = forest(mapping);
        forest.image.close();
        let geometry = forest.image.geometry;
        fill_blocks(&mut forest.image.bytes, &geometry);
        let sound = read_tree(&forest.image.bytes);
        for ino in [forest.small.ino, forest.single] {
            forest.image.edit_inode(ino, |inode| inode.root = 0);
        }
        let report = check(&forest.image.bytes, Options::default());
        assert!(report.has(Class::MapNobody), "{mapping:?}: {report}");
        let (_, after) = repaired(&forest.image.bytes);
        assert_eq!(read_tree(&after), sound);
    }
}

/// In closed pools: saved state becomes void, the files stay as they are.
#[test]
fn saved_maps_that_are_wrong_are_void() {
    for mapping in TREES {
        for (class, slot) in [(Class::LiveMap, true), (Class::SavedState, false)] {
            let mut forest = forest(mapping);
            let geometry = forest.image.geometry;
            if slot {
                // A node that nothing reaches.
                forest.image.leak(forest.small.nodes[0] as usize + 64);
            }
            forest.image.close();
            fill_blocks(&mut forest.image.bytes, &geometry);
            if !slot {
                let at = geometry.saved_state().free_at();
                let word = forest.image.word(at);
                forest.image.set_word(at, word ^ 1 << 20);
                forest.image.seal_saved_state(|_| {});
            }
            let before = forest.image.bytes;
            let report = check(&before, Options::default());
            assert!(
                report.has(class),
                "{mapping:?}: {class:?} is not in {report}"
            );
            let (_, after) = repaired(&before);
            assert_eq!(read_tree(&before), read_tree(&after));
        }
    }
}
