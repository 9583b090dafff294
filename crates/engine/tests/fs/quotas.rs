//! Quotas: usage is what the files take, limits hold, and both outlive whatever happens to a pool.

use std::collections::BTreeMap;

use vellum::{
    Allocate, CreateOptions, Cred, Error, MappingKind, NamespaceKind, OpenOptions, Permissions,
    Pool, QuotaDefaults, QuotaKind, QuotaLimits, SetAttr, Volume,
};
use vellum_testing::Random;

const BLOCK: u64 = 4096;
const BOTH: OpenOptions = OpenOptions::new().read(true).write(true);

/// Bytes and inodes by kind and id.
type Usage = BTreeMap<(QuotaKind, u32), (u64, u64)>;

/// What a walk of the tree finds. Hard links count once.
fn walked(volume: &Volume) -> Usage {
    let mut usage = Usage::new();
    let mut seen = std::collections::BTreeSet::new();
    let mut paths = vec![String::from("/")];
    while let Some(path) = paths.pop() {
        let attr = volume.symlink_metadata(&path).unwrap();
        if attr.is_dir() {
            for entry in volume.read_dir(&path).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                paths.push(format!("{}/{name}", path.trim_end_matches('/')));
            }
        }
        if !seen.insert(attr.ino()) {
            continue;
        }
        let project = match attr.is_symlink() {
            // Nothing here gives links one.
            true => 0,
            false => volume.project(&path).unwrap(),
        };
        for key in [
            (QuotaKind::User, attr.uid()),
            (QuotaKind::Group, attr.gid()),
            (QuotaKind::Project, project),
        ] {
            let (bytes, inodes) = usage.entry(key).or_default();
            *bytes += attr.blocks() * 512;
            *inodes += 1;
        }
    }
    usage
}

fn counted(pool: &Pool) -> Usage {
    let quotas = pool.fs().quotas(&Cred::root()).unwrap();
    let used = quotas.iter().filter(|quota| quota.inodes + quota.bytes > 0);
    used.map(|quota| ((quota.kind, quota.id), (quota.bytes, quota.inodes)))
        .collect()
}

fn check(pool: &Pool) {
    let volume = pool.volume().with_cred(Cred::root());
    assert_eq!(counted(pool), walked(&volume));
}

fn exceeded<T: std::fmt::Debug>(done: vellum::Result<T>) {
    assert!(matches!(done, Err(Error::QuotaExceeded)), "{done:?}");
}

fn limit(pool: &Pool, kind: QuotaKind, id: u32, limits: QuotaLimits) {
    let fs = pool.fs();
    fs.set_quota(&Cred::root(), kind, id, Some(&limits))
        .unwrap();
}

/// A pool with quotas whose root anybody may write.
fn with_quotas(options: CreateOptions) -> Pool {
    let pool = options.create_in_memory().unwrap();
    let volume = pool.volume().with_cred(Cred::root());
    volume
        .set_permissions("/", Permissions::from_mode(0o777))
        .unwrap();
    pool.fs().set_quotas(&Cred::root(), true).unwrap();
    pool
}

fn small() -> Pool {
    with_quotas(CreateOptions::new(16 << 20))
}

/// One change at random by one of a few users, whatever comes of it.
fn change(volume: &Volume, random: &mut Random) {
    let cred = match random.below(4) {
        0 => Cred::root(),
        id => Cred::user(id as u32, random.below(3) as u32),
    };
    let volume = volume.with_cred(cred);
    let path = |random: &mut Random| format!("/{}", random.below(8));
    let (one, other) = (path(random), path(random));
    let (offset, len) = (random.below(60) * 1000, random.below(40_000));
    let _ = match random.below(13) {
        0 => volume.create_dir(&one),
        1 => volume.remove_dir(&one),
        2 => volume.remove_file(&one),
        3 => volume.symlink("target", &one),
        4 => volume.hard_link(&one, &other),
        5 => volume.rename(&one, &other),
        6 => volume.set_project(&one, random.below(3) as u32),
        7 => {
            let set = SetAttr::new().uid(Some(random.below(4) as u32));
            volume
                .set_attr(&one, &set.gid(Some(random.below(3) as u32)))
                .map(drop)
        }
        8 => volume.write(&one, vec![7; len as usize]),
        _ => volume
            .open_with(&one, &BOTH.create(true))
            .and_then(|file| match random.below(7) {
                0 => file.set_len(offset),
                1 => file.handle().allocate(Allocate::KeepSize, offset, len),
                2 => file.handle().allocate(Allocate::PunchHole, offset, len),
                3 => file.handle().allocate(Allocate::Zero, offset, len),
                4 => file.handle().allocate(Allocate::Collapse, BLOCK, BLOCK),
                5 => file.handle().allocate(Allocate::Insert, BLOCK, 2 * BLOCK),
                _ => file.write_at(&vec![1; len as usize], offset).map(drop),
            }),
    };
}

#[test]
fn usage_is_what_a_walk_finds() {
    for namespace in NamespaceKind::ALL {
        for mapping in [MappingKind::HashFs, MappingKind::Extent, MappingKind::Radix] {
            let options = CreateOptions::new(16 << 20).namespace(namespace);
            let pool = with_quotas(options.mapping(mapping));
            limit(
                &pool,
                QuotaKind::User,
                2,
                QuotaLimits {
                    hard_bytes: 20 * BLOCK,
                    hard_inodes: 3,
                    ..QuotaLimits::default()
                },
            );
            let mut random = Random::new(20);
            for round in 0..600 {
                change(&pool.volume(), &mut random);
                if round % 20 == 0 {
                    check(&pool);
                    let user = pool.fs().quota(&Cred::root(), QuotaKind::User, 2).unwrap();
                    // Root gives files away regardless of limits.
                    assert!(user.bytes < 1 << 20);
                }
            }
            check(&pool);
        }
    }
}

/// Bytes that move need space for a moment. A limit must not cut them.
#[test]
fn bytes_move_within_a_file_whose_owner_is_at_the_limit() {
    let content = [[7; BLOCK as usize], [9; BLOCK as usize]].concat();
    for mode in [Allocate::Collapse, Allocate::Insert] {
        let pool = small();
        let limits = QuotaLimits {
            hard_bytes: 3 * BLOCK,
            ..QuotaLimits::default()
        };
        limit(&pool, QuotaKind::User, 7, limits);
        let volume = pool.volume().with_cred(Cred::user(7, 7));
        let file = volume.open_with("/f", &BOTH.create(true)).unwrap();
        file.write_at(&content, 2 * BLOCK).unwrap();
        file.handle().allocate(mode, 0, 2 * BLOCK).unwrap();
        let hole = match mode {
            Allocate::Collapse => 0,
            _ => 4 * BLOCK as usize,
        };
        let expected = [vec![0; hole], content.clone()].concat();
        assert!(volume.read("/f").unwrap() == expected, "{mode:?}");
        check(&pool);
    }
}

#[test]
fn limits_and_usage_outlive_a_close_and_a_kill() {
    for namespace in NamespaceKind::ALL {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("pool"), dir.path().join("copy"));
        let pool = CreateOptions::new(16 << 20)
            .namespace(namespace)
            .create(&path)
            .unwrap();
        let fs = pool.fs();
        pool.volume()
            .with_cred(Cred::root())
            .set_permissions("/", Permissions::from_mode(0o777))
            .unwrap();
        fs.set_quotas(&Cred::root(), true).unwrap();
        let limits = QuotaLimits {
            hard_bytes: 10 * BLOCK,
            soft_bytes: 2 * BLOCK,
            ..QuotaLimits::default()
        };
        limit(&pool, QuotaKind::User, 7, limits);
        let volume = pool.volume().with_cred(Cred::user(7, 7));
        volume.write("/f", vec![1; 3 * BLOCK as usize]).unwrap();
        fs.maintain().unwrap();
        let before = fs.quota(&Cred::root(), QuotaKind::User, 7).unwrap();
        assert!(before.bytes_until_ns.is_some());
        fs.sync().unwrap();
        std::fs::copy(&path, &copy).unwrap();
        pool.close().unwrap();
        for path in [path, copy] {
            let pool = Pool::open(&path).unwrap();
            let found = pool.fs().quota(&Cred::root(), QuotaKind::User, 7).unwrap();
            assert_eq!(found, before, "{namespace:?}");
            check(&pool);
            let volume = pool.volume().with_cred(Cred::user(7, 7));
            exceeded(volume.open("/f").and_then(|_| {
                let file = volume.open_with("/f", &BOTH)?;
                file.handle().allocate(Allocate::Grow, 0, 11 * BLOCK)
            }));
            pool.fs().set_quotas(&Cred::root(), false).unwrap();
            pool.close().unwrap();
            let pool = Pool::open(&path).unwrap();
            assert!(!pool.fs().has_quotas());
            assert_eq!(
                pool.volume()
                    .with_cred(Cred::root())
                    .xattrs("/")
                    .unwrap()
                    .len(),
                0
            );
            pool.close().unwrap();
        }
    }
}

#[test]
fn a_write_gets_the_blocks_that_are_left() {
    let pool = small();
    let limits = QuotaLimits {
        hard_bytes: 10 * BLOCK,
        ..QuotaLimits::default()
    };
    limit(&pool, QuotaKind::User, 7, limits);
    let volume = pool.volume().with_cred(Cred::user(7, 7));
    let file = volume.create("/f").unwrap();
    // Seven blocks, and a byte before them.
    let handle = file.handle();
    assert_eq!(
        handle.write_at(BLOCK - 1, &[1; 7 * 4096 + 1]).unwrap(),
        7 * 4096 + 1
    );
    assert_eq!(handle.append(&[2; 50_000]).unwrap(), (8 * BLOCK, 2 * 4096));
    exceeded(handle.append(b"more"));
    // Bytes that have their block already take nothing.
    assert_eq!(handle.write_at(5, b"text").unwrap(), 4);
    file.set_len(1 << 30).unwrap();
    exceeded(handle.write_at(1 << 20, b"text"));
    exceeded(file.handle().allocate(Allocate::KeepSize, 1 << 20, BLOCK));
    volume.remove_file("/f").unwrap();
    exceeded(handle.write_at(1 << 20, b"text"));
    drop(file);
    volume.write("/g", vec![3; 10 * BLOCK as usize]).unwrap();
    check(&pool);
    // Whoever is not bound writes on, for the owner.
    let root = pool.volume().with_cred(Cred::root());
    root.open_with("/g", &BOTH)
        .unwrap()
        .write_at(&[1; 9000], 1 << 20)
        .unwrap();
    check(&pool);
    let quota = pool.fs().quota(&Cred::root(), QuotaKind::User, 7).unwrap();
    assert!(quota.bytes > limits.hard_bytes);
}

#[test]
fn a_refusal_changes_nothing() {
    let pool = small();
    let root = pool.volume().with_cred(Cred::root());
    let user = pool.volume().with_cred(Cred {
        groups: vec![8],
        ..Cred::user(7, 7)
    });
    user.write("/f", vec![1; 9000]).unwrap();
    user.create_dir("/d").unwrap();
    let none = QuotaLimits {
        hard_inodes: 1,
        hard_bytes: 2 * BLOCK,
        ..QuotaLimits::default()
    };
    limit(&pool, QuotaKind::Group, 8, none);
    limit(&pool, QuotaKind::Project, 5, none);
    let before = (counted(&pool), root.metadata("/f").unwrap());
    exceeded(user.set_attr("/f", &SetAttr::new().gid(Some(8)).mode(Some(0o600))));
    exceeded(user.set_project("/f", 5));
    assert_eq!((counted(&pool), root.metadata("/f").unwrap()), before);
    assert_eq!(root.project("/f").unwrap(), 0);
    // A directory has one block and is one inode, so it fits, but only one does.
    user.set_project("/d", 5).unwrap();
    user.set_flags("/d", vellum::FileFlags::PROJECT_INHERIT)
        .unwrap();
    for made in [
        user.create_dir("/d/e"),
        user.write("/d/f", ""),
        user.symlink("t", "/d/s"),
    ] {
        exceeded(made);
    }
    assert_eq!(root.read_dir("/d").unwrap().count(), 0);
    check(&pool);
    // The superuser may.
    root.create_dir("/d/e").unwrap();
    root.set_attr("/f", &SetAttr::new().gid(Some(8))).unwrap();
    check(&pool);
}

#[test]
fn a_soft_limit_holds_after_its_grace_period() {
    let pool = small();
    let (fs, root) = (pool.fs(), Cred::root());
    let limits = QuotaLimits {
        soft_bytes: 2 * BLOCK,
        soft_inodes: 2,
        ..QuotaLimits::default()
    };
    let soon = QuotaDefaults {
        limits,
        ..QuotaDefaults::default()
    };
    fs.set_quota_defaults(&root, QuotaKind::User, &soon)
        .unwrap();
    let volume = pool.volume().with_cred(Cred::user(7, 7));
    volume.write("/f", vec![1; 2 * BLOCK as usize]).unwrap();
    let of = || fs.quota(&Cred::root(), QuotaKind::User, 7).unwrap();
    assert_eq!((of().limits, of().bytes_until_ns), (limits, None));
    let file = volume.open_with("/f", &BOTH).unwrap();
    // The first block above the limit begins a grace period, of no length here.
    file.write_at(b"text", 2 * BLOCK).unwrap();
    assert!(of().bytes_until_ns.is_some());
    exceeded(file.handle().write_at(3 * BLOCK, b"text"));
    file.set_len(2 * BLOCK).unwrap();
    assert_eq!(of().bytes_until_ns, None);
    file.write_at(b"text", 2 * BLOCK).unwrap();
    volume.write("/g", "").unwrap();
    volume.write("/h", "").unwrap();
    exceeded(volume.write("/i", ""));
    // Own limits, and time.
    limit(&pool, QuotaKind::User, 7, QuotaLimits::default());
    assert_eq!((of().bytes_until_ns, of().inodes_until_ns), (None, None));
    volume.write("/i", vec![1; 90_000]).unwrap();
    let week = QuotaDefaults {
        bytes_grace_ns: 1 << 60,
        inodes_grace_ns: 1 << 60,
        ..soon
    };
    fs.set_quota_defaults(&root, QuotaKind::User, &week)
        .unwrap();
    fs.set_quota(&root, QuotaKind::User, 7, None).unwrap();
    assert!(of().bytes_until_ns.is_some() && of().inodes_until_ns.is_some());
    volume.write("/j", vec![1; 90_000]).unwrap();
    check(&pool);
}

#[test]
fn limits_are_no_attributes_of_programs() {
    let pool = small();
    let root = pool.volume().with_cred(Cred::root());
    root.set_xattr("/", "user.note", "mine").unwrap();
    limit(
        &pool,
        QuotaKind::User,
        7,
        QuotaLimits {
            hard_inodes: 9,
            ..Default::default()
        },
    );
    assert_eq!(root.xattrs("/").unwrap().len(), 1);
    assert!(root.xattr("/", "quota.u7").is_err());
    assert!(root.set_xattr("/", "quota.u7", "1").is_err());
    root.remove_xattr("/", "user.note").unwrap();
    let found = pool.fs().quota(&Cred::root(), QuotaKind::User, 7).unwrap();
    assert_eq!(found.limits.hard_inodes, 9);
    // As many limits as fit beside other attributes.
    for number in 0..15 {
        let name = format!("user.{number}");
        root.set_xattr("/", &name, vec![1; 1 << 16]).unwrap();
    }
    root.set_xattr("/", "user.last", vec![1; 60_000]).unwrap();
    let mut set = 0;
    let error = loop {
        let limits = QuotaLimits {
            hard_inodes: 9,
            ..Default::default()
        };
        match pool
            .fs()
            .set_quota(&Cred::root(), QuotaKind::Group, set, Some(&limits))
        {
            Ok(()) => set += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::AttributesFull), "{error:?}");
    let refused = pool
        .fs()
        .quota(&Cred::root(), QuotaKind::Group, set)
        .unwrap();
    assert!(!refused.has_own_limits);
    check(&pool);
}

#[test]
fn quotas_are_turned_on_beside_others() {
    for namespace in NamespaceKind::ALL {
        let options = CreateOptions::new(16 << 20).namespace(namespace);
        let pool = options.create_in_memory().unwrap();
        let root = pool.volume().with_cred(Cred::root());
        root.set_permissions("/", Permissions::from_mode(0o777))
            .unwrap();
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let volume = pool.volume();
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    (0..400).for_each(|_| change(&volume, &mut random));
                });
            }
            for _ in 0..10 {
                pool.fs().set_quotas(&Cred::root(), true).unwrap();
                std::thread::yield_now();
                pool.fs().set_quotas(&Cred::root(), false).unwrap();
            }
            pool.fs().set_quotas(&Cred::root(), true).unwrap();
        });
        check(&pool);
    }
}

#[test]
fn a_long_write_gets_all_blocks_that_are_left() {
    let pool = small();
    let hard_bytes = (2 << 20) + 100 * BLOCK;
    let limits = QuotaLimits {
        hard_bytes,
        ..QuotaLimits::default()
    };
    limit(&pool, QuotaKind::User, 7, limits);
    let volume = pool.volume().with_cred(Cred::user(7, 7));
    let file = volume.open_with("/f", &BOTH.create(true)).unwrap();
    let bytes = vec![1; 3 << 20];
    let written = file.handle().write_at(0, &bytes).unwrap();
    assert_eq!(written as u64, hard_bytes);
    file.set_len(0).unwrap();
    let (_, appended) = file.handle().append(&bytes).unwrap();
    assert_eq!(appended as u64, hard_bytes);
}

#[test]
fn a_full_pool_works_and_closes_though_deadlines_find_no_space() {
    let pool = small();
    let week = QuotaDefaults {
        limits: QuotaLimits {
            soft_inodes: 1,
            ..QuotaLimits::default()
        },
        bytes_grace_ns: 1 << 60,
        inodes_grace_ns: 1 << 60,
    };
    let kind = QuotaKind::User;
    pool.fs()
        .set_quota_defaults(&Cred::root(), kind, &week)
        .unwrap();
    let root = pool.volume().with_cred(Cred::root());
    let full = |number: &i32| root.write(format!("/{number}"), "").is_err();
    let files = (0..).find(full).unwrap();
    let long = "x".repeat(60);
    (0..)
        .find(|number| root.symlink(&long, format!("/s{number}")).is_err())
        .unwrap();
    // Some make room, and others exceed their soft limits with it.
    (0..files.min(40)).for_each(|number| root.remove_file(format!("/{number}")).unwrap());
    for uid in 1..40 {
        let volume = pool.volume().with_cred(Cred::user(uid, uid));
        (0..3).for_each(|number| drop(volume.write(format!("/{uid}-{number}"), "")));
    }
    let quotas = pool.fs().quotas(&Cred::root()).unwrap();
    assert!(quotas.iter().any(|quota| quota.inodes_until_ns.is_some()));
    pool.fs().maintain().unwrap();
    pool.close().unwrap();
}
