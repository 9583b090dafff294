//! Changes of attributes.

use crate::flags::APPEND_ONLY;
use crate::tree::{Body, GROUP_EXEC, Node, SET_GID, SET_UID, WRITE};
use crate::xattr::CAPABILITY;
use crate::{Cred, Errno, FILE_SIZE_MAX, Ino, Kind, Model, Result};

/// A new time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeSet {
    /// The time of the operation (`UTIME_NOW`).
    Now,
    /// Nanoseconds since 1970.
    At(i64),
}

impl TimeSet {
    fn value(self, now: i64) -> i64 {
        match self {
            TimeSet::Now => now,
            TimeSet::At(time) => time,
        }
    }
}

/// The changes of [`Model::setattr`]; `None` leaves an attribute as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits with set-user-id, set-group-id and sticky.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<TimeSet>,
    /// Modification time.
    pub mtime: Option<TimeSet>,
}

/// The path of a change, as far as permissions depend on it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// An inode number or a path.
    Path,
    /// `chown`, which drops set-user-id even when it changes neither owner.
    Chown,
    /// A handle that is open for writing.
    Handle,
}

impl Model {
    /// Changes attributes, all or none. An empty change is not checked either.
    pub fn setattr(&mut self, ino: Ino, set: &SetAttr, cred: &Cred, now: i64) -> Result<()> {
        let via = if set.uid.is_some() || set.gid.is_some() {
            Via::Chown
        } else {
            Via::Path
        };
        self.change(ino, set, via, cred, now)
    }

    /// `chown(2)`, where `None` is -1.
    pub fn chown(
        &mut self,
        ino: Ino,
        uid: Option<u32>,
        gid: Option<u32>,
        cred: &Cred,
        now: i64,
    ) -> Result<()> {
        self.change(
            ino,
            &SetAttr {
                uid,
                gid,
                ..SetAttr::default()
            },
            Via::Chown,
            cred,
            now,
        )
    }

    pub(crate) fn change(
        &mut self,
        ino: Ino,
        set: &SetAttr,
        via: Via,
        cred: &Cred,
        now: i64,
    ) -> Result<()> {
        if *set == SetAttr::default() && via != Via::Chown {
            return Ok(());
        }
        let mode = self.checked_mode(ino, set, via, cred)?;
        let node = self.node(ino)?;
        let (uid, gid) = (set.uid.unwrap_or(node.uid), set.gid.unwrap_or(node.gid));
        self.may_give(ino, (uid, gid, node.project), cred)?;
        if let Some(size) = set.size {
            self.resize(ino, size, now)?;
        }
        let node = self.node_mut(ino)?;
        (node.uid, node.gid) = (uid, gid);
        node.mode = mode;
        if let Some(list) = &mut node.acl {
            list.set_permission_bits(mode);
        }
        if !node.is_dir() && (via == Via::Chown || set.size.is_some()) {
            node.xattrs.remove(CAPABILITY);
        }
        node.atime = set.atime.map_or(node.atime, |time| time.value(now));
        node.mtime = set.mtime.map_or(node.mtime, |time| time.value(now));
        node.ctime = now;
        Ok(())
    }

    /// Checks a change in the kernel's order and returns the mode that results.
    fn checked_mode(&self, ino: Ino, set: &SetAttr, via: Via, cred: &Cred) -> Result<u32> {
        let node = self.node(ino)?;
        let owns = cred.owns(node);
        let mut mode = set.mode.map(|mode| mode & 0o7777);
        if set.size.is_some() {
            match node.kind() {
                Kind::Dir => return Err(Errno::EISDIR),
                kind if kind != Kind::File => return Err(Errno::EINVAL),
                _ if via != Via::Handle => self.access(ino, WRITE, cred)?,
                _ => {}
            }
        }
        node.flags_permit(set, via == Via::Chown)?;
        let touch = set.atime == Some(TimeSet::Now) && set.mtime == Some(TimeSet::Now);
        if touch && !owns {
            self.access(ino, WRITE, cred)?;
        }
        if mode.is_some() && node.kind() == Kind::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        if via == Via::Chown && !node.is_dir() {
            let kept = node.mode & !dropped_by_change(node, cred) & !SET_UID;
            if kept != node.mode && node.has(APPEND_ONLY) {
                return Err(Errno::EPERM);
            }
            if kept != node.mode {
                mode = Some(mode.map_or(kept, |mode| mode & (kept | !(SET_UID | SET_GID))));
            }
        }
        if set.size.is_some_and(|size| size > FILE_SIZE_MAX) {
            return Err(Errno::EFBIG);
        }
        let uid_allowed = set
            .uid
            .is_none_or(|uid| cred.is_superuser() || (owns && uid == node.uid));
        let gid_allowed = set.gid.is_none_or(|gid| {
            cred.is_superuser() || (owns && (gid == node.gid || cred.in_group(gid)))
        });
        if !uid_allowed || !gid_allowed || (mode.is_some() && !owns) {
            return Err(Errno::EPERM);
        }
        if (set.atime.is_some() || set.mtime.is_some()) && !touch && !owns {
            return Err(Errno::EPERM);
        }
        let gid = set.gid.unwrap_or(node.gid);
        let may_set_gid = cred.is_superuser() || cred.in_group(gid);
        let mut mode = match mode {
            Some(mode) if !may_set_gid => mode & !SET_GID,
            Some(mode) => mode,
            None => node.mode,
        };
        if set.size.is_some() && !cred.is_superuser() {
            mode &= !(dropped_by_change(node, cred) | SET_UID);
        }
        Ok(mode)
    }

    /// A change of content removes capabilities. One by an ordinary user drops set-user-id, and
    /// set-group-id if it has a meaning.
    pub(crate) fn drop_privileges(&mut self, ino: Ino, cred: &Cred) -> Result<()> {
        let node = self.node_mut(ino)?;
        let kept = match cred.is_superuser() {
            true => node.mode,
            false => node.mode & !(dropped_by_change(node, cred) | SET_UID),
        };
        // The mode of such a file does not change, not even by that.
        if kept != node.mode && node.has(APPEND_ONLY) {
            return Err(Errno::EPERM);
        }
        node.xattrs.remove(CAPABILITY);
        node.mode = kept;
        Ok(())
    }

    pub(crate) fn resize(&mut self, ino: Ino, size: u64, now: i64) -> Result<()> {
        let node = self.node_mut(ino)?;
        if let Body::File(content) = &mut node.body {
            content.set_size(size);
            node.modified(now);
        }
        Ok(())
    }
}

/// Set-group-id, if a change by this caller drops it: if the group may execute the file, or the
/// caller is an ordinary user outside the group.
fn dropped_by_change(node: &Node, cred: &Cred) -> u32 {
    let stranger = !cred.is_superuser() && !cred.in_group(node.gid);
    if node.mode & GROUP_EXEC != 0 || stranger {
        SET_GID
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(mode: u32, uid: u32, gid: u32) -> (Model, Ino) {
        let mut model = Model::new(0);
        let file = model
            .create(Ino::ROOT, b"f", mode, true, &Cred::superuser(), 1)
            .unwrap();
        let node = model.node_mut(file).unwrap();
        (node.uid, node.gid) = (uid, gid);
        (model, file)
    }

    #[test]
    fn chown_drops_set_user_id_even_for_root() {
        let (mut model, file) = file(0o6755, 5, 5);
        model
            .chown(file, None, None, &Cred::superuser(), 2)
            .unwrap();
        assert_eq!(model.getattr(file).unwrap().mode, 0o755);
    }

    #[test]
    fn an_owner_gives_the_file_only_to_own_groups() {
        let (mut model, file) = file(0o644, 5, 5);
        let owner = Cred::user(5, 5, &[7]);
        assert_eq!(
            model.chown(file, Some(6), None, &owner, 2),
            Err(Errno::EPERM)
        );
        assert_eq!(
            model.chown(file, Some(5), Some(8), &owner, 2),
            Err(Errno::EPERM)
        );
        assert_eq!(model.chown(file, Some(5), Some(7), &owner, 2), Ok(()));
    }

    #[test]
    fn a_writer_may_touch_but_not_set_times() {
        let (mut model, file) = file(0o666, 5, 5);
        let other = Cred::user(6, 6, &[]);
        let now = Some(TimeSet::Now);
        let touch = SetAttr {
            atime: now,
            mtime: now,
            ..SetAttr::default()
        };
        assert_eq!(model.setattr(file, &touch, &other, 2), Ok(()));
        let set = SetAttr {
            atime: Some(TimeSet::At(7)),
            ..touch
        };
        assert_eq!(model.setattr(file, &set, &other, 2), Err(Errno::EPERM));
    }

    #[test]
    fn truncation_by_another_user_drops_set_user_id() {
        let (mut model, file) = file(0o4766, 5, 5);
        let set = SetAttr {
            size: Some(3),
            ..SetAttr::default()
        };
        model
            .setattr(file, &set, &Cred::user(6, 6, &[]), 2)
            .unwrap();
        assert_eq!(model.getattr(file).unwrap().mode, 0o766);
    }
}
