//! The tree of names: which directories the root reaches, which inodes are in use, their names and
//! links.

use vellum_layout::{FileKind, ROOT_SLOT};

use crate::image::View;
use crate::inodes::{Found, Nodes};
use crate::logs::{Logs, Name};
use crate::report::{Class, Location, Sink};

/// Checks the tree. Errors of a directory without a name and contents are what a crash left of a
/// half-created or half-removed one, if `sink` is lenient.
pub(crate) fn judge(view: &View, nodes: &mut Nodes, logs: &mut Logs, sink: &mut Sink) {
    let root = judge_root(nodes, sink);
    reach(nodes, logs, root);
    judge_broken(nodes, sink);
    keep(nodes, root, sink);
    if root.is_some() {
        judge_unreached(nodes, logs, root, sink);
    }
    logs.issues
        .sort_by_key(|issue| (issue.directory, issue.class));
    for issue in &logs.issues {
        if !nodes.list[issue.directory as usize].kept && !issue.stands {
            continue;
        }
        sink.damage(issue.class, issue.place, &issue.detail);
    }
    judge_cookies(nodes, logs, sink);
    judge_names(view, nodes, logs, sink);
    for (number, node) in nodes.list.iter().enumerate() {
        if node.kept {
            judge_links(nodes, number as u32, root, sink);
        }
    }
}

fn judge_root(nodes: &Nodes, sink: &mut Sink) -> Option<u32> {
    let root = nodes.root();
    let place = Location::Inode(ROOT_SLOT);
    match (root, nodes.find(ROOT_SLOT)) {
        (Some(number), _) => {
            if nodes.list[number as usize].orphan {
                sink.damage(Class::Root, place, "is an orphan");
            }
        }
        (None, Found::Node(_)) => sink.damage(Class::Root, place, "is not a directory"),
        (None, Found::Broken(_)) => sink.damage(Class::Root, place, "is unsound"),
        (None, _) => sink.damage(Class::Root, place, "is not in use"),
    }
    root
}

/// The node that a valid entry names, if the entry fits it.
pub(crate) fn target(nodes: &Nodes, name: &Name) -> Option<u32> {
    let Found::Node(number) = nodes.find(name.ino) else {
        return None;
    };
    let node = &nodes.list[number as usize];
    let fits =
        name.alive && node.identity.generation() == name.generation && node.kind == name.kind;
    fits.then_some(number)
}

/// Marks the directories that the root reaches.
pub(crate) fn reach(nodes: &mut Nodes, logs: &Logs, root: Option<u32>) {
    let Some(root) = root else {
        return;
    };
    let mut edges: Vec<(u32, u32)> = logs
        .names
        .iter()
        .filter(|name| name.kind == FileKind::Directory)
        .filter_map(|name| Some((name.directory, target(nodes, name)?)))
        .collect();
    edges.sort_unstable();
    let mut ready = vec![root];
    nodes.list[root as usize].reached = true;
    while let Some(directory) = ready.pop() {
        let from = edges.partition_point(|edge| edge.0 < directory);
        let children = edges[from..].iter().take_while(|edge| edge.0 == directory);
        for &(_, child) in children {
            let node = &mut nodes.list[child as usize];
            if !node.reached {
                node.reached = true;
                ready.push(child);
            }
        }
    }
}

/// Checks unsound inodes. One without a name is what a crash leaves of a creation whose lines were
/// only partly written back.
fn judge_broken(nodes: &Nodes, sink: &mut Sink) {
    for broken in &nodes.broken {
        let place = Location::Inode(broken.slot);
        if broken.named || broken.slot == ROOT_SLOT {
            sink.damage(broken.class, place, &broken.detail);
        } else {
            sink.residue(
                broken.class,
                place,
                format_args!("{}; unnamed", broken.detail),
            );
        }
    }
}

/// Decides which inodes are in use: those with a name, and all others too if nothing is tolerated.
fn keep(nodes: &mut Nodes, root: Option<u32>, sink: &mut Sink) {
    for (number, node) in nodes.list.iter_mut().enumerate() {
        if node.names > 0 || root == Some(number as u32) {
            continue;
        }
        let full = node.kind == FileKind::Directory && node.children > 0;
        node.kept = full || !sink.lenient;
        if full {
            // Judged with the directories that the root does not reach.
            continue;
        }
        let place = Location::Inode(node.slot);
        let kind = node.kind;
        if node.orphan {
            let detail = format_args!("{kind:?} was open without a name");
            sink.residue(Class::Orphan, place, detail);
        } else {
            sink.residue(Class::Unnamed, place, format_args!("{kind:?} has no entry"));
        }
    }
}

/// Checks directories with names or contents that the root does not reach.
fn judge_unreached(nodes: &Nodes, logs: &Logs, root: Option<u32>, sink: &mut Sink) {
    // 0: not seen; otherwise the number of the walk that saw it.
    let mut seen = vec![0u32; nodes.list.len()];
    let mut walk = 0;
    for start in 0..nodes.list.len() as u32 {
        let node = &nodes.list[start as usize];
        let held = node.names > 0 || node.children > 0;
        if node.kind != FileKind::Directory || node.reached || !held {
            continue;
        }
        let detail = format_args!("holds {} entries", node.children);
        sink.damage(Class::Unreachable, Location::Inode(node.slot), detail);
        walk += 1;
        let mut at = start;
        while seen[at as usize] == 0 && nodes.list[at as usize].names > 0 {
            seen[at as usize] = walk;
            at = nodes.list[at as usize].named_by;
        }
        if seen[at as usize] == walk {
            let slot = nodes.list[at as usize].slot;
            sink.damage(Class::Cycle, Location::Inode(slot), "contains itself");
        }
    }
    if let Some(name) = logs
        .names
        .iter()
        .find(|name| name.ino == ROOT_SLOT && target(nodes, name) == root)
    {
        let detail = format_args!(
            "inode {} has an entry that names the root",
            nodes.list[name.directory as usize].slot
        );
        sink.damage(Class::Cycle, Location::Inode(ROOT_SLOT), detail);
    }
}

/// Checks that cookies ascend along each log.
fn judge_cookies(nodes: &Nodes, logs: &mut Logs, sink: &mut Sink) {
    logs.names
        .sort_unstable_by_key(|name| (name.directory, name.sequence));
    for pair in logs.names.windows(2) {
        let [before, name] = pair else { continue };
        let directory = &nodes.list[name.directory as usize];
        if before.directory == name.directory && before.cookie >= name.cookie && directory.kept {
            sink.damage(
                Class::Cookies,
                Location::Inode(directory.slot),
                format_args!(
                    "cookie {} (slot {}) follows cookie {} (slot {})",
                    name.cookie, name.slot, before.cookie, before.slot
                ),
            );
        }
    }
}

/// Checks that no directory has two valid entries of one name.
fn judge_names(view: &View, nodes: &Nodes, logs: &Logs, sink: &mut Sink) {
    for (first, second) in duplicates(view, nodes, logs) {
        let (first, second) = (&logs.names[first], &logs.names[second]);
        sink.damage(
            Class::DuplicateName,
            Location::Inode(nodes.list[first.directory as usize].slot),
            format_args!(
                "{:?} at slots {} and {}",
                name_at(view, first).escape_ascii().to_string(),
                first.slot,
                second.slot
            ),
        );
    }
}

/// Pairs of valid entries (by number) of one name in one directory.
pub(crate) fn duplicates(view: &View, nodes: &Nodes, logs: &Logs) -> Vec<(usize, usize)> {
    let mut hashes: Vec<(u32, u64, u64, usize)> = logs
        .names
        .iter()
        .enumerate()
        .filter(|(_, name)| name.alive && nodes.list[name.directory as usize].kept)
        .map(|(number, name)| (name.directory, name.hash, name.text_at, number))
        .collect();
    hashes.sort_unstable();
    // An entry that a log names twice is reported as a slot owned twice.
    hashes.dedup_by_key(|entry| (entry.0, entry.1, entry.2));
    let mut found = Vec::new();
    for group in hashes.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        if group.len() < 2 {
            continue;
        }
        let mut texts: Vec<_> = group
            .iter()
            .map(|&(_, _, at, number)| (name_at(view, &logs.names[number]), at, number))
            .collect();
        texts.sort();
        let pairs = texts.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        found.extend(pairs.map(|pair| (pair[0].2, pair[1].2)));
    }
    found
}

/// The name of a sound entry.
pub(crate) fn name_at(view: &View, name: &Name) -> Vec<u8> {
    let mut text = vec![0; usize::from(name.text_len)];
    view.read(name.text_at, &mut text);
    text
}

/// Checks links, parent and times of one inode.
fn judge_links(nodes: &Nodes, number: u32, root: Option<u32>, sink: &mut Sink) {
    let node = &nodes.list[number as usize];
    let place = Location::Inode(node.slot);
    let is_root = root == Some(number);
    if node.kind != FileKind::Directory {
        if node.names > 0 && node.names != node.links {
            let detail = format_args!("is {}, but {} entries name it", node.links, node.names);
            sink.residue(Class::LinkCount, place, detail);
        }
        return;
    }
    if node.names > 1 {
        let detail = format_args!("{} entries name it", node.names);
        sink.damage(Class::DirectoryNames, place, detail);
    }
    let links = node.subdirectories + 2;
    if node.links != links && (is_root || node.names > 0) {
        let detail = format_args!(
            "is {}, but with {} directories in it it is {links}",
            node.links, node.subdirectories
        );
        sink.residue(Class::LinkCount, place, detail);
    }
    let parent = if is_root {
        ROOT_SLOT
    } else {
        nodes.list[node.named_by as usize].slot
    };
    if (is_root || node.names == 1) && node.parent != parent {
        let detail = format_args!("says inode {}, but lies in inode {parent}", node.parent);
        sink.damage(Class::ParentWrong, place, detail);
    }
    if node.latest > node.ctime {
        let detail = format_args!(
            "changed at {} ns, but an entry changed at {} ns",
            node.ctime, node.latest
        );
        sink.residue(Class::DirectoryTimes, place, detail);
    }
}
