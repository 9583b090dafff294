//! Changing words of an inode: each change is one journal record, so all of its words change or
//! none.

use vellum_layout::{FileKind, IdentityWord, Inode, LinksWord, OwnerWord, SLOT_BYTES, XattrSpace};
use vellum_media::{Memories, Persistent, Site};

use crate::core::Core;
use crate::core::alloc::Take;
use crate::core::cachelet::{Cachelet, field, flag};
use crate::core::slots::Op;
use crate::core::times::{Change, Times};
use crate::core::xattrs::XattrSet;
use crate::durability::journal::Record;
use crate::error::{Error, Result};
use crate::fs::Cred;
use crate::sites;

pub(super) const SET_UID: u16 = 0o4000;
pub(super) const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

/// The attribute with the capabilities of a program.
const CAPABILITY: (XattrSpace, &[u8]) = (XattrSpace::Security, b"capability");

/// New values of words of an inode. Those that are `None` stay.
#[derive(Default)]
pub(crate) struct NewWords {
    pub(crate) identity: Option<IdentityWord>,
    pub(crate) owner: Option<OwnerWord>,
    pub(crate) atime: Option<i64>,
    /// Project id.
    pub(crate) project: Option<u32>,
    pub(crate) xattrs: Option<NewXattrs>,
}

/// A set of extended attributes that is durable, and the one that it replaces.
pub(crate) struct NewXattrs {
    old: XattrSet,
    new: XattrSet,
}

/// The set-id bits that a change by `cred` drops. Set-gid without group execution marks mandatory
/// locking, which a change by a member of the group does not drop.
pub(super) fn droppable<M: Memories>(core: &Core<M>, cred: &Cred, file: Cachelet) -> u16 {
    let stranger = !cred.privileged && !cred.in_group(core.owner(file).gid());
    let executable = core.identity(file).mode() & GROUP_EXECUTE != 0;
    if executable || stranger {
        SET_UID | SET_GID
    } else {
        SET_UID
    }
}

/// Whether a file with this identity has set-id bits, or a capability.
#[inline]
pub(super) fn has_privileges(identity: IdentityWord) -> bool {
    identity.has(IdentityWord::CAPABILITY) || identity.mode() & (SET_UID | SET_GID) != 0
}

impl<M: Memories> Op<'_, M> {
    /// Changes words of an inode, and its times, by one journal record. Then updates the cachelet,
    /// except for the times, and frees the extended attributes that were replaced. The caller holds
    /// the file's lock.
    pub(crate) fn set_words(&self, file: Cachelet, words: NewWords, times: Times) {
        let core = self.core;
        let inode_at = core.inode_at(file);
        let had = core.identity(file);
        let flags = words.xattrs.as_ref().map(|xattrs| xattrs.new.flags());
        let identity = words.identity.unwrap_or(had);
        let identity = flags.map_or(identity, |flags| identity.with_xattr_flags(flags));
        let with_project = |project| {
            let word = core.word(inode_at + Inode::PROJECT);
            Inode::project_word(word, project)
        };
        let stores = [
            (Inode::IDENTITY, (identity != had).then_some(identity.0)),
            (Inode::OWNER, words.owner.map(|owner| owner.0)),
            (Inode::PROJECT, words.project.map(with_project)),
            (
                Inode::XATTR_ROOT,
                words.xattrs.as_ref().map(|xattrs| xattrs.new.root()),
            ),
            (Inode::MTIME, Some(times.mtime as u64)),
            (Inode::CTIME, Some(times.ctime as u64)),
            (Inode::ATIME, words.atime.map(|ns| ns as u64)),
        ];
        let mut record = Record::new();
        for (offset, value) in stores {
            if let Some(value) = value {
                record.store(inode_at + offset, value);
            }
        }
        self.journal_commit(&record);
        self.journal_apply(&record);
        self.journal_retire();
        if identity != had {
            core.set(file, field::IDENTITY, identity.0);
        }
        if let Some(owner) = words.owner {
            core.set(file, field::OWNER, owner.0);
        }
        if let Some(ns) = words.atime {
            core.set(file, field::ATIME, ns as u64);
        }
        if let Some(xattrs) = words.xattrs {
            core.free_xattrs(&xattrs.old);
        }
        let dropped = had.mode() & !identity.mode() & (SET_UID | SET_GID) != 0;
        if dropped || had.has(IdentityWord::CAPABILITY) && !identity.has(IdentityWord::CAPABILITY) {
            core.note_set_ids_taken();
        }
    }

    /// Writes the records of a new set of extended attributes, durably. The caller holds the file's
    /// lock, and passes the set to [`Self::set_words`].
    pub(crate) fn new_xattrs(
        &self,
        file: Cachelet,
        old: XattrSet,
        bytes: Vec<u8>,
    ) -> Result<NewXattrs> {
        let core = self.core;
        let mut new = XattrSet::default();
        if !bytes.is_empty() {
            let owner = (core.ino(file), core.identity(file).generation());
            // One that gives space back needs some first, and gets it on a full pool, too.
            let take = match bytes.len() < old.bytes.len() {
                true => Take::Kept,
                false => Take::Common,
            };
            new = self.write_xattrs(sites::XATTR_SET, owner, bytes, take)?;
            core.pool.fence(sites::XATTR_SET_DURABLE);
        }
        Ok(NewXattrs { old, new })
    }

    /// Gives a file other extended attributes, and the identity that goes with them, if it changes.
    pub(super) fn replace_xattrs(
        &self,
        change: Change<'_, M>,
        old: XattrSet,
        bytes: Vec<u8>,
        identity: Option<IdentityWord>,
    ) -> Result<()> {
        let words = NewWords {
            identity,
            xattrs: Some(self.new_xattrs(change.file, old, bytes)?),
            ..NewWords::default()
        };
        let times = change.times_now();
        self.set_words(change.file, words, times);
        change.show(None, times.ctime);
        Ok(())
    }

    /// The extended attributes without `security.capability`, if the file has that one. The caller
    /// holds the file's lock.
    pub(crate) fn without_capability(&self, file: Cachelet) -> Result<Option<NewXattrs>> {
        let core = self.core;
        if !core.identity(file).has(IdentityWord::CAPABILITY) {
            return Ok(None);
        }
        let old = core.xattrs_locked(file)?;
        let bytes = old.with(CAPABILITY, None)?;
        self.new_xattrs(file, old, bytes).map(Some)
    }

    /// Gives a file other extended attributes that programs do not see: its times stay.
    pub(super) fn replace_hidden(
        &self,
        change: Change<'_, M>,
        old: XattrSet,
        bytes: Vec<u8>,
    ) -> Result<()> {
        let words = NewWords {
            xattrs: Some(self.new_xattrs(change.file, old, bytes)?),
            ..NewWords::default()
        };
        let times = change.before;
        self.set_words(change.file, words, times);
        change.show(None, times.ctime);
        Ok(())
    }

    /// Drops the set-id bits before an ordinary user changes content, and the capability before
    /// anybody does. So no crash leaves these on content that the owner did not write. The caller
    /// holds the file's lock from before this call until the content has changed.
    ///
    /// Returns whether there were any.
    #[cold]
    pub(crate) fn drop_privileges(&self, user: Option<&Cred>, file: Cachelet) -> Result<bool> {
        let core = self.core;
        let identity = core.identity(file);
        let kept = match user.filter(|user| !user.privileged) {
            Some(user) => identity.with_mode(identity.mode() & !droppable(core, user, file)),
            None => identity,
        };
        if kept == identity && !identity.has(IdentityWord::CAPABILITY) {
            return Ok(false);
        }
        // As on ext4: the mode of such a file does not change.
        if kept != identity && identity.has(IdentityWord::APPEND_ONLY) {
            return Err(Error::NotPermitted);
        }
        let before = core.times(file);
        let times = Times {
            ctime: core.clock.now().max(before.ctime),
            ..before
        };
        let words = NewWords {
            identity: Some(kept),
            xattrs: self.without_capability(file)?,
            ..NewWords::default()
        };
        self.set_words(file, words, times);
        core.set(file, field::CTIME, times.ctime as u64);
        Ok(true)
    }

    /// Writes a directory's times and link count from its cachelet to its inode. (Those of other
    /// files are in the inode already.) Flushed, not fenced. The change time goes last, because
    /// recovery takes the modification time to be valid as of the change time.
    ///
    /// Holds the directory's lock. Without it, two write-backs, or a write-back and a change of
    /// attributes, could store in the opposite order of their reads. The inode would then keep the
    /// older values, although the directory is no longer marked dirty.
    pub(crate) fn write_back(&self, [links_site, times_site]: [Site; 2], file: Cachelet) {
        let core = self.core;
        let _lock = core.lock(self, file);
        let at = core.inode_at(file);
        // Later changes set the flag again.
        core.clear_flag(file, flag::DIRTY);
        if core.kind(file) != FileKind::Directory {
            core.pool.flush(links_site, at, SLOT_BYTES);
            return;
        }
        let links = LinksWord::new(core.get(file, field::LINKS) as u32, 0);
        core.set_word(at + Inode::LINKS, links.0);
        core.pool.flush(links_site, at + Inode::LINKS, 8);
        let times = core.times(file);
        core.set_word(at + Inode::MTIME, times.mtime as u64);
        core.set_word(at + Inode::CTIME, times.ctime as u64);
        core.pool.flush(times_site, at + Inode::MTIME, 16);
    }
}
