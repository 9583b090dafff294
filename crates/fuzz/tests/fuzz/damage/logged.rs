//! Pools with a log whose bytes are damaged. Whatever log and home contain, the checker and an
//! opening do not panic. A pool that the checker calls sound can be used, and so can a repaired
//! one.

use std::sync::{Arc, OnceLock};

use vellum::media::{HeapMemory, SimLogged, SimPool, SimulatedLogged};
use vellum::{
    Clock, Cred, FormatOptions, Fs, MappingKind, MountOptions, OpenOptions, Result, attach, format,
};
use vellum_check::survey::{RedoLog, redo_log};
use vellum_check::{Options, check};
use vellum_fuzz::{Input, Watchdog};
use vellum_layout::{
    ANCHORS_BYTES, Anchor, AnchorPoint, BLOCK_BYTES, Expected, Superblock, seal_record,
};
use vellum_repair::{Options as RepairOptions, apply, plan};
use zerocopy::IntoBytes;

/// The number of cases in a run of the tests; see `docs/TESTING.md` for long runs.
const CASES: usize = 300;

const ENOENT: i32 = 2;

const NAMES: [&[u8]; 5] = [b"one", b"two", b"three", b"four", b"five"];

type LoggedFs = Arc<Fs<SimulatedLogged>>;

fn mount(disk: &Arc<SimPool>) -> Result<LoggedFs> {
    let options = MountOptions {
        clock: Clock::Counter(1_000_000.into()),
        ..MountOptions::default()
    };
    let pool = SimLogged::new(Arc::clone(disk), None);
    let arena = |bytes| Ok(HeapMemory::new(bytes));
    attach::<SimulatedLogged>(pool, arena, options).map(|(fs, _)| fs)
}

/// Writes a file. The last blocks of a new file are journaled in the record of the following sync.
fn write(fs: &LoggedFs, name: &[u8]) -> Result<()> {
    let options = OpenOptions::new().write(true).create(true).mode(0o644);
    let file = fs.open(&Cred::root(), &fs.root(), name, &options)?;
    file.write_at(0, &[7; 5000])?;
    fs.sync()
}

/// A pool that was not closed: some epochs at home, some in the log, and journaled data.
fn sample() -> &'static (Vec<u8>, Superblock, RedoLog) {
    static SAMPLE: OnceLock<(Vec<u8>, Superblock, RedoLog)> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let disk = Arc::new(SimPool::new(2 << 20));
        let options = FormatOptions {
            thread_slots: Some(2),
            mapping: MappingKind::Extent,
            metadata_bytes: Some(1 << 18),
            is_logged: true,
            hash_seed: 5,
            known_zero: true,
            ..FormatOptions::default()
        };
        format(&*disk, &options).expect("a pool is made");
        let fs = mount(&disk).expect("a new pool opens");
        for (name, number) in NAMES.into_iter().zip(1..) {
            write(&fs, name).expect("there is room");
            if number == 2 {
                fs.checkpoint().expect("the disk works");
            }
        }
        let image = disk.image();
        let superblock = Superblock::unseal(&image).expect("a superblock");
        let log = redo_log(&image, &superblock).expect("a log");
        assert!(!log.lines.is_empty());
        assert_eq!(log.blocks.len(), 6);
        (image, superblock, log)
    })
}

/// Adds a record after the last one, whose lines and blocks have arbitrary locations.
fn add_record(image: &mut [u8], input: &mut Input) {
    let (_, superblock, log) = sample();
    let (epoch, at) = log.end;
    let mut lines = Vec::new();
    for _ in 0..input.u8() % 4 {
        let of_image = superblock.log_at / 64;
        let line = match input.u8() % 4 {
            0 => input.u64() % (1 << 32),
            _ => input.u64() % of_image,
        };
        let mut bytes = [input.u8(); 64];
        bytes[..8].copy_from_slice(&input.u64().to_le_bytes());
        lines.push((line * 64, bytes));
    }
    let blocks: Vec<(u64, Vec<u8>)> = (0..input.u8() % 3)
        .map(|_| match input.u8() % 4 {
            0 => (input.u64(), vec![1; BLOCK_BYTES as usize]),
            _ => (input.u64() % 100, vec![2; BLOCK_BYTES as usize]),
        })
        .collect();
    let journaled: Vec<(u64, &[u8])> = blocks.iter().map(|(at, of)| (*at, &of[..])).collect();
    let expected = Expected {
        salt: log.anchor.salt,
        epoch,
        previous: log.previous,
    };
    let (record, _) = seal_record(expected, (epoch - 1, epoch), &lines, &journaled);
    let place = (superblock.log_at + ANCHORS_BYTES + at) as usize;
    if let Some(to) = image.get_mut(place..place + record.len()) {
        to.copy_from_slice(&record);
    }
}

/// Writes an anchor with a valid checksum and arbitrary content.
fn add_anchor(image: &mut [u8], input: &mut Input) {
    let (_, superblock, log) = sample();
    let was = log.anchor.point().expect("a sum");
    let mut near = |of: u64| match input.u8() % 4 {
        0 => input.u64(),
        1 => of.wrapping_add(u64::from(input.u8())),
        2 => of.wrapping_sub(u64::from(input.u8())),
        _ => of,
    };
    let point = AnchorPoint {
        number: near(was.number + 1),
        tail: near(was.tail),
        tail_at: near(was.tail_at / BLOCK_BYTES).wrapping_mul(BLOCK_BYTES),
        sum: near(was.sum),
        target: near(was.target),
        target_sum: near(was.target_sum),
    };
    let mut anchor = Anchor::new(superblock.uuid, log.anchor.salt, point);
    if input.u8().is_multiple_of(4) {
        anchor = anchor.without_sum();
    }
    let at = (superblock.log_at + anchor.block() * BLOCK_BYTES) as usize;
    image[at..at + 512].copy_from_slice(anchor.as_bytes());
}

/// Applies the changes of the input to the sample. Returns the image, and whether only the log was
/// changed, by bytes that fit no checksum.
fn changed(mut input: Input) -> (Vec<u8>, bool) {
    let (image, superblock, _) = sample();
    let (mut image, mut is_log_alone) = (image.clone(), true);
    let log_at = superblock.log_at as usize;
    let log_bytes = superblock.log_bytes as usize;
    for _ in 0..6 {
        if input.is_empty() {
            break;
        }
        let how = input.u8() % 5;
        let place = input.u64() as usize;
        is_log_alone &= matches!(how, 2 | 3);
        match how {
            0 => add_record(&mut image, &mut input),
            1 => add_anchor(&mut image, &mut input),
            _ => {
                let at = match how {
                    2 => log_at + place % log_bytes,
                    3 => log_at + place % (8 * BLOCK_BYTES as usize),
                    _ => place % log_at,
                };
                let bytes = input.bytes(8);
                image[at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
    (image, is_log_alone)
}

/// Reads the files, changes something, and closes.
fn used(disk: &Arc<SimPool>) -> Result<()> {
    let fs = mount(disk)?;
    let read = OpenOptions::new().read(true);
    for name in NAMES {
        // An anchor that was moved may name an earlier epoch, with fewer files.
        match fs.open(&Cred::root(), &fs.root(), name, &read) {
            Err(error) if error.errno() == ENOENT => {}
            file => drop(file?.read_at(0, &mut [0; 9000])?),
        }
    }
    write(&fs, b"six")?;
    fs.close()
}

fn judge((image, is_log_alone): (Vec<u8>, bool)) {
    let before = check(&image, Options::default());
    assert_eq!(before, check(&image, Options::default()));
    let disk = Arc::new(SimPool::from_image(image.clone()));
    let outcome = used(&disk);
    if !before.is_sound() {
        hold_repaired(image);
        return;
    }
    assert!(outcome.is_ok(), "{outcome:?}: {before}");
    // Damage in unused bytes is found only once they are used.
    if is_log_alone {
        let strict = Options {
            strict_clean: true,
            progress: None,
        };
        let after = check(&disk.image(), strict);
        assert!(after.is_sound(), "{after}");
    }
}

/// Repairs what can be repaired, and uses it.
fn hold_repaired(image: Vec<u8>) {
    let plan = plan(&image, RepairOptions::default());
    if plan.refused.is_some() {
        assert!(plan.is_empty());
        return;
    }
    let disk = Arc::new(SimPool::from_image(image));
    apply(&*disk, &plan).expect("the medium works");
    let report = check(&disk.image(), Options::default());
    assert!(plan.mends_all() && report.is_sound(), "{report}: {plan:?}");
    let outcome = used(&disk);
    assert!(outcome.is_ok(), "{outcome:?}: {plan:?}");
}

#[test]
fn the_unchanged_sample_is_sound() {
    let image = &sample().0;
    assert!(check(image, Options::default()).is_sound());
    let disk = Arc::new(SimPool::from_image(image.clone()));
    used(&disk).unwrap();
}

#[test]
fn logs() {
    vellum_fuzz::target!(CASES, |bytes| {
        let _watchdog = Watchdog::watch(bytes);
        judge(changed(Input::new(bytes)));
    });
}
