//! Directory logs: words and links without a sound target, and names that such losses hid.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};

use vellum_check::Class;
use vellum_check::survey::{Found, Issue, Name, Survey};
use vellum_layout::{
    ChunkKind, FileKind, IdentityWord, Inode, InodeState, LifeWord, MapState, ROOT_SLOT,
    TargetWord, is_path, name_hash,
};

use crate::draft::Draft;
use crate::header::entry_at;
use crate::inodes::{remake, was_freed_wrongly};
use crate::room::{Directory, NamesIn, Target};

/// Removes everything from the logs that leads to unsound structures.
pub(crate) fn faults(draft: &mut Draft, survey: &Survey) {
    if survey.logs.issues.is_empty() {
        return;
    }
    let by_word: HashMap<u64, &Name> = survey
        .logs
        .names
        .iter()
        .map(|name| (name.word_at, name))
        .collect();
    let held = OnceCell::new();
    let root = survey.nodes.root();
    for issue in &survey.logs.issues {
        let node = &survey.nodes.list[issue.directory as usize];
        // The remains of a half-created or half-removed directory after a crash are removed as a
        // whole.
        let named = node.names > 0 || node.children > 0 || root == Some(issue.directory);
        if !named && !draft.hidden && !issue.stands {
            continue;
        }
        let name = by_word.get(&issue.word_at).copied();
        match (issue.class, name) {
            // Its entry is rewritten with its directory's path.
            (Class::PathWrong, _) => {}
            (Class::NamedOrphan, Some(name)) => unorphan(draft, issue, name),
            (Class::EntryToFree, Some(name)) => {
                if remake(draft, survey, name) {
                    continue;
                }
                let has_blocks = |id| held.get_or_init(|| held_ids(draft)).contains(&id);
                let revive = was_freed_wrongly(draft, survey, name, &has_blocks);
                to_free(draft, issue, name, revive);
            }
            _ => {
                draft.hidden = true;
                let what = format_args!("removed from its directory: {}", issue.detail);
                if draft.give_up(issue.class, issue.place(), what) {
                    be_rid_of(draft, issue, name);
                }
            }
        }
    }
}

/// Removes words of entries whose cookies do not ascend from the logs; valid entries are named
/// again behind the others.
pub(crate) fn order(draft: &mut Draft, survey: &Survey) {
    let mut names: Vec<&Name> = survey.logs.names.iter().collect();
    names.sort_unstable_by_key(|name| (name.directory, name.sequence));
    for log in names.chunk_by(|a, b| a.directory == b.directory) {
        let directory = survey.nodes.list[log[0].directory as usize].slot;
        let mut last = 0;
        for name in log {
            if name.cookie > last {
                last = name.cookie;
                continue;
            }
            draft.hidden = true;
            let what = format_args!(
                "the entry at slot {} is recreated behind all others",
                name.slot
            );
            if draft.mend(Class::Cookies, format_args!("inode {directory}"), what) {
                draft.drop_name(name);
            }
        }
    }
}

/// Drops removed entries from the logs, which are only kept until they are recycled. The inodes
/// already have the directory times that they carry.
pub(crate) fn drop_dead(draft: &mut Draft) {
    if !draft.wants(Class::Unnamed) || !draft.wants(Class::DirectoryTimes) {
        return;
    }
    let survey = Survey::of(draft.overlay, draft.superblock);
    let mut dropped: BTreeMap<u32, u64> = BTreeMap::new();
    for name in survey.logs.names.iter().filter(|name| !name.alive) {
        draft.drop_name(name);
        *dropped.entry(name.directory).or_default() += 1;
    }
    for (directory, count) in dropped {
        let place = format!("inode {}", survey.nodes.list[directory as usize].slot);
        let what =
            format_args!("{count} removed entries are dropped from it: their space is needed");
        // Declining was handled above.
        let _ = draft.mend(Class::Unnamed, place, what);
    }
}

fn unorphan(draft: &mut Draft, issue: &Issue, name: &Name) {
    let what = format_args!("inode {} is in use: it has a name", name.ino);
    if draft.mend(issue.class, issue.place(), what) {
        set_state(draft, name.ino, InodeState::Live);
    }
}

fn set_state(draft: &Draft, ino: u64, state: InodeState) {
    let at = draft.field(ino, Inode::IDENTITY);
    draft.set(at, IdentityWord(draft.word(at)).with_state(state).0);
}

/// Handles an entry of a free inode: what it named is gone, unless the inode is complete.
fn to_free(draft: &mut Draft, issue: &Issue, name: &Name, revive: bool) {
    draft.hidden = true;
    if revive {
        let what = format_args!("inode {} is in use: all of it is there", name.ino);
        if draft.mend(issue.class, issue.place(), what) {
            set_state(draft, name.ino, InodeState::Live);
        }
        return;
    }
    let what = format_args!("removed: it {}", issue.detail);
    if draft.give_up(issue.class, issue.place(), what) {
        be_rid_of(draft, issue, Some(name));
    }
}

/// Does the stores that remove an error from its directory, with a name or without one.
fn be_rid_of(draft: &Draft, issue: &Issue, name: Option<&Name>) {
    match name {
        Some(name) if draft.has_areas() => draft.drop_name(name),
        _ => issue
            .instead
            .iter()
            .for_each(|&(at, value)| draft.set(at, value)),
    }
}

/// Every mapping id with a block.
fn held_ids(draft: &Draft) -> HashSet<u32> {
    let mut ids = HashSet::new();
    crate::blocks::each_word(draft, |_, word| {
        if matches!(word.state(), MapState::Mapped | MapState::Unwritten) {
            ids.insert(word.id());
        }
    });
    ids
}

/// The slots of valid entries of files, ascending. Directories are left out: other code chooses
/// their single name.
pub(crate) fn named(survey: &Survey) -> Vec<u64> {
    let names = survey.logs.names.iter();
    let of_files = names.filter(|name| name.alive && name.kind != FileKind::Directory);
    let mut slots: Vec<u64> = of_files.map(|name| name.slot).collect();
    slots.sort_unstable();
    slots
}

/// An inode that lost a name.
struct Lost {
    ino: u64,
    /// For sound inodes: generation and kind; for directories the parent too.
    told: Option<(u32, FileKind, u64)>,
    /// Number of names that it may regain, not counting those that the repair removed.
    names: u32,
}

/// Restores names without a log word whose sound, valid entry still exists. Such an entry is never
/// an old one: an entry dies before its word is removed. Names that the repair itself removed from
/// logs come first, if nothing is wrong with them: they lead to their target again, whatever the
/// inode's count is. Of the others, as many as the count allows.
pub(crate) fn restore(draft: &mut Draft, survey: &Survey) {
    if !draft.hidden || !draft.wants(Class::Unnamed) {
        return;
    }
    let is_unnamed = |slot: &u64| !survey.is_used(*slot);
    let dropped: Vec<u64> = draft.named.iter().copied().filter(is_unnamed).collect();
    let mut naming = Naming {
        lost: lost(draft, survey, &dropped),
        known: NamesIn::of(survey),
        names: HashMap::new(),
    };
    if naming.lost.is_empty() {
        return;
    }
    for slot in dropped {
        naming.name_again(draft, survey, slot, true);
    }
    naming.lost.retain(|_, lost| lost.names > 0);
    let per_chunk = draft.geometry.slots_per_chunk();
    let kind = match draft.has_areas() {
        true => ChunkKind::Areas,
        false => ChunkKind::Entries,
    };
    for chunk in survey.chunks.of(kind) {
        let slots = chunk * per_chunk..(chunk + 1) * per_chunk;
        for slot in slots.filter(is_unnamed) {
            naming.name_again(draft, survey, slot, false);
        }
    }
}

/// Restores names.
struct Naming<'s, 'a> {
    lost: HashMap<u64, Lost>,
    known: NamesIn<'s, 'a>,
    /// Valid names of directories, by node.
    names: HashMap<u32, HashSet<Vec<u8>>>,
}

impl Naming<'_, '_> {
    /// Restores the name of the entry at `slot`. If the repair dropped it, also beyond the inode's
    /// link count.
    fn name_again(&mut self, draft: &mut Draft, survey: &Survey, slot: u64, dropped: bool) {
        let Some((entry, name, directory)) = candidate(draft, survey, slot, &self.lost) else {
            return;
        };
        let taken = self
            .names
            .entry(directory)
            .or_insert_with(|| self.known.read(directory));
        let may_have = |lost: &&mut Lost| lost.names > 0 || dropped && lost.told.is_some();
        let Some(lost) = self.lost.get_mut(&entry.ino).filter(may_have) else {
            return;
        };
        if taken.contains(&name) {
            return;
        }
        let dir = Directory::of(&survey.nodes.list[directory as usize]);
        let there = match draft.has_areas() {
            true => draft.restate(survey, slot),
            false => None,
        };
        if there
            .or_else(|| draft.append(survey, dir, &name, entry))
            .is_none()
        {
            return;
        }
        let what = format_args!(
            "named {:?} in inode {} again",
            name.escape_ascii().to_string(),
            dir.ino
        );
        // Declining was handled before.
        let _ = draft.mend(Class::Unnamed, format_args!("inode {}", entry.ino), what);
        taken.insert(name);
        lost.names = lost.names.saturating_sub(1);
    }
}

/// Inodes with fewer names than their count, or named by one of the `dropped` entries.
fn lost(draft: &Draft, survey: &Survey, dropped: &[u64]) -> HashMap<u64, Lost> {
    let named = |&slot: &u64| TargetWord(draft.word(draft.geometry.slot_at(slot) + 8)).ino();
    let dropped: HashSet<u64> = dropped.iter().map(named).collect();
    let nodes = survey.nodes.list.iter();
    let nodes = nodes.filter(|node| !node.orphan && node.slot != ROOT_SLOT);
    let nodes = nodes.filter_map(|node| {
        let names = match node.kind {
            FileKind::Directory => 1u32.saturating_sub(node.names),
            // The inode keeps the count, which includes hard links.
            _ => node.links.max(1).saturating_sub(node.names),
        };
        (names > 0 || dropped.contains(&node.slot)).then_some(Lost {
            ino: node.slot,
            told: Some((node.identity.generation(), node.kind, node.parent)),
            names,
        })
    });
    let broken = survey.nodes.broken.iter().filter(|broken| !broken.named);
    let broken = broken.map(|broken| Lost {
        ino: broken.slot,
        told: None,
        names: 1,
    });
    nodes.chain(broken).map(|lost| (lost.ino, lost)).collect()
}

/// The valid entry at `slot` if it names one of the `lost` inodes, with its name and directory.
fn candidate(
    draft: &Draft,
    survey: &Survey,
    slot: u64,
    lost: &HashMap<u64, Lost>,
) -> Option<(Target, Vec<u8>, u32)> {
    let target = TargetWord(draft.word(draft.geometry.slot_at(slot) + 8));
    let wanted = lost.get(&target.ino())?;
    let kind = target.kind().filter(|_| !target.has_reserved())?;
    let (head, name) = loose_entry(draft, slot)?;
    let Found::Node(directory) = survey.nodes.find(head.parent) else {
        return None;
    };
    let is_name = !matches!(&name[..], b"." | b"..") && !name.iter().any(|b| matches!(b, b'/' | 0));
    let fits = match wanted.told {
        Some((generation, own, parent)) => {
            head.generation == generation
                && own == kind
                && (own != FileKind::Directory
                    || parent == head.parent
                    || !is_directory(survey, parent))
        }
        None => true,
    };
    let sound = survey.nodes.list[directory as usize].kind == FileKind::Directory
        && survey.nodes.list[directory as usize].reached
        && head.is_alive
        && is_name
        && fits;
    let entry = Target {
        ino: target.ino(),
        generation: head.generation,
        kind,
    };
    sound.then_some((entry, name, directory))
}

/// An entry that no log names, or that has no state.
struct Loose {
    parent: u64,
    generation: u32,
    is_alive: bool,
}

/// The sound entry at `slot`, and its name.
fn loose_entry(draft: &Draft, slot: u64) -> Option<(Loose, Vec<u8>)> {
    if draft.has_areas() {
        let (head, path) = draft.path_entry(slot)?;
        let loose = Loose {
            parent: head.parent,
            generation: head.generation,
            is_alive: LifeWord(head.life).is_alive(),
        };
        let name = head.name(&path).to_vec();
        return is_path(&path).then_some((loose, name));
    }
    let (head, name) = entry_at(draft, slot)?;
    let is_sound =
        head.flags == 0 && head.name_hash == name_hash(draft.superblock.hash_seed, &name);
    let loose = Loose {
        parent: head.parent,
        generation: head.generation,
        is_alive: LifeWord(head.life).is_alive(),
    };
    is_sound.then_some((loose, name))
}

/// Whether `ino` is a directory that the root reaches, and so a possible parent.
fn is_directory(survey: &Survey, ino: u64) -> bool {
    match survey.nodes.find(ino) {
        Found::Node(number) => {
            let node = &survey.nodes.list[number as usize];
            node.kind == FileKind::Directory && node.reached
        }
        _ => false,
    }
}
