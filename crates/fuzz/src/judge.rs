//! Tests what the checker and the engine promise of any image.

use std::collections::HashSet;
use std::sync::Arc;

use vellum::experiments::settle_cut;
use vellum::{
    Clock, Cred, Error, FileFlags, FileKind, Fs, ListPosition, MountOptions, Node, OpenOptions,
    Opened, RenameFlags, SetAttr, SetTime, XattrMode, attach,
};
use vellum_check::survey::{self, Survey};
use vellum_check::{Options, Report, check, inspect};
use vellum_media::{HeapMemory, SimPool, Simulated};

/// The memories under the pools of the fuzz targets.
pub type Memories = Simulated;

type Volume = Arc<Fs<Memories>>;

/// The most nodes visited in one walk: a damaged tree may be endless.
const NODES_MAX: usize = 300;

/// Opens `image`. Before that, settles a change of the table of datasets that was cut short, as
/// openings of files do.
///
/// # Errors
/// Those of the engine.
/// The engine's.
pub fn mount(image: Vec<u8>, read_only: bool) -> vellum::Result<(Volume, Opened)> {
    let options = MountOptions {
        read_only,
        clock: Clock::Counter(1_000_000.into()),
        ..MountOptions::default()
    };
    let superblock = survey::superblock(&image.as_slice());
    let pool = SimPool::from_image(image);
    let writable = superblock.filter(|found| !read_only && found.check_writable().is_ok());
    if let Some(superblock) = writable {
        settle_cut(&pool, &superblock)?;
    }
    attach::<Memories>(pool, |bytes| Ok(HeapMemory::new(bytes)), options)
}

/// Checks `image`, opens it, uses all of it, closes it and checks it again.
///
/// # Panics
/// If one of these promises is broken:
/// * the checker reports the same twice;
/// * what the checker calls sound opens (unless it has areas besides that of the root), can be used
///   without meeting damage, closes cleanly, and is then sound without residue;
/// * an opening that is refused returns `EUCLEAN` or `EIO`, or reports that the format belongs to
///   another release (`EOPNOTSUPP`, `EROFS`);
/// * a pool that was not closed cleanly and opens for writing is sound after closing, because
///   recovery explains everything or refuses;
/// * names that are listed are valid names, ascend by their cookies, and are found or meet damage.
pub fn judge(image: Vec<u8>, read_only: bool) {
    let before = check_twice(&image);
    inspect_all(&image);
    let sound = before.is_sound();
    let (fs, opened) = match mount(image.clone(), read_only) {
        Ok(mounted) => mounted,
        Err(error) => {
            let errno = error.errno();
            // A read-only opening may accept a pool that a writer of this release does not, and the
            // checker accepts more than both.
            let only_read = errno == EROFS && !read_only;
            let is_known = only_read || errno == EOPNOTSUPP && has_further_areas(&image);
            assert!(
                !sound || is_known,
                "{error}, but the checker called it sound: {before}"
            );
            let other_release = only_read || errno == EOPNOTSUPP;
            assert!(other_release || is_damage(errno), "errno {errno}: {error}");
            return;
        }
    };
    let mut user = User {
        fs: &fs,
        cred: Cred::root(),
        sound,
        changed: false,
        met: 0,
    };
    user.walk();
    if read_only {
        return;
    }
    user.changed = true;
    user.change_all();
    user.walk();
    let met = user.met;
    if let Err(error) = fs.close() {
        assert!(
            !sound,
            "the checker called a pool sound that does not close: {error}"
        );
        return;
    }
    let recovered = !opened.was_clean && met == 0;
    if sound || recovered {
        let after = check(&fs.pool().image(), strict());
        assert!(
            after.is_sound(),
            "closed cleanly, and then damaged (before: {before})\n{after}"
        );
    }
}

fn strict() -> Options<'static> {
    Options {
        strict_clean: true,
        progress: None,
    }
}

/// Whether areas besides that of the root are in use, being made or being removed.
fn has_further_areas(image: &[u8]) -> bool {
    let superblock = survey::superblock(&image);
    superblock.is_some_and(|superblock| Survey::of(&image, &superblock).logs.areas.list.len() > 1)
}

fn check_twice(image: &[u8]) -> Report {
    let report = check(image, Options::default());
    assert_eq!(report, check(image, Options::default()));
    assert_eq!(report.is_sound(), report.exit_code() == 0);
    let harsh = check(image, strict());
    assert!(harsh.damage >= report.damage, "{report}\n{harsh}");
    report
}

/// The inspector answers every request.
fn inspect_all(image: &[u8]) {
    let _ = inspect::superblock(image);
    let _ = inspect::journals(image);
    for number in (0..40).chain([1 << 20, u64::MAX]) {
        let _ = inspect::inode(image, number);
        let _ = inspect::directory(image, number);
        let _ = inspect::entry(image, number);
        let _ = inspect::block(image, number);
    }
}

const EIO: i32 = 5;
const EROFS: i32 = 30;
const EOPNOTSUPP: i32 = 95;
const EUCLEAN: i32 = 117;

/// `EUCLEAN` or `EIO`.
fn is_damage(errno: i32) -> bool {
    errno == EUCLEAN || errno == EIO
}

/// Uses a file system that may be damaged.
struct User<'a> {
    fs: &'a Volume,
    cred: Cred,
    /// Whether the checker found no damage.
    sound: bool,
    /// Whether something was changed.
    changed: bool,
    /// The number of times that damage was met.
    met: u64,
}

impl User<'_> {
    /// Whether results must be right: always in a sound pool, otherwise until something was
    /// changed. A wrong live map under a right checksum lets slots in use be allocated.
    fn is_strict(&self) -> bool {
        self.sound || !self.changed
    }

    /// Returns a result that must be a success in a sound pool, and otherwise a success or damage.
    fn must<T>(&mut self, what: &str, result: vellum::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                let errno = error.errno();
                assert!(!self.is_strict() || is_damage(errno), "{what}: {error}");
                self.may(what, Err(error))
            }
        }
    }

    /// Returns a result that may be an error, but in a sound pool not one about damage.
    fn may<T>(&mut self, what: &str, result: vellum::Result<T>) -> Option<T> {
        let error = match result {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        if is_damage(error.errno()) {
            assert!(!self.sound, "{what}, in a sound pool: {error}");
            self.met += 1;
        }
        None
    }

    /// Reads everything that is reachable.
    fn walk(&mut self) {
        let mut dirs = vec![self.fs.root()];
        let mut seen = 0;
        while let Some(dir) = dirs.pop() {
            for (name, ino) in self.list(&dir) {
                let found = self.fs.lookup(&self.cred, &dir, &name);
                let Some(node) = self.must("a listed name is found", found) else {
                    continue;
                };
                assert_eq!(node.ino(), ino, "listing and lookup agree");
                seen += 1;
                self.look_at(&node);
                if node.kind() == FileKind::Directory && seen < NODES_MAX {
                    dirs.push(node);
                }
            }
            let path = self.fs.path_of(&dir);
            if let Some(path) = self.must("a directory has a path", path) {
                let again = self.fs.find(&self.cred, &self.fs.root(), &path, false);
                if let Some(again) = self.may("a path is found", again) {
                    assert!(!self.sound || again.ino() == dir.ino());
                }
            }
            let _ = self.may("parent", self.fs.parent_ino(&dir));
            let _ = self.may("children", self.fs.children(&dir));
        }
    }

    /// Lists a directory in one go and in steps; returns the names and inode numbers.
    fn list(&mut self, dir: &Node<Memories>) -> Vec<(Vec<u8>, u64)> {
        let whole = self.list_by(dir, usize::MAX);
        let steps = self.list_by(dir, 3);
        if let (Some(whole), Some(steps)) = (&whole, &steps) {
            assert_eq!(whole, steps, "a listing in steps gives the same");
        }
        let mut names = whole.unwrap_or_default();
        let mut unique = HashSet::new();
        // A listing reports what the log holds; only a lookup finds that two entries have one name.
        names.retain(|(name, _)| {
            let first = unique.insert(name.clone());
            assert!(first || !self.sound, "a name is listed once");
            first
        });
        names
    }

    fn list_by(&mut self, dir: &Node<Memories>, step: usize) -> Option<Vec<(Vec<u8>, u64)>> {
        let mut names = Vec::new();
        let mut position = ListPosition::default();
        let mut after = 0;
        loop {
            let first = names.len();
            let strict = self.is_strict();
            let listed = self.fs.list(dir, after, &mut position, &mut |entry| {
                if names.len() - first == step {
                    return false;
                }
                assert!(entry.cookie > after && entry.cookie >= 3, "cookies ascend");
                after = entry.cookie;
                assert!(!strict || is_name(entry.name), "listed: {:?}", entry.name);
                names.push((entry.name.to_vec(), entry.ino));
                true
            });
            self.must("a directory is listed", listed)?;
            if names.len() - first < step {
                return Some(names);
            }
        }
    }

    fn look_at(&mut self, node: &Node<Memories>) {
        let attr = self.fs.attr(node);
        let Some(attr) = self.must("attributes", attr) else {
            return;
        };
        let held = self.fs.node(node.ino(), node.generation());
        self.may("a handle leads to its node", held);
        self.look_at_xattrs(node);
        let project = self.fs.project(node);
        self.must("a project id is read", project);
        match node.kind() {
            FileKind::Symlink => {
                let text = self.fs.read_link(node);
                if let Some(text) = self.must("a symlink is read", text) {
                    assert_eq!(text.len() as u64, attr.size);
                }
            }
            FileKind::File => self.read_some(node, attr.size),
            _ => {}
        }
    }

    /// Reads every extended attribute.
    fn look_at_xattrs(&mut self, node: &Node<Memories>) {
        let listed = self.fs.xattrs(&self.cred, node);
        let listed = self.must("extended attributes are listed", listed);
        for name in listed
            .unwrap_or_default()
            .split_inclusive(|&byte| byte == 0)
        {
            let value = self.fs.xattr(&self.cred, node, &name[..name.len() - 1]);
            self.must("a listed attribute is read", value);
        }
    }

    fn read_some(&mut self, node: &Node<Memories>, size: u64) {
        let read = OpenOptions::new().read(true);
        let opened = self.fs.open_node(&self.cred, node, &read);
        let Some(file) = self.must("a file is opened", opened) else {
            return;
        };
        let mut buffer = [0; 9000];
        for at in [0, size / 2 / 4096 * 4096, size.saturating_sub(100)] {
            let got = file.read_at(at, &mut buffer);
            if let Some(got) = self.must("a file is read", got) {
                let expected = size.saturating_sub(at).min(buffer.len() as u64);
                assert_eq!(got as u64, expected, "read at {at} of {size}");
            }
        }
        let mut at = 0;
        for _ in 0..20 {
            let data = file.seek_data(at);
            let Some(data) = self.may("data is sought", data) else {
                return;
            };
            assert!((at..size).contains(&data), "data at {data}, from {at}");
            let hole = file.seek_hole(data);
            let Some(hole) = self.must("a hole is sought", hole) else {
                return;
            };
            assert!(hole > data && hole <= size, "hole at {hole}, data {data}");
            at = hole;
        }
    }

    /// Changes something of each kind.
    fn change_all(&mut self) {
        let top = self.fs.root();
        let mut dirs = vec![top.clone()];
        for (name, _) in self.list(&top) {
            let found = self.fs.lookup(&self.cred, &top, &name);
            if let Some(node) = self.must("a listed name is found", found)
                && node.kind() == FileKind::Directory
            {
                dirs.push(node);
            }
        }
        for (round, dir) in dirs.iter().enumerate() {
            self.make_in(dir, round);
            self.change_in(dir);
            self.remove_in(dir, round);
        }
        let empty = self.fs.rmdir(&self.cred, &top, b"empty");
        self.may("rmdir", empty);
        drop(dirs);
        let done = self.fs.maintain();
        self.may("maintain", done);
    }

    fn make_in(&mut self, dir: &Node<Memories>, round: usize) {
        let (fs, cred, top) = (self.fs, self.cred.clone(), self.fs.root());
        let write = OpenOptions::new().read(true).write(true).mode(0o600);
        let moved = format!("{}{round}", "moved".repeat(30));
        if let Some(file) = self.may("create", fs.create(&cred, dir, b"new", &write)) {
            self.may("append", file.append(&[9; 5000]));
            self.may("write", file.write_at(40_000, b"behind a hole"));
            self.may("fill", file.write_at(9000, &[5; 9000]));
            self.may("cut", file.truncate(10_000));
            let mut back = [0; 10];
            let read = file.read_at(9000, &mut back);
            if let Some(10) = self.must("what was written is read", read) {
                assert!(back == [5; 10] || back == [0; 10], "{back:?}");
            }
            self.may("link", fs.link(&cred, file.node(), dir, b"linked"));
            let plain = RenameFlags::empty();
            let renamed = fs.rename(&cred, dir, b"new", &top, moved.as_bytes(), plain);
            self.may("rename", renamed);
        }
        let swap = RenameFlags::EXCHANGE;
        let swapped = fs.rename(&cred, dir, b"linked", &top, b"deep", swap);
        if self.may("exchange", swapped).is_some() {
            let back = fs.rename(&cred, dir, b"linked", &top, b"deep", swap);
            self.may("exchange", back);
        }
        self.may("unlink", fs.unlink(&cred, dir, b"linked"));
        self.may("mkdir", fs.mkdir(&cred, dir, b"made", 0o755));
        self.may("symlink", fs.symlink(&cred, dir, b"text", &[b't'; 500]));
    }

    /// Changes existing files and directories.
    fn change_in(&mut self, dir: &Node<Memories>) {
        let write = OpenOptions::new().write(true);
        for (name, _) in self.list(dir).into_iter().take(12) {
            let Some(node) = self.may("lookup", self.fs.lookup(&self.cred, dir, &name)) else {
                continue;
            };
            let set = SetAttr::new()
                .mode(Some(0o711))
                .mtime(Some(SetTime::At(2_000_000)));
            self.may("setattr", self.fs.set_attr(&self.cred, &node, &set));
            self.change_xattrs(&node);
            self.change_flags(&node);
            if node.kind() != FileKind::File {
                continue;
            }
            let opened = self.fs.open_node(&self.cred, &node, &write);
            if let Some(file) = self.may("open", opened) {
                self.may("write", file.write_at(3000, &[6; 3000]));
                self.may("append", file.append(b"end"));
                let punch = vellum::Allocate::PunchHole;
                self.may("punch", file.allocate(punch, 1000, 9000));
                self.may("grow", file.truncate(21_000));
                self.may("cut", file.truncate(5001));
            }
        }
    }

    /// Replaces the extended attributes of a file or directory by larger and by smaller ones.
    fn change_xattrs(&mut self, node: &Node<Memories>) {
        if !matches!(node.kind(), FileKind::File | FileKind::Directory) {
            return;
        }
        for value in [&[1; 5000][..], &[2; 10]] {
            let any = XattrMode::Any;
            let set = self.fs.set_xattr(&self.cred, node, b"user.new", value, any);
            if self.may("setxattr", set).is_some() {
                let read = self.fs.xattr(&self.cred, node, b"user.new");
                let read = self.must("what was set is read", read);
                assert!(read.is_none_or(|read| read == value));
            }
        }
        let gone = self.fs.remove_xattr(&self.cred, node, b"user.note");
        self.may("removexattr", gone);
    }

    /// Sets flags and a project id, and clears the flags.
    fn change_flags(&mut self, node: &Node<Memories>) {
        for flags in [
            FileFlags::APPEND_ONLY | FileFlags::NO_ATIME,
            FileFlags::empty(),
        ] {
            let set = self.fs.set_flags_and_project(&self.cred, node, flags, 7);
            if self.may("chattr", set).is_some() {
                let project = self.must("a project id is read", self.fs.project(node));
                assert_eq!((node.flags(), project.unwrap_or(7)), (flags, 7));
            }
        }
    }

    /// Removes about half of the old names, and the new ones.
    fn remove_in(&mut self, dir: &Node<Memories>, round: usize) {
        for (name, ino) in self.list(dir) {
            if (ino as usize + round).is_multiple_of(2) || name == b"text" {
                let gone = self.fs.unlink(&self.cred, dir, &name);
                if let Err(Error::IsDirectory) = gone {
                    let gone = self.fs.rmdir(&self.cred, dir, &name);
                    self.may("rmdir", gone);
                } else {
                    self.may("unlink", gone);
                }
            }
        }
    }
}

/// Whether a file may have this name.
fn is_name(name: &[u8]) -> bool {
    let forbidden = |byte: &u8| matches!(byte, b'/' | 0);
    (1..=255).contains(&name.len()) && !name.iter().any(forbidden) && !matches!(name, b"." | b"..")
}
