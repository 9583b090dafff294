//! Copies of the superblock, journals, the chunk table, the epoch.

use std::collections::BTreeSet;

use vellum_check::survey::{self, Record, Survey, UndoLog};
use vellum_check::{Class, Image};
use vellum_layout::{
    BLOCK_BYTES, ChunkKind, ChunkWord, CommittedWord, Entry, EntryHead, FileKind, IdentityWord,
    Inode, InodeState, JournalHead, LogExtentHead, LogExtentKind, MapWord, PoolHeader, SLOT_BYTES,
    SLOTS_PER_BLOCK, Superblock, TablePart, UNDO_RECORD_BYTES, UndoPlan, table_parts,
};
use vellum_media::LINE_BYTES;
use zerocopy::{FromBytes, IntoBytes};

use crate::draft::Draft;
use crate::xattrs;

/// Writes the current superblock over every copy.
pub(crate) fn superblocks(draft: &mut Draft) {
    let bytes = draft.superblock.as_bytes().to_vec();
    let last = draft.superblock.last_copy_at;
    for (name, at) in [
        ("first copy", 0),
        ("second copy", BLOCK_BYTES),
        ("last copy", last),
    ] {
        let there: [u8; BLOCK_BYTES as usize] = draft.overlay.bytes(at);
        let place = format_args!("superblock, {name}");
        if there[..] != bytes[..]
            && draft.mend(Class::SuperblockCopy, place, "written from a sound one")
        {
            draft.overlay.set_bytes(at, &bytes);
        }
    }
}

/// Whether blocks of the undo log are unreadable: then it is unknown what must be rolled back.
fn is_undo_lost(superblock: &Superblock, lost: &BTreeSet<u64>) -> bool {
    let geometry = superblock.geometry();
    let versions = geometry.undo_at..geometry.undo_at + geometry.undo_bytes;
    lost.range(versions).next().is_some()
}

/// Whether the metadata of a split pool must be rolled back to the last commit before anything
/// else.
pub(crate) fn is_ahead(image: &dyn Image, superblock: &Superblock, lost: &BTreeSet<u64>) -> bool {
    let found = survey::versions(image, superblock);
    let can_be_told = |found: &UndoLog| found.is_sound() && !is_undo_lost(superblock, lost);
    found.is_some_and(|found| can_be_told(&found) && found.is_ahead())
}

/// Declares everything committed if it is unknown what was not: committed changes are then
/// complete. Returns the undo log if data of some granules may not have arrived; in a closed pool
/// all of them arrived.
pub(crate) fn versions(draft: &mut Draft, was_clean: bool) -> Option<UndoLog> {
    let plan = UndoPlan::of(&draft.geometry)?;
    let found = survey::versions(draft.overlay, draft.superblock)?;
    let are_lost = is_undo_lost(draft.superblock, draft.overlay.lost());
    if found.is_sound() && !(are_lost && found.is_ahead()) {
        return None;
    }
    let what = format_args!(
        "everything counts as committed: transaction {}",
        found.latest
    );
    if !draft.mend(Class::UndoLog, format_args!("offset {}", plan.at), what) {
        return None;
    }
    for &at in &found.impossible {
        draft
            .overlay
            .set_bytes(at, &[0; UNDO_RECORD_BYTES as usize]);
    }
    draft.overlay.set_bytes(plan.at, &[0; LINE_BYTES as usize]);
    let word = CommittedWord::new(found.latest).0;
    draft.set(plan.at + PoolHeader::COMMITTED, word);
    (!was_clean).then_some(found)
}

/// Replays committed records if `replay` is set, and retires all records. A cleanly closed pool has
/// no running record: a record in it is an old one, whose words have changed since.
pub(crate) fn journals(draft: &mut Draft, replay: bool) {
    let geometry = draft.geometry;
    for (slot, record) in survey::journals(draft.overlay, &geometry) {
        let (class, what) = match &record {
            Record::Retired => continue,
            Record::Unsound => (Class::JournalUnsound, "retired: it is not a record"),
            Record::Torn(_) => (Class::JournalPending, "retired: it never committed"),
            Record::Committed(pairs) => {
                let stores = pairs.iter().filter(|pair| pair.witnessed().is_none());
                let mut stores = stores.peekable();
                if stores
                    .clone()
                    .any(|pair| !survey::may_store(draft.overlay, &geometry, pair))
                {
                    let what = "retired: it stores outside the metadata";
                    (Class::JournalUnsound, what)
                } else if replay && stores.peek().is_some() {
                    for pair in stores {
                        draft.set(pair.at, pair.value);
                    }
                    (Class::JournalPending, "replayed, and retired")
                } else {
                    (Class::JournalPending, "retired: it is an old one")
                }
            }
        };
        if draft.mend(class, format_args!("thread slot {slot}"), what) {
            draft.set(geometry.thread_slot_at(slot) + JournalHead::AT, 0);
        }
    }
}

/// The epoch in front of the largest gap between the epochs of inodes' cachelet words, which are
/// valid only in their own epoch.
pub(crate) fn unused_epoch(draft: &Draft) -> u32 {
    let survey = Survey::of(draft.overlay, draft.superblock);
    let replica = survey.nodes.list.iter().map(|node| {
        let word = draft.word(draft.field(node.slot, Inode::CACHELET));
        (word >> 40) as u32
    });
    let epochs: Vec<u32> = replica.collect::<BTreeSet<_>>().into_iter().collect();
    let (Some(&first), Some(&last)) = (epochs.first(), epochs.last()) else {
        return 0;
    };
    let around = (last, first + (1 << 24) - last);
    let gaps = epochs.windows(2).map(|pair| (pair[0], pair[1] - pair[0]));
    gaps.chain([around])
        .max_by_key(|gap| gap.1)
        .map_or(0, |gap| gap.0)
}

/// Reconstructs unsound chunk words. The first chunk holds the root, so inodes.
pub(crate) fn chunks(draft: &mut Draft, survey: &Survey) {
    let per_chunk = draft.geometry.slots_per_chunk();
    let unsound = draft.geometry.chunks();
    let unsound = unsound.filter(|chunk| survey.chunks.kind_of(chunk * per_chunk).is_none());
    let (of_data, mut unsound): (Vec<u64>, Vec<u64>) =
        unsound.partition(|&chunk| is_of_data(draft, survey, chunk));
    for chunk in of_data {
        set_chunk(draft, chunk, ChunkKind::Free);
    }
    if survey.chunks.kind_of(0) != Some(ChunkKind::Inodes) {
        set_chunk(draft, 0, ChunkKind::Inodes);
        unsound.retain(|&chunk| chunk != 0);
    }
    if draft.has_areas() {
        // The superblock's value is under a checksum.
        let table = draft.geometry.areas.table;
        let chunk = table / per_chunk;
        if chunk != 0 && survey.chunks.kind_of(table) != Some(ChunkKind::Blocks) {
            set_chunk(draft, chunk, ChunkKind::Blocks);
            unsound.retain(|&other| other != chunk);
        }
    }
    // Entries and extents are confirmed by inodes, so chunks of inodes come first.
    let (inodes, mut others): (Vec<u64>, Vec<u64>) = unsound
        .into_iter()
        .partition(|&chunk| holds_inode(draft, chunk));
    for &chunk in &inodes {
        set_chunk(draft, chunk, ChunkKind::Inodes);
    }
    if inodes.is_empty() {
        others.sort_by_key(|&chunk| is_blank(draft, chunk));
        for chunk in others {
            match kind_by_contents(draft, survey, chunk) {
                ChunkKind::Free => set_free_or_table(draft, chunk),
                kind => set_chunk(draft, chunk, kind),
            }
        }
    }
}

/// Whether the blocks of a chunk are data: if the table does not hold all of them, or a file has
/// one of them.
fn is_of_data(draft: &Draft, survey: &Survey, chunk: u64) -> bool {
    let geometry = &draft.geometry;
    if !geometry.chunks_of_data().contains(&chunk) {
        return false;
    }
    let mut blocks = geometry.blocks_of_chunk(chunk);
    if geometry.mapping.has_home_lines() {
        let table = draft.table_plan();
        let word = |block| table.word_at(block).map(|at| draft.word(at));
        return blocks.any(|block| word(block) != Some(MapWord::HELD.0));
    }
    let mut of_files = survey.trees.blocks.iter();
    of_files.any(|found| blocks.contains(&found.block))
}

fn set_chunk(draft: &mut Draft, chunk: u64, kind: ChunkKind) {
    let what = format!("holds {kind:?}, according to its contents");
    set_chunk_word(draft, chunk, ChunkWord::new(chunk, kind, 0), what);
}

/// A chunk without self-verifying structures is free, unless it has contents and an added segment
/// lacks a part of its words: then the chunk is that part, if it can be no other and no other chunk
/// claims it.
fn set_free_or_table(draft: &mut Draft, chunk: u64) {
    match *draft.table_plan().missing() {
        [TablePart { segment, part, .. }] if !is_claimed(draft, (segment, part)) => {
            let what = format!(
                "holds part {part} of the words of blocks of segment {segment}, which lacks it"
            );
            set_chunk_word(
                draft,
                chunk,
                ChunkWord::of_table(chunk, segment, part),
                what,
            );
        }
        [] => set_chunk(draft, chunk, ChunkKind::Free),
        _ if is_blank(draft, chunk) => set_chunk(draft, chunk, ChunkKind::Free),
        // It is unknown which part it is; only a copy of the pool helps.
        _ => {}
    }
}

/// Whether a chunk claims to be this part of the words of an added segment. If several do, it is
/// unknown which one is.
fn is_claimed(draft: &Draft, part: (u32, u64)) -> bool {
    table_parts(&draft.geometry, |at| draft.word(at)).any(|(of, _)| of == part)
}

fn is_blank(draft: &Draft, chunk: u64) -> bool {
    let at = draft.geometry.chunk_at(chunk);
    let mut words = (0..draft.geometry.chunk_bytes).step_by(8);
    words.all(|word| draft.word(at + word) == 0)
}

fn set_chunk_word(draft: &mut Draft, chunk: u64, word: ChunkWord, what: String) {
    draft.hidden = true;
    if draft.mend(Class::ChunkWord, format_args!("chunk {chunk}"), what) {
        draft.set(draft.geometry.chunk_word_at(chunk), word.0);
    }
}

fn slots_of(draft: &Draft, chunk: u64) -> std::ops::Range<u64> {
    draft.geometry.slots_of_chunk(chunk)
}

fn holds_inode(draft: &Draft, chunk: u64) -> bool {
    slots_of(draft, chunk).any(|slot| {
        let inode = draft.inode(slot);
        // A freed inode keeps its checksum.
        let live = IdentityWord(inode.identity).with_state(InodeState::Live);
        let inode = Inode {
            identity: live.0,
            ..inode
        };
        inode.is_sound(slot)
    })
}

/// The kind of a chunk without inodes, as confirmed by the inodes.
fn kind_by_contents(draft: &Draft, survey: &Survey, chunk: u64) -> ChunkKind {
    if draft.has_areas() && slots_of(draft, chunk).any(|slot| draft.path_entry(slot).is_some()) {
        return ChunkKind::Areas;
    }
    if slots_of(draft, chunk).any(|slot| holds_entry(draft, slot)) {
        return ChunkKind::Entries;
    }
    for slot in slots_of(draft, chunk) {
        match extent_at(draft, slot) {
            Some(LogExtentKind::Small) => return ChunkKind::Entries,
            Some(LogExtentKind::Large) if slot % SLOTS_PER_BLOCK == 0 => return ChunkKind::Blocks,
            _ => {}
        }
    }
    let links = survey.nodes.list.iter();
    let text = links
        .filter(|node| {
            node.kind == FileKind::Symlink && slots_of(draft, chunk).contains(&node.root)
        })
        .find_map(|node| crate::inodes::text_by_check(draft, node));
    if let Some(len) = text {
        return vellum_layout::text_home(len).0;
    }
    let kind = xattrs::kind_by_pieces(draft, survey, slots_of(draft, chunk));
    kind.unwrap_or(ChunkKind::Free)
}

/// Whether a sound entry of an existing directory lies at `slot`.
pub(crate) fn holds_entry(draft: &Draft, slot: u64) -> bool {
    entry_at(draft, slot).is_some()
}

/// The sound entry at `slot`, and its name.
pub(crate) fn entry_at(draft: &Draft, slot: u64) -> Option<(EntryHead, Vec<u8>)> {
    let at = draft.geometry.slot_at(slot);
    let bytes: [u8; 384] = draft.overlay.bytes(at);
    let head = EntryHead::read_from_prefix(&bytes).ok()?.0;
    let parent = draft.inode(head.parent.min(draft.geometry.meta_slots() - 1));
    let generation = IdentityWord(parent.identity).generation();
    let in_range = head.parent != 0 && head.parent < draft.geometry.meta_slots();
    if !in_range || !Entry::is_sound(&bytes, generation) {
        return None;
    }
    let name = bytes[Entry::NAME as usize..][..usize::from(head.name_len)].to_vec();
    Some((head, name))
}

/// The size of the sound log extent at `slot`, if there is one.
pub(crate) fn extent_at(draft: &Draft, slot: u64) -> Option<LogExtentKind> {
    let bytes: [u8; SLOT_BYTES as usize] = draft.overlay.bytes(draft.geometry.slot_at(slot));
    let head = LogExtentHead::read_from_prefix(&bytes).ok()?.0;
    let in_range = head.owner != 0 && head.owner < draft.geometry.meta_slots();
    let owner = in_range.then(|| draft.inode(head.owner))?;
    let generation = IdentityWord(owner.identity).generation();
    head.is_sound(slot, head.owner, generation)
        .then(|| head.kind())
}
