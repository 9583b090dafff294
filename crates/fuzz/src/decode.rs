//! Runs every decoder of the format on arbitrary bytes.

use vellum_layout::{
    AreaExtentHead, AreaLine, AreaPhase, AreaTableHead, BLOCK_BYTES, ChunkKind, ChunkWord,
    DATASET_ALIGN, DevicePaths, Entry, EntryHead, ExtentBody, ExtentKey, ExtentNodeHead,
    ExtentRoot, ExtentSeal, IdentityWord, Inode, JOURNAL_MAX_PAIRS, JournalHead, JournalPair,
    KeyedWord, LogExtentHead, LogOwner, LogPosition, LogWord, MEDIUM_MAGIC, MEDIUM_PATH_MAX,
    MapRoot, MapState, MapWord, MediumHead, MoveListHead, NAME_MAX, NameRecord,
    PATH_ENTRY_MAX_BYTES, PathEntryHead, PathSeal, RECORD_MAX_BYTES, REPLICA_MAGIC, ReplicaHead,
    ReplicaPlan, StateMapWord, StateWord, Superblock, TEXT_MAX, TableRoot, TargetWord, TreeWord,
    XATTR_LIST_MAX, Xattr, XattrHead, read_xattrs, text_check, xattr_flags,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::sample::StructureKind;

/// Decodes `bytes`, padded with zeros, as a structure of class `part`.
///
/// # Panics
/// If the decoded value contradicts the bytes.
pub fn decode(part: StructureKind, bytes: &[u8]) {
    let word = padded::<u64>(bytes);
    match part {
        StructureKind::Superblock => {
            decode_superblock(bytes);
            decode_medium(bytes);
        }
        StructureKind::State | StructureKind::LiveMap => {
            if let Some((phase, epoch)) = StateWord(word).get() {
                assert_eq!(StateWord::new(phase, epoch).0, word);
            }
        }
        StructureKind::Journal => decode_journal(bytes),
        StructureKind::Chunk => decode_chunk(word),
        StructureKind::Inode => decode_inode(bytes),
        StructureKind::Entry => {
            decode_entry(bytes);
            decode_record(bytes);
            decode_path_entry(bytes);
        }
        StructureKind::Extent => decode_extent(bytes),
        StructureKind::LogWord => {
            let log = LogWord(word);
            assert!(!log.is_sound() || LogWord::new(log.entry()) == log);
            let tail = LogPosition(word);
            assert!(!tail.is_sound() || LogPosition::new(tail.slot(), tail.byte()) == tail);
        }
        StructureKind::Area => decode_area(bytes),
        StructureKind::AreaExtent => {
            let head: AreaExtentHead = padded(bytes);
            if let Some(area) = head.owner(9) {
                assert_eq!(AreaExtentHead::new(9, area), head);
            }
        }
        StructureKind::States => {
            let states = StateMapWord(word);
            let all = states.entries().fold(StateMapWord(0), |all, slot| {
                all.with(slot, states.get(slot))
            });
            assert_eq!(all, states);
        }
        StructureKind::MoveList => {
            let block = padded::<[u8; BLOCK_BYTES as usize]>(bytes);
            if let Some((next, entries)) = MoveListHead::decode(64, &block) {
                let used = size_of::<MoveListHead>() + size_of_val(&entries[..]);
                let again = MoveListHead::encode(64, next, &entries);
                assert_eq!(again[..used], block[..used]);
            }
        }
        StructureKind::Text => {
            let text = &bytes[..bytes.len().min(TEXT_MAX)];
            assert!(text_check(1, 2, text) <= u64::from(u32::MAX));
        }
        StructureKind::Xattrs => decode_xattrs(bytes),
        StructureKind::Map => {
            let map = MapWord(word);
            let again = MapWord::new(map.state(), map.id(), map.logical());
            assert!(again == map || map.state() == MapState::Free);
            decode_tree(word, bytes);
        }
    }
}

fn decode_chunk(word: u64) {
    for index in [0, 1, u64::MAX] {
        if let Some((kind, segment)) = ChunkWord(word).decode(index) {
            let again = match ChunkWord(word).table_part(index) {
                Some((segment, part)) => ChunkWord::of_table(index, segment, part),
                None => ChunkWord::new(index, kind, segment),
            };
            assert_eq!(again.0, word);
        }
    }
}

fn decode_inode(bytes: &[u8]) {
    let inode: Inode = padded(bytes);
    let sound = inode.is_sound(5);
    assert!(!sound || inode.checksum == inode.expected_checksum(5));
    if MapRoot(inode.root).is_sound() {
        let root = MapRoot(inode.root).get();
        assert!(root.is_some_and(|(segment, _)| segment == 0));
    }
}

/// The head of an extent of a log of words, and of one of records.
fn decode_extent(bytes: &[u8]) {
    let head: LogExtentHead = padded(bytes);
    let next = head.next;
    if head.is_sound(9, head.owner, 2) {
        let (kind, is_compacted) = (head.kind(), head.is_compacted());
        let again = LogExtentHead::new(9, head.owner, 2, head.base_cookie, kind, is_compacted);
        assert_eq!(LogExtentHead { next, ..again }, head);
    }
    let owner = LogOwner {
        slot: head.owner,
        generation: 2,
    };
    if head.is_sound_of_records(9, owner) {
        let again = LogExtentHead::of_records(9, owner, head.base_cookie);
        assert_eq!(LogExtentHead { next, ..again }, head);
    }
}

/// The structure at the beginning of `bytes`, padded with zeros.
fn padded<T: FromBytes + FromZeros + IntoBytes>(bytes: &[u8]) -> T {
    let mut value = T::new_zeroed();
    let len = bytes.len().min(size_of::<T>());
    value.as_mut_bytes()[..len].copy_from_slice(&bytes[..len]);
    value
}

fn decode_superblock(bytes: &[u8]) {
    let mut superblock: Superblock = padded(bytes);
    let _ = Superblock::unseal(bytes);
    superblock.seal();
    // A sealed superblock with arbitrary content.
    let sealed = Superblock::unseal(superblock.as_bytes());
    if let Ok(sealed) = Superblock::choose([sealed]) {
        let geometry = sealed.geometry();
        if sealed.check_readable().is_ok() {
            assert!(geometry.is_sound());
            let end = geometry.data_at + geometry.data_bytes();
            assert_eq!(end > sealed.pool_bytes, geometry.external.is_some());
            change_table(&sealed);
        }
        let _ = sealed.check_writable();
        let settings = sealed.settings();
        if let Ok(same) = sealed.with_settings(&settings) {
            assert_eq!(same.settings(), settings);
            assert_eq!(same.check_readable(), sealed.check_readable());
        }
    }
}

/// If a table is readable, it stays readable with one dataset more or less.
fn change_table(superblock: &Superblock) {
    let is_sound = |changed: &Superblock| {
        assert_eq!(changed.check_readable(), Ok(()));
        assert!(changed.datasets_end() >= changed.pool_bytes);
        Superblock::unseal(changed.as_bytes()).is_ok()
    };
    let at = superblock.dataset_room(DATASET_ALIGN);
    let name = "a name that is never drawn";
    if at < 1 << 60
        && let Some(more) = superblock.with_dataset(name, at, DATASET_ALIGN, [1; 16])
    {
        assert!(is_sound(&more) && more.dataset(name).is_some());
        assert!(is_sound(&more.without_dataset(name)));
    }
    assert!(is_sound(&superblock.without_datasets()));
}

/// The structures of media, sealed with arbitrary content.
fn decode_medium(bytes: &[u8]) {
    let _ = MediumHead::unseal(bytes);
    let mut head: MediumHead = padded(bytes);
    head.seal();
    let found = MediumHead::unseal(head.as_bytes()).filter(|found| found.magic == MEDIUM_MAGIC);
    assert!(found.is_none_or(|found| found == head && found.copy_at() <= found.bytes));
    let mut replica: ReplicaHead = padded(bytes);
    replica.magic = REPLICA_MAGIC;
    let found = ReplicaHead::unseal(replica.stale().as_bytes(), head.pool);
    if let Some(blocks) = found.map(|found| found.blocks) {
        let plan = ReplicaPlan { at: 0, blocks };
        assert_eq!(plan.block_at(blocks), plan.bytes());
    }
    let mut structures: DevicePaths = padded(bytes);
    let _ = DevicePaths::find(bytes, head.id);
    structures.seal();
    for place in structures.places {
        let path = DevicePaths::find(structures.as_bytes(), place.id);
        assert!(path.is_none_or(|path| (1..=MEDIUM_PATH_MAX).contains(&path.len())));
    }
}

/// Words of trees and of a cuckoo table, decoded for a file and for all kinds of locations.
fn decode_tree(word: u64, bytes: &[u8]) {
    for (id, first) in [(1, 0), (5, 512), (u32::MAX >> 2, u32::MAX)] {
        if let Ok(Some(target)) = TreeWord(word).decode(id, first) {
            assert_eq!(TreeWord::new(target, id, first).0, word);
        }
        let seal = ExtentSeal::new(id);
        if let Some(root) = ExtentRoot::from_word(seal, word) {
            assert_eq!(root.word(seal), word);
        }
        let (key, body) = (ExtentKey(word), ExtentBody(word));
        if key.is_sound(seal) {
            let again = ExtentKey::new(seal, key.logical(), key.len(), key.is_valid());
            assert_eq!(again, key);
        }
        if let Some(kind) = body.kind().filter(|_| body.is_sound(seal)) {
            assert_eq!(ExtentBody::new(seal, body.place(), kind), body);
        }
        let place = KeyedWord(word);
        if place.is_of(u64::from(id)) {
            let (block, following, preceding) =
                (place.block(), place.following(), place.preceding());
            let again = KeyedWord::new(id.into(), block, following, preceding);
            assert_eq!(again, place);
        }
    }
    let head: ExtentNodeHead = padded(bytes);
    if head.is_sound(9) {
        let (owner, level, first) = (head.owner, head.level, head.first);
        assert_eq!(
            ExtentNodeHead::new(9, owner, level, first, head.generation),
            head
        );
    }
}

fn decode_journal(bytes: &[u8]) {
    let words: [u64; 2 + 2 * JOURNAL_MAX_PAIRS] = padded(bytes);
    let head = JournalHead(words[0]);
    let pairs = words[2..].as_chunks::<2>().0.iter();
    let pairs: Vec<_> = pairs
        .take(head.count())
        .map(|&[at, value]| JournalPair { at, value })
        .collect();
    for pair in &pairs {
        assert!(pair.witnessed().is_none_or(|at| at | 1 == pair.at));
    }
    assert_eq!(head.seal(3, &pairs) >> 32, 1);
}

fn decode_entry(bytes: &[u8]) {
    let head: EntryHead = padded(bytes);
    let _ = (
        TargetWord(head.target).kind(),
        TargetWord(head.target).ino(),
    );
    if Entry::is_sound(bytes, 2) {
        let name = &bytes[Entry::NAME as usize..][..usize::from(head.name_len)];
        let mut again = [0; 384];
        Entry::encode(&head, name, 2, &mut again);
        let used = Entry::NAME as usize + name.len();
        assert_eq!(again[..used], bytes[..used]);
    }
}

fn decode_path_entry(bytes: &[u8]) {
    let seal = PathSeal {
        area: 1,
        slot: 9,
        directory: 2,
    };
    if let Some((head, path)) = PathEntryHead::decode(bytes, seal) {
        let mut again = [0; PATH_ENTRY_MAX_BYTES];
        head.encode(path, seal, &mut again);
        let used = PathEntryHead::PATH as usize + path.len();
        assert_eq!(again[..used], bytes[..used]);
        assert!(head.name(path).len() <= NAME_MAX && head.directory(path).len() <= path.len());
    }
}

/// The head of a piece of attributes, and a set.
fn decode_xattrs(bytes: &[u8]) {
    let head: XattrHead = padded(bytes);
    for kind in [ChunkKind::Entries, ChunkKind::Blocks] {
        let most = match kind {
            ChunkKind::Entries => XattrHead::SLOTS_MAX,
            _ => XattrHead::BLOCK_MAX,
        };
        assert!(!head.fits(kind) || (1..=most).contains(&usize::from(head.len)));
    }
    for set in [bytes, &bytes[bytes.len().min(size_of::<XattrHead>())..]] {
        let Some(xattrs) = read_xattrs(set) else {
            continue;
        };
        let mut again = Vec::new();
        xattrs.iter().for_each(|xattr| xattr.push_to(&mut again));
        assert_eq!(again, set);
        let flags = xattr_flags(&xattrs);
        assert_eq!(flags & !IdentityWord::XATTR_FLAGS, 0);
        assert!(xattrs.iter().map(Xattr::list_bytes).sum::<usize>() <= XATTR_LIST_MAX);
    }
}

fn decode_area(bytes: &[u8]) {
    let head: AreaTableHead = padded(bytes);
    if head.is_sound(32, head.number) {
        let again = AreaTableHead {
            next: head.next,
            taken: head.taken,
            ..AreaTableHead::new(32, head.number)
        };
        assert_eq!(again, head);
    }
    let line: AreaLine = padded(bytes);
    if let Some(phase) = line.phase(2)
        && phase != AreaPhase::Free
    {
        let mut again = AreaLine::new(line.life(2), phase, line.root, line.root_generation);
        (again.table, again.saved, again.saved_check) = (line.table, line.saved, line.saved_check);
        again.formed = line.formed;
        assert_eq!(again, line);
    }
    if let Some(merged) = line.merged(2) {
        assert_eq!(line.merged_away(2, &merged), line);
    }
    if let Some((table, counts)) = line.saved(2, 3) {
        assert_eq!(line.saving(2, 3, table, counts), line);
    }
    if let Some((slot, level)) = TableRoot(line.table).get() {
        assert_eq!(TableRoot::new(slot, level), TableRoot(line.table));
    }
}

fn decode_record(bytes: &[u8]) {
    let place = LogPosition::new(8, NameRecord::FIRST);
    let owner = LogOwner {
        slot: 9,
        generation: 2,
    };
    if let Some((record, name)) = NameRecord::decode(bytes, place, owner) {
        let mut again = [0; RECORD_MAX_BYTES];
        record.encode(name, place, owner, &mut again);
        let used = NameRecord::NAME as usize + name.len();
        assert_eq!(again[..used], bytes[..used]);
    }
}
