//! Pages that vanish under an open pool. Access to what lay there fails, everything else is as it
//! was written, nothing is written any more, and the next opening checks the pool.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vellum::media::{MappedArena, MappedPool, MediaChoice, OpenMode, Real};
use vellum::{
    Clock, CreateOptions, Cred, Error, Fs, ListPosition, MountOptions, OpenOptions, Pool,
    RenameFlags, SetAttr, attach,
};
use vellum_layout::Superblock;

const POOL_BYTES: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// The written contents, by path; `None`: a directory.
type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

struct Sample {
    dir: tempfile::TempDir,
    tree: Tree,
}

impl Sample {
    fn path(&self) -> PathBuf {
        self.dir.path().join("pool")
    }
}

/// A pool with files in several directories, long names, symbolic links, holes, and displaced
/// blocks.
fn sample() -> Sample {
    let dir = tempfile::tempdir().unwrap();
    let options = CreateOptions::new(POOL_BYTES)
        .media(MediaChoice::File)
        .metadata_bytes(Some(256 << 10));
    let pool = options.create(dir.path().join("pool")).unwrap();
    let volume = pool.volume();
    let mut tree = Tree::new();
    for name in ["/a", "/a/deep", "/b", "/many"] {
        volume.create_dir(name).unwrap();
        tree.insert(name.into(), None);
    }
    let mut write = |path: String, content: Vec<u8>| {
        volume.write(&path, &content).unwrap();
        tree.insert(path.into(), Some(content));
    };
    for i in 0..100u8 {
        write(format!("/many/file-{i}"), vec![i; 10 + usize::from(i % 3)]);
    }
    for i in 0..20u8 {
        let long = "x".repeat(usize::from(i) * 10);
        write(format!("/a/{long}{i}"), vec![i; 5000]);
        write(format!("/a/deep/{i}"), Vec::new());
    }
    write("/b/large".to_owned(), vec![0xb7; 60_000]);
    let sparse = volume.create("/b/sparse").unwrap();
    sparse.write_at(&[3; 5000], 40_000).unwrap();
    let mut content = vec![0; 45_000];
    content[40_000..].fill(3);
    tree.insert("/b/sparse".into(), Some(content));
    drop(sparse);
    volume.symlink("large", "/b/link").unwrap();
    volume.hard_link("/b/large", "/b/second").unwrap();
    for path in ["/b/link", "/b/second"] {
        tree.insert(path.into(), Some(vec![0xb7; 60_000]));
    }
    pool.close().unwrap();
    Sample { dir, tree }
}

type RealFs = Arc<Fs<Real>>;

fn open(path: &Path, read_only: bool, lost: Option<u64>) -> vellum::Result<RealFs> {
    let mode = OpenMode {
        read_only,
        media: MediaChoice::Auto,
        populate: false,
    };
    let memory = MappedPool::open(path, mode)?;
    if let Some(at) = lost {
        memory.take_away(at).unwrap();
    }
    let options = MountOptions {
        read_only,
        cache_entries: 4096,
        recovery_threads: 1,
        clock: Clock::System,
        boot_id: [7; 16],
        ..MountOptions::default()
    };
    let arena = |bytes| Ok(MappedArena::private(bytes)?);
    Ok(attach::<Real>(memory, arena, options)?.0)
}

fn is_damage(error: &Error) -> bool {
    matches!(error.errno(), libc::EIO | libc::EUCLEAN)
}

fn read(fs: &RealFs, path: &Path) -> vellum::Result<Vec<u8>> {
    let options = OpenOptions::new().read(true);
    let path = path.to_str().unwrap().as_bytes();
    let file = fs.open(&Cred::root(), &fs.root(), path, &options)?;
    let mut content = vec![0xff; 100_000];
    let len = file.read_at(0, &mut content)?;
    assert!(len <= content.len());
    content.truncate(len);
    // Read again, through the handle's translations.
    let mut again = vec![0; len];
    assert_eq!(file.read_at(0, &mut again)?, len);
    assert!(content == again);
    Ok(content)
}

fn list(fs: &RealFs, path: &Path) -> (BTreeSet<PathBuf>, Option<Error>) {
    let mut names = BTreeSet::new();
    let bytes = path.to_str().unwrap().as_bytes();
    let dir = match fs.find(&Cred::root(), &fs.root(), bytes, true) {
        Ok(dir) => dir,
        Err(error) => return (names, Some(error)),
    };
    let (mut position, mut after) = (ListPosition::default(), 0);
    loop {
        let before = names.len();
        let listed = fs.list(&dir, after, &mut position, &mut |entry| {
            if names.len() == before + 16 {
                return false;
            }
            let name = std::str::from_utf8(entry.name).unwrap();
            assert!(names.insert(path.join(name)), "{name} is listed twice");
            after = entry.cookie;
            true
        });
        match listed {
            Err(error) => return (names, Some(error)),
            Ok(()) if names.len() == before => return (names, None),
            Ok(()) => {}
        }
    }
}

/// Checks everything. Returns the paths that cannot be read; all others are as they were written.
fn look(fs: &RealFs, tree: &Tree, what: &str) -> BTreeSet<PathBuf> {
    let mut gone = BTreeSet::new();
    let mut listed: BTreeMap<&Path, (BTreeSet<PathBuf>, bool)> = BTreeMap::new();
    for dir in std::iter::once(Path::new("/")).chain(
        tree.iter()
            .filter(|(_, content)| content.is_none())
            .map(|(path, _)| path.as_path()),
    ) {
        let (names, error) = list(fs, dir);
        for name in &names {
            assert!(tree.contains_key(name), "{what}: {name:?} is listed");
        }
        if let Some(error) = &error {
            assert!(is_damage(error), "{what}: listing {dir:?}: {error}");
            gone.insert(dir.to_owned());
        }
        listed.insert(dir, (names, error.is_some()));
    }
    for (path, content) in tree {
        let (names, failed) = &listed[path.parent().unwrap()];
        assert!(
            *failed || names.contains(path),
            "{what}: {path:?} is not listed"
        );
        let result = match content {
            Some(expected) => read(fs, path).map(|found| {
                assert!(
                    found == *expected,
                    "{what}: {path:?} is not what was written"
                );
            }),
            None => fs
                .stat_from_root(&Cred::root(), path.to_str().unwrap().as_bytes(), true)
                .map(drop),
        };
        if let Err(error) = result {
            assert!(is_damage(&error), "{what}: {path:?}: {error}");
            gone.insert(path.clone());
        }
    }
    for absent in ["/absent", "/many/absent", "/a/deep/absent"] {
        match read(fs, Path::new(absent)) {
            Err(Error::NotFound) => {}
            Err(error) if is_damage(&error) => {}
            other => panic!("{what}: {absent}: {other:?}"),
        }
    }
    gone
}

/// Asserts that nothing can be changed once damage was met.
fn assert_writing_is_off(fs: &RealFs, what: &str) {
    let cred = Cred::root();
    let made = fs.mkdir(&cred, &fs.root(), b"new", 0o755).map(drop);
    let removed = fs.unlink(&cred, &fs.root(), b"new");
    for result in [made, removed] {
        let error = result.expect_err(what);
        assert_eq!(error.errno(), libc::EROFS, "{what}: {error}");
    }
    assert!(
        matches!(fs.close(), Err(Error::ReadOnlyAfterDamage)),
        "{what}"
    );
}

#[test]
fn any_page_may_vanish_before_it_is_used_or_after() {
    let sample = sample();
    let mut counts = Vec::new();
    for at in (0..POOL_BYTES).step_by(PAGE as usize) {
        for warm in [false, true] {
            let what = format!("page {at:#x}, {}", if warm { "warm" } else { "cold" });
            let fs = open(&sample.path(), false, None).unwrap();
            if warm {
                assert!(look(&fs, &sample.tree, &what).is_empty());
            }
            fs.take_away(at).unwrap();
            let gone = look(&fs, &sample.tree, &what);
            assert_eq!(
                gone,
                look(&fs, &sample.tree, &what),
                "{what}: the second time"
            );
            if gone.is_empty() {
                continue;
            }
            assert_writing_is_off(&fs, &what);
            counts.push(gone.len());
        }
    }
    // A page makes its files unreadable, and a few pages the directories that contain all others.
    assert!(counts.len() > 60, "{counts:?}");
    assert!(
        counts.iter().filter(|&&count| count > 50).count() <= 8,
        "{counts:?}"
    );
    // The file was not damaged, and nothing was written to it.
    let pool = Pool::open(sample.path()).unwrap();
    assert!(!pool.opened().was_clean);
    assert!(look(&pool.fs(), &sample.tree, "at the end").is_empty());
    pool.close().unwrap();
}

#[test]
fn any_page_may_have_vanished_before_the_opening() {
    let sample = sample();
    let (mut refused, mut opened) = (0, 0);
    for at in (0..POOL_BYTES).step_by(PAGE as usize) {
        let what = format!("page {at:#x}");
        match open(&sample.path(), true, Some(at)) {
            Ok(fs) => {
                opened += 1;
                look(&fs, &sample.tree, &what);
            }
            Err(error) => {
                assert!(is_damage(&error), "{what}: {error}");
                refused += 1;
            }
        }
    }
    // Only the root's inode is needed to see anything.
    assert!(
        opened > 250 && refused <= 2,
        "{opened} opened, {refused} refused"
    );
}

/// A change of the sample: its name, its function, and its effect on the tree.
type Change = (
    &'static str,
    fn(&RealFs) -> vellum::Result<()>,
    fn(&mut Tree),
);

fn path_of(path: &str) -> PathBuf {
    path.into()
}

fn write_into(fs: &RealFs, path: &str, offset: u64, bytes: &[u8]) -> vellum::Result<()> {
    let options = OpenOptions::new().write(true).create(true).mode(0o644);
    let file = fs.open(&Cred::root(), &fs.root(), path.as_bytes(), &options)?;
    file.write_at(offset, bytes).map(drop)
}

fn parent(fs: &RealFs, path: &str) -> vellum::Result<vellum::Node<Real>> {
    fs.find(&Cred::root(), &fs.root(), path.as_bytes(), true)
}

/// A name of three slots, so that many entries need a chunk.
const NAME: &str = "a name that is longer than others, so that entries which have it use up slots, \
    log words and chunks the sooner, and files which have it meet more of the pages that are lost, \
    one after the other, at last";

/// Changes that use inodes, entries, logs, blocks and the mapping table, each as the first call on
/// its pool.
const CHANGES: [Change; 10] = [
    (
        "create many",
        |fs| (0..40).try_for_each(|i| write_into(fs, &format!("/b/{NAME}{i}"), 0, &[])),
        |tree| {
            let paths = (0..40).map(|i| format!("/b/{NAME}{i}").into());
            tree.extend(paths.map(|path: PathBuf| (path, Some(Vec::new()))));
        },
    ),
    (
        "link",
        |fs| {
            let (dir, file) = (parent(fs, "/a")?, parent(fs, "/many/file-7")?);
            fs.link(&Cred::root(), &file, &dir, b"linked")
        },
        |tree| {
            let content = tree[&path_of("/many/file-7")].clone();
            tree.insert("/a/linked".into(), content);
        },
    ),
    (
        "overwrite",
        |fs| write_into(fs, "/b/large", 5000, &[1; 9000]),
        |tree| {
            for path in ["/b/large", "/b/second", "/b/link"] {
                let content = tree.get_mut(&path_of(path)).unwrap().as_mut().unwrap();
                content[5000..14_000].fill(1);
            }
        },
    ),
    (
        "append",
        |fs| write_into(fs, "/many/file-7", 11, &[2; 6000]),
        |tree| {
            let content = tree.get_mut(&path_of("/many/file-7")).unwrap();
            content.as_mut().unwrap().extend([2; 6000]);
        },
    ),
    (
        "fill a hole",
        |fs| write_into(fs, "/b/sparse", 8192, &[4; 4096]),
        |tree| {
            let content = tree.get_mut(&path_of("/b/sparse")).unwrap();
            content.as_mut().unwrap()[8192..12_288].fill(4);
        },
    ),
    (
        "create",
        |fs| {
            let options = OpenOptions::default();
            let dir = parent(fs, "/many")?;
            fs.create(&Cred::root(), &dir, b"new", &options).map(drop)
        },
        |tree| {
            tree.insert("/many/new".into(), Some(Vec::new()));
        },
    ),
    (
        "mkdir",
        |fs| {
            let dir = parent(fs, "/a")?;
            fs.mkdir(&Cred::root(), &dir, b"new", 0o755).map(drop)
        },
        |tree| {
            tree.insert("/a/new".into(), None);
        },
    ),
    (
        "unlink",
        |fs| fs.unlink(&Cred::root(), &parent(fs, "/many")?, b"file-50"),
        |tree| {
            tree.remove(&path_of("/many/file-50"));
        },
    ),
    (
        "rename",
        |fs| {
            let (from, to) = (parent(fs, "/many")?, parent(fs, "/a/deep")?);
            let flags = RenameFlags::empty();
            fs.rename(&Cred::root(), &from, b"file-3", &to, b"moved", flags)
        },
        |tree| {
            let content = tree.remove(&path_of("/many/file-3")).unwrap();
            tree.insert("/a/deep/moved".into(), content);
        },
    ),
    (
        "truncate",
        |fs| {
            let node = parent(fs, "/b/large")?;
            let set = SetAttr::new().size(Some(5000)).mode(Some(0o600));
            fs.set_attr(&Cred::root(), &node, &set).map(drop)
        },
        |tree| {
            for path in ["/b/large", "/b/second", "/b/link"] {
                let content = tree.get_mut(&path_of(path)).unwrap();
                content.as_mut().unwrap().truncate(5000);
            }
        },
    ),
];

/// Those that access data blocks. The others access only offsets below this one.
const WRITES: [&str; 4] = ["overwrite", "append", "fill a hole", "truncate"];
const DATA_AT_MOST: u64 = POOL_BYTES / 2;

/// Checks that names and bytes are those of `tree` or of `changed`, where they can be read. Returns
/// what is neither.
fn look_at_either(fs: &RealFs, tree: &Tree, changed: &Tree) -> Vec<String> {
    let mut wrong = Vec::new();
    for path in tree.keys().chain(changed.keys()) {
        let either = [tree, changed].map(|tree| tree.get(path));
        let found = match either.iter().flatten().next() {
            Some(None) => fs
                .stat_from_root(&Cred::root(), path.to_str().unwrap().as_bytes(), true)
                .map(|_| None),
            _ => read(fs, path).map(Some),
        };
        let fits = match &found {
            Ok(found) => {
                let is = |expected: &Option<&Option<Vec<u8>>>| *expected == Some(found);
                either.iter().any(is) || is_mixture(&either, found.as_deref())
            }
            Err(Error::NotFound) => either.contains(&None),
            Err(error) => is_damage(error),
        };
        if !fits {
            let found = found.map(|content| content.map(|bytes| bytes.len()));
            wrong.push(format!("{}: {found:?}", path.display()));
        }
    }
    wrong
}

/// Whether each byte is of one or of the other, after a write that did not return.
fn is_mixture(either: &[Option<&Option<Vec<u8>>>; 2], found: Option<&[u8]>) -> bool {
    let [Some(Some(old)), Some(Some(new))] = either else {
        return false;
    };
    let all = |found: &[u8]| {
        let mut bytes = old.iter().zip(new).zip(found);
        bytes.all(|((old, new), byte)| [old, new].contains(&byte))
    };
    found.is_some_and(|found| found.len() == old.len() && old.len() == new.len() && all(found))
}

/// A change is the first to meet a lost page. It succeeds without the page or fails, and nothing
/// else is damaged, for other observers and for the next opening, which finds the page as it was.
#[test]
fn any_page_may_vanish_before_a_change_meets_it() {
    let sample = sample();
    let sound = std::fs::read(sample.path()).unwrap();
    let superblock = Superblock::unseal(&sound[..PAGE as usize]).unwrap();
    assert!(superblock.geometry().data_at <= DATA_AT_MOST);
    let mut wrong = Vec::new();
    for (name, change, expect) in CHANGES {
        let mut changed = sample.tree.clone();
        expect(&mut changed);
        let mut failed = 0;
        let writes = WRITES.contains(&name);
        let end = if writes { POOL_BYTES } else { DATA_AT_MOST };
        for at in (0..end).step_by(PAGE as usize) {
            let what = format!("{name}, page {at:#x}");
            std::fs::write(sample.path(), &sound).unwrap();
            let fs = open(&sample.path(), false, None).unwrap();
            fs.take_away(at).unwrap();
            let done = change(&fs);
            let before = match &done {
                // Most access nothing that is lost.
                Ok(()) if !(at / PAGE).is_multiple_of(8) => continue,
                Ok(()) => &changed,
                Err(_) => &sample.tree,
            };
            let mut say = |when: &str, found: Vec<String>| {
                wrong.extend(found.iter().map(|found| format!("{what}, {when}: {found}")));
            };
            say("then", look_at_either(&fs, before, &changed));
            if let Err(error) = &done {
                failed += 1;
                // A change consists of several calls, and the first may have met the loss.
                let is_off = matches!(error, Error::ReadOnlyAfterDamage);
                assert!(is_damage(error) || is_off, "{what}: {error}");
                assert_writing_is_off(&fs, &what);
            }
            drop(fs);
            match open(&sample.path(), false, None) {
                Ok(fs) => {
                    say("opened again", look_at_either(&fs, before, &changed));
                    fs.close().unwrap();
                }
                Err(error) => say("opened again", vec![error.to_string()]),
            }
        }
        assert!((2..80).contains(&failed), "{name} failed {failed} times");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
