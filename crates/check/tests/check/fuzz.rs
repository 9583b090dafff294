//! No bytes cause a panic or an endless walk, and two checks agree.

use crate::testimage::{Sample, closed, sample};
use proptest::prelude::*;
use vellum_check::{Options, check, inspect};
use vellum_layout::{LogExtentHead, MapWord};
use zerocopy::{FromBytes, IntoBytes};

/// One change of a pool.
#[derive(Clone, Debug)]
enum Change {
    /// A byte anywhere.
    Byte(u32, u8),
    /// A word anywhere.
    Word(u32, u64),
    /// A word of an inode, with a corrected checksum.
    Inode(u64, u8, u64),
    /// A word of an entry, with a corrected checksum.
    Entry(u8, u8, u64),
    /// A word of a log extent's head, with a corrected checksum.
    Extent(u8, u8, u64),
    /// A word of a log extent.
    LogWord(u8, u8, u64),
    /// An entry of the mapping table.
    Map(u64, u64),
    /// A word of a piece of extended attributes, with a corrected checksum.
    Xattrs(u8, u16, u64),
    /// A word of the superblock, with a corrected checksum, in every copy.
    Superblock(u8, u64),
}

/// Numbers that may trip a checker.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..80,
        any::<u64>(),
        (0u32..64).prop_map(|bit| 1 << bit),
        (0u32..64).prop_map(|bit| (1u64 << bit).wrapping_sub(1)),
        (0u64..2048).prop_map(|slot| slot << 1),
        Just(u64::MAX),
        (0u64..30, 0u64..10).prop_map(|(id, logical)| 2 << 62 | id << 32 | logical),
        (0u64..30).prop_map(|id| 1 << 63 | id),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0u32..1 << 20, any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        (0u32..1 << 17, number()).prop_map(|(at, word)| Change::Word(at, word)),
        (1u64..30, 0u8..16, number()).prop_map(|(ino, at, word)| Change::Inode(ino, at, word)),
        (any::<u8>(), 0u8..6, number())
            .prop_map(|(which, at, word)| Change::Entry(which, at, word)),
        (any::<u8>(), 0u8..4, number())
            .prop_map(|(which, at, word)| Change::Extent(which, at, word)),
        (any::<u8>(), 0u8..12, number())
            .prop_map(|(which, at, word)| Change::LogWord(which, at, word)),
        (0u64..184, number()).prop_map(|(block, word)| Change::Map(block, word)),
        (any::<u8>(), number()).prop_map(|(at, word)| Change::Superblock(at, word)),
        (any::<u8>(), 0u16..510, number())
            .prop_map(|(which, at, word)| Change::Xattrs(which, at, word)),
    ]
}

fn extent(sample: &Sample, which: u8) -> (u64, u64) {
    match which % 3 {
        0 => (1, sample.image.get_inode(1).root),
        1 => (sample.dir, sample.image.get_inode(sample.dir).root),
        _ => {
            let first = sample.image.get_inode(sample.dir).root;
            let next = first
                .checked_mul(128)
                .and_then(|at| at.checked_add(sample.image.geometry.meta_at + 8))
                .filter(|at| *at < 1 << 19)
                .map_or(0, |at| sample.image.word(at & !7));
            (sample.dir, next)
        }
    }
}

fn apply(sample: &mut Sample, change: &Change) {
    let slots = sample.image.geometry.region_slots();
    let image = &mut sample.image;
    match *change {
        Change::Byte(at, byte) => image.bytes[at as usize] ^= byte,
        Change::Word(at, word) => image.set_word(u64::from(at) * 8 % (1 << 20), word),
        Change::Inode(ino, at, word) => image.edit_inode(ino, |inode| {
            let mut words: [u64; 16] = zerocopy::transmute!(*inode);
            words[usize::from(at)] = word;
            *inode = zerocopy::transmute!(words);
        }),
        Change::Entry(which, at, word) => {
            let which = usize::from(which) % sample.entries.len();
            image.edit_entry(sample.entries[which], |head| {
                let len = head.name_len;
                let mut words: [u64; 6] = zerocopy::transmute!(*head);
                words[usize::from(at)] = word;
                *head = zerocopy::transmute!(words);
                head.name_len = len;
            });
        }
        Change::Extent(which, at, word) => {
            let (owner, slot) = extent(sample, which);
            if slot == 0 || slot > slots - 32 {
                return;
            }
            let at_slot = sample.image.at(slot);
            let from = at_slot as usize;
            let bytes = &sample.image.bytes[from..from + 32];
            let mut words: [u64; 4] =
                std::array::from_fn(|i| u64::read_from_bytes(&bytes[i * 8..i * 8 + 8]).unwrap());
            words[usize::from(at)] = word;
            let head: LogExtentHead = zerocopy::transmute!(words);
            let mut sealed = LogExtentHead::new(
                slot,
                if at == 0 { head.owner } else { owner },
                crate::testimage::GENERATION,
                head.base_cookie,
                head.kind(),
                head.is_compacted(),
            );
            sealed.next = head.next;
            sample.image.set_bytes(at_slot, sealed.as_bytes());
        }
        Change::LogWord(which, at, word) => {
            let (_, slot) = extent(sample, which);
            if slot != 0 && slot <= slots - 32 {
                let at = sample.image.at(slot) + 32 + u64::from(at) * 8;
                sample.image.set_word(at, word);
            }
        }
        Change::Map(block, word) => image.set_map(block, MapWord(word)),
        Change::Xattrs(which, at, word) => {
            let (ino, slot) = match usize::from(which % 4) {
                0 => (sample.file, sample.labels),
                piece => (sample.dir, sample.large[piece - 1]),
            };
            let image = &mut sample.image;
            image.set_word(image.at(slot) + u64::from(at) * 8, word);
            image.edit_piece(ino, slot, |_| {});
        }
        Change::Superblock(at, word) => {
            let mut bytes = image.superblock.as_bytes().to_vec();
            let at = usize::from(at) * 8;
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            image.superblock = FromBytes::read_from_bytes(&bytes).unwrap();
            image.superblock.seal();
            image.write_superblocks();
        }
    }
}

fn look_at_everything(bytes: &Vec<u8>) {
    for strict_clean in [false, true] {
        let options = Options {
            strict_clean,
            progress: None,
        };
        let report = check(bytes, options);
        assert_eq!(report, check(bytes, options));
        let _ = report.to_string();
        assert!(strict_clean || report.is_sound() == (report.exit_code() == 0));
    }
    let _ = inspect::superblock(bytes);
    let _ = inspect::journals(bytes);
    for number in (0..40).chain([1 << 20, u64::MAX]) {
        let _ = inspect::inode(bytes, number);
        let _ = inspect::directory(bytes, number);
        let _ = inspect::entry(bytes, number);
        let _ = inspect::block(bytes, number);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(1500),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn changed_pools(clean: bool, changes in prop::collection::vec(change(), 1..12)) {
        let mut sample = if clean { closed() } else { sample() };
        for change in &changes {
            apply(&mut sample, change);
        }
        look_at_everything(&sample.image.bytes);
    }

    #[test]
    fn cut_pools(keep in 0usize..1 << 20) {
        let mut sample = closed();
        sample.image.bytes.truncate(keep);
        let report = check(&sample.image.bytes, Options::default());
        prop_assert!(!report.is_sound());
    }

    #[test]
    fn random_metadata(seed: u64) {
        let mut sample = sample();
        let mut state = seed;
        for at in sample.image.metadata().step_by(8) {
            state = vellum_layout::mix(state.wrapping_add(at));
            if state % 5 == 0 {
                sample.image.set_word(at, state >> (state % 60));
            }
        }
        look_at_everything(&sample.image.bytes);
    }
}
