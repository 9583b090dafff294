//! The mapping of a file by itself: inserted blocks are found and belong to the file, removed ones
//! do not.

use vellum::experiments::{MappingProbe, settle};
use vellum::media::MediaChoice;
use vellum::{CreateOptions, Error, File, MappingKind, OpenOptions, Pool, ViewSource};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 300;

fn sparse(pool: &Pool) -> File {
    let options = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .mode(0o600);
    let file = pool.volume().open_with("/file", &options).unwrap();
    file.set_len(BLOCKS * BLOCK).unwrap();
    file
}

#[test]
fn blocks_come_and_go_on_every_mapping() {
    let dir = tempfile::tempdir().unwrap();
    for mapping in MappingKind::ALL {
        let path = dir.path().join(mapping.name());
        let options = CreateOptions::new(8 << 20)
            .media(MediaChoice::File)
            .mapping(mapping);
        let pool = options.create(&path).unwrap();
        let file = sparse(&pool);
        let free = pool.fs().stat_fs().blocks_free;
        let mut alone = MappingProbe::new(file.handle()).unwrap();
        assert_eq!(alone.lookup(0, 8).unwrap(), 0, "{mapping:?}");
        assert_eq!(alone.remove(0, BLOCKS).unwrap(), 0, "{mapping:?}");
        alone.insert(0, 200).unwrap();
        alone.insert(250, 1).unwrap();
        alone = alone.renew().unwrap();
        // The second time with no translations kept, and cold caches.
        for _ in 0..2 {
            let found = [(0, 1), (199, 1), (200, 1), (250, 1)];
            let found = found.map(|(first, blocks)| alone.lookup(first, blocks).unwrap());
            assert_eq!(found, [1, 1, 0, 1], "{mapping:?}");
            let all = BLOCKS as usize;
            assert_eq!(alone.lookup(0, all).unwrap(), 201, "{mapping:?}");
            assert_eq!(alone.search(0, all).unwrap(), 201, "{mapping:?}");
            alone.forget();
            alone.evict();
        }
        assert_eq!(alone.remove(100, BLOCKS).unwrap(), 101, "{mapping:?}");
        assert_eq!(alone.search(0, BLOCKS as usize).unwrap(), 100);
        drop(alone);
        settle(&*pool.fs());
        assert_eq!(pool.fs().stat_fs().blocks_free, free - 100, "{mapping:?}");
        assert_eq!(file.metadata().unwrap().blocks(), 100 * 8, "{mapping:?}");
        drop(file);
        pool.close().unwrap();
        is_sound(&path);
        let pool = Pool::open(&path).unwrap();
        assert_eq!(
            pool.volume().read("/file").unwrap(),
            vec![0; (BLOCKS * BLOCK) as usize]
        );
    }
}

fn is_sound(path: &std::path::Path) {
    let image = std::fs::read(path).unwrap();
    let report = vellum_check::check(&image, vellum_check::Options::default());
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn only_the_size_can_be_filled() {
    let pool = Pool::memory(8 << 20).unwrap();
    let file = sparse(&pool);
    let mut alone = MappingProbe::new(file.handle()).unwrap();
    for (first, blocks) in [(BLOCKS, 1), (BLOCKS - 1, 2)] {
        let refused = alone.insert(first, blocks);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    alone.insert(0, BLOCKS as usize).unwrap();
    assert_eq!(alone.search(0, BLOCKS as usize).unwrap(), BLOCKS as usize);
    drop(alone);
    let reading = pool.volume().open("/file").unwrap();
    assert!(MappingProbe::new(reading.handle()).is_err());
}

/// If an insertion runs out of nodes, blocks that it had claimed would show their old contents.
#[test]
fn an_insertion_without_space_for_nodes_leaves_nothing() {
    let options = CreateOptions::new(8 << 20)
        .media(MediaChoice::File)
        .mapping(MappingKind::Extent)
        .fragmentation(1000)
        .metadata_bytes(Some(1 << 20));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let pool = options.create(&path).unwrap();
    let file = sparse(&pool);
    file.set_len(2000 * BLOCK).unwrap();
    let mut alone = MappingProbe::new(file.handle()).unwrap();
    // A tree with a node that has some free entries.
    (0..20).for_each(|i| alone.insert(i * 2, 1).unwrap());
    drop(alone);
    // A long symlink target takes a block, as a node does.
    let target = "t".repeat(4000);
    let full = (0..).find_map(|i| pool.volume().symlink(&target, format!("/{i}")).err());
    assert!(matches!(full, Some(Error::NoSpace(_))), "{full:?}");
    settle(&*pool.fs());
    let free = pool.fs().stat_fs().blocks_free;
    let mut alone = MappingProbe::new(file.handle()).unwrap();
    let refused = alone.insert(44, 1500);
    assert!(matches!(refused, Err(Error::NoSpace(_))), "{refused:?}");
    // Whole batches of 256 blocks, and nothing of the failed one.
    let inserted = alone.search(0, 2000).unwrap() - 20;
    assert_eq!(inserted % 256, 0, "{inserted}");
    assert_eq!(
        alone.search(44 + inserted as u64, 1900 - inserted).unwrap(),
        0
    );
    drop(alone);
    settle(&*pool.fs());
    assert_eq!(pool.fs().stat_fs().blocks_free, free - inserted as u64);
    drop(file);
    pool.close().unwrap();
    is_sound(&path);
}

#[test]
fn blocks_under_a_view_are_not_changed() {
    let pool = Pool::memory(8 << 20).unwrap();
    let file = sparse(&pool);
    file.write_at(&[7; 8 * BLOCK as usize], 0).unwrap();
    let mut alone = MappingProbe::new(file.handle()).unwrap();
    let view = file.view(0..BLOCK).unwrap();
    assert_eq!(view.place(), ViewSource::Pool);
    assert!(matches!(alone.remove(0, 1), Err(Error::Busy)));
    assert_eq!(alone.remove(1, 2).unwrap(), 1);
    assert_eq!(&*view, &[7; BLOCK as usize]);
    drop(view);
    assert_eq!(alone.remove(0, 1).unwrap(), 1);
}
