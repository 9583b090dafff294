//! The files of a pool that this process has opened.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use vellum::{Error, OpenOptions, Pool, RenameFlags, SetAttr, Volume};

use super::{Files, Found, Marks, Space};
use crate::transfer::pool::{PoolFile, PoolTree};
use crate::transfer::tree::{Done, Reader, Tree, Writer};

pub(crate) struct AtRest {
    pub(super) tree: PoolTree,
    volume: Volume,
}

impl AtRest {
    pub(super) fn new(pool: &Pool) -> Self {
        let tree = PoolTree::new(pool.fs());
        Self {
            volume: pool.volume().with_umask(tree.cred.umask),
            tree,
        }
    }

    fn open_with(&self, path: &Path, options: &OpenOptions) -> Done<PoolFile> {
        let (fs, path) = (&self.tree.fs, path.as_os_str().as_bytes());
        Ok(PoolFile(fs.open(
            &self.tree.cred,
            &fs.root(),
            path,
            options,
        )?))
    }
}

impl Files for AtRest {
    fn find(&self, path: &Path, follow: bool) -> Done<Found> {
        Found::of(&self.tree, &self.tree.find(path, follow)?)
    }

    fn marks(&self, path: &Path, follow: bool) -> Done<Marks> {
        let node = self.tree.find(path, follow)?;
        Marks::of(&self.tree, &node, Some(node.generation()))
    }

    fn entries(&self, dir: &Path) -> Done<Vec<(Vec<u8>, bool)>> {
        let mut entries = Vec::new();
        for entry in self.volume.read_dir(dir)? {
            let entry = entry?;
            let name = entry.name().as_bytes().to_vec();
            entries.push((name, entry.file_type()?.is_dir()));
        }
        Ok(entries)
    }

    fn open(&self, path: &Path) -> Done<Box<dyn Reader>> {
        let options = OpenOptions::new().read(true);
        Ok(Box::new(self.open_with(path, &options)?))
    }

    fn create(&self, path: &Path) -> Done<Box<dyn Writer>> {
        let options = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o666);
        Ok(Box::new(self.open_with(path, &options)?))
    }

    fn make_dir(&self, path: &Path) -> Done {
        Ok(self.volume.create_dir(path)?)
    }

    fn make_dirs(&self, path: &Path) -> Done {
        self.volume.create_dir_all(path)?;
        match self.volume.metadata(path)?.is_dir() {
            true => Ok(()),
            false => Err(Error::NotDirectory.into()),
        }
    }

    fn set_mode(&self, path: &Path, mode: u16) -> Done {
        let set = SetAttr::new().mode(Some(mode));
        self.volume.set_attr(path, &set)?;
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> Done {
        Ok(self.volume.remove_file(path)?)
    }

    fn remove_dir(&self, path: &Path) -> Done {
        Ok(self.volume.remove_dir(path)?)
    }

    fn rename(&self, from: &Path, to: &Path, flags: RenameFlags) -> Done {
        Ok(self.volume.rename_with(from, to, flags)?)
    }
    fn space(&self, dir: &Path) -> Done<Space> {
        let stat = self.tree.fs.stat_fs_of(&self.tree.find(dir, true)?);
        Ok(Space {
            bytes: stat.blocks * 4096,
            bytes_free: stat.blocks_free * 4096,
            files: stat.files,
            files_free: stat.files_free,
        })
    }
}
