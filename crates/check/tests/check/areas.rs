//! Pools with areas: which pools are sound, which entries of a move are valid, and that no bytes
//! make the checker fail.

use crate::testimage::TestImage;
use crate::testimage::areas::{AreaSample, area_sample, closed_area_sample};
use proptest::prelude::*;
use vellum_check::{Class, Options, Report, check};
use vellum_layout::{
    AreaLine, AreaPhase, EntryState, FileKind, JournalPair, LogWord, PathEntryHead, ROOT_SLOT,
};

fn checked(image: &TestImage) -> Report {
    check(&image.bytes, Options::default())
}

#[track_caller]
fn assert_sound(report: &Report, residue: u64) {
    assert!(report.is_sound(), "{report}");
    assert_eq!(report.residue, residue, "{report}");
}

#[test]
fn pools_with_areas_are_sound_open_and_closed() {
    for sample in [area_sample(), closed_area_sample()] {
        let report = checked(&sample.sample.image);
        assert_sound(&report, 0);
        let summary = report.summary;
        assert_eq!((summary.directories, summary.entries_dead), (5, 1));
        assert_eq!(
            (summary.chunks_blocks > 1, summary.chunks_areas > 1),
            (true, true)
        );
    }
}

/// Tables of one block and of several: words of full lines lie in second lines.
#[test]
fn names_find_their_words_in_tables_of_every_size() {
    for level in [0, 1, 3] {
        let mut image = TestImage::with_areas();
        image.set_table_level(level);
        let dir = image.directory(ROOT_SLOT, b"dir");
        for number in 0..250 {
            let file = image.inode(FileKind::File, 0o644);
            image.link(dir, format!("name {number}").as_bytes(), file);
        }
        image.close();
        assert_sound(&checked(&image), 0);
    }
}

/// Moves a directory of area 2 to `new/some`: its entry and those below exist twice, with the old
/// path and with the new one.
struct Moved {
    sample: AreaSample,
    /// The directory's own entries, old and new.
    own: [u64; 2],
    /// The entries of the file in it.
    inner: [u64; 2],
}

fn moved() -> Moved {
    let mut sample = area_sample();
    let image = &mut sample.sample.image;
    let own = image.own_entry(sample.closed_to_some).unwrap();
    let (head, _) = image.get_path(own);
    let (word, cookie) = image.next_word(sample.rooted);
    let new = image.put_path(&PathEntryHead { cookie, ..head }, b"renamed");
    image.set_word(word, LogWord::new(new).0);
    let (head, _) = image.get_path(sample.inner);
    let copy = image.put_path(&head, b"renamed/inner");
    Moved {
        own: [own, new],
        inner: [sample.inner, copy],
        sample,
    }
}

#[test]
fn either_side_of_an_interrupted_move_can_be_valid() {
    for (died, loser) in [(0, 0), (1, 1)] {
        let Moved {
            mut sample,
            own,
            inner,
        } = moved();
        let image = &mut sample.sample.image;
        if died == 0 {
            image.kill(own[0]);
            image.set_place(sample.closed_to_some, own[1], 0);
        } else {
            image.set_state(own[1], EntryState::None);
        }
        let report = checked(image);
        let place = format!("slot {}", inner[loser]);
        assert_eq!(report.of(Class::Twins).next().unwrap().place, place);
        // The name was removed meanwhile: the other twin is invalid, whatever its path.
        image.kill(inner[1 - loser]);
        let report = checked(image);
        assert_eq!(report.of(Class::Twins).next().unwrap().place, place);
        assert!(report.has(Class::Unnamed), "{report}");
    }
}

/// A directory below the moved one has two living entries, too; its own directory determines which
/// one is valid.
#[test]
fn directories_within_a_move_are_resolved_in_turn() {
    for is_committed in [false, true] {
        let mut sample = area_sample();
        let image = &mut sample.sample.image;
        let [a, b, c] = [0; 3].map(|_| image.inode(FileKind::Directory, 0o755));
        let first = image.link(sample.rooted, b"a", a);
        let second = image.link(a, b"b", b);
        let third = image.link(b, b"c", c);
        let (word, cookie) = image.next_word(sample.rooted);
        let new = [(first, &b"x"[..]), (second, b"x/b"), (third, b"x/b/c")].map(|(slot, path)| {
            let (mut head, _) = image.get_path(slot);
            if slot == first {
                head.cookie = cookie;
            }
            image.put_path(&head, path)
        });
        image.set_word(word, LogWord::new(new[0]).0);
        if is_committed {
            image.kill(first);
            image.set_place(a, new[0], 0);
        } else {
            image.set_state(new[0], EntryState::None);
        }
        let report = checked(image);
        let losers = if is_committed {
            [second, third]
        } else {
            [new[1], new[2]]
        };
        for slot in losers {
            let place = format!("slot {slot}");
            assert!(
                report.of(Class::Twins).any(|found| found.place == place),
                "{report}"
            );
        }
    }
}

/// Before a split its area is forming and the originals are valid; once a word makes it live, the
/// copies are.
#[test]
fn the_word_of_an_area_decides_a_split() {
    for phase in [AreaPhase::Forming, AreaPhase::Live] {
        let mut sample = area_sample();
        let image = &mut sample.sample.image;
        let line = image.line_of(3, sample.closed_to_some, phase);
        image.set_line(3, &line);
        let (mut head, _) = image.get_path(sample.inner);
        head.area = 3;
        let copy = image.put_path(&head, b"inner");
        let is_forming = phase == AreaPhase::Forming;
        if !is_forming {
            let own = image.own_entry(sample.closed_to_some).unwrap();
            image.set_place(sample.closed_to_some, own, 3);
        }
        let report = checked(image);
        let loser = if is_forming { copy } else { sample.inner };
        let place = format!("slot {loser}");
        assert_eq!(report.of(Class::Twins).next().unwrap().place, place);
    }
}

#[test]
fn a_witness_is_an_entry_with_a_path() {
    for (change, is_sound) in [(0, true), (1, false)] {
        let mut sample = area_sample();
        let image = &mut sample.sample.image;
        let (head, _) = image.get_path(sample.inner);
        let witness = JournalPair::witness(image.at(sample.inner), head.checksum ^ change);
        // The record gives the directory a wrong parent.
        let at = image.at(sample.closed_to_some) + vellum_layout::Inode::PARENT;
        image.journal(1, &[witness, JournalPair::store(at, 1)]);
        let report = checked(image);
        assert_eq!(report.has(Class::ParentWrong), is_sound, "{report}");
        assert_eq!(report.summary.journal_records, u64::from(is_sound));
    }
}

/// A crash may come between the word of an entry and its state; a close cannot.
#[test]
fn words_whose_entries_are_missing_yet() {
    for (mut sample, is_sound) in [(area_sample(), true), (closed_area_sample(), false)] {
        let image = &mut sample.sample.image;
        let (word, _) = image.next_word(sample.closed_to_some);
        image.set_word(word, LogWord::new(sample.inner + 9).0);
        let report = checked(image);
        assert_eq!(report.has(Class::LogWord), !is_sound, "{report}");
        assert_eq!(report.is_sound(), is_sound, "{report}");
    }
}

/// The area that an extent is reserved for, and the saved state of an area, are ignored if their
/// checks do not fit.
#[test]
fn values_with_a_wrong_check_are_ignored() {
    for mut sample in [area_sample(), closed_area_sample()] {
        let image = &mut sample.sample.image;
        let extent =
            image.at(sample.inner / image.geometry.areas.slots() * image.geometry.areas.slots());
        for at in [0, 8] {
            image.set_word(extent + at, 7 << 32 | 2);
            assert_sound(&checked(image), 0);
        }
    }
    let mut sample = area_sample();
    let image = &mut sample.sample.image;
    let at = image.line_at(2) + AreaLine::TABLE;
    image.set_word(at, 77);
    image.set_word(at + 8, 99);
    assert_sound(&checked(image), 0);
}

proptest! {
    /// Whatever the words of areas, entries and states are, the checker ends; one changed word is
    /// found, or had no meaning.
    #[test]
    fn any_words(
        changes in prop::collection::vec((0usize..4096, any::<u64>(), any::<bool>()), 1..20),
        closed: bool,
    ) {
        let sample = if closed { closed_area_sample() } else { area_sample() };
        let mut image = sample.sample.image;
        let at = image.at(image.geometry.areas.table);
        let end = image.at(image.geometry.region_slots());
        for (word, value, is_flip) in changes {
            let at = at + word as u64 * 8 % (end - at);
            let value = if is_flip { image.word(at) ^ 1 << (value % 64) } else { value };
            image.set_word(at, value);
        }
        let report = checked(&image);
        prop_assert!(report.complete);
    }

    #[test]
    fn any_flipped_bit_of_an_entry_is_seen(bit in 64usize..58 * 8, closed: bool) {
        let sample = if closed { closed_area_sample() } else { area_sample() };
        let mut image = sample.sample.image;
        let at = image.at(sample.inner) as usize + bit / 8;
        image.bytes[at] ^= 1 << (bit % 8);
        prop_assert!(!checked(&image).is_sound());
    }
}
