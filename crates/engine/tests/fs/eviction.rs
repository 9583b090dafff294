//! Far more files than the caches hold: names and cachelets are evicted, and nothing is lost.

use std::sync::Arc;

use vellum::media::{HeapMemory, SimPool, Simulated};
use vellum::{
    Clock, Cred, Error, FormatOptions, Fs, MountOptions, Node, OpenOptions, attach, format,
};

fn small_cache(pool_bytes: u64, cache_entries: u64) -> Arc<Fs<Simulated>> {
    let pool = SimPool::new(pool_bytes);
    let options = FormatOptions {
        metadata_bytes: Some(pool_bytes / 2),
        thread_slots: Some(4),
        uuid: [1; 16],
        hash_seed: 7,
        now_ns: 1,
        known_zero: true,
        ..FormatOptions::default()
    };
    format(&pool, &options).unwrap();
    let options = MountOptions {
        cache_entries,
        clock: Clock::Counter(10.into()),
        ..MountOptions::default()
    };
    attach::<Simulated>(pool, |bytes| Ok(HeapMemory::new(bytes)), options)
        .unwrap()
        .0
}

fn file(fs: &Arc<Fs<Simulated>>, dir: &Node<Simulated>, name: &str) {
    let options = OpenOptions::new().write(true).mode(0o644);
    fs.create(&Cred::root(), dir, name.as_bytes(), &options)
        .unwrap();
}

#[test]
fn many_directories_pass_through_a_small_cache() {
    let fs = small_cache(4 << 20, 256);
    let root = Cred::root();
    for d in 0..60 {
        let dir = fs
            .mkdir(&root, &fs.root(), format!("d{d}").as_bytes(), 0o755)
            .unwrap();
        for f in 0..50 {
            file(&fs, &dir, &format!("f{f}"));
        }
        fs.maintain().unwrap();
    }
    let used = fs.cache_usage();
    assert!(used.cachelets < 300 && used.index_entries < 400, "{used:?}");
    for d in (0..60).rev() {
        for f in 0..50 {
            let path = format!("/d{d}/f{f}");
            let attr = fs.stat(&root, &fs.root(), path.as_bytes(), true).unwrap();
            assert_eq!((attr.nlink, attr.mode), (1, 0o644), "{path}");
        }
        let path = format!("/d{d}/none");
        let missing = fs.stat(&root, &fs.root(), path.as_bytes(), true);
        assert!(matches!(missing, Err(Error::NotFound)));
        fs.maintain().unwrap();
    }
    for d in 0..60 {
        let dir = fs
            .find(&root, &fs.root(), format!("/d{d}").as_bytes(), true)
            .unwrap();
        for f in 0..50 {
            fs.unlink(&root, &dir, format!("f{f}").as_bytes()).unwrap();
        }
        fs.rmdir(&root, &fs.root(), format!("d{d}").as_bytes())
            .unwrap();
        fs.maintain().unwrap();
    }
    assert_eq!(fs.children(&fs.root()).unwrap(), 0);
    fs.close().unwrap();
}

#[test]
fn operations_beside_eviction_see_every_name() {
    let fs = small_cache(8 << 20, 200);
    let root = Cred::root();
    for d in 0..8 {
        let dir = fs
            .mkdir(&root, &fs.root(), format!("d{d}").as_bytes(), 0o755)
            .unwrap();
        for f in 0..20 {
            file(&fs, &dir, &format!("stays{f}"));
        }
    }
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let fs = &fs;
            scope.spawn(move || {
                let root = Cred::root();
                for round in 0..2000 {
                    let d = (round * 5 + worker) % 8;
                    let dir = fs
                        .find(&root, &fs.root(), format!("/d{d}").as_bytes(), true)
                        .unwrap();
                    let name = format!("stays{}", round % 20);
                    fs.lookup(&root, &dir, name.as_bytes()).unwrap();
                    let twice = fs.mkdir(&root, &dir, name.as_bytes(), 0o755);
                    assert!(matches!(twice, Err(Error::Exists)), "{twice:?}");
                    let own = format!("own{worker}");
                    file(fs, &dir, &own);
                    let moved = format!("moved{worker}");
                    let flags = vellum::RenameFlags::empty();
                    fs.rename(&root, &dir, own.as_bytes(), &dir, moved.as_bytes(), flags)
                        .unwrap();
                    fs.unlink(&root, &dir, moved.as_bytes()).unwrap();
                }
            });
        }
        scope.spawn(|| (0..3000).for_each(|_| assert!(fs.maintain().is_ok())));
    });
    for d in 0..8 {
        let dir = fs
            .find(&root, &fs.root(), format!("/d{d}").as_bytes(), true)
            .unwrap();
        assert_eq!(fs.children(&dir).unwrap(), 20);
    }
    fs.close().unwrap();
}
