//! Flags and project ids of files, as `chattr(1)` sets them.

use crate::attr::SetAttr;
use crate::tree::Node;
use crate::{Cred, Errno, Ino, Kind, Model, Result, TimeSet};

/// Nothing about the file changes (`FS_IMMUTABLE_FL`).
pub const IMMUTABLE: u32 = 0x10;
/// Bytes are appended and names created, no more (`FS_APPEND_FL`).
pub const APPEND_ONLY: u32 = 0x20;
/// Backups leave it out (`FS_NODUMP_FL`).
pub const NO_DUMP: u32 = 0x40;
/// Reads do not move the access time (`FS_NOATIME_FL`).
pub const NO_ATIME: u32 = 0x80;
/// New files in the directory get its project id (`FS_PROJINHERIT_FL`).
pub const PROJECT_INHERIT: u32 = 0x2000_0000;

const GUARDED: u32 = IMMUTABLE | APPEND_ONLY;
const INHERITED: u32 = NO_DUMP | NO_ATIME | PROJECT_INHERIT;

/// The flags that a file of this kind may have.
fn flags_of(kind: Kind) -> u32 {
    match kind {
        Kind::Dir => GUARDED | INHERITED,
        Kind::File => GUARDED | NO_DUMP | NO_ATIME,
        _ => NO_DUMP | NO_ATIME,
    }
}

impl Node {
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn is_guarded(&self) -> bool {
        self.has(GUARDED)
    }

    /// Flags and project id of a new file in this directory.
    pub(crate) fn hands_down(&self, kind: Kind) -> (u32, u32) {
        let project = match self.has(PROJECT_INHERIT) {
            true => self.project,
            false => 0,
        };
        (self.flags & INHERITED & flags_of(kind), project)
    }

    /// Checks that the flags let these attributes change; `chown` changes the status even with
    /// neither owner nor group.
    pub(crate) fn flags_permit(&self, set: &SetAttr, is_chown: bool) -> Result<()> {
        let touch = set.atime == Some(TimeSet::Now) && set.mtime == Some(TimeSet::Now);
        let sets_times = !touch && (set.atime.is_some() || set.mtime.is_some());
        let owners = set.uid.is_some() || set.gid.is_some();
        let sets = set.mode.is_some() || owners || sets_times || set.size.is_some();
        let refused = self.is_guarded() && sets || self.has(IMMUTABLE) && (touch || is_chown);
        if refused { Err(Errno::EPERM) } else { Ok(()) }
    }
}

impl Model {
    /// Sets the flags of a file or directory (`FS_IOC_SETFLAGS`), its project id, or both
    /// (`FS_IOC_FSSETXATTR`).
    pub fn set_flags(
        &mut self,
        ino: Ino,
        (flags, project): (Option<u32>, Option<u32>),
        cred: &Cred,
        now: i64,
    ) -> Result<()> {
        let node = self.node_mut(ino)?;
        let flags = flags.unwrap_or(node.flags);
        let project = project.unwrap_or(node.project);
        let changed = flags ^ node.flags;
        if !cred.owns(node) || changed & GUARDED != 0 && !cred.is_superuser() {
            return Err(Errno::EPERM);
        }
        if project == u32::MAX && project != node.project {
            return Err(Errno::EINVAL);
        }
        if flags & !flags_of(node.kind()) != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let stays = flags & node.flags & IMMUTABLE != 0;
        if stays && (changed != 0 || project != node.project) {
            return Err(Errno::EPERM);
        }
        let (uid, gid) = (node.uid, node.gid);
        self.may_give(ino, (uid, gid, project), cred)?;
        let node = self.node_mut(ino)?;
        (node.flags, node.project, node.ctime) = (flags, project, now);
        Ok(())
    }

    /// The flags of a file, and its project id.
    pub fn flags(&self, ino: Ino) -> Result<(u32, u32)> {
        self.node(ino).map(|node| (node.flags, node.project))
    }

    /// Checks that a directory takes a name of a file of this project.
    pub(crate) fn takes(&self, dir: Ino, ino: Ino) -> Result<()> {
        let (dir, node) = (self.node(dir)?, self.node(ino)?);
        match dir.has(PROJECT_INHERIT) && dir.project != node.project {
            true => Err(Errno::EXDEV),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::apply::run_lines;

    #[test]
    fn nothing_about_an_immutable_file_changes() {
        run_lines(&[
            ("0:0 create f 666 -", "done"),
            ("0:0 open+wronly 0 f 0", "done"),
            ("1:1 chattr f i", "EPERM"),
            ("0:0 chattr f id", "done"),
            ("0:0 chattr f i", "EPERM"),
            ("0:0 set-project f 3", "EPERM"),
            ("0:0 write f 0 1 1", "EPERM"),
            ("0:0 write-slot 0 0 1 1", "EPERM"),
            ("0:0 write-slot 0 0 1 0", "EPERM"),
            ("0:0 truncate-slot 0 0", "EPERM"),
            ("0:0 fallocate-slot 0 1 0 1", "EPERM"),
            ("0:0 chmod f 600", "EPERM"),
            ("0:0 chown f - - follow", "EPERM"),
            ("0:0 utimens f now now follow", "EPERM"),
            ("0:0 setxattr f user.a x any follow", "EPERM"),
            ("0:0 link f g", "EPERM"),
            ("0:0 rename f g 0", "EPERM"),
            ("0:0 unlink f", "EPERM"),
            ("0:0 access f 2", "EPERM"),
            ("0:0 times f", "times 1 1 4"),
            ("0:0 lsattr f", "flags id 0"),
            ("0:0 chattr f -", "done"),
            ("0:0 unlink f", "done"),
        ]);
    }

    #[test]
    fn an_append_only_file_only_grows() {
        run_lines(&[
            ("0:0 create f 666 -", "done"),
            ("0:0 open+wronly 0 f 0", "done"),
            ("0:0 chattr f a", "done"),
            ("0:0 write f 0 1 1", "EPERM"),
            ("0:0 append f 1 5", "count 5"),
            ("0:0 write-slot 0 0 2 1", "count 1"),
            ("0:0 truncate f 9", "EPERM"),
            ("0:0 truncate-slot 0 9", "EPERM"),
            ("0:0 open+wronly+trunc+append 1 f 0", "EPERM"),
            ("0:0 fallocate-slot 0 1 0 4096", "done"),
            ("0:0 fallocate-slot 0 3 0 4096", "EPERM"),
            ("0:0 chmod f 600", "EPERM"),
            ("0:0 utimens f now 5 follow", "EPERM"),
            ("1:1 utimens f now now follow", "times - - -"),
            ("0:0 link f g", "EPERM"),
            ("0:0 unlink f", "EPERM"),
        ]);
    }

    #[test]
    fn directories_keep_their_names() {
        run_lines(&[
            ("0:0 mkdir d 777", "done"),
            ("0:0 create d/f 666 -", "done"),
            ("0:0 create g 666 -", "done"),
            ("0:0 chattr d a", "done"),
            ("0:0 create d/g 666 -", "done"),
            ("0:0 rename g d/h 0", "done"),
            ("0:0 rename d/f d/g 0", "EPERM"),
            ("0:0 unlink d/f", "EPERM"),
            ("0:0 chattr d i", "done"),
            ("0:0 create d/i 666 -", "EPERM"),
            ("0:0 create d/f 666 exclusive", "EEXIST"),
            ("0:0 write d/f 0 1 1", "count 1"),
            ("0:0 rename d e 0", "EPERM"),
        ]);
    }

    #[test]
    fn flags_and_projects_are_inherited() {
        run_lines(&[
            ("0:0 mkdir d 777", "done"),
            ("0:0 set-project d 7", "done"),
            ("0:0 chattr d dAP", "done"),
            ("1:1 create d/f 666 -", "done"),
            ("1:1 mkdir d/e 777", "done"),
            ("0:0 lsattr d/f", "flags dA 7"),
            ("0:0 lsattr d/e", "flags dAP 7"),
            ("0:0 create g 666 -", "done"),
            ("0:0 rename g d/g 0", "EXDEV"),
            ("0:0 link g d/g", "EXDEV"),
            ("0:0 rename g d/f 2", "EXDEV"),
            ("0:0 rename d/f h 0", "done"),
            ("0:0 lsattr h", "flags dA 7"),
            ("0:0 link h d/h", "done"),
            ("1:1 chattr d/f P", "ENOENT"),
            ("1:1 chattr h P", "EOPNOTSUPP"),
            ("0:0 chattr h ~800000", "EOPNOTSUPP"),
            ("0:0 set-project h 4294967295", "EINVAL"),
            ("2:2 set-project h 8", "EPERM"),
            ("0:0 read h 0 5", "bytes 0 %"),
            ("0:0 times h", "times 4 4 14"),
        ]);
    }
}
