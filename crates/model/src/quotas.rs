//! Quotas: what users, groups and projects use, and hard limits of it.

use crate::content::Content;
use crate::tree::{Body, Node, SET_GID};
use crate::{BLOCK_SIZE, Cred, Errno, Ino, Kind, Model, Range, Result};
use std::collections::BTreeMap;

/// Whose files a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaKind {
    /// Those of a user.
    User,
    /// Those of a group.
    Group,
    /// Those with a project id.
    Project,
}

impl QuotaKind {
    /// All of them.
    pub const ALL: [QuotaKind; 3] = [QuotaKind::User, QuotaKind::Group, QuotaKind::Project];
}

/// Bytes and inodes: what is used, or what may be used, where 0 means any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Space {
    /// Bytes of blocks; a directory has one block.
    pub bytes: u64,
    /// Inodes, with those that exist only in open handles.
    pub inodes: u64,
}

/// Limits, and whether they hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Quotas {
    is_on: bool,
    limits: BTreeMap<(QuotaKind, u32), Space>,
}

/// User, group and project of a file.
type Owners = (u32, u32, u32);

/// The id that counts for a kind.
fn id_of((user, group, project): Owners, kind: QuotaKind) -> u32 {
    match kind {
        QuotaKind::User => user,
        QuotaKind::Group => group,
        QuotaKind::Project => project,
    }
}

impl Node {
    fn owners(&self) -> Owners {
        (self.uid, self.gid, self.project)
    }

    fn space(&self) -> Space {
        let blocks = match &self.body {
            Body::File(content) => content.blocks().len(),
            Body::Dir { .. } => 1,
            _ => 0,
        };
        Space {
            bytes: (blocks * BLOCK_SIZE) as u64,
            inodes: 1,
        }
    }

    /// Owner, group and project of a file that `cred` makes in this directory.
    pub(crate) fn owners_of_new(&self, kind: Kind, cred: &Cred) -> Owners {
        let gid = match self.mode & SET_GID {
            0 => cred.gid,
            _ => self.gid,
        };
        (cred.uid, gid, self.hands_down(kind).1)
    }
}

impl Model {
    /// Turns quotas on or off. While they are off, limits are kept.
    pub fn set_quotas(&mut self, is_on: bool, cred: &Cred) -> Result<()> {
        if !cred.is_superuser() {
            return Err(Errno::EPERM);
        }
        self.quotas.is_on = is_on;
        Ok(())
    }

    /// Sets the hard limits of a user, group or project, or gives them up.
    pub fn set_quota(
        &mut self,
        kind: QuotaKind,
        id: u32,
        limits: Option<Space>,
        cred: &Cred,
    ) -> Result<()> {
        if !cred.is_superuser() {
            return Err(Errno::EPERM);
        }
        if !self.quotas.is_on {
            return Err(Errno::ESRCH);
        }
        match limits {
            Some(limits) => self.quotas.limits.insert((kind, id), limits),
            None => self.quotas.limits.remove(&(kind, id)),
        };
        Ok(())
    }

    /// What a user, group or project uses, and its limits.
    pub fn quota(&self, kind: QuotaKind, id: u32, cred: &Cred) -> Result<[Space; 2]> {
        let is_own = match kind {
            QuotaKind::User => cred.uid == id,
            QuotaKind::Group => cred.in_group(id),
            QuotaKind::Project => false,
        };
        if !is_own && !cred.is_superuser() {
            return Err(Errno::EPERM);
        }
        if !self.quotas.is_on {
            return Err(Errno::ESRCH);
        }
        let limits = self.quotas.limits.get(&(kind, id)).copied();
        Ok([self.used(kind, id), limits.unwrap_or_default()])
    }

    /// The limits by name: hidden attributes of the root directory.
    pub(crate) fn limits_by_name(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let Quotas { is_on, limits } = &self.quotas;
        let shown = limits.iter().filter(|_| *is_on);
        let named = shown.map(|(&(kind, id), limits)| quota_attribute(kind, id, *limits));
        named.collect()
    }

    fn used(&self, kind: QuotaKind, id: u32) -> Space {
        let nodes = self.nodes.values();
        let owned = nodes.filter(|node| id_of(node.owners(), kind) == id);
        owned.fold(Space::default(), |sum, node| Space {
            bytes: sum.bytes + node.space().bytes,
            inodes: sum.inodes + 1,
        })
    }

    /// How many more blocks and inodes these owners may have, as far as `kinds` decide.
    fn left(&self, owners: Owners, kinds: &[QuotaKind], cred: &Cred) -> [u64; 2] {
        let mut left = [u64::MAX; 2];
        if !self.quotas.is_on || cred.uid == 0 {
            return left;
        }
        for &kind in kinds {
            let id = id_of(owners, kind);
            let Some(limits) = self.quotas.limits.get(&(kind, id)) else {
                continue;
            };
            let used = self.used(kind, id);
            let block = BLOCK_SIZE as u64;
            let pairs = [
                (limits.bytes / block, used.bytes / block, limits.bytes),
                (limits.inodes, used.inodes, limits.inodes),
            ];
            for (left, (limit, used, given)) in left.iter_mut().zip(pairs) {
                if given != 0 {
                    *left = (*left).min(limit.saturating_sub(used));
                }
            }
        }
        left
    }

    /// Checks that a directory's new file may be made.
    pub(crate) fn may_have_new(&self, dir: Ino, kind: Kind, cred: &Cred) -> Result<()> {
        let owners = self.node(dir)?.owners_of_new(kind, cred);
        let blocks = u64::from(kind == Kind::Dir);
        match self.left(owners, &QuotaKind::ALL, cred) {
            [most, inodes] if blocks <= most && inodes >= 1 => Ok(()),
            _ => Err(Errno::EDQUOT),
        }
    }

    /// Checks that a file may get other owners.
    pub(crate) fn may_give(&self, ino: Ino, owners: Owners, cred: &Cred) -> Result<()> {
        let node = self.node(ino)?;
        let mut kinds = QuotaKind::ALL.to_vec();
        kinds.retain(|&kind| id_of(owners, kind) != id_of(node.owners(), kind));
        let blocks = node.space().bytes / BLOCK_SIZE as u64;
        match self.left(owners, &kinds, cred) {
            [most, inodes] if blocks <= most && inodes >= 1 => Ok(()),
            _ => Err(Errno::EDQUOT),
        }
    }

    /// How much of a range of a file may be written: up to the first block that it may not have.
    pub(crate) fn may_write(&self, ino: Ino, range: Range, cred: &Cred) -> Result<u64> {
        let [left, _] = self.left(self.node(ino)?.owners(), &QuotaKind::ALL, cred);
        let mut holes = self.content(ino)?.holes(range.offset, range.len);
        match usize::try_from(left).ok().and_then(|left| holes.nth(left)) {
            None => Ok(range.len),
            Some(block) => match (block * BLOCK_SIZE as u64).checked_sub(range.offset) {
                None | Some(0) => Err(Errno::EDQUOT),
                Some(len) => Ok(len),
            },
        }
    }
}

impl Content {
    /// The blocks of a range that are not allocated.
    fn holes(&self, offset: u64, len: u64) -> impl Iterator<Item = u64> {
        let end = (offset + len).div_ceil(BLOCK_SIZE as u64);
        (offset / BLOCK_SIZE as u64..end).filter(|block| !self.blocks().contains_key(block))
    }
}

/// Limits as a snapshot shows them: an attribute of the root directory that programs do not see.
pub fn quota_attribute(kind: QuotaKind, id: u32, limits: Space) -> (Vec<u8>, Vec<u8>) {
    let name = format!("quota.{kind}.{id}");
    (name.into_bytes(), limits.to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use crate::apply::run_lines;

    #[test]
    fn nobody_exceeds_a_limit_but_user_0() {
        run_lines(&[
            ("0:0 chmod . 777", "done"),
            ("0:0 get-quota user 7", "ESRCH"),
            ("0:0 quotas on", "done"),
            ("0:0 set-quota user 7 8192 3", "done"),
            ("7:7 create f 644 -", "done"),
            ("7:7 write f 4000 1 9000", "count 4192"),
            ("7:7 write f 8192 1 1", "EDQUOT"),
            ("7:7 mkdir d 755", "EDQUOT"),
            ("7:7 get-quota user 7", "quota 8192 1 8192 3"),
            ("0:0 write f 8192 1 1", "count 1"),
            ("7:7 fallocate f 1 0 12288", "done"),
            ("7:7 create g 644 -", "done"),
            ("7:7 symlink g h", "done"),
            ("7:7 link g i", "done"),
            ("7:7 symlink g j", "EDQUOT"),
            ("0:0 get-quota user 7", "quota 12288 3 8192 3"),
            ("7:7 get-quota project 0", "EPERM"),
            ("0:0 set-quota user 7 - -", "done"),
            ("7:7 mkdir d 755", "done"),
        ]);
    }

    #[test]
    fn a_file_is_given_only_to_owners_that_may_have_it() {
        run_lines(&[
            ("0:0 chmod . 777", "done"),
            ("0:0 quotas on", "done"),
            ("0:0 set-quota group 8 4096 0", "done"),
            ("7:7+8 create f 644 -", "done"),
            ("7:7 write f 0 1 8192", "count 8192"),
            ("7:7+8 chown f - 8 -", "EDQUOT"),
            ("7:7 truncate f 4096", "done"),
            ("7:7+8 chown f - 8 -", "done"),
            ("0:0 quotas off", "done"),
            ("7:7+8 write f 4096 1 4096", "count 4096"),
        ]);
    }
}
