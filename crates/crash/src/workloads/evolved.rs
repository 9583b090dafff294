//! Random histories within the namespace *adaptive*. Between other steps, rounds of evolving split
//! areas, merge them, and let directories inherit them. The last steps, a round among them, crash.
//!
//! The meaning of a number changes only with this file and the file of the other histories, because
//! identifiers contain it (`adaptive-evolving/17`).

use vellum::{NamespaceKind, RENAMED_ROUNDS};

use super::FILE;
use super::random::{Draw, History};
use crate::workload::Workload;

/// The prefix of all their names, after that of the namespace.
const FAMILY: &str = "evolving/";
/// A directory that is not large but has more names than an area may have, inside another area; and
/// two directories with few names, and with areas.
const TREE: [&str; 12] = [
    "mkdir p 755",
    "mkdir p/q 755",
    FILE,
    "12* link f p/q/g#",
    "mkdir r 755",
    "mkdir r/t 755",
    "create r/a 644 -",
    "mkdir s 755",
    "link f s/b",
    "create p/q/a 644 -",
    "split r",
    "split s",
];
const FILES: [&str; 6] = ["p/a", "p/q/a", "r/a", "r/b", "r/t/a", "s/a"];
const DIRS: [&str; 3] = ["r/t", "s/t", "p/t"];

/// The histories with numbers up to `count`.
pub(crate) fn evolved(count: u64) -> Vec<Workload> {
    (0..count).map(history).collect()
}

/// The workload called `name`, if it is one of these.
pub(super) fn find(name: &str) -> Option<Workload> {
    let name = name.strip_prefix(NamespaceKind::Adaptive.name())?;
    let number = name.strip_prefix('-')?.strip_prefix(FAMILY)?;
    Some(history(number.parse().ok()?))
}

/// What makes the explored round split, only merge, or let a directory inherit: the steps that
/// prepare the areas, and those right before the round.
fn cause(number: u64) -> (&'static [&'static str], &'static [&'static str]) {
    match number % 3 {
        0 => (&[], &["rename p/q p/k 0"]),
        1 => (&[], &[]),
        _ => (&["split p"], &["128* stat p/q/g1 follow"]),
    }
}

fn history(number: u64) -> Workload {
    let mut history = History::new(number);
    let (areas, before) = cause(number);
    history.all(&TREE);
    history.all(areas);
    let some = 8 + history.draw.below(16);
    history.some(some, line);
    // An area can merge only after this many rounds.
    let rounds = format!("evolve {}", RENAMED_ROUNDS - 1);
    history.all(&[&rounds]);
    let some = history.draw.below(6);
    history.some(some, line);
    history.all(before);
    let setup = history.take();
    history.some(1, line);
    history.all(&["evolve 1"]);
    history.some(2, line_behind);
    let workload = Workload::of_steps(&format!("{FAMILY}{number}"), setup, history.take());
    workload.within(NamespaceKind::Adaptive)
}

/// A step that leaves the areas as they are, except for one.
fn line(draw: &mut Draw) -> Vec<String> {
    let (file, other, dir) = (draw.of(&FILES), draw.of(&FILES), draw.of(&DIRS));
    let line = match draw.below(12) {
        0 | 1 => format!("create {file} 644 -"),
        2 => format!("link f {file}"),
        3 | 4 => format!("unlink {file}"),
        5 => format!("mkdir {dir} 755"),
        6 => format!("rmdir {dir}"),
        7 => format!("rename {file} {other} 0"),
        8 => format!("rename {file} {other} 2"),
        9 => format!("append {file} 7 777"),
        10 => ["split r/t", "merge r/t"][draw.below(2) as usize].to_owned(),
        _ => "maintain".to_owned(),
    };
    vec![line]
}

/// The same, or a step that discards everything that was known of the rounds.
fn line_behind(draw: &mut Draw) -> Vec<String> {
    match draw.below(6) {
        0 => vec!["close-pool".to_owned(), "open-pool".to_owned()],
        1 => vec!["recover".to_owned()],
        2 => vec!["rename r s/r 0".to_owned()],
        _ => line(draw),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use vellum::{Evolution, Outcome};
    use vellum_media::SimPool;

    use super::*;
    use crate::memories::{Explored, Shared};
    use crate::session::{Session, blank_image};
    use crate::workload::Step;

    /// The moves of areas that the explored round of a workload makes.
    fn done_last(workload: &Workload) -> Vec<Evolution> {
        let image = blank_image(2, workload.mapping, workload.namespace, workload.pool_kind);
        let pool = Shared(Arc::new(SimPool::from_image(image)));
        let mut session = Session::<Explored>::new(pool, 256);
        session.step(&Step::Open).unwrap();
        for step in &workload.setup {
            // Some do not succeed.
            drop(session.step(step));
        }
        let mut done = Vec::new();
        for step in &workload.explored {
            session.step(step).unwrap();
            if matches!(step, Step::Evolve(_)) {
                let decided = session.open_fs().unwrap().decisions().unwrap();
                let of_it = decided
                    .iter()
                    .filter(|one| one.round == RENAMED_ROUNDS && one.outcome == Outcome::Done);
                done.extend(of_it.map(|one| one.what));
            }
        }
        done
    }

    #[test]
    fn a_history_is_always_the_same() {
        let some = evolved(20);
        assert_eq!(Some(&some[17]), find("adaptive-evolving/17").as_ref());
        assert_eq!(find("tree-evolving/17"), None);
        let steps: BTreeSet<String> = some.iter().map(|one| format!("{:?}", one.setup)).collect();
        assert_eq!(steps.len(), some.len());
    }

    #[test]
    fn rounds_in_the_middle_split_merge_and_let_inherit() {
        for (number, workload) in (0..).zip(evolved(12)) {
            let done = done_last(&workload);
            let has = |what| done.contains(&what);
            assert!(has(Evolution::Merge), "{number}: {done:?}");
            assert_eq!(has(Evolution::Split), number % 3 == 0, "{number}: {done:?}");
            assert_eq!(
                has(Evolution::Inherit),
                number % 3 == 2,
                "{number}: {done:?}"
            );
        }
    }

    #[test]
    fn one_round_splits_an_area_and_merges_two() {
        let workload = super::super::find("adaptive-evolve-splits-and-merges").unwrap();
        let done = done_last(&workload);
        assert_eq!(done, [Evolution::Split, Evolution::Merge, Evolution::Merge]);
    }
}
