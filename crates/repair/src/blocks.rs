//! Sizes and mapping roots of files, and the mapping table.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use vellum_check::survey::{Found, Node, Survey, trees};
use vellum_check::{Class, Image};
use vellum_layout::{
    BLOCK_BYTES, FileKind, IdentityWord, Inode, InodeState, LINE_ENTRIES, LinksWord, MapRoot,
    MapState, MapWord, TablePlan,
};

use crate::draft::Draft;
use crate::keyed::{self, sound_rows};

/// Largest file: 2^32 blocks of 4 KiB.
const SIZE_MAX: u64 = 1 << 44;

/// Calls `each` with every block and its word: every nonzero word of the table, or the blocks of
/// the files' trees.
pub(crate) fn each_word(draft: &Draft, mut each: impl FnMut(u64, MapWord)) {
    if draft.geometry.mapping.has_trees() {
        let trees = trees(draft.overlay, draft.superblock);
        let blocks = trees.blocks.iter();
        return blocks.for_each(|found| each(found.block, found.word));
    }
    if !draft.geometry.mapping.has_home_lines() {
        let rows = sound_rows(draft).into_iter();
        return rows.for_each(|row| each(row.block(), row.word));
    }
    const WORDS: u64 = 1 << 13;
    let mut buffer = vec![0; WORDS as usize * 8];
    for piece in draft.table_plan().pieces() {
        for done in (0..piece.blocks).step_by(WORDS as usize) {
            let count = WORDS.min(piece.blocks - done);
            let part = &mut buffer[..count as usize * 8];
            if draft.overlay.read(piece.at + done * 8, part).is_err() {
                continue;
            }
            for (word, block) in part.as_chunks::<8>().0.iter().zip(piece.first + done..) {
                let word = u64::from_le_bytes(*word);
                if word != 0 {
                    each(block, MapWord(word));
                }
            }
        }
    }
}

/// The blocks of a mapping id in the table.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// One more than the highest logical block.
    end: u64,
    /// One more than the highest logical block with bytes.
    mapped_end: u64,
}

fn held(draft: &Draft, ids: &[u32]) -> HashMap<u32, Held> {
    let mut held: HashMap<u32, Held> = ids.iter().map(|&id| (id, Held::default())).collect();
    each_word(draft, |_, word| {
        let state = word.state();
        if !matches!(state, MapState::Mapped | MapState::Unwritten) {
            return;
        }
        if let Some(held) = held.get_mut(&word.id()) {
            let end = u64::from(word.logical()) + 1;
            held.end = held.end.max(end);
            if state == MapState::Mapped {
                held.mapped_end = held.mapped_end.max(end);
            }
        }
    });
    held
}

/// Repairs files with an impossible size or mapping root. A file's blocks carry its inode's number,
/// so the table identifies them.
pub(crate) fn files(draft: &mut Draft, survey: &Survey) {
    let files = survey.nodes.list.iter();
    let files: Vec<&Node> = files.filter(|node| node.kind == FileKind::File).collect();
    let mut owners: HashMap<u32, u64> = HashMap::new();
    // An inode whose id is its own number owns the id; otherwise the first one does.
    for own in [true, false] {
        for node in &files {
            if let Some((_, id)) = MapRoot(node.root)
                .get()
                .filter(|_| MapRoot(node.root).is_sound())
                && (MapRoot::id_of(node.slot) == id) == own
            {
                owners.entry(id).or_insert(node.slot);
            }
        }
    }
    let has_trees = draft.geometry.mapping.has_trees();
    let wrong: Vec<(&Node, Option<Class>)> = files
        .iter()
        .filter_map(|node| {
            let root = MapRoot(node.root);
            let class = match root.get() {
                _ if node.root == 0 => None,
                Some((_, id)) if has_trees && id != MapRoot::id_of(node.slot) => {
                    Some(Class::MapSegment)
                }
                Some((_, id)) if root.is_sound() => {
                    (owners[&id] != node.slot).then_some(Class::MapShared)
                }
                _ => Some(Class::MapSegment),
            };
            (class.is_some() || node.size > SIZE_MAX).then_some((*node, class))
        })
        .collect();
    if wrong.is_empty() {
        return;
    }
    // A file with only a wrong size has the blocks of its root.
    let id_of = |node: &Node, class: Option<Class>| match (class, MapRoot(node.root).get()) {
        (None, Some((_, id))) => id,
        _ => MapRoot::id_of(node.slot),
    };
    let ids: Vec<u32> = wrong
        .iter()
        .map(|&(node, class)| id_of(node, class))
        .collect();
    let held = held(draft, &ids);
    for (node, class) in wrong {
        let id = id_of(node, class);
        let foreign = owners.get(&id).is_some_and(|&owner| owner != node.slot);
        let own = if foreign { Held::default() } else { held[&id] };
        mend_file(draft, node, class, own);
    }
}

fn mend_file(draft: &mut Draft, node: &Node, class: Option<Class>, own: Held) {
    let place = format!("inode {}", node.slot);
    let mut size = node.size;
    if size > SIZE_MAX {
        let sane = own.mapped_end * BLOCK_BYTES;
        let what = format_args!("set to {sane} bytes, where its last block ends");
        if draft.mend(Class::Size, &place, what) {
            size = sane;
            draft.set(draft.field(node.slot, Inode::SIZE), size);
        }
    }
    let Some(class) = class else {
        return;
    };
    if own.end == 0 {
        let what = "has no block of its own: it reads as zeros";
        if draft.give_up(class, &place, what) {
            draft.set(draft.field(node.slot, Inode::ROOT), 0);
        }
        return;
    }
    if draft.mend(class, &place, "found again by its inode's number") {
        set_root(draft, node.slot, size, own);
    }
}

/// Size and mapping root of a file whose blocks are all that is left.
pub(crate) fn content(draft: &Draft, ino: u64) -> (u64, u64) {
    let id = MapRoot::id_of(ino);
    let own = held(draft, &[id])[&id];
    let root = root_of(ino, own.mapped_end * BLOCK_BYTES, own);
    (
        own.mapped_end * BLOCK_BYTES,
        if own.end == 0 { 0 } else { root },
    )
}

/// Blocks without an inode or a name get a nameless file with their number, in the place of the
/// inode. (A blank inode never had blocks, unless it was lost.)
pub(crate) fn ownerless(draft: &mut Draft, survey: &Survey) {
    if !draft.lossy || !draft.wants(Class::MapNobody) {
        return;
    }
    let mut ids = BTreeSet::new();
    each_word(draft, |_, word| {
        if word.state() == MapState::Mapped {
            ids.insert(word.id());
        }
    });
    let known = survey.nodes.list.iter();
    for node in known.filter(|node| node.kind == FileKind::File) {
        ids.remove(&MapRoot::id_of(node.slot));
        if let Some((_, id)) = MapRoot(node.root).get() {
            ids.remove(&id);
        }
    }
    for id in ids {
        let ino = u64::from(id);
        if survey.nodes.find(ino) == Found::Free && draft.inode(ino) == Inode::default() && ino != 0
        {
            let what = "recreated from its blocks: everything else of the file is lost";
            if draft.mend(Class::MapNobody, format_args!("inode {ino}"), what) {
                let (size, root) = content(draft, ino);
                put_file(draft, ino, size, root);
            }
        }
    }
}

fn put_file(draft: &Draft, ino: u64, size: u64, root: u64) {
    let inode = Inode {
        identity: IdentityWord::new(InodeState::Live, FileKind::File, 0o600, 1).0,
        links: LinksWord::new(1, 0).0,
        btime: draft.now_ns,
        atime: draft.now_ns,
        mtime: draft.now_ns,
        ctime: draft.now_ns,
        size,
        root,
        ..Inode::default()
    };
    draft.put_inode(ino, inode);
}

fn root_of(ino: u64, size: u64, own: Held) -> u64 {
    let beyond = own.end > size.div_ceil(BLOCK_BYTES);
    let flag = if beyond { MapRoot::BEYOND } else { 0 };
    MapRoot::new(0, MapRoot::id_of(ino)).0 | flag
}

fn set_root(draft: &Draft, ino: u64, size: u64, own: Held) {
    draft.set(draft.field(ino, Inode::ROOT), root_of(ino, size, own));
}

/// The owner of a mapping id.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    ino: u64,
    size: u64,
    beyond: bool,
}

/// Frees blocks without an owner, and resolves blocks that are mapped twice.
pub(crate) fn table(draft: &mut Draft, survey: &Survey) {
    let mut owners: HashMap<u32, Owner> = HashMap::new();
    let has_trees = draft.geometry.mapping.has_trees();
    // Files by number with no or another mapping root.
    let mut rootless: HashMap<u32, Owner> = HashMap::new();
    for node in &survey.nodes.list {
        if node.kind != FileKind::File {
            continue;
        }
        let root = MapRoot(node.root);
        let owner = Owner {
            ino: node.slot,
            size: node.size,
            beyond: root.is_beyond(),
        };
        let is_own = |id| id == MapRoot::id_of(node.slot);
        match root.get() {
            Some((_, id)) if root.is_sound() && (!has_trees || is_own(id)) => {
                owners.insert(id, owner);
                if !is_own(id) {
                    rootless.insert(MapRoot::id_of(node.slot), owner);
                }
            }
            _ => {
                rootless.insert(MapRoot::id_of(node.slot), owner);
            }
        }
    }
    rootless.retain(|id, _| !owners.contains_key(id));
    if regain_roots(draft, &rootless) {
        return;
    }
    if has_trees {
        return crate::trees::settle(draft, survey, &owners);
    }
    if !draft.geometry.mapping.has_home_lines() {
        return keyed::settle(draft, survey, &owners);
    }
    hold_for_metadata(draft, survey);
    let in_data = survey.blocks_in_data();
    let is_metadata = |block: u64| in_data.iter().any(|blocks| blocks.contains(&block));
    let mut held: Vec<(u64, u64)> = Vec::new();
    let mut wrong = Vec::new();
    each_word(draft, |block, word| match fault(word, &owners) {
        _ if word == MapWord::HELD && is_metadata(block) => {}
        Some((class, what)) => wrong.push((block, word, class, what)),
        None => held.push((word.0 & MapWord::KEY_MASK, block)),
    });
    held.sort_unstable();
    let table = draft.table_plan();
    for (block, word, class, what) in wrong {
        let place = format!("block {block}");
        let loses = class == Class::MapWord;
        let what = format!(
            "freed: {what} (block {} of id {})",
            word.logical(),
            word.id()
        );
        let agreed = if loses {
            draft.give_up(class, place, what)
        } else {
            draft.mend(class, place, what)
        };
        if agreed {
            draft.set(word_at(&table, block), 0);
        }
    }
    for same in held.chunk_by(|a, b| a.0 == b.0) {
        if same.len() > 1 {
            let blocks = same.iter().map(|&(_, block)| block).collect();
            settle_twice(draft, survey, &owners, &table, blocks);
        }
    }
}

/// Makes the table hold the blocks of metadata. Of a file that has one of them too, only bytes of
/// metadata are left there.
fn hold_for_metadata(draft: &mut Draft, survey: &Survey) {
    let table = draft.table_plan();
    for block in survey.blocks_in_data().into_iter().flatten() {
        let at = word_at(&table, block);
        let word = MapWord(draft.word(at));
        let place = format!("block {block}");
        let agreed = match word.state() {
            _ if word == MapWord::HELD => continue,
            MapState::Mapped => {
                let (logical, id) = (word.logical(), word.id());
                let what = format_args!("block {logical} of inode {id} reads as zeros");
                draft.give_up(Class::MapMetadata, place, what)
            }
            _ => draft.mend(Class::MapMetadata, place, "held for its chunk"),
        };
        if agreed {
            draft.set(at, MapWord::HELD.0);
        }
    }
}

/// Restores lost mapping roots. A file with blocks under its number and inside its size, but
/// without such a root, has lost its root: mapping a block makes the root durable before the size
/// covers the block. Returns whether there was one.
fn regain_roots(draft: &mut Draft, rootless: &HashMap<u32, Owner>) -> bool {
    if rootless.is_empty() {
        return false;
    }
    let mut found: BTreeMap<u32, Owner> = BTreeMap::new();
    each_word(draft, |_, word| {
        if let Some(owner) = rootless.get(&word.id())
            && word.state() == MapState::Mapped
            && u64::from(word.logical()) < owner.size.div_ceil(BLOCK_BYTES)
        {
            found.insert(word.id(), *owner);
        }
    });
    let ids: Vec<u32> = found.keys().copied().collect();
    if ids.is_empty() {
        return false;
    }
    let held = held(draft, &ids);
    let mut mended = false;
    for (id, owner) in found {
        let what = "its mapping root is restored";
        if draft.mend(Class::MapNobody, format_args!("inode {}", owner.ino), what) {
            set_root(draft, owner.ino, owner.size, held[&id]);
            mended = true;
        }
    }
    mended
}

/// The error of a single word of the table.
pub(crate) fn fault(word: MapWord, owners: &HashMap<u32, Owner>) -> Option<(Class, &'static str)> {
    match word.state() {
        MapState::Free => return Some((Class::MapWord, "it is marked free, but not zero")),
        MapState::Limbo => return Some((Class::Limbo, "freed before")),
        MapState::Mapped | MapState::Unwritten => {}
    }
    let Some(owner) = owners.get(&word.id()) else {
        return Some((Class::MapNobody, "no file has it"));
    };
    let past = u64::from(word.logical()) >= owner.size.div_ceil(BLOCK_BYTES);
    let allowed = word.state() == MapState::Unwritten && owner.beyond;
    (past && !allowed).then_some((Class::MapPastEnd, "past the end of its file"))
}

/// Pool offset of the word through which a block was found.
fn word_at(table: &TablePlan, block: u64) -> u64 {
    let at = table.word_at(block);
    at.expect("the block was found by its word")
}

/// Resolves several blocks for the same part of a file: the written one stays, otherwise the one
/// that readers find first. Another one with other bytes goes to lost+found.
fn settle_twice(
    draft: &mut Draft,
    survey: &Survey,
    owners: &HashMap<u32, Owner>,
    table: &TablePlan,
    mut blocks: Vec<u64>,
) {
    if !draft.wants(Class::MapTwice) {
        return;
    }
    let word_of = |draft: &Draft, block: u64| MapWord(draft.word(word_at(table, block)));
    let homes = draft.geometry.homes(draft.superblock.hash_seed);
    blocks.sort_by_key(|&block| {
        let word = word_of(draft, block);
        let home = homes.line(word.id(), word.logical());
        let written = word.state() == MapState::Mapped;
        (!written, block / LINE_ENTRIES != home, block)
    });
    let kept = bytes_of(draft, blocks[0]);
    let is_kept = |bytes: Option<_>| bytes.is_some() && bytes == kept;
    for &block in &blocks[1..] {
        let word = word_of(draft, block);
        let at = word_at(table, block);
        let place = format!("block {block}");
        let owner = owners[&word.id()];
        if word.state() != MapState::Mapped || is_kept(bytes_of(draft, block)) {
            let what = format_args!("freed: block {} has the same bytes", blocks[0]);
            if draft.mend(Class::MapTwice, place, what) {
                draft.set(at, 0);
            }
            continue;
        }
        rescue_block(draft, survey, &owner, (block, at), blocks[0]);
    }
}

/// Turns a block, whose word is at `at`, into a file in lost+found; `kept` stays in the file that
/// both claim.
fn rescue_block(
    draft: &mut Draft,
    survey: &Survey,
    owner: &Owner,
    (block, at): (u64, u64),
    kept: u64,
) {
    if draft.full {
        return;
    }
    let offset = u64::from(MapWord(draft.word(at)).logical()) * BLOCK_BYTES;
    let made = draft.make_inode(survey, FileKind::File, 0o600, |ino, inode| {
        inode.size = (owner.size - offset).min(BLOCK_BYTES);
        inode.root = MapRoot::new(0, MapRoot::id_of(ino)).0;
    });
    let Some(made) = made else {
        draft.full = true;
        return;
    };
    let name = format!("#{}.at-{offset}", owner.ino);
    let Some(name) = draft.adopt(survey, &name, made) else {
        draft.free_inode(made.ino);
        return;
    };
    let what = format_args!(
        "put into /lost+found as {name:?}: block {kept} stays in inode {}",
        owner.ino
    );
    // The caller asked whether this is allowed.
    let _ = draft.mend(Class::MapTwice, format_args!("block {block}"), what);
    draft.set(
        at,
        MapWord::new(MapState::Mapped, MapRoot::id_of(made.ino), 0).0,
    );
}

/// The bytes of a block, if it is readable.
pub(crate) fn bytes_of(draft: &Draft, block: u64) -> Option<[u8; BLOCK_BYTES as usize]> {
    let at = draft.geometry.data_at + block * BLOCK_BYTES;
    let mut bytes = [0; BLOCK_BYTES as usize];
    draft.overlay.read(at, &mut bytes).is_ok().then_some(bytes)
}

/// Data blocks without a file, one bit each.
pub(crate) struct Room {
    used: Vec<u64>,
    blocks: u64,
    next: u64,
}

impl Room {
    /// All blocks except those in `used`, which are all that files have.
    pub(crate) fn beside(draft: &Draft, used: impl IntoIterator<Item = u64>) -> Self {
        let blocks = draft.geometry.blocks();
        let mut bits = vec![0; blocks.div_ceil(64) as usize];
        for block in used {
            bits[(block / 64) as usize] |= 1 << (block % 64);
        }
        Self {
            used: bits,
            blocks,
            next: 0,
        }
    }

    /// Copies a readable block into a free one.
    pub(crate) fn copy(&mut self, draft: &Draft, block: u64) -> Option<u64> {
        let bytes = bytes_of(draft, block)?;
        let is_free = |block: &u64| self.used[(block / 64) as usize] >> (block % 64) & 1 == 0;
        let mut free = (self.next..self.blocks).filter(is_free);
        let copy = free.find(|&block| bytes_of(draft, block).is_some())?;
        self.next = copy + 1;
        let at = draft.geometry.data_at + copy * BLOCK_BYTES;
        draft.overlay.set_bytes(at, &bytes);
        Some(copy)
    }
}
