//! `git checkout` between two commits of a tree of sources, in mounted pools.

use std::time::Instant;

use vellum::NamespaceKind;
use vellum::media::count::Counts;

use super::subjects::{BASELINE, DEFAULT, Room, Setting, pool_path};
use crate::Result;
use crate::error::expect;
use crate::figure::{Axis, Scale};
use crate::library::Library;
use crate::mapping::{Grid, Sample};
use crate::mount;
use crate::place::Place;
use crate::report::Outcome;
use crate::repository::{CHANGED_PART, FIRST, Repository, SECOND};
use crate::side::Side;
use crate::tool;
use crate::tree::Tree;

const LABELS: [&str; 2] = ["checkout", "status"];
/// The space for the repository: it contains every file once more, and the differences.
const COPIES: u64 = 4;

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let options = setting.options;
    let tree = Tree::of(options.tree.as_deref(), options.files)?;
    let grid = Grid::bars(
        "git",
        "Two commits of a tree of sources",
        "command",
        &LABELS,
    )
    .of(Axis::of("time of a command", "ms", Scale::Linear))
    .claim(
        "The paper does not measure this; areas are made for names that come and go all over a \
             tree.",
    )
    .note(tree.note(options.tree.as_deref()))
    .note(format!(
        "`git checkout` of two branches in turn, which differ in every {CHANGED_PART}th file and \
             in the name of a directory; `git status` after each. Pools are mounted through FUSE, \
             peers by the kernel."
    ));
    if let Some(why) = missing() {
        let mut figure = grid.figure();
        figure.notes.push(format!("Left out: {why}."));
        return Ok(Outcome::new(vec![figure], Vec::new()));
    }
    let room = Room::for_names(3 * tree.names()).and_files(COPIES * tree.bytes());
    let places = places(setting, room)?;
    let names = places.iter().map(|(name, _)| name.clone()).collect();
    let mut grid = grid.named(names, DEFAULT, BASELINE);
    let mut repositories = Vec::new();
    for (_, place) in &places {
        setting.check()?;
        repositories.push(Repository::create(place.dir().join("repository"), &tree)?);
    }
    for round in 0..=options.rounds {
        for (side, ((_, place), repository)) in places.iter().zip(&repositories).enumerate() {
            setting.check()?;
            for (label, sample) in turn(place, repository)?.into_iter().enumerate() {
                grid.add(round, side, label, sample);
            }
        }
    }
    Ok(Outcome::new(vec![grid.figure()], Vec::new()))
}

/// Why nothing can be measured here.
fn missing() -> Option<String> {
    tool::missing("git --version").or_else(mount::missing)
}

fn places(setting: &Setting<'_>, room: Room) -> Result<Vec<(String, Place)>> {
    let mut places = Vec::new();
    for namespace in NamespaceKind::ALL {
        let dir = setting.dir()?;
        let pool = pool_path(dir.path());
        Library::make(&pool, &room.pool(namespace))?;
        places.push((namespace.name().to_owned(), Place::pool(dir, pool, None)?));
    }
    for peer in setting.peers(room)? {
        places.push((peer.kind.to_owned(), Place::Peer(Box::new(peer))));
    }
    Ok(places)
}

/// Checks out the other branch and then the first one again, with a `git status` after each.
fn turn(place: &Place, repository: &Repository) -> Result<Vec<Sample>> {
    let side = place.kernel();
    let mut samples = [Sample::default(); LABELS.len()];
    for branch in [SECOND, FIRST] {
        let commands: [&[&str]; 2] = [&["checkout", "--quiet", branch], &["status", "--porcelain"]];
        for (sample, words) in samples.iter_mut().zip(commands) {
            side.settle()?;
            let (before, start) = (side.counts(), Instant::now());
            let said = repository.git(words)?;
            sample.value += start.elapsed().as_secs_f64() * 1e3 / 2.0;
            side.settle()?;
            let counts: Counts = side.counts() - before;
            sample.counts += counts;
            sample.ops += 1;
            expect("what git says", said.as_str(), "")?;
        }
    }
    Ok(samples.into())
}
