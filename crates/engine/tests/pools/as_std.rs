//! What the library gives as `std::fs` does.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, symlink};

use vellum::{OpenOptions, Pool, Volume};

fn mode(volume: &Volume, path: &str) -> u32 {
    u32::from(volume.symlink_metadata(path).unwrap().mode) & 0o7777
}

#[test]
fn what_is_made_gets_the_mode_that_it_gets_of_std() {
    let pool = Pool::memory(16 << 20).unwrap();
    let volume = pool.volume();
    let options = OpenOptions {
        write: true,
        create: true,
        ..OpenOptions::default()
    };
    volume.open_with("/opened", &options).unwrap();
    volume.create("/created").unwrap();
    volume.write("/written", b"").unwrap();
    volume.create_dir("/dir").unwrap();
    volume.create_dir_all("/dirs/dir").unwrap();
    volume.symlink("target", "/link").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let beside = |path: &str| dir.path().join(&path[1..]);
    let mut options = fs::File::options();
    let options = options.write(true).create(true).truncate(false);
    options.open(beside("/opened")).unwrap();
    fs::File::create(beside("/created")).unwrap();
    fs::write(beside("/written"), b"").unwrap();
    fs::create_dir(beside("/dir")).unwrap();
    fs::create_dir_all(beside("/dirs/dir")).unwrap();
    symlink("target", beside("/link")).unwrap();
    for path in [
        "/opened",
        "/created",
        "/written",
        "/dir",
        "/dirs/dir",
        "/link",
    ] {
        let of_std = fs::symlink_metadata(beside(path)).unwrap().mode() & 0o7777;
        assert_eq!(mode(&volume, path), of_std, "{path}");
    }
    let masked = volume.with_umask(0o077);
    let options = OpenOptions {
        write: true,
        create_new: true,
        ..OpenOptions::default()
    };
    masked.open_with("/private", &options).unwrap();
    masked.create_dir("/own").unwrap();
    assert_eq!(mode(&volume, "/private"), 0o600);
    assert_eq!(mode(&volume, "/own"), 0o700);
}

#[test]
fn errors_of_files_have_their_errno() {
    let pool = Pool::memory(2 << 20).unwrap();
    let mut file = pool.volume().create("/f").unwrap();
    let full = file.write_all(&vec![1; 4 << 20]).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC), "{full}");
    let seek = file.seek(SeekFrom::Current(-(1 << 40))).unwrap_err();
    assert_eq!(seek.raw_os_error(), Some(libc::EINVAL), "{seek}");
    let mut read_only = pool.volume().open("/f").unwrap();
    let write = read_only.write(b"x").unwrap_err();
    assert_eq!(write.raw_os_error(), Some(libc::EBADF), "{write}");
    pool.close().unwrap();
    let closed = file.read(&mut [0; 1]).unwrap_err();
    assert_eq!(closed.raw_os_error(), Some(libc::EBADF), "{closed}");
}
