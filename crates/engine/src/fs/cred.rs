//! Credentials, and what permission bits and lists let them do.

use bitflags::bitflags;
use vellum_layout::{FileKind, IdentityWord};
use vellum_media::Memories;

use crate::core::Core;
use crate::core::cachelet::Cachelet;
use crate::core::slots::Op;
use crate::error::{Error, Result};
use crate::fs::acl::lists_decide;

/// The sticky bit of a mode.
pub(super) const STICKY: u16 = 0o1000;

bitflags! {
    /// The access that is requested. The numbers are those of `access(2)`.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// use vellum::{Access, Cred};
    ///
    /// fs.access(&Cred::user(54_321, 54_321), &root, Access::READ | Access::EXECUTE)?;
    /// assert!(fs.access(&Cred::user(54_321, 54_321), &root, Access::WRITE).is_err());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u8 {
        /// Reading, or listing a directory.
        const READ = 4;
        /// Writing, or changing names in a directory.
        const WRITE = 2;
        /// Executing, or searching a directory.
        const EXECUTE = 1;
    }
}

/// The credentials of the caller.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let volume = pool.volume();
/// use vellum::Cred;
///
/// let root = volume.with_cred(Cred::root()).with_umask(0o022);
/// let guest = volume.with_cred(Cred::user(54_321, 54_321));
/// root.write("/f", "text")?;
/// assert!(guest.write("/f", "other").is_err());
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cred {
    /// User.
    pub uid: u32,
    /// Group. New files get it.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Exempt from permission bits and ownership: user 0, or a caller whose permissions are checked
    /// elsewhere, as the kernel does for a mount.
    pub privileged: bool,
    /// Permission bits that new files do not get, except in directories whose access control list
    /// for new files decides instead. 0: modes are taken as they are.
    pub umask: u16,
}

impl Cred {
    /// Whether limits of quotas bind the user. Like permission to exceed them in Linux, this does
    /// not depend on who owns a file.
    pub(crate) fn is_bound(&self) -> bool {
        self.uid != 0
    }

    /// The superuser.
    ///
    /// ```
    /// let root = vellum::Cred::root();
    /// assert!(root.privileged && root.uid == 0);
    /// ```
    pub fn root() -> Self {
        Self {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            privileged: true,
            umask: 0,
        }
    }

    /// An ordinary user, or the superuser for 0.
    ///
    /// ```
    /// use vellum::Cred;
    ///
    /// assert!(!Cred::user(1000, 1000).privileged);
    /// assert_eq!(Cred::user(0, 0), Cred::root());
    /// ```
    pub fn user(uid: u32, gid: u32) -> Self {
        Self {
            uid,
            gid,
            groups: Vec::new(),
            privileged: uid == 0,
            umask: 0,
        }
    }

    /// The effective user and groups of this process, without its umask.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// let current = vellum::Cred::current();
    /// volume.write("/f", "text")?;
    /// assert_eq!(volume.metadata("/f")?.uid(), current.uid);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn current() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let groups = rustix::process::getgroups().unwrap_or_default();
        Self {
            uid,
            gid: rustix::process::getegid().as_raw(),
            groups: groups
                .into_iter()
                .map(rustix::process::Gid::as_raw)
                .collect(),
            privileged: uid == 0,
            umask: 0,
        }
    }

    /// Whether the caller is a member of `gid`.
    ///
    /// ```
    /// let cred = vellum::Cred { groups: vec![27], ..vellum::Cred::user(1000, 100) };
    /// assert!(cred.in_group(100) && cred.in_group(27) && !cred.in_group(0));
    /// ```
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

impl<M: Memories> Op<'_, M> {
    /// Checks permission bits and the access control list.
    ///
    /// # Errors
    /// [`Error::Access`]; [`Error::NotPermitted`] for writing what is immutable; damaged media.
    pub(crate) fn check_access(&self, cred: &Cred, file: Cachelet, want: Access) -> Result<()> {
        self.check_known(cred, (file, self.core.identity(file)), want)
    }

    /// Checks that `dir` is a directory, and that names in it may be looked up.
    pub(crate) fn check_search(&self, cred: &Cred, dir: Cachelet) -> Result<()> {
        let identity = self.core.identity(dir);
        match identity.kind() {
            Some(FileKind::Directory) => self.check_known(cred, (dir, identity), Access::EXECUTE),
            _ => Err(Error::NotDirectory),
        }
    }

    /// As [`Self::check_access`], for a file whose identity was loaded.
    #[inline(always)]
    pub(crate) fn check_known(
        &self,
        cred: &Cred,
        (file, identity): (Cachelet, IdentityWord),
        want: Access,
    ) -> Result<()> {
        // Nobody is exempt.
        if want.contains(Access::WRITE) && identity.has(IdentityWord::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }
        if !cred.privileged {
            return self.check_bits(cred, (file, identity), want);
        }
        let executable =
            identity.mode() & 0o111 != 0 || identity.kind() == Some(FileKind::Directory);
        match !want.contains(Access::EXECUTE) || executable {
            true => Ok(()),
            false => Err(Error::Access),
        }
    }

    /// Checks the permission bits, or the list that decides in their place.
    fn check_bits(
        &self,
        cred: &Cred,
        (file, identity): (Cachelet, IdentityWord),
        want: Access,
    ) -> Result<()> {
        let owner = self.core.owner(file);
        let shift = match () {
            () if owner.uid() == cred.uid => 6,
            () if cred.in_group(owner.gid()) => 3,
            () => 0,
        };
        if shift != 6 && lists_decide(identity) {
            return self.check_list(cred, file, want);
        }
        let bits = Access::from_bits_truncate((identity.mode() >> shift) as u8 & 7);
        if bits.contains(want) {
            Ok(())
        } else {
            Err(Error::Access)
        }
    }

    #[cold]
    fn check_list(&self, cred: &Cred, file: Cachelet, want: Access) -> Result<()> {
        match self.list_permits(cred, file, want)? {
            Some(true) => Ok(()),
            Some(false) => Err(Error::Access),
            // It has gone meanwhile, and with it what the bits of the group meant.
            None => self.check_access(cred, file, want),
        }
    }
}

impl<M: Memories> Core<M> {
    /// Whether `cred` owns the file or is exempt from ownership.
    pub(crate) fn owns(&self, cred: &Cred, file: Cachelet) -> bool {
        cred.privileged || self.owner(file).uid() == cred.uid
    }

    /// The check that Linux makes before `O_CREAT` opens an existing file in a sticky directory
    /// that anyone may write to: the file belongs to the caller or to the directory's owner. It
    /// applies to root, too. For regular files and named pipes it depends on the settings
    /// `fs.protected_*`, which the kernel enforces itself.
    pub(crate) fn check_protected(&self, cred: &Cred, dir: Cachelet, file: Cachelet) -> Result<()> {
        const OTHERS_WRITE: u16 = 0o002;
        let mode = self.identity(dir).mode();
        let exposed = mode & STICKY != 0 && mode & OTHERS_WRITE != 0;
        let asked = !matches!(self.kind(file), FileKind::File | FileKind::Fifo);
        let owner = self.owner(file).uid();
        if exposed && asked && owner != self.owner(dir).uid() && owner != cred.uid {
            return Err(Error::Access);
        }
        Ok(())
    }

    /// The checks before a file loses its name in a directory: neither flags forbid it nor the
    /// sticky bit. In a directory with that one only the owner of the file or of the directory may
    /// remove or rename the file.
    pub(crate) fn check_removal(
        &self,
        cred: &Cred,
        (dir, above): (Cachelet, IdentityWord),
        file: Cachelet,
    ) -> Result<()> {
        let guarded = above.has(IdentityWord::APPEND_ONLY)
            || self.identity(file).has_any(IdentityWord::GUARDED);
        let sticky = above.mode() & STICKY != 0;
        if !guarded && (!sticky || self.owns(cred, dir) || self.owns(cred, file)) {
            Ok(())
        } else {
            Err(Error::NotPermitted)
        }
    }
}
