//! A new file that gets its name when it is complete.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// A new file, for its user alone. Until it is [finished](Self::finish) it has no name or, where
/// the file system has no files without names, another one in the same directory.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    path: PathBuf,
    /// Its name meanwhile.
    temporary: Option<PathBuf>,
}

impl NewFile {
    /// Creates the file that will be at `path`.
    ///
    /// # Errors
    /// Fails if something is at `path`, or on an error of the operating system.
    pub fn create(path: &Path) -> io::Result<Self> {
        if path.symlink_metadata().is_ok() {
            return Err(Errno::EXIST.into());
        }
        let dir = dir_of(path);
        let mode = Mode::RUSR | Mode::WUSR;
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let unnamed = rustix::fs::open(dir, flags | OFlags::TMPFILE, mode);
        let (fd, temporary) = match unnamed {
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {
                let temporary = temporary_of(path)?;
                let new = flags | OFlags::CREATE | OFlags::EXCL;
                (rustix::fs::open(&temporary, new, mode)?, Some(temporary))
            }
            opened => (opened?, None),
        };
        Ok(Self {
            file: fd.into(),
            path: path.to_owned(),
            temporary,
        })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes the file durable, and gives it its name.
    ///
    /// # Errors
    /// Fails if something is at its path by now, or on an error of the operating system.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        match &self.temporary {
            Some(temporary) => {
                let (from, to) = (temporary.as_path(), self.path.as_path());
                rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?;
                self.temporary = None;
            }
            None => {
                let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                rustix::fs::linkat(CWD, link, CWD, &self.path, AtFlags::SYMLINK_FOLLOW)?;
            }
        }
        File::open(dir_of(&self.path))?.sync_all()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Nobody else knows its name.
            let _ = rustix::fs::unlink(temporary);
        }
    }
}

fn dir_of(path: &Path) -> &Path {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    dir.unwrap_or(Path::new("."))
}

fn temporary_of(path: &Path) -> io::Result<PathBuf> {
    let mut name = OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    name.push(format!(".{}.partial", std::process::id()));
    Ok(path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn names(dir: &Path) -> Vec<OsString> {
        let entries = std::fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_file_has_its_name_once_it_is_finished() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let new = NewFile::create(&path).unwrap();
        new.file().write_all_at(b"text", 0).unwrap();
        drop(new);
        assert!(names(dir.path()).is_empty());
        let new = NewFile::create(&path).unwrap();
        new.file().write_all_at(b"text", 0).unwrap();
        new.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
        let exists = NewFile::create(&path).unwrap_err();
        assert_eq!(exists.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_file_with_another_name_meanwhile_leaves_none_and_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let named = || {
            let temporary = temporary_of(&path).unwrap();
            NewFile {
                file: File::create_new(&temporary).unwrap(),
                path: path.clone(),
                temporary: Some(temporary),
            }
        };
        drop(named());
        assert!(names(dir.path()).is_empty());
        named().finish().unwrap();
        assert!(named().finish().is_err());
        assert_eq!(names(dir.path()), ["file"]);
    }
}
