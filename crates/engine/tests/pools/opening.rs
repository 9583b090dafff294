//! Pools that an opening accepts, pools that it refuses, and the reasons.

use std::fs;
use std::path::{Path, PathBuf};

use vellum::media::{MediaChoice, MediaKind, kind_at};
use vellum::{CreateOptions, DataOptions, Error, Pool, PoolOptions};
use vellum_layout::{PoolState, Superblock, SuperblockError};
use zerocopy::IntoBytes;

const BLOCK: usize = 4096;

/// A pool in an ordinary file, without a log.
fn in_a_file() -> CreateOptions {
    CreateOptions::new(8 << 20).media(MediaChoice::File)
}

struct Image {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

/// A pool with a file, closed.
fn image() -> Image {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let pool = in_a_file().create(&path).unwrap();
    pool.volume().write("/f", b"kept").unwrap();
    pool.close().unwrap();
    Image { _dir: dir, path }
}

fn superblock(path: &Path) -> Superblock {
    Superblock::unseal(&fs::read(path).unwrap()[..BLOCK]).unwrap()
}

impl Image {
    fn patch(&self, patch: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(&self.path).unwrap();
        patch(&mut bytes);
        fs::write(&self.path, bytes).unwrap();
    }

    /// Changes every copy of the superblock as a later release might, with a correct checksum.
    fn rewrite(&self, change: impl Fn(&mut Superblock)) {
        let mut new = superblock(&self.path);
        change(&mut new);
        new.seal();
        self.patch(|bytes| {
            for at in [0, BLOCK, bytes.len() - BLOCK] {
                bytes[at..at + BLOCK].copy_from_slice(new.as_bytes());
            }
        });
    }

    fn open(&self, read_only: bool) -> Result<Pool, Error> {
        let options = PoolOptions::new().read_only(read_only);
        options.open(&self.path)
    }

    #[track_caller]
    fn assert_reads(&self, read_only: bool) {
        let pool = self.open(read_only).unwrap();
        assert_eq!(pool.volume().read("/f").unwrap(), b"kept");
    }
}

#[test]
fn a_later_version_is_refused_with_the_reason() {
    let image = image();
    image.rewrite(|sb| sb.version = 2);
    for read_only in [false, true] {
        let error = image.open(read_only).unwrap_err();
        let known = matches!(error, Error::Superblock(SuperblockError::Version(2)));
        assert!(known, "{error}");
        assert_eq!(error.errno(), libc::EOPNOTSUPP);
    }
}

#[test]
fn unknown_features_refuse_or_forbid_changes() {
    let image = image();
    image.rewrite(|sb| sb.incompatible |= 1 << 40);
    for read_only in [false, true] {
        let error = image.open(read_only).unwrap_err();
        let known =
            matches!(error, Error::Superblock(SuperblockError::Features(bits)) if bits == 1 << 40);
        assert!(known, "{error}");
    }
    image.rewrite(|sb| {
        sb.incompatible &= !(1 << 40);
        sb.read_only_compatible = 1 << 41;
    });
    let error = image.open(false).unwrap_err();
    let known = matches!(
        error,
        Error::Superblock(SuperblockError::ReadOnlyFeatures(bits)) if bits == 1 << 41
    );
    assert!(known, "{error}");
    assert_eq!(error.errno(), libc::EROFS);
    image.assert_reads(true);
    image.rewrite(|sb| (sb.read_only_compatible, sb.compatible) = (0, 4));
    image.assert_reads(false);
}

#[test]
fn any_sealed_copy_opens_the_pool() {
    let image = image();
    // The version is trusted only if the checksum matches.
    image.patch(|bytes| bytes[8] = 9);
    image.assert_reads(false);
    image.patch(|bytes| bytes[BLOCK..2 * BLOCK].fill(0xFF));
    image.assert_reads(false);
    image.patch(|bytes| {
        let last = bytes.len() - BLOCK;
        bytes[last + 200] ^= 1;
    });
    let error = image.open(true).unwrap_err();
    let known = matches!(error, Error::Superblock(SuperblockError::Damaged));
    assert!(known, "{error}");
}

#[test]
fn the_latest_copy_is_used_even_if_it_has_a_later_version() {
    let image = image();
    image.patch(|bytes| {
        let mut newer = Superblock::unseal(&bytes[..BLOCK]).unwrap();
        (newer.version, newer.sequence) = (2, newer.sequence + 1);
        newer.seal();
        bytes[BLOCK..2 * BLOCK].copy_from_slice(newer.as_bytes());
    });
    let error = image.open(false).unwrap_err();
    let known = matches!(error, Error::Superblock(SuperblockError::Version(2)));
    assert!(known, "{error}");
}

#[test]
fn a_damaged_state_word_forbids_changes() {
    for bit in [0, 8, 31, 40] {
        let image = image();
        let at = (superblock(&image.path).state_at + PoolState::WORD) as usize;
        image.patch(|bytes| bytes[at + bit / 8] ^= 1 << (bit % 8));
        let error = image.open(false).unwrap_err();
        assert_eq!(error.errno(), libc::EUCLEAN, "{error}");
        image.assert_reads(true);
    }
}

/// The disk may get the pages of a file in any order. If changes arrived without the state word,
/// the next opening would trust a live map that is void.
#[test]
fn a_file_is_marked_as_open_before_anything_changes() {
    let image = image();
    let syncs = || vellum::media::count::of_this_thread().syncs;
    let before = syncs();
    let pool = image.open(false).unwrap();
    assert_eq!(syncs() - before, 1);
    pool.close().unwrap();
    let before = syncs();
    drop(image.open(true).unwrap());
    assert_eq!(syncs(), before, "nothing is written for readers");
}

/// A pool as a crash leaves it, with `/kept` and `/d/broken-entry`.
fn crashed() -> Image {
    let dir = tempfile::tempdir().unwrap();
    let open = dir.path().join("open");
    let pool = in_a_file().create(&open).unwrap();
    let volume = pool.volume();
    volume.write("/f", b"kept").unwrap();
    volume.create_dir("/d").unwrap();
    volume.write("/d/broken-entry", [7; 9000]).unwrap();
    volume.write("/d/other", [8; 9000]).unwrap();
    let path = dir.path().join("pool");
    fs::copy(&open, &path).unwrap();
    Image { _dir: dir, path }
}

#[test]
fn a_damaged_pool_is_refused_for_writing_and_can_be_read() {
    let entry = |bytes: &mut Vec<u8>| {
        let name = b"broken-entry";
        let at = bytes
            .windows(name.len())
            .position(|part| part == name)
            .unwrap();
        bytes[at] ^= 1;
    };
    let table = |bytes: &mut Vec<u8>| {
        let geometry = Superblock::unseal(&bytes[..BLOCK]).unwrap().geometry();
        let at = geometry.table_at as usize;
        let words = bytes[at..geometry.saved_state_at as usize].chunks(8);
        let used: Vec<_> = words
            .map(|word| word.iter().any(|&byte| byte != 0))
            .collect();
        let taken = used.iter().position(|&used| used).unwrap();
        let free = used.iter().position(|&used| !used).unwrap();
        bytes.copy_within(at + taken * 8..at + taken * 8 + 8, at + free * 8);
    };
    let chunk = |bytes: &mut Vec<u8>| {
        let geometry = Superblock::unseal(&bytes[..BLOCK]).unwrap().geometry();
        bytes[(geometry.chunk_table_at + geometry.meta_chunks * 8) as usize - 1] ^= 1;
    };
    let damages: [fn(&mut Vec<u8>); 3] = [entry, table, chunk];
    for (number, damage) in damages.into_iter().enumerate() {
        let image = crashed();
        image.patch(damage);
        let error = image.open(false).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{number}: {error}");
        image.assert_reads(true);
        let pool = image.open(true).unwrap();
        let volume = pool.volume();
        assert!(volume.read("/d/other").unwrap() == [8; 9000], "{number}");
        if number == 0 {
            let broken = volume.read("/d/broken-entry").unwrap_err();
            assert_eq!(broken.errno(), libc::EUCLEAN);
            let listed: Vec<_> = volume.read_dir("/d").unwrap().collect();
            assert!(listed.iter().any(Result::is_err), "a name is missing");
        }
    }
    let image = crashed();
    image.assert_reads(true);
    image.assert_reads(false);
}

/// Without a choice, the medium is one that keeps order through a power cut where an ordinary file
/// does not do so by itself. A chosen medium is used.
#[test]
fn a_new_pool_gets_the_medium_that_survives_most_there() {
    let (on_disk, in_memory) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir_in("/dev/shm").unwrap(),
    );
    let usual = match kind_at(&on_disk.path().join("pool")) {
        MediaKind::File => MediaKind::Logged,
        other => other,
    };
    let auto = MediaChoice::Auto;
    for (dir, name, media, kind) in [
        (&on_disk, "usual", auto, usual),
        (&on_disk, "file", MediaChoice::File, MediaKind::File),
        (&on_disk, "logged", MediaChoice::Logged, MediaKind::Logged),
        (&in_memory, "usual", auto, MediaKind::Memory),
        (&in_memory, "logged", MediaChoice::Logged, MediaKind::Logged),
    ] {
        let path = dir.path().join(name);
        let options = CreateOptions::new(8 << 20).media(media);
        let pool = options.create(&path).unwrap();
        assert_eq!(pool.fs().media_kind(), kind, "{name}");
        let added = || {
            pool.close().unwrap();
            Pool::add_dataset(&path, "more", &options).unwrap()
        };
        assert_eq!(added().fs().media_kind(), kind, "{name}");
    }
    for dir in [&on_disk, &in_memory] {
        let options = CreateOptions::new(0).data(Some(
            DataOptions::new(dir.path().join("data")).size_bytes(8 << 20),
        ));
        let pool = options.create(dir.path().join("apart")).unwrap();
        assert_eq!(pool.fs().media_kind(), MediaKind::Logged);
    }
}
