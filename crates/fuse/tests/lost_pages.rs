//! Pages that vanish under a mount: requests for their contents fail, all others are answered,
//! changes are refused, and the mount ends cleanly.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use vellum::media::MediaChoice;
use vellum::{CreateOptions, Error, Pool};
use vellum_fuse::{End, MountConfig, Session};

const POOL_BYTES: u64 = 1 << 20;

/// A pool in an ordinary file, without a log, so that the file itself is mapped.
fn in_a_file() -> CreateOptions {
    CreateOptions::new(POOL_BYTES).media(MediaChoice::File)
}

fn has_fuse() -> bool {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    if device.is_err() {
        eprintln!("skipped: /dev/fuse is missing or not open to this user");
    }
    device.is_ok()
}

/// A pool with forty files in two directories.
fn sample(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let pool = in_a_file().create(path).unwrap();
    let volume = pool.volume();
    let mut files = BTreeMap::new();
    for dir in ["one", "two"] {
        volume.create_dir(Path::new("/").join(dir)).unwrap();
        for i in 0..20u8 {
            let name = Path::new(dir).join(format!("file-{i}"));
            let content = vec![i; 6000];
            volume.write(Path::new("/").join(&name), &content).unwrap();
            files.insert(name, content);
        }
    }
    pool.close().unwrap();
    files
}

fn mount(pool: &Pool, dir: &Path) -> Session {
    vellum_fuse::mount(pool.fs(), dir, &MountConfig::default()).unwrap()
}

fn unmount(session: Session) {
    session.stopper().stop();
    assert_eq!(session.wait().unwrap(), End::Finished);
}

/// The number of files that cannot be read.
fn look(mnt: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) -> usize {
    let is_gone = |(name, content): (&PathBuf, &Vec<u8>)| match std::fs::read(mnt.join(name)) {
        Ok(found) => {
            assert!(found == *content, "{name:?} is not what was written");
            false
        }
        Err(error) => {
            let errno = error.raw_os_error();
            assert!(
                matches!(errno, Some(libc::EIO | libc::EUCLEAN)),
                "{name:?}: {error}"
            );
            true
        }
    };
    files.iter().filter(|&file| is_gone(file)).count()
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn a_mount_survives_the_loss_of_any_page() {
    if !has_fuse() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (path, mnt) = (dir.path().join("pool"), dir.path().join("mnt"));
    std::fs::create_dir(&mnt).unwrap();
    let files = sample(&path);
    let mut damaged = 0;
    for at in (0..POOL_BYTES).step_by(3 * 4096) {
        let pool = Pool::open(&path).unwrap();
        pool.fs().take_away(at).unwrap();
        let session = mount(&pool, &mnt);
        let gone = look(&mnt, &files);
        if gone == 0 {
            unmount(session);
            continue;
        }
        damaged += 1;
        let root = std::fs::metadata(&mnt).unwrap().permissions();
        let changed = errno(std::fs::set_permissions(&mnt, root));
        assert_eq!(changed, Some(libc::EROFS), "page {at:#x}");
        assert_eq!(look(&mnt, &files), gone, "page {at:#x}: the second time");
        unmount(session);
        assert!(matches!(pool.close(), Err(Error::ReadOnlyAfterDamage)));
    }
    assert!(damaged > 20, "{damaged} pages held something");
    let pool = Pool::open(&path).unwrap();
    let session = mount(&pool, &mnt);
    assert_eq!(look(&mnt, &files), 0);
    unmount(session);
    pool.close().unwrap();
}

/// The kernel requests attributes along with names. A file whose inode is lost must not end the
/// listing.
#[test]
fn a_listing_shows_names_whose_files_are_lost() {
    const FILES: usize = 100;
    if !has_fuse() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (path, mnt) = (dir.path().join("pool"), dir.path().join("mnt"));
    std::fs::create_dir(&mnt).unwrap();
    let pool = in_a_file().create(&path).unwrap();
    let volume = pool.volume();
    for i in 0..FILES {
        volume.write(format!("/file-{i}"), b"content").unwrap();
    }
    let lost = volume.metadata("/file-50").unwrap().ino();
    drop(volume);
    pool.close().unwrap();

    let pool = Pool::open(&path).unwrap();
    let lost_at = pool.fs().superblock().geometry().slot_at(lost);
    pool.fs().take_away(lost_at & !4095).unwrap();
    let session = mount(&pool, &mnt);
    for _ in 0..2 {
        let (mut listed, mut gone) = (0, 0);
        for entry in std::fs::read_dir(&mnt).unwrap() {
            let entry = entry.unwrap();
            assert!(entry.file_type().unwrap().is_file());
            listed += 1;
            // In the middle of the listing: access to files makes the kernel request attributes
            // along with names.
            match entry.metadata() {
                Ok(found) => assert_eq!((found.ino(), found.len()), (entry.ino(), 7)),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EIO));
                    gone += 1;
                }
            }
        }
        assert_eq!(listed, FILES);
        // A page has 32 inodes.
        assert!((1..=32).contains(&gone), "{gone} are gone");
    }
    unmount(session);
    assert!(matches!(pool.close(), Err(Error::ReadOnlyAfterDamage)));
}
