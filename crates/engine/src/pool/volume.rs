//! A file system as programs like to use it: by paths, with files that read, write and seek.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use vellum_layout::FileKind;
use vellum_media::Real;

use crate::error::{Error, Result};
use crate::fs::{Attr, Cred, Handle, ListPosition, Node, OpenOptions, RenameFlags, SetAttr, View};
use crate::pool::RealFs;
use crate::reading::Rule;

/// Entries read from a directory at once.
const LIST_BATCH: usize = 128;

/// A file system, used by paths as one user. Relative paths start at the root.
#[derive(Clone, Debug)]
pub struct Volume {
    fs: Arc<RealFs>,
    cred: Cred,
    umask: u16,
}

/// Names of up to this many bytes are held in an [`Entry`] itself: most names are, and listing them
/// allocates nothing.
const NAME_IN_PLACE: usize = 24;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    name: SmallVec<[u8; NAME_IN_PLACE]>,
    /// The kind of file.
    pub kind: FileKind,
    /// Inode number.
    pub ino: u64,
    /// Cookie: a listing can go on after it.
    pub cookie: u64,
}

impl Entry {
    /// The name.
    pub fn name(&self) -> &OsStr {
        OsStr::from_bytes(&self.name)
    }
}

impl Volume {
    pub(crate) fn new(fs: Arc<RealFs>, umask: u16) -> Self {
        Self {
            fs,
            cred: Cred::current(),
            umask,
        }
    }

    /// The same file system, used as somebody else.
    #[must_use]
    pub fn with_cred(&self, cred: Cred) -> Self {
        Self {
            cred,
            ..self.clone()
        }
    }

    /// The same file system with another file mode creation mask than that which the process had
    /// when it opened the pool.
    #[must_use]
    pub fn with_umask(&self, umask: u16) -> Self {
        Self {
            umask,
            ..self.clone()
        }
    }

    /// The file system, by nodes and names.
    pub fn fs(&self) -> &Arc<RealFs> {
        &self.fs
    }

    fn parent_and_name<'p>(&self, path: &'p Path) -> Result<(Node<Real>, &'p [u8])> {
        let bytes = path.as_os_str().as_bytes();
        let end = bytes
            .iter()
            .rposition(|&b| b != b'/')
            .map_or(0, |at| at + 1);
        let cut = bytes[..end]
            .iter()
            .rposition(|&b| b == b'/')
            .map_or(0, |at| at + 1);
        let dir = if cut == 0 { &b"/"[..] } else { &bytes[..cut] };
        match &bytes[cut..end] {
            b"" if bytes.is_empty() => Err(Error::NotFound),
            b"" => Err(Error::Busy),
            name => Ok((self.fs.find(&self.cred, &self.fs.root(), dir, true)?, name)),
        }
    }

    /// Opens a file as `options` say; modes of new files are masked by the umask.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn open_with(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        let masked = OpenOptions {
            mode: options.mode & !self.umask,
            ..*options
        };
        let bytes = path.as_ref().as_os_str().as_bytes();
        let handle = self.fs.open(&self.cred, &self.fs.root(), bytes, &masked)?;
        Ok(File {
            handle,
            position: Mutex::new(0),
        })
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(
            path,
            &OpenOptions {
                read: true,
                ..OpenOptions::default()
            },
        )
    }

    /// Opens a file for reading and writing, made if there is none, cut to nothing if there is.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        let options = OpenOptions {
            read: true,
            write: true,
            create: true,
            truncate: true,
            ..OpenOptions::default()
        };
        self.open_with(path, &options)
    }

    /// The whole content of a file.
    ///
    /// # Errors
    /// Those of `open(2)` and `read(2)`.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open(path)?;
        let size = usize::try_from(file.attr()?.size).map_err(|_| Error::TooLarge)?;
        let mut content = vec![0; size];
        let len = file.read_at(0, &mut content)?;
        content.truncate(len);
        Ok(content)
    }

    /// Makes `content` the whole content of a file.
    ///
    /// # Errors
    /// Those of `open(2)` and `write(2)`.
    pub fn write(&self, path: impl AsRef<Path>, content: &[u8]) -> Result<()> {
        let file = self.create(path)?;
        let mut done = 0;
        while done < content.len() {
            done += file.write_at(done as u64, &content[done..])?;
        }
        Ok(())
    }

    /// Attributes of what a path names, through symbolic links.
    ///
    /// # Errors
    /// Those of `stat(2)`.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Attr> {
        self.stat(path.as_ref(), true)
    }

    /// Attributes of what a path names, of a symbolic link itself.
    ///
    /// # Errors
    /// Those of `lstat(2)`.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Attr> {
        self.stat(path.as_ref(), false)
    }

    fn stat(&self, path: &Path, follow: bool) -> Result<Attr> {
        self.fs
            .stat_from_root(&self.cred, path.as_os_str().as_bytes(), follow)
    }

    /// Changes attributes of what a path names, through symbolic links.
    ///
    /// # Errors
    /// Those of `chmod(2)`, `chown(2)`, `utimensat(2)`, `truncate(2)`.
    pub fn set_attr(&self, path: impl AsRef<Path>, set: &SetAttr) -> Result<Attr> {
        let path = path.as_ref().as_os_str().as_bytes();
        let node = self.fs.find(&self.cred, &self.fs.root(), path, true)?;
        self.fs.set_attr(&self.cred, &node, set)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Those of `mkdir(2)`.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.parent_and_name(path.as_ref())?;
        self.fs
            .mkdir(&self.cred, &dir, name, 0o777 & !self.umask)
            .map(drop)
    }

    /// Makes a directory and those above it that are missing.
    ///
    /// # Errors
    /// Those of `mkdir(2)`; that it exists is none.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let mut made = PathBuf::from("/");
        for part in path.as_ref().components() {
            made.push(part);
            match self.create_dir(&made) {
                Ok(()) | Err(Error::Exists | Error::Busy) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes a file's name.
    ///
    /// # Errors
    /// Those of `unlink(2)`.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.parent_and_name(path.as_ref())?;
        self.fs.unlink(&self.cred, &dir, name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of `rmdir(2)`.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.parent_and_name(path.as_ref())?;
        self.fs.rmdir(&self.cred, &dir, name)
    }

    /// Renames, replacing what has the new name.
    ///
    /// # Errors
    /// Those of `rename(2)`.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameFlags::empty())
    }

    /// Renames as `flags` say.
    ///
    /// # Errors
    /// Those of `renameat2(2)`.
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Result<()> {
        let (from_dir, from_name) = self.parent_and_name(from.as_ref())?;
        let (to_dir, to_name) = self.parent_and_name(to.as_ref())?;
        self.fs
            .rename(&self.cred, &from_dir, from_name, &to_dir, to_name, flags)
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// Those of `link(2)`.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let path = original.as_ref().as_os_str().as_bytes();
        let file = self.fs.find(&self.cred, &self.fs.root(), path, false)?;
        let (dir, name) = self.parent_and_name(link.as_ref())?;
        self.fs.link(&self.cred, &file, &dir, name)
    }

    /// Makes a symbolic link to `target`.
    ///
    /// # Errors
    /// Those of `symlink(2)`.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.parent_and_name(link.as_ref())?;
        let target = target.as_ref().as_os_str().as_bytes();
        self.fs.symlink(&self.cred, &dir, name, target).map(drop)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// Those of `readlink(2)`.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref().as_os_str().as_bytes();
        let node = self.fs.find(&self.cred, &self.fs.root(), path, false)?;
        Ok(OsString::from_vec(self.fs.read_link(&node)?).into())
    }

    /// The entries of a directory, without `.` and `..`, in the order of their cookies.
    ///
    /// # Errors
    /// Those of `opendir(3)`; the iterator gives those of reading on.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let options = OpenOptions {
            read: true,
            directory: true,
            ..OpenOptions::default()
        };
        let dir = self.open_with(path, &options)?;
        Ok(ReadDir {
            fs: Arc::clone(&self.fs),
            dir: dir.handle.node().clone(),
            position: ListPosition::default(),
            after: 0,
            batch: Vec::new().into_iter(),
            done: false,
        })
    }

    /// Makes everything done before survive what the medium can survive.
    ///
    /// # Errors
    /// What the medium said.
    pub fn sync(&self) -> Result<()> {
        self.fs.sync()
    }
}

/// The entries of a directory. Entries that exist throughout are given exactly once, whatever
/// else happens meanwhile.
#[derive(Debug)]
pub struct ReadDir {
    fs: Arc<RealFs>,
    dir: Node<Real>,
    position: ListPosition,
    after: u64,
    batch: std::vec::IntoIter<Entry>,
    done: bool,
}

impl Iterator for ReadDir {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(entry) = self.batch.next() {
            return Some(Ok(entry));
        }
        if self.done {
            return None;
        }
        let mut batch = Vec::with_capacity(LIST_BATCH);
        let listed = self
            .fs
            .list(&self.dir, self.after, &mut self.position, &mut |entry| {
                if batch.len() == LIST_BATCH {
                    return false;
                }
                batch.push(Entry {
                    name: SmallVec::from_slice(entry.name),
                    kind: entry.kind,
                    ino: entry.ino,
                    cookie: entry.cookie,
                });
                true
            });
        // The end of a damaged directory is an error, which comes again behind the last names.
        if let (Err(error), true) = (listed, batch.is_empty()) {
            self.done = true;
            return Some(Err(error));
        }
        self.done = batch.is_empty() || batch.len() < LIST_BATCH && !self.fs.is_damaged();
        self.after = batch.last().map_or(self.after, |entry| entry.cookie);
        self.batch = batch.into_iter();
        self.batch.next().map(Ok)
    }
}

/// An open file. Reads, writes and seeks share one position; `read_at` and `write_at` need none.
///
/// Threads that share a `File` take turns at the position, as those that share a descriptor of the
/// kernel do: a read, a write or a seek begins where the one before ended. So every byte of the
/// file goes to one reader, and what one call writes is not written over by the next.
#[derive(Debug)]
pub struct File {
    handle: Handle<Real>,
    /// Held from where a call looks at the position to where it moves it.
    position: Mutex<u64>,
}

impl File {
    /// What the file can do, by offset.
    pub fn handle(&self) -> &Handle<Real> {
        &self.handle
    }

    /// Reads at an offset; fewer bytes than asked only at the end of the file.
    ///
    /// # Errors
    /// Not open for reading, damaged media.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.handle.read_at(offset, out)
    }

    /// A view of a range of the file, as far as the file reaches: in place where that can be, else
    /// a copy. Writers of what is in place wait until the view is dropped; see [`View`].
    ///
    /// # Errors
    /// Not open for reading, damaged media.
    pub fn view(&self, range: Range<u64>) -> Result<View<'_, Real>> {
        self.handle.view(range)
    }

    /// [`Self::view`] for which another rule than that of all reads decides whether a page table is
    /// bought: [`Rule::Mmu`](crate::reading::Rule::Mmu) asks for it. See [`Handle::view_by`].
    ///
    /// # Errors
    /// As [`Self::view`].
    pub fn view_by(&self, range: Range<u64>, rule: Rule) -> Result<View<'_, Real>> {
        self.handle.view_by(range, rule)
    }

    /// Writes at an offset; gives how many bytes.
    ///
    /// # Errors
    /// Not open for writing, no space, too large, damaged media.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<usize> {
        self.handle.write_at(offset, data)
    }

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// As for [`Self::write_at`].
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.handle.truncate(size)
    }

    /// Makes everything done to this file survive what the medium can survive.
    ///
    /// # Errors
    /// What the medium said.
    pub fn sync_all(&self) -> Result<()> {
        self.handle.sync()
    }

    /// The file's attributes.
    ///
    /// # Errors
    /// Damaged media.
    pub fn attr(&self) -> Result<Attr> {
        self.handle.attr()
    }

    /// Waits for this call's turn at the position. A call that panicked has not moved it, so that
    /// it is sound.
    ///
    /// # Errors
    /// This process may not use the pool: of what its parent had open nobody ends his turn.
    fn turn(&self) -> Result<MutexGuard<'_, u64>> {
        self.handle.check_use()?;
        Ok(self.position.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn read_on(&self, out: &mut [u8]) -> io::Result<usize> {
        let mut position = self.turn()?;
        let len = self.handle.read_at(*position, out)?;
        *position += len as u64;
        Ok(len)
    }

    fn write_on(&self, data: &[u8]) -> io::Result<usize> {
        let mut position = self.turn()?;
        let (at, len) = if self.handle.options().append {
            self.handle.append(data)?
        } else {
            (*position, self.handle.write_at(*position, data)?)
        };
        *position = at + len as u64;
        Ok(len)
    }

    fn seek_to(&self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.turn()?;
        let (base, offset) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(offset) => (*position, offset),
            SeekFrom::End(offset) => (self.attr()?.size, offset),
        };
        *position = base
            .checked_add_signed(offset)
            .ok_or(Error::Invalid("a seek to before the start of the file"))?;
        Ok(*position)
    }
}

macro_rules! io_traits {
    ($($file:ty),*) => {$(
        impl Read for $file {
            fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
                self.read_on(out)
            }
        }

        impl Write for $file {
            fn write(&mut self, data: &[u8]) -> io::Result<usize> {
                self.write_on(data)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl Seek for $file {
            fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
                self.seek_to(to)
            }
        }
    )*};
}

io_traits!(File, &File);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;

    #[test]
    fn calls_that_say_where_wait_for_no_turn() {
        let pool = Pool::memory(16 << 20).expect("made");
        let file = pool.volume().create("/f").expect("made");
        let turn = file.turn().expect("given");
        assert_eq!(file.write_at(0, b"abc").expect("written"), 3);
        let mut read = [0; 3];
        assert_eq!(file.read_at(0, &mut read).expect("read"), 3);
        assert_eq!(
            (&read, &*file.view(0..3).expect("seen")),
            (b"abc", &b"abc"[..])
        );
        file.set_len(2).expect("cut");
        assert_eq!(file.attr().expect("told").size, 2);
        file.sync_all().expect("synced");
        drop(turn);
    }

    #[test]
    fn a_call_that_panicked_leaves_the_position_to_others() {
        let pool = Pool::memory(16 << 20).expect("made");
        let mut file = pool.volume().create("/f").expect("made");
        file.write_all(b"abc").expect("written");
        std::thread::scope(|scope| {
            let panicking = scope.spawn(|| {
                let _turn = file.turn().expect("given");
                std::panic::resume_unwind(Box::new("in the middle of a call"));
            });
            panicking.join().expect_err("it panicked");
        });
        file.write_all(b"def").expect("written");
        assert_eq!(pool.volume().read("/f").expect("read"), b"abcdef");
    }
}
