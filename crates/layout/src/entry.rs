//! Directory entries (`extend_dentry` of DirectFS III-F): 128-byte slots, one to three each.
//!
//! Word 0, the *life word*, is the only one that ever changes. It holds a valid bit and
//! nanoseconds: the time at which this change of the entry modified the parent directory.
//! Everything else is written once, before the directory's log names the entry, and is under the
//! checksum.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::SLOT_BYTES;
use crate::checksum::Summing;
use crate::inode::FileKind;

/// Longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// Most metadata slots of an entry.
pub const ENTRY_MAX_SLOTS: u64 = 3;

/// An entry without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct EntryHead {
    /// [`LifeWord`]; not under the checksum because it changes by one 8-byte store.
    pub life: u64,
    /// [`TargetWord`].
    pub target: u64,
    /// Cookie, unique in the directory; at least 3 (1 and 2 are `.` and `..`).
    pub cookie: u64,
    /// Inode slot of the directory.
    pub parent: u64,
    /// Generation of the inode named.
    pub generation: u32,
    /// CRC-32C of the directory's generation (as a word) and bytes 8.. of the entry (this field as
    /// zero) to the end of the name.
    pub checksum: u32,
    /// Low half of the seeded XXH3-64 of the name.
    pub name_hash: u32,
    /// Bytes of the name, 1 to 255.
    pub name_len: u16,
    /// Reserved, zero.
    pub flags: u16,
}

const _: () = assert!(size_of::<EntryHead>() == 48);

/// An entry with its name, as it lies on the pool (tail of the last slot undefined but zero).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The fixed part.
    pub head: EntryHead,
    /// The name.
    pub name: Vec<u8>,
}

impl Entry {
    /// Offset of the life word.
    pub const LIFE: u64 = 0;
    /// Offset of the target word.
    pub const TARGET: u64 = 8;
    /// Offset of the cookie.
    pub const COOKIE: u64 = 16;
    /// Offset of the parent's inode slot.
    pub const PARENT: u64 = 24;
    /// Offset of generation (low half) and checksum (high half).
    pub const CHECK: u64 = 32;
    /// Offset of name hash (low half), name length (16 bits) and flags.
    pub const NAME_WORD: u64 = 40;
    /// Offset of the name.
    pub const NAME: u64 = 48;

    /// Metadata slots that an entry with a name of `len` bytes takes.
    pub const fn slots_for(len: usize) -> u64 {
        (Self::NAME + len as u64).div_ceil(SLOT_BYTES)
    }

    /// Writes the bytes of an entry of a directory with generation `parent`, checksum included,
    /// into `buffer`; returns how many (whole cache lines, the last one padded with zeros).
    pub fn encode(head: &EntryHead, name: &[u8], parent: u32, buffer: &mut [u8; 384]) -> usize {
        let used = Self::NAME as usize + name.len();
        let total = used.next_multiple_of(64);
        let mut sealed = *head;
        sealed.checksum = 0;
        buffer[..48].copy_from_slice(sealed.as_bytes());
        buffer[48..used].copy_from_slice(name);
        buffer[used..total].fill(0);
        sealed.checksum = entry_checksum(parent, &buffer[8..used]);
        buffer[..48].copy_from_slice(sealed.as_bytes());
        total
    }

    /// Whether `bytes` (at least `NAME + name_len` of them) hold a sound entry of a directory with
    /// generation `parent`. An entry of an earlier directory with the same number is not sound.
    pub fn is_sound(bytes: &[u8], parent: u32) -> bool {
        let Ok((head, _)) = EntryHead::read_from_prefix(bytes) else {
            return false;
        };
        let used = Self::NAME as usize + usize::from(head.name_len);
        if head.name_len == 0 || usize::from(head.name_len) > NAME_MAX || bytes.len() < used {
            return false;
        }
        let mut copy = [0; 48 + NAME_MAX];
        copy[..used].copy_from_slice(&bytes[..used]);
        copy[36..40].fill(0);
        entry_checksum(parent, &copy[8..used]) == head.checksum
    }
}

/// The checksum of an entry with these `bytes` from byte 8 on, in which the checksum itself is
/// zero.
fn entry_checksum(parent: u32, bytes: &[u8]) -> u32 {
    let mut sum = Summing::default();
    sum.add_words(&[u64::from(parent)]);
    sum.add(bytes);
    sum.finish()
}

/// Valid bit (63) and nanoseconds since 1970 (0..63).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifeWord(pub u64);

impl LifeWord {
    const VALID: u64 = 1 << 63;
    /// The latest time, in 2116, that a directory in memory can hold of its own changes. A later
    /// one, as damage may leave, counts as this.
    pub const LAST_NS: i64 = i64::MAX >> 1;

    /// The word of an entry that was created at `ns`.
    pub fn alive(ns: i64) -> Self {
        Self(Self::VALID | (ns.max(0) as u64))
    }

    /// The word of an entry that was removed at `ns`.
    pub fn dead(ns: i64) -> Self {
        Self(ns.max(0) as u64)
    }

    /// Whether the entry exists.
    pub fn is_alive(self) -> bool {
        self.0 & Self::VALID != 0
    }

    /// When the entry was created or removed, in nanoseconds since 1970.
    pub fn ns(self) -> i64 {
        ((self.0 & !Self::VALID) as i64).min(Self::LAST_NS)
    }
}

/// The target of an entry: inode slot (bits 0..48) and file kind (48..56).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetWord(pub u64);

impl TargetWord {
    /// Packs the word for inode slot `ino` of kind `kind`.
    pub fn new(ino: u64, kind: FileKind) -> Self {
        Self(ino & ((1 << 48) - 1) | (kind as u64) << 48)
    }

    /// The inode's slot.
    pub fn ino(self) -> u64 {
        self.0 & ((1 << 48) - 1)
    }

    /// The kind, if the number is known.
    pub fn kind(self) -> Option<FileKind> {
        FileKind::from_u8((self.0 >> 48) as u8)
    }

    /// Whether any reserved bit is set.
    pub fn has_reserved(self) -> bool {
        self.0 >> 56 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_those_of_the_struct() {
        use std::mem::offset_of;
        assert_eq!(offset_of!(EntryHead, life) as u64, Entry::LIFE);
        assert_eq!(offset_of!(EntryHead, target) as u64, Entry::TARGET);
        assert_eq!(offset_of!(EntryHead, cookie) as u64, Entry::COOKIE);
        assert_eq!(offset_of!(EntryHead, parent) as u64, Entry::PARENT);
        assert_eq!(offset_of!(EntryHead, generation) as u64, Entry::CHECK);
        assert_eq!(offset_of!(EntryHead, name_hash) as u64, Entry::NAME_WORD);
    }

    #[test]
    fn every_name_length_seals_and_every_flipped_bit_is_found() {
        let head = EntryHead {
            life: LifeWord::alive(5).0,
            target: TargetWord::new(9, FileKind::File).0,
            cookie: 3,
            parent: 1,
            generation: 2,
            checksum: 0,
            name_hash: 77,
            name_len: 0,
            flags: 0,
        };
        for len in 1..=NAME_MAX {
            let name = vec![b'x'; len];
            let mut buffer = [0; 384];
            let total = Entry::encode(
                &EntryHead {
                    name_len: len as u16,
                    ..head
                },
                &name,
                6,
                &mut buffer,
            );
            assert!(total >= 48 + len && total < 48 + len + 64 && total.is_multiple_of(64));
            assert!(Entry::is_sound(&buffer, 6));
            assert!(!Entry::is_sound(&buffer, 7), "of another directory's life");
            for at in 8..48 + len {
                buffer[at] ^= 4;
                assert!(!Entry::is_sound(&buffer, 6), "byte {at} of {len}");
                buffer[at] ^= 4;
            }
            buffer[3] ^= 1;
            assert!(
                Entry::is_sound(&buffer, 6),
                "the life word is not under the checksum"
            );
        }
    }
}
