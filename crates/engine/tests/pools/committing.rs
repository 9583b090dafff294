//! When pools commit without a sync, and whether their commits flush device caches.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use vellum::media::{MediaChoice, count};
use vellum::{CreateOptions, Durability, Pool, PoolOptions};

use crate::fixture::{in_memory, options};

/// Closed pools that commit: with a log and all in one file, with a log and external data, and in
/// memory with external data.
fn made(dir: &tempfile::TempDir) -> Vec<PathBuf> {
    let apart = |name: &str, media| options(dir.path().join(name)).media(media);
    let logged = CreateOptions::new(16 << 20).media(MediaChoice::Logged);
    let each = [
        logged,
        apart("d1", MediaChoice::Logged),
        apart("d2", MediaChoice::Memory),
    ];
    let paths = each.iter().enumerate().map(|(number, options)| {
        let path = dir.path().join(format!("pool{number}"));
        options.create(&path).unwrap().close().unwrap();
        path
    });
    paths.collect()
}

fn syncs() -> u64 {
    count::of_this_thread().syncs
}

#[test]
fn commits_skip_device_caches_if_told_to_until_the_pool_is_closed() {
    let dir = in_memory();
    for path in made(&dir) {
        for barriers in [false, true] {
            let options = PoolOptions::new()
                .barriers(barriers)
                .durability(Durability::Sync);
            let pool = options.open(&path).unwrap();
            assert_eq!(pool.fs().has_barriers(), barriers);
            let name = format!("/{barriers}");
            let before = syncs();
            pool.volume().write(&name, [7; 50_000]).unwrap();
            pool.volume().sync().unwrap();
            assert_eq!(syncs() > before, barriers, "{}", path.display());
            let before = syncs();
            pool.close().unwrap();
            let has_flushed = barriers || syncs() > before;
            assert!(has_flushed, "{}", path.display());
            let again = Pool::open(&path).unwrap();
            assert!(again.opened().was_clean);
            assert_eq!(again.volume().read(&name).unwrap(), vec![7; 50_000]);
        }
    }
}

/// At the default interval a hundred commits would take eight minutes.
#[test]
fn a_pool_commits_as_often_as_it_is_told_to() {
    const COMMITS: u64 = 100;
    let dir = in_memory();
    for path in made(&dir) {
        let options = PoolOptions::new().commit_every(Duration::ZERO);
        let pool = options.open(&path).unwrap();
        let fs = pool.fs();
        assert_eq!(fs.commit_every(), Duration::from_millis(1));
        let commits = || match fs.log_counts() {
            Some(counts) => counts.commits,
            None => fs.undo_counts().unwrap().commits,
        };
        let (first, begin) = (commits(), Instant::now());
        let mut written = 0_u64;
        while commits() - first < COMMITS {
            assert!(
                begin.elapsed() < Duration::from_secs(120),
                "no commit happens"
            );
            written += 1;
            pool.volume().write("/f", written.to_ne_bytes()).unwrap();
        }
        pool.close().unwrap();
    }
}
