//! Logged pools on a failing disk: what was promised is kept, what is not durable is reported, and
//! nothing is tried again.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use vellum::media::{HeapMemory, SimImages, SimLogged, SimPool, SimulatedLogged};
use vellum::{
    Clock, Cred, Error, ExternalData, FileKind, FormatOptions, FoundImage, Fs, ImageLocation,
    MappingKind, MountOptions, Node, Result, attach, format,
};
use vellum_check::{Options, check};
use vellum_layout::{ANCHORS_BYTES, Superblock};

type LoggedFs = Arc<Fs<SimulatedLogged>>;

/// Steps of [`script`], after which names are counted.
const STEPS: usize = 12;

/// A pool, one with its data on another disk, and one that writes free blocks ahead.
fn all() -> [Vec<u8>; 3] {
    let external = ExternalData {
        id: [9; 16],
        at: 4096,
        data_bytes: 1 << 20,
        replica_bytes: 0,
    };
    let hashed = MappingKind::HashFs;
    [
        made_on(None, hashed),
        made_on(Some(external), hashed),
        made_on(None, MappingKind::Extent),
    ]
}

fn made() -> Vec<u8> {
    made_on(None, MappingKind::HashFs)
}

fn made_on(external: Option<ExternalData>, mapping: MappingKind) -> Vec<u8> {
    let pool = SimPool::new(2 << 20);
    let options = FormatOptions {
        thread_slots: Some(2),
        mapping,
        metadata_bytes: Some(1 << 18),
        is_logged: true,
        external,
        uuid: [7; 16],
        hash_seed: 0x5EED,
        known_zero: true,
        ..FormatOptions::default()
    };
    format(&pool, &options).unwrap();
    pool.image()
}

fn mount(disk: &Arc<SimPool>) -> Result<LoggedFs> {
    let options = MountOptions {
        clock: Clock::Counter(AtomicI64::new(1)),
        ..MountOptions::default()
    };
    let pool = SimLogged::new(Arc::clone(disk), None);
    let arena = |bytes| Ok(HeapMemory::new(bytes));
    attach::<SimulatedLogged>(pool, arena, options).map(|(fs, _)| fs)
}

/// As [`mount`], with an image that outlives a kill, for the opening of this number.
fn mount_shared(
    disk: &Arc<SimPool>,
    images: &Arc<SimImages>,
    number: u8,
) -> Result<(LoggedFs, FoundImage)> {
    let options = MountOptions {
        clock: Clock::Counter(AtomicI64::new(1)),
        image: ImageLocation::Shared,
        attach: [number; 16],
        ..MountOptions::default()
    };
    let pool = SimLogged::new(Arc::clone(disk), Some(Arc::clone(images)));
    let arena = |bytes| Ok(HeapMemory::new(bytes));
    let opened = attach::<SimulatedLogged>(pool, arena, options);
    opened.map(|(fs, opened)| (fs, opened.image))
}

/// Size of a file: its blocks are journaled in a record, or are too many for that.
fn bytes_of(name: &str) -> usize {
    if name.ends_with(['2', '7']) {
        30_000
    } else {
        5000
    }
}

fn make(fs: &LoggedFs, name: &str) -> Result<()> {
    create(fs, name).and_then(|file| fill(fs, &file, name))
}

fn create(fs: &LoggedFs, name: &str) -> Result<Node<SimulatedLogged>> {
    let (root, cred) = (fs.root(), Cred::root());
    fs.mknod(&cred, &root, name.as_bytes(), FileKind::File, 0o644, 0)
}

fn fill(fs: &LoggedFs, file: &Node<SimulatedLogged>, name: &str) -> Result<()> {
    let cred = Cred::root();
    let options = vellum::OpenOptions::new().write(true);
    let handle = fs.open_node(&cred, file, &options)?;
    handle.write_at(0, &vec![7; bytes_of(name)]).map(drop)
}

/// Whether a file has all of its bytes.
fn is_whole(fs: &LoggedFs, name: &str) -> bool {
    let (root, cred) = (fs.root(), Cred::root());
    let options = vellum::OpenOptions::new().read(true);
    let handle = fs.open(&cred, &root, name.as_bytes(), &options).unwrap();
    let mut bytes = vec![0; bytes_of(name) + 1];
    let read = handle.read_at(0, &mut bytes).unwrap();
    read == bytes_of(name) && bytes[..read].iter().all(|&byte| byte == 7)
}

fn names(fs: &LoggedFs) -> usize {
    let found = |number: &usize| {
        let name = format!("f{number}");
        fs.lookup(&Cred::root(), &fs.root(), name.as_bytes())
            .is_ok()
    };
    (0..=STEPS).filter(found).count()
}

/// Creates files, commits each, and sometimes checkpoints the log, up to the first call that fails.
/// Returns how many files were synced, how many were created, and the error.
fn script(fs: &LoggedFs) -> (usize, usize, Option<Error>) {
    let (mut synced, mut done) = (0, 0);
    for number in 0..STEPS {
        let name = format!("f{number}");
        let step = create(fs, &name).and_then(|file| {
            done = number + 1;
            fill(fs, &file, &name)?;
            fs.sync()?;
            synced = done;
            if number % 3 == 2 {
                fs.checkpoint()?;
            }
            Ok(())
        });
        if let Err(error) = step {
            return (synced, done, Some(error));
        }
    }
    (synced, done, None)
}

/// Each sync, and each write, of the disk fails once, and so do all after it.
#[test]
fn after_a_failure_nothing_is_committed_and_what_was_synced_stays() {
    let fail: [fn(&SimPool, u32); 2] = [SimPool::fail_syncs_after, SimPool::fail_writes_after];
    for (image, fail) in all()
        .iter()
        .flat_map(|image| fail.map(|fail| (image, fail)))
    {
        let mut failures = 0;
        for good in 0.. {
            let disk = Arc::new(SimPool::from_image(image.clone()));
            let fs = mount(&disk).unwrap();
            fail(&disk, good);
            let (synced, made, error) = script(&fs);
            let Some(error) = error else {
                break;
            };
            failures += 1;
            assert!(matches!(error, Error::Io(_)), "{good}: {error:?}");
            assert_eq!(names(&fs), made, "{good}: reads still work");
            // The disk works again, but is not used.
            fail(&disk, u32::MAX);
            assert!(matches!(fs.sync(), Err(Error::Io(_))), "{good}");
            assert!(
                matches!(make(&fs, "late"), Err(Error::ReadOnlyAfterDamage)),
                "{good}"
            );
            assert!(fs.close().is_err(), "{good}");
            drop(fs);

            let report = check(&disk.image(), Options::default());
            assert_eq!(report.damage, 0, "{good}: {report}");
            let fs = mount(&disk).unwrap();
            let found = names(&fs);
            assert!(
                (synced..=made).contains(&found),
                "{good}: {found} of {synced} to {made}"
            );
            let mut kept = (0..found).map(|number| format!("f{number}"));
            assert!(kept.all(|name| is_whole(&fs, &name)), "{good}");
            make(&fs, "again").unwrap();
            fs.close().unwrap();
        }
        assert!(failures > 20, "{failures}");
    }
}

/// The adoption of a killed process's image is cut off at each call of the disk in turn. The next
/// opening succeeds, and has everything that was promised. If the disk failed before all of the
/// image was committed, it has nothing more.
#[test]
fn an_interrupted_adoption_begins_again() {
    let fail: [fn(&SimPool, u32); 2] = [SimPool::fail_syncs_after, SimPool::fail_writes_after];
    for (image, fail) in all()
        .iter()
        .flat_map(|image| fail.map(|fail| (image, fail)))
    {
        let (mut cut_off, mut lost) = (0, 0);
        for good in 0.. {
            let disk = Arc::new(SimPool::from_image(image.clone()));
            let images = Arc::new(SimImages::default());
            let (fs, found) = mount_shared(&disk, &images, 1).unwrap();
            assert_eq!(found, FoundImage::None);
            let (synced, made, error) = script(&fs);
            assert!(error.is_none() && synced == made);
            // These are not synced.
            let more = ["more", "more2", "last"];
            more.iter().for_each(|name| make(&fs, name).unwrap());
            drop(fs);

            fail(&disk, good);
            let adopted = mount_shared(&disk, &images, 2);
            fail(&disk, u32::MAX);
            let is_over = adopted.is_ok();
            drop(adopted);
            cut_off += u32::from(!is_over);
            // After the anchor that names no image, everything is in the log.
            let (fs, _) = mount_shared(&disk, &images, 3).unwrap();
            assert_eq!(names(&fs), STEPS, "{good}");
            let has_more = fs.lookup(&Cred::root(), &fs.root(), b"more").is_ok();
            let more = if has_more { &more[..] } else { &[] };
            lost += u32::from(!has_more);
            let all = (0..STEPS).map(|number| format!("f{number}"));
            let all = all.chain(more.iter().map(|name| name.to_string()));
            all.for_each(|name| assert!(is_whole(&fs, &name), "{good}: {name}"));
            fs.close().unwrap();
            let report = check(&disk.image(), Options::default());
            assert!(report.is_sound(), "{good}: {report}");
            if is_over {
                break;
            }
        }
        assert!(cut_off > 3, "{cut_off}");
        // An image whose adoption could not be committed is dropped. A failure after the commit
        // loses nothing.
        assert!((1..cut_off).contains(&lost), "{lost} of {cut_off}");
    }
}

/// A checkpoint is cut off, and then the opening that finishes it, at each write of the disk in
/// turn. Of two journaled versions of the same block the newer one stays.
#[test]
fn older_journaled_data_never_comes_back() {
    for image in all() {
        let mut finished = 0;
        'checkpoints: for cut in 0.. {
            for cut_again in 0.. {
                let disk = Arc::new(SimPool::from_image(image.clone()));
                let fs = mount(&disk).unwrap();
                let file = create(&fs, "f0").unwrap();
                let options = vellum::OpenOptions::new().write(true);
                let handle = fs.open_node(&Cred::root(), &file, &options).unwrap();
                for byte in [1, 7] {
                    handle.write_at(0, &[byte; 5000]).unwrap();
                    fs.sync().unwrap();
                }
                disk.fail_writes_after(cut);
                let is_done = fs.checkpoint().is_ok();
                drop((handle, file, fs));
                disk.fail_writes_after(cut_again);
                let is_open = mount(&disk).map(drop).is_ok();
                disk.fail_writes_after(u32::MAX);
                let fs = mount(&disk).unwrap();
                assert!(is_whole(&fs, "f0"), "{cut} {cut_again}");
                drop(fs);
                if is_open {
                    finished += 1;
                    if is_done {
                        break 'checkpoints;
                    }
                    break;
                }
            }
        }
        assert!(finished > 2, "{finished}");
    }
}

/// A process whose commit failed, and that is killed, leaves nothing to adopt: its changes are
/// ahead of what any commit can promise.
#[test]
fn an_image_whose_commit_failed_is_not_adopted() {
    let disk = Arc::new(SimPool::from_image(made()));
    let images = Arc::new(SimImages::default());
    let (fs, _) = mount_shared(&disk, &images, 1).unwrap();
    make(&fs, "f0").unwrap();
    fs.sync().unwrap();
    make(&fs, "f1").unwrap();
    disk.fail_writes_after(0);
    assert!(matches!(fs.sync(), Err(Error::Io(_))));
    disk.fail_writes_after(u32::MAX);
    drop(fs);
    let (fs, found) = mount_shared(&disk, &images, 2).unwrap();
    assert_eq!((found, names(&fs)), (FoundImage::Lost, 1));
    drop(fs);
    let (_, found) = mount_shared(&disk, &images, 3).unwrap();
    assert_eq!(found, FoundImage::Adopted);
}

/// A write whose bytes do not arrive fails, and nothing is committed any more.
#[test]
fn a_failed_write_is_reported_to_its_caller() {
    for image in all() {
        let disk = Arc::new(SimPool::from_image(image));
        let fs = mount(&disk).unwrap();
        make(&fs, "f0").unwrap();
        fs.sync().unwrap();
        let file = create(&fs, "f1").unwrap();
        disk.fail_writes_after(0);
        assert!(matches!(fill(&fs, &file, "f1"), Err(Error::Io(_))));
        disk.fail_writes_after(u32::MAX);
        assert!(matches!(
            fill(&fs, &file, "f1"),
            Err(Error::ReadOnlyAfterDamage)
        ));
        assert!(matches!(fs.sync(), Err(Error::Io(_))));
        assert!(is_whole(&fs, "f0"));
        drop(fs);
        assert_eq!(names(&mount(&disk).unwrap()), 1);
    }
}

/// Everyone who waits for a commit that fails gets its error, like its leader.
#[test]
fn a_failed_commit_returns_its_error_to_all_waiters() {
    let disk = Arc::new(SimPool::from_image(made()));
    let fs = mount(&disk).unwrap();
    disk.fail_syncs_after(30);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let fs = &fs;
            scope.spawn(move || {
                let failed = (0..40).find_map(|number| {
                    make(fs, &format!("{thread}-{number}"))
                        .and_then(|()| fs.sync())
                        .err()
                });
                assert!(
                    matches!(failed, Some(Error::Io(_) | Error::ReadOnlyAfterDamage)),
                    "{failed:?}"
                );
                assert!(matches!(fs.sync(), Err(Error::Io(_))));
            });
        }
    });
}

/// Unwritten parts of the pool's file are written ahead. As files are created and synced one by
/// one, zeros are stored to the first line of the free blocks around them, and of the blocks of the
/// log's next record. Files have their bytes.
#[test]
fn blocks_that_are_needed_next_are_written_ahead() {
    const OLD: u8 = 0xAA;
    let mut image = made_on(None, MappingKind::Extent);
    let geometry = Superblock::unseal(&image).unwrap().geometry();
    let data_at = geometry.data_at as usize;
    let data = data_at..data_at + geometry.segment_blocks as usize * 4096;
    let log_at = geometry.log_at as usize;
    let log = log_at + ANCHORS_BYTES as usize..log_at + geometry.log_bytes as usize;
    image[data.clone()].fill(OLD);
    image[log.clone()].fill(OLD);
    let disk = Arc::new(SimPool::from_image(image));
    let fs = mount(&disk).unwrap();
    let names: Vec<String> = (0..2).map(|number| format!("f{number}1")).collect();
    for name in &names {
        make(&fs, name).unwrap();
        fs.sync().unwrap();
    }
    assert!(names.iter().all(|name| is_whole(&fs, name)));
    let image = disk.image();
    let is_ahead = |block: &&[u8]| block[..64] == [0; 64] && block[64..] == [OLD; 4096 - 64];
    let [blocks, of_log] =
        [data, log].map(|bytes| image[bytes].chunks_exact(4096).filter(is_ahead).count());
    // The first commit asks for it, and the next files find a group written.
    assert!((1..=8).contains(&blocks), "{blocks}");
    assert!((1..=8).contains(&of_log), "{of_log}");
    fs.close().unwrap();
    let report = check(&disk.image(), Options::default());
    assert!(report.is_sound(), "{report}");
}
