//! Several datasets in one pool: the table of datasets in the superblock of the first one, and the
//! bytes behind it, in which each of the others is a whole pool by itself.
//!
//! A dataset is complete before the table names it, and is wiped only once the table does not name
//! it any more. So a crash leaves the table as it was, or as it will be. Of the first dataset only
//! the superblock changes.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use vellum_layout::{
    BLOCK_BYTES, DATASET_ALIGN, FS_MAX, FsRecord, MAIN, MediumHead, Superblock, check_fs_name,
    uuid_text,
};
use vellum_media::{DataFile, MappedPool, MediaChoice, MediaError, Memory, OpenMode, PoolMemory};

use crate::devices::medium;
use crate::devices::session::Heads;
use crate::devices::superblock::{read_superblock, superblock_in};
use crate::disk_sites;
use crate::error::DatasetError;
use crate::error::{Error, Result};
use crate::logs::redo;
use crate::pool::copies::{settle_cut, settle_table, write_table};
use crate::pool::external;
use crate::pool::lifecycle::check_at_rest;
use crate::pool::{CreateOptions, Pool, PoolOptions, boot_id};

/// A path as users write it: the path of a pool, or `POOL:NAME` for a dataset in it.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("pool");
/// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
/// # options.create(&path)?.close()?;
/// let place = vellum::PoolPath::of(&dir.path().join("pool:mail"));
/// assert_eq!((place.pool, place.name.as_deref()), (path, Some("mail")));
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPath {
    /// The pool's file or device.
    pub pool: PathBuf,
    /// The dataset's name; `None` for the first one.
    pub name: Option<String>,
}

impl PoolPath {
    /// Interprets a path. A file of the whole path is a pool. Otherwise, if there is a file of the
    /// part before the last `:`, the path means a dataset in it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// use vellum::PoolPath;
    ///
    /// assert_eq!(PoolPath::of(&path).name, None);
    /// assert_eq!(PoolPath::of(&dir.path().join("pool:mail")).pool, path);
    /// assert_eq!(PoolPath::of("none:mail".as_ref()).name, None); // there is no pool `none`
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn of(path: &Path) -> Self {
        let whole = || Self {
            pool: path.to_owned(),
            name: None,
        };
        if path.symlink_metadata().is_ok() {
            return whole();
        }
        let bytes = path.as_os_str().as_bytes();
        let Some(colon) = bytes.iter().rposition(|&byte| byte == b':') else {
            return whole();
        };
        let pool = PathBuf::from(std::ffi::OsStr::from_bytes(&bytes[..colon]));
        match std::str::from_utf8(&bytes[colon + 1..]) {
            Ok(name) if !name.contains('/') && pool.symlink_metadata().is_ok() => Self {
                name: (name != MAIN).then(|| name.to_owned()),
                pool,
            },
            _ => whole(),
        }
    }

    /// The name of the dataset.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// use vellum::PoolPath;
    ///
    /// assert_eq!(PoolPath::of(&path).dataset(), "main");
    /// assert_eq!(PoolPath::of(&dir.path().join("pool:mail")).dataset(), "mail");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn dataset(&self) -> &str {
        self.name.as_deref().unwrap_or(MAIN)
    }

    /// The path in the form that users write.
    ///
    /// ```
    /// let place = vellum::PoolPath { pool: "/dev/pmem0".into(), name: Some("mail".to_owned()) };
    /// assert_eq!(place.path().as_os_str(), "/dev/pmem0:mail");
    /// ```
    pub fn path(&self) -> PathBuf {
        let Some(name) = &self.name else {
            return self.pool.clone();
        };
        let mut path = self.pool.clone().into_os_string().into_vec();
        path.push(b':');
        path.extend(name.as_bytes());
        std::ffi::OsString::from_vec(path).into()
    }

    /// Returns the same with the pool's canonical path, if its file is found.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// # let link = dir.path().join("link");
    /// std::os::unix::fs::symlink(&path, &link)?;
    /// let place = vellum::PoolPath::of(&link).resolved();
    /// assert_eq!(place.pool, path.canonicalize()?);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    #[must_use]
    pub fn resolved(self) -> Self {
        Self {
            pool: self.pool.canonicalize().unwrap_or(self.pool),
            name: self.name,
        }
    }
}

/// A dataset of a pool, as described by the pool's table and by its own superblock.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("pool");
/// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
/// # options.create(&path)?.close()?;
/// let [main] = &vellum::Pool::datasets(&path)?[..] else { panic!("only the first one") };
/// assert_eq!((&*main.name, main.at, main.bytes), ("main", 0, 64 << 20));
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Debug)]
pub struct Dataset {
    /// Its name.
    pub name: String,
    /// Its identity, from the table.
    pub uuid: [u8; 16],
    /// Its offset in the pool's file or device.
    pub at: u64,
    /// Its size there.
    pub bytes: u64,
    /// Its superblock.
    pub superblock: Result<Superblock>,
    /// The path where its data were last found, if they are on an external device.
    pub data: Option<PathBuf>,
}

impl Dataset {
    /// Whether a device has data of this dataset: one that its superblock names or, if that cannot
    /// be read, one whose head names the dataset.
    pub(crate) fn has_data_on(&self, medium: &DataFile) -> bool {
        let head = |expected: Option<&MediumHead>| Some(Heads::find(medium, expected)?.counts);
        match &self.superblock {
            Ok(superblock) => MediumHead::all(superblock)
                .iter()
                .any(|expected| head(Some(expected)).is_some_and(|head| head.id == expected.id)),
            Err(_) => head(None).is_some_and(|head| head.pool == self.uuid),
        }
    }
}

/// Maps the bytes of a pool, or of one of its datasets, without data on other devices. Without a
/// superblock it maps all bytes of the file.
///
/// # Errors
/// Fails if the pool is in use, or the dataset does not exist or is not where the table says.
pub(crate) fn open_own(place: &PoolPath, mode: OpenMode) -> Result<MappedPool> {
    let name = place.dataset();
    let whole = match mode.read_only {
        true => MappedPool::open_to_read(&place.pool, name, mode)?,
        false => MappedPool::open(&place.pool, mode)?,
    };
    let found = read_superblock(&whole);
    if let Ok(superblock) = &found {
        settle_in(&whole, superblock, mode)?;
    }
    let has_datasets = found.as_ref().is_ok_and(Superblock::has_datasets);
    if !has_datasets && place.name.is_none() {
        whole.use_as(name)?;
        return Ok(whole);
    }
    let own = own_of(&whole, &found?, place, false)?;
    if own.use_as(name)? && !mode.read_only {
        whole.tell_uses();
    }
    Ok(own)
}

/// Finishes a change of the table that was cut short, in a pool that is mapped whole to be used in
/// `mode`. A copy of the superblock that cannot be written is only logged: the pool has another
/// valid one.
///
/// # Errors
/// Fails if a sync fails: the valid copy may be in caches only.
fn settle_in(whole: &MappedPool, superblock: &Superblock, mode: OpenMode) -> Result<()> {
    // The medium `memory` is never synced, so copies need not be written one after the other.
    if mode.read_only || mode.media == MediaChoice::Memory || superblock.check_writable().is_err() {
        return Ok(());
    }
    match settle_cut(whole, superblock) {
        Err(error @ Error::Unreadable(_)) => {
            tracing::warn!(%error, "the copies of the superblock could not be made equal");
            Ok(())
        }
        settled => settled,
    }
}

/// Maps a dataset of a pool that is mapped whole; with `read_only`, for reading only.
fn own_of(
    whole: &MappedPool,
    superblock: &Superblock,
    place: &PoolPath,
    read_only: bool,
) -> Result<MappedPool> {
    let path = place.path();
    let (start, len) = own_bytes(superblock, place)?;
    if start.saturating_add(len) > whole.len() {
        let what = "the pool's file or device ends before it does".to_owned();
        return Err(DatasetError::NotThere { path, what }.into());
    }
    let part = whole.part((start, len), &path, read_only)?;
    let name = place.name.as_deref().unwrap_or_default();
    let Some(record) = superblock.dataset(name) else {
        return Ok(part);
    };
    // Other damage is reported when it is met.
    match read_superblock(&part) {
        Ok(own) if own.uuid != record.uuid => {
            let (own, uuid) = (uuid_text(&own.uuid), uuid_text(&record.uuid));
            let what = format!("where the pool has dataset {uuid}, there is {own}");
            Err(DatasetError::NotThere { path, what }.into())
        }
        _ => Ok(part),
    }
}

/// Returns offset and length of the dataset's own bytes in the file of a pool with this superblock.
///
/// # Errors
/// Fails if there is no such dataset.
pub fn own_bytes(superblock: &Superblock, place: &PoolPath) -> Result<(u64, u64)> {
    let Some(name) = &place.name else {
        return Ok((0, superblock.pool_bytes));
    };
    let record = superblock.dataset(name);
    let record = record.ok_or_else(|| unknown(superblock, &place.pool, name))?;
    Ok((record.at, record.bytes))
}

fn unknown(superblock: &Superblock, pool: &Path, name: &str) -> DatasetError {
    DatasetError::Unknown {
        pool: pool.to_owned(),
        name: name.to_owned(),
        names: names(superblock),
    }
}

/// The names of all datasets of a pool.
fn names(superblock: &Superblock) -> Vec<String> {
    let parts = superblock.datasets().filter_map(FsRecord::name_text);
    [MAIN].into_iter().chain(parts).map(str::to_owned).collect()
}

/// Removes the dataset of this record from the pool's table, then wipes its superblocks.
///
/// # Errors
/// Fails if the medium fails.
pub fn remove_dataset<P: PoolMemory>(
    pool: &P,
    superblock: &Superblock,
    record: &FsRecord,
) -> Result<Superblock> {
    let left = superblock.without_dataset(record.name_text().unwrap_or_default());
    write_table(pool, &left)?;
    for (at, bytes) in [
        (record.at, 2 * BLOCK_BYTES),
        (record.end() - BLOCK_BYTES, BLOCK_BYTES),
    ] {
        pool.zero_through(disk_sites::PARTS_WIPE, at, bytes);
    }
    pool.fence(disk_sites::PARTS_WIPE_DURABLE);
    pool.sync()?;
    Ok(left)
}

/// A pool whose table is to be changed.
struct Container {
    whole: MappedPool,
    superblock: Superblock,
    pool: PathBuf,
}

impl Container {
    /// Opens the pool at `pool` under an exclusive lock. Fails if a conversion or a repair of the
    /// first dataset is unfinished.
    fn open(pool: &Path) -> Result<Self> {
        // Opened as the file's own medium: the table is synced even if datasets are used as
        // `memory`.
        let whole = MappedPool::open(pool, OpenMode::default())?;
        whole.exclude_all()?;
        let superblock = read_superblock(&whole)?;
        let geometry = superblock.geometry();
        // The log or undo log is applied to the pool's bytes in private memory, which a device-DAX
        // node cannot be mapped for.
        let is_laid_over = geometry.is_logged() || geometry.has_undo();
        let view = whole.part((0, superblock.pool_bytes), pool, is_laid_over)?;
        check_at_rest(&view)?;
        settle_table(&whole, &superblock)?;
        Ok(Self {
            whole,
            superblock,
            pool: pool.to_owned(),
        })
    }

    fn place(&self, name: &str) -> PoolPath {
        PoolPath {
            pool: self.pool.clone(),
            name: Some(name.to_owned()),
        }
    }

    /// Whether a dataset has files.
    fn has_files(&self, place: &PoolPath, options: &PoolOptions) -> Result<bool> {
        let own = own_of(&self.whole, &self.superblock, place, true)?.taken_for(options.media)?;
        let own = external::with_data(own, &place.path(), &options.data, true)?;
        let options = PoolOptions {
            read_only: true,
            ..options.clone()
        };
        let opened = Pool::start(own, &options)?;
        let mut names = opened.volume().read_dir("/")?;
        Ok(names.next().is_some())
    }

    /// Fails unless the dataset is known to have no files.
    fn refuse_to_lose(&self, name: &str, options: &PoolOptions) -> Result<()> {
        let place = self.place(name);
        let path = place.path();
        match self.has_files(&place, options) {
            Ok(false) => Ok(()),
            Ok(true) => Err(DatasetError::NotEmpty { path }.into()),
            Err(error) => {
                let source = Box::new(error);
                Err(DatasetError::Unread { path, source }.into())
            }
        }
    }

    /// Returns the record of a dataset that may be removed.
    fn removable(&self, name: &str) -> Result<&FsRecord> {
        let pool = self.pool.clone();
        if name == MAIN {
            return Err(DatasetError::Main { pool }.into());
        }
        let record = self.superblock.dataset(name);
        Ok(record.ok_or_else(|| unknown(&self.superblock, &pool, name))?)
    }

    fn remove(&self, record: &FsRecord) -> Result<()> {
        let place = self.place(record.name_text().unwrap_or_default());
        let own = own_of(&self.whole, &self.superblock, &place, true);
        let own = own.and_then(|own| Ok((read_superblock(&own)?, own)));
        let left = remove_dataset(&self.whole, &self.superblock, record)?;
        // A dataset that cannot be read is removed, too.
        if let Ok((superblock, own)) = own
            && superblock.geometry().is_logged()
        {
            redo::remove_images(&own, &superblock, boot_id());
        }
        self.whole
            .free_part(record.at, record.bytes, left.datasets_end());
        Ok(())
    }

    /// Refuses a device that has data of a dataset of this pool: no lock protects it now.
    fn refuse_own_medium(&self, path: &Path) -> Result<()> {
        let file = match DataFile::open(path, true) {
            Err(MediaError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(());
            }
            Err(MediaError::Empty { .. }) => return Ok(()),
            opened => opened?,
        };
        for fs in list_mapped(&self.pool, &self.whole)? {
            if fs.has_data_on(&file) {
                let (path, name) = (path.to_owned(), fs.name);
                return Err(DatasetError::DataTaken { path, name }.into());
            }
        }
        Ok(())
    }

    /// Formats the dataset, then adds it to the table.
    fn add(&self, name: &str, options: &CreateOptions) -> Result<MappedPool> {
        let path = self.place(name).path();
        let options = &options.settled(&self.pool);
        if let Some(data) = &options.data {
            self.refuse_own_medium(&data.path)?;
        }
        let mut taken = None;
        let take = |bytes: u64| {
            let bytes = bytes.next_multiple_of(DATASET_ALIGN);
            let at = self.superblock.dataset_room(bytes);
            // Remembered first, so that space is freed again even if it cannot be mapped.
            taken = Some((at, bytes));
            let memory = self.whole.new_part(at, bytes, &path)?;
            Ok(memory.taken_for(options.media)?)
        };
        let made = Pool::make(&path, options, take);
        let Some((at, bytes)) = taken else {
            return Ok(made?.0);
        };
        let made = made.and_then(|(memory, own)| {
            let full = || DatasetError::Full {
                pool: self.pool.clone(),
            };
            let table = self.superblock.with_dataset(name, at, bytes, own.uuid);
            Ok((memory, table.ok_or_else(full)?))
        });
        match made {
            Ok((memory, table)) => {
                write_table(&self.whole, &table)?;
                Ok(memory)
            }
            Err(error) => {
                self.whole
                    .free_part(at, bytes, self.superblock.datasets_end());
                Err(error)
            }
        }
    }
}

impl Pool {
    /// Creates one more dataset of `options.size_bytes` in the pool at `path`, and opens it. Nobody
    /// may use the pool meanwhile. A file grows; a device needs space behind the pool.
    /// `options.overwrite` has no effect.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// use vellum::{CreateOptions, Pool};
    ///
    /// let mail = Pool::add_dataset(&path, "mail", &CreateOptions::new(64 << 20))?;
    /// mail.volume().write("/1", "Hello")?;
    /// mail.close()?;
    /// let mail = Pool::open(dir.path().join("pool:mail"))?;
    /// assert_eq!(mail.volume().read("/1")?, b"Hello");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the pool is in use, is damaged or has an unfinished conversion; if the name is
    /// taken or not valid; if there are eight datasets; if space is short; or if the size or the
    /// options are impossible. The pool does not change then, unless the table could not be written
    /// or the new dataset could not be opened: [`Self::datasets`] shows that.
    pub fn add_dataset(
        path: impl AsRef<Path>,
        name: &str,
        options: &CreateOptions,
    ) -> Result<Self> {
        check_fs_name(name).map_err(DatasetError::from)?;
        let container = Container::open(path.as_ref())?;
        let pool = container.pool.clone();
        if container.superblock.dataset(name).is_some() {
            let name = name.to_owned();
            return Err(DatasetError::Taken { pool, name }.into());
        }
        if container.superblock.datasets().count() + 1 >= FS_MAX {
            return Err(DatasetError::Full { pool }.into());
        }
        Self::start(container.add(name, options)?, &PoolOptions::default())
    }

    /// Removes a dataset of the pool at `path`, with all its files. Nobody may use the pool
    /// meanwhile. Its external data device is not changed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// use vellum::{CreateOptions, Pool};
    ///
    /// Pool::add_dataset(&path, "old", &CreateOptions::new(64 << 20))?.close()?;
    /// Pool::remove_dataset(&path, "old")?;
    /// assert_eq!(Pool::datasets(&path)?.len(), 1);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the pool is in use, is damaged or has an unfinished conversion; if there is no such
    /// dataset, or it is the first one; or if the medium fails.
    pub fn remove_dataset(path: impl AsRef<Path>, name: &str) -> Result<()> {
        let container = Container::open(path.as_ref())?;
        container.remove(container.removable(name)?)
    }

    /// Removes a dataset as [`Self::remove_dataset`] does, unless it has files. To find out, it is
    /// opened for reading with `options`, under the same lock on the pool.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// use vellum::{CreateOptions, DatasetError, Error, Pool, PoolOptions};
    ///
    /// let mail = Pool::add_dataset(&path, "mail", &CreateOptions::new(64 << 20))?;
    /// mail.volume().write("/1", "Hello")?;
    /// mail.close()?;
    /// let kept = Pool::remove_empty_dataset(&path, "mail", &PoolOptions::new());
    /// assert!(matches!(kept, Err(Error::Dataset(DatasetError::NotEmpty { .. }))));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::remove_dataset`], if the dataset has files, and if it cannot be opened to
    /// find out.
    pub fn remove_empty_dataset(
        path: impl AsRef<Path>,
        name: &str,
        options: &PoolOptions,
    ) -> Result<()> {
        let container = Container::open(path.as_ref())?;
        let record = container.removable(name)?;
        container.refuse_to_lose(name, options)?;
        container.remove(record)
    }

    /// Lists the datasets of the pool at `path`, the first one first. The pool may be in use.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// use vellum::{CreateOptions, Pool};
    ///
    /// Pool::add_dataset(&path, "mail", &CreateOptions::new(64 << 20))?.close()?;
    /// let names: Vec<_> = Pool::datasets(&path)?.into_iter().map(|found| found.name).collect();
    /// assert_eq!(names, ["main", "mail"]);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file is no pool, or cannot be read.
    pub fn datasets(path: impl AsRef<Path>) -> Result<Vec<Dataset>> {
        let path = path.as_ref();
        let file = File::open(path)?;
        let read = |at, block: &mut [u8]| file.read_exact_at(block, at);
        // A device-DAX node cannot be read, only mapped.
        if read(0, &mut [0; 1]).is_err() {
            return list_mapped(path, &MappedPool::open(path, OpenMode::default())?);
        }
        let len = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0));
        list(path, len.map_err(std::io::Error::from)?, &read)
    }

    /// Opens every dataset of the pool at `path`. They share the lock on the pool. If one cannot be
    /// opened, the others can.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// use vellum::{CreateOptions, Pool, PoolOptions};
    ///
    /// Pool::add_dataset(&path, "mail", &CreateOptions::new(64 << 20))?.close()?;
    /// for (place, pool) in Pool::open_all(&path, &PoolOptions::new())? {
    ///     pool?.volume().write("/name", place.dataset())?;
    /// }
    /// let mail = Pool::open(dir.path().join("pool:mail"))?;
    /// assert_eq!(mail.volume().read("/name")?, b"mail");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::open`] if the pool itself cannot be opened. An error of one dataset is
    /// returned with its path.
    pub fn open_all(
        path: impl AsRef<Path>,
        options: &PoolOptions,
    ) -> Result<Vec<(PoolPath, Result<Self>)>> {
        let pool = path.as_ref();
        let mode = OpenMode {
            read_only: options.read_only,
            media: options.media,
            populate: false,
        };
        let whole = MappedPool::open(pool, mode)?;
        let superblock = read_superblock(&whole)?;
        settle_in(&whole, &superblock, mode)?;
        let mut are_told = !options.read_only;
        let mut open = |place: &PoolPath| {
            let memory = own_of(&whole, &superblock, place, false)?;
            are_told &= memory.use_as(place.dataset())?;
            let memory = external::with_data(memory, &place.path(), &[], options.read_only)?;
            if !options.read_only {
                external::begin_session(&memory, &place.path())?;
            }
            if options.populates_all() {
                memory.populate();
            }
            Self::start(memory, options)
        };
        let places = names(&superblock).into_iter().map(|name| PoolPath {
            pool: pool.to_owned(),
            name: (name != MAIN).then_some(name),
        });
        let opened = places.map(|place| {
            let opened = open(&place);
            (place, opened)
        });
        let opened = opened.collect();
        if are_told {
            whole.tell_uses();
        }
        Ok(opened)
    }
}

/// Reads the block at an offset of the pool's file.
type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> std::io::Result<()>;

/// Lists the datasets of the pool at `path`, which is mapped whole.
fn list_mapped(path: &Path, whole: &MappedPool) -> Result<Vec<Dataset>> {
    let len = whole.len();
    list(path, len, &|at, block| {
        if at.saturating_add(block.len() as u64) > len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        whole.read(at, block);
        Ok(())
    })
}

/// Lists the datasets of the pool at `path`, in a file of `len` bytes.
fn list(path: &Path, len: u64, read: Read<'_>) -> Result<Vec<Dataset>> {
    let superblock = superblock_in(len, read)?;
    let data_of = |start: u64, own: &Superblock| {
        let mut places = [0; BLOCK_BYTES as usize];
        read(start + own.media_at, &mut places).ok()?;
        medium::last_place(&places, own.geometry().external?.id, path)
    };
    let mut found = vec![Dataset {
        name: MAIN.to_owned(),
        uuid: superblock.uuid,
        at: 0,
        bytes: superblock.pool_bytes,
        data: data_of(0, &superblock),
        superblock: Ok(superblock.clone()),
    }];
    for record in superblock.datasets() {
        let own = superblock_in(record.bytes, |at, block| match at.checked_add(record.at) {
            Some(at) => read(at, block),
            None => Err(ErrorKind::UnexpectedEof.into()),
        });
        found.push(Dataset {
            name: record.name_text().unwrap_or_default().to_owned(),
            uuid: record.uuid,
            at: record.at,
            bytes: record.bytes,
            data: own.as_ref().ok().and_then(|own| data_of(record.at, own)),
            superblock: own.and_then(|own| match own.uuid == record.uuid {
                true => Ok(own),
                false => Err(Error::Invalid("another pool is there")),
            }),
        });
    }
    Ok(found)
}
