//! Finds the last copy of a pool's superblock in front of further datasets. It lies at the end of
//! the pool's own bytes, whose size is unknown once both copies at the front are lost.

use crate::superblock::{FsRecord, Superblock, SuperblockError};
use crate::{BLOCK_BYTES, DATASET_ALIGN};

/// Bytes of a superblock.
type Block = [u8; BLOCK_BYTES as usize];

/// Returns the last copy of the superblock in a file of `len` bytes that ends with a further
/// dataset; `None` if the file ends otherwise, has no such copy, or has copies of several different
/// pools. It searches the ends of pools of whole units of [`DATASET_ALIGN`], and all blocks of the
/// unit in front of each further dataset. `read` returns the block at an offset, if it is readable.
///
/// A copy contains its own offset, which excludes copies of other datasets and copies inside files.
/// At least one dataset that it lists must be present. If a pool was formatted over an older one,
/// both copies may be present; the older one is then not used, even if the newer one lists no
/// further datasets.
pub fn last_copy_before_datasets(
    len: u64,
    read: impl Fn(u64) -> Option<Block>,
) -> Option<Superblock> {
    let file = Searched { len, read };
    if !file.ends_with_dataset() {
        return None;
    }
    let mut found: Option<Superblock> = None;
    let mut youngest = i64::MIN;
    for end in (DATASET_ALIGN..len).step_by(DATASET_ALIGN as usize) {
        let has_part = [end, end + BLOCK_BYTES].map(|at| file.sealed(at).is_ok());
        let blocks = match has_part.contains(&true) {
            true => DATASET_ALIGN / BLOCK_BYTES,
            false => 1,
        };
        let places = (1..=blocks).map(|number| end - number * BLOCK_BYTES);
        for copy in places.filter_map(|at| file.last_copy(at)) {
            youngest = youngest.max(copy.created);
            if !file.has_part_of(&copy) {
                continue;
            }
            match &found {
                Some(other) if other.uuid != copy.uuid => return None,
                Some(other) if other.sequence >= copy.sequence => {}
                _ => found = Some(copy),
            }
        }
    }
    found.filter(|pool| pool.created >= youngest)
}

struct Searched<R> {
    len: u64,
    read: R,
}

impl<R: Fn(u64) -> Option<Block>> Searched<R> {
    fn sealed(&self, at: u64) -> Result<Superblock, SuperblockError> {
        let bytes = match at.checked_add(BLOCK_BYTES) {
            Some(end) if end <= self.len => (self.read)(at),
            _ => None,
        };
        Superblock::unseal(&bytes.ok_or(SuperblockError::NotVellum)?)
    }

    /// Whether the last unit holds the last copy of a further dataset's superblock.
    fn ends_with_dataset(&self) -> bool {
        let blocks = self.len / BLOCK_BYTES;
        let last = blocks.saturating_sub(DATASET_ALIGN / BLOCK_BYTES)..blocks;
        last.rev().map(|block| block * BLOCK_BYTES).any(|at| {
            let copy = self.sealed(at);
            copy.is_ok_and(|copy| copy.last_copy_at > 0 && copy.last_copy_at < at)
        })
    }

    /// The last copy of a pool at this offset, whether it lists further datasets or not.
    fn last_copy(&self, at: u64) -> Option<Superblock> {
        let copy = self.sealed(at).ok()?;
        (copy.last_copy_at == at && copy.check_readable().is_ok()).then_some(copy)
    }

    /// Whether the table of a pool fits into the file and at least one of its datasets is present.
    fn has_part_of(&self, pool: &Superblock) -> bool {
        let is_there = |part: &FsRecord| {
            let copies = [part.at, part.at + BLOCK_BYTES];
            let own = Superblock::choose(copies.map(|at| self.sealed(at)));
            own.is_ok_and(|own| own.uuid == part.uuid)
        };
        pool.datasets_end() <= self.len && pool.datasets().any(is_there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Geometry, GeometryRequest, NamespaceKind};
    use zerocopy::IntoBytes;

    fn own(bytes: u64, uuid: u8) -> Superblock {
        made(bytes, uuid, 2)
    }

    fn made(bytes: u64, uuid: u8, created: i64) -> Superblock {
        let request = GeometryRequest {
            pool_bytes: bytes,
            ..Default::default()
        };
        let geometry = Geometry::plan(&request).unwrap();
        Superblock::new(
            &geometry,
            [uuid; 16],
            1,
            created,
            "x",
            NamespaceKind::Direct,
        )
    }

    /// A file with copies of superblocks at the given offsets.
    struct File {
        len: u64,
        copies: Vec<(u64, Superblock)>,
    }

    impl File {
        /// A pool that has lost the copies at its front, and a dataset behind it.
        fn new(pool_bytes: u64) -> (Self, Superblock) {
            let pool = own(pool_bytes, 7);
            let (at, bytes) = (pool.dataset_room(2 * DATASET_ALIGN), 2 * DATASET_ALIGN);
            let part = own(bytes, 1);
            let pool = pool.with_dataset("one", at, bytes, [1; 16]).unwrap();
            let mut file = Self {
                len: at + bytes,
                copies: vec![(pool.last_copy_at, pool.clone())],
            };
            file.add_all(at, &part);
            (file, pool)
        }

        fn add_all(&mut self, at: u64, part: &Superblock) {
            let places = [0, BLOCK_BYTES, part.last_copy_at];
            let copies = places.map(|place| (at + place, part.clone()));
            self.copies.extend(copies);
        }

        fn found(&self) -> Option<Superblock> {
            last_copy_before_datasets(self.len, |at| {
                let copy = self.copies.iter().rev().find(|(place, _)| *place == at);
                let bytes =
                    copy.map_or(&[0; BLOCK_BYTES as usize][..], |(_, copy)| copy.as_bytes());
                bytes.try_into().ok()
            })
        }
    }

    #[test]
    fn it_is_found_at_the_end_of_the_pool() {
        for pool_bytes in [4 << 20, 5 << 20, (6 << 20) - BLOCK_BYTES, 64 << 20] {
            let (file, pool) = File::new(pool_bytes);
            assert_eq!(file.found(), Some(pool), "{pool_bytes}");
        }
    }

    #[test]
    fn no_other_is_taken_for_it() {
        // Without it, only the copies of the dataset are left.
        let (mut file, pool) = File::new(8 << 20);
        let own_copy = file.copies.remove(0);
        assert_eq!(file.found(), None);
        // A copy at another offset, as in a file that contains a copy of the pool.
        file.copies.push(((4 << 20) - BLOCK_BYTES, pool.clone()));
        assert_eq!(file.found(), None);
        // A copy of a pool whose datasets are missing.
        let other = own(4 << 20, 9).with_dataset("one", 8 << 20, 2 << 20, [3; 16]);
        file.copies
            .push((other.as_ref().unwrap().last_copy_at, other.unwrap()));
        assert_eq!(file.found(), None);
        file.copies.push(own_copy);
        assert_eq!(file.found(), Some(pool));
        // A copy of another pool that could have been here.
        let other = own(4 << 20, 9).with_dataset("one", 8 << 20, 4 << 20, [1; 16]);
        file.copies
            .push((other.as_ref().unwrap().last_copy_at, other.unwrap()));
        assert_eq!(file.found(), None);
    }

    #[test]
    fn an_older_pool_is_not_taken_for_a_younger_one() {
        let (mut file, pool) = File::new(8 << 20);
        let later = |created| {
            let pool = made(4 << 20, 9, created);
            (pool.last_copy_at, pool)
        };
        file.copies.push(later(2));
        assert_eq!(file.found(), Some(pool));
        file.copies.push(later(3));
        assert_eq!(file.found(), None);
    }

    #[test]
    fn what_ends_otherwise_is_not_searched() {
        let (mut file, _) = File::new(8 << 20);
        file.len += DATASET_ALIGN;
        assert_eq!(file.found(), None);
    }
}
