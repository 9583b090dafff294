//! Set-id bits that go when content or owner of a file change. The kernel says when; it leaves the
//! rest to the file system (`HANDLE_KILLPRIV_V2` of the protocol).

use std::fs;

use vellum::{Attr, FileKind};
use vellum_transport::Request;

const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o0010;

/// Who changes a file, or asks for something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changer {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

impl Changer {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let Request { uid, gid, pid, .. } = *request;
        Self { uid, gid, pid }
    }

    pub(crate) fn owns(self, attr: &Attr) -> bool {
        self.uid == 0 || self.uid == attr.uid
    }

    /// The mode of a file after the change, if it drops any bits. As in the kernel, set-gid without
    /// group execution, which marks mandatory locking, stays if a member of the group makes it.
    pub(crate) fn mode_after(self, attr: &Attr) -> Option<u16> {
        let mut dropped = attr.mode & (SET_UID | SET_GID);
        if attr.kind == FileKind::Directory || dropped == 0 {
            return None;
        }
        if dropped & SET_GID != 0 && attr.mode & GROUP_EXECUTE == 0 && self.is_member(attr.gid) {
            dropped &= !SET_GID;
        }
        (dropped != 0).then_some(attr.mode & !dropped)
    }

    fn is_member(self, group: u32) -> bool {
        self.uid == 0 || self.gid == group || self.groups().contains(&group)
    }

    /// The further groups. None, if the process is not visible here.
    pub(crate) fn groups(self) -> Vec<u32> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid));
        groups(&status.unwrap_or_default()).collect()
    }
}

/// The further groups of a process, from the text of its status.
fn groups(status: &str) -> impl Iterator<Item = u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    let words = line.unwrap_or_default().split_ascii_whitespace();
    words.filter_map(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_in_the_status_of_a_process() {
        let status = "Name:\tcat\nGid:\t1\t1\t1\t1\nGroups:\t4 27 1000 \nNStgid:\t9\n";
        assert!(groups(status).eq([4, 27, 1000]));
        assert_eq!(groups("Name:\tcat\n").count(), 0);
        let own = fs::read_to_string("/proc/self/status").expect("it is there");
        let expected = rustix::process::getgroups().expect("groups");
        assert!(groups(&own).eq(expected.iter().map(|group| group.as_raw())));
    }

    #[test]
    fn a_change_drops_what_the_kernel_would() {
        let attr_of = |mode| Attr {
            mode,
            gid: 7,
            ..crate::server::attr_of(9, FileKind::File)
        };
        let by = |uid, gid| Changer { uid, gid, pid: 0 };
        let after = |uid, gid, mode| by(uid, gid).mode_after(&attr_of(mode));
        assert_eq!(after(1, 1, 0o644), None);
        assert_eq!(after(1, 1, 0o4755), Some(0o755));
        assert_eq!(after(1, 1, 0o6755), Some(0o755));
        assert_eq!(after(1, 1, 0o2644), Some(0o644));
        assert_eq!(after(1, 7, 0o2644), None);
        assert_eq!(after(0, 1, 0o6644), Some(0o2644));
    }
}
