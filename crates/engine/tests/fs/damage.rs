//! Damaged media. Whatever the bytes are, opening and using a pool returns results or errors. It
//! never panics or loops for ever.

use std::sync::Arc;

use proptest::prelude::*;
use vellum::media::{HeapMemory, SimPool, Simulated};
use vellum::{
    Allocate, Clock, Cred, Error, FormatOptions, Fs, Handle, ListPosition, MappingKind,
    MountOptions, OpenOptions, RenameFlags, attach, format,
};
use vellum_layout::{ChunkKind, ChunkWord, SavedStateHead, Superblock, checksum};
use zerocopy::{FromBytes, IntoBytes};

fn mount(image: Vec<u8>) -> vellum::Result<Arc<Fs<Simulated>>> {
    mount_as(image, false)
}

fn mount_as(image: Vec<u8>, read_only: bool) -> vellum::Result<Arc<Fs<Simulated>>> {
    let options = MountOptions {
        read_only,
        clock: Clock::Counter(1_000_000.into()),
        ..MountOptions::default()
    };
    let pool = SimPool::from_image(image);
    Ok(attach::<Simulated>(pool, |bytes| Ok(HeapMemory::new(bytes)), options)?.0)
}

/// A pool with something of everything, closed cleanly or not.
fn sample(clean: bool) -> Vec<u8> {
    let pool = SimPool::new(1 << 20);
    let options = FormatOptions {
        label: "sample".into(),
        uuid: [3; 16],
        hash_seed: 5,
        now_ns: 1,
        known_zero: true,
        ..FormatOptions::default()
    };
    format(&pool, &options).unwrap();
    let fs = mount(pool.image()).unwrap();
    let root = Cred::root();
    let write = OpenOptions::new().read(true).write(true).mode(0o644);
    for d in 0..3 {
        let dir = fs
            .mkdir(&root, &fs.root(), format!("d{d}").as_bytes(), 0o755)
            .unwrap();
        for f in 0..20 {
            let name = format!("{f}{}", "n".repeat(f * 12));
            let file = fs.create(&root, &dir, name.as_bytes(), &write).unwrap();
            file.write_at((f * 1000) as u64, &vec![f as u8; f * 300])
                .unwrap();
        }
        fs.symlink(&root, &dir, b"short", b"0").unwrap();
        fs.symlink(&root, &dir, b"long", &[b'x'; 900]).unwrap();
        fs.unlink(&root, &dir, b"0").unwrap();
        fs.rename(
            &root,
            &dir,
            b"1nnnnnnnnnnnn",
            &fs.root(),
            b"moved",
            RenameFlags::empty(),
        )
        .ok();
    }
    if clean {
        fs.close().unwrap();
    }
    fs.pool().image()
}

/// Does some of everything. It only matters that it ends.
fn use_all(fs: &Arc<Fs<Simulated>>) {
    let root = Cred::root();
    let mut dirs = vec![fs.root()];
    let mut seen = 0;
    while let Some(dir) = dirs.pop() {
        let mut names = Vec::new();
        let _ = fs.list(&dir, 0, &mut ListPosition::default(), &mut |entry| {
            names.push(entry.name.to_vec());
            names.len() < 200
        });
        for name in names {
            seen += 1;
            let Ok(node) = fs.lookup(&root, &dir, &name) else {
                continue;
            };
            let _ = fs.attr(&node);
            let _ = fs.read_link(&node);
            let read = OpenOptions::new().read(true);
            if let Ok(file) = fs.open_node(&root, &node, &read) {
                let _ = file.read_at(100, &mut [0; 9000]);
                let _ = file.seek_data(0);
            }
            if node.kind() == vellum::FileKind::Directory && seen < 500 {
                dirs.push(node);
            }
        }
        let write = OpenOptions::new().write(true).mode(0o600);
        if let Ok(file) = fs.create(&root, &dir, b"new", &write) {
            let _ = file.append(&[9; 5000]);
            let _ = file.truncate(100);
        }
        let _ = fs.rename(
            &root,
            &dir,
            b"new",
            &fs.root(),
            b"newer",
            RenameFlags::empty(),
        );
        let _ = fs.unlink(&root, &dir, b"short");
        let _ = fs.path_of(&dir);
    }
    let _ = fs.rmdir(&root, &fs.root(), b"d1");
    let _ = fs.maintain();
    let _ = fs.close();
}

/// A change of the image.
#[derive(Clone, Debug)]
enum Hurt {
    Bit(usize, u8),
    Word(usize, u64),
    Swap(usize, usize),
    Zero(usize, usize),
}

fn hurt() -> impl Strategy<Value = Hurt> {
    // Most important structures lie in the first 300 KiB: superblock, slots, tables, metadata.
    let at = prop_oneof![8 => 0usize..300 << 10, 1 => 0usize..(1 << 20) - 64];
    let value = prop_oneof![
        Just(0u64),
        Just(u64::MAX),
        any::<u64>(),
        0u64..5000,
        (0u64..5000).prop_map(|slot| slot << 1)
    ];
    prop_oneof![
        (at.clone(), any::<u8>()).prop_map(|(at, bit)| Hurt::Bit(at, bit)),
        (at.clone(), value).prop_map(|(at, value)| Hurt::Word(at & !7, value)),
        (at.clone(), at.clone()).prop_map(|(a, b)| Hurt::Swap(a & !63, b & !63)),
        (at, 1usize..4096).prop_map(|(at, len)| Hurt::Zero(at, len)),
    ]
}

fn apply(image: &mut [u8], hurt: &Hurt) {
    match *hurt {
        Hurt::Bit(at, bit) => image[at] ^= 1 << (bit % 8),
        Hurt::Word(at, value) => image[at..at + 8].copy_from_slice(&value.to_le_bytes()),
        Hurt::Swap(a, b) => {
            for i in 0..64 {
                image.swap(a + i, b + i);
            }
        }
        Hurt::Zero(at, len) => {
            let end = (at + len).min(image.len());
            image[at..end].fill(0);
        }
    }
}

fn cases() -> u32 {
    std::env::var("VELLUM_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(600)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn damaged_pools_never_panic(clean: bool, hurts in prop::collection::vec(hurt(), 1..12)) {
        let mut image = sample(clean);
        for hurt in &hurts {
            apply(&mut image, hurt);
        }
        for read_only in [false, true] {
            if let Ok(fs) = mount_as(image.clone(), read_only) {
                use_all(&fs);
            }
        }
    }

    #[test]
    fn live_word_damage_never_panics(
        hurts in prop::collection::vec((0usize..2048, 0usize..16, any::<u64>()), 1..6),
    ) {
        // Whole words of metadata slots, which reach deeper than random bytes do.
        let mut image = sample(false);
        let slots_at = 8 << 12;
        for &(slot, word, value) in &hurts {
            let at = slots_at + slot * 128 + word * 8;
            image[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        for read_only in [false, true] {
            if let Ok(fs) = mount_as(image.clone(), read_only) {
                use_all(&fs);
            }
        }
    }

    #[test]
    fn saved_state_that_is_wrong_under_a_sound_checksum_never_panics(
        lies in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 1..8),
        used in prop::option::of(0u64..200),
    ) {
        let mut image = sample(true);
        let superblock = Superblock::unseal(&image[..4096]).unwrap();
        let plan = superblock.geometry().saved_state();
        let at = plan.at as usize;
        let head = SavedStateHead::read_from_bytes(&image[at..at + 64]).unwrap();
        let body = at + 64..at + 64 + plan.body_words(head.displaced) as usize * 8;
        for (index, value) in lies {
            let word = body.start + index.index(body.len() / 8) * 8;
            image[word..word + 8].copy_from_slice(&value.to_le_bytes());
        }
        let check = checksum(&image[body]);
        let epoch = head.epoch as u32;
        let lie = SavedStateHead::new(epoch, used.unwrap_or(head.used), head.displaced, check);
        image[at..at + 64].copy_from_slice(lie.as_bytes());
        if let Ok(fs) = mount(image) {
            use_all(&fs);
        }
    }
}

/// A cleanly closed pool, with a file whose tree has unsound words in each of its nodes.
fn damaged_tree(mapping: MappingKind) -> Vec<u8> {
    let pool = SimPool::new(2 << 20);
    let options = FormatOptions {
        mapping,
        hash_seed: 5,
        now_ns: 1,
        known_zero: true,
        ..FormatOptions::default()
    };
    format(&pool, &options).unwrap();
    let fs = mount(pool.image()).unwrap();
    let file = open_file(&fs);
    for block in [9, 3, 6, 0] {
        file.write_at(block << 12, &[7; 5000]).unwrap();
    }
    drop(file);
    fs.close().unwrap();
    let mut image = fs.pool().image();
    let geometry = Superblock::unseal(&image[..4096]).unwrap().geometry();
    for chunk in 0..geometry.meta_chunks {
        let word = |at: u64| u64::from_le_bytes(image[at as usize..][..8].try_into().unwrap());
        let kind = ChunkWord(word(geometry.chunk_table_at + chunk * 8)).decode(chunk);
        let at = geometry.meta_at + chunk * geometry.chunk_bytes;
        if kind == Some((ChunkKind::Blocks, 0)) {
            let cells = (at..at + geometry.chunk_bytes).step_by(8);
            let used: Vec<_> = cells.filter(|&cell| word(cell) != 0).collect();
            used.iter().for_each(|&cell| image[cell as usize] ^= 32);
        }
    }
    image
}

/// A removed symbolic link that named another file's slot as its text once freed that slot.
#[test]
fn a_removed_symlink_frees_only_its_own_slots() {
    let (fs, root) = (mount(sample(true)).unwrap(), Cred::root());
    let dir = fs.lookup(&root, &fs.root(), b"d1").unwrap();
    let link = fs.lookup(&root, &dir, b"short").unwrap().ino();
    fs.close().unwrap();
    let mut image = fs.pool().image();
    let geometry = Superblock::unseal(&image[..4096]).unwrap().geometry();
    let slots = 1..geometry.meta_slots();
    let mut places = slots.map(|slot| (slot, geometry.slot_at(slot) as usize));
    let (name, _) = places
        .find(|&(_, at)| image[at + 48..].starts_with(b"2nnnnnnnn"))
        .unwrap();
    let text = geometry.slot_at(link) as usize + std::mem::offset_of!(vellum_layout::Inode, root);
    image[text..text + 8].copy_from_slice(&name.to_le_bytes());
    let fs = mount(image).unwrap();
    let dir = fs.lookup(&root, &fs.root(), b"d1").unwrap();
    fs.unlink(&root, &dir, b"short").unwrap();
    let found = fs.maintain();
    assert!(matches!(found, Err(Error::Damaged { .. })), "{found:?}");
    assert!(fs.is_damaged());
}

fn open_file(fs: &Arc<Fs<Simulated>>) -> Handle<Simulated> {
    let options = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .mode(0o644);
    let opened = fs.open(&Cred::root(), &fs.root(), b"file", &options);
    opened.unwrap()
}

/// Operations that met a damaged node once failed, but the pool was still written to.
#[test]
fn a_damaged_tree_makes_the_pool_read_only_whatever_finds_it() {
    type Call = fn(&Handle<Simulated>) -> vellum::Result<()>;
    let calls: [Call; 9] = [
        |file| file.read_at(0, &mut [0; 9000]).map(drop),
        |file| file.view(0..9000).map(drop),
        |file| file.seek_data(0).map(drop),
        |file| file.attr().map(drop),
        |file| file.write_at(100, b"new").map(drop),
        |file| file.append(b"new").map(drop),
        |file| file.truncate(100),
        |file| file.allocate(Allocate::KeepSize, 0, 1 << 20),
        |file| file.allocate(Allocate::PunchHole, 0, 40_000),
    ];
    for mapping in [MappingKind::Radix, MappingKind::Extent] {
        for (number, call) in calls.iter().enumerate() {
            let fs = mount(damaged_tree(mapping)).unwrap();
            let result = call(&open_file(&fs));
            let told = matches!(result, Err(Error::Damaged { .. }));
            assert!(told, "{mapping:?}, call {number}: {result:?}");
            let late = fs.mkdir(&Cred::root(), &fs.root(), b"late", 0o755);
            assert!(
                matches!(late, Err(Error::ReadOnlyAfterDamage)),
                "{mapping:?}, call {number}"
            );
            assert!(fs.is_damaged() && fs.close().is_err());
        }
    }
}
