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

/// CRC-32C of the little-endian bytes of `words` and then of `bytes`.
pub(crate) fn checksum_after(words: &[u64], bytes: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(zerocopy::IntoBytes::as_bytes(words));
    digest.update(bytes);
    digest.finalize() as u32
}

/// The hash of a name that entries carry: XXH3-64 with the pool's seed, low half.
pub fn name_hash(seed: u64, name: &[u8]) -> u32 {
    xxhash_rust::xxh3::xxh3_64_with_seed(name, seed) as u32
}

/// Mixes 64 bits so that every input bit reaches every output bit (two multiply-xorshift rounds).
pub fn mix(value: u64) -> u64 {
    let mut x = value;
    x ^= x >> 32;
    x = x.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x ^= x >> 32;
    x = x.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x ^ (x >> 32)
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
        assert_eq!(checksum_after(&words, b"9"), 0xE306_9283);
        assert_eq!(checksum_after(&[], b"123456789"), 0xE306_9283);
    }

    #[test]
    fn words_are_little_endian_bytes() {
        assert_eq!(
            checksum_words(&[0x0807_0605_0403_0201]),
            checksum(&[1, 2, 3, 4, 5, 6, 7, 8])
        );
    }
}
