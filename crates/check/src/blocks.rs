//! The mapping: the file and the state of every data block, according to the mapping table or the
//! files' trees.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use vellum_layout::{BLOCK_BYTES, FileKind, Geometry, MapRoot, MapState, MapWord, mix};

use crate::image::{View, for_each_table_word};
use crate::inodes::{Found, Nodes};
use crate::report::{Class, Location, Sink, Summary};
use crate::trees::{TreeBlock, Trees};

/// Largest file: 2^32 blocks of 4 KiB.
const SIZE_MAX: u64 = 1 << 44;
/// Most keys held at once to find blocks mapped twice; larger tables need several passes.
const KEYS_MAX: u64 = 1 << 26;

/// Hashes ids by the format's mixer.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mix(self.0 ^ u64::from(byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.0 = mix(u64::from(value));
    }
}

/// The owner of a mapping id.
#[derive(Clone, Copy)]
struct Owner {
    inode: u64,
    /// Its size in blocks.
    blocks: u64,
    /// Whether preallocated blocks may lie beyond the end of file.
    beyond: bool,
}

/// The inode of every mapping id.
type Owners = HashMap<u32, Owner, BuildHasherDefault<Mixer>>;

/// Checks sizes and mapping roots of the files, then the blocks.
pub(crate) fn judge(
    view: &View,
    geometry: &Geometry,
    nodes: &Nodes,
    (trees, in_data): (&Trees, &[Range<u64>]),
    summary: &mut Summary,
    sink: &mut Sink,
    tick: impl FnMut(u64),
) {
    let owners = owners(geometry, nodes, sink);
    let blocks = in_data.iter().map(|blocks| blocks.end - blocks.start);
    summary.blocks_metadata = blocks.sum();
    if geometry.mapping.has_home_lines() {
        judge_table(view, geometry, (&owners, in_data), summary, sink, tick);
    } else {
        judge_trees(geometry, trees, (&owners, in_data), summary, sink);
    }
}

/// Whether a block is metadata.
fn is_metadata(in_data: &[Range<u64>], block: u64) -> bool {
    let behind = in_data.partition_point(|blocks| blocks.start <= block);
    behind > 0 && in_data[behind - 1].contains(&block)
}

/// Reports a block of a file that is metadata.
fn judge_metadata(in_data: &[Range<u64>], block: u64, word: MapWord, sink: &mut Sink) {
    if is_metadata(in_data, block) {
        let (logical, id) = (word.logical(), word.id());
        let detail = format_args!("block {logical} of inode {id}, and of a metadata chunk");
        sink.damage(Class::MapMetadata, Location::Block(block), detail);
    }
}

/// Checks the blocks that trees lead to.
fn judge_trees(
    geometry: &Geometry,
    trees: &Trees,
    (owners, in_data): (&Owners, &[Range<u64>]),
    summary: &mut Summary,
    sink: &mut Sink,
) {
    let mut seen = vec![0u64; geometry.blocks().div_ceil(64) as usize];
    for &TreeBlock { block, word } in &trees.blocks {
        if judge_word(block, word, owners, summary, sink) {
            judge_metadata(in_data, block, word, sink);
            let (seen, bit) = (&mut seen[(block / 64) as usize], 1 << (block % 64));
            if *seen & bit != 0 {
                let detail = format_args!(
                    "block {} of inode {}, and another's",
                    word.logical(),
                    word.id()
                );
                sink.damage(Class::MapTwice, Location::Block(block), detail);
            }
            *seen |= bit;
        }
    }
}

/// Checks that the table holds the blocks of metadata, and no others. A crash may leave it so.
fn judge_held(
    in_data: &[Range<u64>],
    block: u64,
    word: u64,
    summary: &mut Summary,
    sink: &mut Sink,
) {
    let place = Location::Block(block);
    match (is_metadata(in_data, block), word != 0) {
        (false, true) => {
            summary.blocks_limbo += 1;
            sink.remainder(
                Class::Limbo,
                place,
                "is held for metadata, which do not use it",
            );
        }
        // Recovery holds them.
        (true, false) if !sink.lenient => {
            let detail = "is free in the table, and of a metadata chunk";
            sink.damage(Class::MapMetadata, place, detail);
        }
        _ => {}
    }
}

/// Checks the mapping table.
fn judge_table(
    view: &View,
    geometry: &Geometry,
    (owners, in_data): (&Owners, &[Range<u64>]),
    summary: &mut Summary,
    sink: &mut Sink,
    mut tick: impl FnMut(u64),
) {
    let mut owned = Vec::new();
    let mut owned_count = 0;
    for_each_table_word(view, geometry, |block, word| {
        if word == 0 || word == MapWord::HELD.0 {
            return judge_held(in_data, block, word, summary, sink);
        }
        if block % (1 << 16) == 0 {
            tick(block);
        }
        judge_metadata(in_data, block, MapWord(word), sink);
        if judge_word(block, MapWord(word), owners, summary, sink) {
            owned_count += 1;
            if owned_count <= KEYS_MAX {
                owned.push(word & MapWord::KEY_MASK);
            }
        }
    });
    let passes = owned_count.div_ceil(KEYS_MAX);
    if passes <= 1 {
        judge_twice(view, geometry, &mut owned, owners, sink);
        return;
    }
    for pass in 0..passes {
        owned.clear();
        for_each_table_word(view, geometry, |_, word| {
            let key = word & MapWord::KEY_MASK;
            let word = MapWord(word);
            let held = matches!(word.state(), MapState::Mapped | MapState::Unwritten);
            if held && mix(key) % passes == pass && owners.contains_key(&word.id()) {
                owned.push(key);
            }
        });
        judge_twice(view, geometry, &mut owned, owners, sink);
    }
}

/// Checks sizes and mapping roots.
fn owners(geometry: &Geometry, nodes: &Nodes, sink: &mut Sink) -> Owners {
    let mut owners = Owners::default();
    // Blocks of an unsound inode have an owner, but nothing more is known about it.
    for broken in nodes.broken.iter().filter(|broken| broken.named) {
        if let Some((0, id)) = MapRoot(broken.root).get() {
            let (inode, blocks) = (broken.slot, u64::MAX);
            owners.insert(
                id,
                Owner {
                    inode,
                    blocks,
                    beyond: true,
                },
            );
        }
    }
    for node in nodes.list.iter().filter(|node| node.kept) {
        let place = Location::Inode(node.slot);
        if let Some(field) = node.reserved {
            sink.damage(Class::Reserved, place, field);
        }
        if node.kind != FileKind::File {
            continue;
        }
        if node.size > SIZE_MAX {
            let detail = format_args!("{} bytes, of at most {SIZE_MAX}", node.size);
            sink.damage(Class::Size, place, detail);
        }
        let root = MapRoot(node.root);
        let Some((segment, id)) = root.get() else {
            if node.root != 0 {
                let detail = format_args!("{:#x} is not a valid root", node.root);
                sink.damage(Class::MapSegment, place, detail);
            }
            continue;
        };
        if segment != 0 || MapRoot::new(segment, id).0 != root.0 & !MapRoot::BEYOND {
            let detail = format_args!("{:#x} is in no segment of the pool", node.root);
            sink.damage(Class::MapSegment, place, detail);
            continue;
        }
        if geometry.mapping.has_trees() && id != MapRoot::id_of(node.slot) {
            let detail = format_args!("id {id} is of another inode's tree");
            sink.damage(Class::MapSegment, place, detail);
            continue;
        }
        let blocks = node.size.min(SIZE_MAX).div_ceil(BLOCK_BYTES);
        let owner = Owner {
            inode: node.slot,
            blocks,
            beyond: root.is_beyond(),
        };
        if let Some(other) = owners.insert(id, owner)
            && !matches!(nodes.find(other.inode), Found::Broken(_))
        {
            let detail = format_args!("id {id} is inode {}'s too", other.inode);
            sink.damage(Class::MapShared, place, detail);
        }
    }
    owners
}

/// Checks one entry; returns whether it belongs to an inode.
fn judge_word(
    block: u64,
    word: MapWord,
    owners: &Owners,
    summary: &mut Summary,
    sink: &mut Sink,
) -> bool {
    let place = Location::Block(block);
    let state = word.state();
    match state {
        MapState::Free => {
            let detail = format_args!("{:#x} is free but not zero", word.0);
            sink.damage(Class::MapWord, place, detail);
            return false;
        }
        MapState::Limbo => {
            summary.blocks_limbo += 1;
            let detail = format_args!("was block {} of id {}", word.logical(), word.id());
            sink.remainder(Class::Limbo, place, detail);
            return false;
        }
        MapState::Mapped => summary.blocks_mapped += 1,
        MapState::Unwritten => summary.blocks_unwritten += 1,
    }
    let Some(&Owner {
        inode,
        blocks,
        beyond,
    }) = owners.get(&word.id())
    else {
        let detail = format_args!("{state:?} as block {} of id {}", word.logical(), word.id());
        sink.residue(Class::MapNobody, place, detail);
        return false;
    };
    let logical = u64::from(word.logical());
    if logical >= blocks {
        let detail = format_args!("block {logical} of inode {inode}, which has {blocks}");
        match state {
            MapState::Mapped => sink.residue(Class::MapPastEnd, place, detail),
            // The flag in the root is durable before any such block.
            _ if !beyond => sink.damage(Class::MapPastEnd, place, detail),
            _ => {}
        }
    }
    true
}

/// Finds keys that occur twice, and their blocks.
fn judge_twice(
    view: &View,
    geometry: &Geometry,
    keys: &mut [u64],
    owners: &Owners,
    sink: &mut Sink,
) {
    keys.sort_unstable();
    let mut twice: Vec<_> = keys
        .windows(2)
        .filter(|pair| pair[0] == pair[1])
        .map(|pair| pair[0])
        .collect();
    twice.dedup();
    if twice.is_empty() {
        return;
    }
    let mut first = HashMap::new();
    for_each_table_word(view, geometry, |block, word| {
        let key = word & MapWord::KEY_MASK;
        let word = MapWord(word);
        let held = matches!(word.state(), MapState::Mapped | MapState::Unwritten);
        if !held || twice.binary_search(&key).is_err() {
            return;
        }
        if let Some(before) = first.insert(key, block) {
            let inode = owners.get(&word.id()).map_or(0, |owner| owner.inode);
            let detail = format_args!(
                "block {} of inode {inode} is at block {before} too",
                word.logical()
            );
            sink.damage(Class::MapTwice, Location::Block(block), detail);
        }
    });
}
