//! Vellum as a linked library, on a pool of the measurement's own.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vellum::media::count::{self, Counts};
use vellum::media::{MediaChoice, MediaKind, kind_at};
use vellum::{
    CreateOptions, Cred, Fs, Handle, ListPosition, Node, OpenOptions, Pool, PoolOptions, RealFs,
    RenameFlags, Volume,
    media::{Memories, Real},
};

use crate::error::Error;
use crate::side::{For, Side};
use crate::{Result, error::doing};

/// The background is idle when nothing happened in this many looks ...
const QUIET_LOOKS: u32 = 5;
/// ... with this much time between them.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A pool in a file that is removed together with it.
pub(crate) struct Library {
    open: Option<Open>,
    path: PathBuf,
    options: PoolOptions,
}

struct Open {
    pool: Pool,
    fs: Arc<RealFs>,
    volume: Volume,
    cred: Cred,
}

/// Creates a pool. If its medium is not named, the pool is used in place: in an ordinary file it
/// has no log.
pub(crate) fn make_pool(path: &Path, options: &CreateOptions) -> vellum::Result<Pool> {
    let media = match options.media {
        MediaChoice::Auto if kind_at(path) == MediaKind::File => MediaChoice::File,
        media => media,
    };
    options.clone().media(media).create(path)
}

impl Library {
    /// Creates a pool of `size_bytes` at `path`, and opens it; with `populate`, every page of pool
    /// and arena is made present.
    pub(crate) fn create(path: PathBuf, size_bytes: u64, populate: bool) -> Result<Self> {
        let options = PoolOptions::new().populate(populate);
        Self::create_with(path, &CreateOptions::new(size_bytes), options)
    }

    /// Creates a pool with the options `made`, and opens it with `options`.
    pub(crate) fn create_with(
        path: PathBuf,
        made: &CreateOptions,
        options: PoolOptions,
    ) -> Result<Self> {
        make_pool(&path, made)?.close()?;
        let mut library = Self {
            open: None,
            path,
            options,
        };
        library.reopen()?;
        Ok(library)
    }

    /// Creates a pool with `options` at `path`, to be opened elsewhere.
    pub(crate) fn make(path: &Path, options: &CreateOptions) -> Result<()> {
        Ok(make_pool(path, options)?.close()?)
    }

    /// Closes the pool cleanly.
    pub(crate) fn close(&mut self) -> Result<()> {
        if let Some(open) = self.open.take() {
            let Open {
                pool, fs, volume, ..
            } = open;
            drop((fs, volume));
            pool.close()?;
        }
        Ok(())
    }

    /// Closes the pool cleanly, if it is open, and opens it again with all caches empty.
    pub(crate) fn reopen(&mut self) -> Result<()> {
        self.close()?;
        let pool = self.options.open(&self.path)?;
        let (fs, volume) = (pool.fs(), pool.volume());
        let cred = Cred::current();
        self.open = Some(Open {
            pool,
            fs,
            volume,
            cred,
        });
        Ok(())
    }

    fn parts(&self) -> (&Arc<RealFs>, &Cred) {
        let open = self.opened();
        (&open.fs, &open.cred)
    }

    fn opened(&self) -> &Open {
        match &self.open {
            Some(open) => open,
            None => unreachable!("whoever closes the pool opens it again"),
        }
    }

    /// The file system.
    pub(crate) fn fs(&self) -> &Arc<RealFs> {
        &self.opened().fs
    }

    /// The size of the pool in bytes.
    pub(crate) fn size_bytes(&self) -> Result<u64> {
        let metadata = std::fs::metadata(&self.path).map_err(doing("look at the pool"))?;
        Ok(metadata.len())
    }

    /// Bytes of private memory of this process, and of arenas.
    pub(crate) fn resident_bytes() -> Result<u64> {
        let status = std::fs::read_to_string("/proc/self/status")
            .map_err(doing("read the process's status"))?;
        let own = status.lines().find_map(|line| kib(line, "RssAnon:"));
        let maps = std::fs::read_to_string("/proc/self/smaps")
            .map_err(doing("read the process's mappings"))?;
        let (mut in_arena, mut shared) = (false, 0);
        for line in maps.lines() {
            let first = line.split(' ').next().unwrap_or_default();
            if !first.ends_with(':') {
                in_arena = line.contains("vellum-arena");
            } else if in_arena {
                shared += kib(line, "Rss:").unwrap_or(0);
            }
        }
        Ok((own.unwrap_or(0) + shared) * 1024)
    }
}

/// Parses a line `name: number kB`.
fn kib(line: &str, name: &str) -> Option<u64> {
    let number = line.strip_prefix(name)?.trim().split(' ').next();
    number?.parse().ok()
}

impl Drop for Library {
    fn drop(&mut self) {
        if let Some(Open {
            pool, fs, volume, ..
        }) = self.open.take()
        {
            drop((fs, volume));
            // The pool is thrown away, so it does not matter how it is closed.
            drop(pool);
        }
        // The file may be gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// An open directory of the library.
pub(crate) struct LibraryDir {
    node: Node<Real>,
    path: PathBuf,
}

const READ: OpenOptions = OpenOptions::new()
    .read(true)
    .write(false)
    .append(false)
    .truncate(false)
    .create(false)
    .create_new(false)
    .no_follow(false)
    .directory(false)
    .no_atime(false)
    .mode(0);
const CREATE: OpenOptions = READ.read(false).write(true).create_new(true).mode(0o644);
const APPEND: OpenOptions = READ.read(false).write(true).append(true);

impl Side for Library {
    type Dir = LibraryDir;
    type File = Handle<Real>;

    fn dir(&self, path: &str) -> Result<LibraryDir> {
        let (fs, cred) = self.parts();
        let path = format!("/{path}");
        let node = fs.find(cred, &fs.root(), path.as_bytes(), true)?;
        Ok(LibraryDir {
            node,
            path: path.into(),
        })
    }

    fn make_dir(&self, path: &str) -> Result<()> {
        Ok(self.opened().volume.create_dir(Path::new("/").join(path))?)
    }

    fn stat(&self, at: &LibraryDir, path: &CStr) -> Result<u64> {
        let (fs, cred) = self.parts();
        Ok(fs.stat(cred, &at.node, path.to_bytes(), true)?.ino)
    }

    fn size(&self, at: &LibraryDir, path: &CStr) -> Result<u64> {
        let (fs, cred) = self.parts();
        Ok(fs.stat(cred, &at.node, path.to_bytes(), true)?.size)
    }

    fn open_close(&self, at: &LibraryDir, path: &CStr) -> Result<()> {
        let (fs, cred) = self.parts();
        drop(fs.open(cred, &at.node, path.to_bytes(), &READ)?);
        Ok(())
    }

    fn create(&self, at: &LibraryDir, name: &CStr) -> Result<()> {
        let (fs, cred) = self.parts();
        drop(fs.open(cred, &at.node, name.to_bytes(), &CREATE)?);
        Ok(())
    }

    fn create_write_sync(&self, at: &LibraryDir, name: &CStr, data: &[u8]) -> Result<()> {
        let (fs, cred) = self.parts();
        let file = fs.open(cred, &at.node, name.to_bytes(), &CREATE)?;
        let written = file.write_at(0, data)?;
        file.sync()?;
        if written == data.len() {
            Ok(())
        } else {
            Err(Error::Wrong(format!("{written} bytes written")))
        }
    }

    fn unlink(&self, at: &LibraryDir, name: &CStr) -> Result<()> {
        let (fs, cred) = self.parts();
        Ok(fs.unlink(cred, &at.node, name.to_bytes())?)
    }

    fn mkdir(&self, at: &LibraryDir, name: &CStr) -> Result<()> {
        let (fs, cred) = self.parts();
        drop(fs.mkdir(cred, &at.node, name.to_bytes(), 0o755)?);
        Ok(())
    }

    fn rmdir(&self, at: &LibraryDir, name: &CStr) -> Result<()> {
        let (fs, cred) = self.parts();
        Ok(fs.rmdir(cred, &at.node, name.to_bytes())?)
    }

    fn rename(&self, from: &LibraryDir, old: &CStr, to: &LibraryDir, new: &CStr) -> Result<()> {
        let (fs, cred) = self.parts();
        let flags = RenameFlags::empty();
        Ok(fs.rename(
            cred,
            &from.node,
            old.to_bytes(),
            &to.node,
            new.to_bytes(),
            flags,
        )?)
    }

    fn list(&self, dir: &LibraryDir) -> Result<u64> {
        let mut position = ListPosition::default();
        let mut entries = 0;
        self.fs().list(&dir.node, 0, &mut position, &mut |entry| {
            entries += 1;
            std::hint::black_box(entry);
            true
        })?;
        Ok(entries)
    }

    fn list_owned(&self, dir: &LibraryDir) -> Result<u64> {
        let mut entries = 0;
        for entry in self.opened().volume.read_dir(&dir.path)? {
            std::hint::black_box(entry?);
            entries += 1;
        }
        Ok(entries)
    }

    fn open(&self, at: &LibraryDir, path: &CStr, purpose: For) -> Result<Handle<Real>> {
        let (fs, cred) = self.parts();
        let options = match purpose {
            For::Reading => READ,
            For::Appending => APPEND,
        };
        Ok(fs.open(cred, &at.node, path.to_bytes(), &options)?)
    }

    fn read_at(&self, file: &Handle<Real>, offset: u64, out: &mut [u8]) -> Result<usize> {
        Ok(file.read_at(offset, out)?)
    }

    fn append(&self, file: &Handle<Real>, data: &[u8]) -> Result<usize> {
        Ok(file.append(data)?.1)
    }

    fn settle(&self) -> Result<()> {
        settle(self.fs())
    }

    fn counts(&self) -> Counts {
        count::snapshot()
    }
}

/// Executes background work together with the pool's own thread, which may hold the lease
/// meanwhile. The background is idle when several looks in a row find no work and no new counts.
pub(crate) fn settle<M: Memories>(fs: &Fs<M>) -> Result<()> {
    let mut quiet = 0;
    let mut before = count::snapshot();
    while quiet < QUIET_LOOKS {
        let done = fs.maintain()?;
        let now = count::snapshot();
        if done == 0 && now == before {
            quiet += 1;
            std::thread::sleep(LOOK_EVERY);
        } else {
            quiet = 0;
        }
        before = now;
    }
    Ok(())
}
