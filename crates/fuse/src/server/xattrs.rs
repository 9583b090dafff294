//! Extended attributes.

use vellum::{Cred, XattrMode};

use super::{Answer, Server};
use crate::convert::errno;
use crate::table::Known;

/// The extended attribute with capabilities.
const CAPABILITY: &[u8] = b"security.capability";

impl Server {
    pub(crate) fn xattr(&self, ino: u64, name: &[u8]) -> Answer<Vec<u8>> {
        let _open = self.enter()?;
        let known = self.known(ino)?;
        let found = self.fs.xattr(&Cred::root(), &known.node, name);
        found.map_err(|e| errno(&e))
    }

    pub(crate) fn xattrs(&self, cred: &Cred, ino: u64) -> Answer<Vec<u8>> {
        let _open = self.enter()?;
        let known = self.known(ino)?;
        self.fs.xattrs(cred, &known.node).map_err(|e| errno(&e))
    }

    pub(crate) fn set_xattr(
        &self,
        ino: u64,
        (name, value): (&[u8], &[u8]),
        mode: XattrMode,
        drops_set_gid: bool,
    ) -> Answer<()> {
        let _open = self.enter()?;
        let known = self.known(ino)?;
        let cred = match drops_set_gid {
            true => self.owner_of(&known)?,
            false => Cred::root(),
        };
        let set = self.fs.set_xattr(&cred, &known.node, name, value, mode);
        set.map_err(|e| errno(&e))
    }

    /// The owner of a file, as somebody who is in no group.
    fn owner_of(&self, known: &Known) -> Answer<Cred> {
        const NO_GROUP: u32 = u32::MAX;
        let attr = self.fs.attr(&known.node).map_err(|e| errno(&e))?;
        Ok(Cred {
            privileged: false,
            ..Cred::user(attr.uid, NO_GROUP)
        })
    }

    /// Removes an extended attribute for thread `pid`.
    pub(crate) fn remove_xattr(&self, ino: u64, name: &[u8], pid: u32) -> Answer<()> {
        let _open = self.enter()?;
        let known = self.known(ino)?;
        let removed = self.fs.remove_xattr(&Cred::root(), &known.node, name);
        removed.map_err(|e| errno(&e))?;
        if name == CAPABILITY {
            known.note_stripped(pid);
        }
        Ok(())
    }
}
