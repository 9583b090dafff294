//! The tree of names: directories with one name each, unique names, names for all inodes, counts.

use std::collections::HashMap;

use vellum_check::Class;
use vellum_check::survey::{Name, Node, Survey};
use vellum_layout::{FileKind, Inode, InodeState, LinksWord, ROOT_SLOT};

use crate::draft::Draft;
use crate::room::Target;

/// Leaves every directory one name, in its parent, and breaks cycles.
pub(crate) fn directories(draft: &mut Draft, survey: &Survey) {
    let mut names: HashMap<u32, Vec<&Name>> = HashMap::new();
    for name in survey.logs.names.iter() {
        if name.kind == FileKind::Directory
            && let Some(target) = survey.target(name)
        {
            names.entry(target).or_default().push(name);
        }
    }
    let mut numbers: Vec<u32> = names.keys().copied().collect();
    numbers.sort_unstable();
    let mut again = false;
    for number in numbers {
        let node = &survey.nodes.list[number as usize];
        if node.slot == ROOT_SLOT {
            for name in &names[&number] {
                let what = "the name of the root is removed";
                if draft.mend(Class::Cycle, format_args!("inode {ROOT_SLOT}"), what) {
                    draft.drop_name(name);
                }
            }
        } else if names[&number].len() > 1 {
            again = true;
            keep_one(draft, survey, node, &names[&number]);
        }
    }
    if !again {
        break_circles(draft, survey, &names);
    }
}

/// Chooses the name that stays: in the directory that is the inode's recorded parent and that the
/// root reaches.
fn keep_one(draft: &mut Draft, survey: &Survey, node: &Node, names: &[&Name]) {
    let worth = |name: &&&Name| {
        let directory = &survey.nodes.list[name.directory as usize];
        (directory.reached, directory.slot == node.parent)
    };
    // The first of the best ones.
    let Some(kept) = names.iter().rev().max_by_key(worth) else {
        return;
    };
    for name in names.iter().filter(|name| name.word_at != kept.word_at) {
        let directory = survey.nodes.list[name.directory as usize].slot;
        let what = format_args!("its name in inode {directory} is removed: it keeps another");
        if draft.mend(
            Class::DirectoryNames,
            format_args!("inode {}", node.slot),
            what,
        ) {
            draft.drop_name(name);
        }
    }
}

/// Removes the name of the lowest inode of every cycle, which then goes to lost+found.
fn break_circles(draft: &mut Draft, survey: &Survey, names: &HashMap<u32, Vec<&Name>>) {
    let nodes = &survey.nodes.list;
    let mut seen = vec![0u32; nodes.len()];
    for start in 0..nodes.len() as u32 {
        let walk = start + 1;
        let mut at = start;
        while seen[at as usize] == 0 && !nodes[at as usize].reached && names.contains_key(&at) {
            seen[at as usize] = walk;
            at = names[&at][0].directory;
        }
        if seen[at as usize] != walk || nodes[at as usize].reached || !names.contains_key(&at) {
            continue;
        }
        let mut lowest = at;
        let mut next = names[&at][0].directory;
        while next != at {
            lowest = lowest.min(next);
            next = names[&next][0].directory;
        }
        let place = format!("inode {}", nodes[lowest as usize].slot);
        if draft.mend(Class::Cycle, place, "its name inside itself is removed") {
            draft.hidden = true;
            draft.drop_name(names[&lowest][0]);
        }
    }
}

/// Of two entries with one name the first one stays; the other one's inode keeps its other names,
/// or goes to lost+found.
pub(crate) fn duplicates(draft: &mut Draft, survey: &Survey) {
    for (first, second) in survey.duplicates() {
        let (first, second) = (&survey.logs.names[first], &survey.logs.names[second]);
        let second = if first.cookie <= second.cookie {
            second
        } else {
            first
        };
        let directory = survey.nodes.list[second.directory as usize].slot;
        let what = format_args!(
            "{:?}: the second, of inode {}, is removed",
            survey.text_of(second).escape_ascii().to_string(),
            second.ino
        );
        if draft.mend(
            Class::DuplicateName,
            format_args!("inode {directory}"),
            what,
        ) {
            draft.hidden = true;
            draft.drop_name(second);
        }
    }
}

/// Handles inodes without a name: remains of a removal or creation are freed, all others go to
/// lost+found.
pub(crate) fn unnamed(draft: &mut Draft, survey: &Survey) {
    for node in &survey.nodes.list {
        if node.names > 0 || node.slot == ROOT_SLOT {
            continue;
        }
        let place = format!("inode {}", node.slot);
        let full = node.kind == FileKind::Directory && node.children > 0;
        if node.orphan && !full {
            if draft.mend(
                Class::Orphan,
                place,
                "freed: it was removed while it was open",
            ) {
                draft.free_inode(node.slot);
            }
        } else if full || draft.hidden {
            rescue(
                draft,
                survey,
                node,
                if full {
                    Class::Unreachable
                } else {
                    Class::Unnamed
                },
            );
        } else if draft.mend(Class::Unnamed, place, "freed: a crash left it") {
            draft.free_inode(node.slot);
        }
    }
}

fn rescue(draft: &mut Draft, survey: &Survey, node: &Node, class: Class) {
    if !draft.wants(class) {
        return;
    }
    let target = Target {
        ino: node.slot,
        generation: node.identity.generation(),
        kind: node.kind,
    };
    let Some(name) = draft.adopt(survey, &format!("#{}", node.slot), target) else {
        return;
    };
    let what = format_args!("put into /lost+found as {name:?}");
    // Declining was handled above.
    let _ = draft.mend(class, format_args!("inode {}", node.slot), what);
    if node.orphan {
        let at = draft.field(node.slot, Inode::IDENTITY);
        draft.set(at, node.identity.with_state(InodeState::Live).0);
    }
}

/// Corrects link counts, parents and times according to the entries.
pub(crate) fn counts(draft: &mut Draft, survey: &Survey) {
    let root = survey.nodes.root();
    for (number, node) in survey.nodes.list.iter().enumerate() {
        let is_root = root == Some(number as u32);
        if node.names == 0 && !is_root {
            continue;
        }
        let links = match node.kind {
            FileKind::Directory => node.subdirectories + 2,
            _ => node.names,
        };
        let place = format!("inode {}", node.slot);
        if node.links != links
            && draft.mend(Class::LinkCount, &place, format_args!("set to {links}"))
        {
            let at = draft.field(node.slot, Inode::LINKS);
            draft.set(at, LinksWord::new(links, 0).0);
        }
        if node.kind == FileKind::Directory {
            directory(draft, survey, node, is_root);
        }
    }
}

fn directory(draft: &mut Draft, survey: &Survey, node: &Node, is_root: bool) {
    let place = format!("inode {}", node.slot);
    let parent = if is_root {
        ROOT_SLOT
    } else {
        survey.nodes.list[node.named_by as usize].slot
    };
    if node.parent != parent
        && draft.mend(
            Class::ParentWrong,
            &place,
            format_args!("set to inode {parent}"),
        )
    {
        draft.set(draft.field(node.slot, Inode::PARENT), parent);
    }
    if node.latest > node.ctime
        && draft.mend(
            Class::DirectoryTimes,
            &place,
            "set to the latest of its entries",
        )
    {
        draft.set(draft.field(node.slot, Inode::MTIME), node.latest as u64);
        draft.set(draft.field(node.slot, Inode::CTIME), node.latest as u64);
    }
}
