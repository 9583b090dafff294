//! The inodes: one pass over the chunks that hold them.

use vellum_layout::{
    ChunkKind, FileKind, Geometry, IdentityWord, Inode, InodeState, LinksWord, ROOT_SLOT,
    SLOT_BYTES,
};
use zerocopy::FromBytes;

use crate::header::Chunks;
use crate::image::{View, Window};
use crate::report::Class;

/// The checker's record of an inode in use, and its findings about it.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its metadata slot.
    pub slot: u64,
    /// Its identity word.
    pub identity: IdentityWord,
    /// Its kind.
    pub kind: FileKind,
    /// Whether it is open without a name.
    pub orphan: bool,
    /// Its recorded link count.
    pub links: u32,
    /// Its recorded parent.
    pub parent: u64,
    /// Its recorded size.
    pub size: u64,
    /// Its change time.
    pub ctime: i64,
    /// Its root word.
    pub root: u64,
    /// Symlinks: the check of the target. Directories: the log's tail in the namespace *tree*, the
    /// location of the names in *adaptive*.
    pub detail: u64,
    /// Slot of the first piece of its extended attributes, or 0.
    pub xattr_root: u64,
    /// A reserved field that is set.
    pub reserved: Option<&'static str>,
    /// Valid entries that name it.
    pub names: u32,
    /// The directory (node) whose entry was found first.
    pub named_by: u32,
    /// Directories: valid entries that name directories.
    pub subdirectories: u32,
    /// Directories: valid entries of any kind.
    pub children: u32,
    /// Directories: the latest time of its entries.
    pub latest: i64,
    /// Directories: whether the root reaches it.
    pub reached: bool,
    /// Whether it is in use for certain: named, or not judged leniently.
    pub kept: bool,
}

/// An inode slot that is not free and holds no sound inode.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Its metadata slot.
    pub slot: u64,
    /// What is wrong.
    pub class: Class,
    /// The details.
    pub detail: String,
    /// Its root, which may be a mapping root.
    pub root: u64,
    /// Whether a valid entry names it.
    pub named: bool,
}

/// What an inode number leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No inode slot.
    Nowhere,
    /// A slot not in use.
    Free,
    /// A slot with an unsound inode: its number in [`Nodes::broken`].
    Broken(u32),
    /// A node.
    Node(u32),
}

const FREE: u32 = u32::MAX;
const BROKEN: u32 = 1 << 31;

/// Every inode in use.
pub struct Nodes {
    /// The sound ones, by slot.
    pub list: Vec<Node>,
    /// The unsound ones, by slot.
    pub broken: Vec<Broken>,
    /// The contents of each slot of the inode chunks, in order of chunk.
    index: Vec<u32>,
    /// Where each chunk's part of `index` begins.
    base: Vec<u32>,
    slots_per_chunk: u64,
}

impl Nodes {
    /// Reads every chunk of inodes.
    pub(crate) fn read(
        view: &View,
        geometry: &Geometry,
        chunks: &Chunks,
        mut tick: impl FnMut(u64),
    ) -> Self {
        let per_chunk = chunks.slots_per_chunk();
        let mut nodes = Self {
            list: Vec::new(),
            broken: Vec::new(),
            index: Vec::new(),
            base: vec![FREE; geometry.chunks_end() as usize],
            slots_per_chunk: per_chunk,
        };
        for (done, chunk) in chunks.of(ChunkKind::Inodes).enumerate() {
            tick(done as u64);
            nodes.base[chunk as usize] = nodes.index.len() as u32;
            let first = chunk * per_chunk;
            let start = geometry.slot_at(first);
            let mut window = Window::new(view, start, start + geometry.chunk_bytes);
            for slot in first..first + per_chunk {
                let at = geometry.slot_at(slot);
                let found = window
                    .get(at, SLOT_BYTES as usize)
                    .map_or(FREE, |bytes| nodes.take(slot, bytes, geometry));
                nodes.index.push(found);
            }
        }
        nodes
    }

    fn take(&mut self, slot: u64, bytes: &[u8], geometry: &Geometry) -> u32 {
        // Slot 0 is never an inode: 0 means none everywhere.
        let Ok(inode) = Inode::read_from_bytes(bytes) else {
            return FREE;
        };
        if IdentityWord(inode.identity).state() == Some(InodeState::Free) || slot == 0 {
            return FREE;
        }
        match Node::new(slot, &inode, geometry) {
            Ok(node) => {
                self.list.push(node);
                self.list.len() as u32 - 1
            }
            Err((class, detail)) => {
                self.broken.push(Broken {
                    slot,
                    class,
                    detail,
                    root: inode.root,
                    named: false,
                });
                BROKEN | (self.broken.len() as u32 - 1)
            }
        }
    }

    /// The contents of `slot`.
    pub fn find(&self, slot: u64) -> Found {
        let base = usize::try_from(slot / self.slots_per_chunk)
            .ok()
            .and_then(|chunk| self.base.get(chunk));
        let Some(&base) = base.filter(|base| **base != FREE) else {
            return Found::Nowhere;
        };
        match self.index[base as usize + (slot % self.slots_per_chunk) as usize] {
            FREE => Found::Free,
            word if word & BROKEN != 0 => Found::Broken(word & !BROKEN),
            word => Found::Node(word),
        }
    }

    /// The root directory's node.
    pub fn root(&self) -> Option<u32> {
        match self.find(ROOT_SLOT) {
            Found::Node(node) if self.list[node as usize].kind == FileKind::Directory => Some(node),
            _ => None,
        }
    }
}

impl Node {
    /// The first reserved field that is set.
    pub fn reserved(&self) -> Option<&'static str> {
        self.reserved
    }

    pub(crate) fn new(
        slot: u64,
        inode: &Inode,
        geometry: &Geometry,
    ) -> Result<Self, (Class, String)> {
        let identity = IdentityWord(inode.identity);
        let state = identity.state().ok_or_else(|| {
            let detail = format!("state {} is not known", identity.0 as u8);
            (Class::InodeState, detail)
        })?;
        let expected = inode.expected_checksum(slot);
        if inode.checksum != expected {
            let detail = format!("has {:#010x}, needs {expected:#010x}", inode.checksum);
            return Err((Class::InodeChecksum, detail));
        }
        let kind = identity.kind().ok_or_else(|| {
            let detail = format!("kind {} is not known", (identity.0 >> 8) as u8);
            (Class::InodeKind, detail)
        })?;
        Ok(Self {
            slot,
            identity,
            kind,
            orphan: state == InodeState::Orphan,
            links: LinksWord(inode.links).links(),
            parent: inode.parent,
            size: inode.size,
            ctime: inode.ctime,
            root: inode.root,
            detail: inode.detail,
            xattr_root: inode.xattr_root,
            reserved: reserved(inode, kind, geometry),
            names: 0,
            named_by: 0,
            subdirectories: 0,
            children: 0,
            latest: 0,
            reached: false,
            kept: true,
        })
    }
}

/// The first reserved field of `inode` that is set.
fn reserved(inode: &Inode, kind: FileKind, geometry: &Geometry) -> Option<&'static str> {
    let fields = [
        (
            LinksWord(inode.links).flags() != 0,
            "flags this release does not know",
        ),
        (
            !IdentityWord(inode.identity).has_sound_flags(),
            "flags that a file of this kind cannot have",
        ),
        (inode.acl_root != 0, "the root of access control lists"),
        (
            inode.detail != 0 && !geometry.has_detail(kind),
            "further mapping roots",
        ),
        (
            !inode.has_sound_pattern(kind, geometry.namespace),
            "the access pattern",
        ),
    ];
    fields.iter().find(|(set, _)| *set).map(|(_, name)| *name)
}
