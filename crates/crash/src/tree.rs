//! The whole visible tree of an explored file system, in the form of the model's snapshots.

use std::collections::BTreeMap;

use vellum::{Cred, Error, FileKind, ListPosition, Node, OpenOptions};
use vellum_driver::{kind_of, usage_of, xattrs_of};
use vellum_model::{BLOCK_SIZE, NodeSnapshot, QuotaKind, Snapshot, SnapshotBody, Space, Times};

use crate::memories::Explored;
use crate::session::{ExploredFs, Result};
use crate::workload::BlocksAlone;

/// A tree, and separately its times and space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    /// Everything but times.
    pub(crate) nodes: Snapshot,
    /// Inode number and times of every path.
    pub(crate) times: BTreeMap<Vec<u8>, (u64, Times)>,
    /// The space of each inode, in units of 512 bytes.
    pub(crate) space: BTreeMap<u64, u64>,
}

impl Tree {
    /// The times of an inode, if it has a name.
    pub(crate) fn times_of(&self, ino: u64) -> Option<Times> {
        let mut all = self.times.values();
        all.find(|(number, _)| *number == ino)
            .map(|(_, times)| *times)
    }

    /// Whether each name has the same inode as in `other`.
    pub(crate) fn has_inodes_of(&self, other: &Self) -> bool {
        let numbers = |tree: &Self| tree.times.values().map(|(ino, _)| *ino).collect::<Vec<_>>();
        self.times.keys().eq(other.times.keys()) && numbers(self) == numbers(other)
    }

    /// The snapshot of an inode, if it has a name.
    pub(crate) fn find(&self, ino: u64) -> Option<&NodeSnapshot> {
        let mut all = self.times.iter();
        let (path, _) = all.find(|(_, (number, _))| *number == ino)?;
        self.nodes.get(path)
    }

    /// What users, groups and projects use.
    fn usage(&self) -> BTreeMap<(QuotaKind, u32), Space> {
        let mut usage = BTreeMap::<_, Space>::new();
        let firsts = self
            .nodes
            .iter()
            .filter(|(path, node)| **path == node.identity);
        for (path, node) in firsts {
            let bytes = match node.body {
                SnapshotBody::File { .. } => self.space[&self.times[path].0] * 512,
                SnapshotBody::Dir => BLOCK_SIZE as u64,
                _ => 0,
            };
            for key in [
                (QuotaKind::User, node.uid),
                (QuotaKind::Group, node.gid),
                (QuotaKind::Project, node.project),
            ] {
                let space = usage.entry(key).or_default();
                space.bytes += bytes;
                space.inodes += 1;
            }
        }
        usage
    }

    /// The same tree, with the content of each file replaced by that of the file of the same name
    /// and size in `other`.
    pub(crate) fn with_contents_of(&self, other: &Snapshot) -> Self {
        let mut tree = self.clone();
        for (path, node) in &mut tree.nodes {
            let of_other = other.get(path).map(|node| &node.body);
            if let (
                SnapshotBody::File { size, blocks },
                Some(SnapshotBody::File {
                    size: its_size,
                    blocks: its_blocks,
                }),
            ) = (&mut node.body, of_other)
                && size == its_size
            {
                blocks.clone_from(its_blocks);
            }
        }
        tree
    }

    /// The same tree, with zeros in these blocks of a file.
    pub(crate) fn with_hole(&self, hole: &BlocksAlone) -> Self {
        let mut tree = self.clone();
        let path = format!("/{}", hole.path).into_bytes();
        let ino_of = |path: &Vec<u8>| self.times.get(path).map(|(ino, _)| *ino);
        let ino = ino_of(&path);
        for (path, node) in &mut tree.nodes {
            if let SnapshotBody::File { blocks, .. } = &mut node.body
                && ino_of(path) == ino
            {
                blocks.retain(|at, _| !(hole.first..hole.first + hole.count).contains(at));
            }
        }
        tree
    }
}

/// Reads everything that is reachable from the root.
pub(crate) fn read_tree(fs: &ExploredFs) -> Result<Tree> {
    let mut reader = Reader {
        fs,
        tree: Tree::default(),
    };
    let root = fs.root();
    reader.add(b"/".to_vec(), &root)?;
    reader.below(&root, b"")?;
    let tree = reader.finish();
    if usage_of(fs)?.is_some_and(|usage| usage != tree.usage()) {
        return Err(Error::Invalid("usage is not what the files take"));
    }
    Ok(tree)
}

struct Reader<'a> {
    fs: &'a ExploredFs,
    tree: Tree,
}

impl Reader<'_> {
    fn below(&mut self, dir: &Node<Explored>, prefix: &[u8]) -> Result<()> {
        let mut names = Vec::new();
        self.fs
            .list(dir, 0, &mut ListPosition::default(), &mut |entry| {
                names.push((entry.name.to_vec(), entry.ino, entry.kind));
                true
            })?;
        for (name, ino, kind) in names {
            let node = self.fs.lookup(&Cred::root(), dir, &name)?;
            if node.ino() != ino || node.kind() != kind {
                return Err(Error::Invalid("a listing and a lookup disagree"));
            }
            let path = [prefix, b"/", &name].concat();
            self.add(path.clone(), &node)?;
            if kind == FileKind::Directory {
                if self.tree.times.len() > 1 << 16 {
                    return Err(Error::Invalid("the tree has no end"));
                }
                self.below(&node, &path)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: Vec<u8>, node: &Node<Explored>) -> Result<()> {
        let attr = self.fs.attr(node)?;
        // Reading a link changes its access time, so the attributes are those read under its first
        // name.
        let told = match attr.kind {
            FileKind::Symlink if attr.nlink > 1 => self.tree.times_of(attr.ino),
            _ => None,
        };
        let body = match attr.kind {
            FileKind::Directory => SnapshotBody::Dir,
            FileKind::Symlink => SnapshotBody::Symlink(self.fs.read_link(node)?),
            FileKind::File => SnapshotBody::from_bytes(&read_all(self.fs, node, attr.size)?),
            kind => SnapshotBody::Special {
                kind: kind_of(kind),
                device: attr.device,
            },
        };
        let times = told.unwrap_or(Times {
            atime: attr.atime_ns,
            mtime: attr.mtime_ns,
            ctime: attr.ctime_ns,
        });
        let snapshot = NodeSnapshot {
            body,
            mode: u32::from(attr.mode),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            identity: Vec::new(),
            xattrs: xattrs_of(self.fs, node)?,
            flags: node.flags().bits(),
            project: self.fs.project(node)?,
            times: None,
        };
        self.tree.times.insert(path.clone(), (attr.ino, times));
        self.tree.space.insert(attr.ino, attr.blocks_512);
        if self.tree.nodes.insert(path, snapshot).is_some() {
            return Err(Error::Invalid("a directory lists a name twice"));
        }
        Ok(())
    }

    fn finish(mut self) -> Tree {
        let mut first = BTreeMap::new();
        for (path, (ino, _)) in &self.tree.times {
            first.entry(*ino).or_insert(path);
        }
        for (path, node) in &mut self.tree.nodes {
            node.identity = first[&self.tree.times[path].0].clone();
        }
        self.tree
    }
}

/// Reads a file without touching its access time.
pub(crate) fn read_all(fs: &ExploredFs, node: &Node<Explored>, size: u64) -> Result<Vec<u8>> {
    const SIZE_SANE: u64 = 64 << 20;
    if size > SIZE_SANE {
        return Err(Error::Invalid(
            "a file is larger than any workload makes it",
        ));
    }
    let options = OpenOptions::new().read(true).no_atime(true);
    let handle = fs.open_node(&Cred::root(), node, &options)?;
    let mut bytes = vec![0; size as usize];
    if handle.read_at(0, &mut bytes)? as u64 == size {
        Ok(bytes)
    } else {
        Err(Error::Invalid("a read ended before the end of the file"))
    }
}
