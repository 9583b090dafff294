//! Regressions that the targets found, and the required result of each.

use std::mem::offset_of;

use vellum::{Cred, Error, ListPosition, MappingKind, OpenOptions};
use vellum_fuzz::{Sample, Structure, StructureKind, Watchdog, judge, mount, samples, seal};
use vellum_layout::{
    ChunkKind, ChunkWord, Entry, EntryHead, ExtentKey, FileKind, Inode, KeyedPlan, KeyedWord,
    LifeWord, LogExtentHead, MapRoot, MapState, MapWord, PAIRS_PER_LINE, StateWord, TargetWord,
};

/// The samples: closed cleanly, marked as not closed, left by a crash.
pub(super) const CLOSED: usize = 0;
pub(super) const OPEN: usize = 1;

pub(super) fn sample(which: usize) -> Sample {
    samples()[which].clone()
}

/// The inode and the first entry of `name`, wherever they are.
pub(super) fn named(sample: &Sample, name: &[u8]) -> (Structure, Structure) {
    let called = |entry: &Structure| {
        let len = entry.bytes - Entry::NAME;
        sample.bytes(entry.at + Entry::NAME, len) == name
    };
    let entries = sample.structures(StructureKind::Entry);
    let entry = *entries.iter().find(|entry| called(entry)).expect("a name");
    let target = TargetWord(sample.word(entry.at + Entry::TARGET));
    let inodes = sample.structures(StructureKind::Inode);
    let inode = inodes.iter().find(|inode| inode.number == target.ino());
    (*inode.expect("its inode"), entry)
}

/// Changes a word of a structure and makes its checksum fit.
pub(super) fn set(
    sample: &mut Sample,
    part: StructureKind,
    place: Structure,
    field: u64,
    value: u64,
) {
    sample.set_word(place.at + field, value);
    seal(sample, part, place);
}

/// The opening must report damage.
pub(super) fn assert_refused(sample: &Sample) {
    let error = mount(sample.image.clone(), false).expect_err("it is damaged");
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    judge(sample.image.clone(), false);
}

/// The pool opens, and looking up a name in a directory meets damage.
pub(super) fn assert_met(sample: &Sample, dir: &[u8], name: &[u8]) {
    let fs = mount(sample.image.clone(), false).expect("it opens").0;
    let (cred, top) = (Cred::root(), fs.root());
    let dir = fs
        .find(&cred, &top, dir, true)
        .expect("the directory is sound");
    let error = fs.lookup(&cred, &dir, name).expect_err("it is damaged");
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    judge(sample.image.clone(), false);
}

#[test]
fn the_root_directory_is_checked() {
    for which in [CLOSED, OPEN] {
        let root = sample(which).structures(StructureKind::Inode)[0];
        for (field, value) in [(Inode::IDENTITY, 0), (Inode::PARENT, 2)] {
            let mut sample = sample(which);
            set(&mut sample, StructureKind::Inode, root, field, value);
            assert_refused(&sample);
        }
        let mut sample = sample(which);
        let kind = sample.word(root.at) & !0xFF00 | (FileKind::File as u64) << 8;
        set(
            &mut sample,
            StructureKind::Inode,
            root,
            Inode::IDENTITY,
            kind,
        );
        assert_refused(&sample);
    }
}

/// `stat` took such a directory for one that was just being removed, and waited for the end of
/// that.
#[test]
fn a_directory_without_links_or_names_can_be_looked_at() {
    let mut closed = sample(CLOSED);
    let (inode, _) = named(&closed, b"empty");
    set(&mut closed, StructureKind::Inode, inode, Inode::LINKS, 0);
    set(
        &mut closed,
        StructureKind::Inode,
        inode,
        Inode::ROOT,
        u64::MAX,
    );
    let _watchdog = Watchdog::watch(b"a directory without links");
    let fs = mount(closed.image.clone(), false).expect("it opens").0;
    let found = fs.find(&Cred::root(), &fs.root(), b"empty", true);
    let links = fs
        .attr(&found.expect("its name is sound"))
        .map(|attr| attr.nlink);
    assert!(matches!(links, Ok(2)), "{links:?}");
    judge(closed.image, false);
}

/// The count fell below zero, and reading the file's attributes by another of its names waited for
/// the end of a link.
#[test]
fn a_file_with_more_names_than_its_inode_counts_keeps_the_others() {
    let mut closed = sample(CLOSED);
    let (cred, watchdog) = (Cred::root(), Watchdog::watch(b"a file without links"));
    let names = {
        let fs = mount(closed.image.clone(), true).expect("it opens").0;
        let wide = fs
            .find(&cred, &fs.root(), b"wide", true)
            .expect("a directory");
        let is_twice = |name: &&str| {
            let found = fs.lookup(&cred, &wide, name.as_bytes());
            found.is_ok_and(|node| fs.attr(&node).is_ok_and(|attr| attr.nlink > 2))
        };
        let names: Vec<String> = (0..40).map(|n| format!("link{n}")).collect();
        let names = names.iter().map(String::as_str).filter(is_twice);
        names.take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let [first, second] = &names[..] else {
        panic!("two names of a file: {names:?}");
    };
    let (inode, _) = named(&closed, first.as_bytes());
    set(&mut closed, StructureKind::Inode, inode, Inode::LINKS, 0);
    let fs = mount(closed.image, false).expect("it opens").0;
    let wide = fs
        .find(&cred, &fs.root(), b"wide", true)
        .expect("a directory");
    fs.unlink(&cred, &wide, first.as_bytes()).expect("a name");
    let other = fs.lookup(&cred, &wide, second.as_bytes());
    fs.attr(&other.expect("the other name")).expect("the file");
    drop(watchdog);
}

/// A tree begins in the inode that its root names. The checker accepted a root that named none.
#[test]
fn a_root_of_another_inodes_tree_is_damage() {
    let with_trees = samples()
        .iter()
        .filter(|sample| sample.geometry.mapping.has_trees());
    for sample in with_trees {
        let mut sample = sample.clone();
        let (inode, _) = named(&sample, b"file");
        let root = MapRoot::new(0, 0x80008).0;
        set(&mut sample, StructureKind::Inode, inode, Inode::ROOT, root);
        judge(sample.image, false);
    }
}

#[test]
fn reserved_fields_of_an_inode_are_damage() {
    for field in [offset_of!(Inode, acl_root), offset_of!(Inode, pattern)] {
        let mut closed = sample(CLOSED);
        let (inode, _) = named(&closed, b"file");
        set(&mut closed, StructureKind::Inode, inode, field as u64, 8);
        assert_met(&closed, b"/", b"file");
        let mut open = sample(OPEN);
        set(&mut open, StructureKind::Inode, inode, field as u64, 8);
        assert_refused(&open);
    }
}

#[test]
fn a_chunk_of_another_dataset_is_refused() {
    let mut sample = sample(CLOSED);
    let place = sample.structures(StructureKind::Chunk)[0];
    let word = ChunkWord::new(0, ChunkKind::Inodes, 3);
    sample.set_word(place.at, word.0);
    assert_refused(&sample);
}

#[test]
fn a_state_of_no_known_number_is_refused() {
    let mut sample = sample(CLOSED);
    let place = sample.structures(StructureKind::State)[0];
    set(&mut sample, StructureKind::State, place, 0, 7);
    assert_eq!(StateWord(sample.word(place.at)).get(), None);
    assert_refused(&sample);
}

#[test]
fn preallocated_blocks_that_the_root_does_not_mention_are_freed() {
    let mut sample = sample(OPEN);
    let (file, _) = named(&sample, b"file");
    let mut words = sample.structures(StructureKind::Map).into_iter();
    let free = words.rfind(|place| sample.word(place.at) == 0);
    let word = MapWord::new(MapState::Unwritten, file.number as u32, 9000);
    sample.set_word(free.expect("a free block").at, word.0);
    judge(sample.image, false);
}

#[test]
fn a_mapping_id_of_two_files_is_refused() {
    let mut sample = sample(OPEN);
    let (file, _) = named(&sample, b"file");
    let (other, _) = named(&sample, b"holes");
    let root = sample.word(file.at + Inode::ROOT);
    set(&mut sample, StructureKind::Inode, other, Inode::ROOT, root);
    assert_refused(&sample);
}

#[test]
fn a_symlink_text_with_a_zero_byte_is_damage() {
    let mut sample = sample(CLOSED);
    let (link, _) = named(&sample, b"short");
    let mut texts = sample.structures(StructureKind::Text).into_iter();
    let text = texts.find(|text| text.number == link.number);
    let text = text.expect("its text");
    sample.bytes_mut(text.at + 1, 1)[0] = 0;
    seal(&mut sample, StructureKind::Text, text);
    let fs = mount(sample.image.clone(), false).expect("it opens").0;
    let found = fs.find(&Cred::root(), &fs.root(), b"short", true);
    assert!(matches!(found, Err(Error::Damaged { .. })), "{found:?}");
    judge(sample.image, false);
}

#[test]
fn entries_are_checked_beyond_their_checksum() {
    let (_, entry) = named(&sample(CLOSED), b"file");
    let head: EntryHead = sample(CLOSED).read(entry.at);
    let word_of = |head: &EntryHead, at: usize| {
        u64::from_le_bytes(
            zerocopy::IntoBytes::as_bytes(head)[at..at + 8]
                .try_into()
                .expect("8"),
        )
    };
    let target = |ino| TargetWord::new(ino, FileKind::File).0;
    let changes = [
        // A slot number that is larger than the index can hold.
        (Entry::TARGET, target((1 << 47) + 5)),
        // A slot that is not in use.
        (Entry::TARGET, target(31)),
        (Entry::TARGET, head.target | 1 << 60),
        (Entry::COOKIE, head.cookie + 1),
        (Entry::CHECK, word_of(&head, 32) + 1),
        // Flags of a later release.
        (Entry::NAME_WORD, word_of(&head, 40) | 1 << 48),
    ];
    for (field, value) in changes {
        let mut sample = sample(CLOSED);
        set(&mut sample, StructureKind::Entry, entry, field, value);
        assert_met(&sample, b"/", b"file");
    }
}

#[test]
fn names_that_no_file_may_have_are_damage() {
    for (at, byte) in [(1, b'/'), (2, 0)] {
        let mut sample = sample(CLOSED);
        let (_, entry) = named(&sample, b"file");
        sample.bytes_mut(entry.at + Entry::NAME + at, 1)[0] = byte;
        seal(&mut sample, StructureKind::Entry, entry);
        assert_met(&sample, b"/", b"file");
        let fs = mount(sample.image.clone(), false).expect("it opens").0;
        let mut position = ListPosition::default();
        let listed = fs.list(&fs.root(), 0, &mut position, &mut |_| true);
        assert!(matches!(listed, Err(Error::Damaged { .. })), "{listed:?}");
    }
}

#[test]
fn a_wrong_hash_of_a_name_is_damage() {
    let mut sample = sample(CLOSED);
    let (_, entry) = named(&sample, b"file");
    let mut head: EntryHead = sample.read(entry.at);
    head.name_hash ^= 1;
    let mut bytes = [0; 384];
    let len = Entry::encode(&head, b"file", 1, &mut bytes);
    sample
        .bytes_mut(entry.at, len as u64)
        .copy_from_slice(&bytes[..len]);
    assert_met(&sample, b"/", b"file");
}

#[test]
fn a_directory_is_where_its_parent_says() {
    let mut sample = sample(CLOSED);
    let (dir, _) = named(&sample, b"deeper");
    set(&mut sample, StructureKind::Inode, dir, Inode::PARENT, 1);
    assert_met(&sample, b"/deep", b"deeper");
}

/// Every listing was endless.
#[test]
fn a_cyclic_log_is_damage() {
    let mut sample = sample(CLOSED);
    let (wide, _) = named(&sample, b"wide");
    let extents = sample.structures(StructureKind::Extent);
    let of_wide = |extent: &Structure| sample.read::<LogExtentHead>(extent.at).owner == wide.number;
    let mine: Vec<_> = extents.into_iter().filter(of_wide).collect();
    assert!(mine.len() > 1, "the directory has several extents");
    let (first, last) = (mine[0], mine[mine.len() - 1]);
    sample.set_word(last.at + LogExtentHead::NEXT, first.number);
    let fs = mount(sample.image.clone(), false).expect("it opens").0;
    let dir = fs.find(&Cred::root(), &fs.root(), b"wide", true);
    let dir = dir.expect("its inode is sound");
    let listed = fs.list(&dir, 0, &mut ListPosition::default(), &mut |_| true);
    assert!(matches!(listed, Err(Error::Damaged { .. })), "{listed:?}");
    judge(sample.image, false);
}

#[test]
fn a_log_word_that_names_nothing_is_damage() {
    let mut sample = sample(OPEN);
    let words = sample.structures(StructureKind::LogWord);
    let free = words.into_iter().find(|word| sample.word(word.at) == 0);
    sample.set_word(free.expect("a free word").at, 1);
    assert_refused(&sample);
}

/// Recovery freed the directory and kept its content.
#[test]
fn a_directory_without_a_name_that_holds_some_is_refused() {
    let mut sample = sample(OPEN);
    let (_, entry) = named(&sample, b"deep");
    // The entry is dead, and the log cannot be read to the end.
    let life = LifeWord(sample.word(entry.at)).ns();
    sample.set_word(entry.at, LifeWord::dead(life).0);
    let (_, long) = named(&sample, &[b'l'; 255]);
    sample.bytes_mut(long.at + Entry::NAME, 1)[0] ^= 1;
    assert_refused(&sample);
}

/// An entry that lies across two words of the map of slots in use could not be freed.
#[test]
fn an_entry_across_two_words_of_the_live_map() {
    let mut sample = sample(CLOSED);
    let entries = sample.structures(StructureKind::Entry);
    let last = entries.into_iter().find(|entry| entry.number % 64 == 63);
    let entry = last.expect("an entry at the end of a word");
    let mut head: EntryHead = sample.read(entry.at);
    head.name_len = 200;
    let name: Vec<u8> = vec![b'w'; 200];
    let mut bytes = [0; 384];
    let len = Entry::encode(&head, &name, 1, &mut bytes);
    sample
        .bytes_mut(entry.at, len as u64)
        .copy_from_slice(&bytes[..len]);
    seal(
        &mut sample,
        StructureKind::Entry,
        Structure {
            bytes: 248,
            ..entry
        },
    );
    judge(sample.image, false);
}

/// The inode was allocated again, and its directory's listings waited forever.
#[test]
fn a_live_map_that_calls_an_inode_free() {
    let mut sample = sample(CLOSED);
    let map = sample.structures(StructureKind::LiveMap)[0];
    let (dir, _) = named(&sample, b"deep");
    let word_at = map.at + dir.number / 64 * 8;
    let word = sample.word(word_at) & !(1 << (dir.number % 64));
    sample.set_word(word_at, word);
    seal(&mut sample, StructureKind::LiveMap, map);
    judge(sample.image.clone(), false);
    let fs = mount(sample.image, false).expect("it opens").0;
    let (cred, top) = (Cred::root(), fs.root());
    for n in 0..2000 {
        match fs.mkdir(&cred, &top, n.to_string().as_bytes(), 0o755) {
            Ok(made) => assert_ne!(made.ino(), dir.number),
            Err(Error::Damaged { .. } | Error::NoSpace(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// A directory's word in memory cannot hold an entry's largest time: the directory was closed with
/// times older than those of its entries.
#[test]
fn an_entry_later_than_directory_times_reach() {
    let mut sample = sample(OPEN);
    let (_, entry) = named(&sample, b"link3");
    sample.set_word(entry.at + Entry::LIFE, LifeWord::dead(i64::MAX).0);
    judge(sample.image, false);
}

/// The word of a file's tree was accepted in a mapping without trees.
#[test]
fn a_tree_where_the_mapping_has_none() {
    let mut sample = sample(OPEN);
    let (inode, _) = named(&sample, b"file");
    set(&mut sample, StructureKind::Inode, inode, Inode::DETAIL, 1);
    assert_refused(&sample);
}

/// The pool with this mapping that was closed, or the one that a crash left.
fn sample_on(mapping: MappingKind, closed: bool) -> Sample {
    let mut of = samples()
        .iter()
        .filter(|sample| sample.geometry.mapping == mapping);
    let found = of.nth(usize::from(!closed));
    found.expect("two pools of each mapping").clone()
}

/// Valid entries of leaves.
fn extents(sample: &Sample) -> impl Iterator<Item = Structure> {
    let structures = sample.structures(StructureKind::Map).into_iter();
    structures.filter(|place| place.bytes == 16 && ExtentKey(sample.word(place.at)).is_valid())
}

/// Recovery accepted an entry without blocks, and ignored entries behind the last one.
#[test]
fn entries_of_extent_trees_are_checked_by_recovery() {
    for mapping in [MappingKind::Extent, MappingKind::ExtentCached] {
        let mut sample = sample_on(mapping, false);
        let entry = extents(&sample).next().expect("an extent");
        let key = sample.word(entry.at) & !(0xFFFF << 32);
        set(&mut sample, StructureKind::Map, entry, ExtentKey::AT, key);
        assert_refused(&sample);

        let mut sample = sample_on(mapping, false);
        let last = extents(&sample).last().expect("an extent");
        let behind = Structure {
            at: last.at + 32,
            ..last
        };
        assert_eq!([last.at + 16, behind.at].map(|at| sample.word(at)), [0; 2]);
        let key = 50 | 1 << 32 | 1 << 63;
        set(&mut sample, StructureKind::Map, behind, ExtentKey::AT, key);
        assert_refused(&sample);
    }
}

/// The checker's subtraction of an entry's location from that of an earlier one underflowed.
#[test]
fn extents_out_of_order_are_damage() {
    let mut sample = sample_on(MappingKind::Extent, true);
    let entries: Vec<Structure> = extents(&sample).collect();
    let adjoin = |pair: &&[Structure]| pair[0].at + 16 == pair[1].at;
    let pair = entries.windows(2).find(adjoin).expect("two extents");
    let key = sample.word(pair[0].at) | 0xFFFF;
    set(&mut sample, StructureKind::Map, pair[0], ExtentKey::AT, key);
    judge(sample.image, false);
}

/// For an extent that begins near the last block number, reading counted on past that number.
#[test]
fn an_extent_of_blocks_outside_the_segment_is_damage() {
    for mapping in [MappingKind::Extent, MappingKind::ExtentCached] {
        for before_last in [0, 1] {
            let mut sample = sample_on(mapping, true);
            let entry = extents(&sample).last().expect("an extent");
            let key = ExtentKey(sample.word(entry.at));
            let body = sample.word(entry.at + 8) & !u64::from(u32::MAX);
            let place = u32::MAX.wrapping_sub(key.logical() + before_last);
            set(
                &mut sample,
                StructureKind::Map,
                entry,
                8,
                body | u64::from(place),
            );
            judge(sample.image.clone(), true);
            judge(sample.image, false);
        }
    }
}

/// Recovery accepted an entry of a level table with counts, and closed the pool with it.
#[test]
fn an_entry_of_a_level_table_counts_nothing() {
    for bit in [30, 38] {
        let mut sample = sample_on(MappingKind::Level, false);
        let (inode, _) = named(&sample, b"file");
        let structures = sample.structures(StructureKind::Map);
        let of_file =
            |place: &&Structure| u64::from(MapWord(sample.word(place.at)).id()) == inode.number;
        let entry = *structures.iter().find(of_file).expect("an entry");
        let counted = sample.word(entry.at + 8) | 1 << bit;
        set(&mut sample, StructureKind::Map, entry, 8, counted);
        assert_refused(&sample);
    }
}

/// The list of freed blocks was endless, because one block was on it twice.
#[test]
fn a_block_that_two_files_free_is_freed_once() {
    for mapping in [MappingKind::Cuckoo, MappingKind::Level] {
        let mut sample = sample_on(mapping, true);
        let structures = sample.structures(StructureKind::Map);
        let [first, second] = [&b"file"[..], b"holes"].map(|name| {
            let id = named(&sample, name).0.number;
            let of_file = |place: &&Structure| {
                let word = MapWord(sample.word(place.at));
                u64::from(word.id()) == id && word.state() == MapState::Mapped
            };
            *structures.iter().find(of_file).expect("an entry")
        });
        let block = KeyedWord(sample.word(first.at + 8)).block();
        set(&mut sample, StructureKind::Map, second, 8, block.into());
        let _watchdog = Watchdog::watch(b"a block of two files");
        let fs = mount(sample.image, false).expect("it opens").0;
        let (cred, top) = (Cred::root(), fs.root());
        let write = OpenOptions::new().write(true);
        for path in [&b"file"[..], b"deep/deeper/holes"] {
            let node = fs.find(&cred, &top, path, true).expect("its name is sound");
            let file = fs.open_node(&cred, &node, &write).expect("it opens");
            file.truncate(0).expect("its entries are sound");
        }
        let closed = fs.close().expect_err("a block is missing");
        assert!(matches!(closed, Error::Busy), "{closed}");
    }
}

/// A search passed data on its way, but a search that began there saw a hole: the check of a key
/// behind it was right, but the key belonged in front.
#[test]
fn data_of_an_extent_tree_out_of_order_is_no_hole() {
    for mapping in [MappingKind::Extent, MappingKind::ExtentCached] {
        let mut sample = sample_on(mapping, true);
        let last = extents(&sample).last().expect("an extent");
        let behind = Structure {
            at: last.at + 16,
            ..last
        };
        assert_eq!(sample.word(behind.at), 0, "the leaf has a free entry");
        // An invalid entry, for logical block 1.
        set(
            &mut sample,
            StructureKind::Map,
            behind,
            ExtentKey::AT,
            1 | 1 << 32,
        );
        judge(sample.image, false);
    }
}

/// An entry of a cuckoo table led to blocks beyond the last one.
#[test]
fn an_entry_does_not_count_past_the_segment() {
    let mut sample = sample_on(MappingKind::Cuckoo, false);
    let structures = sample.structures(StructureKind::Map).into_iter();
    let mut used = structures.filter(|place| sample.word(place.at) != 0);
    let entry = used.next().expect("an entry");
    let count = sample.word(entry.at + 8) | 0xFF << 30;
    set(&mut sample, StructureKind::Map, entry, 8, count);
    assert_refused(&sample);
}

/// The entry for a file's block in a table of keys.
fn map_entry(sample: &Sample, name: &[u8], logical: u32) -> Structure {
    let key = MapWord::key(named(sample, name).0.number as u32, logical);
    let mut structures = sample.structures(StructureKind::Map).into_iter();
    let found = structures.find(|place| sample.word(place.at) & MapWord::KEY_MASK == key);
    found.expect("the block has an entry")
}

fn keyed_plan(sample: &Sample) -> KeyedPlan {
    let geometry = &sample.geometry;
    let word = |at| sample.word(geometry.table_at + at);
    let (blocks, seed) = (geometry.segment_blocks, sample.hash_seed);
    KeyedPlan::read(geometry.mapping, blocks, seed, word).expect("a table of keys")
}

/// Puts an entry into a free slot of a line of the table; returns whether there was one.
fn enter(sample: &mut Sample, line: u64, word: MapWord, block: u64) -> bool {
    let mut structures = (0..PAIRS_PER_LINE).map(|place| Structure {
        at: sample.geometry.table_at + line * 64 + place * 16,
        bytes: 16,
        number: line * PAIRS_PER_LINE + place,
    });
    let free = structures.find(|place| sample.word(place.at) == 0);
    if let Some(place) = free {
        sample.set_word(place.at, word.0);
        set(sample, StructureKind::Map, place, 8, block);
    }
    free.is_some()
}

/// Removing a block relied on its entry to name the entry that counts it. A block without that
/// information could still be read.
#[test]
fn a_block_whose_entry_lacks_the_counting_entry() {
    for logical in 1..4 {
        let mut sample = sample_on(MappingKind::Cuckoo, false);
        let entry = map_entry(&sample, b"file", logical);
        let told = KeyedWord(sample.word(entry.at + 8));
        assert_eq!(told.preceding(), logical);
        let unknowing = told.0 & !(0xFF << 38);
        set(&mut sample, StructureKind::Map, entry, 8, unknowing);
        judge(sample.image.clone(), false);
        let fs = mount(sample.image, false)
            .expect("a crash may leave that")
            .0;
        let node = fs.find(&Cred::root(), &fs.root(), b"file", true);
        let write = OpenOptions::new().read(true).write(true);
        let node = node.expect("its name is sound");
        let file = fs
            .open_node(&Cred::root(), &node, &write)
            .expect("it opens");
        let (at, mut back) = (u64::from(logical) * 4096, [1; 2 * 4096]);
        let punch = vellum::Allocate::PunchHole;
        file.allocate(punch, at, 4096)
            .expect("a block is taken out");
        file.read_at(at - 4096, &mut back).expect("it is read");
        assert!(back[..4096] == [7; 4096] && back[4096..] == [0; 4096]);
    }
}

/// Recovery looked for another entry of a key only in lines before that of the first entry.
#[test]
fn a_key_that_is_twice_where_nothing_moves_is_refused() {
    for mapping in [MappingKind::Cuckoo, MappingKind::Level] {
        let (plan, mut twice_in_line) = (keyed_plan(&sample_on(mapping, false)), 0);
        let other = sample_on(mapping, false).geometry.segment_blocks - 1;
        for logical in 0..5 {
            let mut sample = sample_on(mapping, false);
            let entry = map_entry(&sample, b"file", logical);
            let word = MapWord(sample.word(entry.at));
            let line = (entry.at - sample.geometry.table_at) / 64;
            if enter(&mut sample, line, word, other) {
                twice_in_line += 1;
                assert_refused(&sample);
            }

            let mut sample = sample_on(mapping, false);
            let block = KeyedWord(sample.word(entry.at + 8)).block();
            sample.set_word(entry.at, 0);
            let (stash, blocks) = (plan.stash(), [block.into(), other]);
            for (line, block) in [stash.start, stash.end - 1].into_iter().zip(blocks) {
                assert!(enter(&mut sample, line, word, block), "the stash is empty");
            }
            assert_refused(&sample);
        }
        assert!(twice_in_line > 0, "a line has a free entry");
    }
}

/// Reading the whole table met an entry that no lookup reaches, and reported data in a hole.
#[test]
fn data_that_only_reading_the_table_meets_is_a_hole() {
    for mapping in [MappingKind::Cuckoo, MappingKind::Level] {
        let mut sample = sample_on(mapping, true);
        let (inode, _) = named(&sample, b"holes");
        // The file is so long that it is not searched block by block.
        set(
            &mut sample,
            StructureKind::Inode,
            inode,
            Inode::SIZE,
            400_000,
        );
        let plan = keyed_plan(&sample);
        let word = MapWord::new(MapState::Unwritten, inode.number as u32, 60);
        let mut homes = plan.homes(sample.hash_seed, word.0);
        let last = sample.geometry.segment_blocks - 1;
        assert!(homes.any(|line| enter(&mut sample, line, word, last)));
        let hidden = word.with_state(MapState::Mapped);
        assert!(enter(&mut sample, plan.stash().start, hidden, last - 1));
        judge(sample.image, false);
    }
}

/// A read-only opening was refused like one for writing.
#[test]
fn a_damaged_table_of_keys_can_be_read() {
    type Spoil = fn(&mut Sample);
    let spoils: [Spoil; 4] = [
        |sample| {
            let entry = map_entry(sample, b"file", 1);
            let check = sample.word(entry.at + 8) ^ 1 << 60;
            sample.set_word(entry.at + 8, check);
        },
        |sample| {
            let word = MapWord(sample.word(map_entry(sample, b"file", 1).at));
            let (stash, other) = (
                keyed_plan(sample).stash(),
                sample.geometry.segment_blocks - 1,
            );
            assert!(enter(sample, stash.start, word, other));
        },
        |sample| {
            let [first, second] = [1, 2].map(|logical| map_entry(sample, b"file", logical));
            let block = KeyedWord(sample.word(first.at + 8)).block();
            set(sample, StructureKind::Map, second, 8, block.into());
        },
        |sample| {
            if sample.geometry.mapping == MappingKind::Level {
                sample.set_word(sample.geometry.table_at, 0);
            }
        },
    ];
    let cred = Cred::root();
    let path = [&b"deep/"[..], &[b'l'; 255]].concat();
    let read = OpenOptions::new().read(true);
    for mapping in [MappingKind::Cuckoo, MappingKind::Level] {
        for spoil in spoils {
            let mut sample = sample_on(mapping, false);
            spoil(&mut sample);
            judge(sample.image.clone(), false);
            judge(sample.image.clone(), true);
            let fs = mount(sample.image, true).expect("it can be read").0;
            let node = fs.find(&cred, &fs.root(), &path, true);
            let node = node.expect("names are sound");
            let file = fs.open_node(&cred, &node, &read).expect("it opens");
            let mut back = [0; 5000];
            assert!(matches!(file.read_at(0, &mut back), Ok(4100)));
            assert!(back[..4100] == [9; 4100]);
        }
    }
}
