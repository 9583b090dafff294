//! The structures of a sample that assign blocks to files: words or entries of a table, and words
//! and nodes of trees. Also makes their checks fit.

use vellum_check::survey::{TreeNode, trees};
use vellum_layout::{
    BLOCK_BYTES, EXTENT_ENTRIES, ExtentBody, ExtentKey, ExtentKind, ExtentNodeHead, ExtentRoot,
    ExtentSeal, FileKind, IdentityWord, Inode, KeyedWord, MapState, MapWord, MappingKind,
    RADIX_WORDS, SLOTS_PER_BLOCK, Superblock, TreeTarget, TreeWord,
};
use zerocopy::IntoBytes;

use crate::sample::{Sample, Structure};

/// Bytes of a word. An entry has two words.
const WORD: u64 = 8;
const ENTRY: u64 = 16;
/// Marks the location of an inode's word among those of extent trees.
const ROOT: u64 = 1 << 63;

/// Structures in use, and some that are free.
pub(crate) fn find(sample: &Sample) -> Vec<Structure> {
    match sample.geometry.mapping {
        MappingKind::HashFs => in_table(sample),
        MappingKind::Cuckoo | MappingKind::Level => in_entries(sample),
        MappingKind::Radix | MappingKind::Extent | MappingKind::ExtentCached => in_trees(sample),
    }
}

fn in_table(sample: &Sample) -> Vec<Structure> {
    let place = |number| Structure {
        at: sample.geometry.table_at + WORD * number,
        bytes: WORD,
        number,
    };
    let structures = (0..sample.geometry.segment_blocks).map(place);
    let chosen = |place: &Structure| {
        place.number < 16 || MapWord(sample.word(place.at)).state() != MapState::Free
    };
    structures.filter(chosen).collect()
}

fn in_entries(sample: &Sample) -> Vec<Structure> {
    let table = sample
        .geometry
        .mapping
        .table_bytes(sample.geometry.segment_blocks);
    let place = |number| Structure {
        at: sample.geometry.table_at + ENTRY * number,
        bytes: ENTRY,
        number,
    };
    let entries = (0..table / ENTRY).map(place);
    let chosen = |place: &Structure| place.number < 8 || sample.word(place.at) != 0;
    entries.filter(chosen).collect()
}

/// The number of a location is what its words are sealed for. The upper half is the mapping id. The
/// lower half is the first logical block (radix) or the number of a node (extents). For the inode's
/// word of an extent tree, `ROOT` is set instead.
fn in_trees(sample: &Sample) -> Vec<Structure> {
    let is_radix = sample.geometry.mapping == MappingKind::Radix;
    let mut structures = Vec::new();
    for inode in &sample.inodes {
        if IdentityWord(sample.word(inode.at)).kind() == Some(FileKind::File) {
            structures.push(Structure {
                at: inode.at + Inode::DETAIL,
                bytes: WORD,
                number: (inode.number << 32) | if is_radix { 0 } else { ROOT },
            });
        }
    }
    let superblock = Superblock::unseal(&sample.image[..BLOCK_BYTES as usize]);
    let superblock = superblock.expect("the sample's superblock is sound");
    for node in trees(&sample.image, &superblock).nodes {
        if is_radix {
            radix_words(sample, &node, &mut structures);
        } else {
            extent_entries(sample, &node, &mut structures);
        }
    }
    structures
}

fn radix_words(sample: &Sample, node: &TreeNode, structures: &mut Vec<Structure>) {
    let span = (node.end - node.first) / RADIX_WORDS;
    for index in 0..RADIX_WORDS {
        let at = sample.geometry.slot_at(node.slot) + WORD * index;
        if index < 4 || sample.word(at) != 0 {
            structures.push(Structure {
                at,
                bytes: WORD,
                number: (node.inode << 32) | (node.first + index * span),
            });
        }
    }
}

fn extent_entries(sample: &Sample, node: &TreeNode, structures: &mut Vec<Structure>) {
    let node_at = sample.geometry.slot_at(node.slot);
    let number = (node.inode << 32) | (node.slot / SLOTS_PER_BLOCK);
    structures.push(Structure {
        at: node_at,
        bytes: ExtentNodeHead::ENTRIES_AT,
        number,
    });
    for index in 0..EXTENT_ENTRIES as u64 {
        let at = node_at + ExtentNodeHead::ENTRIES_AT + ENTRY * index;
        if index < 4 || sample.word(at) != 0 {
            structures.push(Structure {
                at,
                bytes: ENTRY,
                number,
            });
        }
    }
}

/// Makes the checks of the structure at `place` fit its content.
pub(crate) fn seal(sample: &mut Sample, place: Structure) {
    let word = sample.word(place.at);
    let id = (place.number >> 32) as u32 & !(ROOT >> 32) as u32;
    match (sample.geometry.mapping, place.bytes) {
        (MappingKind::HashFs, _) => {}
        (MappingKind::Cuckoo | MappingKind::Level, _) => {
            let told = KeyedWord(sample.word(place.at + WORD));
            let sealed = KeyedWord::new(word, told.block(), told.following(), told.preceding());
            sample.set_word(place.at + WORD, sealed.0);
        }
        (MappingKind::Radix, _) => {
            sample.set_word(place.at, sealed_tree_word(word, id, place.number as u32));
        }
        (_, WORD) => sample.set_word(place.at, sealed_root(word, id)),
        (_, ENTRY) => {
            let (seal, key) = (ExtentSeal::new(id), ExtentKey(word));
            if key.is_used() {
                let key = ExtentKey::new(seal, key.logical(), key.len(), key.is_valid());
                sample.set_word(place.at + ExtentKey::AT, key.0);
            }
            let body = ExtentBody(sample.word(place.at + ExtentBody::AT));
            if let Some(kind) = body.kind() {
                let body = ExtentBody::new(seal, body.place(), kind);
                sample.set_word(place.at + ExtentBody::AT, body.0);
            }
        }
        _ => {
            let head: ExtentNodeHead = sample.read(place.at);
            let (owner, level, first) = (head.owner, head.level, head.first);
            let node = place.number as u32;
            let head = ExtentNodeHead::new(node, owner, level, first, head.generation);
            let bytes = head.as_bytes();
            sample
                .bytes_mut(place.at, bytes.len() as u64)
                .copy_from_slice(bytes);
        }
    }
}

fn sealed_tree_word(word: u64, id: u32, first: u32) -> u64 {
    let (block, level) = (word as u32 & 0x3FFF_FFFF, (word >> 32) as u32 & 7);
    let target = match word >> 30 & 3 {
        0 => return word,
        1 => TreeTarget::Unwritten(block),
        2 => TreeTarget::Mapped(block),
        _ => TreeTarget::Node { block, level },
    };
    TreeWord::new(target, id, first).0
}

fn sealed_root(word: u64, id: u32) -> u64 {
    let (place, len) = (word as u32 & 0x3FFF_FFFF, (word >> 32) as u32 & 0xFFFF);
    let Some(kind) = ExtentKind::from_number((word >> 30) as u8 & 3) else {
        return word;
    };
    let root = match kind.state() {
        Some(state) => ExtentRoot::Extent {
            block: place,
            len,
            state,
        },
        None => ExtentRoot::Node {
            node: place,
            level: len,
        },
    };
    root.word(ExtentSeal::new(id))
}
