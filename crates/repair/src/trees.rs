//! The trees of files. A tree with any error is replaced by a new one, built from its sound parts.
//!
//! The words of a tree verify themselves, their file and their position, so every sound word
//! belongs to the file, and an unsound one leads nowhere. The new nodes lie in unused slots, and
//! one word, in the inode, leads to them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use vellum_check::Class;
use vellum_check::survey::{Found, Holder, Survey, TreeBlock};
use vellum_layout::{
    ChunkKind, EXTENT_ENTRIES, EXTENT_MAX_BLOCKS, ExtentBody, ExtentKey, ExtentKind,
    ExtentNodeHead, ExtentRoot, ExtentSeal, Inode, MapState, MappingKind, RADIX_WORDS,
    SLOTS_PER_BLOCK, TreeTarget, TreeWord, radix_span,
};
use zerocopy::IntoBytes;

use crate::blocks::{Owner, Room, fault};
use crate::draft::Draft;

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    logical: u32,
    block: u32,
    written: bool,
}

impl Part {
    fn state(self) -> MapState {
        if self.written {
            MapState::Mapped
        } else {
            MapState::Unwritten
        }
    }

    /// Whether it continues the run that ends with `before`.
    fn follows(self, before: Self) -> bool {
        before.logical.checked_add(1) == Some(self.logical)
            && before.block + 1 == self.block
            && before.written == self.written
    }
}

/// Files by mapping id, which is their inode's number.
#[derive(Default)]
struct Files {
    parts: BTreeMap<u32, Vec<Part>>,
    /// Files that get another tree.
    wrong: BTreeSet<u32>,
    /// Files with something that must stay as it is.
    declined: BTreeSet<u32>,
}

impl Files {
    /// Records a file with an error, and whether it may be mended.
    fn note(&mut self, id: u32, agreed: bool) -> bool {
        let files = if agreed {
            &mut self.wrong
        } else {
            &mut self.declined
        };
        files.insert(id);
        agreed
    }

    fn keep(&mut self, found: TreeBlock, block: u64) {
        let part = Part {
            logical: found.word.logical(),
            block: block as u32,
            written: found.word.state() == MapState::Mapped,
        };
        self.parts.entry(found.word.id()).or_default().push(part);
    }
}

/// Gives new trees to files whose trees have errors.
pub(crate) fn settle(draft: &mut Draft, survey: &Survey, owners: &HashMap<u32, Owner>) {
    if draft.lacked_room {
        return;
    }
    let mut files = Files::default();
    for (ino, detail) in &survey.trees.unsound {
        let what = format_args!("lost, with everything that it led to: {detail}");
        let agreed = draft.give_up(Class::MapWord, format_args!("inode {ino}"), what);
        files.note(*ino as u32, agreed);
    }
    for holder in survey.shared() {
        if let Holder::Tree(number) = *holder {
            let node = &survey.trees.nodes[number];
            let what = format_args!("the tree of inode {} gets new nodes", node.inode);
            let agreed = draft.mend(Class::SlotShared, format_args!("slot {}", node.slot), what);
            files.note(node.inode as u32, agreed);
        }
    }
    settle_blocks(draft, survey, owners, &mut files);
    let Files {
        mut parts,
        wrong,
        declined,
    } = files;
    for id in wrong.difference(&declined) {
        let mut parts = parts.remove(id).unwrap_or_default();
        parts.sort_unstable();
        parts.dedup_by_key(|part| part.logical);
        let Found::Node(node) = survey.nodes.find((*id).into()) else {
            continue;
        };
        let node = &survey.nodes.list[node as usize];
        let generation = node.identity.generation();
        if let Some(word) = set_root(draft, survey, *id, generation, &parts) {
            draft.set(draft.field(node.slot, Inode::DETAIL), word);
        }
    }
}

/// Whether an inode's word is the root of a tree of that file, if files have trees.
pub(crate) fn is_root(draft: &Draft, id: u32, word: u64) -> bool {
    match draft.geometry.mapping {
        MappingKind::Radix => matches!(TreeWord(word).decode(id, 0), Ok(Some(_))),
        MappingKind::Extent | MappingKind::ExtentCached => {
            let root = ExtentRoot::from_word(ExtentSeal::new(id), word);
            root.is_some_and(|root| root != ExtentRoot::Empty)
        }
        _ => false,
    }
}

/// Decides which blocks files keep.
fn settle_blocks(
    draft: &mut Draft,
    survey: &Survey,
    owners: &HashMap<u32, Owner>,
    files: &mut Files,
) {
    // The blocks of unreadable inodes look free.
    let known = survey.nodes.broken.is_empty();
    let used = survey.trees.blocks.iter().map(|found| found.block);
    let metadata = || survey.blocks_in_data().into_iter().flatten();
    let mut room = known.then(|| Room::beside(draft, used.chain(metadata())));
    // Id 0 is no file's.
    let mut taken: HashMap<u64, u32> = metadata().map(|block| (block, 0)).collect();
    // A written block takes precedence over a reserved one.
    for state in [MapState::Mapped, MapState::Unwritten] {
        let blocks = survey.trees.blocks.iter();
        for &found in blocks.filter(|found| found.word.state() == state) {
            let TreeBlock { block, word } = found;
            let place = format!("block {block}");
            let told = format!("block {} of inode {}", word.logical(), word.id());
            if let Some((class, what)) = fault(word, owners) {
                let agreed = draft.mend(class, place, format_args!("freed: {what} ({told})"));
                files.note(word.id(), agreed);
                continue;
            }
            let Some(&other) = taken.get(&block) else {
                taken.insert(block, word.id());
                files.keep(found, block);
                continue;
            };
            if state == MapState::Unwritten {
                let what = format_args!("no longer reserved for {told}: inode {other} has it");
                let agreed = draft.mend(Class::MapTwice, place, what);
                files.note(word.id(), agreed);
            } else if !draft.wants(Class::MapTwice) {
                files.note(word.id(), false);
            } else if let Some(copy) = room.as_mut().and_then(|room| room.copy(draft, block)) {
                let what = format_args!("{told} becomes a copy: inode {other} has it too");
                let agreed = draft.mend(Class::MapTwice, place, what);
                files.note(word.id(), agreed);
                files.keep(found, copy);
            } else {
                let what = format_args!(
                    "{told} reads as zeros: inode {other} has it, and nothing is free"
                );
                let agreed = draft.give_up(Class::MapTwice, place, what);
                files.note(word.id(), agreed);
            }
        }
    }
}

/// A planned node.
struct Planned {
    number: u32,
    bytes: Vec<u8>,
}

/// Writes a tree of `parts`, in the order of their logical blocks; returns the inode's word.
/// `None`: there is no space.
fn set_root(
    draft: &mut Draft,
    survey: &Survey,
    id: u32,
    generation: u32,
    parts: &[Part],
) -> Option<u64> {
    let mut nodes = Vec::new();
    let mut take = || {
        let slot = draft.take_slots(survey, ChunkKind::Blocks, SLOTS_PER_BLOCK)?;
        Some((slot / SLOTS_PER_BLOCK) as u32)
    };
    let word = if survey.geometry.mapping == MappingKind::Radix {
        radix_word(id, parts, &mut nodes, &mut take)?
    } else {
        extent_word(id, generation, parts, &mut nodes, &mut take)?
    };
    for Planned { number, bytes } in nodes {
        draft.put_slots(u64::from(number) * SLOTS_PER_BLOCK, SLOTS_PER_BLOCK, &bytes);
    }
    Some(word)
}

fn radix_word(
    id: u32,
    parts: &[Part],
    nodes: &mut Vec<Planned>,
    take: &mut dyn FnMut() -> Option<u32>,
) -> Option<u64> {
    let Some(last) = parts.last() else {
        return Some(TreeWord::NONE.0);
    };
    if last.logical == 0 {
        return Some(radix_leaf(id, *last).0);
    }
    let covers = |level: &u32| radix_span(*level) * RADIX_WORDS > last.logical.into();
    let level = (1..).find(covers)?;
    let block = radix_node(id, level, 0, parts, nodes, take)?;
    Some(TreeWord::new(TreeTarget::Node { block, level }, id, 0).0)
}

fn radix_leaf(id: u32, part: Part) -> TreeWord {
    let target = if part.written {
        TreeTarget::Mapped(part.block)
    } else {
        TreeTarget::Unwritten(part.block)
    };
    TreeWord::new(target, id, part.logical)
}

/// Plans the node of the blocks from `first` on, and those below it; returns its number.
fn radix_node(
    id: u32,
    level: u32,
    first: u64,
    parts: &[Part],
    nodes: &mut Vec<Planned>,
    take: &mut dyn FnMut() -> Option<u32>,
) -> Option<u32> {
    let span = radix_span(level);
    let index = |part: &Part| (u64::from(part.logical) - first) / span;
    let mut words = vec![0u64; RADIX_WORDS as usize];
    for below in parts.chunk_by(|a, b| index(a) == index(b)) {
        let word = if level == 1 {
            radix_leaf(id, below[0])
        } else {
            let first = first + index(&below[0]) * span;
            let block = radix_node(id, level - 1, first, below, nodes, take)?;
            let level = level - 1;
            TreeWord::new(TreeTarget::Node { block, level }, id, first as u32)
        };
        words[index(&below[0]) as usize] = word.0;
    }
    let number = take()?;
    let bytes = words.as_bytes().to_vec();
    nodes.push(Planned { number, bytes });
    Some(number)
}

/// An entry of an extent tree.
#[derive(Clone, Copy)]
struct Entry {
    logical: u32,
    /// Blocks of an extent, or the level of the node with the entry.
    len: u32,
    place: u32,
    kind: ExtentKind,
}

fn extent_word(
    id: u32,
    generation: u32,
    parts: &[Part],
    nodes: &mut Vec<Planned>,
    take: &mut dyn FnMut() -> Option<u32>,
) -> Option<u64> {
    let seal = ExtentSeal::new(id);
    let mut entries: Vec<Entry> = parts
        .chunk_by(|a, b| b.follows(*a))
        .flat_map(|run| run.chunks(EXTENT_MAX_BLOCKS as usize))
        .map(|run| Entry {
            logical: run[0].logical,
            len: run.len() as u32,
            place: run[0].block.wrapping_sub(run[0].logical),
            kind: ExtentKind::of_state(run[0].state()),
        })
        .collect();
    match entries[..] {
        [] => return Some(ExtentRoot::Empty.word(seal)),
        [only] if only.logical == 0 => {
            let (block, len) = (only.place, only.len);
            let state = only.kind.state()?;
            return Some(ExtentRoot::Extent { block, len, state }.word(seal));
        }
        _ => {}
    }
    let mut level = 0;
    loop {
        let mut above = Vec::new();
        for (at, part) in entries.chunks(EXTENT_ENTRIES).enumerate() {
            let node = take()?;
            let first = if at == 0 { 0 } else { part[0].logical };
            let head = ExtentNodeHead::new(node, id, level, first, generation);
            let mut bytes = head.as_bytes().to_vec();
            for entry in part {
                let key = ExtentKey::new(seal, entry.logical, entry.len, true);
                let body = ExtentBody::new(seal, entry.place, entry.kind);
                bytes.extend([key.0, body.0].as_bytes());
            }
            nodes.push(Planned {
                number: node,
                bytes,
            });
            above.push(Entry {
                logical: first,
                len: level + 1,
                place: node,
                kind: ExtentKind::Node,
            });
        }
        if let [top] = above[..] {
            let node = top.place;
            return Some(ExtentRoot::Node { node, level }.word(seal));
        }
        entries = above;
        level += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const ID: u32 = 77;
    const GENERATION: u32 = 3;

    /// Every other block from the first on, every third of them reserved, and one far behind.
    fn scattered(count: u32) -> Vec<Part> {
        let part = |i: u32, logical| Part {
            logical,
            block: 1000 + i,
            written: !i.is_multiple_of(3),
        };
        let near = (0..count).map(|i| part(i, 2 * i));
        near.chain([part(count, u32::MAX)]).collect()
    }

    type Word = fn(&[Part], &mut Vec<Planned>, &mut dyn FnMut() -> Option<u32>) -> Option<u64>;

    /// Plans a tree; returns the inode's word and the nodes by number.
    fn planned(parts: &[Part], word: Word) -> (u64, HashMap<u32, Vec<u64>>) {
        let (mut nodes, mut last) = (Vec::new(), 0);
        let mut take = || {
            last += 1;
            Some(last)
        };
        let word = word(parts, &mut nodes, &mut take).unwrap();
        let words = |bytes: Vec<u8>| {
            let words = bytes.as_chunks::<8>().0.iter();
            words.map(|word| u64::from_le_bytes(*word)).collect()
        };
        let nodes = nodes.into_iter();
        (
            word,
            nodes.map(|node| (node.number, words(node.bytes))).collect(),
        )
    }

    fn radix_parts(nodes: &HashMap<u32, Vec<u64>>, word: u64, first: u64, out: &mut Vec<Part>) {
        let (block, written) = match TreeWord(word).decode(ID, first as u32).unwrap() {
            None => return,
            Some(TreeTarget::Node { block, level }) => {
                for (word, i) in nodes[&block].iter().zip(0..) {
                    radix_parts(nodes, *word, first + i * radix_span(level), out);
                }
                return;
            }
            Some(TreeTarget::Mapped(block)) => (block, true),
            Some(TreeTarget::Unwritten(block)) => (block, false),
        };
        let logical = first as u32;
        out.push(Part {
            logical,
            block,
            written,
        });
    }

    #[test]
    fn a_radix_tree_holds_its_parts() {
        for count in [0, 1, 600, 20_000] {
            let parts = scattered(count);
            for parts in [&parts[..], &parts[..count as usize]] {
                let (word, nodes) = planned(parts, |parts, nodes, take| {
                    radix_word(ID, parts, nodes, take)
                });
                let mut found = Vec::new();
                radix_parts(&nodes, word, 0, &mut found);
                assert_eq!(found, parts);
            }
        }
    }

    fn extent_parts(
        nodes: &HashMap<u32, Vec<u64>>,
        (number, level, first): (u32, u32, u32),
        out: &mut Vec<Part>,
    ) {
        let seal = ExtentSeal::new(ID);
        let words = &nodes[&number];
        let head = ExtentNodeHead::new(number, ID, level, first, GENERATION);
        let (told, entries) = words.split_at(ExtentNodeHead::ENTRIES_AT as usize / 8);
        assert_eq!(told.as_bytes(), head.as_bytes());
        for entry in entries.chunks(2) {
            let (key, body) = (ExtentKey(entry[0]), ExtentBody(entry[1]));
            assert!(key.is_sound(seal) && body.is_sound(seal) && key.logical() >= first);
            if level > 0 {
                assert_eq!((key.len(), body.kind()), (level, Some(ExtentKind::Node)));
                extent_parts(nodes, (body.place(), level - 1, key.logical()), out);
                continue;
            }
            let logicals = key.logical()..=key.logical() + (key.len() - 1);
            out.extend(logicals.map(|logical| Part {
                logical,
                block: body.place().wrapping_add(logical),
                written: body.kind() == Some(ExtentKind::Mapped),
            }));
        }
    }

    #[test]
    fn an_extent_tree_holds_its_parts() {
        // Adjoining blocks are one extent, up to the longest.
        let run = |len: u32| {
            let part = |i| Part {
                logical: 5 + i,
                block: 9 + i,
                written: true,
            };
            (0..len).map(part).collect()
        };
        for parts in [
            scattered(2),
            scattered(254),
            scattered(70_000),
            run(3),
            run(70_000),
        ] {
            let (word, nodes) = planned(&parts, |parts, nodes, take| {
                extent_word(ID, GENERATION, parts, nodes, take)
            });
            let root = ExtentRoot::from_word(ExtentSeal::new(ID), word);
            let Some(ExtentRoot::Node { node, level }) = root else {
                panic!("{root:?}");
            };
            let mut found = Vec::new();
            extent_parts(&nodes, (node, level, 0), &mut found);
            assert_eq!(found, parts);
        }
        let (word, nodes) = planned(&[], |parts, nodes, take| {
            extent_word(ID, GENERATION, parts, nodes, take)
        });
        assert_eq!((word, nodes.len()), (0, 0));
    }
}
