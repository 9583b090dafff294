//! Split pools whose pool header and undo records are damaged. Whatever these contain, the checker
//! and an opening do not panic, and a pool that the checker calls sound can be used.

use std::sync::{Arc, OnceLock};

use vellum::media::{HeapMemory, SimLogged, SimPool, SimulatedLogged};
use vellum::{
    Clock, Cred, ExternalData, FormatOptions, MappingKind, MountOptions, OpenOptions, Result,
    attach, format,
};
use vellum_check::{Class, Options, check};
use vellum_fuzz::{Input, Watchdog};
use vellum_layout::{CommittedWord, PoolHeader, Superblock, UndoPlan, UndoRecord};
use vellum_media::CrashPoints;
use vellum_repair::{Plan, apply, plan};
use zerocopy::IntoBytes;

/// The number of cases in a run of the tests; see `docs/TESTING.md` for long runs.
const CASES: usize = 300;

const SEED: u64 = 5;

/// Writes files, and closes the pool, or leaves it as a kill does.
fn with(disk: &Arc<SimPool>, names: &[&[u8]], closes: bool) -> Result<()> {
    let options = MountOptions {
        clock: Clock::Counter(1_000_000.into()),
        ..MountOptions::default()
    };
    let pool = SimLogged::new(Arc::clone(disk), None);
    let (fs, _) = attach::<SimulatedLogged>(pool, |bytes| Ok(HeapMemory::new(bytes)), options)?;
    let create = OpenOptions::new().write(true).create(true).mode(0o644);
    for name in names {
        let file = fs.open(&Cred::root(), &fs.root(), name, &create)?;
        file.write_at(0, &[7; 5000])?;
    }
    if closes { fs.close() } else { Ok(()) }
}

/// A pool that was not closed: some files are committed, and some are not.
fn sample() -> &'static (Vec<u8>, UndoPlan) {
    static SAMPLE: OnceLock<(Vec<u8>, UndoPlan)> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let disk = Arc::new(SimPool::new(5 << 19));
        let options = FormatOptions {
            thread_slots: Some(2),
            mapping: MappingKind::Extent,
            metadata_bytes: Some(1 << 18),
            external: Some(ExternalData {
                id: [9; 16],
                at: 4096,
                data_bytes: 1 << 20,
                replica_bytes: 0,
            }),
            hash_seed: SEED,
            known_zero: true,
            ..FormatOptions::default()
        };
        format(&*disk, &options).expect("a pool is made");
        with(&disk, &[b"one", b"two"], true).expect("there is space");
        with(&disk, &[b"three", b"four"], false).expect("there is space");
        let image = disk.image();
        let superblock = Superblock::unseal(&image).expect("a superblock");
        let plan = UndoPlan::of(&superblock.geometry()).expect("an undo log");
        (image, plan)
    })
}

/// Writes an undo record with a valid checksum and arbitrary content.
fn add_undo_record(image: &mut [u8], input: &mut Input) {
    let (_, plan) = sample();
    let granule = match input.u8() % 4 {
        0 => input.u64(),
        _ => plan.first + input.u64() % (plan.end - plan.first) / 128 * 128,
    };
    let transaction = match input.u8() % 4 {
        0 => input.u64(),
        _ => u64::from(input.u8() % 8),
    };
    let mut old = [input.u8(); 128];
    old[..8].copy_from_slice(&input.u64().to_le_bytes());
    let mut record = UndoRecord {
        granule,
        transaction,
        old,
        ..UndoRecord::default()
    };
    record.seal(SEED);
    let at = plan.undo_record_at(input.u64()) as usize;
    image[at..at + 192].copy_from_slice(record.as_bytes());
}

/// Applies the changes of the input to the sample. Returns the image, and whether only undo records
/// were changed, by bytes that fit no checksum.
fn changed(mut input: Input) -> (Vec<u8>, bool) {
    let (image, plan) = sample();
    let (mut image, mut is_torn_alone) = (image.clone(), true);
    for _ in 0..6 {
        if input.is_empty() {
            break;
        }
        let how = input.u8() % 5;
        is_torn_alone &= how == 3;
        match how {
            0 => add_undo_record(&mut image, &mut input),
            1 => {
                let word = CommittedWord::new(input.u64() % 8).0;
                let at = (plan.at + PoolHeader::COMMITTED) as usize;
                image[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            _ => {
                let place = input.u64();
                let at = match how {
                    2 => plan.at + place % 64,
                    // One of the records that were never written.
                    3 => plan.undo_record_at(plan.count / 2 + place % (plan.count / 4)),
                    _ => plan.undo_record_at(place % 64) + place % 192,
                } as usize;
                let bytes = input.bytes(8);
                image[at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
    (image, is_torn_alone)
}

fn judge((image, is_torn_alone): (Vec<u8>, bool)) {
    let before = check(&image, Options::default());
    assert_eq!(before, check(&image, Options::default()));
    let disk = Arc::new(SimPool::from_image(image));
    let outcome = with(&disk, &[b"one", b"five"], true);
    if before.is_sound() {
        assert!(outcome.is_ok(), "{outcome:?}: {before}");
    }
    if is_torn_alone {
        assert!(before.is_sound(), "{before}");
        let after = check(&disk.image(), Options::default());
        assert!(after.is_sound(), "{after}");
    }
}

#[test]
fn the_unchanged_sample_is_sound() {
    judge((sample().0.clone(), true));
}

#[test]
fn records() {
    vellum_fuzz::target!(CASES, |bytes| {
        let _watchdog = Watchdog::watch(bytes);
        judge(changed(Input::new(bytes)));
    });
}

/// The sample, closed cleanly, or as it was left.
fn left(closes: bool) -> Vec<u8> {
    let image = sample().0.clone();
    if !closes {
        return image;
    }
    let disk = Arc::new(SimPool::from_image(image));
    with(&disk, &[b"five"], true).expect("it opens");
    disk.image()
}

fn planned(image: &[u8]) -> Plan {
    let plan = plan(&image, vellum_repair::Options::default());
    assert_eq!(plan.refused, None);
    assert!(plan.mends_all(), "{}: {:?}", plan.after, plan.actions);
    plan
}

/// The bytes of these files, where they exist.
fn files(image: &[u8], names: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
    let pool = SimLogged::new(Arc::new(SimPool::from_image(image.to_vec())), None);
    let options = MountOptions {
        clock: Clock::Counter(2_000_000.into()),
        ..MountOptions::default()
    };
    let opened = attach::<SimulatedLogged>(pool, |bytes| Ok(HeapMemory::new(bytes)), options);
    let (fs, _) = opened.expect("it opens");
    let read = |name: &&[u8]| {
        let how = OpenOptions::new().read(true);
        let file = fs.open(&Cred::root(), &fs.root(), name, &how).ok()?;
        let mut bytes = vec![0; 6000];
        let read = file.read_at(0, &mut bytes).expect("it can be read");
        bytes.truncate(read);
        Some(bytes)
    };
    names.iter().map(read).collect()
}

/// Reports every file whose bytes may be missing, and no other; all that was committed is there.
#[test]
fn an_undo_log_with_an_empty_header_is_recreated() {
    for closes in [true, false] {
        // The opening before the close reverted what had been left.
        let names: &[&[u8]] = match closes {
            true => &[b"one", b"two", b"five"],
            false => &[b"one", b"two", b"three", b"four"],
        };
        let mut image = left(closes);
        let plan = sample().1;
        let at = (plan.at + PoolHeader::COMMITTED) as usize;
        image[at..at + 32].fill(0xA5);
        let report = check(&image, Options::default());
        assert!(report.has(Class::UndoLog) && report.damage == 1, "{report}");
        let pool = SimLogged::new(Arc::new(SimPool::from_image(image.clone())), None);
        let arena = |bytes| Ok(HeapMemory::new(bytes));
        let opened = attach::<SimulatedLogged>(pool, arena, MountOptions::default());
        let error = opened.map(drop).expect_err("it is refused");
        assert!(error.to_string().contains("pool header"), "{error}");
        let made = planned(&image);
        let doubtful: Vec<&str> = made
            .actions
            .iter()
            .filter_map(|action| action.what.split_once(": bytes that were written"))
            .map(|(path, _)| path)
            .collect();
        match closes {
            true => assert!(doubtful.is_empty(), "{doubtful:?}"),
            false => assert_eq!(doubtful, ["/three", "/four"]),
        }
        let pool = SimPool::from_image(image);
        apply(&pool, &made).expect("a simulated pool takes it");
        let strict = Options {
            strict_clean: true,
            ..Options::default()
        };
        let report = check(&pool.image(), strict);
        assert!(report.is_sound(), "{report}");
        let read = files(&pool.image(), names);
        assert!(read.iter().all(|bytes| *bytes == Some(vec![7; 5000])));
    }
}

/// Power cuts during the repair: another repair reaches the same result as the first one.
#[test]
fn an_interrupted_repair_of_the_pool_header_is_repeated() {
    let mut image = left(false);
    let at = sample().1.at as usize;
    image[at..at + 64].fill(0x5A);
    let pool = SimPool::from_image(image.clone());
    let made = planned(&image);
    pool.start_recording();
    apply(&pool, &made).expect("a simulated pool takes it");
    let log = pool.take_log();
    let mut points = CrashPoints::new(image, &log);
    let mut seen = 0;
    while let Some(point) = points.next_point() {
        let done = point.events_done() as u64;
        for state in point.states(2, done) {
            seen += 1;
            let cut = point.image(&state);
            let again = planned(&cut);
            let pool = SimPool::from_image(cut);
            apply(&pool, &again).expect("a simulated pool takes it");
            assert!(check(&pool.image(), Options::default()).is_sound());
            assert_eq!(files(&pool.image(), &[b"one"]), [Some(vec![7; 5000])]);
        }
    }
    assert!(seen > 10, "{seen}");
}

/// A record for an impossible granule is dropped, and uncommitted changes stay.
#[test]
fn an_undo_record_of_no_granule_is_dropped() {
    let mut image = left(false);
    let plan = sample().1;
    let mut record = UndoRecord {
        granule: plan.end + 7,
        transaction: 1 << 20,
        ..UndoRecord::default()
    };
    record.seal(SEED);
    let at = plan.undo_record_at(plan.count - 3) as usize;
    image[at..at + 192].copy_from_slice(record.as_bytes());
    assert!(check(&image, Options::default()).has(Class::UndoLog));
    let made = planned(&image);
    let pool = SimPool::from_image(image);
    apply(&pool, &made).expect("a simulated pool takes it");
    assert!(pool.image()[at..at + 192].iter().all(|&byte| byte == 0));
    assert_eq!(files(&pool.image(), &[b"four"]), [Some(vec![7; 5000])]);
}
