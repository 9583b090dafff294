//! Listings: a name that exists throughout a listing is listed exactly once, in ascending order of
//! positions, whatever else happens in the directory, wherever the listing is resumed, with or
//! without hints. A name that appears after the beginning is listed at most once, and only where
//! names are replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vellum::media::{Memories, Real, Simulated};
use vellum::{Cred, FileKind, Fs, ListPosition, NamespaceKind, Node, RenameFlags, Result};

use super::fixture::{Backend, Shape, Soundness, beside, check_open, on_each_namespace};
use super::sequences::case_count;
use vellum_testing::Random;

fn make<M: Memories>(fs: &Arc<Fs<M>>, dir: &Node<M>, name: &str) -> Result<Node<M>> {
    fs.mknod(
        &Cred::root(),
        dir,
        name.as_bytes(),
        FileKind::File,
        0o644,
        0,
    )
}

fn remove<M: Memories>(fs: &Arc<Fs<M>>, dir: &Node<M>, name: &str) -> Result<()> {
    fs.unlink(&Cred::root(), dir, name.as_bytes())
}

fn rename<M: Memories>(fs: &Arc<Fs<M>>, dir: &Node<M>, from: &str, to: &str) -> Result<()> {
    let flags = RenameFlags::empty();
    fs.rename(
        &Cred::root(),
        dir,
        from.as_bytes(),
        dir,
        to.as_bytes(),
        flags,
    )
}

/// A running listing, and the names that it must list.
#[derive(Default)]
struct Listing {
    after: u64,
    position: ListPosition,
    /// Whether calls use hints. Without hints, every call searches for its position.
    hinted: bool,
    /// Names that existed when the listing began, and still do.
    throughout: BTreeSet<String>,
    given: BTreeMap<u64, String>,
}

impl Listing {
    fn new(names: &BTreeSet<String>, hinted: bool) -> Self {
        Self {
            hinted,
            throughout: names.clone(),
            ..Self::default()
        }
    }

    /// Reads `count` further entries. Returns `true` at the end.
    fn advance<M: Memories>(&mut self, fs: &Arc<Fs<M>>, dir: &Node<M>, count: usize) -> bool {
        let mut fresh = ListPosition::default();
        let position = if self.hinted {
            &mut self.position
        } else {
            &mut fresh
        };
        let (mut taken, mut last, mut ended) = (Vec::new(), self.after, true);
        fs.list(dir, self.after, position, &mut |entry| {
            if taken.len() == count {
                ended = false;
                return false;
            }
            assert!(entry.cookie > last, "cookies ascend");
            last = entry.cookie;
            taken.push((
                entry.cookie,
                String::from_utf8(entry.name.to_vec()).expect("ASCII"),
            ));
            true
        })
        .expect("the directory can be listed");
        self.after = last;
        for (cookie, name) in taken {
            assert!(
                self.given.insert(cookie, name).is_none(),
                "an entry was listed twice"
            );
        }
        ended
    }

    /// Goes back to an entry that was listed.
    fn rewind(&mut self, random: &mut Random) {
        let index = random.below(self.given.len() as u64 + 1) as usize;
        self.after = self.given.keys().nth(index).copied().unwrap_or(0);
        let after = self.after;
        self.given.retain(|cookie, _| *cookie <= after);
    }

    fn check_end(&self) {
        let mut times = BTreeMap::<&str, u32>::new();
        for name in self.given.values() {
            *times.entry(name).or_default() += 1;
        }
        for name in &self.throughout {
            assert_eq!(times.get(name.as_str()), Some(&1), "{name}");
        }
        assert!(times.values().all(|&times| times <= 2), "{times:?}");
    }
}

/// Makes one random change of the directory.
fn change<M: Memories>(
    fs: &Arc<Fs<M>>,
    dir: &Node<M>,
    names: &mut BTreeSet<String>,
    listings: &mut [Listing],
    random: &mut Random,
    grows: bool,
) {
    let some = |names: &BTreeSet<String>, random: &mut Random| {
        names
            .iter()
            .nth(random.below(names.len().max(1) as u64) as usize)
            .cloned()
    };
    let new = format!("name-{:06}", random.below(1_000_000));
    let mut gone = |names: &mut BTreeSet<String>, name: &String| {
        names.remove(name);
        listings.iter_mut().for_each(|listing| {
            listing.throughout.remove(name);
        });
    };
    match random.below(10) {
        0..=5 if grows && !names.contains(&new) => {
            make(fs, dir, &new).expect("there is room");
            names.insert(new);
        }
        0..=7 => {
            if let Some(name) = some(names, random) {
                remove(fs, dir, &name).expect("the name exists");
                gone(names, &name);
            }
        }
        _ => {
            if let Some(name) = some(names, random) {
                rename(fs, dir, &name, &new).expect("the name exists");
                gone(names, &name);
                gone(names, &new);
                names.insert(new);
            }
        }
    }
}

fn listed_while_it_changes(namespace: NamespaceKind, turns: u32) {
    let fs = <Simulated as Backend>::make(&Shape::new(24 << 20, 2, 1 << 20).with(namespace));
    let dir = fs
        .mkdir(&Cred::root(), &fs.root(), b"d", 0o755)
        .expect("there is room");
    let mut random = Random::new(11);
    let mut names = BTreeSet::new();
    let mut listings = Vec::new();
    let mut ended = 0;
    for turn in 0..turns {
        // Alternating growth and shrinking leaves logs with enough dead words to be compacted.
        let grows = turn / 6000 % 2 == 0;
        change(&fs, &dir, &mut names, &mut listings, &mut random, grows);
        if random.below(1500) == 0 {
            fs.maintain().expect("nothing is damaged");
        }
        if listings.len() < 4 {
            listings.push(Listing::new(&names, random.below(2) == 0));
        }
        if random.below(8) == 0 {
            let which = random.below(listings.len() as u64) as usize;
            if random.below(20) == 0 {
                listings[which].rewind(&mut random);
            }
            let count = random.below(60) as usize + 1;
            if listings[which].advance(&fs, &dir, count) {
                listings.swap_remove(which).check_end();
                ended += 1;
            }
        }
    }
    assert!(ended > turns / 1200, "only {ended} listings ended");
    check_open(&*fs, Soundness::InUse).unwrap();
}

#[test]
fn what_stays_is_listed_once_however_the_directory_changes() {
    on_each_namespace(60 * case_count(1000), listed_while_it_changes);
}

/// Creates, renames and removes names of its own until `stop` is set.
fn churn(fs: &Arc<Fs<Real>>, dir: &Node<Real>, thread: u64, stop: &AtomicBool) {
    let mut random = Random::new(thread);
    let mut mine: Vec<String> = Vec::new();
    let mut next = 0;
    while !stop.load(Ordering::Relaxed) {
        next += 1;
        let name = format!("t{thread}-{next}");
        let wanted = random.below(900) as usize;
        if mine.len() < wanted {
            make(fs, dir, &name).expect("there is room");
            mine.push(name);
        } else if let Some(at) = mine
            .len()
            .checked_sub(1)
            .map(|n| random.below(n as u64 + 1))
        {
            let old = mine.swap_remove(at as usize);
            if random.below(4) == 0 {
                rename(fs, dir, &old, &name).expect("the name exists");
                mine.push(name);
            } else {
                remove(fs, dir, &old).expect("the name exists");
            }
        }
    }
    for name in mine {
        remove(fs, dir, &name).expect("the name exists");
    }
}

fn listed_while_threads_change_it(namespace: NamespaceKind, rounds: u32) {
    let fs = <Real as Backend>::make(&Shape::new(32 << 20, 4, 1 << 20).with(namespace));
    let dir = fs
        .mkdir(&Cred::root(), &fs.root(), b"d", 0o755)
        .expect("there is room");
    let mut names = BTreeSet::new();
    for number in 0..400 {
        // Names that go lie between names that stay, so that compaction moves the latter.
        make(&fs, &dir, &format!("stays-{number}")).expect("there is room");
        names.insert(format!("stays-{number}"));
        for other in 0..3 {
            make(&fs, &dir, &format!("goes-{number}-{other}")).expect("there is room");
        }
    }
    let recycle = |stop: &AtomicBool| {
        for number in 0..400 {
            for other in 0..3 {
                remove(&fs, &dir, &format!("goes-{number}-{other}")).expect("the name exists");
            }
            fs.maintain().expect("nothing is damaged");
        }
        while !stop.load(Ordering::Relaxed) {
            fs.maintain().expect("nothing is damaged");
            std::thread::yield_now();
        }
    };
    let change = |thread| {
        let (fs, dir) = (&fs, &dir);
        move |stop: &AtomicBool| churn(fs, dir, thread, stop)
    };
    let list = || {
        let (fs, dir) = (&fs, &dir);
        let mut random = Random::new(5);
        for round in 0..rounds {
            let mut listing = Listing::new(&names, round % 2 == 0);
            loop {
                let count = random.below(200) as usize + 1;
                if listing.advance(fs, dir, count) {
                    break;
                }
                if random.below(30) == 0 {
                    listing.rewind(&mut random);
                }
            }
            listing.check_end();
        }
    };
    beside(recycle, || {
        beside(change(1), || beside(change(2), list));
    });
    while fs.maintain().expect("nothing is damaged") > 0 {}
    assert_eq!(fs.children(&dir).expect("a directory"), 400);
    check_open(&*fs, Soundness::InUse).unwrap();
    drop(dir);
    fs.close().expect("nothing is open");
    check_open(&*fs, Soundness::Closed).unwrap();
}

#[test]
fn what_stays_is_listed_once_while_threads_change_the_directory() {
    on_each_namespace(case_count(150), listed_while_threads_change_it);
}
