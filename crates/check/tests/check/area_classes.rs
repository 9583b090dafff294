//! The classes of damage of pools with areas, beside those in `classes.rs`: one test per class,
//! named as in `docs/crash/damage.md`.

use crate::testimage::areas::{AreaSample, area_sample, closed_area_sample};
use crate::testimage::found::{assert_found, checked};
use vellum_check::{Class, Severity};
use vellum_layout::{
    AreaCounts, AreaLine, AreaPhase, AreaTableHead, EntryState, LifeWord, LogExtentKind, LogWord,
    PathEntryHead, TableRoot,
};

#[track_caller]
fn found_in_areas(class: Class, place: &str, change: impl Fn(&mut AreaSample)) {
    let severity = match class.may_be_residue() {
        true => Severity::Residue,
        false => Severity::Damage,
    };
    let both = [area_sample(), closed_area_sample()];
    for (mut sample, severity) in both.into_iter().zip([severity, Severity::Damage]) {
        let before = checked(&sample.sample.image.bytes);
        assert!(before.is_sound() && !before.has(class), "{before}");
        change(&mut sample);
        let report = checked(&sample.sample.image.bytes);
        assert_found(&report, class, place, severity);
    }
}

/// Changes what a close saves: it is void as soon as the pool is open.
#[track_caller]
fn found_if_areas_closed(class: Class, place: &str, change: impl Fn(&mut AreaSample)) {
    let mut sample = closed_area_sample();
    change(&mut sample);
    let image = &mut sample.sample.image;
    assert_found(&checked(&image.bytes), class, place, Severity::Damage);
    image.reopen();
    let report = checked(&image.bytes);
    assert!(report.is_sound(), "{report}");
}

/// An unsound line matters if an entry with a state names its area; an unsound block of the table
/// always does.
#[test]
fn unsound_area() {
    found_in_areas(Class::AreaUnsound, "area 2", |s| {
        let at = s.sample.image.line_at(2) + AreaLine::LIVES;
        flip(s, at, 1);
    });
    found_in_areas(Class::AreaUnsound, "slot 64", |s| {
        let at = s.sample.image.line_at(0) + AreaTableHead::NEXT;
        s.sample.image.set_word(at, 64);
    });
    let mut sample = area_sample();
    let at = sample.sample.image.line_at(3);
    sample.sample.image.set_word(at, 77);
    let report = checked(&sample.sample.image.bytes);
    assert!(report.is_sound(), "{report}");
}

#[test]
fn area_without_a_root() {
    found_in_areas(Class::AreaNoRoot, "area 3", |s| {
        let line = s.sample.image.line_of(3, s.sample.file, AreaPhase::Live);
        s.sample.image.set_line(3, &line);
    });
}

#[test]
fn unfinished_area() {
    for phase in [AreaPhase::Forming, AreaPhase::Going] {
        found_in_areas(Class::AreaUnfinished, "area 3", |s| {
            let line = s.sample.image.line_of(3, s.sample.sub, phase);
            s.sample.image.set_line(3, &line);
        });
    }
}

#[test]
fn two_areas_of_one_root() {
    found_in_areas(Class::AreaTwice, "area 3", |s| {
        let line = s.sample.image.line_of(3, s.rooted, AreaPhase::Live);
        s.sample.image.set_line(3, &line);
    });
}

/// A state in an extent's head, and one inside an entry.
#[test]
fn state_without_an_entry() {
    let head = area_sample().sample.dead / 32 * 32;
    found_in_areas(Class::StateNoEntry, &format!("slot {head}"), |s| {
        s.sample.image.set_state(head, EntryState::Hot);
    });
    let inner = area_sample().inner + 1;
    found_in_areas(Class::StateNoEntry, &format!("slot {inner}"), |s| {
        s.sample.image.set_state(inner, EntryState::Cold);
    });
}

#[test]
fn path_of_another_directory() {
    let inner = area_sample().inner;
    for path in [&b"inner"[..], b"same/inner", b"some/more/inner"] {
        found_in_areas(Class::PathWrong, &format!("slot {inner}"), |s| {
            let (head, _) = s.sample.image.get_path(inner);
            s.sample.image.set_path(inner, &head, path);
        });
    }
    found_in_areas(Class::PathWrong, &format!("slot {inner}"), |s| {
        let (head, path) = s.sample.image.get_path(inner);
        let elsewhere = PathEntryHead { area: 1, ..head };
        s.sample.image.set_path(inner, &elsewhere, &path);
    });
}

/// A copy of an entry is valid if its path fits, and a dead entry stays dead; if paths do not
/// decide, the first one is valid.
#[test]
fn twins() {
    let copy = |s: &mut AreaSample, path: &[u8], change: fn(&mut PathEntryHead)| {
        let (mut head, _) = s.sample.image.get_path(s.inner);
        change(&mut head);
        s.sample.image.put_path(&head, path)
    };
    let inner = area_sample().inner;
    let slot = copy(&mut area_sample(), b"other/inner", |_| {});
    type Change = fn(&mut PathEntryHead);
    let changes: [(&[u8], Change, u64); 4] = [
        (b"other/inner", |_| {}, slot),
        (
            b"other/inner",
            |head| head.life = LifeWord::dead(5).0,
            inner,
        ),
        (b"some/inner", |_| {}, slot),
        (b"other/inner", |head| head.generation += 1, slot),
    ];
    for (path, change, loser) in changes {
        found_in_areas(Class::Twins, &format!("slot {loser}"), |s| {
            copy(s, path, change);
        });
    }
}

#[test]
fn unfinished_move() {
    let mut sample = area_sample();
    let (list, _) = sample.move_inner();
    let report = checked(&sample.sample.image.bytes);
    assert!(report.is_sound() && report.residue == 1, "{report}");
    let severities = [Severity::Residue, Severity::Damage];
    for (mut sample, severity) in [area_sample(), closed_area_sample()]
        .into_iter()
        .zip(severities)
    {
        sample.move_inner();
        let report = checked(&sample.sample.image.bytes);
        let place = format!("slot {list}");
        assert_found(&report, Class::MoveUnfinished, &place, severity);
    }
}

/// A damaged block of the list, a damaged copy, and an invalid slot of the list.
#[test]
fn unsound_list_of_a_move() {
    let (list, copy) = area_sample().move_inner();
    found_in_areas(Class::MoveUnsound, &format!("slot {list}"), |s| {
        s.move_inner();
        let at = s.sample.image.at(list) + 24;
        flip(s, at, 1);
    });
    found_in_areas(Class::MoveUnsound, &format!("slot {copy}"), |s| {
        s.move_inner();
        let at = s.sample.image.at(copy) + PathEntryHead::COOKIE;
        flip(s, at, 1);
    });
    for wrong in [list + 1, 1 << 60] {
        found_in_areas(Class::MoveUnsound, &format!("slot {wrong}"), |s| {
            let at = s.sample.image.line_at(0) + AreaTableHead::MOVING;
            s.sample.image.set_word(at, wrong);
        });
    }
}

#[test]
fn wrong_counts_of_names() {
    for (names, restricting) in [(3, 1), (2, 0)] {
        found_if_areas_closed(Class::AreaCounts, "area 2", |s| {
            let line = s.sample.image.get_line(2);
            let counts = AreaCounts { names, restricting };
            let line = line.saving(2, 1, TableRoot(line.table), counts);
            s.sample.image.set_line(2, &line);
        });
    }
}

/// A missing word, a word that leads to another slot, one that leads nowhere, and a cookie that
/// would be reused.
#[test]
fn wrong_word_of_a_log() {
    let some = area_sample().closed_to_some;
    let inode = format!("inode {some}");
    for slot in [0, area_sample().sample.file_entry, 1, 33] {
        found_in_areas(Class::LogWord, &inode, |s| {
            let at = s.sample.image.at(s.sample.image.get_inode(some).root);
            let word = at + LogExtentKind::Small.words_at();
            s.sample.image.set_word(word, LogWord::new(slot).0);
        });
    }
    // At the position of another cookie.
    found_in_areas(Class::LogWord, &inode, |s| {
        let (word, _) = s.sample.image.next_word(some);
        s.sample.image.set_word(word - 8, 0);
        s.sample.image.set_word(word, LogWord::new(s.inner).0);
    });
    found_if_areas_closed(Class::LogWord, "inode 1", |s| {
        s.sample.image.edit_inode(1, |inode| inode.size = 5);
    });
}

/// A missing word, a word that leads to another slot, a word in a wrong line, a head that counts
/// too many, a wrong check.
#[test]
fn wrong_hash_table_of_an_area() {
    found_if_areas_closed(Class::AreaTable, "area 2", |s| {
        s.sample.image.change_table(2, |lines| {
            let line = lines.iter_mut().find(|line| line[1] != 0).unwrap();
            line[1] = 0;
        });
    });
    found_if_areas_closed(Class::AreaTable, "area 2", |s| {
        s.sample.image.change_table(2, |lines| {
            let line = lines.iter_mut().find(|line| line[1] != 0).unwrap();
            line[1] += 1;
        });
    });
    found_if_areas_closed(Class::AreaTable, "area 2", |s| {
        s.sample.image.change_table(2, |lines| {
            let at = lines.iter().position(|line| line[1] != 0).unwrap();
            let word = std::mem::take(&mut lines[at][1]);
            lines[(at + 1) % 64][7] = word;
        });
    });
    found_if_areas_closed(Class::AreaTable, "area 2", |s| {
        s.sample.image.change_table(2, |lines| lines[9][0] = 0x101);
    });
    found_if_areas_closed(Class::AreaTable, "area 2", |s| {
        let (slot, _) = TableRoot(s.sample.image.get_line(2).table).get().unwrap();
        let at = s.sample.image.at(slot);
        flip(s, at, 1 << 57);
    });
    found_if_areas_closed(Class::AreaTable, "area 2", |s| {
        let line = s.sample.image.get_line(2);
        let (_, counts) = line.saved(2, 1).unwrap();
        let line = line.saving(2, 1, TableRoot::new(96, 0), counts);
        s.sample.image.set_line(2, &line);
    });
}

#[test]
fn wrong_place_of_a_directory() {
    let rooted = area_sample().rooted;
    let own = area_sample().sample.image.own_entry(rooted).unwrap();
    for (entry, area) in [(0, 2), (5, 2), (own, 0)] {
        found_in_areas(Class::PlaceWrong, &format!("inode {rooted}"), |s| {
            s.sample.image.set_place(rooted, entry, area);
        });
    }
    found_in_areas(Class::PlaceWrong, "inode 1", |s| {
        s.sample.image.set_place(1, own, 1);
    });
    found_in_areas(Class::PlaceWrong, &format!("inode {rooted}"), |s| {
        let set = |inode: &mut vellum_layout::Inode| inode.detail |= 1 << 60;
        s.sample.image.edit_inode(rooted, set);
    });
}

/// As in other namespaces, directories have no access pattern.
#[test]
fn access_pattern_of_a_directory() {
    let rooted = area_sample().rooted;
    found_in_areas(Class::Reserved, &format!("inode {rooted}"), |s| {
        s.sample
            .image
            .edit_inode(rooted, |inode| inode.pattern = 1 << 32);
    });
}

fn flip(s: &mut AreaSample, at: u64, bits: u64) {
    let word = s.sample.image.word(at);
    s.sample.image.set_word(at, word ^ bits);
}
