//! Names of images: images with the same name hold the same bytes.

use std::ops::Range;

use vellum_layout::{PoolHeader, UNDO_RECORD_BYTES, UndoPlan};
use vellum_media::{Event, LineBytes, Op};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::closed::geometry;

/// The half of a name that undo records do not affect.
const WITHOUT_UNDO: u128 = u64::MAX as u128;

/// Names images of one pool. A name is the XOR of the names of its cells, so that it can be updated
/// at every store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    versions: Option<Versions>,
}

/// Where a pool has undo records.
#[derive(Clone, Debug)]
struct Versions {
    bytes: Range<u64>,
    /// The word that makes the existing undo records void.
    committed_at: u64,
}

impl Names {
    /// The names of images like `base`.
    pub(crate) fn of(base: &[u8]) -> Self {
        let plan = geometry(base).and_then(|geometry| UndoPlan::of(&geometry));
        let versions = plan.map(|plan| Versions {
            bytes: plan.undo_record_at(0)..plan.undo_record_at(plan.count - 1) + UNDO_RECORD_BYTES,
            committed_at: plan.at + PoolHeader::COMMITTED,
        });
        Self { versions }
    }

    fn of_cell(&self, at: u64, value: u64) -> u128 {
        let name = xxh3_128_with_seed(&value.to_ne_bytes(), at);
        let is_inside = |versions: &Versions| versions.bytes.contains(&at);
        match self.versions.as_ref().is_some_and(is_inside) {
            true => name & !WITHOUT_UNDO,
            false => name,
        }
    }

    /// The change of an image's name when a line changes.
    pub(crate) fn of_change(&self, line: u64, old: &LineBytes, new: &LineBytes) -> u128 {
        let cells = old.as_chunks::<8>().0.iter().zip(new.as_chunks::<8>().0);
        let changed = (line..).step_by(8).zip(cells);
        changed
            .filter(|(_, (old, new))| old != new)
            .fold(0, |name, (at, (old, new))| {
                let of = |cell: &[u8; 8]| self.of_cell(at, u64::from_ne_bytes(*cell));
                name ^ of(old) ^ of(new)
            })
    }

    /// The name of the image that `log` makes of the image called `name`.
    pub(crate) fn after(&self, name: u128, log: &[Event]) -> u128 {
        log.iter().fold(name, |name, event| match event.op {
            Op::Store {
                at, before, after, ..
            } if before != after => name ^ self.of_cell(at, before) ^ self.of_cell(at, after),
            _ => name,
        })
    }

    /// Names the image that `recovery` makes of the image called `name`, as far as an opening
    /// depends on it: everything except undo records that its last commit made void.
    pub(crate) fn recovered(&self, name: u128, recovery: &[Event]) -> u128 {
        let name = self.after(name, recovery);
        let Some(versions) = &self.versions else {
            return name;
        };
        let is_commit =
            |event: &Event| matches!(event.op, Op::Store { at, .. } if at == versions.committed_at);
        let Some(commit) = recovery.iter().rposition(is_commit) else {
            return name;
        };
        let since = recovery[commit..].iter();
        since.fold(name & WITHOUT_UNDO, |name, event| match event.op {
            Op::Store { at, after, .. } if versions.bytes.contains(&at) => {
                name ^ self.of_cell(at, after)
            }
            _ => name,
        })
    }
}

#[cfg(test)]
mod tests {
    use vellum::{MappingKind, NamespaceKind};
    use vellum_media::{Caller, Memory, Site};

    use super::*;
    use crate::judge::Judge;
    use crate::session::blank_image;
    use crate::workload::PoolKind;

    fn store(at: u64, after: u64) -> Event {
        Event {
            thread: 0,
            op: Op::Store {
                at,
                before: 0,
                after,
                non_temporal: false,
            },
            site: Site::UNNAMED,
            place: Caller::here(),
        }
    }

    #[test]
    fn void_undo_records_make_no_other_recovered_image() {
        let base = blank_image(
            2,
            MappingKind::HashFs,
            NamespaceKind::Direct,
            PoolKind::Split,
        );
        let names = Names::of(&base);
        let Versions {
            bytes,
            committed_at,
        } = names.versions.clone().unwrap();
        let commit = store(committed_at, 7);
        let of = |log: &[Event]| names.recovered(0, log);
        let [one, other] = [1, 2].map(|value| store(bytes.start, value));
        assert_ne!(names.after(0, &[one]), names.after(0, &[other]));
        assert_eq!(of(&[one, commit]), of(&[other, commit]));
        assert_ne!(of(&[commit, one]), of(&[commit, other]), "not void");
        assert_ne!(of(&[commit, one]), of(&[one, commit]), "not void");
        let [one, other] = [1, 2].map(|value| store(bytes.end, value));
        assert_ne!(of(&[one, commit]), of(&[other, commit]));
    }

    #[test]
    fn what_comes_after_recovery_is_done_once_whatever_void_undo_records_there_are() {
        let base = blank_image(
            2,
            MappingKind::HashFs,
            NamespaceKind::Direct,
            PoolKind::Split,
        );
        let last = Names::of(&base).versions.unwrap().bytes.end - UNDO_RECORD_BYTES;
        let mut judge = Judge::new(base, 100);
        let first = judge.judge(0).verdict;
        judge.pool.write(last, &[7; 8]);
        let name = judge
            .names
            .after(0, &[store(last, u64::from_ne_bytes([7; 8]))]);
        let second = judge.judge(name).verdict;
        assert_ne!(name, 0);
        assert_eq!((first.meaning, first.tree), (second.meaning, second.tree));
        assert_eq!(judge.recovered_images(), 1);
    }
}
