//! Checksums (CRC-32C) and hashes (XXH3) of the media format.

use crc_fast::{CrcAlgorithm, Digest, checksum as crc};

/// CRC-32C of `bytes`.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C of the little-endian bytes of `words`.
pub fn checksum_words(words: &[u64]) -> u32 {
    checksum(zerocopy::IntoBytes::as_bytes(words))
}

/// An incremental CRC-32C.
#[derive(Debug)]
pub struct Summing(Digest);

impl Default for Summing {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Summing {
    /// Adds the bytes that follow.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Adds the little-endian bytes of the words that follow.
    pub fn add_words(&mut self, words: &[u64]) {
        self.add(zerocopy::IntoBytes::as_bytes(words));
    }

    /// The checksum of everything that was added.
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// The hash of a name in its entry: XXH3-64 with the pool's seed, low half.
pub fn name_hash(seed: u64, name: &[u8]) -> u32 {
    long_name_hash(seed, name) as u32
}

/// The whole XXH3-64 of a name with the pool's seed.
#[inline]
pub fn long_name_hash(seed: u64, name: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(name, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_check_value() {
        assert_eq!(checksum(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn words_and_bytes_are_summed_as_one() {
        let words = [0x3837_3635_3433_3231];
        let mut sum = Summing::default();
        sum.add_words(&words);
        sum.add(b"9");
        assert_eq!(sum.finish(), 0xE306_9283);
    }

    #[test]
    fn words_are_little_endian_bytes() {
        assert_eq!(
            checksum_words(&[0x0807_0605_0403_0201]),
            checksum(&[1, 2, 3, 4, 5, 6, 7, 8])
        );
    }
}
