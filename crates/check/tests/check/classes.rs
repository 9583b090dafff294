//! Injects every class of damage that `docs/crash/damage.md` lists: one test per class, with the
//! name from the document. `damage.rs` and the files beside it have the different forms of a class.

use crate::testimage::found::{assert_found, checked};
use crate::testimage::{GENERATION, NOW, Sample, TestImage, closed, keyed_sample, sample};
use vellum_check::{Class, Finding, Image, Options, Severity, check};
use vellum_layout::{
    ChunkKind, Entry, FileKind, IdentityWord, Inode, JournalPair, KeyedWord, LinksWord,
    LogExtentHead, LogExtentKind, LogWord, MapRoot, MapState, MapWord, MappingKind,
};
use zerocopy::IntoBytes;

/// Changes pools that were not closed and pools that were: `class` is found at `place`, as damage,
/// or, in a pool that was not closed, as residue if a crash may leave it.
#[track_caller]
fn found_in([open, closed]: [Sample; 2], class: Class, place: &str, change: impl Fn(&mut Sample)) {
    let severity = match class.may_be_residue() {
        true => Severity::Residue,
        false => Severity::Damage,
    };
    for (mut sample, severity) in [(open, severity), (closed, Severity::Damage)] {
        assert!(!checked(&sample.image.bytes).has(class));
        change(&mut sample);
        assert_found(&checked(&sample.image.bytes), class, place, severity);
    }
}

#[track_caller]
fn found(class: Class, place: &str, change: impl Fn(&mut Sample)) {
    found_in([sample(), closed()], class, place, change);
}

/// Changes what a close saved: it is void as soon as the pool is open.
#[track_caller]
fn found_if_closed(class: Class, place: &str, change: impl Fn(&mut Sample)) {
    let mut sample = closed();
    change(&mut sample);
    assert_found(
        &checked(&sample.image.bytes),
        class,
        place,
        Severity::Damage,
    );
    sample.image.reopen();
    let report = checked(&sample.image.bytes);
    assert!(report.is_sound(), "{report}");
}

fn keyed(mapping: MappingKind) -> [Sample; 2] {
    let mut closed = keyed_sample(mapping);
    closed.image.close();
    [keyed_sample(mapping), closed]
}

/// The finding is at the entry of the log's fifth name.
#[track_caller]
fn found_at_entry(class: Class, change: impl Fn(&mut Sample, u64)) {
    let slot = sample().entries[4];
    found(class, &format!("slot {slot}"), |s| change(s, slot));
}

/// The two extents of the log of `dir`.
fn extents(s: &Sample) -> [u64; 2] {
    let first = s.image.get_inode(s.dir).root;
    [first, s.image.word(s.image.at(first) + LogExtentHead::NEXT)]
}

fn set_head(s: &mut Sample, slot: u64, head: &LogExtentHead) {
    let at = s.image.at(slot);
    s.image.set_bytes(at, head.as_bytes());
}

fn flip(s: &mut Sample, at: u64, bits: u64) {
    let word = s.image.word(at);
    s.image.set_word(at, word ^ bits);
}

#[test]
fn not_a_usable_pool() {
    let report = checked(&vec![0; 1 << 20]);
    assert!(report.has(Class::NotAPool), "{report}");
}

const EIO: i32 = 5;

/// An image whose first page of metadata cannot be read.
struct Poisoned(Sample);

impl Image for Poisoned {
    fn len(&self) -> u64 {
        Image::len(&self.0.image.bytes)
    }

    fn read(&self, at: u64, out: &mut [u8]) -> std::io::Result<()> {
        let lost = self.0.image.geometry.meta_at;
        if at < lost + 4096 && lost < at + out.len() as u64 {
            return Err(std::io::Error::from_raw_os_error(EIO));
        }
        Image::read(&self.0.image.bytes, at, out)
    }
}

#[test]
fn unreadable() {
    for sample in [sample(), closed()] {
        let place = format!("offset {}", sample.image.geometry.meta_at);
        let report = checked(&Poisoned(sample));
        assert_found(&report, Class::Unreadable, &place, Severity::Damage);
    }
}

/// In an unused slot: only the sum covers it.
#[test]
fn metadata_at_home_that_differ_from_their_sum() {
    let mut image = TestImage::logged();
    image.file(vellum_layout::ROOT_SLOT, b"f", 1);
    image.begin_log();
    let report = checked(&image.bytes);
    assert!(report.is_sound(), "{report}");
    let at = image.geometry.meta_at + image.geometry.chunk_bytes - 8;
    image.set_word(at, 1);
    let report = checked(&image.bytes);
    assert_found(&report, Class::HomeSum, "offset 0", Severity::Damage);
}

/// The contents of a record are checked, whatever they are.
#[test]
fn what_a_record_says_is_checked() {
    let mut image = TestImage::logged();
    image.begin_log();
    let home = image.bytes.clone();
    let file = image.file(vellum_layout::ROOT_SLOT, b"f", 1);
    image.set_bytes(image.geometry.data_at, &[7; 5000]);
    let mut broken = image.bytes.clone();
    image.end_epoch(home.clone());
    let report = checked(&image.bytes);
    assert!(report.is_sound(), "{report}");
    assert_eq!(report.summary.entries, 1);
    let log = vellum_check::survey::redo_log(&image.bytes, &image.superblock).unwrap();
    assert_eq!((log.blocks.len(), log.end.0), (2, 2));

    std::mem::swap(&mut image.bytes, &mut broken);
    image.edit_inode(file, |inode| inode.root = 0);
    image.set_word(image.at(file), 99);
    image.end_epoch(home);
    assert!(!checked(&image.bytes).is_sound());
}

#[test]
fn unsound_undo_log() {
    let mut image = TestImage::split();
    let look = |image: &TestImage| check(&image.bytes, Options::default());
    assert!(look(&image).is_sound(), "{}", look(&image));
    let at = image.geometry.undo_at;
    image.set_word(at, 7);
    let report = look(&image);
    assert_found(
        &report,
        Class::UndoLog,
        &format!("offset {at}"),
        Severity::Damage,
    );
    assert!(report.complete);
}

/// A crash may leave an older copy, but not a damaged one.
#[test]
fn bad_superblock_copy() {
    let place = "superblock, last copy";
    found(Class::SuperblockCopy, place, |s| {
        let mut copy = s.image.superblock.clone();
        copy.sequence += 1;
        copy.seal();
        for at in [0, 4096] {
            s.image.set_bytes(at, copy.as_bytes());
        }
    });
    for mut sample in [sample(), closed()] {
        let at = sample.image.geometry.last_copy_at;
        flip(&mut sample, at + 40, 1);
        let report = checked(&sample.image.bytes);
        assert_found(&report, Class::SuperblockCopy, place, Severity::Damage);
    }
}

#[test]
fn impossible_geometry() {
    found(Class::Geometry, "superblock, counting copy", |s| {
        let half = s.image.bytes.len() / 2;
        s.image.bytes.truncate(half);
    });
}

#[test]
fn missing_dataset() {
    let mut sample = sample();
    let unit = vellum_layout::DATASET_ALIGN;
    let at = sample.image.superblock.dataset_room(unit);
    let uuid = [0xA5; 16];
    let table = sample.image.superblock.with_dataset("more", at, unit, uuid);
    let table = table.unwrap();
    for copy in [0, 4096, table.last_copy_at] {
        sample.image.set_bytes(copy, table.as_bytes());
    }
    // The dataset itself is a separate pool.
    let mut own = sample.image.superblock.clone();
    own.uuid = uuid;
    own.seal();
    let mut file = sample.image.bytes.clone();
    file.resize((at + unit) as usize, 0);
    file[at as usize..][..4096].copy_from_slice(own.as_bytes());
    let look = |file: &Vec<u8>| {
        let left = vellum_check::Left {
            file: Some(file),
            ..Default::default()
        };
        vellum_check::check_killed(&sample.image.bytes, left, Options::default())
    };
    assert!(look(&file).is_sound(), "{}", look(&file));
    let mut cut = file.clone();
    cut.truncate(file.len() - 1);
    let mut wiped = file.clone();
    for copy in [at, at + 4096, at + unit - 4096] {
        wiped[copy as usize..][..4096].fill(0);
    }
    let mut other = table.clone();
    other.uuid = [0xF0; 16];
    other.seal();
    let mut foreign = wiped.clone();
    foreign[at as usize..][..4096].copy_from_slice(other.as_bytes());
    for file in [cut, wiped, foreign] {
        let report = look(&file);
        let place = "dataset 1";
        assert_found(&report, Class::Dataset, place, Severity::Damage);
    }
}

#[test]
fn unsound_state_word() {
    found(Class::StateWord, "state block", |s| {
        let at = s.image.geometry.state_at;
        flip(s, at, 1 << 20);
    });
}

#[test]
fn unsound_chunk_word() {
    found(Class::ChunkWord, "chunk 1", |s| {
        let at = s.image.geometry.chunk_table_at + 8;
        flip(s, at, 1 << 40);
    });
}

#[test]
fn unsound_journal() {
    found(Class::JournalUnsound, "thread slot 1", |s| {
        s.image.journal(1, &[JournalPair::store(8, 5)]);
    });
}

/// A record that stores the present value.
fn harmless(s: &Sample) -> [JournalPair; 1] {
    let at = s.image.at(s.file_entry);
    [JournalPair::store(at, s.image.word(at))]
}

#[test]
fn unretired_journal() {
    found(Class::JournalPending, "thread slot 3", |s| {
        let pairs = harmless(s);
        s.image.journal(3, &pairs);
    });
}

/// In a closed pool no record counts.
#[test]
fn conflicting_journal_records() {
    let mut sample = sample();
    let pairs = harmless(&sample);
    sample.image.journal(0, &pairs);
    sample.image.journal(1, &pairs);
    let report = checked(&sample.image.bytes);
    assert_found(
        &report,
        Class::JournalConflict,
        "thread slot 1",
        Severity::Damage,
    );
}

/// The inode has a name, so no crash explains its state.
#[test]
fn bad_inode_checksum() {
    for mut sample in [sample(), closed()] {
        let at = sample.image.at(sample.file) + Inode::BTIME;
        flip(&mut sample, at, 4);
        let report = checked(&sample.image.bytes);
        assert_found(&report, Class::InodeChecksum, "inode 3", Severity::Damage);
    }
    found(Class::InodeChecksum, "inode 29", |s| {
        let ino = s.image.inode(FileKind::File, 0);
        let at = s.image.at(ino) + Inode::BTIME;
        flip(s, at, 1);
    });
}

#[test]
fn bad_inode_kind() {
    for mut sample in [sample(), closed()] {
        let ino = sample.file;
        sample
            .image
            .edit_inode(ino, |inode| inode.identity ^= 1 << 8);
        let report = checked(&sample.image.bytes);
        assert_found(&report, Class::InodeKind, "inode 3", Severity::Damage);
    }
    found(Class::InodeKind, "inode 29", |s| {
        let ino = s.image.inode(FileKind::File, 0);
        s.image.edit_inode(ino, |inode| inode.identity ^= 1 << 8);
    });
}

#[test]
fn bad_inode_state() {
    for mut sample in [sample(), closed()] {
        let at = sample.image.at(sample.file) + Inode::IDENTITY;
        flip(&mut sample, at, 6);
        let report = checked(&sample.image.bytes);
        assert_found(&report, Class::InodeState, "inode 3", Severity::Damage);
    }
    found(Class::InodeState, "inode 29", |s| {
        let ino = s.image.inode(FileKind::File, 0);
        let at = s.image.at(ino) + Inode::IDENTITY;
        flip(s, at, 6);
    });
}

#[test]
fn reserved_field_set() {
    found(Class::Reserved, "inode 3", |s| {
        let at = s.image.at(s.file) + Inode::LINKS;
        flip(s, at, 1 << 32);
    });
}

#[test]
fn impossible_size() {
    found(Class::Size, "inode 3", |s| {
        s.image.edit_inode(3, |inode| inode.size = (1 << 44) + 1);
    });
}

#[test]
fn no_root_directory() {
    found(Class::Root, "inode 1", |s| {
        s.image.edit_inode(1, |inode| inode.identity &= !0xFF);
    });
}

#[test]
fn unnamed_inode() {
    found(Class::Unnamed, "inode 29", |s| {
        s.image.inode(FileKind::File, 0);
    });
}

#[test]
fn orphan_inode() {
    found(Class::Orphan, "inode 29", |s| {
        let ino = s.image.inode(FileKind::File, 0);
        s.image.edit_inode(ino, |inode| inode.identity += 1);
    });
}

#[test]
fn entry_to_an_orphan() {
    found_at_entry(Class::NamedOrphan, |s, slot| {
        let ino = s.image.get_entry(slot).0.target as u32;
        s.image.edit_inode(ino.into(), |inode| inode.identity += 1);
    });
}

#[test]
fn unsound_log_extent() {
    found(Class::LogUnsound, "inode 2", |s| {
        let at = s.image.at(extents(s)[0]);
        flip(s, at + 16, 1);
    });
}

#[test]
fn log_extent_in_a_wrong_chunk() {
    found(Class::LogChunk, "inode 2", |s| {
        s.image.edit_inode(2, |inode| inode.root = 5);
    });
}

#[test]
fn log_extent_of_another_directory() {
    found(Class::LogShared, "inode 2", |s| {
        let root = s.image.get_inode(1).root;
        s.image.edit_inode(2, |inode| inode.root = root);
    });
}

#[test]
fn log_loop() {
    found(Class::LogLoop, "inode 2", |s| {
        let second = extents(s)[1];
        let next = s.image.at(second) + LogExtentHead::NEXT;
        s.image.set_word(next, second);
    });
}

#[test]
fn unsound_entry() {
    found_at_entry(Class::EntryUnsound, |s, slot| {
        let at = s.image.at(slot);
        flip(s, at + Entry::NAME, 1);
    });
}

#[test]
fn impossible_name() {
    found_at_entry(Class::EntryName, |s, slot| {
        let mut head = s.image.get_entry(slot).0;
        let name = b"a/b";
        head.name_len = name.len() as u16;
        head.name_hash = vellum_layout::name_hash(crate::testimage::SEED, name);
        s.image.put_entry(slot, &head, name);
    });
}

#[test]
fn entry_to_a_free_inode() {
    found_at_entry(Class::EntryToFree, |s, slot| {
        s.image
            .edit_entry(slot, |head| head.target = head.target & !0xFFFF | 63);
    });
}

#[test]
fn entry_to_another_generation() {
    found_at_entry(Class::EntryGeneration, |s, slot| {
        s.image.edit_entry(slot, |head| head.generation += 1);
    });
}

#[test]
fn entry_of_another_kind() {
    found_at_entry(Class::EntryKind, |s, slot| {
        s.image
            .edit_entry(slot, |head| head.target ^= (8 ^ 10) << 48);
    });
}

#[test]
fn entry_of_another_parent() {
    found_at_entry(Class::EntryParent, |s, slot| {
        s.image.edit_entry(slot, |head| head.parent = 1);
    });
}

#[test]
fn duplicate_name() {
    found(Class::DuplicateName, "inode 2", |s| {
        s.image.link(2, b"file 7", s.other);
    });
}

#[test]
fn cookies_out_of_order() {
    found(Class::Cookies, "inode 2", |s| {
        let second = extents(s)[1];
        let next = s.image.word(s.image.at(second) + LogExtentHead::NEXT);
        let mut head = LogExtentHead::new(second, 2, GENERATION, 2, LogExtentKind::Large, false);
        head.next = next;
        set_head(s, second, &head);
    });
}

#[test]
fn slot_owned_twice() {
    let slot = sample().entries[19];
    found(Class::SlotShared, &format!("slot {slot}"), |s| {
        let (word, _) = s.image.next_word(2);
        s.image.set_word(word, LogWord::new(slot).0);
    });
}

#[test]
fn unreachable_directory() {
    found(Class::Unreachable, "inode 2", |s| s.image.kill(s.dir_entry));
}

#[test]
fn directory_cycle() {
    found(Class::Cycle, "inode 2", |s| {
        s.image.kill(s.dir_entry);
        s.image.link(s.sub, b"up", 2);
    });
}

#[test]
fn directory_with_two_names() {
    found(Class::DirectoryNames, "inode 2", |s| {
        s.image.link(1, b"again", 2);
    });
}

#[test]
fn wrong_parent() {
    found(Class::ParentWrong, "inode 2", |s| {
        s.image.edit_inode(2, |inode| inode.parent = 7);
    });
}

#[test]
fn wrong_link_count() {
    found(Class::LinkCount, "inode 3", |s| {
        let links = LinksWord::new(7, 0).0;
        s.image.edit_inode(3, |inode| inode.links = links);
    });
}

#[test]
fn stale_directory_times() {
    found(Class::DirectoryTimes, "inode 2", |s| {
        s.image.edit_inode(2, |inode| inode.ctime = NOW / 2);
    });
}

#[test]
fn unsound_symlink_text() {
    found(Class::TextUnsound, "inode 4", |s| {
        assert_eq!(s.short, 4);
        let at = s.image.at(s.image.get_inode(4).root);
        flip(s, at, 1);
    });
}

#[test]
fn unsound_extended_attributes() {
    found(Class::XattrUnsound, "inode 3", |s| {
        let at = s.image.at(s.labels);
        flip(s, at + 16, 1);
    });
}

#[test]
fn wrong_attribute_flags() {
    found(Class::XattrFlags, "inode 3", |s| {
        s.image
            .edit_inode(3, |inode| inode.identity ^= IdentityWord::CAPABILITY);
    });
}

#[test]
fn mapping_root_out_of_range() {
    found(Class::MapSegment, "inode 3", |s| {
        let root = MapRoot::new(1, 3).0;
        s.image.edit_inode(3, |inode| inode.root = root);
    });
}

#[test]
fn mapping_id_of_two_inodes() {
    let other = sample().other;
    found(Class::MapShared, &format!("inode {other}"), |s| {
        let root = MapRoot::new(0, 3).0;
        s.image.edit_inode(other, |inode| inode.root = root);
    });
}

#[test]
fn unsound_table_entry() {
    found(Class::MapWord, "block 9", |s| {
        s.image.set_map(9, MapWord(8));
    });
}

#[test]
fn block_of_nobody() {
    found(Class::MapNobody, "block 5", |s| {
        s.image.map(MapState::Mapped, 1000, 3);
    });
}

#[test]
fn block_mapped_twice() {
    found(Class::MapTwice, "block 5", |s| {
        s.image.map(MapState::Unwritten, 3, 1);
    });
}

#[test]
fn block_of_metadata_and_of_a_file() {
    found(Class::MapMetadata, "block 1", |s| {
        s.image.take_for_metadata(1)
    });
    // Free in the table.
    let mut sample = closed();
    sample.image.take_for_metadata(9);
    let report = checked(&sample.image.bytes);
    assert!(report.has(Class::MapMetadata), "{report}");
}

#[test]
fn table_entry_twice() {
    for mapping in [MappingKind::Cuckoo, MappingKind::Level] {
        for (mut sample, severity) in keyed(mapping)
            .into_iter()
            .zip([Severity::Residue, Severity::Damage])
        {
            let (_, word, place) = sample.image.entry_of(3, 1);
            let place = KeyedWord::new(word.0, place.block(), 0, 0);
            sample.image.enter(word, place, 1);
            let report = checked(&sample.image.bytes);
            let fits = |found: &Finding| found.severity == severity;
            assert!(report.of(Class::MapCopy).any(fits), "{report}");
        }
    }
}

#[test]
fn wrong_counts_of_a_table_entry() {
    for (mut sample, severity) in keyed(MappingKind::Cuckoo)
        .into_iter()
        .zip([Severity::Residue, Severity::Damage])
    {
        let (at, word, place) = sample.image.entry_of(3, 2);
        let place = KeyedWord::new(word.0, place.block(), 1, 2);
        sample.image.set_word(at + 8, place.0);
        let report = checked(&sample.image.bytes);
        let fits = |found: &Finding| found.severity == severity;
        assert!(report.of(Class::MapCounts).any(fits), "{report}");
    }
}

#[test]
fn wrong_levels_of_the_mapping_table() {
    for mut sample in keyed(MappingKind::Level) {
        let at = sample.image.geometry.table_at;
        sample.image.set_word(at, 0);
        let report = checked(&sample.image.bytes);
        assert!(report.has(Class::MapLevels), "{report}");
        assert!(report.damage > 0, "{report}");
    }
}

#[test]
fn block_past_the_end_of_file() {
    found(Class::MapPastEnd, "block 5", |s| {
        s.image.map(MapState::Mapped, 3, 3);
    });
}

/// One may outlive a close, but not a recovery.
#[test]
fn block_in_limbo() {
    for (strict_clean, severity) in [(false, Severity::Residue), (true, Severity::Damage)] {
        let mut sample = sample();
        sample.image.map(MapState::Limbo, 3, 99);
        let options = Options {
            strict_clean,
            progress: None,
        };
        let report = check(&sample.image.bytes, options);
        assert_found(&report, Class::Limbo, "block 5", severity);
    }
}

/// A slot that is marked but unused, and one that is used but not marked.
#[test]
fn wrong_live_map() {
    found_if_closed(Class::LiveMap, "live map", |s| {
        let at = s.image.geometry.live_map_at;
        flip(s, at + 8, 1 << 8);
    });
    let mut leaky = sample();
    leaky.image.take(ChunkKind::Entries, 3);
    leaky.image.close();
    let mut lossy = sample();
    let text = lossy.image.get_inode(lossy.short).root;
    lossy.image.forget(text);
    lossy.image.close();
    for sample in [leaky, lossy] {
        let report = checked(&sample.image.bytes);
        assert_found(&report, Class::LiveMap, "live map", Severity::Damage);
    }
}

#[test]
fn wrong_saved_counters() {
    found_if_closed(Class::SavedCounters, "state block", |s| {
        let at = s.image.geometry.state_at + 72;
        s.image.set_word(at, 3);
    });
}

#[test]
fn wrong_saved_allocator_state() {
    found_if_closed(Class::SavedState, "saved allocator state", |s| {
        let at = s.image.geometry.saved_state().free_at();
        flip(s, at, 1 << 9);
    });
}

/// The test has the document's name of its class, and checks that class.
#[test]
fn every_class_of_the_document_has_its_test() {
    let document = include_str!("../../../../docs/crash/damage.md");
    let (_, table) = document.split_once("<!-- classes -->").unwrap();
    let rows = table
        .lines()
        .skip(3)
        .take_while(|line| line.starts_with('|'));
    let names = rows.filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let names: Vec<&str> = names.collect();
    assert_eq!(names.len(), Class::ALL.len());
    for (name, class) in names.into_iter().zip(Class::ALL) {
        let head = format!("#[test]\nfn {}() {{\n", name.replace(' ', "_"));
        let tests = [include_str!("classes.rs"), include_str!("area_classes.rs")];
        let (_, rest) = tests
            .iter()
            .find_map(|tests| tests.split_once(&head))
            .unwrap_or_else(|| panic!("`{name}` has no test"));
        let body = rest.split("\n}").next().unwrap_or_default();
        let is_about = |end: char| body.contains(&format!("Class::{class:?}{end}"));
        assert!([',', ')'].into_iter().any(is_about), "the test of `{name}`");
    }
}
