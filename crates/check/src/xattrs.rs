//! The extended attributes of inodes: one set of records each, in slots or in a chain of blocks.

use vellum_layout::{
    ChunkKind, Geometry, IdentityWord, SLOTS_PER_BLOCK, XATTR_SET_MAX, XattrHead, read_xattrs,
    xattr_flags, xattr_home,
};
use zerocopy::FromBytes;

use crate::header::Chunks;
use crate::image::Window;
use crate::inodes::Node;

/// The extended attributes of an inode, as far as they are sound.
#[derive(Clone, Debug, Default)]
pub struct XattrSet {
    /// First slot and number of slots of each sound piece, in order.
    pub pieces: Vec<(u64, u64)>,
    /// The bytes of the set in these pieces.
    pub bytes: Vec<u8>,
    /// What is wrong, and with which slot: with the piece there, or with the set that begins there.
    pub fault: Option<(u64, &'static str)>,
}

impl XattrSet {
    /// The flags of the identity word; `None` if the set is unsound.
    pub fn flags(&self) -> Option<u64> {
        if self.fault.is_some() {
            return None;
        }
        let xattrs = read_xattrs(&self.bytes);
        Some(xattrs.map_or(0, |xattrs| xattr_flags(&xattrs)))
    }

    fn whole_fault(&self, kind: ChunkKind) -> Option<&'static str> {
        if read_xattrs(&self.bytes).is_none() {
            Some("begins a set of unsound records")
        } else if xattr_home(self.bytes.len()).0 != kind {
            Some("begins a set that is too short for a block")
        } else {
            None
        }
    }
}

/// Reads the set of an inode. A piece is under a checksum with its inode, so whatever the bytes
/// are, no piece is part of two sets.
pub(crate) fn read_set(
    window: &mut Window,
    geometry: &Geometry,
    chunks: &Chunks,
    node: &Node,
) -> XattrSet {
    let mut set = XattrSet::default();
    if node.xattr_root == 0 {
        return set;
    }
    let Some(kind) = chunks.kind_of(node.xattr_root) else {
        set.fault = Some((node.xattr_root, NOWHERE));
        return set;
    };
    let mut slot = node.xattr_root;
    while slot != 0 {
        let next = if set.pieces.iter().any(|piece| piece.0 == slot) {
            Err("follows itself")
        } else {
            read_piece(window, geometry, chunks, (node, slot, kind), &mut set)
        };
        match next {
            Ok(next) => slot = next,
            Err(why) => {
                set.fault = Some((slot, why));
                return set;
            }
        }
    }
    let fault = set.whole_fault(kind);
    set.fault = fault.map(|why| (node.xattr_root, why));
    set
}

const NOWHERE: &str = "lies where no attributes can be";

/// Adds the piece at `slot`, in a chunk of `kind`; returns the slot of the next one.
fn read_piece(
    window: &mut Window,
    geometry: &Geometry,
    chunks: &Chunks,
    (node, slot, kind): (&Node, u64, ChunkKind),
    set: &mut XattrSet,
) -> Result<u64, &'static str> {
    let is_aligned = kind != ChunkKind::Blocks || slot.is_multiple_of(SLOTS_PER_BLOCK);
    if !is_aligned || !chunks.holds(slot, 1, kind) {
        return Err(NOWHERE);
    }
    let at = geometry.slot_at(slot);
    let head = window.get(at, size_of::<XattrHead>()).ok_or(NOWHERE)?;
    let head = XattrHead::read_from_bytes(head).map_err(|_| NOWHERE)?;
    if !head.fits(kind) {
        return Err("has an impossible head");
    }
    let len = usize::from(head.len);
    let slots = match kind {
        ChunkKind::Blocks => SLOTS_PER_BLOCK,
        _ => xattr_home(len).1,
    };
    if !chunks.holds(slot, slots, kind) {
        return Err(NOWHERE);
    }
    if set.bytes.len() + len > XATTR_SET_MAX {
        return Err("makes the set too long");
    }
    let records = window.get(at + size_of::<XattrHead>() as u64, len);
    let records = records.ok_or(NOWHERE)?;
    let generation = node.identity.generation();
    if head.checksum != head.expected_checksum(node.slot, generation, records) {
        return Err("does not fit its checksum");
    }
    set.bytes.extend_from_slice(records);
    set.pieces.push((slot, slots));
    Ok(head.next)
}

/// Flags of an identity word, in words.
pub(crate) fn flags_text(flags: u64) -> String {
    names_of(
        flags,
        &[
            (IdentityWord::ACCESS_LIST, "access list"),
            (IdentityWord::DEFAULT_LIST, "default list"),
            (IdentityWord::CAPABILITY, "capability"),
        ],
    )
}

/// The names of the flags that are set.
pub(crate) fn names_of(flags: u64, all: &[(u64, &'static str)]) -> String {
    let set = all.iter().filter(|(flag, _)| flags & flag != 0);
    let names: Vec<&str> = set.map(|(_, name)| *name).collect();
    match &names[..] {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}
