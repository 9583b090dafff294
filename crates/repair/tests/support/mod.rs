//! Hand-built, damaged and repaired pools, and a reader of their contents that shares no code with
//! the engine.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::{BTreeMap, BTreeSet};

use vellum_check::survey::{Found, Survey, superblock, trees};
use vellum_check::{Class, Options as CheckOptions, Report, check};
use vellum_layout::{
    BLOCK_BYTES, FileKind, Geometry, IdentityWord, KeyedPlan, KeyedWord, LINE_ENTRIES, MapRoot,
    MapState, MapWord,
};
use vellum_repair::{Options, Plan, plan};

/// A time later than every time in a pool.
pub(crate) const LATER: i64 = 1_800_000_000_000_000_000;

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Content {
    Directory,
    File(Vec<u8>),
    Link(Vec<u8>),
    Special(u8),
}

/// Everything that is reachable and readable, by path; an error in a directory does not hide its
/// other names. If a block is mapped twice, the one that a reader finds first is used.
pub(crate) fn read_tree(image: &[u8]) -> BTreeMap<Vec<u8>, Content> {
    let image = &image.to_vec();
    let mut tree = BTreeMap::new();
    let Some(superblock) = superblock(image) else {
        return tree;
    };
    let survey = Survey::of(image, &superblock);
    let blocks = blocks_by_file(image, &superblock.geometry(), superblock.hash_seed);
    let Some(root) = survey.nodes.root() else {
        return tree;
    };
    let twice: BTreeSet<usize> = survey
        .duplicates()
        .into_iter()
        .flat_map(|(first, second)| [first, second])
        .collect();
    let mut ready = vec![(root, Vec::new())];
    let mut seen = BTreeSet::from([root]);
    while let Some((directory, path)) = ready.pop() {
        for (number, name) in survey.logs.names.iter().enumerate() {
            let Some(target) = survey.target(name).filter(|_| name.directory == directory) else {
                continue;
            };
            let node = &survey.nodes.list[target as usize];
            let path = [&path[..], b"/", &survey.text_of(name)].concat();
            if twice.contains(&number) {
                continue;
            }
            let content = match node.kind {
                FileKind::Directory => {
                    if seen.insert(target) {
                        ready.push((target, path.clone()));
                    }
                    Content::Directory
                }
                FileKind::Symlink => match survey.link_text(node) {
                    Ok(text) => Content::Link(text),
                    Err(_) => continue,
                },
                FileKind::File if node.size > 16 * image.len() as u64 => continue,
                // The tree of another file is never read.
                FileKind::File
                    if survey.geometry.mapping.has_trees()
                        && MapRoot(node.root)
                            .get()
                            .is_some_and(|(_, id)| id != MapRoot::id_of(node.slot)) =>
                {
                    continue;
                }
                FileKind::File => match MapRoot(node.root).get() {
                    Some((0, id)) if MapRoot(node.root).is_sound() => {
                        Content::File(read_file(image, &survey.geometry, &blocks, id, node.size))
                    }
                    None if node.root == 0 => Content::File(vec![0; node.size as usize]),
                    _ => continue,
                },
                other => Content::Special(other as u8),
            };
            tree.insert(path, content);
        }
    }
    tree
}

/// The sound sets of extended attributes, by inode, and the flags of the inodes.
pub(crate) fn read_sets(image: &[u8]) -> BTreeMap<u64, (Vec<u8>, u64)> {
    let image = &image.to_vec();
    let Some(superblock) = superblock(image) else {
        return BTreeMap::new();
    };
    let survey = Survey::of(image, &superblock);
    let nodes = survey.nodes.list.iter();
    let sets = nodes.map(|node| {
        let flags = node.identity.0 & IdentityWord::XATTR_FLAGS;
        let set = survey.xattrs(node);
        let bytes = set.fault.is_none().then_some(set.bytes);
        (node.slot, (bytes.unwrap_or_default(), flags))
    });
    sets.filter(|(_, (bytes, _))| !bytes.is_empty()).collect()
}

/// The permission bits of an inode.
pub(crate) fn mode(image: &[u8], ino: u64) -> u16 {
    let geometry = superblock(&image.to_vec()).unwrap().geometry();
    IdentityWord(word(image, geometry.slot_at(ino))).mode()
}

type Blocks = BTreeMap<(u32, u32), (usize, u64)>;

/// The block that a reader finds for each mapping id and logical block with bytes.
fn blocks_by_file(image: &[u8], geometry: &Geometry, seed: u64) -> Blocks {
    let mut found = Blocks::new();
    let read = |at| word(image, geometry.table_at + at);
    let plan = KeyedPlan::read(geometry.mapping, geometry.segment_blocks, seed, read);
    if let Some(plan) = plan {
        return blocks_by_key(image, geometry, seed, &plan);
    }
    if geometry.mapping.has_trees() {
        return blocks_in_trees(image);
    }
    for block in 0..geometry.segment_blocks {
        let word = MapWord(word(image, geometry.table_at + 8 * block));
        if word.state() != MapState::Mapped {
            continue;
        }
        let home = geometry.homes(seed).line(word.id(), word.logical());
        let rank = (usize::from(block / LINE_ENTRIES != home), block);
        let best = found.entry((word.id(), word.logical())).or_insert(rank);
        *best = rank.min(*best);
    }
    found
}

/// As [`blocks_by_file`] for trees, read by the checker's code, which alone decides whether words
/// and nodes are sound.
fn blocks_in_trees(image: &[u8]) -> Blocks {
    let image = &image.to_vec();
    let found = superblock(image).map(|superblock| trees(image, &superblock));
    let blocks = found.into_iter().flat_map(|trees| trees.blocks);
    let written = blocks.filter(|found| found.word.state() == MapState::Mapped);
    let key = |word: MapWord| (word.id(), word.logical());
    written
        .map(|found| (key(found.word), (0, found.block)))
        .collect()
}

/// As [`blocks_by_file`] for a table of keys.
fn blocks_by_key(image: &[u8], geometry: &Geometry, seed: u64, plan: &KeyedPlan) -> Blocks {
    let mut found = Blocks::new();
    for line in plan.parts().into_iter().flatten() {
        for at in (line * 64..line * 64 + 64).step_by(16) {
            let at = geometry.table_at + at;
            let (key, place) = (MapWord(word(image, at)), KeyedWord(word(image, at + 8)));
            let block = u64::from(place.block());
            let mut homes = plan.homes(seed, key.0);
            let is_placed = plan.is_stash(line) || homes.any(|home| home == line);
            let last = block + u64::from(place.following());
            let is_sound = is_placed && place.is_of(key.0) && last < geometry.segment_blocks;
            if key.state() == MapState::Mapped && is_sound {
                let homes = plan.homes(seed, key.0);
                let rank = (homes.take_while(|&home| home != line).count(), block);
                // In a line the first one wins.
                let best = found.entry((key.id(), key.logical())).or_insert(rank);
                if rank.0 < best.0 {
                    *best = rank;
                }
            }
        }
    }
    found
}

fn read_file(image: &[u8], geometry: &Geometry, blocks: &Blocks, id: u32, size: u64) -> Vec<u8> {
    let mut bytes = vec![0; size as usize];
    for (logical, part) in bytes.chunks_mut(BLOCK_BYTES as usize).enumerate() {
        if let Some((_, block)) = blocks.get(&(id, logical as u32)) {
            let at = (geometry.data_at + block * BLOCK_BYTES) as usize;
            part.copy_from_slice(&image[at..at + part.len()]);
        }
    }
    bytes
}

pub(crate) fn word(image: &[u8], at: u64) -> u64 {
    u64::from_le_bytes(image[at as usize..at as usize + 8].try_into().unwrap())
}

/// Fills every data block with unique bytes.
pub(crate) fn fill_blocks(image: &mut [u8], geometry: &Geometry) {
    for block in 0..geometry.segment_blocks {
        let at = (geometry.data_at + block * BLOCK_BYTES) as usize;
        for (i, word) in image[at..at + BLOCK_BYTES as usize]
            .chunks_mut(8)
            .enumerate()
        {
            word.copy_from_slice(&(block << 32 | i as u64 | 1 << 63).to_le_bytes());
        }
    }
}

/// The report of a strict check, in which residue is damage.
pub(crate) fn strictly(image: &[u8]) -> Report {
    let strict = CheckOptions {
        strict_clean: true,
        progress: None,
    };
    check(image, strict)
}

pub(crate) fn plan_of(image: &[u8]) -> Plan {
    let options = Options {
        now_ns: LATER,
        ..Options::default()
    };
    plan(&image, options)
}

/// Writes a plan into an image.
pub(crate) fn write(plan: &Plan, image: &mut [u8]) {
    for stage in &plan.stages {
        for &at in &stage.renewed {
            image[at as usize..(at + BLOCK_BYTES) as usize].fill(0);
        }
        for &(at, value) in &stage.words {
            image[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
}

/// Repairs an image with damage of a class, as [`repaired`]; something was mended.
#[track_caller]
pub(crate) fn repaired_of(class: Class, image: &[u8]) -> (Plan, Vec<u8>) {
    let report = check(image, CheckOptions::default());
    assert!(report.has(class), "{class:?} is not in {report}");
    let (plan, after) = repaired(image);
    assert_eq!(plan.exit_code(), 1);
    (plan, after)
}

/// Repairs an image; it is sound then, and a second repair has nothing to do.
#[track_caller]
pub(crate) fn repaired(image: &[u8]) -> (Plan, Vec<u8>) {
    let mut image = image.to_vec();
    let plan = plan_of(&image);
    assert_eq!(plan.refused, None);
    let actions = plan.actions.iter().map(|action| format!("\n  {action}"));
    let actions: String = actions.collect();
    assert!(
        plan.mends_all(),
        "before: {}\nafter: {}\nactions: {actions}",
        plan.before,
        plan.after
    );
    write(&plan, &mut image);
    let report = strictly(&image);
    assert!(report.is_sound(), "{report}{actions}");
    assert!(plan_of(&image).is_empty());
    (plan, image)
}

/// Everything readable in `before` is readable in `after`: under its path, or in lost+found.
#[track_caller]
pub(crate) fn assert_kept(before: &[u8], after: &[u8], plan: &Plan) {
    let (old, new) = (read_tree(before), read_tree(after));
    let lost: Vec<&Content> = new
        .iter()
        .filter(|(path, _)| path.starts_with(b"/lost+found"))
        .map(|(_, content)| content)
        .collect();
    for (path, content) in &old {
        let there = new.get(path) == Some(content);
        let moved = *content == Content::Directory
            || lost.contains(&content)
            || new.values().filter(|other| *other == content).count() > 0
                && !matches!(content, Content::File(bytes) if bytes.iter().any(|&byte| byte != 0));
        let actions = plan.actions.iter().map(|action| format!("\n  {action}"));
        assert!(
            there || moved,
            "{} is lost: {}",
            path.escape_ascii(),
            actions.collect::<String>()
        );
    }
}

/// Everything that the damage spared (a path in `damaged` leads to the same contents as in `sound`)
/// has the same path in `after`. If directories had several names, names stood for two files, or an
/// area had two generations, it is somewhere.
#[track_caller]
pub(crate) fn assert_survived(sound: &[u8], damaged: &[u8], after: &[u8], plan: &Plan) {
    assert_attributes_survived([sound, damaged, after], plan);
    let [sound, damaged, after] = [sound, damaged, after].map(read_tree);
    let ambiguous = [
        Class::DirectoryNames,
        Class::Cycle,
        Class::DuplicateName,
        Class::AreaUnsound,
    ];
    let mut actions = plan.actions.iter();
    let may_move = actions.any(|action| ambiguous.contains(&action.class));
    let alone = damaged
        .iter()
        .filter(|(path, content)| sound.get(*path) == Some(content));
    for (path, content) in alone {
        let there = after.get(path) == Some(content);
        let moved = *content == Content::Directory || after.values().any(|other| other == content);
        assert!(
            there || may_move && moved,
            "{} is lost: {:#?}",
            path.escape_ascii(),
            plan.actions
        );
    }
}

/// Inodes in use keep the attributes that the damage spared, unless there was no space for them
/// beside what held their slots too.
#[track_caller]
fn assert_attributes_survived([sound, damaged, after]: [&[u8]; 3], plan: &Plan) {
    let [sound, damaged, sets] = [sound, damaged, after].map(read_sets);
    let image = &after.to_vec();
    let survey = superblock(image).map(|superblock| Survey::of(image, &superblock));
    let in_use = |ino| matches!(survey.as_ref()?.nodes.find(ino), Found::Node(_)).then_some(());
    let mut actions = plan.actions.iter();
    let lacked_room = actions.any(|action| action.what.contains("no metadata slots are free"));
    for (ino, set) in &damaged {
        let is_spared = sound.get(ino) == Some(set) && in_use(*ino).is_some();
        let is_kept = sets.get(ino) == Some(set) || lacked_room;
        assert!(!is_spared || is_kept, "inode {ino}: {:#?}", plan.actions);
    }
}
