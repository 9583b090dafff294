//! Using a recovered file system: what a crash left must not get in the way of anything.

use vellum::{Allocate, Cred, Error, OpenOptions, RenameFlags};
use vellum_model::{SnapshotBody, pattern};

use crate::session::{ExploredFs, Result};
use crate::tree::{Tree, read_all};

/// Files and directories of the tree that are used, at most, of each.
const FEW: usize = 3;
/// A name that no workload uses.
const NAME: &[u8] = b"~used";

fn read_write() -> OpenOptions {
    OpenOptions {
        read: true,
        write: true,
        no_atime: true,
        ..OpenOptions::default()
    }
}

/// Makes, writes, renames, links and removes; extends files that are there and cuts them again.
/// The tree is afterwards what it was.
///
/// # Errors
/// Something did not work, or did not hold what it had to.
pub(crate) fn exercise(fs: &ExploredFs, tree: &Tree) -> Result<()> {
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
    Ok(())
}

fn use_directory(fs: &ExploredFs, path: &[u8]) -> Result<()> {
    let cred = Cred::root();
    let dir = fs.find(&cred, &fs.root(), path, true)?;
    let inner = fs.mkdir(&cred, &dir, NAME, 0o755)?;
    let options = OpenOptions {
        mode: 0o600,
        ..read_write()
    };
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

impl AppendBeyond for vellum::Handle<crate::memories::Explored> {
    fn append_beyond(&self, offset: u64) -> Result<()> {
        self.write_at(offset, &[1]).map(drop)
    }
}

/// Extends a file and looks at what appears, then cuts it again.
fn use_file(fs: &ExploredFs, path: &[u8]) -> Result<()> {
    let cred = Cred::root();
    let node = fs.find(&cred, &fs.root(), path, false)?;
    let size = fs.attr(&node)?.size;
    let before = read_all(fs, &node, size)?;
    let handle = fs.open_node(&cred, &node, &read_write())?;
    let check = |grown: u64, what| {
        let now = read_all(fs, &node, grown)?;
        let zeros = now[before.len()..].iter().all(|&byte| byte == 0);
        expect(now[..before.len()] == before && zeros, what)
    };
    handle.truncate(size + 5000)?;
    check(size + 5000, "bytes came to light where a file was extended")?;
    handle.allocate(Allocate::Grow, size, 9000)?;
    check(size + 9000, "bytes came to light in preallocated blocks")?;
    handle.write_at(size + 8999, &[1])?;
    handle.truncate(size + 8999)?;
    check(size + 8999, "bytes came to light beside a write")?;
    handle.truncate(size)
}

fn expect(holds: bool, what: &'static str) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(Error::Invalid(what))
    }
}
