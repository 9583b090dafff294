//! Quotas: what users, groups and projects use of a file system, and what they may use.
//!
//! Limits are on the media, as attributes of the root directory that programs do not see. Usage is
//! counted in the arena, from the opening on, which reads every inode once
//! ([0020](../../../../docs/decisions/0020-usage-is-counted-in-the-arena-only.md)).

use vellum_layout::{
    BLOCK_BYTES, FileKind, IdentityWord, Inode, InodeState, QuotaRecord, Xattr, XattrSpace,
    read_xattrs,
};
use vellum_media::{Memories, Memory};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::core::background::Lease;
use crate::core::cachelet::{Cachelet, check_inode};
use crate::core::quotas::{Known, Owners, Space};
use crate::core::slots::Op;
use crate::core::xattrs::XattrSet;
use crate::durability::commit::Durability;
use crate::error::{Error, Result};
use crate::fs::{Cred, FileFlags, Fs, Node, StatFs};

pub use vellum_layout::QuotaKind;

/// How long a soft limit may be exceeded if nobody says otherwise: a week.
const GRACE_NS: i64 = 7 * 24 * 3600 * 1_000_000_000;

/// Limits of a user, a group or a project. Zero means no limit. Hard limits are never exceeded,
/// soft ones only for the grace period ([`QuotaDefaults`]).
///
/// ```
/// let limits = vellum::QuotaLimits { hard_bytes: 1 << 30, ..Default::default() };
/// assert_eq!(limits.soft_inodes, 0); // no limit
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// Hard limit of bytes. Blocks of 4096 bytes are counted, so it is rounded down to these.
    pub hard_bytes: u64,
    /// Soft limit of bytes.
    pub soft_bytes: u64,
    /// Hard limit of inodes: files, directories and all else.
    pub hard_inodes: u64,
    /// Soft limit of inodes.
    pub soft_inodes: u64,
}

impl QuotaLimits {
    fn of(record: &QuotaRecord) -> Self {
        Self {
            hard_bytes: record.hard_bytes,
            soft_bytes: record.soft_bytes,
            hard_inodes: record.hard_inodes,
            soft_inodes: record.soft_inodes,
        }
    }

    fn record(&self, flags: u64, bytes_until: i64, inodes_until: i64) -> QuotaRecord {
        QuotaRecord {
            flags,
            hard_bytes: self.hard_bytes,
            soft_bytes: self.soft_bytes,
            hard_inodes: self.hard_inodes,
            soft_inodes: self.soft_inodes,
            bytes_until,
            inodes_until,
        }
    }
}

/// What holds for all ids of a kind.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let (fs, cred) = (pool.fs(), vellum::Cred::root());
/// use vellum::QuotaKind;
///
/// fs.set_quotas(&cred, true)?;
/// let mut defaults = fs.quota_defaults(QuotaKind::User)?;
/// defaults.limits.hard_inodes = 1000;
/// fs.set_quota_defaults(&cred, QuotaKind::User, &defaults)?;
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaDefaults {
    /// The limits of ids that have none of their own, but not of id 0.
    pub limits: QuotaLimits,
    /// How long a soft limit of bytes may be exceeded [ns].
    pub bytes_grace_ns: i64,
    /// How long a soft limit of inodes may be exceeded [ns].
    pub inodes_grace_ns: i64,
}

/// Usage and limits of a user, a group or a project.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let (fs, volume, cred) = (pool.fs(), pool.volume(), vellum::Cred::root());
/// # let volume = volume.with_cred(cred.clone());
/// fs.set_quotas(&cred, true)?;
/// volume.write("/f", [1; 5000])?;
/// let quota = fs.quota(&cred, vellum::QuotaKind::User, 0)?;
/// assert_eq!((quota.bytes, quota.inodes), (8192 + 4096, 2)); // with the root directory
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quota {
    /// Whose files are counted.
    pub kind: QuotaKind,
    /// The user, group or project.
    pub id: u32,
    /// Bytes in use: the sum of what `stat` shows as `st_blocks`.
    pub bytes: u64,
    /// Inodes in use, with those of files that were removed but are open.
    pub inodes: u64,
    /// The limits that hold.
    pub limits: QuotaLimits,
    /// Whether these limits are the id's own, not those of all ids.
    pub has_own_limits: bool,
    /// When the soft limit of bytes may no longer be exceeded, in nanoseconds since 1970. `None`:
    /// it is not exceeded.
    pub bytes_until_ns: Option<i64>,
    /// The same for inodes.
    pub inodes_until_ns: Option<i64>,
}

impl<M: Memories> Fs<M> {
    /// Whether quotas are on.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// assert!(!pool.fs().has_quotas()); // until somebody turns them on
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn has_quotas(&self) -> bool {
        self.core.has_quotas()
    }

    /// Turns quotas on or off. While they are turned on, the files are counted; changes wait
    /// meanwhile. While they are off, limits are kept but bind nobody.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, cred) = (pool.fs(), vellum::Cred::root());
    /// fs.set_quotas(&cred, true)?;
    /// assert!(fs.has_quotas());
    /// fs.set_quotas(&cred, false)?;
    /// assert!(fs.quotas(&cred).is_err());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for others than privileged users. [`Error::NoQuotas`] if another
    /// thread turns them off while this one turns them on.
    pub fn set_quotas(&self, cred: &Cred, is_on: bool) -> Result<()> {
        self.core.check_writable()?;
        check_privileged(cred)?;
        if is_on {
            self.begin_counting()?;
        }
        let written = self.write_records(|core| {
            if is_on && !core.has_quotas() {
                return Err(Error::NoQuotas);
            }
            let mut undo = Vec::new();
            for kind in QuotaKind::ALL {
                let old = core.quota_of_kind(kind);
                core.set_quota_record(kind, None, switched(old, is_on))?;
                undo.push((kind, None, old));
            }
            Ok(undo)
        });
        self.end_counting_unless_on()?;
        written
    }

    /// Counts all files, while changes wait, and from then on each change.
    fn begin_counting(&self) -> Result<()> {
        let _lease = Lease::take_to_work(&self.core)?;
        if self.core.has_quotas() {
            return Ok(());
        }
        let _pause = self.core.pause_changes();
        self.core.clear_usage();
        self.count_usage()
    }

    /// Ends counting, unless the records say that quotas are on.
    fn end_counting_unless_on(&self) -> Result<()> {
        let op = self.core.op_begin()?;
        let _lock = self.core.lock(&op, self.root);
        if !is_on(&self.core) {
            self.core.count_quotas(false);
        }
        Ok(())
    }

    /// Usage and limits of a user, a group or a project.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, cred) = (pool.fs(), vellum::Cred::root());
    /// use vellum::{Cred, Error, QuotaKind};
    ///
    /// fs.set_quotas(&cred, true)?;
    /// assert_eq!(fs.quota(&Cred::user(7, 7), QuotaKind::User, 7)?.inodes, 0);
    /// let other = fs.quota(&Cred::user(7, 7), QuotaKind::User, 8);
    /// assert!(matches!(other, Err(Error::NotPermitted)));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if it is neither the user's own nor a group of the user's, unless
    /// the user is privileged. [`Error::NoQuotas`] while they are off.
    pub fn quota(&self, cred: &Cred, kind: QuotaKind, id: u32) -> Result<Quota> {
        let is_own = match kind {
            QuotaKind::User => cred.uid == id,
            QuotaKind::Group => cred.in_group(id),
            QuotaKind::Project => false,
        };
        if !is_own {
            check_privileged(cred)?;
        }
        self.check_quotas()?;
        self.free_removed()?;
        Ok(self.shown(kind, id, self.core.quota_of(kind, id)))
    }

    /// Usage and limits of all users, groups and projects that have files or limits, sorted.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, cred) = (pool.fs(), vellum::Cred::root());
    /// fs.set_quotas(&cred, true)?;
    /// for quota in fs.quotas(&cred)? {
    ///     println!("{:?} {}: {} bytes", quota.kind, quota.id, quota.bytes);
    /// }
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for others than privileged users. [`Error::NoQuotas`] while they are
    /// off.
    pub fn quotas(&self, cred: &Cred) -> Result<Vec<Quota>> {
        check_privileged(cred)?;
        self.check_quotas()?;
        self.free_removed()?;
        let mut all = self.core.all_quotas();
        all.retain(|(.., known)| {
            known.used != Space::default() || known.record.flags & QuotaRecord::OWN != 0
        });
        all.sort_by_key(|&(kind, id, _)| (kind, id));
        let shown = all.into_iter();
        Ok(shown
            .map(|(kind, id, known)| self.shown(kind, id, known))
            .collect())
    }

    /// The space in use, as [`Self::stat_fs`] says, or less: in a directory whose new files inherit
    /// its project, only what the project may have, as on ext4.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, volume, cred) = (pool.fs(), pool.volume(), vellum::Cred::root());
    /// # let volume = volume.with_cred(cred.clone());
    /// use vellum::{FileFlags, QuotaKind, QuotaLimits};
    ///
    /// fs.set_quotas(&cred, true)?;
    /// let limits = QuotaLimits { hard_bytes: 1 << 20, ..QuotaLimits::default() };
    /// fs.set_quota(&cred, QuotaKind::Project, 7, Some(&limits))?;
    /// volume.create_dir("/d")?;
    /// volume.set_project("/d", 7)?;
    /// volume.set_flags("/d", FileFlags::PROJECT_INHERIT)?;
    /// let found = fs.stat_fs_of(&fs.find(&cred, &fs.root(), b"/d", true)?);
    /// assert_eq!((found.blocks, found.blocks_free), (256, 255)); // the directory has one
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn stat_fs_of(&self, node: &Node<M>) -> StatFs {
        let all = self.stat_fs();
        let inherits = node.flags().contains(FileFlags::PROJECT_INHERIT);
        let project = match inherits && self.core.has_quotas() {
            true => self.project(node),
            false => return all,
        };
        // Damage is reported by the operation that meets it.
        let Ok(id) = project else {
            return all;
        };
        let known = self.core.quota_of(QuotaKind::Project, id);
        let limits = self.shown(QuotaKind::Project, id, known).limits;
        let blocks = [limits.soft_bytes, limits.hard_bytes].map(|limit| limit / BLOCK_BYTES);
        let inodes = [limits.soft_inodes, limits.hard_inodes];
        let [blocks, blocks_free] =
            within(blocks, known.used.blocks, [all.blocks, all.blocks_free]);
        let [files, files_free] = within(inodes, known.used.inodes, [all.files, all.files_free]);
        StatFs {
            blocks,
            blocks_free,
            files,
            files_free,
            ..all
        }
    }

    /// Sets the limits of a user, a group or a project; `None` leaves it those of all ids. After a
    /// crash the old or the new ones hold. Usage may be above a new limit: then it can only shrink.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, volume, cred) = (pool.fs(), pool.volume(), vellum::Cred::root());
    /// # let open = vellum::Permissions::from_mode(0o777);
    /// # volume.with_cred(cred.clone()).set_permissions("/", open)?;
    /// use vellum::{Cred, Error, QuotaKind, QuotaLimits};
    ///
    /// fs.set_quotas(&cred, true)?;
    /// let limits = QuotaLimits { hard_inodes: 1, ..QuotaLimits::default() };
    /// fs.set_quota(&cred, QuotaKind::User, 7, Some(&limits))?;
    /// let volume = volume.with_cred(Cred::user(7, 7));
    /// volume.write("/one", "text")?;
    /// assert!(matches!(volume.write("/two", "text"), Err(Error::QuotaExceeded)));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for others than privileged users. [`Error::Invalid`] for a soft
    /// limit above the hard one. [`Error::AttributesFull`] if there are too many ids with limits:
    /// at least 10 000 fit. [`Error::NoQuotas`] while they are off.
    pub fn set_quota(
        &self,
        cred: &Cred,
        kind: QuotaKind,
        id: u32,
        limits: Option<&QuotaLimits>,
    ) -> Result<()> {
        self.check_set(cred, limits)?;
        self.write_records(|core| {
            let old = core.quota_of(kind, id).record;
            let (flags, limits) = match limits {
                Some(limits) => (QuotaRecord::OWN, *limits),
                None => (0, QuotaLimits::default()),
            };
            let new = limits.record(flags, old.bytes_until, old.inodes_until);
            core.set_quota_record(kind, Some(id), new)?;
            core.settle_graces(kind, Some(id));
            Ok(vec![(kind, Some(id), old)])
        })
    }

    /// What holds for all ids of a kind.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, cred) = (pool.fs(), vellum::Cred::root());
    /// fs.set_quotas(&cred, true)?;
    /// let week = 7 * 24 * 3600 * 1_000_000_000;
    /// assert_eq!(fs.quota_defaults(vellum::QuotaKind::Group)?.bytes_grace_ns, week);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoQuotas`] while they are off.
    pub fn quota_defaults(&self, kind: QuotaKind) -> Result<QuotaDefaults> {
        self.check_quotas()?;
        let record = self.core.quota_of_kind(kind);
        Ok(QuotaDefaults {
            limits: QuotaLimits::of(&record),
            bytes_grace_ns: record.bytes_until,
            inodes_grace_ns: record.inodes_until,
        })
    }

    /// Sets what holds for all ids of a kind. Grace periods that run already keep their ends.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, cred) = (pool.fs(), vellum::Cred::root());
    /// use vellum::{QuotaDefaults, QuotaKind};
    ///
    /// fs.set_quotas(&cred, true)?;
    /// let defaults = QuotaDefaults { bytes_grace_ns: 3_600_000_000_000, ..Default::default() };
    /// fs.set_quota_defaults(&cred, QuotaKind::Project, &defaults)?;
    /// assert_eq!(fs.quota_defaults(QuotaKind::Project)?, defaults);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::set_quota`]; [`Error::Invalid`] for a negative grace period.
    pub fn set_quota_defaults(
        &self,
        cred: &Cred,
        kind: QuotaKind,
        defaults: &QuotaDefaults,
    ) -> Result<()> {
        let QuotaDefaults {
            limits,
            bytes_grace_ns,
            inodes_grace_ns,
        } = *defaults;
        self.check_set(cred, Some(&limits))?;
        if bytes_grace_ns < 0 || inodes_grace_ns < 0 {
            return Err(Error::Invalid("a negative grace period"));
        }
        self.write_records(|core| {
            let old = core.quota_of_kind(kind);
            let new = limits.record(QuotaRecord::OWN, bytes_grace_ns, inodes_grace_ns);
            core.set_quota_record(kind, None, new)?;
            core.settle_graces(kind, None);
            Ok(vec![(kind, None, old)])
        })
    }

    fn check_set(&self, cred: &Cred, limits: Option<&QuotaLimits>) -> Result<()> {
        self.core.check_writable()?;
        check_privileged(cred)?;
        self.check_quotas()?;
        let is_above = |soft, hard| hard != 0 && soft > hard;
        match limits {
            Some(limits)
                if is_above(limits.soft_bytes, limits.hard_bytes)
                    || is_above(limits.soft_inodes, limits.hard_inodes) =>
            {
                Err(Error::Invalid("a soft limit above the hard one"))
            }
            _ => Ok(()),
        }
    }

    fn check_quotas(&self) -> Result<()> {
        self.core.check_use()?;
        match self.core.has_quotas() {
            true => Ok(()),
            false => Err(Error::NoQuotas),
        }
    }

    fn shown(&self, kind: QuotaKind, id: u32, known: Known) -> Quota {
        let has_own_limits = known.record.flags & QuotaRecord::OWN != 0;
        let limits = match (has_own_limits, id) {
            (true, _) => QuotaLimits::of(&known.record),
            (false, 0) => QuotaLimits::default(),
            (false, _) => QuotaLimits::of(&self.core.quota_of_kind(kind)),
        };
        let until = |ns: i64| (ns != 0).then_some(ns);
        Quota {
            kind,
            id,
            bytes: known.used.blocks * BLOCK_BYTES,
            inodes: known.used.inodes,
            limits,
            has_own_limits,
            bytes_until_ns: until(known.record.bytes_until),
            inodes_until_ns: until(known.record.inodes_until),
        }
    }

    /// Changes records in the arena under the root directory's lock, and writes all records to the
    /// media; if that fails, takes the changes back. `change` returns whose records they were, and
    /// what they were before.
    fn write_records(&self, change: impl Fn(&Core<M>) -> Result<Vec<Owned>>) -> Result<()> {
        let written = self.with_room(|op| {
            let core = op.core;
            let root = op.begin_change(self.root);
            let undo = change(core)?;
            let written = core.xattrs_locked(self.root).and_then(|old| {
                let _ = core.take_changed_deadlines();
                let bytes = with_records(core, &old)?;
                if bytes == old.bytes {
                    return Ok(());
                }
                op.replace_hidden(root, old, bytes)
            });
            if written.is_err() {
                core.note_deadlines();
                for (kind, id, old) in undo {
                    core.set_quota_record(kind, id, old)?;
                    core.settle_graces(kind, id);
                }
            }
            written
        });
        self.commit_from(Durability::Sync, written)
    }

    /// Writes deadlines to the media that have changed since they were written.
    pub(crate) fn write_deadlines(&self) -> Result<()> {
        let core = &self.core;
        let is_due = core.has_quotas() && core.check_changeable().is_ok();
        if !is_due || !core.take_changed_deadlines() {
            return Ok(());
        }
        let written = self.write_records(|_| Ok(Vec::new()));
        if written.is_err() {
            core.note_deadlines();
        }
        match written {
            // A full pool works and closes without: the next opening begins these periods again.
            Err(Error::NoSpace(_) | Error::AttributesFull) => Ok(()),
            written => written,
        }
    }

    /// Reads the limits at an opening, and counts what they limit.
    pub(crate) fn load_quotas(&self) -> Result<()> {
        let core = &self.core;
        let op = core.op_begin()?;
        let set = match core.xattrs_locked(self.root) {
            Ok(set) => set,
            // Whoever reads them gets the error.
            Err(_) => return Ok(()),
        };
        for xattr in read_xattrs(&set.bytes).unwrap_or_default() {
            let Some((kind, id, record)) = record_in(&xattr) else {
                continue;
            };
            if let Err(error) = core.set_quota_record(kind, id, record) {
                tracing::warn!(%error, "limits of {kind:?} {id:?} do not hold");
            }
        }
        drop(op);
        match is_on(core) {
            true => self.count_usage(),
            false => Ok(()),
        }
    }

    /// Counts all files for their owners, and counts from now on. Nobody changes anything
    /// meanwhile. What cannot be read counts for nobody.
    fn count_usage(&self) -> Result<()> {
        let core = &self.core;
        for ino in core.inode_slots() {
            let op = core.op_step();
            match self.used_by(&op, ino) {
                Ok(Some((owners, space))) => core.charge(owners, space, false)?,
                Ok(None) => {}
                Err(error @ (Error::Damaged { .. } | Error::Unreadable(_))) => {
                    tracing::warn!(%error, "inode {ino} counts for no quota");
                }
                Err(error) => return Err(error),
            }
        }
        core.count_quotas(true);
        // A crash may have lost the ends of grace periods that had just begun.
        for (kind, id, _) in core.all_quotas() {
            core.settle_graces(kind, Some(id));
        }
        Ok(())
    }

    /// The owners of the inode in this slot, and what it takes; `None` if it is free.
    fn used_by(&self, op: &Op<'_, M>, ino: u64) -> Result<Option<(Owners, Space)>> {
        let core = op.core;
        let mut inode = Inode::default();
        if core.identity_on_pool(ino).state() == Some(InodeState::Free) {
            return Ok(None);
        }
        core.pool
            .read(core.geometry.slot_at(ino), inode.as_mut_bytes());
        check_inode(ino, &inode, &core.geometry)?;
        let kind = IdentityWord(inode.identity)
            .kind()
            .unwrap_or(FileKind::File);
        let mut space = Space::of_new(kind);
        if kind == FileKind::File {
            space.blocks = self.files().count_of(op, &inode)?;
        }
        op.check_media()?;
        Ok(Some((Owners::of(&inode), space)))
    }

    /// Counts a file for its new owners, before it gets them. The caller holds its lock.
    #[inline]
    pub(super) fn move_usage(
        &self,
        op: &Op<'_, M>,
        cred: &Cred,
        file: Cachelet,
        owners: Option<Owners>,
    ) -> Result<()> {
        match owners {
            Some(new) if op.core.has_quotas() => self.recharge(op, cred, file, new),
            _ => Ok(()),
        }
    }

    #[cold]
    #[inline(never)]
    fn recharge(&self, op: &Op<'_, M>, cred: &Cred, file: Cachelet, new: Owners) -> Result<()> {
        let mut space = Space::of_new(op.core.kind(file));
        if op.core.kind(file) == FileKind::File {
            space.blocks = self.files().blocks_locked(op, file)?;
        }
        let owners = [op.core.owners(file), new];
        op.core.recharge(owners, space, cred.is_bound())
    }
}

/// Total and free space as the lower of two limits leaves them. A limit of 0 is none.
fn within(limits: [u64; 2], used: u64, [total, free]: [u64; 2]) -> [u64; 2] {
    let limits = limits.into_iter().filter(|limit| *limit != 0);
    match limits.min() {
        Some(limit) if limit < total => [limit, limit.saturating_sub(used).min(free)],
        _ => [total, free],
    }
}

/// A record, and whose it is.
type Owned = (QuotaKind, Option<u32>, QuotaRecord);

/// Whose record an attribute is.
fn record_in(xattr: &Xattr<'_>) -> Option<Owned> {
    if xattr.space != XattrSpace::Quota {
        return None;
    }
    let (kind, id) = QuotaRecord::parse_name(xattr.name)?;
    Some((kind, id, QuotaRecord::parse(xattr.value)?))
}

/// Whether quotas are on according to the records. The caller holds the root directory's lock, or
/// has the pool alone.
fn is_on<M: Memories>(core: &Core<M>) -> bool {
    core.quota_of_kind(QuotaKind::User).flags & QuotaRecord::OWN != 0
}

/// The record of a kind after quotas were turned on or off.
fn switched(old: QuotaRecord, is_on: bool) -> QuotaRecord {
    match (is_on, old == QuotaRecord::default()) {
        (true, true) => QuotaLimits::default().record(QuotaRecord::OWN, GRACE_NS, GRACE_NS),
        (true, false) => QuotaRecord {
            flags: QuotaRecord::OWN,
            ..old
        },
        (false, _) => QuotaRecord { flags: 0, ..old },
    }
}

/// The attributes of the root directory with the records of the arena. If there is no space for the
/// deadlines of ids without limits of their own, without these: they begin again at an opening.
fn with_records<M: Memories>(core: &Core<M>, old: &XattrSet) -> Result<Vec<u8>> {
    let kinds = QuotaKind::ALL.into_iter();
    let mut records: Vec<Owned> = kinds
        .map(|kind| (kind, None, core.quota_of_kind(kind)))
        .collect();
    let all = core.all_quotas().into_iter();
    records.extend(all.map(|(kind, id, known)| (kind, Some(id), known.record)));
    records.retain(|(.., record)| *record != QuotaRecord::default());
    let named = read_xattrs(&old.bytes).unwrap_or_default();
    let named: Vec<_> = named
        .into_iter()
        .filter(|xattr| xattr.space.is_named())
        .collect();
    if let Some(bytes) = set_of(&named, &records) {
        return Ok(bytes);
    }
    records.retain(|(_, id, record)| id.is_none() || record.flags & QuotaRecord::OWN != 0);
    set_of(&named, &records).ok_or(Error::AttributesFull)
}

/// The set of these attributes and records. `None` if it is too large.
fn set_of(named: &[Xattr<'_>], records: &[Owned]) -> Option<Vec<u8>> {
    let name = |&(kind, id, record): &Owned| (QuotaRecord::name(kind, id), record);
    let mut records: Vec<_> = records.iter().map(name).collect();
    records.sort_by(|one, other| one.0.cmp(&other.0));
    // Their space is the last one.
    let records = records.iter().map(|(name, record)| Xattr {
        space: XattrSpace::Quota,
        name: name.as_bytes(),
        value: record.as_bytes(),
    });
    let mut bytes = Vec::new();
    let all = named.iter().copied().chain(records);
    all.for_each(|xattr| xattr.push_to(&mut bytes));
    (bytes.is_empty() || read_xattrs(&bytes).is_some()).then_some(bytes)
}

fn check_privileged(cred: &Cred) -> Result<()> {
    match cred.privileged {
        true => Ok(()),
        false => Err(Error::NotPermitted),
    }
}
