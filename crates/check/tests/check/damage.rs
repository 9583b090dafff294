//! Injects every form of damage, and checks that it is found with its location.

use crate::testimage::{GENERATION, NOW, Sample, TestImage, closed, sample};
use vellum_check::{Class, Finding, Options, Report, Severity, check};
use vellum_layout::{
    BLOCK_BYTES, ChunkKind, ChunkWord, Entry, FileKind, IdentityWord, Inode, InodeState, LinksWord,
    LogExtentHead, LogExtentKind, LogWord, MapRoot, MapState, MapWord, Superblock, text_check,
};
use zerocopy::IntoBytes;

/// Damages an open and a closed pool, and checks that `class` is found as damage at `place`, and
/// that the exit status reports it.
#[track_caller]
fn damaged(class: Class, place: &str, damage: impl Fn(&mut Sample)) {
    for mut sample in [sample(), closed()] {
        damage(&mut sample);
        let report = check(&sample.image.bytes, Options::default());
        assert_found(&report, class, place);
        assert_eq!(report.exit_code() & 4, 4, "{report}");
    }
}

#[track_caller]
fn assert_found(report: &Report, class: Class, place: &str) {
    let fits = |found: &Finding| found.place == place && found.severity == Severity::Damage;
    assert!(
        report.of(class).any(fits),
        "{class:?} at {place} is not in:\n{report}"
    );
}

/// As [`damaged`]; the open pool has no other finding.
#[track_caller]
pub(crate) fn damaged_only(class: Class, place: &str, damage: impl Fn(&mut Sample)) {
    let mut sample = sample();
    damage(&mut sample);
    let report = check(&sample.image.bytes, Options::default());
    let others = report.findings.iter().filter(|found| found.class != class);
    assert_eq!(others.count(), 0, "{report}");
    damaged(class, place, damage);
}

#[test]
fn superblock_copies() {
    damaged_only(Class::SuperblockCopy, "superblock, first copy", |s| {
        s.image.bytes[100] ^= 1
    });
    damaged_only(Class::SuperblockCopy, "superblock, second copy", |s| {
        s.image.bytes[5000] ^= 1
    });
    damaged_only(Class::SuperblockCopy, "superblock, last copy", |s| {
        let at = s.image.geometry.last_copy_at as usize;
        s.image.bytes[at + 40] ^= 1;
    });
    damaged_only(Class::SuperblockCopy, "superblock, last copy", |s| {
        let mut copy = s.image.superblock.clone();
        copy.uuid[0] ^= 1;
        copy.seal();
        let at = s.image.geometry.last_copy_at;
        s.image.set_bytes(at, copy.as_bytes());
    });
}

#[test]
fn the_newest_superblock_is_current_and_older_ones_are_residue() {
    let mut sample = sample();
    let mut copy = sample.image.superblock.clone();
    copy.sequence += 1;
    copy.seal();
    sample.image.set_bytes(0, copy.as_bytes());
    let report = check(&sample.image.bytes, Options::default());
    assert_eq!((report.damage, report.residue), (0, 2), "{report}");
}

#[test]
fn no_pool_at_all() {
    for bytes in [vec![], vec![0; 10], vec![0; 1 << 20]] {
        let report = check(&bytes, Options::default());
        assert!(report.has(Class::NotAPool), "{report}");
        assert_eq!(report.exit_code(), 8);
    }
}

#[test]
fn geometry() {
    damaged(Class::Geometry, "superblock, counting copy", |s| {
        let len = s.image.bytes.len();
        s.image.bytes.truncate(len - BLOCK_BYTES as usize);
    });
}

#[test]
fn pools_of_later_releases_are_refused_with_the_reason() {
    let refused = |change: fn(&mut Superblock)| {
        let mut sample = closed();
        change(&mut sample.image.superblock);
        sample.image.superblock.seal();
        sample.image.write_superblocks();
        let report = check(&sample.image.bytes, Options::default());
        assert_eq!(report.findings.len(), 1, "{report}");
        assert!(report.has(Class::NotAPool), "{report}");
        assert_eq!(report.exit_code(), 8);
        report.findings[0].detail.clone()
    };
    assert!(refused(|sb| sb.version = 2).contains("format version 2"));
    assert!(
        refused(|sb| sb.incompatible = 1 << 40).contains("incompatible features 0x10000000000")
    );
    assert!(refused(|sb| sb.segments[0].medium = 1).contains("medium of data"));
    assert!(refused(|sb| sb.segments[0].fs = 1).contains("dataset of segment 0"));
    let mut newer = sample();
    newer.image.superblock.read_only_compatible = 8;
    newer.image.superblock.seal();
    newer.image.write_superblocks();
    let report = check(&newer.image.bytes, Options::default());
    assert!(report.is_sound(), "{report}");
}

#[test]
fn words_of_state_and_chunks() {
    damaged_only(Class::StateWord, "state block", |s| {
        let at = s.image.geometry.state_at;
        s.image.set_word(at, 3);
    });
    damaged(Class::ChunkWord, "chunk 1", |s| {
        let at = s.image.geometry.chunk_table_at + 8;
        let word = s.image.word(at);
        s.image.set_word(at, word ^ 1 << 40);
    });
    damaged(Class::ChunkWord, "chunk 1", |s| {
        let at = s.image.geometry.chunk_table_at + 8;
        s.image
            .set_word(at, ChunkWord::new(1, ChunkKind::Entries, 2).0);
    });
}

fn raw_inode(sample: &mut Sample, slot: u64, offset: u64, flip: u64) {
    let at = sample.image.at(slot) + offset;
    let word = sample.image.word(at);
    sample.image.set_word(at, word ^ flip);
}

#[test]
fn inodes() {
    damaged_only(Class::InodeChecksum, "inode 3", |s| {
        assert_eq!(s.file, 3);
        raw_inode(s, 3, Inode::BTIME, 4);
    });
    damaged_only(Class::InodeKind, "inode 3", |s| {
        s.image.edit_inode(3, |inode| inode.identity ^= 1 << 8);
    });
    damaged_only(Class::InodeState, "inode 3", |s| {
        raw_inode(s, 3, Inode::IDENTITY, 6);
    });
    damaged_only(Class::Reserved, "inode 1", |s| {
        let word = s.image.at(s.image.get_inode(1).root) + LogExtentKind::Small.words_at() + 40;
        s.image.set_word(word, 1 << 48);
    });
    damaged_only(Class::Reserved, "inode 3", |s| {
        raw_inode(s, 3, Inode::LINKS, 1 << 32);
    });
    damaged_only(Class::Size, "inode 3", |s| {
        s.image.edit_inode(3, |inode| inode.size = (1 << 44) + 1);
    });
}

#[test]
fn the_root() {
    let kinds: [fn(&mut Inode); 3] = [
        |inode| inode.identity &= !0xFF,
        |inode| {
            inode.identity = IdentityWord(inode.identity)
                .with_state(InodeState::Orphan)
                .0
        },
        |inode| {
            inode.identity = IdentityWord::new(InodeState::Live, FileKind::File, 0, 0).0;
        },
    ];
    for kind in kinds {
        damaged(Class::Root, "inode 1", |s| s.image.edit_inode(1, kind));
    }
    damaged(Class::Root, "inode 1", |s| raw_inode(s, 1, Inode::BTIME, 1));
}

/// The slots of the two extents of `dir`.
fn extents(sample: &Sample) -> (u64, u64) {
    let first = sample.image.get_inode(sample.dir).root;
    let next = sample.image.at(first) + LogExtentHead::NEXT;
    (first, sample.image.word(next))
}

#[test]
fn log_extents() {
    damaged(Class::LogUnsound, "inode 2", |s| {
        assert_eq!(s.dir, 2);
        let at = s.image.at(extents(s).0);
        s.image.bytes[at as usize + 16] ^= 1;
    });
    // The extent of an earlier directory with the same number.
    damaged(Class::LogUnsound, "inode 2", |s| {
        let (first, second) = extents(s);
        let mut head = LogExtentHead::new(first, 2, GENERATION - 1, 3, LogExtentKind::Small, false);
        head.next = second;
        let at = s.image.at(first);
        s.image.set_bytes(at, head.as_bytes());
    });
    damaged(Class::LogUnsound, "inode 2", |s| {
        let next = s.image.at(extents(s).0) + LogExtentHead::NEXT;
        s.image.set_word(next, u64::MAX);
    });
    damaged(Class::LogUnsound, "inode 2", |s| {
        let (first, second) = extents(s);
        let next = s.image.at(first) + LogExtentHead::NEXT;
        s.image.set_word(next, second + 1);
    });
    damaged(Class::LogChunk, "inode 2", |s| {
        s.image.edit_inode(2, |inode| inode.root = 5);
    });
    damaged(Class::LogChunk, "inode 2", |s| {
        let at = extents(s).0;
        let head = LogExtentHead::new(at, 2, GENERATION, 3, LogExtentKind::Large, false);
        let at = s.image.at(at);
        s.image.set_bytes(at, head.as_bytes());
    });
    damaged(Class::LogShared, "inode 2", |s| {
        let root = s.image.get_inode(1).root;
        s.image.edit_inode(2, |inode| inode.root = root);
    });
    damaged_only(Class::LogLoop, "inode 2", |s| {
        let (first, second) = extents(s);
        let next = s.image.at(second) + LogExtentHead::NEXT;
        s.image.set_word(next, second);
        let _ = first;
    });
    damaged(Class::Cookies, "inode 2", |s| {
        let (_, second) = extents(s);
        let next = s.image.word(s.image.at(second) + LogExtentHead::NEXT);
        let mut head = LogExtentHead::new(second, 2, GENERATION, 2, LogExtentKind::Large, false);
        head.next = next;
        let at = s.image.at(second);
        s.image.set_bytes(at, head.as_bytes());
    });
}

/// A chain that ends too early looks like a complete one, but what it named has no name.
#[test]
fn truncated_logs() {
    let mut sample = closed();
    let next = sample.image.at(extents(&sample).0) + LogExtentHead::NEXT;
    sample.image.set_word(next, 0);
    let report = check(&sample.image.bytes, Options::default());
    assert_found(&report, Class::Unnamed, "inode 28");
    assert_eq!(report.of(Class::Unnamed).count(), 12, "{report}");
}

/// As [`damaged`], at the entry that `pick` returns.
#[track_caller]
fn entry_damaged(class: Class, pick: impl Fn(&Sample) -> u64, damage: impl Fn(&mut Sample, u64)) {
    let place = format!("slot {}", pick(&sample()));
    damaged(class, &place, |s| {
        let slot = pick(s);
        damage(s, slot);
    });
}

#[test]
fn entries() {
    let pick = |s: &Sample| s.entries[4];
    entry_damaged(Class::EntryUnsound, pick, |s, slot| {
        let at = s.image.at(slot) as usize;
        s.image.bytes[at + 50] ^= 1;
    });
    entry_damaged(
        Class::EntryUnsound,
        |s| s.dead,
        |s, slot| {
            let at = s.image.at(slot) as usize;
            s.image.bytes[at + 50] ^= 1;
        },
    );
    entry_damaged(Class::EntryUnsound, pick, |s, slot| {
        s.image.edit_entry(slot, |head| head.name_hash ^= 1);
    });
    // The entry of an earlier directory with the same number.
    entry_damaged(Class::EntryUnsound, pick, |s, slot| {
        let (head, name) = s.image.get_entry(slot);
        let mut buffer = [0; 384];
        let len = Entry::encode(&head, &name, GENERATION - 1, &mut buffer);
        let at = s.image.at(slot);
        s.image.set_bytes(at, &buffer[..len]);
    });
    entry_damaged(Class::EntryUnsound, pick, |s, slot| {
        s.image.edit_entry(slot, |head| head.flags = 1);
    });
    entry_damaged(Class::EntryUnsound, pick, |s, slot| {
        s.image.edit_entry(slot, |head| head.target |= 1 << 56);
    });
    entry_damaged(Class::EntryToFree, pick, |s, slot| {
        s.image
            .edit_entry(slot, |head| head.target = head.target & !0xFFFF | 63);
    });
    entry_damaged(Class::EntryToFree, pick, |s, slot| {
        s.image.edit_entry(slot, |head| head.target |= 1 << 47);
    });
    entry_damaged(Class::EntryGeneration, pick, |s, slot| {
        s.image.edit_entry(slot, |head| head.generation += 1);
    });
    entry_damaged(Class::EntryKind, pick, |s, slot| {
        s.image
            .edit_entry(slot, |head| head.target ^= (8 ^ 10) << 48);
    });
    entry_damaged(Class::EntryParent, pick, |s, slot| {
        s.image.edit_entry(slot, |head| head.parent = 1);
    });
    entry_damaged(Class::Cookies, pick, |s, slot| {
        s.image.edit_entry(slot, |head| head.cookie += 1);
    });
    entry_damaged(Class::NamedOrphan, pick, |s, slot| {
        let ino = s.image.get_entry(slot).0.target as u32;
        s.image
            .edit_inode(u64::from(ino), |inode| inode.identity += 1);
    });
    for name in [b".".as_slice(), b"..", b"a/b", b"a\0"] {
        entry_damaged(Class::EntryName, pick, |s, slot| {
            let mut head = s.image.get_entry(slot).0;
            head.name_len = name.len() as u16;
            head.name_hash = vellum_layout::name_hash(crate::testimage::SEED, name);
            s.image.put_entry(slot, &head, name);
        });
    }
}

#[test]
fn an_entry_that_reaches_out_of_its_chunk() {
    let mut image = TestImage::empty();
    let ino = image.inode(FileKind::File, 0);
    let (word, cookie) = image.next_word(1);
    // The log took slot 32; leave one slot of the chunk.
    assert_eq!(image.get_inode(1).root, 32);
    image.take(ChunkKind::Entries, 30);
    let (slot, _) = image.unlogged(1, b"x", ino, cookie);
    assert_eq!(slot, 63);
    let mut head = image.get_entry(slot).0;
    head.name_len = 200;
    image.take(ChunkKind::Entries, 8);
    let name = [b'z'; 200];
    head.name_hash = vellum_layout::name_hash(crate::testimage::SEED, &name);
    image.put_entry(slot, &head, &name);
    image.set_word(word, LogWord::new(slot).0);
    let report = check(&image.bytes, Options::default());
    assert_found(&report, Class::EntryUnsound, "slot 63");
}

#[test]
fn names() {
    damaged_only(Class::DuplicateName, "inode 2", |s| {
        s.image.link(2, b"file 7", s.other);
    });
    // A dead entry of the same name is no duplicate.
    let mut sample = sample();
    let entry = sample.image.name(2, b"file 7", sample.other);
    sample.image.kill(entry);
    let report = check(&sample.image.bytes, Options::default());
    assert_eq!(report.findings, [], "{report}");
}

#[test]
fn slots() {
    // One entry that its log names twice.
    let slot = sample().entries[19];
    damaged(Class::SlotShared, &format!("slot {slot}"), |s| {
        let (word, _) = s.image.next_word(2);
        s.image.set_word(word, LogWord::new(slot).0);
    });
    // Two symlinks with the same text.
    damaged(Class::TextUnsound, "inode 5", |s| {
        assert_eq!(s.long, 5);
        let root = s.image.get_inode(4).root;
        s.image.edit_inode(5, |inode| inode.root = root);
    });
    // A text in the last slot of an entry, over the end of its name.
    let mut sample = sample();
    let image = &mut sample.image;
    let ino = image.inode(FileKind::File, 0);
    let name = [b'o'; 209];
    let entry = image.link(1, &name, ino);
    image.edit_inode(sample.short, |inode| {
        inode.root = entry + 2;
        inode.size = 1;
        inode.detail = text_check(4, IdentityWord(inode.identity).generation(), b"o");
    });
    let report = check(&image.bytes, Options::default());
    let place = format!("slot {}", entry + 2);
    assert_found(&report, Class::SlotShared, &place);
    assert_eq!(report.findings.len(), 1, "{report}");
}

#[test]
fn the_tree() {
    // `dir` loses its name, with everything in it.
    damaged(Class::Unreachable, "inode 2", |s| s.image.kill(s.dir_entry));
    // `dir` is moved into its own child.
    damaged(Class::Cycle, "inode 2", |s| {
        s.image.kill(s.dir_entry);
        s.image.link(s.sub, b"up", 2);
    });
    damaged(Class::Cycle, "inode 1", |s| {
        s.image.link(s.sub, b"root", 1);
    });
    damaged(Class::DirectoryNames, "inode 2", |s| {
        s.image.link(1, b"again", 2);
    });
    damaged_only(Class::ParentWrong, "inode 2", |s| {
        s.image.edit_inode(2, |inode| inode.parent = 7);
    });
    damaged_only(Class::ParentWrong, "inode 1", |s| {
        s.image.edit_inode(1, |inode| inode.parent = 2);
    });
}

#[test]
fn texts() {
    for (slot, place) in [(4, "inode 4"), (5, "inode 5")] {
        damaged_only(Class::TextUnsound, place, |s| {
            let at = s.image.at(s.image.get_inode(slot).root) as usize;
            s.image.bytes[at] ^= 1;
        });
        damaged_only(Class::TextUnsound, place, |s| {
            s.image.edit_inode(slot, |inode| inode.detail ^= 1 << 32);
        });
        for size in [0, 9, 11, 128, 129, 2999, 3001, 4095, 4096, u64::MAX] {
            damaged_only(Class::TextUnsound, place, |s| {
                s.image.edit_inode(slot, |inode| inode.size = size);
            });
        }
        for root in [0, 3, u64::MAX, 1 << 40] {
            damaged_only(Class::TextUnsound, place, |s| {
                s.image.edit_inode(slot, |inode| inode.root = root);
            });
        }
    }
}

#[test]
fn mappings() {
    damaged(Class::MapSegment, "inode 3", |s| {
        s.image
            .edit_inode(3, |inode| inode.root = MapRoot::new(1, 3).0);
    });
    damaged(Class::MapSegment, "inode 3", |s| {
        s.image.edit_inode(3, |inode| inode.root = 77);
    });
    damaged(Class::MapSegment, "inode 3", |s| {
        s.image.edit_inode(3, |inode| inode.root |= 1 << 31);
    });
    let other = sample().other;
    damaged(Class::MapShared, &format!("inode {other}"), |s| {
        s.image
            .edit_inode(other, |inode| inode.root = MapRoot::new(0, 3).0);
    });
    damaged_only(Class::MapTwice, "block 5", |s| {
        s.image.map(MapState::Unwritten, 3, 1);
    });
    damaged_only(Class::MapWord, "block 9", |s| {
        s.image.set_map(9, MapWord(8))
    });
}

/// Residue in an open pool, and damage in a closed one.
#[track_caller]
fn residue(class: Class, place: &str, leave: impl Fn(&mut Sample)) {
    let mut sample = sample();
    leave(&mut sample);
    let report = check(&sample.image.bytes, Options::default());
    assert_eq!(report.damage, 0, "{report}");
    assert_eq!(report.exit_code(), 0);
    let found = |found: &Finding| found.place == place && found.severity == Severity::Residue;
    assert!(report.of(class).any(found), "{report}");

    let strict = Options {
        strict_clean: true,
        progress: None,
    };
    let report = check(&sample.image.bytes, strict);
    assert_found(&report, class, place);

    let mut sample = closed();
    leave(&mut sample);
    let report = check(&sample.image.bytes, Options::default());
    assert_found(&report, class, place);
    assert_eq!(report.exit_code(), 4);
}

#[test]
fn a_block_in_limbo_may_outlive_a_close_but_not_a_recovery() {
    for (mut sample, strict_clean, damage) in [
        (sample(), false, 0),
        (closed(), false, 0),
        (sample(), true, 1),
    ] {
        sample.image.map(MapState::Limbo, 3, 99);
        // The saved allocator state says that the block is free.
        let saved_state = sample.image.geometry.saved_state().at;
        sample.image.set_bytes(saved_state, &[0; 64]);
        let options = Options {
            strict_clean,
            progress: None,
        };
        let report = check(&sample.image.bytes, options);
        assert_eq!(
            (report.of(Class::Limbo).count(), report.damage),
            (1, damage),
            "{report}"
        );
    }
}

#[test]
fn residue_of_blocks() {
    residue(Class::MapPastEnd, "block 5", |s| {
        s.image.map(MapState::Mapped, 3, 3);
    });
    residue(Class::MapNobody, "block 5", |s| {
        s.image.map(MapState::Mapped, 1000, 3);
    });
}

#[test]
fn residue_of_inodes() {
    residue(Class::Unnamed, "inode 29", |s| {
        let ino = s.image.inode(FileKind::File, 0);
        // The second line may be from an earlier life.
        s.image.edit_inode(ino, |inode| {
            inode.size = u64::MAX;
            inode.root = MapRoot::new(0, 3).0;
        });
    });
    residue(Class::Unnamed, "inode 29", |s| {
        let ino = s.image.inode(FileKind::Directory, 0);
        s.image.edit_inode(ino, |inode| inode.root = u64::MAX);
    });
    residue(Class::Orphan, "inode 29", |s| {
        let ino = s.image.inode(FileKind::File, 0);
        s.image.edit_inode(ino, |inode| inode.identity += 1);
    });
    residue(Class::InodeChecksum, "inode 29", |s| {
        let ino = s.image.inode(FileKind::File, 0);
        raw_inode(s, ino, Inode::BTIME, 1);
    });
    residue(Class::LinkCount, "inode 3", |s| {
        s.image
            .edit_inode(3, |inode| inode.links = LinksWord::new(7, 0).0);
    });
    residue(Class::LinkCount, "inode 2", |s| {
        s.image
            .edit_inode(2, |inode| inode.links = LinksWord::new(7, 0).0);
    });
    residue(Class::DirectoryTimes, "inode 2", |s| {
        s.image.edit_inode(2, |inode| inode.ctime = NOW / 2);
    });
}

#[test]
fn what_a_clean_close_saved() {
    let clean = |class, place: &str, damage: fn(&mut Sample)| {
        let mut sample = closed();
        damage(&mut sample);
        let report = check(&sample.image.bytes, Options::default());
        assert_found(&report, class, place);
        assert_eq!(report.findings.len(), 1, "{report}");
        sample.image.reopen();
        let report = check(&sample.image.bytes, Options::default());
        assert_eq!(report.findings, [], "{report}");
    };
    clean(Class::LiveMap, "live map", |s| {
        let at = s.image.geometry.live_map_at as usize;
        s.image.bytes[at + 9] ^= 1;
    });
    clean(Class::SavedCounters, "state block", |s| {
        let at = s.image.geometry.state_at + 72;
        s.image.set_word(at, 3);
    });
    for saved in [0, 1] {
        for delta in [-1i64, 1] {
            let mut sample = sample();
            sample.image.miscount(saved, delta);
            sample.image.close();
            let report = check(&sample.image.bytes, Options::default());
            assert_found(&report, Class::SavedCounters, "state block");
        }
    }
    // Slots marked but unused; slots used but not marked.
    let mut leaky = sample();
    leaky.image.take(ChunkKind::Entries, 3);
    leaky.image.close();
    let report = check(&leaky.image.bytes, Options::default());
    assert_found(&report, Class::LiveMap, "live map");
    let mut lossy = sample();
    let text = lossy.image.get_inode(lossy.short).root;
    lossy.image.forget(text);
    lossy.image.close();
    let report = check(&lossy.image.bytes, Options::default());
    assert_found(&report, Class::LiveMap, "live map");
    assert!(
        report
            .to_string()
            .contains(&format!("slots {text} to {text}"))
    );
}

#[test]
fn saved_state() {
    let wrong = |damage: &dyn Fn(&mut TestImage)| {
        let mut sample = closed();
        damage(&mut sample.image);
        let report = check(&sample.image.bytes, Options::default());
        assert_found(&report, Class::SavedState, "saved allocator state");
        let count = report.of(Class::SavedState).count() as u64;
        assert_eq!(report.damage, count, "{report}");
    };
    let flip = |image: &mut TestImage, at: u64, bits: u64| {
        let word = image.word(at);
        image.set_word(at, word ^ bits);
    };
    let plan = closed().image.geometry.saved_state();
    // Any bit, and the head of another close.
    for at in [
        plan.at,
        plan.at + 24,
        plan.free_at(),
        plan.counts_at(),
        plan.links_at(),
    ] {
        wrong(&|image| flip(image, at, 1 << 9));
    }
    // With correct checksums: block 0 is in use, block 100 is free.
    wrong(&|image| image.seal_saved_state(|head| head.used += 1));
    wrong(&|image| {
        flip(image, plan.free_at() + 8, 1 << 36);
        image.seal_saved_state(|_| {});
    });
    wrong(&|image| {
        flip(image, plan.counts_at(), 1);
        image.seal_saved_state(|_| {});
    });
    wrong(&|image| {
        flip(image, plan.links_at(), 1);
        image.seal_saved_state(|_| {});
    });
    wrong(&|image| {
        let limbo = image.map(MapState::Limbo, 3, 99);
        assert_eq!(limbo, 5);
    });
    let mut sound = closed();
    flip(&mut sound.image, plan.free_at(), 1);
    sound.image.seal_saved_state(|_| {});
    let report = check(&sound.image.bytes, Options::default());
    assert!(
        report.is_sound(),
        "a taken block may be marked as free: {report}"
    );
    // Nothing was saved.
    sound.image.set_bytes(plan.at, &[0; 64]);
    let report = check(&sound.image.bytes, Options::default());
    assert!(report.is_sound(), "{report}");
}

/// `docs/crash/damage.md` lists every class, in the checker's words and order, and marks those that
/// a crash may leave.
#[test]
fn the_document_lists_every_class() {
    let document = include_str!("../../../../docs/crash/damage.md");
    let (_, table) = document.split_once("<!-- classes -->").unwrap();
    let rows: Vec<(&str, bool)> = table
        .lines()
        .skip(3)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.split(" | ").collect();
            assert_eq!(cells.len(), 3, "{line}");
            assert!(matches!(cells[1], "damage" | "residue"), "{line}");
            (cells[0].trim_start_matches("| "), cells[1] == "residue")
        })
        .collect();
    let classes = Class::ALL.iter();
    let classes: Vec<_> = classes
        .map(|class| (class.text(), class.may_be_residue()))
        .collect();
    assert_eq!(rows, classes);
}
