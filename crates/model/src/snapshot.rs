//! The whole visible tree as a value that can be compared.

use crate::text::Flags;
use crate::tree::Body;
use crate::{BLOCK_SIZE, Block, Content, Ino, Kind, Model};
use std::collections::{BTreeMap, BTreeSet};

/// A tree by absolute path; the root is `/`. It lacks files that only exist in open handles.
pub type Snapshot = BTreeMap<Vec<u8>, NodeSnapshot>;

/// The three times of an inode, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Last read.
    pub atime: i64,
    /// Last change of content.
    pub mtime: i64,
    /// Last change of content or attributes.
    pub ctime: i64,
}

/// The node of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSnapshot {
    /// Content.
    pub body: SnapshotBody,
    /// The low 12 bits of `st_mode`.
    pub mode: u32,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The first path, in byte order, of the same inode: equal for paths that are hard links of
    /// each other.
    pub identity: Vec<u8>,
    /// Extended attributes by name, with the access control lists.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Flags of `FS_IOC_SETFLAGS`.
    pub flags: u32,
    /// Project id.
    pub project: u32,
    /// Times, if they were requested.
    pub times: Option<Times>,
}

/// Content of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotBody {
    /// A regular file: its size and its blocks of 4 KiB that are not all zeros, by block number.
    /// Bytes of the last block past the end of file are zero, so equal contents are equal values,
    /// however sparse.
    File {
        /// Size in bytes.
        size: u64,
        /// Blocks that are not all zeros.
        blocks: BTreeMap<u64, Vec<u8>>,
    },
    /// A directory; its names are the paths below it.
    Dir,
    /// A symbolic link and its target.
    Symlink(Vec<u8>),
    /// A pipe, socket or device.
    Special {
        /// Its kind.
        kind: Kind,
        /// Its device number, `st_rdev`.
        device: u64,
    },
}

impl SnapshotBody {
    /// The content of a file that holds these bytes.
    pub fn from_bytes(bytes: &[u8]) -> SnapshotBody {
        SnapshotBody::from_extents(bytes.len() as u64, [(0, bytes)])
    }

    /// The content of a file of this size with these bytes at these offsets, and zeros elsewhere.
    /// Offsets must be multiples of the block size.
    pub fn from_extents<'a>(
        size: u64,
        extents: impl IntoIterator<Item = (u64, &'a [u8])>,
    ) -> SnapshotBody {
        let mut blocks = BTreeMap::new();
        for (offset, bytes) in extents {
            assert_eq!(offset % BLOCK_SIZE as u64, 0, "an extent begins at a block");
            for (index, block) in bytes.chunks(BLOCK_SIZE).enumerate() {
                if *block != [0; BLOCK_SIZE][..block.len()] {
                    let mut whole = block.to_vec();
                    whole.resize(BLOCK_SIZE, 0);
                    blocks.insert(offset / BLOCK_SIZE as u64 + index as u64, whole);
                }
            }
        }
        SnapshotBody::File { size, blocks }
    }

    fn from_content(content: &Content) -> SnapshotBody {
        let data = content
            .blocks()
            .iter()
            .filter_map(|(&index, block)| match block {
                Block::Data(data) => Some((index * BLOCK_SIZE as u64, &data[..])),
                Block::Unwritten => None,
            });
        SnapshotBody::from_extents(content.size(), data)
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            SnapshotBody::File { .. } => Kind::File,
            SnapshotBody::Dir => Kind::Dir,
            SnapshotBody::Symlink(_) => Kind::Symlink,
            SnapshotBody::Special { kind, .. } => *kind,
        }
    }

    /// Size in bytes; 0 for a directory.
    pub fn size(&self) -> u64 {
        match self {
            SnapshotBody::File { size, .. } => *size,
            SnapshotBody::Dir | SnapshotBody::Special { .. } => 0,
            SnapshotBody::Symlink(target) => target.len() as u64,
        }
    }

    /// All bytes of a file, holes as zeros; `None` for anything else.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let SnapshotBody::File { size, blocks } = self else {
            return None;
        };
        let mut bytes = vec![0; *size as usize];
        for (index, block) in blocks {
            let start = *index as usize * BLOCK_SIZE;
            let end = bytes.len().min(start + BLOCK_SIZE);
            bytes[start..end].copy_from_slice(&block[..end - start]);
        }
        Some(bytes)
    }
}

impl Model {
    /// The tree as a value, with times if `with_times`.
    pub fn snapshot(&self, with_times: bool) -> Snapshot {
        let mut inodes = BTreeMap::new();
        self.paths_below(Ino::ROOT, b"", &mut inodes);
        inodes.insert(b"/".to_vec(), Ino::ROOT);
        let mut identities = BTreeMap::new();
        for (path, ino) in &inodes {
            identities.entry(*ino).or_insert_with(|| path.clone());
        }
        let node = |ino| self.node_snapshot(ino, &identities[&ino], with_times);
        inodes
            .into_iter()
            .map(|(path, ino)| (path, node(ino)))
            .collect()
    }

    fn paths_below(&self, dir: Ino, prefix: &[u8], paths: &mut BTreeMap<Vec<u8>, Ino>) {
        let Ok(entries) = self.entries(dir) else {
            return;
        };
        for (name, &ino) in entries {
            let path = [prefix, b"/", name].concat();
            self.paths_below(ino, &path, paths);
            paths.insert(path, ino);
        }
    }

    fn node_snapshot(&self, ino: Ino, identity: &[u8], with_times: bool) -> NodeSnapshot {
        let node = &self.nodes[&ino];
        NodeSnapshot {
            body: match &node.body {
                Body::File(content) => SnapshotBody::from_content(content),
                Body::Dir { .. } => SnapshotBody::Dir,
                Body::Symlink(target) => SnapshotBody::Symlink(target.clone()),
                &Body::Special(kind, device) => SnapshotBody::Special { kind, device },
            },
            mode: node.mode,
            nlink: node.nlink,
            uid: node.uid,
            gid: node.gid,
            identity: identity.to_vec(),
            xattrs: match ino {
                Ino::ROOT => {
                    let mut all = node.all_xattrs();
                    all.extend(self.limits_by_name());
                    all
                }
                _ => node.all_xattrs(),
            },
            flags: node.flags,
            project: node.project,
            times: with_times.then_some(Times {
                atime: node.atime,
                mtime: node.mtime,
                ctime: node.ctime,
            }),
        }
    }
}

/// The differences between two trees, one per line; empty if they are equal.
pub fn diff(left: &Snapshot, right: &Snapshot) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, node) in left {
        let name = path.escape_ascii();
        match right.get(path) {
            None => lines.push(format!("{name}: only left ({})", node.body.kind())),
            Some(other) => diff_nodes(&name.to_string(), node, other, &mut lines),
        }
    }
    for (path, node) in right.iter().filter(|(path, _)| !left.contains_key(*path)) {
        lines.push(format!(
            "{}: only right ({})",
            path.escape_ascii(),
            node.body.kind()
        ));
    }
    lines
}

fn diff_nodes(name: &str, left: &NodeSnapshot, right: &NodeSnapshot, lines: &mut Vec<String>) {
    let mut differ = |what: &str, left: String, right: String| {
        if left != right {
            lines.push(format!("{name}: {what} {left} / {right}"));
        }
    };
    let ascii = |bytes: &[u8]| bytes.escape_ascii().to_string();
    differ(
        "kind",
        left.body.kind().to_string(),
        right.body.kind().to_string(),
    );
    differ(
        "mode",
        format!("{:o}", left.mode),
        format!("{:o}", right.mode),
    );
    differ("nlink", left.nlink.to_string(), right.nlink.to_string());
    differ(
        "owner",
        format!("{}:{}", left.uid, left.gid),
        format!("{}:{}", right.uid, right.gid),
    );
    differ(
        "flags",
        Flags(left.flags).to_string(),
        Flags(right.flags).to_string(),
    );
    differ(
        "project",
        left.project.to_string(),
        right.project.to_string(),
    );
    differ("identity", ascii(&left.identity), ascii(&right.identity));
    let names = left.xattrs.keys().chain(right.xattrs.keys());
    for name in names.collect::<BTreeSet<_>>() {
        let value = |node: &NodeSnapshot| {
            let value = node.xattrs.get(name);
            value.map_or("none".to_owned(), |value| value_text(value))
        };
        differ(&ascii(name), value(left), value(right));
    }
    differ(
        "times",
        format!("{:?}", left.times),
        format!("{:?}", right.times),
    );
    match (&left.body, &right.body) {
        (
            SnapshotBody::File { size, blocks },
            SnapshotBody::File {
                size: other_size,
                blocks: others,
            },
        ) => {
            differ("size", size.to_string(), other_size.to_string());
            if let Some((offset, left, right)) = first_difference(blocks, others) {
                differ(
                    &format!("byte {offset}"),
                    left.to_string(),
                    right.to_string(),
                );
            }
        }
        (SnapshotBody::Symlink(target), SnapshotBody::Symlink(other)) => {
            differ("target", ascii(target), ascii(other));
        }
        (SnapshotBody::Special { device, .. }, SnapshotBody::Special { device: other, .. }) => {
            differ("device", device.to_string(), other.to_string());
        }
        _ => {}
    }
}

/// A short value, or the length of a long one and a sum of its bytes.
fn value_text(value: &[u8]) -> String {
    const SHORT: usize = 64;
    if value.len() <= SHORT {
        return format!("\"{}\"", value.escape_ascii());
    }
    let add = |sum: u32, &byte: &u8| sum.rotate_left(5).wrapping_add(byte.into());
    let sum = value.iter().fold(0, add);
    format!("{} bytes with the sum {sum:08x}", value.len())
}

/// The first offset at which contents differ, and the bytes there.
fn first_difference(
    left: &BTreeMap<u64, Vec<u8>>,
    right: &BTreeMap<u64, Vec<u8>>,
) -> Option<(u64, u8, u8)> {
    let zeros = vec![0; BLOCK_SIZE];
    let mut indices: Vec<u64> = left.keys().chain(right.keys()).copied().collect();
    indices.sort_unstable();
    indices.into_iter().find_map(|index| {
        let (left, right) = (
            left.get(&index).unwrap_or(&zeros),
            right.get(&index).unwrap_or(&zeros),
        );
        let at = left
            .iter()
            .zip(right)
            .position(|(left, right)| left != right)?;
        Some((index * BLOCK_SIZE as u64 + at as u64, left[at], right[at]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cred, apply};

    fn tree(lines: &[&str]) -> Model {
        let mut model = Model::new(0);
        for line in lines {
            let outcome = apply(&mut model, &line.parse().unwrap(), &Cred::superuser(), 1);
            assert!(
                matches!(outcome, crate::Outcome::Ok(_)),
                "{line}: {outcome}"
            );
        }
        model
    }

    #[test]
    fn holes_and_zeros_are_the_same_content() {
        let sparse = tree(&["create f 644 -", "truncate f 9000"]);
        let full = tree(&["create f 644 -", "write f 0 0 9000"]);
        assert_eq!(
            diff(&sparse.snapshot(false), &full.snapshot(false)),
            Vec::<String>::new()
        );
        assert_eq!(
            sparse.snapshot(false)[&b"/f"[..]].body,
            SnapshotBody::from_bytes(&[0; 9000])
        );
    }

    #[test]
    fn differences_are_named() {
        let left = tree(&[
            "mkdir d 755",
            "create d/f 644 -",
            "link d/f g",
            "write g 5000 1 1",
        ]);
        let right = tree(&[
            "mkdir d 700",
            "create d/f 644 -",
            "create g 644 -",
            "write g 5000 2 1",
            "create h 644 -",
        ]);
        assert_eq!(
            diff(&left.snapshot(false), &right.snapshot(false)),
            [
                "/d: mode 755 / 700",
                "/d/f: nlink 2 / 1",
                "/d/f: size 5001 / 0",
                "/d/f: byte 5000 193 / 0",
                "/g: nlink 2 / 1",
                "/g: identity /d/f / /g",
                "/g: byte 5000 193 / 206",
                "/h: only right (file)",
            ]
        );
    }
}
