//! The first things a user does, on a pool in memory and in a file.

use std::io::{Read, Seek, SeekFrom, Write};

use vellum::media::MediaChoice;
use vellum::{
    Allocate, CreateOptions, Cred, Error, FileFlags, FileKind, Fs, ListPosition, MappingKind, Node,
    OpenOptions, Pool, SetAttr, media::Real,
};

fn pool() -> Pool {
    Pool::memory(8 << 20).unwrap()
}

/// A pool in an ordinary file, without a log.
fn in_a_file() -> CreateOptions {
    CreateOptions::new(8 << 20).media(MediaChoice::File)
}

#[test]
fn files_keep_what_was_written() {
    let pool = pool();
    let volume = pool.volume();
    volume.create_dir("/a").unwrap();
    volume.write("/a/f", b"hello").unwrap();
    assert_eq!(volume.read("/a/f").unwrap(), b"hello");
    let mut file = volume.create("/a/g").unwrap();
    file.write_all(&[7; 100_000]).unwrap();
    file.seek(SeekFrom::Start(99_990)).unwrap();
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).unwrap();
    assert_eq!(tail, [7; 10]);
    let names: Vec<_> = volume
        .read_dir("/a")
        .unwrap()
        .map(|entry| entry.unwrap().name().to_owned())
        .collect();
    assert_eq!(names, ["f", "g"]);
}

#[test]
fn names_are_added_and_removed() {
    let pool = pool();
    let volume = pool.volume();
    volume.write("/f", b"1").unwrap();
    assert!(matches!(volume.create_dir("/f"), Err(Error::Exists)));
    volume.hard_link("/f", "/g").unwrap();
    assert_eq!(volume.metadata("/g").unwrap().nlink(), 2);
    volume.remove_file("/f").unwrap();
    assert!(matches!(volume.metadata("/f"), Err(Error::NotFound)));
    assert_eq!(volume.metadata("/g").unwrap().nlink(), 1);
    volume.symlink("g", "/s").unwrap();
    assert_eq!(volume.read("/s").unwrap(), b"1");
    volume.create_dir("/d").unwrap();
    volume.rename("/g", "/d/h").unwrap();
    assert!(matches!(volume.read("/s"), Err(Error::NotFound)));
    assert!(matches!(volume.remove_dir("/d"), Err(Error::NotEmpty)));
    volume.remove_file("/d/h").unwrap();
    volume.remove_dir("/d").unwrap();
    volume.remove_file("/s").unwrap();
    assert_eq!(volume.read_dir("/").unwrap().count(), 0);
    pool.close().unwrap();
}

/// At most `room` names after a cookie, and the cookie from which to continue.
fn list(
    fs: &Fs<Real>,
    dir: &Node<Real>,
    after: u64,
    position: &mut ListPosition,
    room: usize,
) -> (Vec<String>, u64) {
    let (mut names, mut last) = (Vec::new(), after);
    fs.list(dir, after, position, &mut |entry| {
        if names.len() < room {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            last = entry.cookie;
            return true;
        }
        false
    })
    .unwrap();
    (names, last)
}

#[test]
fn a_listing_shows_nothing_created_since_it_began() {
    let pool = pool();
    let (fs, volume) = (pool.fs(), pool.volume());
    volume.create_dir("/d").unwrap();
    let dir = fs.find(&Cred::root(), &fs.root(), b"/d", true).unwrap();
    let mut position = ListPosition::default();
    for name in ["a", "b", "c"] {
        volume.write(format!("/d/{name}"), b"").unwrap();
    }
    let (names, end) = list(&fs, &dir, 0, &mut position, 9);
    assert_eq!(names, ["a", "b", "c"]);
    volume.write("/d/d", b"").unwrap();
    let (names, _) = list(&fs, &dir, end, &mut position, 9);
    assert!(
        names.is_empty(),
        "created after the listing began: {names:?}"
    );
    let (names, _) = list(&fs, &dir, 0, &mut position, 9);
    assert_eq!(names, ["a", "b", "c", "d"], "a new listing");
    for name in ["a", "b", "c", "d"] {
        volume.remove_file(format!("/d/{name}")).unwrap();
    }
    assert!(list(&fs, &dir, 0, &mut position, 9).0.is_empty());
    volume.write("/d/e", b"").unwrap();
    volume.write("/d/f", b"").unwrap();
    let (names, after) = list(&fs, &dir, 0, &mut position, 1);
    assert_eq!(names, ["e"], "created after another listing was empty");
    assert_eq!(list(&fs, &dir, after, &mut position, 9).0, ["f"]);
}

#[test]
fn symlinks_hold_the_longest_path_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let target = |len: usize| format!("{}f", "/".repeat(len - 1));
    let lengths = [2, 127, 128, 129, 4079, 4080, 4095];
    let pool = in_a_file().create(&path).unwrap();
    let volume = pool.volume();
    volume.write("/f", b"here").unwrap();
    for len in lengths {
        volume.symlink(target(len), format!("/s{len}")).unwrap();
    }
    let too_long = volume.symlink(target(4096), "/no");
    assert!(matches!(too_long, Err(Error::NameTooLong)));
    assert!(matches!(volume.symlink("", "/no"), Err(Error::NotFound)));
    let with_zero = volume.symlink("a\0b", "/no");
    assert!(matches!(with_zero, Err(Error::Invalid(_))));
    drop(volume);
    pool.close().unwrap();
    let pool = Pool::open(&path).unwrap();
    let volume = pool.volume();
    for len in lengths {
        let link = format!("/s{len}");
        let read = volume.read_link(&link).unwrap();
        assert_eq!(read.as_os_str().as_encoded_bytes(), target(len).as_bytes());
        assert_eq!(volume.read(&link).unwrap(), b"here");
        volume.remove_file(&link).unwrap();
    }
}

#[test]
fn a_pool_in_a_file_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let pool = in_a_file().create(&path).unwrap();
    let volume = pool.volume();
    for d in 0..20 {
        volume.create_dir(format!("/d{d}")).unwrap();
        for f in 0..40 {
            let content = vec![f as u8; f * 97];
            volume
                .write(format!("/d{d}/{}{f}", "n".repeat(f * 6)), &content)
                .unwrap();
        }
    }
    assert!(matches!(Pool::open(&path), Err(Error::Media(_))));
    drop(volume);
    pool.close().unwrap();
    for round in 0..3 {
        let pool = Pool::open(&path).unwrap();
        assert!(pool.opened().was_clean, "round {round}");
        let volume = pool.volume();
        for d in 0..20 {
            for f in 0..40 {
                let name = format!("/d{d}/{}{f}", "n".repeat(f * 6));
                assert_eq!(volume.read(&name).unwrap(), vec![f as u8; f * 97], "{name}");
            }
        }
        let count = volume.read_dir("/d3").unwrap().count();
        assert_eq!(count, 40);
        assert_eq!(volume.metadata("/").unwrap().nlink(), 22);
    }
}

#[test]
fn an_unlinked_file_lives_until_its_last_handle() {
    let pool = pool();
    let volume = pool.volume();
    volume.write("/f", [3; 9000]).unwrap();
    let file = volume.open("/f").unwrap();
    volume.remove_file("/f").unwrap();
    pool.fs().maintain().unwrap();
    let mut content = vec![0; 9000];
    assert_eq!(file.read_at(&mut content, 0).unwrap(), 9000);
    assert_eq!(content, [3; 9000]);
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    let free = pool.fs().stat_fs().blocks_free;
    drop(file);
    volume.write("/again", b"x").unwrap();
    while pool.fs().maintain().unwrap() > 0 {}
    assert!(pool.fs().stat_fs().blocks_free >= free);
}

#[test]
fn a_million_creates_and_removes_leave_nothing_behind() {
    let pool = pool();
    let volume = pool.volume();
    for round in 0..50 {
        for f in 0..400 {
            volume.write(format!("/file-{f}"), [round; 5000]).unwrap();
        }
        for f in 0..400 {
            volume.remove_file(format!("/file-{f}")).unwrap();
        }
    }
    assert_eq!(volume.read_dir("/").unwrap().count(), 0);
    pool.close().unwrap();
}

/// The ends of the range were once zeroed before the nodes ran out that a hole in an extent needs.
#[test]
fn a_failed_punch_zeroes_nothing() {
    let pool = CreateOptions::new(8 << 20)
        .mapping(MappingKind::Extent)
        .metadata_bytes(Some(1 << 20))
        .fixed_metadata(true)
        .create_in_memory();
    let pool = pool.unwrap();
    let volume = pool.volume();
    let bytes: Vec<u8> = (0..40_000).map(|i| (i % 251) as u8 + 1).collect();
    volume.write("/file", &bytes).unwrap();
    // All names come first, so that only nodes run out afterwards.
    let files = 0..300;
    for i in files.clone() {
        volume.write(format!("/{i}"), b"").unwrap();
    }
    // Each further extent of a file needs a node.
    let further = |i: u64| -> Result<(), Error> {
        let file = volume.create(format!("/{i}"))?;
        file.handle().allocate(Allocate::Grow, 0, 4096)?;
        file.handle().allocate(Allocate::Grow, 20_480, 4096)
    };
    let full = files.clone().find_map(|i| further(i).err());
    assert!(matches!(full, Some(Error::NoSpace(_))), "{full:?}");
    let options = OpenOptions::new().write(true);
    let file = volume.open_with("/file", &options).unwrap();
    let refused = file.handle().allocate(Allocate::PunchHole, 5000, 20_000);
    assert!(matches!(refused, Err(Error::NoSpace(_))), "{refused:?}");
    assert!(volume.read("/file").unwrap() == bytes);
    volume.remove_file("/0").unwrap();
    file.handle()
        .allocate(Allocate::PunchHole, 5000, 20_000)
        .unwrap();
    let punched = [&bytes[..5000], &[0; 20_000], &bytes[25_000..]].concat();
    assert!(volume.read("/file").unwrap() == punched);
}

/// What was data or a hole is space that reads as zeros, and the bytes beside it stay.
#[test]
fn a_range_is_zeroed() {
    for mapping in MappingKind::ALL {
        let options = CreateOptions::new(8 << 20).mapping(mapping);
        let pool = options.create_in_memory().unwrap();
        let volume = pool.volume();
        volume.write("/f", [7; 20_000]).unwrap();
        let write = OpenOptions::new().write(true);
        let file = volume.open_with("/f", &write).unwrap();
        let zero = |mode, offset, len| file.handle().allocate(mode, offset, len).unwrap();
        zero(Allocate::ZeroKeepSize, 5000, 10_000);
        let mut expected = vec![7; 20_000];
        expected[5000..15_000].fill(0);
        assert_eq!(volume.read("/f").unwrap(), expected, "{mapping:?}");
        assert_eq!(file.handle().seek_hole(4096).unwrap(), 8192);
        zero(Allocate::ZeroKeepSize, 19_000, 10_000);
        expected[19_000..].fill(0);
        assert_eq!(volume.read("/f").unwrap(), expected, "{mapping:?}");
        zero(Allocate::Zero, 30_000, 10_000);
        expected.resize(40_000, 0);
        assert_eq!(volume.read("/f").unwrap(), expected, "{mapping:?}");
        let blocks = file.handle().attr().unwrap().blocks_512 / 8;
        assert_eq!(blocks, 5 + 3 + 2, "{mapping:?}");
        let large = file.handle().allocate(Allocate::Zero, 0, 1 << 30);
        assert!(matches!(large, Err(Error::NoSpace(_))));
        assert_eq!(volume.read("/f").unwrap(), expected, "{mapping:?}");
    }
}

/// Every byte outside a removed range is kept, in pieces of one block and of several.
#[test]
fn ranges_are_removed_and_inserted() {
    for mapping in MappingKind::ALL {
        let options = CreateOptions::new(16 << 20).mapping(mapping);
        let pool = options.create_in_memory().unwrap();
        let volume = pool.volume();
        let mut bytes: Vec<u8> = (0..3_000_001u32).map(|i| (i % 251) as u8 + 1).collect();
        volume.write("/f", &bytes).unwrap();
        let write = OpenOptions::new().write(true);
        let file = volume.open_with("/f", &write).unwrap();
        let file = file.handle();
        let blocks = || file.attr().unwrap().blocks_512 / 8;
        let before = blocks();
        for (offset, len) in [(4096, 4096), (0, 1 << 20), (8192, 409_600)] {
            file.allocate(Allocate::Collapse, offset as u64, len as u64)
                .unwrap();
            bytes.drain(offset..offset + len);
            assert!(volume.read("/f").unwrap() == bytes, "{mapping:?} {offset}");
        }
        assert_eq!(blocks(), bytes.len().div_ceil(4096) as u64, "{mapping:?}");
        for (offset, len) in [(4096, 4096), (0, 1 << 21), (8192, 409_600)] {
            file.allocate(Allocate::Insert, offset as u64, len as u64)
                .unwrap();
            bytes.splice(offset..offset, std::iter::repeat_n(0, len));
            assert!(volume.read("/f").unwrap() == bytes, "{mapping:?} {offset}");
        }
        assert!(blocks() < before, "what is inserted are holes: {mapping:?}");
        let refused = |mode, offset, len| {
            let refused = file.allocate(mode, offset, len);
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        };
        let size = bytes.len() as u64;
        refused(Allocate::Collapse, 0, 100);
        refused(Allocate::Collapse, 4096, size.next_multiple_of(4096) - 4096);
        refused(Allocate::Insert, size.next_multiple_of(4096), 4096);
        let large = file.allocate(Allocate::Insert, 0, 1 << 45);
        assert!(matches!(large, Err(Error::TooLarge)), "{large:?}");
        assert!(volume.read("/f").unwrap() == bytes);
    }
}

/// One block is enough, since each piece is freed once it has moved.
#[test]
fn a_full_pool_has_room_for_moving_bytes() {
    for mapping in MappingKind::ALL {
        let options = CreateOptions::new(8 << 20).mapping(mapping);
        let pool = options.create_in_memory().unwrap();
        let volume = pool.volume();
        let write = OpenOptions::new().write(true).create(true);
        let file = volume.open_with("/f", &write).unwrap();
        let block = |i: u64| [i as u8 % 250 + 1; 4096];
        let written = (0..).take_while(|&i| file.write_all_at(&block(i), i * 4096).is_ok());
        let count = written.count() as u64;
        assert!(count > 100);
        file.handle()
            .allocate(Allocate::Collapse, 40_960, 8 * 4096)
            .unwrap();
        let order = (0..10).chain(18..count);
        let expected: Vec<u8> = order.flat_map(block).collect();
        assert!(volume.read("/f").unwrap() == expected, "{mapping:?}");
        file.handle()
            .allocate(Allocate::Insert, 40_960, 8 * 4096)
            .unwrap();
        let order = [(0..10), (18..count)];
        let [before, behind] = order.map(|blocks| blocks.flat_map(block).collect::<Vec<u8>>());
        let expected = [before, vec![0; 8 * 4096], behind].concat();
        assert!(volume.read("/f").unwrap() == expected, "{mapping:?}");
    }
}

/// Nobody appends to a file while its bytes move, and loses that.
#[test]
fn what_is_appended_while_bytes_move_is_kept() {
    let pool = Pool::memory(64 << 20).unwrap();
    let volume = pool.volume();
    volume.write("/f", vec![1; 1 << 20]).unwrap();
    let write = OpenOptions::new().write(true);
    let moved = volume.open_with("/f", &write).unwrap();
    let appended = volume.open_with("/f", &write).unwrap();
    let (rounds, records) = (40, 2000u32);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..records {
                appended.handle().append(&i.to_le_bytes()).unwrap();
            }
        });
        for _ in 0..rounds {
            moved
                .handle()
                .allocate(Allocate::Collapse, 0, 4096)
                .unwrap();
        }
    });
    let bytes = volume.read("/f").unwrap();
    let kept = (1 << 20) - rounds * 4096;
    assert_eq!(bytes.len(), kept + 4 * records as usize);
    let records = (0..records).flat_map(u32::to_le_bytes);
    assert!(records.eq(bytes[kept..].iter().copied()));
}

/// Bytes that somebody looks at do not move.
#[test]
fn bytes_are_moved_once_nobody_views_them() {
    let pool = Pool::memory(16 << 20).unwrap();
    let volume = pool.volume();
    volume.write("/f", [7; 20_000]).unwrap();
    let write = OpenOptions::new().read(true).write(true);
    let file = volume.open_with("/f", &write).unwrap();
    let view = file.view(8192..12_288).unwrap();
    let own = file.handle().allocate(Allocate::Collapse, 0, 4096);
    assert!(matches!(own, Err(Error::Deadlock)), "{own:?}");
    std::thread::scope(|scope| {
        let moving = scope.spawn(|| file.handle().allocate(Allocate::Collapse, 0, 4096));
        assert!(view.iter().all(|&byte| byte == 7));
        drop(view);
        moving.join().unwrap().unwrap();
    });
    assert_eq!(volume.read("/f").unwrap(), [7; 20_000 - 4096]);
}

/// As on ext4 where nobody serves them. The permission is checked first.
#[test]
fn pipes_sockets_and_devices_are_not_opened() {
    let pool = Pool::memory(16 << 20).unwrap();
    let (fs, root, cred) = (pool.fs(), pool.fs().root(), Cred::root());
    let user = Cred::user(1000, 1000);
    for kind in [
        FileKind::Fifo,
        FileKind::Socket,
        FileKind::CharDevice,
        FileKind::BlockDevice,
    ] {
        let name = format!("{kind:?}").into_bytes();
        let node = fs.mknod(&cred, &root, &name, kind, 0o600, 0).unwrap();
        let options = OpenOptions::new().read(true);
        let opened = |cred| {
            let by_path = fs.open(cred, &root, &name, &options).map(drop);
            let by_node = fs.open_node(cred, &node, &options).map(drop);
            [by_path, by_node].map(|opened| opened.unwrap_err().errno())
        };
        assert_eq!(opened(&cred), [libc::ENXIO; 2], "{kind:?}");
        assert_eq!(opened(&user), [libc::EACCES; 2], "{kind:?}");
    }
}

/// What `chown(2)` does with -1 for both.
#[test]
fn a_chown_without_owner_and_group_drops_set_ids() {
    let pool = pool();
    let (fs, root, cred) = (pool.fs(), pool.fs().root(), Cred::root());
    let file = fs.mknod(&cred, &root, b"f", FileKind::File, 0o644, 0);
    let file = file.unwrap();
    let set = |by: &Cred, set: SetAttr| fs.set_attr(by, &file, &set);
    let chown = SetAttr::new().chown(true);
    let (owner, stranger) = (Cred::user(5, 6), Cred::user(7, 7));
    let mut before = set(&cred, SetAttr::new().uid(Some(5)).gid(Some(6))).unwrap();
    for by in [&cred, &owner, &stranger] {
        let after = set(by, chown).unwrap();
        assert!(after.ctime_ns > before.ctime_ns, "{by:?}");
        before.ctime_ns = after.ctime_ns;
        assert_eq!(after, before);
    }
    for (by, mode, left) in [
        (&cred, 0o6755, 0o755),
        (&owner, 0o6755, 0o755),
        (&owner, 0o6745, 0o2745),
    ] {
        set(&cred, SetAttr::new().mode(Some(mode))).unwrap();
        let refused = set(&stranger, chown);
        assert!(matches!(refused, Err(Error::NotPermitted)), "{refused:?}");
        assert_eq!(fs.attr(&file).unwrap().mode, mode);
        assert_eq!(set(by, chown).unwrap().mode, left);
    }
    set(&cred, SetAttr::new().mode(Some(0o4755))).unwrap();
    fs.set_flags(&cred, &file, FileFlags::APPEND_ONLY).unwrap();
    assert!(matches!(set(&owner, chown), Err(Error::NotPermitted)));
    fs.set_flags(&cred, &file, FileFlags::empty()).unwrap();
    set(&owner, chown).unwrap();
    fs.set_flags(&cred, &file, FileFlags::APPEND_ONLY).unwrap();
    set(&owner, chown).unwrap();
    fs.set_flags(&cred, &file, FileFlags::IMMUTABLE).unwrap();
    assert!(matches!(set(&owner, chown), Err(Error::NotPermitted)));
    let dir = fs.mkdir(&cred, &root, b"d", 0o777).unwrap();
    let both = chown.mode(Some(0o6777));
    assert_eq!(fs.set_attr(&cred, &dir, &both).unwrap().mode, 0o6777);
    assert_eq!(fs.set_attr(&stranger, &dir, &chown).unwrap().mode, 0o6777);
}
