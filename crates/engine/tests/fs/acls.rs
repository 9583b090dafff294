//! Access control lists: who may do what, what new files inherit, and what `chmod` does.

use vellum::{
    Access, CreateOptions, Cred, Error, FileKind, NamespaceKind, Node, Pool, SetAttr, XattrMode,
    media::Real,
};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// A list as `setfacl` writes it: `u::6 u:1000:7 g::4 m::7 o::0`.
fn list(text: &str) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for entry in text.split(' ') {
        let parts: Vec<_> = entry.split(':').collect();
        let tag: u16 = match (parts[0], parts[1]) {
            ("u", "") => 1,
            ("u", _) => 2,
            ("g", "") => 4,
            ("g", _) => 8,
            ("m", _) => 16,
            _ => 32,
        };
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&parts[2].parse::<u16>().unwrap().to_le_bytes());
        value.extend_from_slice(&parts[1].parse().unwrap_or(u32::MAX).to_le_bytes());
    }
    value
}

fn pools() -> impl Iterator<Item = Pool> {
    NamespaceKind::ALL.into_iter().map(|namespace| {
        let options = CreateOptions::new(16 << 20).namespace(namespace);
        options.create_in_memory().unwrap()
    })
}

fn set(pool: &Pool, node: &Node<Real>, name: &[u8], text: &str) {
    let fs = pool.fs();
    fs.set_xattr(&Cred::root(), node, name, &list(text), XattrMode::Any)
        .unwrap();
}

fn mode(pool: &Pool, node: &Node<Real>) -> u16 {
    pool.fs().attr(node).unwrap().mode
}

fn value(pool: &Pool, node: &Node<Real>, name: &[u8]) -> Option<Vec<u8>> {
    pool.fs().xattr(&Cred::root(), node, name).ok()
}

#[test]
fn a_list_decides_for_users_and_groups_that_it_names() {
    for pool in pools() {
        let (fs, root) = (pool.fs(), Cred::root());
        let file = fs
            .mknod(&root, &fs.root(), b"f", FileKind::File, 0o640, 0)
            .unwrap();
        set(&pool, &file, ACCESS, "u::6 u:1000:6 g::4 g:50:6 m::6 o::0");
        assert_eq!(mode(&pool, &file), 0o660, "the mask");
        let may = |cred: &Cred, want| fs.access(cred, &file, want).is_ok();
        let member = Cred {
            groups: vec![50],
            ..Cred::user(5, 5)
        };
        assert!(may(&Cred::user(1000, 1000), Access::WRITE));
        assert!(may(&member, Access::READ | Access::WRITE));
        assert!(!may(&Cred::user(5, 5), Access::READ));
        let read_only = SetAttr::new().mode(Some(0o640));
        fs.set_attr(&root, &file, &read_only).unwrap();
        assert!(!may(&Cred::user(1000, 1000), Access::WRITE), "masked");
        assert!(may(&Cred::user(1000, 1000), Access::READ));
        let expected = list("u::6 u:1000:6 g::4 g:50:6 m::4 o::0");
        assert_eq!(value(&pool, &file, ACCESS), Some(expected));
        // Permission bits that say the same take the place of a list.
        set(&pool, &file, ACCESS, "u::7 g::5 o::1");
        assert_eq!(
            (mode(&pool, &file), value(&pool, &file, ACCESS)),
            (0o751, None)
        );
    }
}

/// A lookup by a whole path must not pass a directory that a list closes to the caller.
#[test]
fn a_list_closes_a_directory_that_its_mode_opens() {
    for pool in pools() {
        let (fs, root, guest) = (pool.fs(), Cred::root(), Cred::user(1000, 1000));
        let a = fs.mkdir(&root, &fs.root(), b"a", 0o755).unwrap();
        let b = fs.mkdir(&root, &a, b"b", 0o755).unwrap();
        fs.mknod(&root, &b, b"f", FileKind::File, 0o644, 0).unwrap();
        let found = || fs.stat_from_root(&guest, b"/a/b/f", true);
        for _ in 0..3 {
            found().unwrap();
        }
        set(&pool, &a, ACCESS, "u::7 u:1000:0 g::5 m::7 o::5");
        assert_eq!(mode(&pool, &a), 0o775);
        for _ in 0..3 {
            assert!(matches!(found(), Err(Error::Access)));
            fs.stat_from_root(&root, b"/a/b/f", true).unwrap();
        }
        fs.remove_xattr(&root, &a, ACCESS).unwrap();
        found().unwrap();
    }
}

#[test]
fn new_files_inherit_the_list_for_new_files() {
    for pool in pools() {
        let (fs, root) = (pool.fs(), Cred::root());
        let masked = Cred {
            umask: 0o077,
            ..Cred::root()
        };
        let dir = fs.mkdir(&root, &fs.root(), b"d", 0o755).unwrap();
        let plain = fs.mkdir(&masked, &dir, b"plain", 0o777).unwrap();
        assert_eq!(mode(&pool, &plain), 0o700, "the umask");
        let default = "u::7 u:1000:7 g::5 m::7 o::4";
        set(&pool, &dir, DEFAULT, default);
        assert_eq!(mode(&pool, &dir), 0o755);
        let file = fs
            .mknod(&masked, &dir, b"f", FileKind::File, 0o664, 0)
            .unwrap();
        assert_eq!(mode(&pool, &file), 0o664, "no umask");
        let expected = list("u::6 u:1000:7 g::5 m::6 o::4");
        assert_eq!(value(&pool, &file, ACCESS), Some(expected));
        assert_eq!(value(&pool, &file, DEFAULT), None);
        let below = fs.mkdir(&masked, &dir, b"e", 0o777).unwrap();
        assert_eq!(mode(&pool, &below), 0o774);
        assert_eq!(value(&pool, &below, DEFAULT), Some(list(default)));
        let link = fs.symlink(&masked, &dir, b"s", b"f").unwrap();
        assert_eq!(value(&pool, &link, ACCESS), None);
        // A list that permission bits can say leaves only these.
        set(&pool, &dir, DEFAULT, "u::7 g::0 o::0");
        let closed = fs
            .mknod(&root, &dir, b"g", FileKind::File, 0o666, 0)
            .unwrap();
        assert_eq!(
            (mode(&pool, &closed), value(&pool, &closed, ACCESS)),
            (0o600, None)
        );
    }
}

#[test]
fn lists_are_set_by_owners_and_refused_as_on_ext4() {
    let pool = pools().next().unwrap();
    let (fs, root) = (pool.fs(), Cred::root());
    let file = fs
        .mknod(&root, &fs.root(), b"f", FileKind::File, 0o2755, 0)
        .unwrap();
    let link = fs.symlink(&root, &fs.root(), b"s", b"f").unwrap();
    let minimal = list("u::7 g::5 o::5");
    let set = |cred: &Cred, node: &_, name: &[u8], value: &[u8]| {
        let set = fs.set_xattr(cred, node, name, value, XattrMode::Any);
        set.map_err(|error| error.errno())
    };
    let guest = Cred::user(1000, 1000);
    assert_eq!(set(&guest, &file, ACCESS, &minimal), Err(libc::EPERM));
    assert_eq!(set(&root, &file, DEFAULT, &minimal), Err(libc::EACCES));
    assert_eq!(set(&root, &link, ACCESS, &minimal), Err(libc::EOPNOTSUPP));
    assert_eq!(set(&root, &file, ACCESS, &minimal[..11]), Err(libc::EINVAL));
    let unmasked = list("u::7 u:5:7 g::5 o::5");
    assert_eq!(set(&root, &file, ACCESS, &unmasked), Err(libc::EINVAL));
    // Who may set a list is checked before the list is.
    assert_eq!(set(&guest, &file, ACCESS, &unmasked), Err(libc::EPERM));
    assert_eq!(set(&root, &file, DEFAULT, &unmasked), Err(libc::EACCES));
    assert_eq!(
        fs.xattr(&root, &file, ACCESS).unwrap_err().errno(),
        libc::ENODATA
    );
    let before = fs.attr(&file).unwrap();
    assert_eq!(set(&root, &file, ACCESS, &minimal), Ok(()));
    assert_eq!(fs.attr(&file).unwrap(), before, "the mode says the same");
    let mine = SetAttr::new().uid(Some(1000)).mode(Some(0o2755));
    fs.set_attr(&root, &file, &mine).unwrap();
    assert_eq!(set(&guest, &file, ACCESS, &minimal), Ok(()));
    assert_eq!(
        mode(&pool, &file),
        0o755,
        "not in the group, so no set-gid bit"
    );
    assert!(
        fs.remove_xattr(&root, &file, ACCESS).is_ok(),
        "there is none"
    );
}
