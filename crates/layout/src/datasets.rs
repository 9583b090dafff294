//! Several datasets in a pool. Each one but the first is a whole pool in bytes behind the first
//! pool's own. The table of datasets in the superblock lists them all.

use thiserror::Error;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::superblock::{FsRecord, MAIN, Superblock, features};

/// Further datasets begin at multiples of this, and their sizes are multiples of it, so that a
/// large page of a dataset is also one of the file.
pub const DATASET_ALIGN: u64 = 2 << 20;
/// Most bytes of the name of a dataset.
pub const FS_NAME_MAX: usize = 63;

/// Why a text is not a valid name of a further dataset.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum FsNameError {
    /// It is empty or too long.
    #[error("the name of a dataset has 1 to {FS_NAME_MAX} bytes")]
    Length,
    /// It contains a character with a special meaning.
    #[error("the name of a dataset has no `/`, no `:` and no control character")]
    Character,
    /// It would be taken for an option.
    #[error("the name of a dataset does not begin with `-`")]
    Option,
    /// It is a reserved directory name.
    #[error("a dataset cannot be named `.` or `..`")]
    Dots,
    /// It is the name of the first dataset.
    #[error("`main` is the name of the first dataset of every pool")]
    Main,
}

/// Checks that `name` is valid for a further dataset.
///
/// # Errors
/// Returns what is wrong with it.
pub fn check_fs_name(name: &str) -> Result<(), FsNameError> {
    if !(1..=FS_NAME_MAX).contains(&name.len()) {
        return Err(FsNameError::Length);
    }
    if name.contains(|c: char| c == '/' || c == ':' || c.is_control()) {
        return Err(FsNameError::Character);
    }
    match name {
        "." | ".." => Err(FsNameError::Dots),
        MAIN => Err(FsNameError::Main),
        _ if name.starts_with('-') => Err(FsNameError::Option),
        _ => Ok(()),
    }
}

impl FsRecord {
    /// The name, if it is text.
    pub fn name_text(&self) -> Option<&str> {
        let end = self.name.iter().position(|&byte| byte == 0)?;
        let is_padded = self.name[end..].iter().all(|&byte| byte == 0);
        std::str::from_utf8(&self.name[..end])
            .ok()
            .filter(|_| is_padded)
    }

    /// Where this further dataset ends.
    pub fn end(&self) -> u64 {
        self.at.saturating_add(self.bytes)
    }

    /// Whether this is the record of a dataset behind a pool of `pool_bytes`.
    fn is_dataset(&self, pool_bytes: u64) -> bool {
        let name = self.name_text();
        self.in_use == 1
            && name.is_some_and(|name| check_fs_name(name).is_ok())
            && self.at >= pool_bytes
            && self.at.is_multiple_of(DATASET_ALIGN)
            && self.bytes > 0
            && self.bytes.is_multiple_of(DATASET_ALIGN)
            && self.at.checked_add(self.bytes).is_some()
            && self.has_no_more()
    }

    /// Whether each word could belong to the record of a further dataset, or to an empty one.
    fn may_be_torn(&self) -> bool {
        self.in_use <= 1
            && self.at.is_multiple_of(DATASET_ALIGN)
            && self.bytes.is_multiple_of(DATASET_ALIGN)
            && self.has_no_more()
    }

    /// Whether the fields that only the first dataset uses are zero.
    fn has_no_more(&self) -> bool {
        (self.namespace, self.root) == (0, 0)
            && (self.area_table, self.area_bytes, self.size_max) == (0, 0, 0)
    }

    fn meets(&self, other: &Self) -> bool {
        self.name == other.name
            || self.uuid == other.uuid
            || (self.at < other.end() && other.at < self.end())
    }
}

impl Superblock {
    /// The records of the further datasets.
    pub fn datasets(&self) -> impl Iterator<Item = &FsRecord> {
        self.datasets[1..].iter().filter(|fs| fs.in_use == 1)
    }

    /// The further dataset of this name.
    pub fn dataset(&self, name: &str) -> Option<&FsRecord> {
        self.datasets().find(|fs| fs.name_text() == Some(name))
    }

    /// Whether there are further datasets.
    pub fn has_datasets(&self) -> bool {
        self.datasets().next().is_some()
    }

    /// Where the pool and all of its further datasets end.
    pub fn datasets_end(&self) -> u64 {
        self.datasets()
            .map(FsRecord::end)
            .fold(self.pool_bytes, u64::max)
    }

    /// The first gap behind the pool for a dataset of this many bytes, a multiple of the unit. It
    /// may reach beyond the present end of the file.
    pub fn dataset_room(&self, bytes: u64) -> u64 {
        let mut taken: Vec<_> = self.datasets().map(|fs| (fs.at, fs.end())).collect();
        taken.sort_unstable();
        let mut at = self.pool_bytes.next_multiple_of(DATASET_ALIGN);
        for (begin, end) in taken {
            if begin.saturating_sub(at) >= bytes {
                break;
            }
            at = end;
        }
        at
    }

    /// The same superblock with one more dataset, as its next rewrite; `None` if the table is full.
    pub fn with_dataset(&self, name: &str, at: u64, bytes: u64, uuid: [u8; 16]) -> Option<Self> {
        let mut new = self.clone();
        let record = new.datasets[1..].iter_mut().find(|fs| fs.in_use == 0)?;
        *record = FsRecord::new_zeroed();
        record.in_use = 1;
        let length = name.len().min(FS_NAME_MAX);
        record.name[..length].copy_from_slice(&name.as_bytes()[..length]);
        (record.at, record.bytes, record.uuid) = (at, bytes, uuid);
        Some(new.rewritten())
    }

    /// The same superblock without the dataset of this name, as its next rewrite.
    #[must_use]
    pub fn without_dataset(&self, name: &str) -> Self {
        self.keeping_datasets(|fs| fs.name_text() != Some(name))
    }

    /// The same superblock without further datasets, as its next rewrite, for a copy of the pool
    /// that has none.
    #[must_use]
    pub fn without_datasets(&self) -> Self {
        self.keeping_datasets(|_| false)
    }

    fn keeping_datasets(&self, keep: impl Fn(&FsRecord) -> bool) -> Self {
        let mut new = self.clone();
        for record in &mut new.datasets[1..] {
            if !keep(record) {
                *record = FsRecord::new_zeroed();
            }
        }
        new.rewritten()
    }

    pub(crate) fn rewritten(mut self) -> Self {
        self.read_only_compatible &= !features::DATASETS;
        if self.has_datasets() {
            self.read_only_compatible |= features::DATASETS;
        }
        self.mark_settings();
        self.sequence = self.sequence.saturating_add(1);
        self.seal();
        self
    }

    /// Whether an interrupted change explains these bytes of the first, the second and the last
    /// copy of this superblock, which is the current one. A change writes one record or the
    /// settings, or lets the pool grow. It writes the first copy while the second is whole, and
    /// makes all copies equal before the next change.
    pub fn is_left_by_cut(&self, copies: [&[u8]; 3]) -> bool {
        let is_whole = |copy: &[u8]| copy == self.as_bytes();
        let [first, second, _] = copies;
        copies
            .iter()
            .all(|copy| is_whole(copy) || self.may_be_cut(copy))
            && (Self::unseal(first).is_ok() || is_whole(second))
    }

    /// Whether a copy is the state before or after a change of the settings or of one record (of a
    /// dataset or a segment) or of the pool's size, or torn between that state and this one.
    fn may_be_cut(&self, copy: &[u8]) -> bool {
        let Ok((mut found, _)) = Self::read_from_prefix(copy) else {
            return false;
        };
        let records = found.datasets.iter().zip(&self.datasets);
        let changed: Vec<_> = records.filter(|(of, own)| of != own).collect();
        let segments = found.segments[1..].iter().zip(&self.segments[1..]);
        let added: Vec<_> = segments.filter(|(of, own)| of != own).collect();
        let size = |of: &Self| (of.pool_bytes, of.last_copy_at);
        // A pool that grows gets another size, and another record of a segment.
        let added_or_grown = added.len().max(usize::from(size(&found) != size(self)));
        let mut other = found.clone();
        other.copy_settings(self);
        let count = changed.len() + added_or_grown + usize::from(other != found);
        let is_one = match Self::unseal(copy) {
            Ok(_) => count == 1,
            Err(_) => count <= 1,
        };
        let is_table = is_one
            && changed.iter().all(|(of, _)| of.may_be_torn())
            && added
                .iter()
                .all(|(of, own)| of.may_be_torn() && own.may_be_torn())
            && found.sequence <= self.sequence.saturating_add(1)
            && (Self::unseal(copy).is_err() || found.sequence != self.sequence)
            && (found.read_only_compatible ^ self.read_only_compatible) & !features::DATASETS == 0
            && (found.incompatible ^ self.incompatible) & !(features::SEGMENTS | features::GROWN)
                == 0;
        found.copy_settings(self);
        found.segments[1..].copy_from_slice(&self.segments[1..]);
        (found.pool_bytes, found.last_copy_at) = size(self);
        found.incompatible = self.incompatible;
        found.datasets[1..].copy_from_slice(&self.datasets[1..]);
        found.read_only_compatible = self.read_only_compatible;
        (found.sequence, found.checksum) = (self.sequence, self.checksum);
        is_table && found == *self
    }

    /// Whether the table of datasets is possible: each one lies behind the pool without overlapping
    /// the others, and has a unique name and uuid.
    pub(crate) fn has_sound_datasets(&self) -> bool {
        let main = &self.datasets[0];
        let parts: Vec<_> = self.datasets[1..]
            .iter()
            .filter(|fs| fs.in_use != 0)
            .collect();
        let has_bit = self.read_only_compatible & features::DATASETS != 0;
        (main.at, main.bytes, main.uuid) == (0, 0, [0; 16])
            && has_bit != parts.is_empty()
            && parts
                .iter()
                .all(|fs| fs.is_dataset(self.pool_bytes) && fs.uuid != self.uuid)
            && (1..parts.len()).all(|i| parts[..i].iter().all(|other| !other.meets(parts[i])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddedSegment, FS_MAX, Geometry, GeometryRequest, NamespaceKind, SuperblockError};

    const UNIT: u64 = DATASET_ALIGN;

    fn pool() -> Superblock {
        let request = GeometryRequest {
            pool_bytes: 5 << 20,
            ..Default::default()
        };
        let geometry = Geometry::plan(&request).unwrap();
        Superblock::new(&geometry, [7; 16], 1, 2, "x", NamespaceKind::Direct)
    }

    #[test]
    fn names() {
        let long = "x".repeat(FS_NAME_MAX);
        for good in ["a", "build cache", "mains", "ä", "...", &long] {
            assert_eq!(check_fs_name(good), Ok(()), "{good}");
        }
        let longer = "x".repeat(FS_NAME_MAX + 1);
        for (bad, why) in [
            ("", FsNameError::Length),
            (&longer, FsNameError::Length),
            ("a/b", FsNameError::Character),
            ("a:b", FsNameError::Character),
            ("a\0", FsNameError::Character),
            ("a\n", FsNameError::Character),
            ("-a", FsNameError::Option),
            ("..", FsNameError::Dots),
            ("main", FsNameError::Main),
        ] {
            assert_eq!(check_fs_name(bad), Err(why), "{bad}");
        }
    }

    #[test]
    fn datasets_take_the_first_gap_and_come_and_go() {
        let pool = pool();
        assert_eq!(pool.dataset_room(UNIT), 3 * UNIT);
        let one = pool
            .with_dataset("one", 3 * UNIT, 2 * UNIT, [1; 16])
            .unwrap();
        let two = one.with_dataset("two", one.dataset_room(UNIT), UNIT, [2; 16]);
        let two = two.unwrap();
        assert_eq!(two.dataset("two").unwrap().at, 5 * UNIT);
        assert_eq!((two.datasets_end(), two.sequence), (6 * UNIT, 2));
        assert_eq!(two.check_readable(), Ok(()));
        assert_eq!(two.read_only_compatible, features::DATASETS);
        let gap = two.without_dataset("one");
        assert_eq!(gap.check_readable(), Ok(()));
        assert_eq!((gap.dataset("one"), gap.datasets().count()), (None, 1));
        assert_eq!(gap.dataset_room(2 * UNIT), 3 * UNIT);
        assert_eq!(gap.dataset_room(3 * UNIT), 6 * UNIT);
        let none = gap.without_datasets();
        assert_eq!((none.read_only_compatible, none.has_datasets()), (0, false));
        assert_eq!(none.datasets_end(), none.pool_bytes);
    }

    #[test]
    fn a_full_table_takes_no_more() {
        let mut pool = pool();
        for number in 1..FS_MAX {
            let at = pool.dataset_room(UNIT);
            pool = pool
                .with_dataset(&number.to_string(), at, UNIT, [0x40 + number as u8; 16])
                .unwrap();
        }
        assert_eq!(pool.check_readable(), Ok(()));
        assert_eq!(pool.with_dataset("more", 1 << 40, UNIT, [3; 16]), None);
    }

    /// The first bytes of one superblock, then the rest of the other.
    fn torn(from: &Superblock, to: &Superblock, at: usize) -> Vec<u8> {
        [&to.as_bytes()[..at], &from.as_bytes()[at..]].concat()
    }

    #[test]
    fn an_interrupted_change_is_not_damage() {
        let old = pool();
        let new = old.with_dataset("one", 3 * UNIT, UNIT, [1; 16]).unwrap();
        let (was, is) = (old.as_bytes(), new.as_bytes());
        // Boundaries of the sequence, the feature bits before it, a record, and the checksum.
        for at in [44, 72, 648, 700, 4088] {
            let (growing, going) = (torn(&old, &new, at), torn(&new, &old, at));
            for torn in [&growing[..], &going, was] {
                assert!(new.is_left_by_cut([torn, is, is]), "{at}");
                assert!(new.is_left_by_cut([torn, is, &growing]), "{at}");
            }
            for torn in [&growing[..], &going] {
                assert!(old.is_left_by_cut([was, torn, torn]), "{at}");
                assert!(new.is_left_by_cut([was, torn, is]), "{at}");
                assert!(!new.is_left_by_cut([torn, torn, is]), "{at}");
                assert!(!new.is_left_by_cut([torn, was, is]), "{at}");
            }
        }
        assert!(new.is_left_by_cut([is, is, is]));
        let two = new.with_dataset("two", 4 * UNIT, UNIT, [2; 16]).unwrap();
        assert!(!two.is_left_by_cut([two.as_bytes(), two.as_bytes(), was]));
        for change in [
            (|sb| sb.uuid[0] ^= 1) as fn(&mut Superblock),
            |sb| sb.sequence += 3,
            |sb| sb.label[0] ^= 1,
            |sb| sb.read_only_compatible ^= features::REPLICA,
            |sb| sb.datasets[0].root += 1,
            |sb| sb.datasets[1].at += 1,
            |sb| sb.datasets[1].in_use = 2,
            |sb| sb.datasets[2].name[0] = b'x',
            |sb| sb.segments[0].blocks += 1,
            |sb| sb.reserved_tail[0] = 1,
        ] {
            let mut other = old.clone();
            change(&mut other);
            assert!(!new.is_left_by_cut([is, is, other.as_bytes()]));
            other.seal();
            assert!(!new.is_left_by_cut([is, is, other.as_bytes()]));
        }
        // Another rewrite of the same table is not a single change.
        let mut other = new.clone();
        other.sequence -= 1;
        other.seal();
        assert!(!new.is_left_by_cut([is, is, other.as_bytes()]));
    }

    #[test]
    fn a_half_added_segment_is_not_damage() {
        let old = pool();
        let segment = AddedSegment {
            id: [9; 16],
            at: 1 << 20,
            blocks: 64,
        };
        let new = old.with_segment(segment).unwrap();
        let (was, is) = (old.as_bytes(), new.as_bytes());
        assert_eq!(new.sequence, old.sequence + 1);
        // Boundaries of the features, the sequence, the record's fields, and the checksum.
        for at in [52, 60, 1612, 1620, 1656, 4088] {
            let growing = torn(&old, &new, at);
            assert!(new.is_left_by_cut([&growing, is, is]), "{at}");
            assert!(old.is_left_by_cut([was, &growing, &growing]), "{at}");
            assert!(!new.is_left_by_cut([&growing, &growing, is]), "{at}");
        }
        assert!(new.is_left_by_cut([was, is, is]));
        for change in [
            (|sb| sb.segments[1].saved_state_at = 1) as fn(&mut Superblock),
            |sb| sb.segments[2].run_blocks = 8,
            |sb| sb.incompatible ^= features::LOGGED,
        ] {
            let mut other = new.clone();
            change(&mut other);
            assert!(!new.is_left_by_cut([is, is, other.as_bytes()]));
        }
    }

    #[test]
    fn impossible_tables_are_refused() {
        let pool = pool();
        let one = pool
            .with_dataset("one", 3 * UNIT, 2 * UNIT, [1; 16])
            .unwrap();
        let good = one.with_dataset("two", 5 * UNIT, UNIT, [2; 16]).unwrap();
        for change in [
            (|sb| sb.datasets[1].in_use = 2) as fn(&mut Superblock),
            |sb| sb.datasets[1].at = 2 * UNIT,
            |sb| sb.datasets[1].at = 4 * UNIT,
            |sb| sb.datasets[1].at += 4096,
            |sb| sb.datasets[1].at = u64::MAX / UNIT * UNIT,
            |sb| sb.datasets[1].bytes = 0,
            |sb| sb.datasets[1].bytes = 4096,
            |sb| sb.datasets[1].bytes = 3 * UNIT,
            |sb| sb.datasets[1].name = sb.datasets[2].name,
            |sb| sb.datasets[1].name = [b'x'; 64],
            |sb| sb.datasets[1].name[63] = 1,
            |sb| sb.datasets[1].name[0] = b'-',
            |sb| sb.datasets[1].uuid = sb.datasets[2].uuid,
            |sb| sb.datasets[1].uuid = sb.uuid,
            |sb| sb.datasets[1].root = 1,
            |sb| sb.datasets[0].at = UNIT,
            |sb| sb.read_only_compatible = 0,
            |sb| sb.datasets[1..].fill(FsRecord::new_zeroed()),
        ] {
            let mut bad = good.clone();
            change(&mut bad);
            assert_eq!(
                bad.check_readable(),
                Err(SuperblockError::Field("table of datasets"))
            );
        }
    }
}
