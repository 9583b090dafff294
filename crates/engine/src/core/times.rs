//! Modification and change times in cachelets.
//!
//! Creations and removals set both times of a directory together, and several threads do so at the
//! same time. One word stores them, [`field::CHANGED`], in the line that such operations change
//! anyway. The other line of the cachelet, which lookups and permission checks read, stays in every
//! processor's cache.
//!
//! Everything else that sets times holds the file's lock ([`Change`]), in memory and on the pool,
//! so a change time never goes back. For a directory it closes the word meanwhile. A change of
//! names has either stored its time before, which then goes into the inode, or it stores it
//! afterwards. In the second case its entry, though older, means nothing to recovery, which uses
//! entries only if they are later than the inode's change time. So such a change stores its time
//! itself ([`Op::note_names`]), before it returns and before anyone can see that time.

use vellum_layout::{FileKind, LifeWord};
use vellum_media::{Memories, Memory};

use crate::core::Core;
use crate::core::cachelet::{Cachelet, LockGuard, field};
use crate::core::slots::Op;

/// The latest time at which names of a directory change, whatever damaged times say. A later one
/// would not fit its word, and entries would have other times than the directory.
pub(crate) const LAST_NS: i64 = LifeWord::LAST_NS;

/// When a directory last changed (from bit 2 on, which suffices until the year 2116), and two
/// flags. Words of later changes are greater, whatever the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChangeWord(u64);

impl ChangeWord {
    /// The modification time differs: it is in [`field::MTIME`].
    const APART: u64 = 1;
    /// The holder of the directory's lock is changing its times.
    const CLOSED: u64 = 2;
    /// A change of names, which sets both times.
    pub(crate) fn both(ns: i64) -> Self {
        Self((ns.clamp(0, LAST_NS) as u64) << 2)
    }

    /// A change of the change time only.
    fn apart(ns: i64) -> Self {
        Self(Self::both(ns).0 | Self::APART)
    }

    fn closed(self) -> Self {
        Self(self.0 | Self::APART | Self::CLOSED)
    }

    fn ns(self) -> i64 {
        (self.0 >> 2) as i64
    }

    fn is_apart(self) -> bool {
        self.0 & Self::APART != 0
    }

    fn is_closed(self) -> bool {
        self.0 & Self::CLOSED != 0
    }
}

/// The times of a file that changes set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) mtime: i64,
    pub(crate) ctime: i64,
}

/// A change of a file's times in flight: no other thread sets any, in memory or in the inode.
/// Readers see the old ones until the new ones are shown.
pub(crate) struct Change<'a, M: Memories> {
    core: &'a Core<M>,
    pub(crate) file: Cachelet,
    /// The times before.
    pub(crate) before: Times,
    is_dir: bool,
    _lock: LockGuard<'a, M>,
}

impl<M: Memories> Change<'_, M> {
    /// The present time, but no earlier than the last change.
    pub(crate) fn now(&self) -> i64 {
        self.core.clock.now().max(self.before.ctime)
    }

    /// The times of a change that leaves the content as it is.
    pub(crate) fn times_now(&self) -> Times {
        Times {
            ctime: self.now(),
            ..self.before
        }
    }

    /// Shows the new times. The modification time stays if none is given, and the change time if it
    /// was later.
    pub(crate) fn show(self, mtime: Option<i64>, ctime: i64) {
        if let Some(mtime) = mtime {
            self.core.set(self.file, field::MTIME, mtime as u64);
        }
        self.open(ctime.max(self.before.ctime));
    }

    fn open(&self, ctime: i64) {
        if self.is_dir {
            self.open_with(ChangeWord::apart(ctime));
        } else {
            self.core.set(self.file, field::CTIME, ctime as u64);
        }
    }

    pub(crate) fn open_with(&self, word: ChangeWord) {
        self.core.set(self.file, field::CHANGED, word.0);
    }
}

impl<M: Memories> Drop for Change<'_, M> {
    fn drop(&mut self) {
        if self.is_dir && self.core.change_word(self.file).is_closed() {
            self.open(self.before.ctime);
        }
    }
}

impl<M: Memories> Core<M> {
    fn change_word(&self, dir: Cachelet) -> ChangeWord {
        ChangeWord(self.get(dir, field::CHANGED))
    }

    /// Returns both times.
    #[inline]
    pub(crate) fn times(&self, file: Cachelet) -> Times {
        self.times_of(file, self.kind(file))
    }

    /// The same if the caller knows the kind of file.
    #[inline(always)]
    pub(crate) fn times_of(&self, file: Cachelet, kind: FileKind) -> Times {
        if kind == FileKind::Directory {
            return self.times_of_directory(file);
        }
        Times {
            mtime: self.get(file, field::MTIME) as i64,
            ctime: self.get(file, field::CTIME) as i64,
        }
    }

    fn times_of_directory(&self, file: Cachelet) -> Times {
        let mut changed = self.change_word(file);
        loop {
            let apart = self.get(file, field::MTIME) as i64;
            let again = self.change_word(file);
            if again == changed {
                let ctime = changed.ns();
                let mtime = if changed.is_apart() { apart } else { ctime };
                return Times { mtime, ctime };
            }
            changed = again;
        }
    }

    /// Returns the change time of a directory.
    pub(crate) fn changed_at(&self, dir: Cachelet) -> i64 {
        self.change_word(dir).ns()
    }

    /// Sets the times of a cachelet that no other operation can reach yet.
    pub(crate) fn begin_times(&self, file: Cachelet, kind: FileKind, times: Times) {
        self.set(file, field::MTIME, times.mtime as u64);
        if kind == FileKind::Directory {
            self.set(file, field::CHANGED, ChangeWord::apart(times.ctime).0);
        } else {
            self.set(file, field::CTIME, times.ctime as u64);
        }
    }

    /// Closes the word to changes of names, and returns the times so far. The caller holds the
    /// directory's lock.
    fn close_times(&self, dir: Cachelet) -> Times {
        let at = self.cachelet_at(dir, field::CHANGED);
        let mut seen = self.change_word(dir);
        loop {
            let ctime = seen.ns();
            let mtime = if seen.is_apart() {
                self.get(dir, field::MTIME) as i64
            } else {
                // Nobody reads this word until the flag `APART` is set.
                self.set(dir, field::MTIME, ctime as u64);
                ctime
            };
            match self.arena.compare_exchange(at, seen.0, seen.closed().0) {
                Ok(_) => return Times { mtime, ctime },
                Err(now) => seen = ChangeWord(now),
            }
        }
    }

    /// Records that names of `dir` changed at `ns`. Returns `false`, and records nothing, if the
    /// inode has, or will have, a later change that is no change of names.
    pub(crate) fn try_note_names(&self, dir: Cachelet, ns: i64) -> bool {
        let word = ChangeWord::both(ns);
        let at = self.cachelet_at(dir, field::CHANGED);
        let mut seen = self.change_word(dir);
        loop {
            if seen.is_closed() || seen.is_apart() && seen > word {
                return false;
            }
            if seen >= word {
                return true;
            }
            match self.arena.compare_exchange(at, seen.0, word.0) {
                Ok(_) => return true,
                Err(now) => seen = ChangeWord(now),
            }
        }
    }
}

impl<'a, M: Memories> Op<'a, M> {
    /// Begins a change of a file's times, under its lock.
    pub(crate) fn begin_change(&self, file: Cachelet) -> Change<'a, M> {
        let core = self.core;
        let lock = core.lock(self, file);
        let is_dir = core.kind(file) == FileKind::Directory;
        let before = if is_dir {
            core.close_times(file)
        } else {
            core.times_of(file, FileKind::File)
        };
        Change {
            core,
            file,
            before,
            is_dir,
            _lock: lock,
        }
    }

    /// Raises the change time only.
    pub(crate) fn raise_ctime(&self, file: Cachelet, ns: i64) {
        self.begin_change(file).show(None, ns);
    }
}

#[cfg(test)]
mod tests {
    use vellum_layout::Inode;

    use super::*;
    use crate::checking::kernels::{Job, Stage, explore};
    use crate::checking::loom_memory::Swaps;
    use crate::fs::{Cred, SetAttr, SetTime};

    fn root(stage: &Stage) -> Cachelet {
        stage.fs().root
    }

    /// What recovery makes of the root's times if its latest entry has the time `life`.
    fn recovered(stage: &Stage, life: i64) -> Times {
        let core = stage.core();
        let word = |field| core.word(core.inode_at(root(stage)) + field) as i64;
        let (mtime, ctime) = (word(Inode::MTIME), word(Inode::CTIME));
        if life > ctime {
            Times {
                mtime: life,
                ctime: life,
            }
        } else {
            Times { mtime, ctime }
        }
    }

    fn set(stage: &Stage, set: &SetAttr) {
        let node = stage.fs().root();
        stage.fs().set_attr(&Cred::root(), &node, set).unwrap();
    }

    /// A directory whose mode is changed while a name is created in it keeps the modification time
    /// of the name after a crash.
    #[test]
    fn a_change_of_names_beside_one_of_permissions_survives() {
        explore(3, Swaps::Plain, |stage| {
            let op = stage.core().op_begin().unwrap();
            let life = op.change_time(root(&stage));
            drop(op);
            let jobs: Vec<Job> = vec![
                Box::new(move |stage| {
                    let op = stage.core().op_begin().unwrap();
                    op.note_names(root(&stage), life);
                    assert!(stage.core().times(root(&stage)).mtime >= life);
                }),
                Box::new(|stage| {
                    let mode = Some(0o700);
                    let change = SetAttr {
                        mode,
                        ..SetAttr::default()
                    };
                    set(&stage, &change);
                }),
            ];
            stage.together(jobs);
            let times = stage.core().times(root(&stage));
            assert_eq!(times.mtime, life);
            assert_eq!(recovered(&stage, life), times);
        });
    }

    #[test]
    fn a_time_set_beside_a_change_of_names_survives_if_it_is_seen() {
        explore(3, Swaps::Plain, |stage| {
            let op = stage.core().op_begin().unwrap();
            let life = op.change_time(root(&stage));
            drop(op);
            let jobs: Vec<Job> = vec![
                Box::new(move |stage| {
                    stage
                        .core()
                        .op_begin()
                        .unwrap()
                        .note_names(root(&stage), life)
                }),
                Box::new(|stage| {
                    let change = SetAttr {
                        mtime: Some(SetTime::At(-3)),
                        ..SetAttr::default()
                    };
                    set(&stage, &change);
                }),
            ];
            stage.together(jobs);
            let times = stage.core().times(root(&stage));
            assert!([life, -3].contains(&times.mtime));
            assert_eq!(recovered(&stage, life), times);
        });
    }

    #[test]
    fn the_last_change_of_names_is_the_modification() {
        explore(3, Swaps::Plain, |stage| {
            let core = stage.core();
            let at = core.changed_at(root(&stage));
            let note = |ns| -> Job {
                Box::new(move |stage: Stage| {
                    stage
                        .core()
                        .op_begin()
                        .unwrap()
                        .note_names(root(&stage), ns)
                })
            };
            let old = core.times(root(&stage)).mtime;
            let look: Job = Box::new(move |stage: Stage| {
                let Times { mtime, ctime } = stage.core().times(root(&stage));
                let seen = (mtime, ctime);
                assert!([(old, at), (at + 1, at + 1), (at + 2, at + 2)].contains(&seen));
            });
            stage.together(vec![note(at + 1), note(at + 2), look]);
            let times = |ns| Times {
                mtime: ns,
                ctime: ns,
            };
            assert_eq!(core.times(root(&stage)), times(at + 2));
            let op = core.op_begin().unwrap();
            op.begin_change(root(&stage)).show(Some(-3), at + 3);
            let apart = Times {
                mtime: -3,
                ctime: at + 3,
            };
            assert_eq!(core.times(root(&stage)), apart);
            op.note_names(root(&stage), at + 4);
            assert_eq!(core.times(root(&stage)), times(at + 4));
        });
    }
}
