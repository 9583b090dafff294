//! The whole tree of an engine as a value, for comparison with the model's.

use std::collections::BTreeMap;
use std::sync::Arc;

use vellum::media::Memories;
use vellum::{Attr, Cred, Error, FileKind, Fs, ListPosition, Node, OpenOptions, Result};
use vellum_driver::{kind_of, xattrs_of};
use vellum_model::{Model, NodeSnapshot, Snapshot, SnapshotBody, Times};

use super::fixture::{CLOCK_END, CLOCK_START};

const READ: OpenOptions = OpenOptions::new()
    .read(true)
    .write(false)
    .append(false)
    .truncate(false)
    .create(false)
    .create_new(false)
    .no_follow(false)
    .directory(false)
    .no_atime(true)
    .mode(0);

/// The names in a directory with inode number and kind, in listing order.
pub(crate) fn names<M: Memories>(
    fs: &Fs<M>,
    dir: &Node<M>,
) -> Result<Vec<(Vec<u8>, u64, FileKind)>> {
    let mut names = Vec::new();
    fs.list(dir, 0, &mut ListPosition::default(), &mut |entry| {
        names.push((entry.name.to_vec(), entry.ino, entry.kind));
        true
    })?;
    Ok(names)
}

/// The whole visible tree.
pub(crate) fn snapshot<M: Memories>(fs: &Arc<Fs<M>>) -> Result<Snapshot> {
    snapshot_below(fs, &fs.root())
}

/// The visible tree below a directory, which is called `/`.
fn snapshot_below<M: Memories>(fs: &Arc<Fs<M>>, start: &Node<M>) -> Result<Snapshot> {
    let mut found = BTreeMap::new();
    let attr = fs.attr(start)?;
    found.insert(b"/".to_vec(), (attr.ino, node_of(fs, start, &attr)?));
    below(fs, start, b"", &mut found)?;
    let mut identities = BTreeMap::new();
    for (path, (ino, _)) in &found {
        identities.entry(*ino).or_insert_with(|| path.clone());
    }
    let named = |(path, (ino, mut node)): (Vec<u8>, (u64, NodeSnapshot))| {
        node.identity = identities[&ino].clone();
        (path, node)
    };
    Ok(found.into_iter().map(named).collect())
}

type Found = BTreeMap<Vec<u8>, (u64, NodeSnapshot)>;

fn below<M: Memories>(
    fs: &Arc<Fs<M>>,
    dir: &Node<M>,
    prefix: &[u8],
    found: &mut Found,
) -> Result<()> {
    for (name, ino, kind) in names(fs, dir)? {
        let path = [prefix, b"/", &name[..]].concat();
        let node = fs.lookup(&Cred::root(), dir, &name)?;
        let attr = fs.attr(&node)?;
        assert_eq!(
            (ino, kind),
            (attr.ino, attr.kind),
            "{}",
            path.escape_ascii()
        );
        if kind == FileKind::Directory {
            assert_eq!(fs.parent_ino(&node)?, dir.ino(), "{}", path.escape_ascii());
            below(fs, &node, &path, found)?;
        }
        let before = found.insert(path, (ino, node_of(fs, &node, &attr)?));
        assert!(
            before.is_none(),
            "a name was listed twice: {}",
            name.escape_ascii()
        );
    }
    Ok(())
}

fn node_of<M: Memories>(fs: &Arc<Fs<M>>, node: &Node<M>, attr: &Attr) -> Result<NodeSnapshot> {
    let body = match attr.kind {
        FileKind::Directory => SnapshotBody::Dir,
        FileKind::Symlink => SnapshotBody::Symlink(fs.read_link(node)?),
        FileKind::File => file_body(fs, node, attr.size)?,
        kind => SnapshotBody::Special {
            kind: kind_of(kind),
            device: attr.device,
        },
    };
    Ok(NodeSnapshot {
        body,
        mode: attr.mode.into(),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        identity: Vec::new(),
        xattrs: xattrs_of(fs, node)?,
        flags: node.flags().bits(),
        project: fs.project(node)?,
        times: Some(Times {
            atime: attr.atime_ns,
            mtime: attr.mtime_ns,
            ctime: attr.ctime_ns,
        }),
    })
}

/// The contents of the ranges that the engine reports as data; files may be far larger than memory.
fn file_body<M: Memories>(fs: &Arc<Fs<M>>, node: &Node<M>, size: u64) -> Result<SnapshotBody> {
    let handle = fs.open_node(&Cred::root(), node, &READ)?;
    let mut extents = Vec::new();
    let mut at = 0;
    loop {
        let start = match handle.seek_data(at) {
            Ok(start) => start,
            Err(Error::NoData) => break,
            Err(error) => return Err(error),
        };
        at = handle.seek_hole(start)?;
        let mut bytes = vec![0; (at - start) as usize];
        let len = handle.read_at(start, &mut bytes)?;
        assert_eq!(len, bytes.len(), "data ends with the file or before");
        extents.push((start, bytes));
    }
    Ok(SnapshotBody::from_extents(
        size,
        extents.iter().map(|(at, bytes)| (*at, &bytes[..])),
    ))
}

/// Whether this time comes from the clock. Otherwise an operation set it explicitly.
fn is_of_clock(time: i64) -> bool {
    (CLOCK_START..CLOCK_END).contains(&time)
}

/// Reduces a tree to what engine and model must agree on. Times are compared only where they were
/// set explicitly. Access times are compared only for files: the two do not update the access time
/// of a listed directory alike, and only the engine reads a link to follow it.
pub(crate) fn comparable(tree: Snapshot) -> Snapshot {
    let explicit = |time: i64| if is_of_clock(time) { CLOCK_START } else { time };
    let strip = |(path, mut node): (Vec<u8>, NodeSnapshot)| {
        let is_file = matches!(node.body, SnapshotBody::File { .. });
        node.times = node.times.map(|times| Times {
            atime: if is_file { explicit(times.atime) } else { 0 },
            mtime: explicit(times.mtime),
            ctime: explicit(times.ctime),
        });
        (path, node)
    };
    tree.into_iter().map(strip).collect()
}

/// The differences between the trees of model and engine.
pub(crate) fn compare<M: Memories>(
    model: &Model,
    fs: &Arc<Fs<M>>,
) -> std::result::Result<(), String> {
    compare_below(model, fs, &fs.root())
}

/// The differences between the trees of a model and of a directory of the engine.
pub(crate) fn compare_below<M: Memories>(
    model: &Model,
    fs: &Arc<Fs<M>>,
    start: &Node<M>,
) -> std::result::Result<(), String> {
    let engine = snapshot_below(fs, start)
        .map_err(|error| format!("the engine cannot be listed: {error:?}"))?;
    let differences = vellum_model::diff(&comparable(model.snapshot(true)), &comparable(engine));
    if differences.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "trees differ (model / engine):\n{}",
            differences.join("\n")
        ))
    }
}
