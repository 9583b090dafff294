//! Conversions between namespaces: every pair, on pools that the engine made; power cuts at every
//! step; refused conversions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::{read_sets, read_tree, strictly};
use vellum::{
    Clock, Cred, Error, ExternalData, FormatOptions, Fs, ListPosition, MountOptions, Node,
    OpenOptions, Result, attach, format,
};
use vellum_check::{Class, Options as CheckOptions, check};
use vellum_fuzz::{judge, mount, samples};
use vellum_layout::{MappingKind, NamespaceKind, POOL_MIN_BYTES, PoolState, StateWord, UndoPlan};
use vellum_media::{
    CrashPoints, HeapMemory, Memory, SimLogged, SimPool, Simulated, SimulatedLogged,
};
use vellum_repair::{ConvertError, FinishError, convert, finish_conversion, plan, plan_conversion};
use vellum_testing::{is_whole, own_source, slice};

/// Each pair of namespaces.
fn pairs() -> impl Iterator<Item = (NamespaceKind, NamespaceKind)> {
    let all = NamespaceKind::ALL.into_iter();
    let pairs = all.flat_map(|from| NamespaceKind::ALL.map(|to| (from, to)));
    pairs.filter(|(from, to)| from != to)
}

/// The pairs for which a short run tries power cuts.
fn pairs_to_cut() -> Vec<(NamespaceKind, NamespaceKind)> {
    let source = own_source!();
    slice(3, pairs(), |(from, to)| format!("{from:?} {to:?} {source}"))
}

fn converted(image: &[u8], to: NamespaceKind) -> Vec<u8> {
    let pool = SimPool::from_image(image.to_vec());
    let planned = plan_conversion(&image.to_vec(), to, None).expect("it can be converted");
    convert(&pool, &planned, &|_, _| {}).expect("a simulated pool takes it");
    pool.image()
}

/// The image after opening it and closing it cleanly.
fn closed(image: Vec<u8>) -> Vec<u8> {
    let fs = mount(image, false).expect("it opens").0;
    fs.close().expect("it closes");
    fs.pool().image()
}

/// A pool with three directories: one with many names of all lengths, some of them removed; one
/// with a few names far from each other; and an empty one.
fn wide(namespace: NamespaceKind, bytes: u64) -> Vec<u8> {
    let pool = SimPool::new(bytes);
    let options = FormatOptions {
        namespace,
        mapping: MappingKind::Extent,
        uuid: [4; 16],
        hash_seed: 6,
        now_ns: 1,
        known_zero: true,
        ..FormatOptions::default()
    };
    format(&pool, &options).expect("a pool is made");
    let fs = mount(pool.image(), false).expect("a new pool opens").0;
    let (cred, top) = (Cred::root(), fs.root());
    let many = fs.mkdir(&cred, &top, b"many", 0o755).expect("room");
    let few = fs.mkdir(&cred, &top, b"few", 0o700).expect("room");
    fs.mkdir(&cred, &few, b"empty", 0o711).expect("room");
    let name = |n: usize| format!("{n:0len$}", len = 4 + n % 250).into_bytes();
    for n in 0..1500 {
        create(&fs, &many, &name(n));
        create(&fs, &few, format!("f{n}").as_bytes());
        if n % 300 != 7 {
            fs.unlink(&cred, &few, format!("f{n}").as_bytes())
                .expect("a name");
        }
        if n % 5 == 0 {
            fs.unlink(&cred, &many, &name(n)).expect("a name");
        }
    }
    fs.close().expect("it closes");
    fs.pool().image()
}

fn create(fs: &Arc<Fs<Simulated>>, dir: &Node<Simulated>, name: &[u8]) {
    let write = OpenOptions::new().write(true).mode(0o644);
    fs.create(&Cred::root(), dir, name, &write).expect("room");
}

/// An entry of a listing: name, inode, position.
type Entry = (Vec<u8>, u64, u64);

/// The entries of a directory behind a position, in the order of a listing.
fn listed(fs: &Arc<Fs<Simulated>>, dir: &Node<Simulated>, after: u64) -> Vec<Entry> {
    let (mut at, mut found) = (ListPosition::default(), Vec::new());
    fs.list(dir, after, &mut at, &mut |entry| {
        found.push((entry.name.to_vec(), entry.ino, entry.cookie));
        true
    })
    .expect("it can be listed");
    found
}

/// The names of a directory have the same order in both pools, and a position from one listing
/// continues in the other.
fn assert_same_listing(converted: &[u8], before: &[u8], path: &[u8]) {
    let open = |image: &[u8]| {
        let fs = mount(image.to_vec(), true).expect("it opens").0;
        let dir = fs.find(&Cred::root(), &fs.root(), path, true);
        (dir.expect("a directory"), fs)
    };
    let (dir, fs) = open(before);
    let given = listed(&fs, &dir, 0);
    let (dir, fs) = open(converted);
    let of = |entries: &[Entry]| {
        let names = entries.iter().map(|(name, ino, _)| (name.clone(), *ino));
        names.collect::<Vec<_>>()
    };
    assert_eq!(of(&listed(&fs, &dir, 0)), of(&given));
    for (at, (_, _, position)) in given.iter().enumerate().step_by(50) {
        let behind = listed(&fs, &dir, *position);
        assert_eq!(behind, given[at + 1..], "behind {at}");
    }
}

#[test]
fn every_pair_keeps_the_tree() {
    for sample in samples() {
        let image = closed(sample.image.clone());
        for (_, to) in pairs().filter(|(from, _)| *from == sample.geometry.namespace) {
            let there = converted(&image, to);
            assert!(strictly(&there).is_sound());
            assert_eq!(read_tree(&there), read_tree(&image));
            assert!(read_sets(&there) == read_sets(&image));
            judge(there.clone(), false);
            let back = converted(&closed(there), sample.geometry.namespace);
            assert_eq!(read_tree(&back), read_tree(&image));
            assert!(read_sets(&back) == read_sets(&image));
            judge(back, false);
        }
    }
}

#[test]
fn large_directories_keep_their_order_and_positions_and_go_on() {
    for (from, to) in pairs() {
        let image = wide(from, 16 << 20);
        let there = converted(&image, to);
        for path in [&b"many"[..], b"few", b"few/empty"] {
            assert_same_listing(&there, &image, path);
        }
        let fs = mount(there, false).expect("it opens").0;
        let (cred, top) = (Cred::root(), fs.root());
        for path in [&b"many"[..], b"few"] {
            let dir = fs.find(&cred, &top, path, true).expect("a directory");
            (0..700).for_each(|n| create(&fs, &dir, format!("new{n}").as_bytes()));
            (0..700).step_by(3).for_each(|n| {
                let name = format!("new{n}");
                fs.unlink(&cred, &dir, name.as_bytes()).expect("a name");
            });
        }
        fs.close().expect("it closes");
        let used = fs.pool().image();
        assert!(strictly(&used).is_sound());
        let back = converted(&used, from);
        assert_same_listing(&back, &used, b"many");
        judge(back, false);
    }
}

/// Converts back and forth many times: chunks of the other namespace must be freed, or one side
/// would run out of them.
#[test]
fn chunks_are_freed() {
    let mut image = wide(NamespaceKind::Direct, 16 << 20);
    let before = check(&image, CheckOptions::default()).summary;
    for _ in 0..6 {
        for to in [NamespaceKind::Tree, NamespaceKind::Direct] {
            image = closed(converted(&image, to));
        }
    }
    let after = check(&image, CheckOptions::default()).summary;
    assert!(
        after.chunks_free + 2 >= before.chunks_free,
        "{} of {} chunks are free",
        after.chunks_free,
        before.chunks_free
    );
}

/// A power cut leaves the old pool, closed cleanly, or a conversion that can be finished, however
/// often that is cut short in turn.
#[test]
fn power_cuts() {
    std::thread::scope(|scope| {
        for (from, to) in pairs_to_cut() {
            scope.spawn(move || cut_conversion(from, to));
        }
    });
}

/// A short run tries every second state.
fn cut_conversion(from: NamespaceKind, to: NamespaceKind) {
    let of = |sample: &&vellum_fuzz::Sample| sample.geometry.namespace == from;
    let image = closed(samples().iter().find(of).expect("a sample").image.clone());
    let sound = read_tree(&image);
    let pool = SimPool::from_image(image.clone());
    let planned = plan_conversion(&image, to, None).expect("it can be converted");
    pool.start_recording();
    convert(&pool, &planned, &|_, _| {}).expect("a simulated pool takes it");
    let (mut states, mut decided, mut undecided) = (0, 0, 0);
    each_cut(image, &pool.take_log(), |cut| {
        states += 1;
        if states % 2 == 0 && !is_whole() {
            return;
        }
        let pool = SimPool::from_image(cut.clone());
        pool.start_recording();
        if finish_conversion(&pool, &|_, _| {}).expect("it can be finished") {
            decided += 1;
            assert_eq!(namespace_of(&pool.image()), to);
            if decided % 40 == 1 {
                each_cut(cut, &pool.take_log(), |again| {
                    let pool = SimPool::from_image(again);
                    finish_conversion(&pool, &|_, _| {}).expect("it can be finished");
                    assert_eq!(read_tree(&pool.image()), sound);
                });
            }
        } else {
            undecided += 1;
            assert!(strictly(&cut).is_sound());
        }
        assert_eq!(read_tree(&pool.image()), sound);
        assert!(strictly(&pool.image()).is_sound());
    });
    assert!(decided > 100 && undecided > 100, "{decided}, {undecided}");
}

/// States at every point of a log.
fn each_cut(image: Vec<u8>, log: &[vellum_media::Event], mut visit: impl FnMut(Vec<u8>)) {
    let mut points = CrashPoints::new(image, log);
    while let Some(point) = points.next_point() {
        let done = point.events_done() as u64;
        for state in point.states(2, done) {
            visit(point.image(&state));
        }
    }
}

fn namespace_of(image: &[u8]) -> NamespaceKind {
    let found = vellum_check::survey::superblock(&image.to_vec());
    found.expect("a pool").namespace()
}

/// Opens a pool with an external data device under another boot.
fn split_mount(disk: &Arc<SimPool>) -> Result<Arc<Fs<SimulatedLogged>>> {
    let options = MountOptions {
        clock: Clock::Counter(1_000_000.into()),
        ..MountOptions::default()
    };
    let pool = SimLogged::new(Arc::clone(disk), None);
    let opened = attach::<SimulatedLogged>(pool, |bytes| Ok(HeapMemory::new(bytes)), options);
    opened.map(|(fs, _)| fs)
}

/// A pool with an external data device and a few names, closed cleanly, or left with some of the
/// names uncommitted.
fn split(namespace: NamespaceKind, closes: bool) -> Arc<SimPool> {
    let disk = Arc::new(SimPool::new(5 << 19));
    let options = FormatOptions {
        namespace,
        thread_slots: Some(2),
        mapping: MappingKind::Extent,
        metadata_bytes: Some(1 << 18),
        external: Some(ExternalData {
            id: [9; 16],
            at: 4096,
            data_bytes: 1 << 20,
            replica_bytes: 0,
        }),
        hash_seed: 5,
        known_zero: true,
        ..FormatOptions::default()
    };
    format(&*disk, &options).expect("a pool is made");
    let fs = split_mount(&disk).expect("a new pool opens");
    let (cred, top) = (Cred::root(), fs.root());
    let write = OpenOptions::new().write(true).mode(0o644);
    let dir = fs.mkdir(&cred, &top, b"dir", 0o755).expect("room");
    let below = fs.mkdir(&cred, &dir, b"below", 0o700).expect("room");
    for (dir, name, byte) in [(&top, b"one", 1), (&dir, b"two", 2), (&below, b"six", 6)] {
        let file = fs.create(&cred, dir, name, &write).expect("room");
        file.write_at(0, &[byte; 5000]).expect("room");
    }
    fs.unlink(&cred, &dir, b"two").expect("a name");
    if closes {
        fs.close().expect("it closes");
    }
    disk
}

/// The same with an external data device: neither remaining undo records nor refused openings in
/// between change the result.
#[test]
fn power_cuts_with_an_external_data_device() {
    for (from, to) in pairs_to_cut() {
        let image = split(from, true).image();
        let sound = read_tree(&image);
        assert_eq!(sound.len(), 4);
        let planned = plan_conversion(&image, to, None).expect("it can be converted");
        let pool = SimPool::from_image(image.clone());
        pool.start_recording();
        convert(&pool, &planned, &|_, _| {}).expect("a simulated pool takes it");
        let (mut decided, mut undecided) = (0, 0);
        each_cut(image, &pool.take_log(), |cut| {
            let disk = Arc::new(SimPool::from_image(cut.clone()));
            let opened = split_mount(&disk).map(|fs| fs.close());
            if StateWord(word_of(&cut, PoolState::WORD))
                .conversion()
                .is_some()
            {
                decided += 1;
                assert!(matches!(opened, Err(Error::Converting)));
                disk.start_recording();
                assert!(finish_conversion(&*disk, &|_, _| {}).expect("it can be finished"));
                let finished = disk.image();
                if decided % 60 == 1 {
                    each_cut(cut, &disk.take_log(), |again| {
                        let disk = SimPool::from_image(again);
                        finish_conversion(&disk, &|_, _| {}).expect("it can be finished");
                        assert_eq!(read_tree(&disk.image()), sound);
                    });
                }
                assert_eq!(namespace_of(&finished), to);
            } else {
                undecided += 1;
                opened.expect("it opens").expect("it closes");
                assert_eq!(read_tree(&cut), sound);
            }
            assert_eq!(read_tree(&disk.image()), sound);
            let report = strictly(&disk.image());
            assert!(report.is_sound(), "{report}");
        });
        assert!(decided > 50 && undecided > 50, "{decided}, {undecided}");
        // The converted pool is used, and its uncommitted changes are reverted.
        let disk = Arc::new(SimPool::from_image(pool.image()));
        let fs = split_mount(&disk).expect("it opens");
        fs.mkdir(&Cred::root(), &fs.root(), b"new", 0o755)
            .expect("room");
        drop(fs);
        split_mount(&disk)
            .expect("it opens")
            .close()
            .expect("it closes");
        assert_eq!(read_tree(&disk.image()), sound);
        assert!(strictly(&disk.image()).is_sound());
    }
}

/// Uncommitted changes are reverted before a conversion is planned.
#[test]
fn uncommitted_changes_are_not_converted() {
    let disk = split(NamespaceKind::Direct, false);
    let plan = |disk: &SimPool| plan_conversion(&disk.image(), NamespaceKind::Tree, None);
    assert!(matches!(plan(&disk), Err(ConvertError::NotClosed)));
    split_mount(&disk)
        .expect("it opens")
        .close()
        .expect("it closes");
    assert!(plan(&disk).is_ok());
    // A single undo record is enough, in a pool that is marked as closed.
    let mut image = disk.image();
    let superblock = vellum_check::survey::superblock(&image).expect("a pool");
    let undo = UndoPlan::of(&superblock.geometry()).expect("an undo log");
    let mut version = vellum_layout::UndoRecord {
        granule: undo.first,
        transaction: 1 << 30,
        ..Default::default()
    };
    version.seal(5);
    let at = undo.undo_record_at(7) as usize;
    image[at..at + 192].copy_from_slice(zerocopy::IntoBytes::as_bytes(&version));
    assert!(matches!(
        plan(&SimPool::from_image(image)),
        Err(ConvertError::NotClosed)
    ));
}

/// A word of the pool's state.
fn word_of(image: &[u8], field: u64) -> u64 {
    let found = vellum_check::survey::superblock(&image.to_vec()).expect("a pool");
    let at = (found.geometry().state_at + field) as usize;
    u64::from_le_bytes(image[at..at + 8].try_into().expect("8 bytes"))
}

#[test]
fn refused_conversions_are_reported() {
    let image = closed(samples()[0].image.clone());
    let tree = NamespaceKind::Tree;
    let refused =
        |image: &Vec<u8>, to| plan_conversion(image, to, None).expect_err("it is refused");
    assert!(matches!(
        refused(&image, NamespaceKind::Direct),
        ConvertError::Same(_)
    ));
    assert!(matches!(
        refused(&samples()[2].image, tree),
        ConvertError::NotClosed
    ));
    assert!(matches!(
        refused(&vec![0; 9000], tree),
        ConvertError::NotAPool(_)
    ));
    let mut damaged = image.clone();
    let geometry = samples()[0].geometry;
    damaged[geometry.slot_at(1) as usize + 16] ^= 1;
    assert!(matches!(
        refused(&damaged, tree),
        ConvertError::Unsound { .. }
    ));
    // As many names as fit.
    let full = full();
    let error = refused(&full, tree);
    assert!(matches!(error, ConvertError::NoRoom { .. }), "{error}");
}

/// A pool with nested directories that have names of 255 bytes, and a file in the fourth.
fn deep() -> Vec<u8> {
    let pool = SimPool::new(POOL_MIN_BYTES);
    format(&pool, &FormatOptions::default()).expect("a pool is made");
    let fs = mount(pool.image(), false).expect("a new pool opens").0;
    let (cred, mut dir) = (Cred::root(), fs.root());
    for _ in 0..4 {
        dir = fs.mkdir(&cred, &dir, &[b'd'; 255], 0o755).expect("room");
    }
    create(&fs, &dir, b"file");
    drop(dir);
    fs.close().expect("it closes");
    fs.pool().image()
}

/// Beyond 848 bytes, the paths in area entries start again.
#[test]
fn long_paths() {
    let image = deep();
    let there = converted(&image, NamespaceKind::Adaptive);
    assert_eq!(read_tree(&there), read_tree(&image));
    judge(there.clone(), false);
    let back = converted(&closed(there), NamespaceKind::Tree);
    assert_eq!(read_tree(&back), read_tree(&image));
    judge(back, false);
}

fn full() -> Vec<u8> {
    let pool = SimPool::new(POOL_MIN_BYTES);
    format(&pool, &FormatOptions::default()).expect("a pool is made");
    let fs = mount(pool.image(), false).expect("a new pool opens").0;
    let write = OpenOptions::new().write(true).mode(0o644);
    let mut made = 0;
    while fs
        .create(
            &Cred::root(),
            &fs.root(),
            format!("file{made}").as_bytes(),
            &write,
        )
        .is_ok()
    {
        made += 1;
    }
    fs.close().expect("it closes");
    fs.pool().image()
}

/// A pool between two namespaces is mistaken for neither of them.
#[test]
fn a_conversion_that_was_not_finished_is_finished_first() {
    let image = closed(samples()[0].image.clone());
    let pool = SimPool::from_image(image.clone());
    let planned = plan_conversion(&image, NamespaceKind::Tree, None).expect("it can be converted");
    pool.start_recording();
    convert(&pool, &planned, &|_, _| {}).expect("a simulated pool takes it");
    let mut between = Vec::new();
    each_cut(image, &pool.take_log(), |cut| {
        let at = (samples()[0].geometry.state_at + PoolState::WORD) as usize;
        let word = u64::from_le_bytes(cut[at..at + 8].try_into().expect("8 bytes"));
        if StateWord(word).conversion().is_some() {
            between = cut;
        }
    });
    for read_only in [false, true] {
        let error = mount(between.clone(), read_only)
            .map(|_| ())
            .expect_err("it is refused");
        assert!(matches!(error, Error::Converting), "{error}");
    }
    let report = check(&between, CheckOptions::default());
    assert!(
        report.has(Class::StateWord) && report.damage == 1,
        "{report}"
    );
    let repair = plan(&between, vellum_repair::Options::default());
    assert!(
        repair
            .refused
            .is_some_and(|why| why.contains("vellum convert"))
    );
    let error = plan_conversion(&between, NamespaceKind::Direct, None).expect_err("it is refused");
    assert!(matches!(error, ConvertError::Unfinished), "{error}");
    let at = samples()[0].geometry.state_at + PoolState::PENDING;
    let pool = SimPool::from_image(between);
    let first = pool.load(at, Ordering::Acquire);
    let mut damaged = pool.image();
    damaged[samples()[0].geometry.slot_at(first) as usize + 70] ^= 1;
    let error = finish_conversion(&SimPool::from_image(damaged), &|_, _| {});
    assert!(matches!(error, Err(FinishError::Damaged(slot)) if slot == first));
    assert!(finish_conversion(&pool, &|_, _| {}).expect("it can be finished"));
    judge(pool.image(), false);
}
