//! Advisory locks: of ranges of bytes (`fcntl`), and of whole files (`flock`), which do not meet.
//!
//! Nobody waits: a request that others are in the way of fails with `EAGAIN`.

use crate::{Errno, Handle, Ino, Model, Range, Result};

/// What a lock excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Exclusive locks of others.
    Shared,
    /// All locks of others.
    Exclusive,
}

/// Whose lock of a range it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockOwner {
    /// The open handle's (`F_OFD_SETLK`).
    Handle,
    /// The process's (`F_SETLK`): the model has one.
    Process,
}

/// A lock of a range that somebody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeldLock {
    /// Its kind.
    pub kind: LockKind,
    /// Its owner.
    pub owner: LockOwner,
    /// Its bytes; a length of 0 has no limit.
    pub range: Range,
}

/// The last byte that can be locked.
const LAST: u64 = i64::MAX as u64;

/// An owner of locks of ranges; `None` is the process.
type Owner = Option<Handle>;

/// First byte, last byte, kind.
type Piece = (u64, u64, LockKind);

/// The locks of one owner on one file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Owned {
    ino: Ino,
    owner: Owner,
    /// Disjoint, sorted, and as few as possible.
    pieces: Vec<Piece>,
}

/// All locks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Locks {
    /// In the order in which the owners got the first of their present locks.
    ranges: Vec<Owned>,
    whole: Vec<(Ino, Handle, LockKind)>,
}

/// First and last byte of a range of `fcntl`: a length of 0 has no limit, and a negative one ends
/// before the offset.
fn bounds(range: Range) -> Result<(u64, u64)> {
    let (start, len) = (range.offset as i64, range.len as i64);
    if start < 0 {
        return Err(Errno::EINVAL);
    }
    let (first, last) = match len {
        0 => (start, i64::MAX),
        1.. => (start, start.checked_add(len - 1).ok_or(Errno::EOVERFLOW)?),
        _ => (start.checked_add(len).ok_or(Errno::EINVAL)?, start - 1),
    };
    if first < 0 {
        return Err(Errno::EINVAL);
    }
    Ok((first as u64, last as u64))
}

/// The pieces with bytes `first..=last` replaced by a lock of this kind, or by none.
fn replaced(pieces: &[Piece], (first, last): (u64, u64), kind: Option<LockKind>) -> Vec<Piece> {
    let mut new: Vec<Piece> = Vec::new();
    for &(from, to, of) in pieces {
        if from < first {
            new.push((from, to.min(first - 1), of));
        }
        if to > last {
            new.push((from.max(last + 1), to, of));
        }
    }
    new.extend(kind.map(|kind| (first, last, kind)));
    new.sort_by_key(|piece| piece.0);
    new.dedup_by(|next, before| {
        let is_one = next.2 == before.2 && next.0 == before.1 + 1;
        if is_one {
            before.1 = next.1;
        }
        is_one
    });
    new
}

impl Model {
    /// `flock` with `LOCK_NB`; `None` unlocks. A lock of the other kind is given up before the
    /// request is looked at.
    pub fn flock(&mut self, handle: Handle, kind: Option<LockKind>) -> Result<()> {
        let ino = self.handle_ino(handle)?;
        let whole = &mut self.locks.whole;
        if kind.is_some_and(|kind| whole.contains(&(ino, handle, kind))) {
            return Ok(());
        }
        whole.retain(|lock| lock.1 != handle);
        let Some(kind) = kind else {
            return Ok(());
        };
        let excludes = |of: LockKind| of == LockKind::Exclusive || kind == LockKind::Exclusive;
        if whole.iter().any(|lock| lock.0 == ino && excludes(lock.2)) {
            return Err(Errno::EAGAIN);
        }
        whole.push((ino, handle, kind));
        Ok(())
    }

    /// `fcntl` with `F_SETLK` or `F_OFD_SETLK`; `None` unlocks.
    pub fn set_lock(
        &mut self,
        handle: Handle,
        owner: LockOwner,
        kind: Option<LockKind>,
        range: Range,
    ) -> Result<()> {
        let file = self.opened(handle)?;
        let bounds = bounds(range)?;
        let is_permitted = match kind {
            Some(LockKind::Shared) => file.reads(),
            Some(LockKind::Exclusive) => file.writes(),
            None => true,
        };
        if !is_permitted {
            return Err(Errno::EBADF);
        }
        let owner = owner_of(handle, owner);
        if let Some(kind) = kind
            && self.first_conflict(file.ino, owner, kind, bounds).is_some()
        {
            return Err(Errno::EAGAIN);
        }
        let ranges = &mut self.locks.ranges;
        let known = |owned: &Owned| (owned.ino, owned.owner) == (file.ino, owner);
        let at = ranges.iter().position(known).unwrap_or_else(|| {
            ranges.push(Owned {
                ino: file.ino,
                owner,
                pieces: Vec::new(),
            });
            ranges.len() - 1
        });
        ranges[at].pieces = replaced(&ranges[at].pieces, bounds, kind);
        ranges.retain(|owned| !owned.pieces.is_empty());
        Ok(())
    }

    /// `fcntl` with `F_GETLK` or `F_OFD_GETLK`: the first lock in the way.
    pub fn get_lock(
        &self,
        handle: Handle,
        owner: LockOwner,
        kind: LockKind,
        range: Range,
    ) -> Result<Option<HeldLock>> {
        let file = self.opened(handle)?;
        let bounds = bounds(range)?;
        Ok(self.first_conflict(file.ino, owner_of(handle, owner), kind, bounds))
    }

    fn first_conflict(
        &self,
        ino: Ino,
        owner: Owner,
        kind: LockKind,
        (first, last): (u64, u64),
    ) -> Option<HeldLock> {
        let others = self.locks.ranges.iter();
        let others = others.filter(|owned| owned.ino == ino && owned.owner != owner);
        let pieces = others.flat_map(|owned| owned.pieces.iter().map(|piece| (owned.owner, piece)));
        let excludes = |of: LockKind| of == LockKind::Exclusive || kind == LockKind::Exclusive;
        let mut found =
            pieces.filter(|(_, piece)| piece.0 <= last && first <= piece.1 && excludes(piece.2));
        let (owner, &(first, last, kind)) = found.next()?;
        Some(HeldLock {
            kind,
            owner: match owner {
                Some(_) => LockOwner::Handle,
                None => LockOwner::Process,
            },
            range: Range {
                offset: first,
                len: if last == LAST { 0 } else { last - first + 1 },
            },
        })
    }

    /// Releases the locks of the process, as closing another handle of each file does.
    pub fn end_process_locks(&mut self) {
        self.locks.ranges.retain(|owned| owned.owner.is_some());
    }

    /// Releases what ends with a handle: its own locks, and those of the process on its file.
    pub(crate) fn end_locks(&mut self, handle: Handle, ino: Ino) {
        let ends = |owned: &Owned| match owned.owner {
            Some(of) => of == handle,
            None => owned.ino == ino,
        };
        self.locks.ranges.retain(|owned| !ends(owned));
        self.locks.whole.retain(|lock| lock.1 != handle);
    }
}

fn owner_of(handle: Handle, owner: LockOwner) -> Owner {
    (owner == LockOwner::Handle).then_some(handle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cred;

    fn opened(count: usize) -> (Model, Vec<Handle>) {
        let mut model = Model::new(0);
        let root = Cred::superuser();
        let file = model
            .create(Ino::ROOT, b"f", 0o600, true, &root, 1)
            .unwrap();
        let open = |_| model.open(file, libc::O_RDWR, &root, 1).unwrap();
        let handles = (0..count).map(open).collect();
        (model, handles)
    }

    fn bytes(offset: u64, len: u64) -> Range {
        Range { offset, len }
    }

    #[test]
    fn a_lock_within_a_lock_splits_it_and_a_gap_is_filled() {
        let (mut model, handles) = opened(2);
        let mut set = |kind, range| model.set_lock(handles[0], LockOwner::Handle, kind, range);
        set(Some(LockKind::Exclusive), bytes(0, 10)).unwrap();
        set(Some(LockKind::Shared), bytes(4, 2)).unwrap();
        set(None, bytes(9, 0)).unwrap();
        set(Some(LockKind::Shared), bytes(6, 3)).unwrap();
        let pieces = [(0, 3, LockKind::Exclusive), (4, 8, LockKind::Shared)];
        assert_eq!(model.locks.ranges[0].pieces, pieces);
    }

    #[test]
    fn a_close_releases_the_locks_of_the_process() {
        let (mut model, handles) = opened(2);
        let exclusive = Some(LockKind::Exclusive);
        for (owner, at) in [(LockOwner::Process, 0), (LockOwner::Handle, 10)] {
            model
                .set_lock(handles[0], owner, exclusive, bytes(at, 1))
                .unwrap();
        }
        model.close(handles[1]).unwrap();
        assert_eq!(model.locks.ranges.len(), 1);
        model.close(handles[0]).unwrap();
        assert_eq!(model.locks, Locks::default());
    }

    #[test]
    fn a_refused_conversion_has_lost_the_lock_of_the_file() {
        let (mut model, handles) = opened(2);
        for &handle in &handles {
            model.flock(handle, Some(LockKind::Shared)).unwrap();
        }
        let refused = model.flock(handles[0], Some(LockKind::Exclusive));
        assert_eq!(refused, Err(Errno::EAGAIN));
        assert_eq!(model.flock(handles[1], Some(LockKind::Exclusive)), Ok(()));
    }
}
