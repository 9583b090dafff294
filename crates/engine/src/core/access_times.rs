//! Access times: when reading moves them, as mount(8) has it.

use vellum_layout::{FileKind, Inode};
use vellum_media::{Memories, Persistent};

use crate::core::Core;
use crate::core::cachelet::{Cachelet, field};
use crate::sites;

/// Under *relatime*, an access time that is a day old is renewed however little the file changed.
const STALE_NS: i64 = 24 * 3600 * 1_000_000_000;

/// Which reads move the access time of what they read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessPolicy {
    /// Those behind a change of the file, or a day after the last one that did.
    #[default]
    Relative,
    /// All.
    Strict,
    /// None.
    Never,
}

/// When access times move: a policy, and whether directories have it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessTimes {
    /// For files and symbolic links.
    pub policy: AccessPolicy,
    /// Listing a directory moves its time by the same policy, or leaves it alone.
    pub of_directories: bool,
}

impl Default for AccessTimes {
    fn default() -> Self {
        Self {
            policy: AccessPolicy::default(),
            of_directories: true,
        }
    }
}

impl AccessTimes {
    fn policy_of(self, kind: FileKind) -> AccessPolicy {
        match kind {
            FileKind::Directory if !self.of_directories => AccessPolicy::Never,
            _ => self.policy,
        }
    }
}

impl<M: Memories> Core<M> {
    /// Moves the access time of what was just read, of this kind, as the policy says. Flushed
    /// without a fence: it is durable with whatever is fenced next.
    #[inline]
    pub(crate) fn touch(&self, file: Cachelet, kind: FileKind) {
        let policy = self.access_times.policy_of(kind);
        if policy == AccessPolicy::Never {
            return;
        }
        let atime = self.get(file, field::ATIME) as i64;
        let times = self.times_of(file, kind);
        let now = self.clock.now_coarse();
        let is_fresh = policy == AccessPolicy::Relative
            && atime > times.mtime
            && atime > times.ctime
            && now.saturating_sub(atime) < STALE_NS;
        // The coarse clock may lag behind the change that this read follows; the modification time
        // says nothing of that, because somebody may have set it to any.
        let now = now.max(times.ctime.saturating_add(1));
        if !is_fresh && now != atime {
            self.move_access_time(file, now);
        }
    }

    #[inline(never)]
    fn move_access_time(&self, file: Cachelet, now: i64) {
        if self.check_changeable().is_err() {
            return;
        }
        self.set(file, field::ATIME, now as u64);
        let at = self.inode_at(file) + Inode::ATIME;
        self.set_word(at, now as u64);
        self.pool.flush(sites::READ_ATIME, at, 8);
    }
}
