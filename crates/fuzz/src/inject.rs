//! Injects changes, read from an input, into a pool.

use vellum_layout::{
    AREA_TABLE_LINES, AreaCounts, AreaExtentHead, AreaLife, AreaLine, AreaPhase, AreaTableHead,
    BLOCK_BYTES, ChunkKind, ChunkWord, Entry, EntryHead, IdentityWord, Inode, JOURNAL_MAX_PAIRS,
    JournalHead, JournalPair, LogExtentHead, LogOwner, LogPosition, MapRoot, MapWord, MoveListHead,
    MovedEntry, NAME_MAX, NameRecord, NamespaceKind, PATH_MAX, PathEntryHead, PathSeal, PoolState,
    SLOT_BYTES, StateWord, Superblock, TEXT_MAX, TableRoot, XattrHead, checksum, checksum_words,
    name_hash, text_check,
};
use zerocopy::IntoBytes;

use crate::input::Input;
use crate::maps;
use crate::sample::{Sample, Structure, StructureKind};

/// Reads one change of a structure of class `part` from `input`, and applies it.
///
/// The first byte chooses the structure. The next says what happens to its checksum, which is made
/// to fit three times in four. Two bytes say where the change begins, and one says what kind of
/// change it is. The rest is the value.
pub fn change(sample: &mut Sample, part: StructureKind, input: &mut Input<'_>) {
    let place = *input.pick(&sample.structures(part));
    let seal = input.u8() & 3;
    let at = place.at + u64::from(input.u16()) % place.bytes;
    let word_at = place.at + (at - place.at) / 8 * 8;
    match input.u8() % 8 {
        0 => sample.bytes_mut(at, 1)[0] = input.u8(),
        1 => sample.bytes_mut(at, 1)[0] ^= 1 << (input.u8() % 8),
        2 => {
            let more = input.u8() as i8;
            let value = sample.word(word_at).wrapping_add_signed(more.into());
            sample.set_word(word_at, value);
        }
        3 => {
            // Half a word, because some fields have this size.
            let value = number(sample, input) as u32;
            let half = place.at + (at - place.at) / 4 * 4;
            sample
                .bytes_mut(half, 4)
                .copy_from_slice(&value.to_le_bytes());
        }
        4 => {
            // The value that another structure of this class has there.
            let other = *input.pick(&sample.structures(part));
            let from = other.at + (word_at - place.at) % other.bytes;
            let value = sample.word(from / 8 * 8);
            sample.set_word(word_at, value);
        }
        5 => {
            let raw = input.bytes((place.at + place.bytes - at).min(32) as usize);
            sample.bytes_mut(at, raw.len() as u64).copy_from_slice(raw);
        }
        _ => {
            let value = number(sample, input);
            sample.set_word(word_at, value);
        }
    }
    finish(sample, part, place, seal);
}

/// Puts the input's bytes unchanged over a structure of class `part`.
pub fn inject_raw(sample: &mut Sample, part: StructureKind, input: &mut Input<'_>) {
    let place = *input.pick(&sample.structures(part));
    let seal = input.u8() & 3;
    let raw = input.bytes(place.bytes as usize);
    sample
        .bytes_mut(place.at, raw.len() as u64)
        .copy_from_slice(raw);
    finish(sample, part, place, seal);
}

/// Makes the checksum of a structure fit its content.
pub fn seal(sample: &mut Sample, part: StructureKind, place: Structure) {
    finish(sample, part, place, 0);
}

/// A number that is likely to expose errors.
fn number(sample: &Sample, input: &mut Input<'_>) -> u64 {
    let geometry = sample.geometry;
    let slot = |structures: Vec<Structure>, input: &mut Input<'_>| input.pick(&structures).number;
    match input.u8() % 16 {
        0 => input.u8().into(),
        1 => input.u16().into(),
        2 => 1 << (input.u8() % 64),
        3 => (1u64 << (input.u8() % 64)).wrapping_sub(1),
        4 => u64::from(input.u8()).wrapping_neg(),
        5 => slot(sample.structures(StructureKind::Inode), input),
        6 => slot(sample.structures(StructureKind::Entry), input),
        7 => slot(sample.structures(StructureKind::Extent), input),
        8 => slot(sample.structures(StructureKind::Entry), input) << 1,
        9 => {
            geometry.slot_at(slot(sample.structures(StructureKind::Inode), input))
                + u64::from(input.u8())
        }
        10 => {
            geometry.slot_at(slot(sample.structures(StructureKind::Entry), input))
                + u64::from(input.u8())
        }
        11 => {
            MapRoot::new(
                0,
                slot(sample.structures(StructureKind::Inode), input) as u32,
            )
            .0
        }
        12 => {
            let id = slot(sample.structures(StructureKind::Inode), input);
            u64::from(input.u8() & 3) << 62 | MapWord::key(id as u32, input.u8().into())
        }
        13 => *input.pick(&[
            geometry.meta_slots(),
            geometry.meta_at,
            geometry.table_at,
            geometry.data_at,
            geometry.pool_bytes,
            geometry.segment_blocks,
        ]),
        14 => match sample.structures(StructureKind::Xattrs) {
            pieces if pieces.is_empty() => input.u64(),
            pieces => (input.pick(&pieces).at - geometry.meta_at) / SLOT_BYTES,
        },
        _ => input.u64(),
    }
}

/// Leaves the checksum as it is, or makes it fit, together with what is derived from the name.
fn finish(sample: &mut Sample, part: StructureKind, place: Structure, seal: u8) {
    if seal != 3 {
        match part {
            StructureKind::Superblock => seal_superblock(sample),
            StructureKind::State => seal_state(sample),
            StructureKind::LiveMap => {
                let map = sample.bytes(place.at, place.bytes);
                let check = u64::from(checksum(map));
                let at = sample.geometry.state_at + PoolState::LIVE_MAP_CHECK;
                sample.set_word(at, check);
                seal_state(sample);
            }
            StructureKind::Journal => seal_journal(sample, place),
            StructureKind::Chunk => seal_chunk(sample, place),
            StructureKind::Inode => {
                let mut inode: Inode = sample.read(place.at);
                inode.checksum = inode.expected_checksum(place.number);
                let bytes = inode.as_bytes();
                sample
                    .bytes_mut(place.at, SLOT_BYTES)
                    .copy_from_slice(bytes);
            }
            StructureKind::Entry => match sample.geometry.namespace {
                NamespaceKind::Direct => seal_entry(sample, place, seal),
                NamespaceKind::Tree => seal_record(sample, place, seal),
                NamespaceKind::Adaptive => seal_path_entry(sample, place),
            },
            StructureKind::Extent => match sample.geometry.namespace {
                NamespaceKind::Direct | NamespaceKind::Adaptive => seal_extent(sample, place),
                NamespaceKind::Tree => seal_block_of_records(sample, place),
            },
            StructureKind::Text => seal_text(sample, place),
            StructureKind::Xattrs => seal_xattrs(sample, place),
            StructureKind::Map => maps::seal(sample, place),
            StructureKind::Area => seal_area(sample, place, seal),
            StructureKind::AreaExtent => seal_area_extent(sample, place),
            StructureKind::MoveList => seal_list(sample, place),
            StructureKind::LogWord | StructureKind::States => {}
        }
    }
    if part == StructureKind::Superblock {
        let block = sample.bytes(0, BLOCK_BYTES).to_vec();
        for at in [BLOCK_BYTES, sample.geometry.last_copy_at] {
            sample.bytes_mut(at, BLOCK_BYTES).copy_from_slice(&block);
        }
    }
}

fn seal_superblock(sample: &mut Sample) {
    let mut superblock: Superblock = sample.read(0);
    superblock.seal();
    let bytes = superblock.as_bytes();
    sample.bytes_mut(0, BLOCK_BYTES).copy_from_slice(bytes);
}

fn seal_state(sample: &mut Sample) {
    let at = sample.geometry.state_at;
    let low = sample.word(at + PoolState::WORD) & 0xFFFF_FFFF;
    let check = u64::from(checksum_words(&[low]));
    sample.set_word(at + PoolState::WORD, low | check << 32);
    let word = |field| sample.word(at + field);
    let saved = [
        word(PoolState::LIVE_MAP_CHECK),
        word(PoolState::INODES),
        word(PoolState::BLOCKS),
    ];
    let check = u64::from(checksum_words(&saved));
    sample.set_word(at + PoolState::SAVED_CHECK, check);
}

fn seal_journal(sample: &mut Sample, place: Structure) {
    let head = JournalHead(sample.word(place.at + JournalHead::AT));
    let pairs: Vec<_> = (0..head.count().min(JOURNAL_MAX_PAIRS) as u64)
        .map(|pair| place.at + JournalHead::PAIRS + 16 * pair)
        .map(|at| JournalPair {
            at: sample.word(at),
            value: sample.word(at + 8),
        })
        .collect();
    let check = head.seal(place.number, &pairs);
    sample.set_word(place.at + JournalHead::CHECK, check);
}

fn seal_chunk(sample: &mut Sample, place: Structure) {
    let word = sample.word(place.at);
    let kind = match word & 7 {
        1 => ChunkKind::Inodes,
        2 => ChunkKind::Entries,
        3 => ChunkKind::Blocks,
        4 => ChunkKind::Areas,
        _ => ChunkKind::Free,
    };
    let sealed = ChunkWord::new(place.number, kind, (word >> 8) as u8);
    sample.set_word(place.at, sealed.0);
}

/// The generation of the inode in a metadata slot; 0 if there is no such slot.
fn generation_of(sample: &Sample, slot: u64) -> u32 {
    if slot >= sample.geometry.meta_slots() {
        return 0;
    }
    IdentityWord(sample.word(sample.geometry.slot_at(slot))).generation()
}

fn seal_entry(sample: &mut Sample, place: Structure, seal: u8) {
    let mut head: EntryHead = sample.read(place.at);
    let len = u64::from(head.name_len).min(NAME_MAX as u64);
    let name = sample.bytes(place.at + Entry::NAME, len).to_vec();
    if seal != 2 {
        head.name_hash = name_hash(sample.hash_seed, &name);
    }
    let mut sealed = [0; 384];
    Entry::encode(
        &head,
        &name,
        generation_of(sample, head.parent),
        &mut sealed,
    );
    sample
        .bytes_mut(place.at, Entry::NAME)
        .copy_from_slice(&sealed[..Entry::NAME as usize]);
}

/// Seals an entry with a path for the area whose line the entry names in the first block of the
/// table.
fn seal_path_entry(sample: &mut Sample, place: Structure) {
    let head: PathEntryHead = sample.read(place.at);
    let len = u64::from(head.path_len).min(PATH_MAX as u64);
    let path = sample.bytes(place.at + PathEntryHead::PATH, len).to_vec();
    let number = u64::from(head.area) % AREA_TABLE_LINES;
    let line: AreaLine = sample.read(sample.structures(StructureKind::Area)[0].at + 64 * number);
    let own = PathSeal {
        area: line.generation,
        slot: place.number,
        directory: generation_of(sample, head.parent),
    };
    let sealed = head.sealed(&path, own);
    sample
        .bytes_mut(place.at, PathEntryHead::PATH)
        .copy_from_slice(sealed.as_bytes());
}

/// Seals a piece of attributes. A length that reaches out of a block stays unsound.
fn seal_xattrs(sample: &mut Sample, place: Structure) {
    let mut head: XattrHead = sample.read(place.at);
    let len = u64::from(head.len).min(XattrHead::BLOCK_MAX as u64);
    let records = sample.bytes(place.at + size_of::<XattrHead>() as u64, len);
    let generation = generation_of(sample, place.number);
    head.checksum = head.expected_checksum(place.number, generation, records);
    sample
        .bytes_mut(place.at, size_of::<XattrHead>() as u64)
        .copy_from_slice(head.as_bytes());
}

fn seal_area(sample: &mut Sample, place: Structure, seal: u8) {
    if place.number == 0 {
        let head: AreaTableHead = sample.read(place.at);
        let checksum = AreaTableHead::new(sample.geometry.areas.table, head.number).checksum;
        let sealed = AreaTableHead { checksum, ..head };
        sample
            .bytes_mut(place.at, place.bytes)
            .copy_from_slice(sealed.as_bytes());
        return;
    }
    let (line, number): (AreaLine, _) = (sample.read(place.at), place.number as u32);
    let phase = AreaPhase::from_u8(line.word as u8 & 3).unwrap_or(AreaPhase::Free);
    let root_generation = match seal {
        2 => line.root_generation,
        _ => generation_of(sample, line.root),
    };
    let new = AreaLine::new(line.life(number), phase, line.root, root_generation);
    let mut sealed = AreaLine {
        formed: line.formed,
        ..new
    };
    if (line.table, line.saved) != (0, 0) {
        let state = StateWord(sample.word(sample.geometry.state_at + PoolState::WORD));
        let epoch = state.get().map_or(0, |(_, epoch)| epoch);
        let counts = AreaCounts {
            names: line.saved as u32,
            restricting: (line.saved >> 32) as u32,
        };
        sealed = sealed.saving(number, epoch, TableRoot(line.table), counts);
    }
    sample
        .bytes_mut(place.at, place.bytes)
        .copy_from_slice(sealed.as_bytes());
}

fn seal_area_extent(sample: &mut Sample, place: Structure) {
    let head: AreaExtentHead = sample.read(place.at);
    let area = AreaLife {
        number: head.area,
        generation: head.generation,
    };
    let sealed = AreaExtentHead {
        reserved: head.reserved,
        ..AreaExtentHead::new(place.number, area)
    };
    sample
        .bytes_mut(place.at, place.bytes)
        .copy_from_slice(sealed.as_bytes());
}

/// A list with more entries than fit into its bytes stays unsound.
fn seal_list(sample: &mut Sample, place: Structure) {
    let head: MoveListHead = sample.read(place.at);
    let first = place.at + size_of::<MoveListHead>() as u64;
    let each = size_of::<MovedEntry>() as u64;
    let room = (place.at + place.bytes - first) / each;
    if u64::from(head.count) > room {
        return;
    }
    let entries = (0..u64::from(head.count)).map(|i| sample.read(first + i * each));
    let entries: Vec<MovedEntry> = entries.collect();
    let block = MoveListHead::encode(place.number, head.next, &entries);
    sample
        .bytes_mut(place.at, place.bytes)
        .copy_from_slice(&block[..place.bytes as usize]);
}

/// Unknown flags are kept, and stay unsound.
fn seal_extent(sample: &mut Sample, place: Structure) {
    let head: LogExtentHead = sample.read(place.at);
    let sealed = LogExtentHead::new(
        place.number,
        head.owner,
        generation_of(sample, head.owner),
        head.base_cookie,
        head.kind(),
        head.is_compacted(),
    );
    let sealed = LogExtentHead {
        next: head.next,
        flags: head.flags,
        ..sealed
    };
    let bytes = sealed.as_bytes();
    sample
        .bytes_mut(place.at, bytes.len() as u64)
        .copy_from_slice(bytes);
}

/// Seals the record of a name in the log of the directory that the location's number identifies.
fn seal_record(sample: &mut Sample, place: Structure, seal: u8) {
    let mut record: NameRecord = sample.read(place.at);
    let len = u64::from(record.name_len).min(place.bytes - NameRecord::NAME);
    let name = sample.bytes(place.at + NameRecord::NAME, len).to_vec();
    if seal != 2 {
        record.name_hash = name_hash(sample.hash_seed, &name);
    }
    let block = place.at / BLOCK_BYTES * BLOCK_BYTES;
    let slot = (block - sample.geometry.meta_at) / SLOT_BYTES;
    let log_place = LogPosition::new(slot, place.at - block);
    let record = record.sealed(&name, log_place, owner_of(sample, place.number));
    let bytes = record.as_bytes();
    sample
        .bytes_mut(place.at, NameRecord::NAME)
        .copy_from_slice(bytes);
}

/// Unknown flags are kept, and stay unsound.
fn seal_block_of_records(sample: &mut Sample, place: Structure) {
    let head: LogExtentHead = sample.read(place.at);
    let owner = owner_of(sample, head.owner);
    let sealed = LogExtentHead {
        next: head.next,
        flags: head.flags,
        ..LogExtentHead::of_records(place.number, owner, head.base_cookie)
    };
    let bytes = sealed.as_bytes();
    sample
        .bytes_mut(place.at, bytes.len() as u64)
        .copy_from_slice(bytes);
}

fn owner_of(sample: &Sample, slot: u64) -> LogOwner {
    LogOwner {
        slot,
        generation: generation_of(sample, slot),
    }
}

fn seal_text(sample: &mut Sample, place: Structure) {
    let inode: Inode = sample.read(sample.geometry.slot_at(place.number));
    let generation = generation_of(sample, place.number);
    let text = sample.bytes(place.at, inode.size.min(TEXT_MAX as u64));
    let check = text_check(place.number, generation, text);
    sample.set_word(sample.geometry.slot_at(place.number) + Inode::DETAIL, check);
}
