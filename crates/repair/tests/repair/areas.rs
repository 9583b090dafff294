//! Repairs damage that only pools with areas can have: afterwards all names are in one area, and
//! lead to the same files as before.

use crate::support::{self, Content, assert_kept, read_tree, repaired, repaired_of};
use crate::testimage::areas::{AreaSample, area_sample, one_area_sample};
use vellum_check::survey::{Survey, superblock};
use vellum_check::{Class, Options, check};
use vellum_layout::{
    AreaCounts, AreaLine, AreaPhase, AreaTableHead, ChunkKind, ChunkWord, DIR_PATH_MAX, EntryState,
    FileKind, Inode, InodeState, LifeWord, LogExtentKind, LogWord, PathEntryHead, TableRoot,
};
use vellum_repair::Plan;

/// Pools with the same names, in one area and in two, each open and closed.
fn pools() -> Vec<AreaSample> {
    let mut all = [
        one_area_sample(),
        one_area_sample(),
        area_sample(),
        area_sample(),
    ];
    for (number, pool) in all.iter_mut().enumerate() {
        let geometry = pool.sample.image.geometry;
        support::fill_blocks(&mut pool.sample.image.bytes, &geometry);
        if number % 2 == 1 {
            pool.sample.image.close();
        }
    }
    all.into()
}

/// The pools with two areas.
fn of_two() -> Vec<AreaSample> {
    pools().split_off(2)
}

/// The damaged pool, the plan, and the repaired pool.
type Mended = (Vec<u8>, Plan, Vec<u8>);

/// Damages pools and mends them: all readable files survive, and all names are in one area.
#[track_caller]
fn mended(pools: Vec<AreaSample>, class: Class, damage: impl Fn(&mut AreaSample)) -> Vec<Mended> {
    let mend = |mut pool: AreaSample| {
        damage(&mut pool);
        let before = pool.sample.image.bytes;
        let (plan, after) = repaired_of(class, &before);
        assert_kept(&before, &after, &plan);
        (before, plan, after)
    };
    pools.into_iter().map(mend).collect()
}

/// As [`mended`], and every path leads to the same file as before the damage.
#[track_caller]
fn mended_in_place(pools: Vec<AreaSample>, class: Class, damage: impl Fn(&mut AreaSample)) {
    let sound = read_tree(&self::pools()[0].sample.image.bytes);
    for (_, plan, after) in mended(pools, class, damage) {
        assert_eq!(read_tree(&after), sound, "{plan:?}");
        let survey_of = superblock(&after).unwrap();
        let survey = Survey::of(&after, &survey_of);
        assert_eq!(survey.logs.areas.list.len(), 1);
    }
}

fn flip(pool: &mut AreaSample, at: u64, bits: u64) {
    let word = pool.sample.image.word(at);
    pool.sample.image.set_word(at, word ^ bits);
}

fn head_at(pool: &AreaSample) -> u64 {
    pool.sample.image.line_at(0)
}

#[test]
fn area_tables() {
    for (field, bits) in [(AreaTableHead::NEXT, 64), (16, 1), (16, 1 << 32), (32, 1)] {
        mended_in_place(pools(), Class::AreaUnsound, |s| {
            let at = head_at(s) + field;
            flip(s, at, bits);
        });
    }
    // The whole block. If there is only the root's area, names need nothing else of it.
    let one: Vec<AreaSample> = pools().into_iter().take(2).collect();
    mended_in_place(one, Class::AreaUnsound, |s| {
        let at = head_at(s);
        s.sample.image.set_bytes(at, &[0xA5; 4096]);
    });
}

#[test]
fn lines_of_areas() {
    let fields = [
        (AreaLine::WORD, 1 << 50),
        (AreaLine::WORD, 2),
        (AreaLine::ROOT, 9),
        (AreaLine::LIVES, 1),
        (AreaLine::LIVES, 1 << 40),
        (AreaLine::CHECK, 1 << 32),
    ];
    for (field, bits) in fields {
        mended_in_place(pools(), Class::AreaUnsound, |s| {
            let at = s.sample.image.line_at(1) + field;
            flip(s, at, bits);
        });
    }
    mended_in_place(pools(), Class::AreaNoRoot, |s| {
        let line = s.sample.image.line_of(1, s.rooted, AreaPhase::Live);
        s.sample.image.set_line(1, &line);
    });
}

#[test]
fn lines_of_further_areas() {
    for bits in [1 << 50, 9] {
        mended_in_place(of_two(), Class::AreaUnsound, |s| {
            let at = s.sample.image.line_at(2) + if bits == 9 { AreaLine::ROOT } else { 0 };
            flip(s, at, bits);
        });
    }
    // Nothing confirms the generation: what the names led to is in lost+found.
    for (_, _, after) in mended(of_two(), Class::AreaUnsound, |s| {
        let at = s.sample.image.line_at(2) + AreaLine::LIVES;
        flip(s, at, 1);
    }) {
        let tree = read_tree(&after);
        assert!(tree.contains_key(&b"/rooted"[..]) && !tree.contains_key(&b"/rooted/some"[..]));
        let kept = tree
            .keys()
            .filter(|path| path.starts_with(b"/lost+found/#"));
        assert_eq!(kept.count(), 2, "{tree:?}");
    }
    // Damage in a closed pool, which is mended together with other damage.
    let (mut closed, mut open) = (pools(), pools());
    let closed = vec![closed.remove(3), closed.remove(1)];
    let of_file = |s: &mut AreaSample| {
        let line = s.sample.image.line_of(3, s.sample.file, AreaPhase::Live);
        s.sample.image.set_line(3, &line);
    };
    mended_in_place(closed, Class::AreaNoRoot, of_file);
    mended_in_place(vec![open.remove(0)], Class::AreaNoRoot, |s| {
        of_file(s);
        s.sample.image.set_place(s.rooted, 0, 0);
    });
    for phase in [AreaPhase::Forming, AreaPhase::Going] {
        let closed = vec![pools().remove(3), pools().remove(1)];
        mended_in_place(closed, Class::AreaUnfinished, |s| {
            let line = s.sample.image.line_of(3, s.sample.sub, phase);
            s.sample.image.set_line(3, &line);
        });
    }
    mended_in_place(of_two(), Class::AreaTwice, |s| {
        let line = s.sample.image.line_of(3, s.rooted, AreaPhase::Live);
        s.sample.image.set_line(3, &line);
    });
}

#[test]
fn states_without_entries() {
    mended_in_place(pools(), Class::StateNoEntry, |s| {
        let head = s.sample.dead / 32 * 32;
        s.sample.image.set_state(head, EntryState::Hot);
    });
    mended_in_place(pools(), Class::StateNoEntry, |s| {
        let inner = s.inner + 1;
        s.sample.image.set_state(inner, EntryState::Cold);
    });
    // Of a removed directory, and of one that is gone.
    for state in [InodeState::Live, InodeState::Free] {
        mended(pools(), Class::StateNoEntry, |s| {
            let at = s.sample.image.at(s.closed_to_some);
            s.sample
                .image
                .set_bytes(at, &[state as u8, FileKind::File as u8]);
            let inode = s.sample.image.get_inode(s.closed_to_some);
            s.sample.image.put_inode(s.closed_to_some, inode);
        });
    }
}

/// The entries exist: each one is a name again, in its directory.
#[test]
fn states_that_are_lost() {
    let closed = vec![pools().remove(3), pools().remove(1)];
    mended_in_place(closed, Class::LogWord, |s| {
        s.sample.image.set_state(s.inner, EntryState::None);
    });
    let closed = vec![pools().remove(3), pools().remove(1)];
    mended_in_place(closed, Class::Unnamed, |s| {
        let slots = s.sample.image.geometry.areas.slots();
        let extent = s.inner / slots * slots;
        for slot in (extent..extent + slots).step_by(32) {
            let at = s.sample.image.state_at(slot);
            s.sample.image.set_word(at, 0);
        }
    });
}

#[test]
fn paths_of_other_directories() {
    for path in [&b"inner"[..], b"same/inner", b"some/more/inner"] {
        mended_in_place(pools(), Class::PathWrong, |s| {
            let (head, _) = s.sample.image.get_path(s.inner);
            s.sample.image.set_path(s.inner, &head, path);
        });
    }
    mended_in_place(of_two(), Class::PathWrong, |s| {
        let (head, path) = s.sample.image.get_path(s.inner);
        let elsewhere = PathEntryHead { area: 1, ..head };
        s.sample.image.set_path(s.inner, &elsewhere, &path);
    });
}

/// A directory that loses its name keeps its contents, whose paths begin in lost+found.
#[test]
fn directories_that_lost_their_names() {
    for (_, _, after) in mended(pools(), Class::EntryUnsound, |s| {
        let own = s.sample.image.own_entry(s.rooted).unwrap();
        let at = s.sample.image.at(own) as usize;
        s.sample.image.bytes[at + 20] ^= 1;
    }) {
        let rooted = area_sample().rooted;
        let inner = format!("/lost+found/#{rooted}/some/inner");
        assert!(read_tree(&after).contains_key(inner.as_bytes()));
    }
}

/// In lost+found the paths of the contents are longer than before: some of them begin again.
#[test]
fn deep_directories_that_lost_their_names() {
    let mut pool = one_area_sample();
    let image = &mut pool.sample.image;
    let top = image.directory(1, b"t");
    let (mut dir, mut len) = (top, 1);
    while len < DIR_PATH_MAX {
        let name = vec![b'd'; 207.min(DIR_PATH_MAX - len - 1)];
        dir = image.directory(dir, &name);
        len += 1 + name.len();
    }
    assert_eq!(len, DIR_PATH_MAX);
    image.file(dir, b"deepest", 1);
    assert!(check(&image.bytes, Options::default()).is_sound());
    let own = image.own_entry(top).unwrap();
    let at = image.at(own) as usize;
    image.bytes[at + 20] ^= 1;
    let before = pool.sample.image.bytes;
    let (plan, after) = repaired_of(Class::EntryUnsound, &before);
    assert_kept(&before, &after, &plan);
    let tree = read_tree(&after);
    let deepest: Vec<_> = tree
        .keys()
        .filter(|path| path.ends_with(b"/deepest"))
        .collect();
    assert!(
        deepest.len() == 1 && deepest[0].len() > DIR_PATH_MAX,
        "{tree:?}"
    );
}

#[test]
fn unfinished_moves() {
    // With other damage, without which recovery finishes it; in a closed pool it is itself damage.
    mended_in_place(pools(), Class::MoveUnfinished, |s| {
        s.move_inner();
        let at = s.sample.image.at(s.sample.file) + Inode::BTIME;
        flip(s, at, 4);
    });
    mended_in_place(pools(), Class::MoveUnsound, |s| {
        let (list, _) = s.move_inner();
        let at = s.sample.image.at(list) + 24;
        flip(s, at, 1);
    });
    mended_in_place(pools(), Class::MoveUnsound, |s| {
        let (_, copy) = s.move_inner();
        let at = s.sample.image.at(copy) + PathEntryHead::COOKIE;
        flip(s, at, 1);
    });
}

#[test]
fn twin_entries() {
    let copy = |s: &mut AreaSample, path: &[u8], change: fn(&mut PathEntryHead)| {
        let (mut head, _) = s.sample.image.get_path(s.inner);
        change(&mut head);
        s.sample.image.put_path(&head, path)
    };
    let closed = || vec![pools().remove(3), pools().remove(1)];
    mended_in_place(closed(), Class::Twins, |s| {
        copy(s, b"other/inner", |_| {});
    });
    mended_in_place(pools(), Class::Twins, |s| {
        let (_, path) = s.sample.image.get_path(s.inner);
        copy(s, &path, |_| {});
    });
    // One of them is dead: the name was removed, or the dead entry is itself damage.
    mended_in_place(pools(), Class::Twins, |s| {
        copy(s, b"other/inner", |head| head.life = LifeWord::dead(5).0);
    });
    // They name two files, and each file keeps one.
    mended(pools(), Class::Twins, |s| {
        let (mut head, path) = s.sample.image.get_path(s.inner);
        let (other, _) = s.sample.image.get_path(s.sample.file_entry);
        (head.target, head.generation) = (other.target, other.generation);
        s.sample.image.put_path(&head, &path);
    });
}

#[test]
fn counts_of_a_close() {
    let closed = vec![pools().remove(3)];
    mended_in_place_left(closed, Class::AreaCounts, |s| {
        let line = s.sample.image.get_line(2);
        let counts = AreaCounts {
            names: 7,
            restricting: 1,
        };
        let line = line.saving(2, 1, TableRoot(line.table), counts);
        s.sample.image.set_line(2, &line);
    });
    let closed = vec![pools().remove(3), pools().remove(1)];
    mended_in_place_left(closed, Class::AreaTable, |s| {
        s.sample.image.change_table(1, |lines| lines[9][0] = 0x101);
    });
}

/// As [`mended_in_place`], with unchanged areas.
#[track_caller]
fn mended_in_place_left(pools: Vec<AreaSample>, class: Class, damage: impl Fn(&mut AreaSample)) {
    let sound = read_tree(&self::pools()[0].sample.image.bytes);
    for (_, plan, after) in mended(pools, class, damage) {
        assert_eq!(read_tree(&after), sound, "{plan:?}");
        assert!(
            plan.stages
                .iter()
                .map(|stage| stage.words.len())
                .sum::<usize>()
                == 2
        );
    }
}

#[test]
fn words_of_logs() {
    let file_entry = one_area_sample().sample.file_entry;
    for slot in [0, file_entry, 1, 33] {
        mended_in_place(pools(), Class::LogWord, |s| {
            let root = s.sample.image.get_inode(s.closed_to_some).root;
            let word = s.sample.image.at(root) + LogExtentKind::Small.words_at();
            s.sample.image.set_word(word, LogWord::new(slot).0);
        });
    }
    // All of a log of two extents, and its beginning.
    mended_in_place(pools(), Class::LogUnsound, |s| {
        let at = s
            .sample
            .image
            .at(s.sample.image.get_inode(s.sample.dir).root);
        flip(s, at + 16, 1);
    });
    mended_in_place(pools(), Class::LogWord, |s| {
        let dir = s.sample.dir;
        s.sample.image.edit_inode(dir, |inode| inode.root = 0);
    });
    mended_in_place(pools(), Class::Reserved, |s| {
        let at = s.sample.image.at(s.sample.image.get_inode(1).root);
        s.sample
            .image
            .set_word(at + LogExtentKind::Small.words_at(), 1 << 48);
    });
}

#[test]
fn places_of_directories() {
    for (entry, area) in [(0, 0), (5, 7)] {
        mended_in_place(pools(), Class::PlaceWrong, |s| {
            s.sample.image.set_place(s.rooted, entry, area);
        });
        mended_in_place(pools(), Class::PlaceWrong, |s| {
            s.sample.image.set_place(1, entry, area);
        });
    }
    mended_in_place(pools(), Class::Reserved, |s| {
        s.sample
            .image
            .edit_inode(s.rooted, |inode| inode.pattern = 1 << 32);
    });
}

#[test]
fn chunks_of_areas() {
    let geometry = one_area_sample().sample.image.geometry;
    for chunk in 1..geometry.meta_chunks {
        let at = geometry.chunk_table_at + 8 * chunk;
        mended_in_place(pools(), Class::ChunkWord, |s| flip(s, at, 1 << 40));
    }
    let table = geometry.areas.table / geometry.slots_per_chunk();
    mended(pools(), Class::AreaUnsound, |s| {
        let at = geometry.chunk_table_at + 8 * table;
        let word = ChunkWord::new(table, ChunkKind::Entries, 0);
        s.sample.image.set_word(at, word.0);
    });
}

/// Other damage in such a pool: unsound inodes, and blank ones.
#[test]
fn inodes_of_directories() {
    for slot in [one_area_sample().rooted, 1] {
        mended_in_place(pools(), Class::InodeChecksum, |s| {
            let at = s.sample.image.at(slot) + Inode::BTIME;
            if slot == 1 {
                // Also reported as damage of another class.
                flip(s, at, 1 << 5);
            }
            flip(s, at, 4);
        });
    }
    for (_, _, after) in mended(pools(), Class::EntryToFree, |s| {
        let at = s.sample.image.at(s.closed_to_some);
        s.sample.image.set_bytes(at, &[0; 128]);
    }) {
        let inner = read_tree(&after).remove(&b"/rooted/some/inner"[..]);
        assert_eq!(inner, Some(Content::File(Vec::new())));
    }
}

/// What a crash leaves is not mended: recovery does it.
#[test]
fn residue_is_left_to_recovery() {
    let mut pool = one_area_sample();
    let image = &mut pool.sample.image;
    let (word, _) = image.next_word(pool.closed_to_some);
    image.set_word(word, LogWord::new(pool.inner + 9).0);
    let plan = support::plan_of(&image.bytes);
    assert!(plan.is_empty() && plan.exit_code() == 0);
    let (_, same) = repaired(&image.bytes);
    assert_eq!(same, image.bytes);
}
