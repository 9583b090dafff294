//! Every class of damage is mended, and everything readable survives.

use crate::support::{self, assert_kept, fill_blocks, read_sets, read_tree, repaired, repaired_of};
use crate::testimage::{self, Sample, closed, sample};
use vellum_check::{Class, Options, check};
use vellum_layout::{
    BLOCK_BYTES, ChunkKind, ChunkWord, FileKind, IdentityWord, Inode, InodeState, JournalHead,
    JournalPair, LinksWord, LogExtentHead, LogExtentKind, LogWord, MapRoot, MapState, MapWord,
    SLOT_BYTES, Superblock,
};
use vellum_repair::Plan;
use zerocopy::FromBytes;

/// The damaged pool, the plan, and the repaired pool.
type Mended = (Vec<u8>, Plan, Vec<u8>);

/// Damages an open and a closed pool, and mends them: everything readable survives.
#[track_caller]
fn mended(class: Class, damage: impl Fn(&mut Sample)) -> [Mended; 2] {
    let both = mended_somehow(class, damage);
    for (before, plan, after) in &both {
        assert_kept(before, after, plan);
    }
    both
}

#[track_caller]
fn mended_somehow(class: Class, damage: impl Fn(&mut Sample)) -> [Mended; 2] {
    [sample(), closed()].map(|mut sample| {
        let geometry = sample.image.geometry;
        fill_blocks(&mut sample.image.bytes, &geometry);
        damage(&mut sample);
        let before = sample.image.bytes;
        let (plan, after) = repaired_of(class, &before);
        (before, plan, after)
    })
}

/// As [`mended`], and every path leads to the same file as before the damage.
#[track_caller]
fn mended_in_place(class: Class, damage: impl Fn(&mut Sample)) {
    for (_, plan, after) in mended_somehow(class, &damage) {
        let mut sound = sample();
        let geometry = sound.image.geometry;
        fill_blocks(&mut sound.image.bytes, &geometry);
        assert_eq!(read_tree(&after), read_tree(&sound.image.bytes), "{plan:?}");
        // Attributes are lost with the owner and the mode only.
        let are_lost = plan
            .actions
            .iter()
            .any(|action| action.what.contains("are lost"));
        let sets = read_sets(&after);
        assert!(
            are_lost || sets == read_sets(&sound.image.bytes),
            "{plan:?}"
        );
    }
}

/// The flags of an inode, and its project id.
fn flags_of(image: &[u8], ino: u64) -> (u64, u32) {
    let superblock = Superblock::unseal(image).unwrap();
    let at = superblock.geometry().slot_at(ino) as usize;
    let inode = Inode::read_from_bytes(&image[at..at + SLOT_BYTES as usize]).unwrap();
    (IdentityWord(inode.identity).flags(), inode.project)
}

fn flip(sample: &mut Sample, at: u64, bits: u64) {
    let word = sample.image.word(at);
    sample.image.set_word(at, word ^ bits);
}

fn raw_inode(sample: &mut Sample, slot: u64, offset: u64, bits: u64) {
    let at = sample.image.at(slot) + offset;
    flip(sample, at, bits);
}

#[test]
fn superblock_copies() {
    for at in [100, 5000] {
        mended_in_place(Class::SuperblockCopy, |s| s.image.bytes[at] ^= 1);
    }
    mended_in_place(Class::SuperblockCopy, |s| {
        let at = s.image.geometry.last_copy_at as usize;
        s.image.bytes[at + 40] ^= 1;
    });
}

#[test]
fn words_of_state_and_chunks() {
    mended_in_place(Class::StateWord, |s| {
        let at = s.image.geometry.state_at;
        s.image.set_word(at, 3);
    });
    let chunks = closed().image.geometry.meta_chunks;
    for chunk in 0..chunks {
        let at = closed().image.geometry.chunk_table_at + 8 * chunk;
        mended_in_place(Class::ChunkWord, |s| flip(s, at, 1 << 40));
        mended_in_place(Class::ChunkWord, |s| {
            s.image
                .set_word(at, ChunkWord::new(chunk, ChunkKind::Entries, 2).0);
        });
    }
}

#[test]
fn journals() {
    let head = |s: &Sample| s.image.geometry.thread_slot_at(1) + JournalHead::AT;
    mended_in_place(Class::JournalUnsound, |s| {
        let at = head(s);
        s.image.set_word(at, 77);
    });
    mended_in_place(Class::JournalUnsound, |s| {
        s.image.journal(0, &[JournalPair::store(64, 1)]);
    });
}

#[test]
fn committed_records_are_replayed_with_the_rest() {
    let mut crashed = sample();
    let image = &mut crashed.image;
    // Two records of one word, of which the later slot's comes last, and one that never committed.
    let at = image.at(3) + Inode::OWNER;
    image.journal(0, &[JournalPair::store(at, 5)]);
    image.journal(1, &[JournalPair::store(at, 7)]);
    image.journal(2, &[JournalPair::store(at, 9)]);
    let check_at = image.geometry.thread_slot_at(2) + JournalHead::CHECK;
    let torn = image.word(check_at) ^ 1;
    image.set_word(check_at, torn);
    let report = check(&image.bytes, Options::default());
    assert!(report.has(Class::JournalConflict), "{report}");
    let (_, after) = repaired(&image.bytes);
    assert_eq!(support::word(&after, at), 7);
}

/// A chain that ends too early is not itself damage, but the inodes that it named have lost their
/// names.
#[test]
fn truncated_logs() {
    mended_in_place_closed(Class::Unnamed, |s| {
        let next = s.image.at(extents(s).0) + LogExtentHead::NEXT;
        s.image.set_word(next, 0);
    });
    mended_in_place_closed(Class::Unnamed, |s| {
        s.image.edit_inode(2, |inode| inode.root = 0)
    });
    mended_in_place_closed(Class::Unnamed, |s| {
        let words = s.image.at(extents(s).0) + LogExtentKind::Small.words_at();
        s.image.set_bytes(words, &[0; 96]);
    });
}

#[track_caller]
fn mended_in_place_closed(class: Class, damage: impl Fn(&mut Sample)) {
    let after = mended_closed(class, damage);
    assert_eq!(read_tree(&after), read_tree(&closed().image.bytes));
}

#[test]
fn inodes() {
    mended_in_place(Class::InodeChecksum, |s| raw_inode(s, 3, Inode::BTIME, 4));
    mended_in_place(Class::InodeChecksum, |s| {
        raw_inode(s, 3, Inode::PROJECT, 4 << 32)
    });
    mended_in_place(Class::InodeChecksum, |s| {
        raw_inode(s, 3, Inode::IDENTITY, 4 << 40)
    });
    mended_in_place(Class::InodeChecksum, |s| {
        raw_inode(s, 2, Inode::IDENTITY, 2 << 8)
    });
    mended_in_place(Class::InodeKind, |s| {
        s.image.edit_inode(3, |inode| inode.identity ^= 1 << 8);
    });
    mended_in_place(Class::InodeState, |s| raw_inode(s, 3, Inode::IDENTITY, 6));
    // The whole first line.
    mended_in_place(Class::InodeState, |s| {
        let at = s.image.at(3);
        s.image.set_bytes(at, &[0xA5; 64]);
    });
    mended_in_place(Class::Reserved, |s| raw_inode(s, 3, Inode::LINKS, 1 << 32));
    for (_, _, after) in mended(Class::Reserved, |s| {
        let flags = IdentityWord::PROJECT_INHERIT | IdentityWord::NO_DUMP;
        raw_inode(s, 3, Inode::IDENTITY, flags);
        raw_inode(s, 3, Inode::PROJECT, 7);
    }) {
        let (flags, project) = flags_of(&after, 3);
        assert_eq!((flags, project), (IdentityWord::NO_DUMP, 7));
    }
    mended_in_place(Class::Reserved, |s| {
        let word = s.image.at(s.image.get_inode(1).root) + LogExtentKind::Small.words_at() + 40;
        s.image.set_word(word, 1 << 48);
    });
    mended(Class::Size, |s| {
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
            inode.identity = IdentityWord::new(InodeState::Live, FileKind::File, 0, 3).0;
        },
    ];
    for kind in kinds {
        mended_in_place(Class::Root, |s| s.image.edit_inode(1, kind));
    }
    mended_in_place(Class::Root, |s| raw_inode(s, 1, Inode::BTIME, 1));
    // Nothing of it is left, but all roots have the same generation, so that its names are found.
    mended_in_place(Class::Root, |s| {
        let at = s.image.at(1);
        s.image.set_bytes(at, &[0xA5; 128]);
    });
}

/// The slots of the two extents of `dir`.
fn extents(sample: &Sample) -> (u64, u64) {
    let first = sample.image.get_inode(sample.dir).root;
    let next = sample.image.at(first) + LogExtentHead::NEXT;
    (first, sample.image.word(next))
}

#[test]
fn log_extents() {
    // The names are in entries, which all exist.
    mended_in_place(Class::LogUnsound, |s| {
        let at = s.image.at(extents(s).0);
        s.image.bytes[at as usize + 16] ^= 1;
    });
    mended_in_place(Class::LogUnsound, |s| {
        let next = s.image.at(extents(s).0) + LogExtentHead::NEXT;
        s.image.set_word(next, u64::MAX);
    });
    mended_in_place(Class::LogUnsound, |s| {
        let (first, second) = extents(s);
        let next = s.image.at(first) + LogExtentHead::NEXT;
        s.image.set_word(next, second + 1);
    });
    mended_in_place(Class::LogChunk, |s| {
        s.image.edit_inode(2, |inode| inode.root = 5);
    });
    mended_in_place(Class::LogShared, |s| {
        let root = s.image.get_inode(1).root;
        s.image.edit_inode(2, |inode| inode.root = root);
    });
    mended_in_place(Class::LogLoop, |s| {
        let (_, second) = extents(s);
        let next = s.image.at(second) + LogExtentHead::NEXT;
        s.image.set_word(next, second);
    });
    mended_in_place(Class::Cookies, |s| {
        let (_, second) = extents(s);
        let head = LogExtentHead::new(
            second,
            2,
            testimage::GENERATION,
            2,
            LogExtentKind::Large,
            false,
        );
        let at = s.image.at(second);
        s.image.set_bytes(at, zerocopy::IntoBytes::as_bytes(&head));
    });
}

#[test]
fn entries() {
    // The name is gone, and the file is in lost+found.
    let pick = |s: &Sample| s.entries[4];
    for (_, _, after) in mended(Class::EntryUnsound, |s| {
        let at = s.image.at(pick(s)) as usize;
        s.image.bytes[at + 50] ^= 1;
    }) {
        let names = read_tree(&after);
        let names = names
            .keys()
            .filter(|path| path.starts_with(b"/lost+found/#"));
        assert_eq!(names.count(), 1);
    }
    mended(Class::EntryUnsound, |s| {
        let at = s.image.at(s.dead) as usize;
        s.image.bytes[at + 50] ^= 1;
    });
    mended(Class::EntryUnsound, |s| {
        s.image.edit_entry(pick(s), |head| head.flags = 1)
    });
    mended(Class::EntryGeneration, |s| {
        s.image.edit_entry(pick(s), |head| head.generation += 1);
    });
    mended(Class::EntryKind, |s| {
        s.image
            .edit_entry(pick(s), |head| head.target ^= (8 ^ 10) << 48);
    });
    mended(Class::EntryParent, |s| {
        s.image.edit_entry(pick(s), |head| head.parent = 1)
    });
    mended_in_place(Class::Cookies, |s| {
        s.image.edit_entry(pick(s), |head| head.cookie += 1)
    });
    mended_in_place(Class::Cookies, |s| {
        s.image.edit_entry(pick(s), |head| head.cookie = 0)
    });
    mended(Class::EntryName, |s| {
        let slot = pick(s);
        let mut head = s.image.get_entry(slot).0;
        head.name_len = 3;
        head.name_hash = vellum_layout::name_hash(testimage::SEED, b"a/b");
        s.image.put_entry(slot, &head, b"a/b");
    });
    mended_in_place(Class::NamedOrphan, |s| {
        let ino = s.image.get_entry(pick(s)).0.target & 0xFFFF_FFFF;
        s.image.edit_inode(ino, |inode| inode.identity += 1);
    });
}

/// Each name led to the file, one more than its count. When the repair removed one from its
/// directory, the count suggested that none was missing.
#[test]
fn a_name_removed_by_the_repair_is_restored_whatever_the_count() {
    for (_, _, after) in mended(Class::Cookies, |s| {
        let ino = s.image.get_entry(s.entries[4]).0.target & 0xFFFF_FFFF;
        let entry = s.image.link(1, b"another", ino);
        s.image.edit_entry(entry, |head| head.cookie += 1);
        s.image
            .edit_inode(ino, |inode| inode.links = LinksWord::new(1, 0).0);
    }) {
        assert!(read_tree(&after).contains_key(&b"/another"[..]));
    }
}

#[test]
fn entries_to_free_inodes() {
    // Nothing is left of the inode.
    mended(Class::EntryToFree, |s| {
        s.image.edit_entry(s.entries[4], |head| {
            head.target = head.target & !0xFFFF | 63
        });
    });
    // The inode is complete: a file with blocks, a directory, a symlink.
    for ino in [3, 2, 4] {
        mended_in_place(Class::EntryToFree, |s| {
            raw_inode(s, ino, Inode::IDENTITY, InodeState::Live as u64);
        });
    }
}

#[test]
fn names_and_slots() {
    for (_, _, after) in mended(Class::DuplicateName, |s| {
        s.image.link(2, b"file 7", s.other);
    }) {
        let tree = read_tree(&after);
        assert!(tree.contains_key(&b"/dir/file 7"[..]) && tree.contains_key(&b"/dir/other"[..]));
    }
    let slot = sample().entries[19];
    mended_in_place(Class::SlotShared, |s| {
        let (word, _) = s.image.next_word(2);
        s.image.set_word(word, LogWord::new(slot).0);
    });
    // A text in the last slot of an entry.
    mended(Class::SlotShared, |s| {
        let ino = s.image.inode(FileKind::File, 0);
        let entry = s.image.link(1, &[b'o'; 209], ino);
        s.image.edit_inode(s.short, |inode| {
            inode.root = entry + 2;
            inode.size = 1;
            inode.detail =
                vellum_layout::text_check(4, IdentityWord(inode.identity).generation(), b"o");
        });
    });
}

#[test]
fn the_tree() {
    for (_, _, after) in mended(Class::Unreachable, |s| s.image.kill(s.dir_entry)) {
        assert!(read_tree(&after).contains_key(&b"/lost+found/#2/sub"[..]));
    }
    for (_, _, after) in mended(Class::Cycle, |s| {
        s.image.kill(s.dir_entry);
        s.image.link(s.sub, b"up", 2);
    }) {
        assert!(read_tree(&after).contains_key(&b"/lost+found/#2/sub"[..]));
    }
    mended_in_place(Class::Cycle, |s| {
        s.image.link(s.sub, b"root", 1);
    });
    mended_in_place(Class::DirectoryNames, |s| {
        s.image.link(s.sub, b"again", 2);
        s.image.edit_inode(2, |inode| inode.parent = 1);
    });
    mended_in_place(Class::ParentWrong, |s| {
        s.image.edit_inode(2, |inode| inode.parent = 7);
    });
    mended_in_place(Class::ParentWrong, |s| {
        s.image.edit_inode(1, |inode| inode.parent = 2);
    });
}

#[test]
fn texts() {
    for ino in [4, 5] {
        mended(Class::TextUnsound, |s| {
            let at = s.image.at(s.image.get_inode(ino).root) as usize;
            s.image.bytes[at] ^= 1;
        });
        for size in [0, 9, 129, 3001, u64::MAX] {
            mended_in_place(Class::TextUnsound, |s| {
                s.image.edit_inode(ino, |inode| inode.size = size);
            });
        }
        mended(Class::TextUnsound, |s| {
            s.image.edit_inode(ino, |inode| inode.root = 1 << 40)
        });
    }
}

#[test]
fn mappings() {
    for root in [MapRoot::new(1, 3).0, 77, MapRoot::new(0, 3).0 | 1 << 31] {
        mended_in_place(Class::MapSegment, |s| {
            s.image.edit_inode(3, |inode| inode.root = root)
        });
    }
    let other = sample().other;
    mended_in_place(Class::MapShared, |s| {
        s.image
            .edit_inode(other, |inode| inode.root = MapRoot::new(0, 3).0);
    });
    mended(Class::MapWord, |s| s.image.set_map(9, MapWord(8)));
    // The bytes of metadata are not the file's.
    mended_somehow(Class::MapMetadata, |s| s.image.take_for_metadata(1));
    mended_in_place(Class::MapTwice, |s| {
        s.image.map(MapState::Unwritten, 3, 1);
    });
    for (before, _, after) in mended(Class::MapTwice, |s| {
        s.image.map(MapState::Mapped, 3, 1);
    }) {
        // The other block's bytes are in lost+found.
        let (before, after) = (read_tree(&before), read_tree(&after));
        assert_eq!(before[&b"/file"[..]], after[&b"/file"[..]]);
        let kept = &after[&b"/lost+found/#3.at-4096"[..]];
        assert!(matches!(kept, support::Content::File(bytes) if bytes.len() == 4096));
    }
}

/// Damage that a crash may leave, in a closed pool.
#[track_caller]
fn mended_closed(class: Class, damage: impl Fn(&mut Sample)) -> Vec<u8> {
    let mut sample = closed();
    damage(&mut sample);
    let report = check(&sample.image.bytes, Options::default());
    assert!(report.has(class), "{report}");
    let (plan, after) = repaired(&sample.image.bytes);
    assert_kept(&sample.image.bytes, &after, &plan);
    after
}

#[test]
fn residue_on_a_closed_pool() {
    mended_closed(Class::MapPastEnd, |s| {
        s.image.map(MapState::Mapped, 3, 3);
    });
    mended_closed(Class::MapNobody, |s| {
        s.image.map(MapState::Mapped, 1000, 3);
    });
    // The file has no root, or one of another id.
    for root in [0, MapRoot::new(0, 999).0] {
        let after = mended_closed(Class::MapNobody, |s| {
            s.image.edit_inode(3, |inode| inode.root = root);
        });
        assert_eq!(read_tree(&after), read_tree(&closed().image.bytes));
    }
    mended_in_place_closed(Class::MapMetadata, |s| s.image.take_for_metadata(9));
    // Not damage itself, but freed with the rest.
    mended_closed(Class::Limbo, |s| {
        s.image.map(MapState::Limbo, 3, 9);
        raw_inode(s, 3, Inode::BTIME, 4);
    });
    let after = mended_closed(Class::Unnamed, |s| {
        s.image.inode(FileKind::File, 0);
    });
    assert!(read_tree(&after).contains_key(&b"/lost+found/#29"[..]));
    let after = mended_closed(Class::Orphan, |s| {
        let ino = s.image.inode(FileKind::File, 0);
        s.image.edit_inode(ino, |inode| inode.identity += 1);
    });
    assert!(!read_tree(&after).contains_key(&b"/lost+found"[..]));
    mended_closed(Class::InodeChecksum, |s| {
        let ino = s.image.inode(FileKind::File, 0);
        raw_inode(s, ino, Inode::BTIME, 1);
    });
    for ino in [2, 3] {
        mended_closed(Class::LinkCount, |s| {
            s.image
                .edit_inode(ino, |inode| inode.links = LinksWord::new(7, 0).0);
        });
    }
    mended_closed(Class::DirectoryTimes, |s| {
        s.image
            .edit_inode(2, |inode| inode.ctime = testimage::NOW / 2);
    });
    mended_closed(Class::JournalPending, |s| {
        let at = s.image.at(3) + Inode::SIZE;
        s.image.journal(1, &[JournalPair::store(at, 1)]);
    });
}

#[test]
fn saved_state_of_a_close() {
    mended_closed(Class::LiveMap, |s| {
        let at = s.image.geometry.live_map_at as usize;
        s.image.bytes[at + 9] ^= 1;
    });
    mended_closed(Class::SavedCounters, |s| {
        let at = s.image.geometry.state_at + 72;
        s.image.set_word(at, 3);
    });
    mended_closed(Class::SavedState, |s| {
        let at = s.image.geometry.saved_state().at;
        flip(s, at, 1 << 9);
    });
}

#[test]
fn what_a_crash_leaves_is_left_to_recovery() {
    let mut crashed = sample();
    crashed.image.inode(FileKind::File, 0);
    let plan = support::plan_of(&crashed.image.bytes);
    assert!(plan.is_empty() && plan.exit_code() == 0);
}

#[test]
fn what_cannot_be_repaired_is_refused() {
    let plan = support::plan_of(&vec![0; 1 << 20]);
    assert_eq!(plan.exit_code(), 12);
    assert!(plan.refused.is_some() && plan.is_empty());
    let mut cut = closed().image.bytes;
    cut.truncate(cut.len() - BLOCK_BYTES as usize);
    let plan = support::plan_of(&cut);
    assert!(plan.refused.is_some_and(|why| why.contains("bytes")));
    // A later format version.
    let mut newer = closed();
    newer.image.superblock.read_only_compatible = 8;
    newer.image.superblock.seal();
    newer.image.write_superblocks();
    let at = newer.image.geometry.state_at;
    newer.image.set_word(at, 3);
    let plan = support::plan_of(&newer.image.bytes);
    assert!(plan.refused.is_some_and(|why| why.contains("0x8")) && plan.stages.is_empty());
}

/// A pool with full chunks of entries and without a free chunk.
pub(crate) fn full() -> Sample {
    let mut sample = sample();
    let geometry = sample.image.geometry;
    let kind = |sample: &Sample, chunk: u64| {
        let word = sample.image.word(geometry.chunk_table_at + 8 * chunk);
        ChunkWord(word).decode(chunk).unwrap().0
    };
    let slots =
        |chunk| chunk * geometry.slots_per_chunk()..(chunk + 1) * geometry.slots_per_chunk();
    for number in 0.. {
        let superblock = sample.image.superblock.clone();
        let survey = vellum_check::survey::Survey::of(&sample.image.bytes, &superblock);
        let mut free = (0..geometry.meta_chunks)
            .filter(|&chunk| kind(&sample, chunk) == ChunkKind::Entries)
            .flat_map(slots)
            .filter(|&slot| !survey.is_used(slot));
        if free.next().is_none() {
            break;
        }
        let name = format!("filler {number}");
        sample.image.file(1, name.as_bytes(), 0);
    }
    for chunk in 0..geometry.meta_chunks {
        if kind(&sample, chunk) == ChunkKind::Free {
            let word = ChunkWord::new(chunk, ChunkKind::Inodes, 0).0;
            sample
                .image
                .set_word(geometry.chunk_table_at + 8 * chunk, word);
        }
    }
    sample
}

/// As [`full`], with a file that has lost its name.
fn full_with_a_loss() -> Sample {
    let mut sample = full();
    let at = sample.image.at(sample.entries[4]) as usize;
    sample.image.bytes[at + 50] ^= 1;
    sample
}

#[test]
fn removed_entries_make_space_for_lost_files() {
    let mut sample = full_with_a_loss();
    let superblock = vellum_check::survey::superblock(&sample.image.bytes).unwrap();
    let survey = vellum_check::survey::Survey::of(&sample.image.bytes, &superblock);
    let names = survey.logs.names.iter();
    let fillers = names.filter(|name| survey.text_of(name).starts_with(b"filler"));
    let fillers: Vec<(u64, u64)> = fillers.take(4).map(|name| (name.slot, name.ino)).collect();
    drop(survey);
    for (slot, ino) in fillers {
        sample.image.kill(slot);
        let at = sample.image.at(ino);
        sample.image.set_bytes(at, &[InodeState::Free as u8]);
    }
    let before = sample.image.bytes;
    let (plan, after) = repaired(&before);
    assert_eq!(plan.exit_code(), 1, "{plan:#?}");
    assert_kept(&before, &after, &plan);
    assert!(read_tree(&after).contains_key(&b"/lost+found/#13"[..]));
    let undo = vellum_repair::undo::Undo::of(&plan, &before).unwrap();
    // New structures never overwrite what was referred to when they were written.
    let begun = plan
        .stages
        .iter()
        .filter(|stage| stage.name.contains("is running"));
    assert_eq!(begun.count(), 2, "{:#?}", plan.stages);
    for cut in 1..plan.stages.len() {
        let cut_short = Plan {
            stages: plan.stages[..cut].to_vec(),
            ..plan.clone()
        };
        let mut image = before.clone();
        support::write(&cut_short, &mut image);
        let pool = vellum_media::SimPool::from_image(image.clone());
        undo.restore(&pool).unwrap();
        assert!(pool.image() == before, "restored after {cut}");
        let (again, finished) = repaired(&image);
        assert_kept(&before, &finished, &again);
        assert!(
            read_tree(&finished).contains_key(&b"/lost+found/#13"[..]),
            "{cut}"
        );
    }
}

#[test]
fn without_space_nothing_is_changed() {
    let sample = full_with_a_loss();
    let before = sample.image.bytes;
    let plan = support::plan_of(&before);
    assert!(plan.is_empty() && plan.actions.is_empty(), "{plan:#?}");
    assert_eq!(plan.exit_code(), 4);
    let why = plan.refused.expect("a reason");
    assert!(why.contains("no metadata slot is free"), "{why}");
    // Space appears once files are removed, with their entries.
    let mut after = before;
    let superblock = vellum_check::survey::superblock(&after).unwrap();
    let survey = vellum_check::survey::Survey::of(&after, &superblock);
    let names = survey.logs.names.iter();
    let fillers = names.filter(|name| survey.text_of(name).starts_with(b"filler"));
    let words: Vec<(u64, u64)> = fillers
        .take(4)
        .map(|name| (name.word_at, name.ino))
        .collect();
    for (word_at, ino) in words {
        let identity = superblock.geometry().slot_at(ino);
        after[word_at as usize..][..8].fill(0);
        after[identity as usize] = InodeState::Free as u8;
    }
    let (_, last) = repaired(&after);
    assert!(read_tree(&last).contains_key(&b"/lost+found/#13"[..]));
}

#[test]
fn every_class_has_a_test() {
    // Irreparable classes are refused; areas have tests of their own.
    let refused = [
        Class::NotAPool,
        Class::Geometry,
        Class::Dataset,
        Class::AreaUnsound,
        Class::AreaNoRoot,
        Class::AreaUnfinished,
        Class::AreaTwice,
        Class::StateNoEntry,
        Class::PathWrong,
        Class::Twins,
        Class::AreaCounts,
        Class::LogWord,
        Class::AreaTable,
        Class::PlaceWrong,
    ];
    let source = [
        include_str!("classes.rs"),
        include_str!("areas.rs"),
        include_str!("cuckoo.rs"),
        include_str!("logged.rs"),
        include_str!("level.rs"),
        include_str!("unreadable.rs"),
        include_str!("xattrs.rs"),
        include_str!("../../../fuzz/tests/fuzz/damage/undo.rs"),
    ]
    .concat();
    for class in Class::ALL.iter().filter(|class| !refused.contains(class)) {
        let name = format!("Class::{class:?}");
        let named = source.match_indices(&name).any(|(at, _)| {
            !source[at + name.len()..].starts_with(|next: char| next.is_alphanumeric())
        });
        assert!(named, "{name}");
    }
}
