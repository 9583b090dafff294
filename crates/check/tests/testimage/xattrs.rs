//! Extended attributes of the pools.

use vellum_layout::{IdentityWord, Xattr, XattrHead, XattrSpace, xattr_flags, xattr_home};

use zerocopy::{FromBytes, IntoBytes};

use super::TestImage;

/// A list of 5 entries: owner, user 1, owning group, mask, others.
const ACCESS: [u8; 44] = [
    2, 0, 0, 0, // version
    1, 0, 6, 0, 255, 255, 255, 255, //
    2, 0, 7, 0, 1, 0, 0, 0, //
    4, 0, 4, 0, 255, 255, 255, 255, //
    16, 0, 6, 0, 255, 255, 255, 255, //
    32, 0, 4, 0, 255, 255, 255, 255,
];
/// A list of 3 entries.
const DEFAULT: [u8; 28] = [
    2, 0, 0, 0, // version
    1, 0, 7, 0, 255, 255, 255, 255, //
    4, 0, 5, 0, 255, 255, 255, 255, //
    32, 0, 5, 0, 255, 255, 255, 255,
];

/// Attributes that fill three slots.
pub(crate) const LABELS: [Xattr<'static>; 3] = [
    Xattr {
        space: XattrSpace::Access,
        name: b"",
        value: &ACCESS,
    },
    Xattr {
        space: XattrSpace::Security,
        name: b"capability",
        value: &[2; 20],
    },
    Xattr {
        space: XattrSpace::User,
        name: b"note",
        value: &[3; 250],
    },
];

/// Attributes that need three blocks; the second of the three is longer than a block.
pub(crate) fn large() -> [Xattr<'static>; 3] {
    let user = |name, value| Xattr {
        space: XattrSpace::User,
        name,
        value,
    };
    [
        Xattr {
            space: XattrSpace::Default,
            name: b"",
            value: &DEFAULT,
        },
        user(b"large", &[5; 8000]),
        user(b"last", &[6; 300]),
    ]
}

impl TestImage {
    /// Gives an inode a set of extended attributes in new slots; returns the slot of each piece.
    pub(crate) fn set_xattrs(&mut self, ino: u64, xattrs: &[Xattr<'_>]) -> Vec<u64> {
        let mut set = Vec::new();
        xattrs.iter().for_each(|xattr| xattr.push_to(&mut set));
        let (home, count) = xattr_home(set.len());
        let parts: Vec<&[u8]> = set.chunks(XattrHead::BLOCK_MAX).collect();
        let slots: Vec<u64> = parts.iter().map(|_| self.take(home, count)).collect();
        for (number, part) in parts.iter().enumerate() {
            let next = slots.get(number + 1).copied().unwrap_or(0);
            self.put_piece(ino, slots[number], next, part);
        }
        self.edit_inode(ino, |inode| {
            inode.xattr_root = slots[0];
            let identity = IdentityWord(inode.identity);
            inode.identity = identity.with_xattr_flags(xattr_flags(xattrs)).0;
        });
        slots
    }

    /// Writes a piece of a set at `slot`, with a correct checksum.
    pub(crate) fn put_piece(&mut self, ino: u64, slot: u64, next: u64, records: &[u8]) {
        let generation = IdentityWord(self.get_inode(ino).identity).generation();
        let piece = XattrHead::piece(ino, generation, next, records);
        self.set_bytes(self.geometry.slot_at(slot), &piece);
    }

    /// The head of the piece of a set at `slot`.
    pub(crate) fn xattr_head(&self, slot: u64) -> XattrHead {
        let at = self.geometry.slot_at(slot) as usize;
        XattrHead::read_from_prefix(&self.bytes[at..]).unwrap().0
    }

    /// Changes the head of a piece of the set of `ino` and corrects its checksum.
    pub(crate) fn edit_piece(&mut self, ino: u64, slot: u64, edit: impl FnOnce(&mut XattrHead)) {
        let mut head = self.xattr_head(slot);
        edit(&mut head);
        let at = self.geometry.slot_at(slot);
        let records = &self.bytes[at as usize + size_of::<XattrHead>()..];
        let records = &records[..usize::from(head.len).min(XattrHead::BLOCK_MAX)];
        let generation = IdentityWord(self.get_inode(ino).identity).generation();
        head.checksum = head.expected_checksum(ino, generation, records);
        self.set_bytes(at, head.as_bytes());
    }
}
