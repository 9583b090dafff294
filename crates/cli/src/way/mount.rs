//! The files of a mounted pool, by system calls. Errors have the texts of those of a pool.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use vellum::{Error, FileKind, RenameFlags};

use super::{Files, Found, Marks, Space};
use crate::transfer::host::{Host, HostFile, as_of_pool};
use crate::transfer::tree::{Done, Reader, Tree, Trouble, Writer};

pub(crate) struct Through {
    pub(super) tree: Host,
}

impl Files for Through {
    fn find(&self, path: &Path, follow: bool) -> Done<Found> {
        let found = self.tree.find(path, follow);
        let found = found.and_then(|node| Found::of(&self.tree, &node));
        found.map_err(as_of_pool)
    }

    fn marks(&self, path: &Path, follow: bool) -> Done<Marks> {
        let marks = || {
            let node = self.tree.find(path, follow)?;
            let generation = self.tree.generation(&node)?;
            Marks::of(&self.tree, &node, generation)
        };
        marks().map_err(as_of_pool)
    }

    fn entries(&self, dir: &Path) -> Done<Vec<(Vec<u8>, bool)>> {
        let entries = || {
            let node = self.tree.find(dir, true)?;
            let mut entries = Vec::new();
            for entry in std::fs::read_dir(&self.tree.reach_itself(&node)?.path)? {
                let entry = entry?;
                let name = entry.file_name().as_bytes().to_vec();
                entries.push((name, entry.file_type()?.is_dir()));
            }
            Ok(entries)
        };
        entries().map_err(as_of_pool)
    }

    fn open(&self, path: &Path) -> Done<Box<dyn Reader>> {
        let open = || {
            let node = self.tree.find(path, true)?;
            match self.tree.meta(&node)?.kind {
                FileKind::File => self.tree.open(&node),
                FileKind::Directory => Err(Error::IsDirectory.into()),
                _ => Err(Error::SpecialFile.into()),
            }
        };
        open().map_err(as_of_pool)
    }

    fn create(&self, path: &Path) -> Done<Box<dyn Writer>> {
        // Without a reader, a pipe is refused.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NONBLOCK;
        let opened = self.tree.open_path(path, flags, Mode::from_raw_mode(0o666));
        let file = File::from(opened.map_err(as_of_pool)?);
        Ok(Box::new(HostFile { file, size: 0 }))
    }

    fn make_dir(&self, path: &Path) -> Done {
        let made = self.tree.reach_name(path);
        let made = made.and_then(|reached| Ok(std::fs::create_dir(&reached.path)?));
        made.map_err(as_of_pool)
    }

    fn make_dirs(&self, path: &Path) -> Done {
        let mut above = PathBuf::from("/");
        for part in path.components().skip(1) {
            above.push(part);
            match self.make_dir(&above) {
                Err(Trouble::Pool(Error::Exists))
                    if self
                        .find(&above, true)
                        .is_ok_and(|found| found.meta.is_dir()) => {}
                Err(Trouble::Pool(Error::Busy)) => {}
                made => made?,
            }
        }
        match self.find(path, true)?.meta.is_dir() {
            true => Ok(()),
            false => Err(Error::NotDirectory.into()),
        }
    }

    fn set_mode(&self, path: &Path, mode: u16) -> Done {
        let set = self
            .tree
            .find(path, true)
            .and_then(|node| self.tree.set_mode(&node, mode));
        set.map_err(as_of_pool)
    }

    fn remove_file(&self, path: &Path) -> Done {
        let removed = self.tree.reach_name(path);
        let removed = removed.and_then(|reached| Ok(std::fs::remove_file(&reached.path)?));
        removed.map_err(as_of_pool)
    }

    fn remove_dir(&self, path: &Path) -> Done {
        let removed = self.tree.reach_name(path);
        let removed = removed.and_then(|reached| Ok(std::fs::remove_dir(&reached.path)?));
        removed.map_err(as_of_pool)
    }

    fn rename(&self, from: &Path, to: &Path, flags: RenameFlags) -> Done {
        let rename = || {
            let (from, to) = (self.tree.reach_name(from)?, self.tree.reach_name(to)?);
            let flags = match flags.contains(RenameFlags::NO_REPLACE) {
                true => rustix::fs::RenameFlags::NOREPLACE,
                false => rustix::fs::RenameFlags::empty(),
            };
            match rustix::fs::renameat_with(CWD, &from.path, CWD, &to.path, flags) {
                Err(Errno::INVAL) => {
                    Err(Error::Invalid("a directory cannot move into itself").into())
                }
                done => Ok(done?),
            }
        };
        rename().map_err(as_of_pool)
    }
    fn space(&self, dir: &Path) -> Done<Space> {
        let space = || {
            let node = self.tree.find(dir, true)?;
            let stat = rustix::fs::statvfs(&self.tree.reach_itself(&node)?.path)?;
            Ok(Space {
                bytes: stat.f_blocks * stat.f_frsize,
                bytes_free: stat.f_bavail * stat.f_frsize,
                files: stat.f_files,
                files_free: stat.f_favail,
            })
        };
        space().map_err(as_of_pool)
    }
}
