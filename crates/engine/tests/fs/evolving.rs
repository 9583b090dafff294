//! Evolving: which directories become roots of areas by themselves, and which are roots no longer.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use vellum::media::{MappedArena, MappedPool, MediaChoice, Memory, Persistent, Real, Site};
use vellum::{
    Area, Clock, CreateOptions, Cred, Decided, Error, Evolution, FileKind, FormatOptions, Fs,
    Label, ListPosition, MergeReason, Merged, MergedArea, MountOptions, NamespaceKind, Node,
    Outcome, PoolOptions, RenameFlags, attach, format,
};
use vellum_check::{Options, check};

const PLAIN: RenameFlags = RenameFlags::empty();
const ROUNDS: u64 = vellum::RENAMED_ROUNDS;

fn made(namespace: NamespaceKind, roots_large: bool) -> Arc<Fs<Real>> {
    let pool = MappedPool::anonymous(64 << 20).unwrap();
    let options = FormatOptions {
        namespace,
        has_fixed_metadata: true,
        known_zero: true,
        ..FormatOptions::default()
    };
    format(&pool, &options).unwrap();
    attached(pool, roots_large)
}

/// A pool with these bytes.
fn opened(image: &[u8]) -> Arc<Fs<Real>> {
    let pool = MappedPool::anonymous(image.len() as u64).unwrap();
    pool.write(0, image);
    pool.flush(Site::UNNAMED, 0, image.len() as u64);
    attached(pool, false)
}

fn attached(pool: MappedPool, roots_large: bool) -> Arc<Fs<Real>> {
    let options = MountOptions {
        clock: Clock::Counter(AtomicI64::new(5_000_000_000)),
        roots_large,
        ..MountOptions::default()
    };
    attach::<Real>(pool, |len| Ok(MappedArena::new(len)?), options)
        .unwrap()
        .0
}

fn adaptive() -> Arc<Fs<Real>> {
    made(NamespaceKind::Adaptive, false)
}

fn size_max(fs: &Fs<Real>) -> u64 {
    fs.superblock().geometry().areas.size_max.into()
}

fn file(fs: &Arc<Fs<Real>>, dir: &Node<Real>, name: &str) -> Node<Real> {
    fs.mknod(
        &Cred::root(),
        dir,
        name.as_bytes(),
        FileKind::File,
        0o644,
        0,
    )
    .unwrap()
}

fn mkdir(fs: &Arc<Fs<Real>>, dir: &Node<Real>, name: &str) -> Node<Real> {
    fs.mkdir(&Cred::root(), dir, name.as_bytes(), 0o755)
        .unwrap()
}

/// A directory with so many names of one file.
fn full(fs: &Arc<Fs<Real>>, above: &Node<Real>, name: &str, names: u64) -> Node<Real> {
    let dir = mkdir(fs, above, name);
    let first = file(fs, &dir, "0");
    for number in 1..names {
        fs.link(&Cred::root(), &first, &dir, number.to_string().as_bytes())
            .unwrap();
    }
    dir
}

fn rename(fs: &Arc<Fs<Real>>, dir: &Node<Real>, from: &str, to: &str) {
    fs.rename(
        &Cred::root(),
        dir,
        from.as_bytes(),
        dir,
        to.as_bytes(),
        PLAIN,
    )
    .unwrap();
}

fn read(fs: &Arc<Fs<Real>>, dir: &Node<Real>, name: &str, times: u64) {
    for _ in 0..times {
        fs.lookup(&Cred::root(), dir, name.as_bytes()).unwrap();
    }
}

fn quiet_rounds(fs: &Fs<Real>, rounds: u64) {
    for _ in 0..rounds {
        assert_eq!(fs.evolve().unwrap(), []);
    }
}

fn roots(fs: &Fs<Real>) -> Vec<u64> {
    fs.areas().unwrap().iter().map(|area| area.root).collect()
}

fn only(decided: &[Decided]) -> (Evolution, Outcome, u64) {
    let [one] = decided else {
        panic!("{decided:?}")
    };
    (one.what, one.outcome, one.ino)
}

fn names(fs: &Fs<Real>, dir: &Node<Real>) -> usize {
    let mut count = 0;
    fs.list(dir, 0, &mut ListPosition::default(), &mut |_| {
        count += 1;
        true
    })
    .unwrap();
    count
}

fn assert_sound(fs: &Fs<Real>) {
    let report = check(&fs.image(), Options::default());
    assert!(report.is_sound(), "{report}");
}

#[test]
fn a_large_directory_that_was_renamed_is_hot_and_gets_an_area() {
    let fs = adaptive();
    let root = fs.root();
    let size_max = size_max(&fs);
    let large = full(&fs, &root, "large", size_max + 1);
    let just_not = full(&fs, &root, "just-not", size_max);
    quiet_rounds(&fs, 2);
    rename(&fs, &root, "large", "renamed");
    rename(&fs, &root, "just-not", "moved");
    let decided = fs.evolve().unwrap();
    assert_eq!(
        only(&decided),
        (Evolution::Split, Outcome::Done, large.ino())
    );
    let [
        Decided {
            slots,
            rounds_since_renamed,
            area,
            round,
            ..
        },
    ] = decided[..]
    else {
        unreachable!()
    };
    assert_eq!(
        (slots, rounds_since_renamed, area, round),
        (size_max + 1, 1, 1, 3)
    );
    assert_eq!(fs.decisions().unwrap(), decided);
    quiet_rounds(&fs, 2);
    let areas = fs.areas().unwrap();
    let [first, second] = areas[..] else {
        panic!("{areas:?}")
    };
    assert_eq!((first.number, first.above, first.root), (1, 0, root.ino()));
    let expected = Area {
        number: second.number,
        root: large.ino(),
        generation: large.generation(),
        above: 1,
        label: Label::Hot,
        names: size_max + 1,
        slots: size_max + 1,
        reads: second.reads,
        formed: second.formed,
    };
    // The numbers by which the round decided. For the first area nothing was counted.
    let numbers = |area: &Area| (u64::from(area.formed.slots), area.formed.reads);
    assert_eq!(numbers(&second), (size_max + 1, 0));
    assert_eq!(numbers(&first), (0, 0));
    assert_eq!(second, expected);
    assert_eq!(first.names, 2 + size_max);
    assert_eq!(names(&fs, &large) as u64, size_max + 1);
    assert_eq!(names(&fs, &just_not) as u64, size_max);
    assert_sound(&fs);
}

#[test]
fn of_two_hot_directories_the_inner_one_is_split_off_first() {
    let fs = adaptive();
    let outer = mkdir(&fs, &fs.root(), "outer");
    let inner = full(&fs, &outer, "inner", size_max(&fs) + 1);
    rename(&fs, &outer, "inner", "in");
    rename(&fs, &fs.root(), "outer", "out");
    let decided = fs.evolve().unwrap();
    assert_eq!(
        only(&decided),
        (Evolution::Split, Outcome::Done, inner.ino())
    );
    // The rest is small.
    quiet_rounds(&fs, 2);
    assert_eq!(roots(&fs), [fs.root().ino(), inner.ino()]);
}

#[test]
fn a_small_area_that_is_rarely_used_is_merged() {
    let fs = adaptive();
    let root = fs.root();
    let small = full(&fs, &root, "small", 10);
    let renamed = full(&fs, &root, "renamed", 10);
    let large = full(&fs, &root, "large", size_max(&fs) + 1);
    let used = full(&fs, &root, "used", 10);
    for dir in [&small, &renamed, &large, &used] {
        assert!(fs.split(dir).unwrap());
    }
    read(&fs, &used, "1", 6400);
    quiet_rounds(&fs, 1);
    rename(&fs, &root, "renamed", "again");
    read(&fs, &used, "1", 6400);
    quiet_rounds(&fs, ROUNDS - 2);
    read(&fs, &used, "1", 6400);
    let decided = fs.evolve().unwrap();
    assert_eq!(
        only(&decided),
        (Evolution::Merge, Outcome::Done, small.ino())
    );
    let rest = [&root, &renamed, &large, &used].map(|dir| dir.ino());
    assert_eq!(roots(&fs), rest);
    let told = fs.merged_areas().unwrap();
    assert_eq!(told, [became(&small, 2, MergeReason::Small, &decided[0])]);
    // In the next round it is the one that was renamed in the first.
    read(&fs, &used, "1", 6400);
    let decided = fs.evolve().unwrap();
    assert_eq!(
        only(&decided),
        (Evolution::Merge, Outcome::Done, renamed.ino())
    );
    // The third is no longer used.
    let mut decided = Vec::new();
    while decided.is_empty() {
        decided = fs.evolve().unwrap();
    }
    assert_eq!(
        only(&decided),
        (Evolution::Merge, Outcome::Done, used.ino())
    );
    quiet_rounds(&fs, 2 * ROUNDS);
    assert_eq!(roots(&fs), [root.ino(), large.ino()]);
    for dir in [&small, &renamed, &used] {
        assert_eq!(names(&fs, dir), 10);
    }
    assert_sound(&fs);
}

/// The record in the line of an area that a decision merged into the first one.
fn became(root: &Node<Real>, number: u32, reason: MergeReason, decided: &Decided) -> MergedArea {
    let at = vellum::Formed::at(5_000_000_000, decided.slots, decided.reads);
    MergedArea {
        number,
        root: root.ino(),
        generation: root.generation(),
        merged: Merged {
            into: 1,
            reason,
            at,
            average_reads: decided.average_reads as u32,
        },
    }
}

#[test]
fn a_merged_area_is_reported_until_its_line_is_reused() {
    let fs = adaptive();
    let dir = full(&fs, &fs.root(), "dir", 3);
    let inner = full(&fs, &dir, "inner", 3);
    assert!(fs.split(&dir).unwrap() && fs.split(&inner).unwrap());
    assert_eq!(fs.merged_areas().unwrap(), []);
    assert!(fs.merge(&inner).unwrap() && fs.merge(&dir).unwrap());
    let asked = |number, dir: &Node<Real>, into| MergedArea {
        number,
        root: dir.ino(),
        generation: dir.generation(),
        merged: Merged {
            into,
            reason: MergeReason::Asked,
            at: vellum::Formed::at(5_000_000_000, 0, 0),
            average_reads: 0,
        },
    };
    let told = [asked(2, &dir, 1), asked(3, &inner, 2)];
    assert_eq!(fs.merged_areas().unwrap(), told);
    assert_sound(&fs);
    assert_eq!(opened(&fs.image()).merged_areas().unwrap(), told);
    assert!(fs.split(&inner).unwrap());
    assert_eq!(fs.merged_areas().unwrap(), told[1..]);
    let [dir, inner] = [dir, inner].map(|dir| (dir.ino(), dir.generation()));
    fs.close().unwrap();
    let fs = opened(&fs.image());
    assert_eq!(fs.merged_areas().unwrap(), told[1..]);
    // A removed root leaves no record.
    let [dir, inner] = [dir, inner].map(|(ino, generation)| fs.node(ino, generation).unwrap());
    for name in ["0", "1", "2"] {
        fs.unlink(&Cred::root(), &inner, name.as_bytes()).unwrap();
    }
    fs.rmdir(&Cred::root(), &dir, b"inner").unwrap();
    drop(inner);
    fs.maintain().unwrap();
    assert_eq!(roots(&fs), [fs.root().ino()]);
    assert_eq!(fs.merged_areas().unwrap(), told[1..]);
    assert_sound(&fs);
}

#[test]
fn a_directory_that_is_most_of_an_area_inherits_it() {
    let fs = adaptive();
    let above = full(&fs, &fs.root(), "above", 10);
    let heir = full(&fs, &above, "heir", size_max(&fs) + 1);
    let beside = full(&fs, &above, "beside", 10);
    assert!(fs.split(&above).unwrap());
    for _ in 0..ROUNDS - 1 {
        // Too many of the lookups are elsewhere.
        read(&fs, &heir, "1", 640);
        read(&fs, &beside, "1", 640);
        quiet_rounds(&fs, 1);
    }
    read(&fs, &heir, "1", 640);
    read(&fs, &beside, "1", 640);
    quiet_rounds(&fs, 1);
    assert_eq!(roots(&fs), [fs.root().ino(), above.ino()]);
    let mut decided = Vec::new();
    while decided.is_empty() {
        read(&fs, &heir, "1", 640);
        decided = fs.evolve().unwrap();
    }
    assert_eq!(
        only(&decided),
        (Evolution::Inherit, Outcome::Done, heir.ino())
    );
    assert!(decided[0].reads * 4 >= decided[0].average_reads * 3);
    let told = fs.merged_areas().unwrap();
    assert_eq!(
        told,
        [became(&above, 2, MergeReason::Inherited, &decided[0])]
    );
    assert_eq!(roots(&fs), [fs.root().ino(), heir.ino()]);
    assert_eq!((names(&fs, &above), names(&fs, &beside)), (12, 10));
    assert_sound(&fs);
}

#[test]
fn a_large_directory_is_a_root_before_it_is_renamed() {
    for exchange in [false, true] {
        let fs = made(NamespaceKind::Adaptive, true);
        let root = fs.root();
        let large = full(&fs, &root, "large", size_max(&fs) + 1);
        let small = full(&fs, &root, "small", 10);
        if exchange {
            let flags = RenameFlags::EXCHANGE;
            fs.rename(&Cred::root(), &root, b"small", &root, b"large", flags)
                .unwrap();
        } else {
            rename(&fs, &root, "large", "renamed");
        }
        assert_eq!(roots(&fs), [root.ino(), large.ino()]);
        let decided = fs.decisions().unwrap();
        let told = |it: &Decided| (it.what, it.outcome, it.ino, it.slots);
        let split = (
            Evolution::Split,
            Outcome::Done,
            large.ino(),
            size_max(&fs) + 1,
        );
        assert_eq!(decided.iter().map(told).collect::<Vec<_>>(), [split]);
        let name = if exchange { "small" } else { "renamed" };
        let found = fs.lookup(&Cred::root(), &root, name.as_bytes()).unwrap();
        assert_eq!(found.ino(), large.ino());
        assert_eq!(names(&fs, &small), 10);
        // The next round finds nothing to do.
        quiet_rounds(&fs, 2);
        assert_sound(&fs);
    }
}

#[test]
fn a_full_pool_keeps_its_areas() {
    let fs = adaptive();
    let root = fs.root();
    let size_max = size_max(&fs);
    let large = full(&fs, &root, "large", size_max + 1);
    rename(&fs, &root, "large", "renamed");
    let first = file(&fs, &root, "first");
    for long in ["x".repeat(240), String::new()] {
        for number in 0u64.. {
            let name = format!("{long}{number}");
            match fs.link(&Cred::root(), &first, &root, name.as_bytes()) {
                Err(Error::NoSpace(_)) => break,
                linked => linked.unwrap(),
            }
        }
    }
    let decided = fs.evolve().unwrap();
    assert_eq!(
        only(&decided),
        (Evolution::Split, Outcome::NoRoom, large.ino())
    );
    assert_eq!(roots(&fs), [root.ino()]);
    assert_sound(&fs);
}

#[test]
fn the_newest_decisions_are_kept() {
    let fs = adaptive();
    let root = fs.root();
    let large = full(&fs, &root, "name", size_max(&fs) + 1);
    rename(&fs, &root, "name", "other");
    for _ in 0..300 {
        assert_eq!(fs.evolve().unwrap().len(), 1);
        assert!(fs.merge(&large).unwrap());
        rename(&fs, &root, "other", "name");
        rename(&fs, &root, "name", "other");
    }
    let kept = fs.decisions().unwrap();
    let rounds: Vec<u64> = kept.iter().map(|decided| decided.round).collect();
    assert_eq!(rounds, (300 - 256 + 1..=300).collect::<Vec<u64>>());
}

#[test]
fn rounds_run_beside_operations() {
    let fs = made(NamespaceKind::Adaptive, true);
    let root = fs.root();
    let size_max = size_max(&fs);
    let dirs: Vec<Node<Real>> = ["a", "b"]
        .iter()
        .map(|name| full(&fs, &root, name, size_max + 1))
        .collect();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (dir, name) in dirs.iter().zip(["a", "b"]) {
            let (fs, root) = (&fs, &root);
            threads.push(scope.spawn(move || {
                let mut at = name.to_owned();
                for number in 0..50 {
                    let next = format!("{name}{number}");
                    rename(fs, root, &at, &next);
                    at = next;
                    file(fs, dir, &format!("new{number}"));
                    read(fs, dir, "0", 100);
                    fs.unlink(&Cred::root(), dir, format!("{}", number + 1).as_bytes())
                        .unwrap();
                    fs.merge(dir).unwrap();
                }
            }));
        }
        while !threads.iter().all(|thread| thread.is_finished()) {
            fs.evolve().unwrap();
            fs.maintain().unwrap();
        }
    });
    for dir in &dirs {
        assert_eq!(names(&fs, dir) as u64, size_max + 1);
    }
    assert_sound(&fs);
    drop(dirs);
    drop(root);
    fs.close().unwrap();
}

#[test]
fn a_pool_evolves_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let options = CreateOptions::new(64 << 20)
        .namespace(NamespaceKind::Adaptive)
        .media(MediaChoice::File);
    options.create(&path).unwrap().close().unwrap();
    let options = PoolOptions::new().evolve_every(Some(Duration::from_millis(1)));
    let pool = options.open(&path).unwrap();
    let volume = pool.volume();
    volume.create_dir("/dir").unwrap();
    pool.fs()
        .split(
            &pool
                .fs()
                .find(&Cred::root(), &pool.fs().root(), b"/dir", true)
                .unwrap(),
        )
        .unwrap();
    while pool.fs().areas().unwrap().len() > 1 {
        std::thread::yield_now();
    }
    // A round may have given way to a reader of the areas.
    let mut decided = pool.fs().decisions().unwrap();
    decided.retain(|decided| decided.outcome != Outcome::GaveWay);
    assert_eq!(decided.len(), 1);
    assert_eq!(
        (decided[0].what, decided[0].outcome),
        (Evolution::Merge, Outcome::Done)
    );
    pool.close().unwrap();
}

#[test]
fn other_namespaces_do_not_evolve() {
    for namespace in [NamespaceKind::Direct, NamespaceKind::Tree] {
        let fs = made(namespace, true);
        assert!(matches!(fs.evolve(), Err(Error::Unsupported(_))));
        assert!(matches!(fs.areas(), Err(Error::Unsupported(_))));
        assert!(matches!(fs.decisions(), Err(Error::Unsupported(_))));
        let dir = full(&fs, &fs.root(), "dir", 10);
        rename(&fs, &fs.root(), "dir", "renamed");
        assert_eq!(names(&fs, &dir), 10);
    }
}
