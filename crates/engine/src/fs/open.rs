//! Opening files, and the operations of an open file.

use crate::core::limits::SIZE_MAX_BYTES;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use vellum_layout::{FileKind, IdentityWord};
use vellum_media::Memories;

use crate::core::cachelet::Cachelet;
use crate::core::setters::setters;
use crate::core::slots::Op;
use crate::durability::commit::Durability;
use crate::error::{Error, Result};
use crate::fs::file::{
    Allocate, Cold, ReadPaths, Translation, check_cuttable, check_mutable, check_range,
};
use crate::fs::new_file::NewFile;
use crate::fs::path::{Follow, follow_one};
use crate::fs::{Access, Attr, Cred, Fs, Node, SetAttr, View};
use crate::reading::{Costs, PageTable, ReadPath, Rule, pages_of};

/// How to open a file. By default it opens for nothing, and a new file gets the mode 0666.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let volume = pool.volume();
/// use vellum::OpenOptions;
///
/// let new = OpenOptions::new().write(true).create_new(true).mode(0o600);
/// volume.open_with("/log", &new)?;
/// assert!(volume.open_with("/log", &new).is_err()); // it exists
/// let log = volume.open_with("/log", &OpenOptions::new().append(true).no_follow(true))?;
/// log.write_at(b"line", 0)?;
/// let read = OpenOptions::new().read(true).no_atime(true);
/// assert_eq!(volume.open_with("/log", &read)?.metadata()?.len(), 4);
/// volume.open_with("/log", &OpenOptions::new().write(true).create(true).truncate(true))?;
/// assert!(volume.open_with("/log", &read.directory(true)).is_err()); // it is a file
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenOptions {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Every write goes to the end, atomically.
    pub append: bool,
    /// Truncate the file to no bytes.
    pub truncate: bool,
    /// Create the file if it does not exist.
    pub create: bool,
    /// Create the file; fail if it exists.
    pub create_new: bool,
    /// Fail if the last component is a symbolic link.
    pub no_follow: bool,
    /// Fail if it is not a directory.
    pub directory: bool,
    /// Leave the access time alone.
    pub no_atime: bool,
    /// Permission bits of a new file, without those of [`Cred::umask`].
    pub mode: u16,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

setters!(const OpenOptions:
    /// The type has an [example](Self).
    read: bool,
    /// The type has an [example](Self).
    write: bool,
    /// The type has an [example](Self).
    append: bool,
    /// The type has an [example](Self).
    truncate: bool,
    /// The type has an [example](Self).
    create: bool,
    /// The type has an [example](Self).
    create_new: bool,
    /// The type has an [example](Self).
    no_follow: bool,
    /// The type has an [example](Self).
    directory: bool,
    /// The type has an [example](Self).
    no_atime: bool,
    /// The type has an [example](Self).
    mode: u16,
);

impl OpenOptions {
    /// Opens for nothing yet.
    ///
    /// ```
    /// let options = vellum::OpenOptions::new();
    /// assert_eq!((options.read, options.write, options.mode), (false, false, 0o666));
    /// ```
    pub const fn new() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            no_follow: false,
            directory: false,
            no_atime: false,
            mode: 0o666,
        }
    }

    pub(super) fn wants(&self) -> Access {
        let read = if self.read {
            Access::READ
        } else {
            Access::empty()
        };
        let write = self.write || self.append || self.truncate;
        read | if write {
            Access::WRITE
        } else {
            Access::empty()
        }
    }
}

/// An open file: a node, how it was opened, and a cache of translations.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let file = pool.volume().create("/f")?;
/// file.handle().write_at(0, b"text")?;
/// let mut out = [0; 2];
/// file.handle().read_at(2, &mut out)?;
/// assert_eq!(&out, b"xt");
/// # Ok::<(), vellum::Error>(())
/// ```
pub struct Handle<M: Memories> {
    /// Dropped before `node`. Tables are found by cachelet, and once `node` is gone another file
    /// may get the cachelet.
    path: ReadPath,
    node: Node<M>,
    options: OpenOptions,
    cred: Cred,
    translation: Translation,
    /// The number by which locks name this handle; 0 until it has any.
    pub(super) lock_number: AtomicU64,
}

/// The result of opening.
struct OpenedFile {
    file: Cachelet,
    /// This opening created the file. Its creator may use it whatever its mode is.
    is_new: bool,
}

impl<M: Memories> Fs<M> {
    /// Opens the file that a path names. Creates it if the options say so.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let options = vellum::OpenOptions::new().write(true).create(true);
    /// let handle = fs.open(&cred, &root, b"/log", &options)?;
    /// assert_eq!(handle.write_at(0, b"text")?, 4);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as `open(2)` does.
    pub fn open(
        self: &Arc<Self>,
        cred: &Cred,
        start: &Node<M>,
        path: &[u8],
        options: &OpenOptions,
    ) -> Result<Handle<M>> {
        if options.wants().contains(Access::WRITE) || options.create || options.create_new {
            self.core.check_writable()?;
        }
        if options.create || options.create_new {
            let (node, is_new) = self.with_room(|op| {
                let found = self.open_or_make(op, cred, start.cachelet, path, options, &mut 0)?;
                Ok((Node::hold(self, found.file), found.is_new))
            })?;
            if is_new {
                let made = Ok(Handle::new(cred, node, options));
                return self.commit_from(Durability::Dirsync, made);
            }
            return self.finish_open(cred, node, options);
        }
        let node = self.with_op(|op| {
            let follow = if options.no_follow {
                Follow::AllButLast
            } else {
                Follow::Last
            };
            let found = self.resolve(op, cred, start.cachelet, path, follow)?;
            self.check_open(op, cred, found, options)?;
            Ok(Node::hold(self, found))
        })?;
        self.finish_open(cred, node, options)
    }

    /// Opens a node.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let file = fs.mknod(&cred, &root, b"f", vellum::FileKind::File, 0o644, 0)?;
    /// let handle = fs.open_node(&cred, &file, &vellum::OpenOptions::new().write(true))?;
    /// assert_eq!(handle.append(b"text")?, (0, 4));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as `open(2)` does.
    pub fn open_node(
        self: &Arc<Self>,
        cred: &Cred,
        node: &Node<M>,
        options: &OpenOptions,
    ) -> Result<Handle<M>> {
        if options.wants().contains(Access::WRITE) {
            self.core.check_writable()?;
        }
        self.with_op(|op| self.check_open(op, cred, node.cachelet, options))?;
        self.finish_open(cred, node.clone(), options)
    }

    /// Creates a regular file in a directory and opens it (`O_CREAT | O_EXCL`).
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let options = vellum::OpenOptions::new().write(true).mode(0o600);
    /// let handle = fs.create(&cred, &root, b"f", &options)?;
    /// assert_eq!(handle.attr()?.mode, 0o600);
    /// assert!(fs.create(&cred, &root, b"f", &options).is_err());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as `open(2)` does.
    pub fn create(
        self: &Arc<Self>,
        cred: &Cred,
        dir: &Node<M>,
        name: &[u8],
        options: &OpenOptions,
    ) -> Result<Handle<M>> {
        let node = self.mknod(cred, dir, name, FileKind::File, options.mode, 0)?;
        Ok(Handle::new(cred, node, options))
    }

    fn finish_open(&self, cred: &Cred, node: Node<M>, options: &OpenOptions) -> Result<Handle<M>> {
        if options.truncate && node.kind() == FileKind::File {
            self.resize(cred, node.cachelet, 0)?;
        }
        Ok(Handle::new(cred, node, options))
    }

    fn check_open(
        &self,
        op: &Op<'_, M>,
        cred: &Cred,
        file: Cachelet,
        options: &OpenOptions,
    ) -> Result<()> {
        let identity = op.core.identity(file);
        let kind = identity.kind().unwrap_or(FileKind::File);
        check_kind(kind, options)?;
        op.check_known(cred, (file, identity), options.wants())?;
        check_not_special(kind)?;
        let overwrites = options.truncate || options.write && !options.append;
        if overwrites && identity.has(IdentityWord::APPEND_ONLY) {
            return Err(Error::NotPermitted);
        }
        if options.no_atime && !op.core.owns(cred, file) {
            return Err(Error::NotPermitted);
        }
        Ok(())
    }

    fn open_or_make(
        &self,
        op: &Op<'_, M>,
        cred: &Cred,
        start: Cachelet,
        path: &[u8],
        options: &OpenOptions,
        links: &mut u32,
    ) -> Result<OpenedFile> {
        let parent = self.resolve_parent(op, cred, start, path, links)?;
        if !parent.is_plain() {
            return Err(if options.create_new {
                Error::Exists
            } else {
                Error::IsDirectory
            });
        }
        if parent.wants_dir {
            return Err(Error::IsDirectory);
        }
        let make = || {
            let new = NewFile::plain(FileKind::File, options.mode);
            let made = self.make(op, cred, parent.dir, parent.name, new);
            made.map(|file| OpenedFile { file, is_new: true })
        };
        if options.create_new {
            return make();
        }
        let found = loop {
            match self.namespace.lookup(op, parent.dir, parent.name) {
                Ok(found) => break found,
                Err(Error::NotFound) => match make() {
                    // Another thread created it meanwhile.
                    Err(Error::Exists) => {}
                    made => return made,
                },
                Err(error) => return Err(error),
            }
        };
        if op.core.kind(found) == FileKind::Symlink && !options.no_follow {
            follow_one(links)?;
            let target = self.read_text(op, found)?;
            return self.open_or_make(op, cred, parent.dir, &target, options, links);
        }
        if op.core.kind(found) == FileKind::Directory {
            return Err(Error::IsDirectory);
        }
        op.core.check_protected(cred, parent.dir, found)?;
        self.check_open(op, cred, found, options)?;
        Ok(OpenedFile {
            file: found,
            is_new: false,
        })
    }
}

/// Checks that a file of this kind can be opened with these options.
pub(super) fn check_kind(kind: FileKind, options: &OpenOptions) -> Result<()> {
    if options.directory && kind != FileKind::Directory {
        return Err(Error::NotDirectory);
    }
    if kind == FileKind::Symlink {
        return Err(Error::Loop);
    }
    if kind == FileKind::Directory && options.wants().contains(Access::WRITE) {
        return Err(Error::IsDirectory);
    }
    Ok(())
}

/// Checks that it is no pipe, socket or device.
pub(super) fn check_not_special(kind: FileKind) -> Result<()> {
    match kind {
        FileKind::File | FileKind::Directory | FileKind::Symlink => Ok(()),
        _ => Err(Error::SpecialFile),
    }
}

impl<M: Memories> Handle<M> {
    #[inline]
    pub(super) fn new(cred: &Cred, node: Node<M>, options: &OpenOptions) -> Self {
        let translation = Translation::new(options.no_atime);
        Self {
            node,
            options: *options,
            cred: cred.clone(),
            translation,
            path: ReadPath::default(),
            lock_number: AtomicU64::new(0),
        }
    }

    /// The file.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// assert_eq!(file.handle().node().kind(), vellum::FileKind::File);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn node(&self) -> &Node<M> {
        &self.node
    }

    /// The options it was opened with.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// assert!(file.handle().options().write && !file.handle().options().append);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn options(&self) -> &OpenOptions {
        &self.options
    }

    pub(super) fn fs(&self) -> &Fs<M> {
        self.node.fs()
    }

    /// Checks whether this process may still use the file, without a system call.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// pool.close()?;
    /// assert!(matches!(file.handle().check_use(), Err(vellum::Error::Closed)));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::Closed`].
    pub fn check_use(&self) -> Result<()> {
        self.fs().core.check_use()
    }

    /// Counts pages that a write touches. They belong to the access pattern like pages that are
    /// read.
    fn count(&self, offset: u64, len: usize) {
        self.path.touch(pages_of(offset, len as u64));
    }

    /// The state of the file's page table, as far as this opening uses it.
    pub(crate) fn page_table(&self) -> PageTable {
        self.path.page_table()
    }

    #[inline]
    pub(crate) fn check_read(&self) -> Result<()> {
        self.check_use()?;
        match self.node.kind() {
            FileKind::Directory => Err(Error::IsDirectory),
            FileKind::File if self.options.read => Ok(()),
            FileKind::File => Err(Error::BadHandle),
            _ => Err(Error::WrongKind),
        }
    }

    fn check_seek(&self) -> Result<()> {
        self.check_use()?;
        match self.node.kind() {
            FileKind::Directory => Err(Error::IsDirectory),
            FileKind::File => Ok(()),
            _ => Err(Error::WrongKind),
        }
    }

    #[inline]
    pub(crate) fn check_write(&self) -> Result<()> {
        if !(self.options.write || self.options.append) {
            return Err(Error::BadHandle);
        }
        let core = &self.fs().core;
        let identity = core.identity(self.node.cachelet);
        match identity.kind() {
            Some(FileKind::File) => core.check_writable()?,
            _ => return Err(Error::WrongKind),
        }
        check_mutable(identity)
    }

    /// Reads at an offset. Returns fewer bytes than requested only at the end of the file.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// file.handle().write_at(0, b"text")?;
    /// let mut out = [0; 8];
    /// assert_eq!(file.handle().read_at(1, &mut out)?, 3);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file is not open for reading, or media are damaged.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.check_read()?;
        let fs = self.fs();
        let paths = self.paths(fs.reading.rule());
        let (file, paths) = (self.node.cachelet, Some(paths));
        fs.files()
            .read_at(file, &self.translation, paths, offset, out)
    }

    fn paths(&self, rule: Rule) -> ReadPaths<'_> {
        ReadPaths {
            reading: &self.fs().reading,
            path: &self.path,
            rule,
        }
    }

    /// A view of a range of the file, up to the end of the file. It is in place if the bytes are
    /// contiguous in the pool or the file's page table shows them, else a copy. [`View`] describes
    /// what a view blocks.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// file.handle().write_at(0, b"text")?;
    /// assert_eq!(&*file.handle().view(1..3)?, b"ex");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file is not open for reading, or media are damaged.
    pub fn view(&self, range: Range<u64>) -> Result<View<'_, M>> {
        self.view_by(range, self.fs().reading.rule())
    }

    /// As [`Self::view`], but with its own rule for building page tables. [`Rule::Mmu`] builds one
    /// whatever it costs; if the cost of reading is not known yet, it is measured first
    /// ([`Self::read_costs`]). The view is still a copy if the process may have no more mappings,
    /// the pool has no page tables, or the range contains a hole.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// file.handle().write_at(0, &[7; 1 << 20])?;
    /// assert_eq!(file.handle().view_by(0..1 << 20, vellum::reading::Rule::Mmu)?.len(), 1 << 20);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::view`].
    pub fn view_by(&self, range: Range<u64>, rule: Rule) -> Result<View<'_, M>> {
        self.check_read()?;
        if rule == Rule::Mmu {
            self.read_costs();
        }
        let paths = self.paths(rule);
        let files = self.fs().files();
        files.view(self.node.cachelet, &self.translation, paths, range)
    }

    /// The cost of reading here: the known one, else one measured by this file and kept for
    /// everyone who has the pool open. Measuring takes 4 ms if blocks are contiguous, 23 ms if none
    /// are (on an AMD EPYC). `None` if the pool has no page tables or is too small, or the file has
    /// too few bytes (64 KiB without a hole are enough). Reads up to 16 MiB that are on a disk and
    /// not in memory; if they do not fit into memory, nothing is measured. Measurements that
    /// ordinary reads start read nothing extra: they wait until their sample is in memory.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// file.handle().write_at(0, &[7; 1 << 20])?;
    /// assert_eq!(file.handle().read_costs().is_some(), pool.fs().knows_read_costs());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn read_costs(&self) -> Option<Costs> {
        let fs = self.fs();
        let op = fs.core.op_begin().ok()?;
        let is_file = self.node.kind() == FileKind::File;
        let file = is_file.then_some(self.node.cachelet);
        let measure = || fs.files().measure(&op, Some(file?), Cold::Read);
        fs.reading.learn(&fs.core.arena, measure)
    }

    /// Writes at an offset (at the end, if opened for appending, as Linux does). Returns the number
    /// of bytes.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// assert_eq!(file.handle().write_at(1 << 20, b"text")?, 4);
    /// assert_eq!(file.handle().attr()?.size, (1 << 20) + 4);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file is not open for writing or gets too large, there is no space, or media are
    /// damaged.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<usize> {
        if self.options.append {
            return self.append(data).map(|(_, len)| len);
        }
        self.write_by(offset, data, false)
    }

    /// As [`Self::write_at`], for bytes that somebody wrote earlier, and that are now written back:
    /// set-id bits and capabilities, which may have been set since, stay.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// assert_eq!(file.handle().write_back_at(0, b"text")?, 4);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn write_back_at(&self, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_by(offset, data, true)
    }

    fn write_by(&self, offset: u64, data: &[u8], keeps_privileges: bool) -> Result<usize> {
        self.check_write()?;
        if !data.is_empty() && offset >= SIZE_MAX_BYTES {
            let end = offset.checked_add(data.len() as u64);
            return Err(match end.is_some_and(|end| end <= i64::MAX as u64) {
                true => Error::TooLarge,
                false => Error::Invalid("an offset beyond 2^63 - 1"),
            });
        }
        self.count(offset, data.len());
        let (file, cache) = (self.node.cachelet, &self.translation);
        let written = self.fs().change_file(&self.cred, |files| {
            let files = files.keeping_privileges(keeps_privileges);
            files.write_at(file, cache, offset, data)
        });
        self.fs().commit_from(Durability::Sync, written)
    }

    /// Writes at the end, atomically. Returns the offset and the number of bytes.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// assert_eq!(file.handle().append(b"one")?, (0, 3));
    /// assert_eq!(file.handle().append(b"two")?, (3, 3));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn append(&self, data: &[u8]) -> Result<(u64, usize)> {
        self.check_write()?;
        self.count(0, data.len());
        let written = self.fs().change_file(&self.cred, |files| {
            files.append(self.node.cachelet, &self.translation, data)
        });
        self.fs().commit_from(Durability::Sync, written)
    }

    /// Truncates or extends the file.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// file.handle().write_at(0, b"text")?;
    /// file.handle().truncate(2)?;
    /// assert_eq!(pool.volume().read("/f")?, b"te");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn truncate(&self, size: u64) -> Result<()> {
        if !self.options.write && !self.options.append {
            return Err(Error::Invalid("the file is not open for writing"));
        }
        self.check_write()?;
        self.fs().resize(&self.cred, self.node.cachelet, size)
    }

    /// Allocates or frees space, or moves the end of the file.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// file.handle().allocate(vellum::Allocate::KeepSize, 0, 1 << 20)?;
    /// let attr = file.handle().attr()?;
    /// assert_eq!((attr.size, attr.blocks_512 * 512), (0, 1 << 20));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::write_at`]. [`Error::Invalid`] if `len` is 0; for [`Allocate::Collapse`] and
    /// [`Allocate::Insert`] also if `offset` or `len` are no multiples of 4096, the
    /// removed range reaches the end of the file, or the inserted one begins there.
    pub fn allocate(&self, mode: Allocate, offset: u64, len: u64) -> Result<()> {
        self.check_write()?;
        if !mode.only_allocates() {
            check_cuttable(self.fs().core.identity(self.node.cachelet))?;
        }
        check_range(offset, len)?;
        let file = self.node.cachelet;
        let allocated = self.fs().allocate(&self.cred, file, mode, offset, len);
        self.fs().commit_from(Durability::Sync, allocated)
    }

    /// Returns the first offset at or after `offset` that holds data.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// file.handle().write_at(1 << 20, b"text")?;
    /// assert_eq!(file.handle().seek_data(0)?, 1 << 20);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoData`] after the last data. Fails also if this is not a regular file.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.check_seek()?;
        self.fs().files().seek_data(self.node.cachelet, offset)
    }

    /// Returns the first offset at or after `offset` that is a hole. The end of the file counts as
    /// one.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// file.handle().write_at(0, b"text")?;
    /// assert_eq!(file.handle().seek_hole(0)?, 4);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoData`] at or beyond the end. Fails also if this is not a regular file.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        self.check_seek()?;
        self.fs().files().seek_hole(self.node.cachelet, offset)
    }

    /// Makes every earlier change to this file survive whatever the medium can survive.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// file.handle().write_at(0, b"kept")?;
    /// file.handle().sync()?;
    /// assert_eq!(pool.volume().read("/f")?, b"kept");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the medium does.
    pub fn sync(&self) -> Result<()> {
        self.fs().sync_files()
    }

    /// Changes attributes, as the user who opened the file. Returns all attributes.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// let attr = file.handle().set_attr(&vellum::SetAttr::new().mode(Some(0o600)))?;
    /// assert_eq!(attr.mode, 0o600);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Fs::set_attr`].
    pub fn set_attr(&self, set: &SetAttr) -> Result<Attr> {
        self.node.fs().set_attr(&self.cred, &self.node, set)
    }

    /// The file's attributes.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let file = pool.volume().create("/f")?;
    /// file.handle().write_at(0, b"text")?;
    /// assert_eq!(file.handle().attr()?.size, 4);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if media are damaged.
    pub fn attr(&self) -> Result<Attr> {
        self.fs().attr(&self.node)
    }
}

impl<M: Memories> Drop for Handle<M> {
    fn drop(&mut self) {
        let fs = self.fs();
        if fs.core.check_use().is_err() {
            return;
        }
        self.end_locks();
        if self.node.kind() == FileKind::File {
            self.path
                .remember(&fs.reading, &fs.core, self.node.cachelet);
        }
    }
}

impl<M: Memories> std::fmt::Debug for Handle<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("node", &self.node)
            .field("options", &self.options)
            .finish()
    }
}
