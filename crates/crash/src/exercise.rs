//! Uses a recovered file system: what a crash left must not interfere with anything.

use vellum::{Allocate, Cred, Error, FileFlags, Handle, Node, OpenOptions, RenameFlags, XattrMode};
use vellum_model::{CAPABILITY, SnapshotBody, pattern};

use crate::memories::Explored;
use crate::session::{ExploredFs, Result};
use crate::tree::{Tree, read_all, read_tree};

/// The most files and the most directories of the tree that are used.
const FEW: usize = 3;
/// A name that no workload uses.
const NAME: &[u8] = b"~used";
/// An extended attribute that no workload uses.
const XATTR: &[u8] = b"user.~used";
/// Bytes of a block.
const BLOCK: u64 = 4096;

fn read_write() -> OpenOptions {
    OpenOptions::new().read(true).write(true).no_atime(true)
}

/// Makes, writes, renames, links and removes files; extends files of the tree and cuts them again;
/// fills the pool until nothing more fits, and frees space again. Afterwards the tree is what it
/// was. If there is not enough space for all this, everything is removed first, and the tree that
/// is left is returned.
///
/// # Errors
/// Something did not work, or did not have the content that it should have.
pub(crate) fn exercise(fs: &ExploredFs, tree: &Tree) -> Result<Option<Tree>> {
    set_guards(fs, tree, false)?;
    if has_room(fs) {
        use_tree(fs, tree)?;
        set_guards(fs, tree, true)?;
        return Ok(None);
    }
    empty(fs, tree)?;
    let rest = read_tree(fs)?;
    use_tree(fs, &rest)?;
    Ok(Some(rest))
}

/// Clears the flags that forbid changes, or sets them again.
fn set_guards(fs: &ExploredFs, tree: &Tree, are_set: bool) -> Result<()> {
    let cred = Cred::root();
    for (path, node) in &tree.nodes {
        let flags = FileFlags::from_bits_retain(node.flags);
        if flags.intersects(FileFlags::GUARDED) {
            let found = fs.find(&cred, &fs.root(), path, false)?;
            let flags = match are_set {
                true => flags,
                false => flags - FileFlags::GUARDED,
            };
            fs.set_flags(&cred, &found, flags)?;
        }
    }
    Ok(())
}

/// Whether there is enough space for all of this beside the tree.
fn has_room(fs: &ExploredFs) -> bool {
    const ENOUGH: u64 = 32;
    let usage = fs.stat_fs();
    usage.blocks_free.min(usage.files_free) >= ENOUGH
}

/// Removes everything, after which every block is free.
fn empty(fs: &ExploredFs, tree: &Tree) -> Result<()> {
    let cred = Cred::root();
    // In reverse order, the content of a directory comes before it.
    for (path, node) in tree.nodes.iter().rev() {
        let Some(cut) = path.iter().rposition(|&byte| byte == b'/') else {
            continue;
        };
        let (dir, name) = (&path[..cut], &path[cut + 1..]);
        if name.is_empty() {
            continue;
        }
        let dir = match dir {
            b"" => fs.root(),
            dir => fs.find(&cred, &fs.root(), dir, true)?,
        };
        match node.body {
            SnapshotBody::Dir => fs.rmdir(&cred, &dir, name)?,
            _ => fs.unlink(&cred, &dir, name)?,
        }
    }
    settle(fs)?;
    let usage = fs.stat_fs();
    expect(
        usage.blocks_free == usage.blocks,
        "an empty pool has blocks in use",
    )
}

fn use_tree(fs: &ExploredFs, tree: &Tree) -> Result<()> {
    let of_kind = |is_dir: bool| {
        let paths = tree.nodes.iter();
        paths.filter_map(move |(path, node)| match node.body {
            SnapshotBody::Dir if is_dir => Some(path),
            SnapshotBody::File { .. } if !is_dir => Some(path),
            _ => None,
        })
    };
    for dir in of_kind(true).take(FEW) {
        use_directory(fs, dir)?;
    }
    for file in of_kind(false).take(FEW) {
        use_file(fs, file)?;
    }
    fill(fs)
}

/// Takes all blocks and all space for names, writes into the last block, and frees everything.
/// Afterwards as many blocks are free, or metadata, as before.
fn fill(fs: &ExploredFs) -> Result<()> {
    let cred = Cred::root();
    settle(fs)?;
    let of_nobody = || {
        let found = fs.stat_fs();
        found.blocks_free + found.blocks_metadata
    };
    let before = of_nobody();
    let inner = fs.mkdir(&cred, &fs.root(), NAME, 0o755)?;
    let file = fs.create(&cred, &inner, b"large", &read_write())?;
    take_blocks(fs, &file)?;
    let made = make_names(fs, &inner, &file)?;
    let refused = fs.link(&cred, file.node(), &inner, &[b'z'; 255]);
    expect(is_full(&refused), "a full pool took another name")?;
    for name in made {
        fs.unlink(&cred, &inner, &name)?;
    }
    drop(file);
    fs.unlink(&cred, &inner, b"large")?;
    fs.rmdir(&cred, &fs.root(), NAME)?;
    drop(inner);
    settle(fs)?;
    expect(
        of_nobody() == before,
        "blocks were lost where the pool was filled",
    )
}

fn take_blocks(fs: &ExploredFs, file: &Handle<Explored>) -> Result<()> {
    let before = fs.stat_fs();
    let mut taken = 0;
    for blocks in [64, 8, 1] {
        let step = |i| file.allocate(Allocate::Grow, (taken + i * blocks) * BLOCK, blocks * BLOCK);
        taken += until_full(step)? * blocks;
    }
    let grown = fs
        .stat_fs()
        .blocks_metadata
        .saturating_sub(before.blocks_metadata);
    expect(
        taken + grown >= before.blocks_free,
        "free blocks that cannot be allocated",
    )?;
    let refused = file.write_at((taken + 1) * BLOCK, &[1]);
    expect(is_full(&refused), "a write found a block in a full pool")?;
    file.write_at(taken * BLOCK - 1, &[1]).map(drop)
}

/// Fills most of the space with long symlinks, and the rest with names and files.
fn make_names(
    fs: &ExploredFs,
    dir: &Node<Explored>,
    file: &Handle<Explored>,
) -> Result<Vec<Vec<u8>>> {
    let cred = Cred::root();
    let name = |kind: char, i: u64| format!("{kind}{i}").into_bytes();
    let symlinks = until_full(|i| {
        fs.symlink(&cred, dir, &name('s', i), &[b't'; 4000])
            .map(drop)
    })?;
    let links = until_full(|i| fs.link(&cred, file.node(), dir, &name('l', i)))?;
    let files = until_full(|i| {
        let made = fs.create(&cred, dir, &name('f', i), &read_write());
        made.map(drop)
    })?;
    let counts = [('s', symlinks), ('l', links), ('f', files)];
    let names = counts
        .iter()
        .flat_map(|&(kind, count)| (0..count).map(move |i| name(kind, i)));
    Ok(names.collect())
}

/// Runs all background work.
fn settle(fs: &ExploredFs) -> Result<()> {
    while fs.maintain()? > 0 {}
    Ok(())
}

fn is_full<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::NoSpace(_)))
}

/// Repeats `step` until the pool is full; returns how often it succeeded.
fn until_full(step: impl Fn(u64) -> Result<()>) -> Result<u64> {
    const SANE: u64 = 1 << 16;
    for i in 0..SANE {
        match step(i) {
            Err(Error::NoSpace(_)) => return Ok(i),
            other => other?,
        }
    }
    Err(Error::Invalid("a small pool that is never full"))
}

fn use_directory(fs: &ExploredFs, path: &[u8]) -> Result<()> {
    let cred = Cred::root();
    let dir = fs.find(&cred, &fs.root(), path, true)?;
    let inner = fs.mkdir(&cred, &dir, NAME, 0o755)?;
    let options = read_write().mode(0o600);
    let file = fs.create(&cred, &inner, b"a", &options)?;
    let bytes = pattern(99, 5000);
    file.write_at(0, &bytes)?;
    file.append_beyond(9000)?;
    fs.rename(&cred, &inner, b"a", &dir, b"~b", RenameFlags::empty())?;
    fs.link(&cred, file.node(), &inner, b"c")?;
    fs.symlink(&cred, &inner, b"s", b"c")?;
    let mut expected = bytes;
    expected.resize(9000, 0);
    expected.extend_from_slice(&[1]);
    let found = fs.find(&cred, &inner, b"s", true)?;
    expect(
        read_all(fs, &found, 9001)? == expected,
        "a new file holds other bytes than written",
    )?;
    fs.unlink(&cred, &dir, b"~b")?;
    fs.unlink(&cred, &inner, b"c")?;
    fs.unlink(&cred, &inner, b"s")?;
    fs.rmdir(&cred, &dir, NAME)
}

trait AppendBeyond {
    /// Writes a byte at `offset`, past a gap.
    fn append_beyond(&self, offset: u64) -> Result<()>;
}

impl AppendBeyond for Handle<Explored> {
    fn append_beyond(&self, offset: u64) -> Result<()> {
        self.write_at(offset, &[1]).map(drop)
    }
}

/// Extends a file and checks the new bytes, then cuts it again. Then sets and removes an extended
/// attribute, and gives the file the capability again that it lost.
fn use_file(fs: &ExploredFs, path: &[u8]) -> Result<()> {
    let cred = Cred::root();
    let node = fs.find(&cred, &fs.root(), path, false)?;
    let size = fs.attr(&node)?.size;
    let before = read_all(fs, &node, size)?;
    let capability = xattr(fs, &node, CAPABILITY)?;
    let handle = fs.open_node(&cred, &node, &read_write())?;
    let check = |grown: u64, what| {
        let now = read_all(fs, &node, grown)?;
        let zeros = now[before.len()..].iter().all(|&byte| byte == 0);
        expect(now[..before.len()] == before && zeros, what)
    };
    handle.truncate(size + 5000)?;
    check(size + 5000, "old bytes appeared where a file was extended")?;
    handle.allocate(Allocate::Grow, size, 9000)?;
    check(size + 9000, "old bytes appeared in preallocated blocks")?;
    handle.write_at(size + 8999, &[1])?;
    handle.truncate(size + 8999)?;
    check(size + 8999, "old bytes appeared beside a write")?;
    handle.truncate(size)?;
    let value = pattern(98, 5000);
    fs.set_xattr(&cred, &node, XATTR, &value, XattrMode::Create)?;
    expect(
        xattr(fs, &node, XATTR)? == Some(value),
        "an extended attribute has another value than set",
    )?;
    fs.remove_xattr(&cred, &node, XATTR)?;
    match capability {
        Some(value) => fs.set_xattr(&cred, &node, CAPABILITY, &value, XattrMode::Create),
        None => Ok(()),
    }
}

fn xattr(fs: &ExploredFs, node: &Node<Explored>, name: &[u8]) -> Result<Option<Vec<u8>>> {
    match fs.xattr(&Cred::root(), node, name) {
        Err(Error::NoAttribute) => Ok(None),
        found => found.map(Some),
    }
}

fn expect(holds: bool, what: &'static str) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(Error::Invalid(what))
    }
}
