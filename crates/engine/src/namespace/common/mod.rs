//! Shared by all namespaces, however they find names: inodes and link counts, the state of a
//! directory's names, directory logs and their listing, eviction.

pub(crate) mod changing;
pub(crate) mod children;
pub(crate) mod compact;
pub(crate) mod evict;
pub(crate) mod inode;
pub(crate) mod links;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod moving;
pub(crate) mod walk;

use vellum_layout::{LifeWord, NAME_MAX, TargetWord};
use vellum_media::Memories;

use crate::core::Core;
use crate::core::cachelet::Cachelet;
use crate::error::{Error, Result};

/// Fails unless a name can be looked up. An empty name never exists.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    match name.len() {
        0 => Err(Error::NotFound),
        1..=NAME_MAX => Ok(()),
        _ => Err(Error::NameTooLong),
    }
}

/// Whether `bytes` contain `byte`. For short paths this is faster than a search that begins at an
/// aligned byte.
#[inline]
pub(crate) fn has_byte(bytes: &[u8], byte: u8) -> bool {
    any_of_chunks::<16>(bytes, byte)
        .or_else(|| any_of_chunks::<8>(bytes, byte))
        .unwrap_or_else(|| bytes.contains(&byte))
}

/// As [`has_byte`], `N` bytes at a time; the last chunk overlaps the one before. `None`: there are
/// fewer than `N` bytes.
#[inline]
fn any_of_chunks<const N: usize>(bytes: &[u8], byte: u8) -> Option<bool> {
    let last = bytes.last_chunk::<N>()?;
    let is_one = |any: bool, &other: &u8| any | (other == byte);
    let has = |chunk: &[u8; N]| chunk.iter().fold(false, is_one);
    Some(bytes.as_chunks().0.iter().any(has) || has(last))
}

/// Whether a file may have this name, whose length was checked.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// The contents of an entry without its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    pub(crate) target: TargetWord,
    /// Generation of the inode.
    pub(crate) generation: u32,
    pub(crate) cookie: u64,
    pub(crate) life: LifeWord,
    /// Number of metadata slots of the entry.
    pub(crate) slots: u64,
}

/// The entries that the words of directory logs name.
pub(crate) trait Bodies<M: Memories>: Sync {
    /// Buffer for an entry and its name.
    type Buffer: Default;

    /// Whether a word of a log, and an entry's life word, make a name exist, so that operations
    /// that rely on them have to make them durable first.
    const ARE_TRUTH: bool;

    /// Checks that names in `dir` may be where they are, if anything beside the directory's log
    /// shows that.
    ///
    /// # Errors
    /// Damaged media.
    fn check_home(_core: &Core<M>, _dir: Cachelet) -> Result<()> {
        Ok(())
    }

    /// Whether the entry at metadata slot `entry`, which a log word names, exists. It may not exist
    /// if the log word is not what makes a name exist, because the entry may be in creation.
    /// Nothing else may be called for an entry that does not exist.
    fn is_there(core: &Core<M>, entry: u64) -> bool;

    /// Flushes the word that makes the entry exist, unless that is the log's word.
    fn flush_there(core: &Core<M>, entry: u64);

    /// Reads the entry at metadata slot `entry`. Fails if it is not an entry of directory `dir`.
    fn read(core: &Core<M>, entry: u64, dir: u64, buffer: &mut Self::Buffer) -> Result<Body>;

    /// As [`Self::read`], without checking the checksum, which was verified before in this mount.
    fn read_unsealed(
        core: &Core<M>,
        entry: u64,
        dir: u64,
        buffer: &mut Self::Buffer,
    ) -> Result<Body>;

    /// The name of the entry that was read last.
    fn name(buffer: &Self::Buffer) -> &[u8];

    /// The cookie of an entry that was read before.
    fn cookie(core: &Core<M>, entry: u64) -> Result<u64>;

    /// Pool offset of the life word of the entry at `entry`.
    fn life_at(core: &Core<M>, entry: u64) -> u64;
}

#[cfg(test)]
mod tests {
    use super::has_byte;

    #[test]
    fn a_byte_is_found_wherever_it_is() {
        for len in 0..50 {
            let mut bytes = vec![b'a'; len];
            assert!(!has_byte(&bytes, b'/'));
            for at in 0..len {
                bytes[at] = b'/';
                assert!(has_byte(&bytes, b'/'), "{at} of {len}");
                bytes[at] = b'a';
            }
        }
    }
}
