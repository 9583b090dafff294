//! Access times: when reads update them, as in mount(8).

use vellum_layout::{FileKind, IdentityWord, Inode};
use vellum_media::{Memories, Persistent};

use crate::core::Core;
use crate::core::cachelet::{Cachelet, field};
use crate::sites;

/// Under *relatime*, a read updates an access time that is a day old even if the file did not
/// change.
const STALE_NS: i64 = 24 * 3600 * 1_000_000_000;

/// Which reads update access times.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("pool");
/// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
/// # options.create(&path)?.close()?;
/// use vellum::{AccessPolicy, AccessTimes, PoolOptions};
///
/// let access_times = AccessTimes { policy: AccessPolicy::Never, ..AccessTimes::default() };
/// let pool = PoolOptions::new().access_times(access_times).open(&path)?;
/// # let volume = pool.volume();
/// volume.write("/f", "text")?;
/// let before = volume.metadata("/f")?;
/// volume.read("/f")?;
/// assert_eq!(volume.metadata("/f")?, before);
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessPolicy {
    /// Reads after a change of the file, and reads a day after the last update.
    #[default]
    Relative,
    /// All reads.
    Strict,
    /// No reads.
    Never,
}

/// When access times are updated: a policy, and whether it applies to directories.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("pool");
/// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
/// # options.create(&path)?.close()?;
/// use vellum::{AccessPolicy, AccessTimes, PoolOptions};
///
/// let access_times = AccessTimes { policy: AccessPolicy::Strict, of_directories: false };
/// let pool = PoolOptions::new().access_times(access_times).open(&path)?;
/// # let volume = pool.volume();
/// let before = volume.metadata("/")?;
/// assert_eq!(volume.read_dir("/")?.count(), 0);
/// assert_eq!(volume.metadata("/")?, before); // listing has not moved the time
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessTimes {
    /// For files and symbolic links.
    pub policy: AccessPolicy,
    /// Whether listing a directory updates its time by the same policy, or not at all.
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
    /// Updates the access time of a file of this kind, which was just read, by the policy. Flushed
    /// without a fence: it becomes durable with the next one.
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
        // The coarse clock may lag behind the change that this read follows. The modification time
        // cannot show that, because users can set it to anything.
        let now = now.max(times.ctime.saturating_add(1));
        if !is_fresh && now != atime {
            self.move_access_time(file, now);
        }
    }

    #[inline(never)]
    fn move_access_time(&self, file: Cachelet, now: i64) {
        let is_kept = self.identity(file).has(IdentityWord::NO_ATIME);
        if is_kept || self.check_changeable().is_err() {
            return;
        }
        self.set(file, field::ATIME, now as u64);
        let at = self.inode_at(file) + Inode::ATIME;
        self.set_word(at, now as u64);
        self.pool.flush(sites::READ_ATIME, at, 8);
    }
}
