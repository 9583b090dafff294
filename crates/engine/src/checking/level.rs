//! A level table in which entries move, and which grows, while other threads look for keys, insert
//! them, or remove them.

use vellum_layout::{KeyedPlan, LevelPlan, LevelRoot, MapState, MapWord, MappingKind};
use vellum_media::Site;

use super::kernels::{Job, Stage, explore_on};
use super::loom_memory::Swaps;
use crate::mapping::Flush;

/// The file whose block finds its lines full.
const COMES: u32 = 100;

fn explore(kernel: impl Fn(Stage) + Send + Sync + 'static) {
    explore_on(MappingKind::Level, None, 1, Swaps::Plain, kernel);
}

fn plan(stage: &Stage) -> LevelPlan {
    LevelPlan::new(stage.core().geometry.segment_blocks)
}

fn homes(stage: &Stage, id: u32, level: u32) -> [u64; 2] {
    plan(stage).homes(stage.core().seed, MapWord::key(id, 0), level)
}

fn root(stage: &Stage) -> LevelRoot {
    let at = stage.core().geometry.table_at + LevelRoot::WORD;
    LevelRoot(stage.core().word(at))
}

/// Offsets of the entries of a line.
fn entries(stage: &Stage, line: u64) -> impl Iterator<Item = u64> + use<> {
    let line_at = stage.core().geometry.table_at + line * 64;
    (0..4).map(move |place| line_at + place * 16)
}

/// Fills the free entries of a line with marks, which are no keys and cannot move.
fn fill(stage: &Stage, line: u64) {
    let mark = MapWord::new(MapState::Limbo, 7, 7);
    for at in entries(stage, line) {
        if stage.core().word(at) == MapWord::FREE.0 {
            stage.core().set_word(at, mark.0);
        }
    }
}

/// Fills the free entries in the lines of a file's block.
fn fill_homes(stage: &Stage, id: u32, levels: impl IntoIterator<Item = u32>) {
    for level in levels {
        for line in homes(stage, id, level) {
            fill(stage, line);
        }
    }
}

fn claim(stage: &Stage, id: u32) {
    let op = stage.core().op_begin().unwrap();
    stage.claim(&op, id, 0);
}

fn release(stage: &Stage, id: u32) -> u64 {
    let op = stage.core().op_begin().unwrap();
    let mapping = &stage.fs.mapping;
    mapping
        .release(Flush::all(Site::UNNAMED), &op, id, 0, 1, 1)
        .unwrap()
}

fn data(stage: &Stage, id: u32) -> Option<u64> {
    let op = stage.core().op_begin().unwrap();
    stage.data(&op, id, 0)
}

/// Checks that the blocks of `there` are found and those of `gone` are not, and that no key has two
/// entries.
fn check(stage: &Stage, there: &[u32], gone: &[u32]) {
    for &id in there {
        assert_eq!(data(stage, id), Some(id.into()), "{id}");
    }
    for &id in gone {
        assert_eq!(data(stage, id), None, "{id}");
    }
    let parts = KeyedPlan::Level(plan(stage), root(stage)).parts();
    let words = parts
        .into_iter()
        .flatten()
        .flat_map(|line| entries(stage, line))
        .map(|at| stage.core().word(at));
    let mut keys: Vec<u64> = words
        .filter(|&word| MapWord(word).state() == MapState::Mapped)
        .collect();
    keys.sort_unstable();
    assert_eq!(keys.len(), there.len());
    assert!(
        keys.windows(2).all(|pair| pair[0] != pair[1]),
        "a key is there twice"
    );
}

fn job(job: impl FnOnce(Stage) + Send + 'static) -> Job {
    Box::new(job)
}

/// A file whose block is in a line of [`COMES`], and can move to another one. All lines of
/// [`COMES`] are full.
fn crowd(stage: &Stage) -> u32 {
    let full = homes(stage, COMES, 1);
    let fits = |&id: &u32| {
        let [first, second] = homes(stage, id, 1);
        first == full[0] && second != full[1]
    };
    let moves = (COMES + 1..).find(fits).unwrap();
    claim(stage, moves);
    fill_homes(stage, COMES, [1, 0]);
    moves
}

/// A growing table: the next claim moves the block of a file, which is in the first line of the
/// level being emptied. Returns that file.
fn growing(stage: &Stage) -> u32 {
    let first = plan(stage).lines_of(0).start;
    let fits = |&id: &u32| homes(stage, id, 0)[0] == first;
    let moves = (COMES + 1..).find(fits).unwrap();
    fill_homes(stage, moves, [1]);
    claim(stage, moves);
    fill_homes(stage, COMES, [1, 0]);
    claim(stage, COMES);
    assert_eq!(root(stage), LevelRoot::new(2, true));
    moves
}

#[test]
fn an_entry_that_makes_room_is_found() {
    explore(|stage| {
        let moves = crowd(&stage);
        stage.together(vec![
            job(|stage| claim(&stage, COMES)),
            job(move |stage| assert_eq!(data(&stage, moves), Some(moves.into()))),
        ]);
        assert_eq!(root(&stage), LevelRoot::of_new());
        check(&stage, &[moves, COMES], &[]);
    });
}

#[test]
fn an_entry_of_a_table_that_grows_is_found() {
    explore(|stage| {
        let moves = growing(&stage);
        stage.together(vec![
            job(|stage| claim(&stage, 50)),
            job(move |stage| assert_eq!(data(&stage, moves), Some(moves.into()))),
        ]);
        check(&stage, &[moves, COMES, 50], &[]);
    });
}

#[test]
fn an_entry_removed_while_the_table_grows_stays_removed() {
    explore(|stage| {
        let moves = growing(&stage);
        stage.together(vec![
            job(|stage| claim(&stage, 50)),
            job(move |stage| assert_eq!(release(&stage, moves), 1)),
        ]);
        check(&stage, &[COMES, 50], &[moves]);
    });
}

/// One key finds the table full, so that it grows. Another key may still find room in the level
/// that will be emptied, or not any more.
#[test]
fn no_key_enters_a_line_that_was_emptied() {
    explore(|stage| {
        let full = [1, 0].map(|level| homes(&stage, COMES, level));
        let fits = |&id: &u32| !full[1].contains(&homes(&stage, id, 0)[0]);
        let late = (COMES + 1..).find(fits).unwrap();
        fill_homes(&stage, COMES, [1, 0]);
        fill_homes(&stage, late, [1]);
        stage.together(vec![
            job(|stage| {
                claim(&stage, COMES);
                // Empties the level, as claims do, until it is no longer in use.
                let mut more = COMES + 10_000;
                while root(&stage).moving().is_some() {
                    claim(&stage, more);
                    release(&stage, more);
                    more += 1;
                }
            }),
            job(move |stage| claim(&stage, late)),
        ]);
        assert_eq!(root(&stage), LevelRoot::new(2, false));
        check(&stage, &[COMES, late], &[]);
    });
}

#[test]
fn a_lookup_during_the_begin_of_a_growth_finds_its_entry() {
    explore(|stage| {
        let found = (COMES + 1..)
            .find(|&id| homes(&stage, id, 1)[0] != homes(&stage, COMES, 1)[0])
            .unwrap();
        claim(&stage, found);
        fill_homes(&stage, COMES, [1, 0]);
        stage.together(vec![
            job(|stage| {
                claim(&stage, COMES);
                assert_eq!(data(&stage, COMES), Some(COMES.into()));
            }),
            job(move |stage| assert_eq!(data(&stage, found), Some(found.into()))),
        ]);
        assert_eq!(root(&stage), LevelRoot::new(2, true));
        check(&stage, &[found, COMES], &[]);
    });
}
