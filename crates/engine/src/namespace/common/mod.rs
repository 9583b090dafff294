//! What namespaces share, whatever finds their names: inodes and their counts, what a directory
//! knows of its names, directory logs and listings of them, eviction.

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

/// Fails unless a name can be looked up: empty ones exist nowhere.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    match name.len() {
        0 => Err(Error::NotFound),
        1..=NAME_MAX => Ok(()),
        _ => Err(Error::NameTooLong),
    }
}

/// Whether any of some bytes is this one. Paths are so short that what searches from an aligned
/// byte on has hardly begun when they end.
#[inline]
pub(crate) fn has_byte(bytes: &[u8], byte: u8) -> bool {
    any_of_chunks::<16>(bytes, byte)
        .or_else(|| any_of_chunks::<8>(bytes, byte))
        .unwrap_or_else(|| bytes.contains(&byte))
}

/// The same, by so many at once, of which the last ones have been compared before; `None`: there
/// are fewer.
#[inline]
fn any_of_chunks<const N: usize>(bytes: &[u8], byte: u8) -> Option<bool> {
    let last = bytes.last_chunk::<N>()?;
    let is_one = |any: bool, &other: &u8| any | (other == byte);
    let has = |chunk: &[u8; N]| chunk.iter().fold(false, is_one);
    Some(bytes.as_chunks().0.iter().any(has) || has(last))
}

/// Whether a file may have this name. The length was checked.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// What an entry says, but for its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    pub(crate) target: TargetWord,
    /// Of the inode named.
    pub(crate) generation: u32,
    pub(crate) cookie: u64,
    pub(crate) life: LifeWord,
    /// Metadata slots that it takes.
    pub(crate) slots: u64,
}

/// The entries that the words of directory logs name.
pub(crate) trait Bodies<M: Memories>: Sync {
    /// Room for an entry and its name.
    type Buffer: Default;

    /// Whether a word of a log, and an entry's life word, are what makes a name exist, so that
    /// whoever goes by them has to make them durable first.
    const ARE_TRUTH: bool;

    /// Checks that names in `dir` may be where they are, as far as something beside its log says
    /// so.
    ///
    /// # Errors
    /// Damaged media.
    fn check_home(_core: &Core<M>, _dir: Cachelet) -> Result<()> {
        Ok(())
    }

    /// Whether there is an entry at metadata slot `entry`, which a word of a log names: where it is
    /// not the word that makes a name exist, it may be one that is being made. Where there is none
    /// nothing else may be asked.
    fn is_there(core: &Core<M>, entry: u64) -> bool;

    /// Flushes what says so, where that is not the log's word.
    fn flush_there(core: &Core<M>, entry: u64);

    /// Reads the entry at metadata slot `entry`; fails if it is none of directory `dir`.
    fn read(core: &Core<M>, entry: u64, dir: u64, buffer: &mut Self::Buffer) -> Result<Body>;

    /// The same without its checksum, which was verified before in this mount.
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
