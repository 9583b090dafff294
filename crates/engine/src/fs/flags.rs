//! Flags and project ids of files, as `chattr` sets them and `lsattr` shows them.
//!
//! The flags are bits of the inode's identity word, which every check of permissions has at hand
//! ([0018](../../../../docs/decisions/0018-flags-in-the-identity-word.md)).

use bitflags::bitflags;
use vellum_layout::{FileKind, IdentityWord, Inode};
use vellum_media::Memories;

use crate::core::Core;
use crate::core::cachelet::Cachelet;
use crate::core::quotas::Owners;
use crate::durability::commit::Durability;
use crate::error::{Error, Result};
use crate::fs::change::NewWords;
use crate::fs::{Cred, Fs, Node, SetAttr, SetTime};

bitflags! {
    /// Flags of a file or directory. The numbers are those of `FS_IOC_SETFLAGS` (`chattr(1)`).
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume().with_cred(vellum::Cred::root());
    /// use vellum::{Error, FileFlags};
    ///
    /// volume.write("/f", "text")?;
    /// volume.set_flags("/f", FileFlags::IMMUTABLE | FileFlags::NO_DUMP)?;
    /// assert!(matches!(volume.write("/f", "other"), Err(Error::NotPermitted)));
    /// assert!(matches!(volume.remove_file("/f"), Err(Error::NotPermitted)));
    /// volume.set_flags("/f", volume.flags("/f")? - FileFlags::IMMUTABLE)?;
    /// volume.remove_file("/f")?;
    /// # Ok::<(), vellum::Error>(())
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FileFlags: u32 {
        /// Nobody changes content, attributes or names, or links to it (`chattr +i`). Only
        /// privileged users set and clear this.
        const IMMUTABLE = 0x10;
        /// A file is only opened for reading or appending; a directory only gets names. The file
        /// itself keeps its name and its attributes, but for times that are set to the present
        /// (`chattr +a`). Only privileged users set and clear this.
        const APPEND_ONLY = 0x20;
        /// Backups leave it out (`chattr +d`).
        const NO_DUMP = 0x40;
        /// Reads do not move its access time (`chattr +A`).
        const NO_ATIME = 0x80;
        /// New files in the directory get its project id, and only files with this id are linked or
        /// moved there (`chattr +P`). For directories only.
        const PROJECT_INHERIT = 0x2000_0000;
    }
}

/// The flags whose bits in the identity word have the same numbers.
const OF_LOW_BYTE: u64 = IdentityWord::FLAGS & !IdentityWord::PROJECT_INHERIT;
const _: () = assert!(
    OF_LOW_BYTE == FileFlags::all().bits() as u64 & !(FileFlags::PROJECT_INHERIT.bits() as u64)
);

/// What a new file gets from its directory, as far as its kind can have it.
pub(super) const INHERITED: u64 =
    IdentityWord::NO_ATIME | IdentityWord::NO_DUMP | IdentityWord::PROJECT_INHERIT;

impl FileFlags {
    /// The flags that forbid changes.
    ///
    /// ```
    /// use vellum::FileFlags;
    ///
    /// assert!(FileFlags::GUARDED.contains(FileFlags::IMMUTABLE));
    /// assert!(!FileFlags::GUARDED.contains(FileFlags::NO_DUMP));
    /// ```
    pub const GUARDED: Self = Self::IMMUTABLE.union(Self::APPEND_ONLY);

    fn of(identity: IdentityWord) -> Self {
        let low = Self::from_bits_truncate((identity.0 & OF_LOW_BYTE) as u32);
        match identity.has(IdentityWord::PROJECT_INHERIT) {
            true => low | Self::PROJECT_INHERIT,
            false => low,
        }
    }

    /// The bits of the identity word; `None` if there are flags that no file of this kind can have.
    fn bits_for(self, kind: FileKind) -> Option<u64> {
        let low = u64::from((self & Self::all()).bits()) & OF_LOW_BYTE;
        let bits = match self.contains(Self::PROJECT_INHERIT) {
            true => low | IdentityWord::PROJECT_INHERIT,
            false => low,
        };
        let is_possible = Self::all().contains(self) && bits & !IdentityWord::flags_of(kind) == 0;
        is_possible.then_some(bits)
    }
}

/// Whether the flags of a file let these attributes change.
pub(super) fn flags_permit(identity: IdentityWord, set: &SetAttr) -> bool {
    if !identity.has_any(IdentityWord::GUARDED) {
        return true;
    }
    let times = (set.atime, set.mtime);
    let touches = times == (Some(SetTime::Now), Some(SetTime::Now));
    let sets_times = !touches && times != (None, None);
    let sets = set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || sets_times;
    let is_immutable = identity.has(IdentityWord::IMMUTABLE);
    !sets && set.size.is_none() && !(is_immutable && (touches || set.chown))
}

impl<M: Memories> Core<M> {
    /// The project id of a file.
    fn project(&self, file: Cachelet) -> u32 {
        self.word(self.inode_at(file) + Inode::PROJECT) as u32
    }

    /// Flags and project id of a new file of `kind` in `dir`, whose identity is `above`.
    pub(super) fn inherited_flags(
        &self,
        (dir, above): (Cachelet, IdentityWord),
        kind: FileKind,
    ) -> (u64, u32) {
        let project = match above.has(IdentityWord::PROJECT_INHERIT) {
            true => self.project(dir),
            false => 0,
        };
        (above.0 & INHERITED & IdentityWord::flags_of(kind), project)
    }

    /// Checks that a directory takes a name of a file that was not made there.
    #[inline]
    pub(super) fn check_project(
        &self,
        (dir, above): (Cachelet, IdentityWord),
        file: Cachelet,
    ) -> Result<()> {
        let takes_all = !above.has(IdentityWord::PROJECT_INHERIT);
        if takes_all || self.project(dir) == self.project(file) {
            Ok(())
        } else {
            Err(Error::OtherProject)
        }
    }
}

impl<M: Memories> Node<M> {
    /// The file's flags. No access to the medium.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// assert!(pool.fs().root().flags().is_empty());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn flags(&self) -> FileFlags {
        FileFlags::of(self.fs.core.identity(self.cachelet))
    }
}

impl<M: Memories> Fs<M> {
    /// Sets and clears flags of a file or directory: it has these from then on ([`Node::flags`]
    /// returns them).
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// use vellum::FileFlags;
    ///
    /// fs.set_flags(&cred, &root, FileFlags::NO_ATIME)?;
    /// let dir = fs.mkdir(&cred, &root, b"d", 0o755)?;
    /// assert_eq!(dir.flags(), FileFlags::NO_ATIME); // inherited
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for others than the owner, and for all but privileged users who set
    /// or clear [`FileFlags::GUARDED`]; also if the file is immutable, remains so, and another flag
    /// changes. [`Error::Unsupported`] for flags that the file cannot have.
    pub fn set_flags(&self, cred: &Cred, node: &Node<M>, flags: FileFlags) -> Result<()> {
        self.change_flags(cred, node, Some(flags), None)
    }

    /// The project id of a file: 0, unless it was set or inherited.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// let fs = pool.fs();
    /// assert_eq!(fs.project(&fs.root())?, 0);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Damaged media.
    pub fn project(&self, node: &Node<M>) -> Result<u32> {
        self.with_op(|op| Ok(op.core.project(node.cachelet)))
    }

    /// Sets the project id of a file or directory, not of files in it.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// use vellum::{Error, FileFlags, FileKind};
    ///
    /// let dir = fs.mkdir(&cred, &root, b"d", 0o755)?;
    /// fs.set_project(&cred, &dir, 7)?;
    /// fs.set_flags(&cred, &dir, FileFlags::PROJECT_INHERIT)?;
    /// let file = fs.mknod(&cred, &dir, b"f", FileKind::File, 0o644, 0)?;
    /// assert_eq!(fs.project(&file)?, 7);
    /// fs.mkdir(&cred, &root, b"other", 0o755)?;
    /// let moved = fs.rename(&cred, &root, b"other", &dir, b"other", Default::default());
    /// assert!(matches!(moved, Err(Error::OtherProject)));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for others than the owner, and if the file is immutable.
    /// [`Error::Invalid`] for 2^32 - 1.
    pub fn set_project(&self, cred: &Cred, node: &Node<M>, project: u32) -> Result<()> {
        self.change_flags(cred, node, None, Some(project))
    }

    /// Sets flags and project id at once: after a crash both are the old ones or the new ones.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// use vellum::FileFlags;
    ///
    /// fs.set_flags_and_project(&cred, &root, FileFlags::PROJECT_INHERIT, 7)?;
    /// assert_eq!((root.flags(), fs.project(&root)?), (FileFlags::PROJECT_INHERIT, 7));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::set_flags`] and [`Self::set_project`].
    pub fn set_flags_and_project(
        &self,
        cred: &Cred,
        node: &Node<M>,
        flags: FileFlags,
        project: u32,
    ) -> Result<()> {
        self.change_flags(cred, node, Some(flags), Some(project))
    }

    /// Changes what is given, by one journal record.
    fn change_flags(
        &self,
        cred: &Cred,
        node: &Node<M>,
        flags: Option<FileFlags>,
        project: Option<u32>,
    ) -> Result<()> {
        let file = node.cachelet;
        self.core.check_writable()?;
        let done = self.with_room(|op| {
            let change = op.begin_change(file);
            let identity = op.core.identity(file);
            let old = (FileFlags::of(identity), op.core.project(file));
            let new = (flags.unwrap_or(old.0), project.unwrap_or(old.1));
            let owns = op.core.owns(cred, file);
            let bits = checked_flags(cred.privileged, owns, identity, old, new)?;
            let words = NewWords {
                identity: Some(identity.with_flags(bits)),
                project: (new.1 != old.1).then_some(new.1),
                ..NewWords::default()
            };
            let owners = words.project.map(|project| Owners {
                project,
                ..op.core.owners(file)
            });
            self.move_usage(op, cred, file, owners)?;
            let times = change.times_now();
            op.set_words(file, words, times);
            change.show(None, times.ctime);
            Ok(())
        });
        self.commit_from(Durability::Sync, done)
    }
}

/// Checks a change of flags and project id in the kernel's order. Returns the new bits of the
/// identity word.
fn checked_flags(
    is_privileged: bool,
    owns: bool,
    identity: IdentityWord,
    (old, old_project): (FileFlags, u32),
    (new, new_project): (FileFlags, u32),
) -> Result<u64> {
    let kind = identity.kind().unwrap_or(FileKind::File);
    if !matches!(kind, FileKind::File | FileKind::Directory) {
        return Err(Error::Unsupported("flags of other files than regular ones"));
    }
    let changed = old ^ new;
    if !owns || changed.intersects(FileFlags::GUARDED) && !is_privileged {
        return Err(Error::NotPermitted);
    }
    // What id mappings of the kernel have for none.
    if new_project == u32::MAX && old_project != new_project {
        return Err(Error::Invalid("the project id 2^32 - 1"));
    }
    let bits = new.bits_for(kind);
    let bits = bits.ok_or(Error::Unsupported("a flag that such a file does not have"))?;
    let stays = (old & new).contains(FileFlags::IMMUTABLE);
    match stays && (!changed.is_empty() || old_project != new_project) {
        true => Err(Error::NotPermitted),
        false => Ok(bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_layout::InodeState;

    #[test]
    fn flags_are_bits_of_the_identity_word() {
        for kind in [FileKind::File, FileKind::Directory, FileKind::Fifo] {
            let identity = IdentityWord::new(InodeState::Live, kind, 0o4755, 7);
            for bits in 0..1 << 9 {
                // One bit beside the flags, and all flags.
                let flags = FileFlags::from_bits_retain(bits & 0xF8 | (bits & 1) << 29);
                let Some(word) = flags.bits_for(kind) else {
                    let possible = match kind {
                        FileKind::Directory => FileFlags::all(),
                        FileKind::File => FileFlags::all() - FileFlags::PROJECT_INHERIT,
                        _ => FileFlags::NO_ATIME | FileFlags::NO_DUMP,
                    };
                    assert!(!possible.contains(flags), "{kind:?} {flags:?}");
                    continue;
                };
                let flagged = identity.with_flags(word);
                assert!(flagged.has_sound_flags());
                assert_eq!(FileFlags::of(flagged), flags);
            }
        }
    }
}
