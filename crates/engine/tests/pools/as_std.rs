//! Behaviour that the library shares with `std::fs`.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use vellum::{OpenOptions, Permissions, Pool, Volume};

fn mode(volume: &Volume, path: &str) -> u32 {
    volume.symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn created_files_get_the_same_mode_as_with_std() {
    let pool = Pool::memory(16 << 20).unwrap();
    let volume = pool.volume();
    let options = OpenOptions::new().write(true).create(true);
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
    let options = OpenOptions::new().write(true).create_new(true);
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

/// The paths below a volume's root with sizes and modes, as [`below_of_std`] lists them.
fn below(volume: &Volume) -> Vec<(PathBuf, u64, u32)> {
    let found = volume.walk("/").unwrap().map(|entry| {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        let len = if metadata.is_file() {
            metadata.len()
        } else {
            0
        };
        let path = entry.path().strip_prefix("/").unwrap().to_owned();
        (path, len, metadata.mode())
    });
    let mut found: Vec<_> = found.collect();
    found.sort();
    found
}

fn below_of_std(dir: &Path) -> Vec<(PathBuf, u64, u32)> {
    let (mut found, mut dirs) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(at) = dirs.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            let len = if metadata.is_file() {
                metadata.len()
            } else {
                0
            };
            let path = entry.path().strip_prefix(dir).unwrap().to_owned();
            found.push((path, len, metadata.mode()));
            if metadata.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn trees_are_walked_copied_and_removed_as_by_std() {
    let pool = Pool::memory(16 << 20).unwrap();
    let volume = pool.volume();
    let dir = tempfile::tempdir().unwrap();
    let beside = |path: &str| dir.path().join(&path[1..]);
    for path in ["/a/b/c", "/a/d", "/e"] {
        volume.create_dir_all(path).unwrap();
        fs::create_dir_all(beside(path)).unwrap();
    }
    for (path, len) in [("/a/f", 0), ("/a/b/g", 5000), ("/a/b/c/h", 3 << 20)] {
        volume.write(path, vec![7; len]).unwrap();
        fs::write(beside(path), vec![7; len]).unwrap();
    }
    volume.symlink("a/b", "/link").unwrap();
    symlink("a/b", beside("/link")).unwrap();
    volume
        .set_permissions("/a/b/g", Permissions::from_mode(0o640))
        .unwrap();
    fs::set_permissions(beside("/a/b/g"), PermissionsExt::from_mode(0o640)).unwrap();
    for (from, to) in [("/a/b/g", "/e/g"), ("/link/c/h", "/e/h"), ("/a/f", "/e/f")] {
        let of_std = fs::copy(beside(from), beside(to)).unwrap();
        assert_eq!(volume.copy(from, to).unwrap(), of_std);
        assert_eq!(volume.read(from).unwrap(), volume.read(to).unwrap());
    }
    assert_eq!(below(&volume), below_of_std(dir.path()));
    for path in ["/link/../b/c", "/link/c/.", "/", "//a/./d/", "/e/../../a"] {
        let of_std = match path {
            // Nothing is above a volume's root.
            "/e/../../a" => PathBuf::from("/a"),
            _ => {
                let found = dir.path().join(path.trim_start_matches('/')).canonicalize();
                let root = dir.path().canonicalize().unwrap();
                Path::new("/").join(found.unwrap().strip_prefix(root).unwrap())
            }
        };
        assert_eq!(volume.canonicalize(path).unwrap(), of_std, "{path}");
    }
    for path in ["/link", "/a"] {
        volume.remove_dir_all(path).unwrap();
        fs::remove_dir_all(beside(path)).unwrap();
    }
    assert_eq!(below(&volume), below_of_std(dir.path()));
    assert!(volume.exists("/e/g") && !volume.try_exists("/a").unwrap());
    volume.remove_dir_all("/").unwrap();
    assert!(below(&volume).is_empty());
}

#[test]
fn calls_that_std_refuses_are_refused() {
    let pool = Pool::memory(16 << 20).unwrap();
    let volume = pool.volume();
    volume.write("/f", [0xff, 0xfe]).unwrap();
    volume.create_dir("/d").unwrap();
    volume.symlink("loop", "/loop").unwrap();
    let errno = |error: vellum::Error| std::io::Error::from(error).raw_os_error();
    assert_eq!(
        errno(volume.canonicalize("/loop").unwrap_err()),
        Some(libc::ELOOP)
    );
    assert_eq!(
        errno(volume.canonicalize("/f/").unwrap_err()),
        Some(libc::ENOTDIR)
    );
    assert_eq!(
        errno(volume.remove_dir_all("/f").unwrap_err()),
        Some(libc::ENOTDIR)
    );
    assert_eq!(
        errno(volume.remove_dir_all("/none").unwrap_err()),
        Some(libc::ENOENT)
    );
    assert_eq!(
        errno(volume.create_dir_all("/f").unwrap_err()),
        Some(libc::EEXIST)
    );
    assert_eq!(
        errno(volume.copy("/d", "/g").unwrap_err()),
        Some(libc::EINVAL)
    );
    assert_eq!(
        errno(volume.copy("/f", "/f").unwrap_err()),
        Some(libc::EINVAL)
    );
    assert_eq!(volume.read("/f").unwrap(), [0xff, 0xfe]);
    let text = std::io::Error::from(volume.read_to_string("/f").unwrap_err());
    assert_eq!(text.kind(), std::io::ErrorKind::InvalidData);
    let short = volume.open("/f").unwrap().read_exact_at(&mut [0; 3], 0);
    assert_eq!(short.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    let strangers = volume.with_cred(vellum::Cred::user(7, 7));
    volume
        .set_permissions("/d", Permissions::from_mode(0o700))
        .unwrap();
    assert_eq!(
        errno(strangers.remove_dir_all("/d").unwrap_err()),
        Some(libc::EACCES)
    );
    assert!(strangers.walk("/d").is_err() && volume.exists("/d"));
}
