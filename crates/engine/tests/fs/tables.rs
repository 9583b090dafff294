//! Names of areas are found by tables in the pool, which grow as long as there is space, and which
//! names can do without.

use std::sync::Arc;

use vellum::media::count;
use vellum::media::{HeapMemory, SimPool, Simulated};
use vellum::{
    Clock, Cred, Error, FormatOptions, Fs, MountOptions, NamespaceKind, Node, OpenOptions, attach,
    format,
};
use vellum_check::{Options, check};

fn fresh(pool_bytes: u64) -> Arc<Fs<Simulated>> {
    let pool = SimPool::new(pool_bytes);
    let options = FormatOptions {
        namespace: NamespaceKind::Adaptive,
        metadata_bytes: Some(pool_bytes / 2),
        thread_slots: Some(4),
        uuid: [1; 16],
        hash_seed: 7,
        now_ns: 1,
        known_zero: true,
        ..FormatOptions::default()
    };
    format(&pool, &options).unwrap();
    opened(pool)
}

fn opened(pool: SimPool) -> Arc<Fs<Simulated>> {
    let options = MountOptions {
        clock: Clock::Counter(10.into()),
        ..MountOptions::default()
    };
    attach::<Simulated>(pool, |bytes| Ok(HeapMemory::new(bytes)), options)
        .unwrap()
        .0
}

fn make(fs: &Arc<Fs<Simulated>>, dir: &Node<Simulated>, name: &str) -> vellum::Result<()> {
    let options = OpenOptions::new().write(true).create_new(true).mode(0o644);
    let made = fs.create(&Cred::root(), dir, name.as_bytes(), &options);
    made.map(drop)
}

fn is_there(fs: &Arc<Fs<Simulated>>, dir: &Node<Simulated>, name: &str) -> bool {
    match fs.stat(&Cred::root(), dir, name.as_bytes(), false) {
        Ok(_) => true,
        Err(Error::NotFound) => false,
        Err(error) => panic!("{name}: {error}"),
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("name-{number}")).collect()
}

#[test]
fn a_table_grows_by_levels_and_needs_no_dram() {
    let fs = fresh(32 << 20);
    let root = fs.root();
    let names = names(20_000);
    for name in &names {
        make(&fs, &root, name).unwrap();
    }
    let probes_of = |suffix: &str, are_there: bool| {
        let before = count::of_this_thread();
        for name in &names {
            let name = format!("{name}{suffix}");
            assert_eq!(is_there(&fs, &root, &name), are_there, "{name}");
        }
        (count::of_this_thread() - before).probes as f64 / names.len() as f64
    };
    // A lookup probes one line of each level; of the last one, only where its block exists.
    let [found, missed] = [probes_of("", true), probes_of("-not", false)];
    assert!(found < 2.0, "{found} probes");
    assert!((4.0..5.0).contains(&missed), "{missed} probes");
    assert_eq!(fs.cache_usage().index_entries, 0);
}

/// A name in a larger level is found after others left its lines in smaller ones, and after others
/// were added.
#[test]
fn names_are_found_whatever_was_removed_or_added_beside_them() {
    let fs = fresh(32 << 20);
    let root = fs.root();
    let names = names(6000);
    let mut there = vec![false; names.len()];
    for round in 1..8 {
        for (number, name) in names.iter().enumerate() {
            let is_wanted = number * round % 7 < 4;
            match (there[number], is_wanted) {
                (false, true) => make(&fs, &root, name).unwrap(),
                (true, false) => fs.unlink(&Cred::root(), &root, name.as_bytes()).unwrap(),
                _ => {}
            }
            there[number] = is_wanted;
        }
        for (name, &is_wanted) in names.iter().zip(&there) {
            assert_eq!(is_there(&fs, &root, name), is_wanted, "{name} {round}");
        }
    }
    assert_eq!(fs.cache_usage().index_entries, 0);
}

#[test]
fn removed_names_leave_space_for_others() {
    let fs = fresh(8 << 20);
    let root = fs.root();
    let round = |number: usize| {
        let names: Vec<_> = names(1000)
            .iter()
            .map(|name| format!("{name}-{number}"))
            .collect();
        for name in &names {
            make(&fs, &root, name).unwrap();
        }
        for name in &names {
            fs.unlink(&Cred::root(), &root, name.as_bytes()).unwrap();
            assert!(!is_there(&fs, &root, name));
        }
        while fs.maintain().unwrap() > 0 {}
        fs.stat_fs().files_free
    };
    let first = round(0);
    let last = (1..30).fold(first, |_, number| round(number));
    assert!(last + 64 >= first, "{first} {last}");
    assert_eq!(fs.cache_usage().index_entries, 0);
}

#[test]
fn a_full_pool_refuses_no_name_because_of_a_table() {
    let fs = fresh(1 << 20);
    let root = fs.root();
    let mut made = Vec::new();
    for name in names(100_000) {
        match make(&fs, &root, &name) {
            Ok(()) => made.push(name),
            Err(Error::NoSpace(_)) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(made.len() > 500, "{}", made.len());
    for name in &made {
        assert!(is_there(&fs, &root, name), "{name}");
    }
    // Opened again, the pool has as little space as before.
    fs.close().unwrap();
    let image = fs.pool().image();
    let report = check(&image, Options::default());
    assert_eq!((report.damage, report.residue), (0, 0), "{report}");
    let fs = opened(SimPool::from_image(image));
    let root = fs.root();
    for name in &made {
        assert!(is_there(&fs, &root, name), "{name}");
    }
    for name in &made {
        fs.unlink(&Cred::root(), &root, name.as_bytes()).unwrap();
    }
    assert!(!is_there(&fs, &root, &made[0]));
}

#[test]
fn names_are_carried_along_when_areas_are_split_and_merged() {
    let fs = fresh(16 << 20);
    let (root, cred) = (fs.root(), Cred::root());
    let top = fs.mkdir(&cred, &root, b"top", 0o755).unwrap();
    let below = fs.mkdir(&cred, &top, b"below", 0o755).unwrap();
    let empty = fs.mkdir(&cred, &top, b"empty", 0o755).unwrap();
    let names = names(700);
    for name in &names {
        make(&fs, &below, name).unwrap();
    }
    let all_there = || {
        for name in &names {
            assert!(is_there(&fs, &below, name), "{name}");
        }
        assert_eq!(fs.cache_usage().index_entries, 0);
    };
    for round in 0..4 {
        assert!(fs.split(&top).unwrap());
        all_there();
        // A name created in an empty directory is still found after its area is gone.
        make(&fs, &empty, &format!("new-{round}")).unwrap();
        assert!(fs.merge(&top).unwrap());
        all_there();
        for before in 0..=round {
            assert!(is_there(&fs, &empty, &format!("new-{before}")));
        }
    }
    assert!(fs.split(&below).unwrap());
    for name in &names {
        fs.unlink(&cred, &below, name.as_bytes()).unwrap();
    }
    fs.rmdir(&cred, &top, b"below").unwrap();
    drop(below);
    while fs.maintain().unwrap() > 0 {}
    assert!(!is_there(&fs, &top, "below"));
}

/// A move holds more directories at once than cachelets are kept for.
#[test]
fn a_move_holds_any_number_of_directories() {
    const DIRS: usize = 70_000;
    let fs = fresh(256 << 20);
    let (root, cred) = (fs.root(), Cred::root());
    let top = fs.mkdir(&cred, &root, b"top", 0o755).unwrap();
    for name in names(DIRS) {
        drop(fs.mkdir(&cred, &top, name.as_bytes(), 0o755).unwrap());
    }
    assert!(fs.split(&top).unwrap());
    let last = format!("name-{}", DIRS - 1);
    assert!(is_there(&fs, &top, &last) && is_there(&fs, &top, "name-0"));
    assert_eq!(fs.children(&top).unwrap(), DIRS as u64);
}
