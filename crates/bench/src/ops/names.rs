//! Operations that change names: create, unlink, mkdir, rmdir, rename.

use std::ffi::CString;

use super::workload::{Laps, Part, Workload};
use crate::Result;
use crate::order::{names, shuffled_names};
use crate::side::Side;

/// Creates files and removes them.
pub(crate) struct Files {
    ascending: Vec<CString>,
    shuffled: Vec<CString>,
}

impl Files {
    pub(crate) fn new(files: usize) -> Self {
        Self {
            ascending: names("file-", files),
            shuffled: shuffled_names("file-", files, 11),
        }
    }
}

impl Workload for Files {
    fn parts(&self) -> &[Part] {
        const {
            &[
                Part::single("create", "ascending"),
                Part::single("unlink", "shuffled"),
            ]
        }
    }

    fn fill<S: Side>(&self, side: &S) -> Result<()> {
        side.make_dir("create")
    }

    fn round<S: Side>(&self, side: &S, laps: &mut Laps) -> Result<()> {
        let dir = side.dir("create")?;
        let count = self.ascending.len();
        laps.time(side, 0, count, || {
            self.ascending
                .iter()
                .try_for_each(|name| side.create(&dir, name))
        })?;
        side.expect("files after creating", side.list(&dir)?, count as u64)?;
        laps.time(side, 1, count, || {
            self.shuffled
                .iter()
                .try_for_each(|name| side.unlink(&dir, name))
        })?;
        side.expect("files after unlinking", side.list(&dir)?, 0)
    }
}

/// Creates directories and removes them.
pub(crate) struct Directories {
    ascending: Vec<CString>,
    shuffled: Vec<CString>,
}

impl Directories {
    pub(crate) fn new(files: usize) -> Self {
        Self {
            ascending: names("dir-", files),
            shuffled: shuffled_names("dir-", files, 12),
        }
    }
}

impl Workload for Directories {
    fn parts(&self) -> &[Part] {
        const {
            &[
                Part::single("mkdir", "ascending"),
                Part::single("rmdir", "shuffled"),
            ]
        }
    }

    fn fill<S: Side>(&self, side: &S) -> Result<()> {
        side.make_dir("mkdir")
    }

    fn round<S: Side>(&self, side: &S, laps: &mut Laps) -> Result<()> {
        let dir = side.dir("mkdir")?;
        let count = self.ascending.len();
        laps.time(side, 0, count, || {
            self.ascending
                .iter()
                .try_for_each(|name| side.mkdir(&dir, name))
        })?;
        side.expect("directories after making", side.list(&dir)?, count as u64)?;
        laps.time(side, 1, count, || {
            self.shuffled
                .iter()
                .try_for_each(|name| side.rmdir(&dir, name))
        })?;
        side.expect("directories after removing", side.list(&dir)?, 0)
    }
}

/// Renames files, back and forth.
pub(crate) struct Rename {
    parts: [Part; 1],
    dirs: [&'static str; 2],
    old: Vec<CString>,
    new: Vec<CString>,
}

impl Rename {
    /// To another name in the same directory.
    pub(crate) fn same(files: usize) -> Self {
        Self {
            parts: [Part::single("rename_same", "shuffled")],
            dirs: ["rename"; 2],
            old: shuffled_names("old-", files, 13),
            new: shuffled_names("new-", files, 13),
        }
    }

    /// To the same name in another directory.
    pub(crate) fn across(files: usize) -> Self {
        Self {
            parts: [Part::single("rename_across", "shuffled")],
            dirs: ["rename-from", "rename-to"],
            old: shuffled_names("file-", files, 14),
            new: shuffled_names("file-", files, 14),
        }
    }
}

impl Workload for Rename {
    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn fill<S: Side>(&self, side: &S) -> Result<()> {
        side.make_dir(self.dirs[0])?;
        if self.dirs[1] != self.dirs[0] {
            side.make_dir(self.dirs[1])?;
        }
        let dir = side.dir(self.dirs[0])?;
        self.old.iter().try_for_each(|name| side.create(&dir, name))
    }

    fn round<S: Side>(&self, side: &S, laps: &mut Laps) -> Result<()> {
        let (from, to) = (side.dir(self.dirs[0])?, side.dir(self.dirs[1])?);
        let count = self.old.len();
        let first = side.stat(&from, &self.old[0])?;
        laps.time(side, 0, 2 * count, || {
            for (old, new) in self.old.iter().zip(&self.new) {
                side.rename(&from, old, &to, new)?;
            }
            for (old, new) in self.old.iter().zip(&self.new) {
                side.rename(&to, new, &from, old)?;
            }
            Ok(())
        })?;
        side.expect("files after renaming", side.list(&from)?, count as u64)?;
        side.expect("a renamed file", side.stat(&from, &self.old[0])?, first)
    }
}
