//! Modification and change times as cachelets hold them.
//!
//! Creations and removals set both times of a directory at once, and several threads do so at the
//! same time: one word tells of it, [`field::CHANGED`], in the line that such operations change
//! anyway. The other line of the cachelet, which lookups and permission checks read, stays in
//! every processor's cache.

use vellum_layout::FileKind;
use vellum_media::{Memories, Memory};

use crate::cachelet::{Cachelet, field};
use crate::core::Core;
use crate::slots::Op;

/// When a directory changed last (from bit 1), and whether its modification time is another
/// ([`field::MTIME`]): bit 0. Later changes are greater, whatever the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ChangeWord(u64);

impl ChangeWord {
    const APART: u64 = 1;

    /// The names changed, and so both times.
    fn both(ns: i64) -> Self {
        Self((ns.max(0) as u64) << 1)
    }

    /// The change time alone.
    fn apart(ns: i64) -> Self {
        Self(Self::both(ns).0 | Self::APART)
    }

    fn ns(self) -> i64 {
        (self.0 >> 1) as i64
    }

    fn is_apart(self) -> bool {
        self.0 & Self::APART != 0
    }
}

/// The times of a file that changes set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) mtime: i64,
    pub(crate) ctime: i64,
}

impl<M: Memories> Core<M> {
    fn change_word(&self, dir: Cachelet) -> ChangeWord {
        ChangeWord(self.get(dir, field::CHANGED))
    }

    /// Both times.
    pub(crate) fn times(&self, file: Cachelet) -> Times {
        if self.kind(file) != FileKind::Directory {
            let [mtime, ctime] = [field::MTIME, field::CTIME].map(|time| self.get(file, time));
            let (mtime, ctime) = (mtime as i64, ctime as i64);
            return Times { mtime, ctime };
        }
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

    /// The change time of a directory.
    pub(crate) fn changed_at(&self, dir: Cachelet) -> i64 {
        self.change_word(dir).ns()
    }

    /// Sets the times of a cachelet that nobody can reach yet.
    pub(crate) fn begin_times(&self, file: Cachelet, kind: FileKind, times: Times) {
        self.set(file, field::MTIME, times.mtime as u64);
        if kind == FileKind::Directory {
            self.set(file, field::CHANGED, ChangeWord::apart(times.ctime).0);
        } else {
            self.set(file, field::CTIME, times.ctime as u64);
        }
    }

    /// Sets the change time, if it is later, and the modification time, if one is given. The caller
    /// holds the file's lock.
    pub(crate) fn set_times(&self, file: Cachelet, mtime: Option<i64>, ctime: i64) {
        if self.kind(file) != FileKind::Directory {
            if let Some(mtime) = mtime {
                self.set(file, field::MTIME, mtime as u64);
            }
            self.arena
                .fetch_max(self.cachelet_at(file, field::CTIME), ctime as u64);
            return;
        }
        let at = self.cachelet_at(file, field::CHANGED);
        let mut seen = self.change_word(file);
        loop {
            // While the word does not say that it counts, nobody reads it.
            let kept = (!seen.is_apart()).then(|| seen.ns());
            if let Some(mtime) = mtime.or(kept) {
                self.set(file, field::MTIME, mtime as u64);
            }
            let new = ChangeWord::apart(ctime.max(seen.ns()));
            match self.arena.compare_exchange(at, seen.0, new.0) {
                Ok(_) => return,
                Err(now) => seen = ChangeWord(now),
            }
        }
    }

    /// Notes that names of `dir` changed at `ns`.
    pub(crate) fn raise_both_times(&self, dir: Cachelet, ns: i64) {
        let word = ChangeWord::both(ns);
        let at = self.cachelet_at(dir, field::CHANGED);
        let before = ChangeWord(self.arena.fetch_max(at, word.0));
        if before > word && before.is_apart() {
            self.raise_mtime_apart(dir, ns);
        }
    }

    /// Sets a directory's modification time to `ns`, unless a later change has set it. The change
    /// time, which is later already, tells such a change from a time that somebody set, which may
    /// be any.
    fn raise_mtime_apart(&self, dir: Cachelet, ns: i64) {
        let at = self.cachelet_at(dir, field::MTIME);
        let mut now = self.get(dir, field::MTIME);
        while !(ns..=self.changed_at(dir)).contains(&(now as i64)) {
            match self.arena.compare_exchange(at, now, ns as u64) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }
}

impl<M: Memories> Op<'_, M> {
    /// Raises the change time alone.
    pub(crate) fn raise_ctime(&self, file: Cachelet, ns: i64) {
        let _lock =
            (self.core.kind(file) == FileKind::Directory).then(|| self.core.lock(self, file));
        self.core.set_times(file, None, ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checking::kernels::{Job, Stage, explore};
    use crate::checking::loom_memory::Swaps;

    const DIR: Cachelet = Cachelet(50);

    fn begin(stage: &Stage, mtime: i64, ctime: i64) {
        let core = stage.core();
        let identity = vellum_layout::IdentityWord::new(
            vellum_layout::InodeState::Live,
            FileKind::Directory,
            0o755,
            1,
        );
        core.set(DIR, field::IDENTITY, identity.0);
        core.begin_times(DIR, FileKind::Directory, Times { mtime, ctime });
    }

    #[test]
    fn a_change_of_names_outlasts_one_of_permissions_beside_it() {
        for later in [10, 30] {
            explore(4, Swaps::Plain, move |stage| {
                begin(&stage, 1, 5);
                let jobs: Vec<Job> = vec![
                    Box::new(move |stage| stage.core().raise_both_times(DIR, later)),
                    Box::new(|stage| stage.core().set_times(DIR, None, 20)),
                ];
                stage.together(jobs);
                let (mtime, ctime) = (later, later.max(20));
                assert_eq!(stage.core().times(DIR), Times { mtime, ctime });
            });
        }
    }

    #[test]
    fn the_last_change_of_names_is_the_modification() {
        explore(4, Swaps::Plain, |stage| {
            begin(&stage, 99, 5);
            let jobs: Vec<Job> = vec![
                Box::new(|stage| stage.core().raise_both_times(DIR, 6)),
                Box::new(|stage| stage.core().raise_both_times(DIR, 7)),
                Box::new(|stage| {
                    let Times { mtime, ctime } = stage.core().times(DIR);
                    assert!([(99, 5), (6, 6), (7, 7)].contains(&(mtime, ctime)));
                }),
            ];
            stage.together(jobs);
            assert_eq!(stage.core().times(DIR), Times { mtime: 7, ctime: 7 });
            stage.core().set_times(DIR, Some(-3), 8);
            assert_eq!(
                stage.core().times(DIR),
                Times {
                    mtime: -3,
                    ctime: 8
                }
            );
            stage.core().raise_both_times(DIR, 9);
            assert_eq!(stage.core().times(DIR), Times { mtime: 9, ctime: 9 });
        });
    }
}
