//! The list of a move of the namespace *adaptive*: the entries below moved directories, and their
//! copies with the new paths.
//!
//! The head of the area table leads to the list of a move that is committed and not finished.
//! Recovery finishes it, however much of it was done, and then drops the list.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::checksum::checksum_words;
use crate::{BLOCK_BYTES, SLOTS_PER_BLOCK};

/// Entries in a block of a list.
pub const MOVE_LIST_ENTRIES: usize =
    (BLOCK_BYTES as usize - size_of::<MoveListHead>()) / size_of::<MovedEntry>();

const _: () = assert!(size_of::<MoveListHead>() == 16 && size_of::<MovedEntry>() == 16);

/// The head of a block of a list.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct MoveListHead {
    /// Metadata slot of the next block, or 0.
    pub next: u64,
    /// Entries in this block, 1 to 255.
    pub count: u32,
    /// CRC-32C of the block's metadata slot, `next` and `count`, each as a word, then the words of
    /// the entries.
    pub checksum: u32,
}

/// A moved entry.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct MovedEntry {
    /// Pool offset of its word in the directory's log.
    pub word_at: u64,
    /// Metadata slot of the old entry.
    pub from: u32,
    /// Metadata slot of the copy.
    pub to: u32,
}

impl MoveListHead {
    /// Encodes the block at metadata slot `at` with as many of `entries` as fit; `next` is the
    /// block behind it.
    pub fn encode(at: u64, next: u64, entries: &[MovedEntry]) -> [u8; BLOCK_BYTES as usize] {
        let entries = &entries[..entries.len().min(MOVE_LIST_ENTRIES)];
        let mut head = Self {
            next,
            count: entries.len() as u32,
            checksum: 0,
        };
        head.checksum = head.expected_checksum(at, entries);
        let mut block = [0; BLOCK_BYTES as usize];
        let (front, back) = block.split_at_mut(size_of::<Self>());
        front.copy_from_slice(head.as_bytes());
        back[..size_of_val(entries)].copy_from_slice(entries.as_bytes());
        block
    }

    /// Bytes of a block with this many entries, in whole cache lines; the rest of the block is
    /// ignored.
    pub const fn bytes_of(entries: usize) -> usize {
        (size_of::<Self>() + entries * size_of::<MovedEntry>()).next_multiple_of(64)
    }

    /// The next block and the entries of this block, if it is sound at metadata slot `at`.
    pub fn decode(at: u64, block: &[u8; BLOCK_BYTES as usize]) -> Option<(u64, Vec<MovedEntry>)> {
        let (head, rest) = Self::read_from_prefix(block).ok()?;
        let count = head.count as usize;
        if !(1..=MOVE_LIST_ENTRIES).contains(&count) || !head.next.is_multiple_of(SLOTS_PER_BLOCK) {
            return None;
        }
        let entries = rest.chunks_exact(size_of::<MovedEntry>()).take(count);
        let entries: Vec<MovedEntry> = entries
            .map(|bytes| MovedEntry::read_from_bytes(bytes).ok())
            .collect::<Option<_>>()?;
        let is_sound = head.checksum == head.expected_checksum(at, &entries);
        is_sound.then_some((head.next, entries))
    }

    fn expected_checksum(&self, at: u64, entries: &[MovedEntry]) -> u32 {
        let mut words = vec![at, self.next, self.count.into()];
        for entry in entries {
            words.push(entry.word_at);
            words.push(u64::from(entry.from) | u64::from(entry.to) << 32);
        }
        checksum_words(&words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(count: usize) -> Vec<MovedEntry> {
        let entry = |i: u32| MovedEntry {
            word_at: 4096 + 8 * u64::from(i),
            from: 2 * i,
            to: 2 * i + 1,
        };
        (0..count as u32).map(entry).collect()
    }

    #[test]
    fn a_block_gives_back_what_was_put_in() {
        for count in [1, 2, MOVE_LIST_ENTRIES, MOVE_LIST_ENTRIES + 1] {
            let all = entries(count);
            let (next, found) =
                MoveListHead::decode(64, &MoveListHead::encode(64, 96, &all)).unwrap();
            assert_eq!(next, 96);
            assert_eq!(found, all[..count.min(MOVE_LIST_ENTRIES)]);
        }
    }

    #[test]
    fn a_block_is_sound_at_its_place_only_and_as_it_was_written() {
        let block = MoveListHead::encode(64, 0, &entries(3));
        assert!(MoveListHead::decode(96, &block).is_none());
        for byte in 0..16 + 3 * 16 {
            let mut changed = block;
            changed[byte] ^= 1;
            assert!(MoveListHead::decode(64, &changed).is_none(), "byte {byte}");
        }
        assert!(MoveListHead::decode(64, &[0; 4096]).is_none());
        let none = MoveListHead::encode(64, 0, &[]);
        assert!(MoveListHead::decode(64, &none).is_none());
    }
}
