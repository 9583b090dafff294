//! Inodes, symlink texts, and slots that two structures hold.

use std::collections::HashMap;

use vellum_check::Class;
use vellum_check::survey::{Found, Holder, Name, Node, Survey};
use vellum_layout::{
    ChunkKind, DirLocation, Entry, FileKind, IdentityWord, Inode, InodeState, LinksWord,
    LogExtentHead, ROOT_AREA, ROOT_SLOT, SLOT_BYTES, SLOTS_PER_BLOCK, TEXT_MAX, text_check,
    text_home,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::draft::Draft;
use crate::room::{Directory, Target};
use crate::{blocks, trees};

/// Generation of the root directory from mkfs; the root has no later life.
const ROOT_GENERATION: u32 = 1;

/// Restores the root as a directory in use.
pub(crate) fn root(draft: &mut Draft, survey: &Survey) {
    if let Some(root) = survey.nodes.root()
        && !survey.nodes.list[root as usize].orphan
    {
        return;
    }
    draft.hidden = true;
    let old = draft.inode(ROOT_SLOT);
    let identity = IdentityWord(old.identity);
    let told = identity.kind() == Some(FileKind::Directory)
        && (identity.generation() == ROOT_GENERATION || old.checksum == old.expected_checksum(1));
    let (generation, first) = find_root_log(draft, old.root, identity.generation());
    let mode = if told { identity.mode() } else { 0o755 };
    let new = Inode {
        identity: IdentityWord::new(InodeState::Live, FileKind::Directory, mode, generation)
            .with_xattr_flags(if told { identity.0 } else { 0 })
            .with_flags(if told { identity.flags() } else { 0 })
            .0,
        owner: if told { old.owner } else { 0 },
        links: LinksWord::new(2, 0).0,
        parent: ROOT_SLOT,
        xattr_root: if told { old.xattr_root } else { 0 },
        acl_root: 0,
        project: if told { old.project } else { 0 },
        size: 0,
        root: first,
        detail: if draft.has_areas() {
            DirLocation::new(0, ROOT_AREA).0
        } else {
            0
        },
        cachelet: 0,
        pattern: 0,
        ..old
    };
    let place = format_args!("inode {ROOT_SLOT}");
    if draft.mend(Class::Root, place, "restored as a directory") {
        draft.put_inode(ROOT_SLOT, new);
    }
}

/// The generation of the root's log, and its first extent: the inode's value if an extent there
/// agrees, otherwise the extent that comes first in the log.
fn find_root_log(draft: &Draft, root: u64, generation: u32) -> (u32, u64) {
    let candidates = [generation, ROOT_GENERATION];
    for generation in candidates {
        if extent_of(draft, root, ROOT_SLOT, generation).is_some() {
            return (generation, root);
        }
    }
    for generation in candidates {
        let first = first_extent(draft, ROOT_SLOT, generation);
        if first != 0 {
            return (generation, first);
        }
    }
    (generation, 0)
}

/// The first cookie of a directory's sound extent at `slot`, if there is one.
fn extent_of(draft: &Draft, slot: u64, ino: u64, generation: u32) -> Option<u64> {
    if slot == 0 || slot >= draft.geometry.meta_slots() {
        return None;
    }
    let bytes: [u8; size_of::<LogExtentHead>()] = draft.overlay.bytes(draft.geometry.slot_at(slot));
    let head = LogExtentHead::read_from_bytes(&bytes).ok()?;
    head.is_sound(slot, ino, generation)
        .then_some(head.base_cookie)
}

/// Repairs unsound inodes: those with an entry get the values of the entry, which is under a
/// checksum; the others are freed.
pub(crate) fn broken(draft: &mut Draft, survey: &Survey) {
    if survey.nodes.broken.is_empty() {
        return;
    }
    let mut claims: HashMap<u64, &Name> = HashMap::new();
    for name in survey.logs.names.iter().filter(|name| name.alive) {
        claims.entry(name.ino).or_insert(name);
    }
    for broken in &survey.nodes.broken {
        let slot = broken.slot;
        let place = format!("inode {slot}");
        match claims.get(&slot) {
            Some(name) => rebuild(draft, survey, broken.class, slot, name),
            None if slot == ROOT_SLOT => {}
            None => {
                if draft.give_up(broken.class, place, "freed: unsound, and nothing names it") {
                    draft.free_inode(slot);
                }
            }
        }
    }
}

/// Makes an inode agree with the entry that names it.
fn rebuild(draft: &mut Draft, survey: &Survey, class: Class, slot: u64, name: &Name) {
    let old = draft.inode(slot);
    let identity = IdentityWord(old.identity);
    // Flags lie beside the state, so where that is wrong, nobody knows.
    let flags = match identity.state() {
        Some(_) => identity.0 & IdentityWord::flags_of(name.kind),
        None => 0,
    };
    let told = |mode| IdentityWord::new(InodeState::Live, name.kind, mode, name.generation);
    let named = Inode {
        identity: told(identity.mode())
            .with_xattr_flags(identity.0)
            .with_flags(flags)
            .0,
        ..old
    };
    let agrees = identity.kind() == Some(name.kind) && identity.generation() == name.generation;
    let (new, what) = if old.checksum == named.expected_checksum(slot) {
        (
            named,
            "set to the values of its entry, which its checksum confirms",
        )
    } else if agrees {
        (
            named,
            "sealed again, with kind and generation from its entry",
        )
    } else {
        let is_directory = name.kind == FileKind::Directory;
        let mode = if is_directory { 0o700 } else { 0o600 };
        let parent = survey.nodes.list[name.directory as usize].slot;
        let new = Inode {
            identity: told(mode).0,
            owner: 0,
            links: LinksWord::new(1, 0).0,
            btime: name.ns,
            parent: if is_directory { parent } else { 0 },
            xattr_root: 0,
            acl_root: 0,
            project: 0,
            cachelet: 0,
            ..old
        };
        let what = "recreated from its entry: owner, mode and attributes are lost, and only root \
                    may use it";
        (new, what)
    };
    if draft.mend(class, format_args!("inode {slot}"), what) {
        draft.put_inode(slot, new);
    }
}

/// Recreates a blank inode from the entry that names it. An inode is durable before its name, and a
/// freed one keeps its generation, so a blank one was lost. Returns `false` if it is not blank, or
/// its content is lost too.
pub(crate) fn remake(draft: &mut Draft, survey: &Survey, name: &Name) -> bool {
    let slot = name.ino;
    if slot == 0 || survey.nodes.find(slot) != Found::Free {
        return false;
    }
    let old = draft.inode(slot);
    let identity = IdentityWord(old.identity);
    if identity.state() == Some(InodeState::Live) && identity.generation() == name.generation {
        // Recreated from another of its names.
        return true;
    }
    let (size, root) = match name.kind {
        _ if old.as_bytes().iter().any(|&byte| byte != 0) => return false,
        FileKind::File => blocks::content(draft, slot),
        FileKind::Directory => (0, first_extent(draft, slot, name.generation)),
        FileKind::Fifo | FileKind::Socket => (0, 0),
        FileKind::Symlink | FileKind::CharDevice | FileKind::BlockDevice => return false,
    };
    let is_directory = name.kind == FileKind::Directory;
    let parent = draft.word(draft.geometry.slot_at(name.slot) + Entry::PARENT);
    let mode = if is_directory { 0o700 } else { 0o600 };
    let new = Inode {
        identity: IdentityWord::new(InodeState::Live, name.kind, mode, name.generation).0,
        links: LinksWord::new(if is_directory { 2 } else { 1 }, 0).0,
        parent: if is_directory { parent } else { 0 },
        btime: name.ns,
        atime: name.ns,
        mtime: name.ns,
        ctime: name.ns,
        size,
        root,
        ..Inode::default()
    };
    let what = "recreated from its entry and its own contents: all else of it is lost, and only \
         root may use it";
    if draft.give_up(Class::EntryToFree, format_args!("inode {slot}"), what) {
        draft.put_inode(slot, new);
    }
    true
}

/// The extent that comes first in the log of a directory; 0 if there is none.
fn first_extent(draft: &Draft, ino: u64, generation: u32) -> u64 {
    let slots = 1..draft.geometry.meta_slots();
    let extents = slots.filter_map(|slot| Some((extent_of(draft, slot, ino, generation)?, slot)));
    extents.min().map_or(0, |(_, first)| first)
}

/// Clears fields that have no meaning in this version of the format.
pub(crate) fn reserved(draft: &mut Draft, survey: &Survey) {
    for node in survey
        .nodes
        .list
        .iter()
        .filter(|node| node.reserved().is_some())
    {
        let what = "cleared: it has no meaning in this format";
        if !draft.mend(Class::Reserved, format_args!("inode {}", node.slot), what) {
            continue;
        }
        let old = draft.inode(node.slot);
        let identity = IdentityWord(old.identity);
        draft.put_inode(
            node.slot,
            Inode {
                identity: identity
                    .with_flags(identity.0 & IdentityWord::flags_of(node.kind))
                    .0,
                links: LinksWord::new(LinksWord(old.links).links(), 0).0,
                acl_root: 0,
                detail: if draft.geometry.has_detail(node.kind) {
                    old.detail
                } else {
                    0
                },
                pattern: 0,
                ..old
            },
        );
    }
}

/// The length at which the text at a symlink's slot fits the symlink's check.
pub(crate) fn text_by_check(draft: &Draft, link: &Node) -> Option<usize> {
    if link.root == 0 || link.root >= draft.geometry.meta_slots() {
        return None;
    }
    let text: [u8; TEXT_MAX] = draft.overlay.bytes(draft.geometry.slot_at(link.root));
    let check = draft.word(draft.field(link.slot, Inode::DETAIL));
    let generation = link.identity.generation();
    let most = text.iter().position(|&byte| byte == 0).unwrap_or(TEXT_MAX);
    (1..=most).find(|&len| text_check(link.slot, generation, &text[..len]) == check)
}

/// Repairs symlinks with an unreadable text: the check determines the length, otherwise the link is
/// removed.
pub(crate) fn texts(draft: &mut Draft, survey: &Survey) {
    for &(number, why) in survey.unsound_texts() {
        let node = &survey.nodes.list[number];
        let place = format!("inode {}", node.slot);
        let len = text_by_check(draft, node).filter(|&len| fits_home(survey, node.root, len));
        if let Some(len) = len.filter(|&len| len as u64 != node.size) {
            let what = format_args!("{len} bytes long, by its checksum");
            if draft.mend(Class::TextUnsound, place, what) {
                draft.set(draft.field(node.slot, Inode::SIZE), len as u64);
            }
            continue;
        }
        let what = format_args!("removed: its target {why}");
        if draft.give_up(Class::TextUnsound, place, what) {
            forget(draft, survey, node);
        }
    }
}

fn fits_home(survey: &Survey, slot: u64, len: usize) -> bool {
    let (kind, slots) = text_home(len);
    let aligned = slots != SLOTS_PER_BLOCK || slot.is_multiple_of(SLOTS_PER_BLOCK);
    aligned && survey.chunks.holds(slot, slots, kind)
}

/// Removes all names of an inode, and frees it.
fn forget(draft: &mut Draft, survey: &Survey, node: &Node) {
    for name in survey
        .logs
        .names
        .iter()
        .filter(|name| name.ino == node.slot)
    {
        if name.alive && survey.target(name).is_some() {
            draft.drop_name(name);
        }
    }
    draft.free_inode(node.slot);
}

/// Resolves slots held twice: the later holder in the checker's order gets new slots.
pub(crate) fn shared(draft: &mut Draft, survey: &Survey) {
    for holder in survey.shared() {
        match *holder {
            Holder::Extent(_)
            | Holder::Tree(_)
            | Holder::Xattrs(..)
            | Holder::AreaTable(_)
            | Holder::OfAreas(_) => {}
            Holder::Name(number) => move_entry(draft, survey, number),
            Holder::Text(number) => move_text(draft, survey, &survey.nodes.list[number]),
        }
    }
}

fn move_entry(draft: &mut Draft, survey: &Survey, number: usize) {
    let name = &survey.logs.names[number];
    let place = format!("slot {}", name.slot);
    let mut others = survey.logs.names.iter().enumerate();
    let again = others.any(|(other, found)| other != number && found.slot == name.slot);
    if again || !name.alive {
        if draft.mend(Class::SlotShared, place, "named only once by its log") {
            draft.drop_name(name);
        }
        return;
    }
    if !draft.wants(Class::SlotShared) {
        return;
    }
    let dir = Directory::of(&survey.nodes.list[name.directory as usize]);
    let target = Target::of(name);
    let text = survey.text_of(name);
    if draft.append(survey, dir, &text, target).is_some()
        && draft.mend(Class::SlotShared, place, "the entry gets new slots")
    {
        draft.drop_name(name);
    }
}

fn move_text(draft: &mut Draft, survey: &Survey, link: &Node) {
    let Ok(text) = survey.link_text(link) else {
        return;
    };
    let (kind, slots): (ChunkKind, u64) = text_home(text.len());
    if !draft.wants(Class::SlotShared) {
        return;
    }
    let place = format!("slot {}", link.root);
    if let Some(slot) = draft.take_slots(survey, kind, slots)
        && draft.mend(Class::SlotShared, place, "the text gets new slots")
    {
        draft.put_slots(slot, slots, &text);
        draft.set(draft.field(link.slot, Inode::ROOT), slot);
    }
}

/// Whether an inode that is marked free is actually in use: it is sealed for the life that a sound
/// entry names, and its contents exist. `has_blocks` reports whether a mapping id has blocks.
pub(crate) fn was_freed_wrongly(
    draft: &Draft,
    survey: &Survey,
    name: &Name,
    has_blocks: &dyn Fn(u32) -> bool,
) -> bool {
    if survey.nodes.find(name.ino) != Found::Free {
        return false;
    }
    let old = draft.inode(name.ino);
    let live = Inode {
        identity: IdentityWord(old.identity).with_state(InodeState::Live).0,
        ..old
    };
    let identity = IdentityWord(live.identity);
    if !live.is_sound(name.ino)
        || identity.kind() != Some(name.kind)
        || identity.generation() != name.generation
    {
        return false;
    }
    let parent = survey.nodes.list[name.directory as usize].slot;
    match name.kind {
        FileKind::Directory => live.parent == parent,
        FileKind::File => {
            let id = name.ino as u32 & 0x3FFF_FFFF;
            live.size == 0 || has_blocks(id) || trees::is_root(draft, id, live.detail)
        }
        FileKind::Symlink => {
            let mut text = vec![0; TEXT_MAX.min(live.size as usize)];
            let end = draft.geometry.slot_at(draft.geometry.meta_slots());
            let inside = live.root != 0
                && live.root < draft.geometry.meta_slots()
                && draft.geometry.slot_at(live.root) + text.len() as u64 <= end;
            inside && {
                read(draft, live.root, &mut text);
                live.detail == text_check(name.ino, identity.generation(), &text)
            }
        }
        _ => true,
    }
}

fn read(draft: &Draft, slot: u64, out: &mut [u8]) {
    use vellum_check::Image;
    debug_assert!(out.len() as u64 <= SLOT_BYTES * SLOTS_PER_BLOCK);
    if draft
        .overlay
        .read(draft.geometry.slot_at(slot), out)
        .is_err()
    {
        out.fill(0);
    }
}
