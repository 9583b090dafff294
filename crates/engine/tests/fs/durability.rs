//! Which operations are durable when they return, by mount option.

use std::path::Path;
use std::sync::Arc;

use vellum::media::MediaChoice;
use vellum::{
    Allocate, CreateOptions, Cred, DataOptions, Durability, FileKind, OpenOptions, PoolOptions,
    RealFs, RenameFlags, SetAttr, Volume,
};

/// An operation: its name, the option from which on it is durable, and its function.
type Operation = (&'static str, Durability, fn(&Volume, &Arc<RealFs>));

const OPERATIONS: [Operation; 17] = [
    ("create", Durability::Dirsync, |volume, _| {
        volume.create("/new").unwrap();
    }),
    ("mkdir", Durability::Dirsync, |volume, _| {
        volume.create_dir("/d/e").unwrap();
    }),
    ("mknod", Durability::Dirsync, |_, fs| {
        let (root, cred) = (fs.root(), Cred::root());
        fs.mknod(&cred, &root, b"pipe", FileKind::Fifo, 0o600, 0)
            .unwrap();
    }),
    ("symlink", Durability::Dirsync, |volume, _| {
        volume.symlink("d", "/s").unwrap();
    }),
    ("link", Durability::Dirsync, |volume, _| {
        volume.hard_link("/new", "/d/link").unwrap();
    }),
    ("rename", Durability::Dirsync, |volume, _| {
        volume.rename("/new", "/renamed").unwrap();
    }),
    ("rename over", Durability::Dirsync, |volume, _| {
        volume.create("/over").unwrap();
        volume.rename("/renamed", "/over").unwrap();
    }),
    ("exchange", Durability::Dirsync, |volume, _| {
        volume
            .rename_with("/over", "/d", RenameFlags::EXCHANGE)
            .unwrap();
    }),
    ("rmdir", Durability::Dirsync, |volume, _| {
        volume.remove_dir("/over/e").unwrap();
    }),
    ("unlink", Durability::Dirsync, |volume, _| {
        volume.remove_file("/d").unwrap();
    }),
    ("write", Durability::Sync, |volume, _| {
        let file = volume.open_with("/f", &writing()).unwrap();
        assert_eq!(file.write_at(&[1; 5000], 3).unwrap(), 5000);
    }),
    ("append", Durability::Sync, |volume, _| {
        let file = volume.open_with("/f", &writing()).unwrap();
        assert_eq!(file.handle().append(&[2; 100]).unwrap(), (5003, 100));
    }),
    ("truncate", Durability::Sync, |volume, _| {
        let file = volume.open_with("/f", &writing()).unwrap();
        file.set_len(70).unwrap();
    }),
    ("fallocate", Durability::Sync, |volume, _| {
        let file = volume.open_with("/f", &writing()).unwrap();
        file.handle().allocate(Allocate::Grow, 0, 20_000).unwrap();
    }),
    ("open to truncate", Durability::Sync, |volume, _| {
        volume.create("/f").unwrap();
    }),
    ("chmod", Durability::Sync, |volume, _| {
        let set = SetAttr::new().mode(Some(0o600));
        volume.set_attr("/f", &set).unwrap();
    }),
    ("set size", Durability::Sync, |volume, _| {
        let set = SetAttr::new().size(Some(9000));
        volume.set_attr("/f", &set).unwrap();
    }),
];

fn writing() -> OpenOptions {
    OpenOptions::new().read(true).write(true)
}

/// A pool with its metadata in memory and an external data device, or one with a log.
fn made(dir: &Path, media: MediaChoice) -> std::path::PathBuf {
    let path = dir.join("pool");
    let options = CreateOptions::new(0).media(media).data(Some(
        DataOptions::new(dir.join("data")).size_bytes(16 << 20),
    ));
    let pool = options.create(&path).unwrap();
    pool.volume().create_dir("/d").unwrap();
    pool.volume().write("/f", b"abc").unwrap();
    pool.close().unwrap();
    path
}

fn commits(fs: &RealFs) -> u64 {
    let versions = fs.undo_counts().map(|counts| counts.commits);
    versions.unwrap_or_else(|| fs.log_counts().unwrap().commits)
}

#[test]
fn every_operation_commits_before_it_returns_if_its_option_says_so() {
    for media in [MediaChoice::Memory, MediaChoice::Logged] {
        for durability in [Durability::Async, Durability::Dirsync, Durability::Sync] {
            let dir = tempfile::tempdir().unwrap();
            let options = PoolOptions::new().media(media).durability(durability);
            let pool = options.open(made(dir.path(), media)).unwrap();
            let (volume, fs) = (pool.volume(), pool.fs());
            for (name, from, operation) in OPERATIONS {
                let before = commits(&fs);
                operation(&volume, &fs);
                let is_durable = commits(&fs) > before;
                assert_eq!(
                    is_durable,
                    durability >= from,
                    "{name}, {durability:?}, {media:?}"
                );
                volume.sync().unwrap();
            }
        }
    }
}
