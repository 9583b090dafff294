//! The engine behind the model's operations: the part of path handling that a kernel does around
//! calls by node and name (slashes at the end, `.` and `..` as last components) is done here.

use std::collections::BTreeMap;
use std::sync::Arc;

use vellum::media::Memories;
use vellum::{
    Access, Allocate, Attr, Cred, Error, FileKind, Fs, Handle, ListPosition, Node, OpenOptions,
    RenameFlags, Result, SetAttr, SetTime,
};
use vellum_model::{
    Errno, Kind, Op, Outcome, PATH_MAX, Payload, Range, StatView, TimeSet, pattern,
};

/// A file system with numbered handles.
pub(crate) struct Subject<M: Memories> {
    pub(crate) fs: Arc<Fs<M>>,
    /// Where relative paths start.
    start: Node<M>,
    slots: BTreeMap<u8, Handle<M>>,
}

/// An error of the engine, or an errno that the kernel's part gives.
enum Failure {
    Engine(Error),
    Kernel(i32),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

type Answer<T = Payload> = std::result::Result<T, Failure>;

/// What a step came to.
pub(crate) enum Came {
    /// An outcome to be compared.
    To(Outcome),
    /// The pool was full.
    NoSpace,
}

/// The last component of a path and the directory it is in.
struct Last<'p, M: Memories> {
    dir: Node<M>,
    name: &'p [u8],
    slash: bool,
}

pub(crate) fn cred_of(cred: &vellum_model::Cred) -> Cred {
    Cred {
        uid: cred.uid,
        gid: cred.gid,
        groups: cred.groups.clone(),
        privileged: cred.is_superuser(),
    }
}

pub(crate) fn kind_of(kind: FileKind) -> Kind {
    match kind {
        FileKind::Directory => Kind::Dir,
        FileKind::Symlink => Kind::Symlink,
        FileKind::File => Kind::File,
        FileKind::Fifo => Kind::Fifo,
        FileKind::Socket => Kind::Socket,
        FileKind::CharDevice => Kind::CharDevice,
        FileKind::BlockDevice => Kind::BlockDevice,
    }
}

fn file_kind(kind: Kind) -> FileKind {
    match kind {
        Kind::Dir => FileKind::Directory,
        Kind::Symlink => FileKind::Symlink,
        Kind::File => FileKind::File,
        Kind::Fifo => FileKind::Fifo,
        Kind::Socket => FileKind::Socket,
        Kind::CharDevice => FileKind::CharDevice,
        Kind::BlockDevice => FileKind::BlockDevice,
    }
}

fn view(attr: &Attr) -> Payload {
    let kind = kind_of(attr.kind);
    Payload::Stat(StatView {
        kind,
        mode: attr.mode.into(),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        size: if kind == Kind::Dir { 0 } else { attr.size },
        blocks: if kind == Kind::File {
            attr.blocks_512
        } else {
            0
        },
    })
}

fn set_time(time: TimeSet) -> SetTime {
    match time {
        TimeSet::Now => SetTime::Now,
        TimeSet::At(ns) => SetTime::At(ns),
    }
}

fn open_options(flags: i32, mode: u32) -> OpenOptions {
    let has = |flag: i32| flags & flag != 0;
    let access = flags & libc::O_ACCMODE;
    OpenOptions {
        read: access != libc::O_WRONLY,
        write: access != libc::O_RDONLY,
        // The engine's `append` includes writing.
        append: has(libc::O_APPEND) && access != libc::O_RDONLY,
        truncate: has(libc::O_TRUNC),
        create: has(libc::O_CREAT),
        create_new: has(libc::O_CREAT) && has(libc::O_EXCL),
        no_follow: has(libc::O_NOFOLLOW),
        directory: has(libc::O_DIRECTORY),
        no_atime: false,
        mode: mode as u16,
    }
}

fn check_path(path: &[u8]) -> Answer<()> {
    match path.len() {
        0 => Err(Failure::Kernel(libc::ENOENT)),
        PATH_MAX.. => Err(Failure::Kernel(libc::ENAMETOOLONG)),
        _ => Ok(()),
    }
}

/// The modes of `fallocate` that the engine knows.
fn allocate_mode(mode: i32) -> Answer<Allocate> {
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    match mode {
        0 => Ok(Allocate::Grow),
        libc::FALLOC_FL_KEEP_SIZE => Ok(Allocate::KeepSize),
        PUNCH => Ok(Allocate::PunchHole),
        _ => Err(Failure::Kernel(libc::EOPNOTSUPP)),
    }
}

impl<M: Memories> Subject<M> {
    pub(crate) fn new(fs: Arc<Fs<M>>) -> Self {
        let start = fs.root();
        Self::below(fs, start)
    }

    /// With relative paths from `start`.
    pub(crate) fn below(fs: Arc<Fs<M>>, start: Node<M>) -> Self {
        Self {
            fs,
            start,
            slots: BTreeMap::new(),
        }
    }

    /// Closes every handle.
    pub(crate) fn close_all(&mut self) {
        self.slots.clear();
    }

    /// Applies one operation.
    pub(crate) fn apply(&mut self, op: &Op, cred: &vellum_model::Cred) -> Came {
        Came::To(match self.run(op, &cred_of(cred)) {
            Ok(payload) => Outcome::Ok(payload),
            Err(Failure::Engine(Error::NoSpace(_))) => return Came::NoSpace,
            Err(Failure::Engine(error)) => {
                assert!(error.errno() != libc::EUCLEAN, "{op}: {error}");
                Outcome::Err(Errno(error.errno()))
            }
            Err(Failure::Kernel(errno)) => Outcome::Err(Errno(errno)),
        })
    }

    fn find(&self, cred: &Cred, path: &[u8], follow: bool) -> Result<Node<M>> {
        self.fs.find(cred, &self.start, path, follow)
    }

    /// Walks to the last component; `None`: the path is the root itself.
    fn last<'p>(&self, cred: &Cred, path: &'p [u8]) -> Answer<Option<Last<'p, M>>> {
        check_path(path)?;
        let Some(end) = path.iter().rposition(|&b| b != b'/').map(|at| at + 1) else {
            return Ok(None);
        };
        let cut = path[..end]
            .iter()
            .rposition(|&b| b == b'/')
            .map_or(0, |at| at + 1);
        let dir = match &path[..cut] {
            b"" if path[0] == b'/' => self.fs.root(),
            b"" => self.start.clone(),
            prefix => self.find(cred, prefix, true)?,
        };
        let name = &path[cut..end];
        if matches!(name, b"." | b"..") {
            self.fs.access(cred, &dir, Access::EXECUTE)?;
        }
        Ok(Some(Last {
            dir,
            name,
            slash: end < path.len(),
        }))
    }

    fn last_or<'p>(&self, cred: &Cred, path: &'p [u8], at_root: i32) -> Answer<Last<'p, M>> {
        self.last(cred, path)?.ok_or(Failure::Kernel(at_root))
    }

    /// A name with a slash behind it that is to be made, but not as a directory.
    fn refuse_slash(&self, cred: &Cred, last: &Last<'_, M>) -> Answer<()> {
        if !last.slash || matches!(last.name, b"." | b"..") {
            return Ok(());
        }
        let found = self.fs.lookup(cred, &last.dir, last.name);
        Err(Failure::Kernel(
            found.map_or_else(|error| error.errno(), |_| libc::EEXIST),
        ))
    }

    fn run(&mut self, op: &Op, cred: &Cred) -> Answer {
        match op {
            Op::Create {
                path,
                mode,
                exclusive,
            } => {
                let exclusive = if *exclusive { libc::O_EXCL } else { 0 };
                self.open(
                    cred,
                    path,
                    libc::O_CREAT | libc::O_WRONLY | exclusive,
                    *mode,
                )?;
            }
            Op::Mkdir { path, mode } => {
                let last = self.last_or(cred, path, libc::EEXIST)?;
                self.fs.mkdir(cred, &last.dir, last.name, *mode as u16)?;
            }
            Op::Mknod {
                path,
                kind,
                mode,
                device,
            } => {
                let last = self.last_or(cred, path, libc::EEXIST)?;
                self.refuse_slash(cred, &last)?;
                let mode = *mode as u16;
                let kind = file_kind(*kind);
                self.fs
                    .mknod(cred, &last.dir, last.name, kind, mode, *device)?;
            }
            Op::Symlink { target, path } => {
                check_path(target)?;
                let last = self.last_or(cred, path, libc::EEXIST)?;
                self.refuse_slash(cred, &last)?;
                self.fs.symlink(cred, &last.dir, last.name, target)?;
            }
            Op::Link { from, to } => {
                let file = self.find(cred, from, false)?;
                let last = self.last_or(cred, to, libc::EEXIST)?;
                self.refuse_slash(cred, &last)?;
                self.fs.link(cred, &file, &last.dir, last.name)?;
            }
            Op::Unlink { path } => self.unlink(cred, path)?,
            Op::Rmdir { path } => {
                let last = self.last_or(cred, path, libc::EBUSY)?;
                self.fs.rmdir(cred, &last.dir, last.name)?;
            }
            Op::Rename { from, to, flags } => self.rename(cred, from, to, *flags)?,
            Op::Readlink { path } => {
                let link = self.find(cred, path, false)?;
                return Ok(Payload::Bytes(self.fs.read_link(&link)?));
            }
            Op::Truncate { path, size } => {
                if *size > i64::MAX as u64 {
                    return Err(Failure::Kernel(libc::EINVAL));
                }
                let node = self.find(cred, path, true)?;
                let set = SetAttr {
                    size: Some(*size),
                    ..SetAttr::default()
                };
                self.fs.set_attr(cred, &node, &set)?;
            }
            Op::Chmod { .. } | Op::Chown { .. } | Op::Utimens { .. } => {
                return self.set_attributes(op, cred);
            }
            Op::Stat { path, follow } => {
                let attr = self.fs.stat(cred, &self.start, path, *follow)?;
                return Ok(view(&attr));
            }
            Op::Times { path } => {
                let attr = self.fs.stat_from_root(cred, path, false)?;
                return Ok(Payload::Times(
                    [attr.atime_ns, attr.mtime_ns, attr.ctime_ns].map(Some),
                ));
            }
            Op::Access { path, mask } => {
                let node = self.find(cred, path, true)?;
                self.fs
                    .access(cred, &node, Access::from_bits_truncate(*mask as u8))?;
            }
            Op::Sync => self.fs.sync()?,
            Op::Write { .. }
            | Op::Append { .. }
            | Op::Read { .. }
            | Op::Fallocate { .. }
            | Op::SeekData { .. }
            | Op::SeekHole { .. }
            | Op::Fsync { .. }
            | Op::Readdir { .. } => return self.open_and(op, cred),
            Op::Open {
                slot,
                path,
                flags,
                mode,
            } => {
                let handle = self.open(cred, path, *flags, *mode)?;
                self.slots.insert(*slot, handle);
            }
            Op::CloseSlot { slot } => {
                self.slots.remove(slot).ok_or(Error::BadHandle)?;
            }
            Op::ReadSlot { slot, .. }
            | Op::WriteSlot { slot, .. }
            | Op::TruncateSlot { slot, .. }
            | Op::FallocateSlot { slot, .. }
            | Op::StatSlot { slot }
            | Op::ReaddirSlot { slot }
            | Op::FsyncSlot { slot } => {
                let handle = self.slots.get(slot).ok_or(Error::BadHandle)?;
                return self.with_handle(handle, op);
            }
        }
        Ok(Payload::Done)
    }

    fn open(&self, cred: &Cred, path: &[u8], flags: i32, mode: u32) -> Answer<Handle<M>> {
        if flags & libc::O_CREAT != 0 && flags & libc::O_DIRECTORY != 0 {
            return Err(Failure::Kernel(libc::EINVAL));
        }
        Ok(self
            .fs
            .open(cred, &self.start, path, &open_options(flags, mode))?)
    }

    fn unlink(&self, cred: &Cred, path: &[u8]) -> Answer<()> {
        let last = self.last_or(cred, path, libc::EISDIR)?;
        if last.slash && !matches!(last.name, b"." | b"..") {
            let kind = self.fs.lookup(cred, &last.dir, last.name)?.kind();
            let is_dir = kind == FileKind::Directory;
            return Err(Failure::Kernel(if is_dir {
                libc::EISDIR
            } else {
                libc::ENOTDIR
            }));
        }
        Ok(self.fs.unlink(cred, &last.dir, last.name)?)
    }

    fn rename(&self, cred: &Cred, from: &[u8], to: &[u8], flags: u32) -> Answer<()> {
        let flags = RenameFlags::from_bits_retain(flags);
        if flags == RenameFlags::NO_REPLACE | RenameFlags::EXCHANGE {
            return Err(Failure::Kernel(libc::EINVAL));
        }
        let root = || Last {
            dir: self.fs.root(),
            name: b"..",
            slash: false,
        };
        let from = self.last(cred, from)?.unwrap_or_else(root);
        self.fs.access(cred, &from.dir, Access::EXECUTE)?;
        let to = self.last(cred, to)?.unwrap_or_else(root);
        self.fs.access(cred, &to.dir, Access::EXECUTE)?;
        let is_dots = |last: &Last<'_, M>| matches!(last.name, b"." | b"..");
        if (from.slash || to.slash) && !is_dots(&from) && !is_dots(&to) {
            self.refuse_slashes(cred, &from, &to, flags)?;
        }
        Ok(self
            .fs
            .rename(cred, &from.dir, from.name, &to.dir, to.name, flags)?)
    }

    fn refuse_slashes(
        &self,
        cred: &Cred,
        from: &Last<'_, M>,
        to: &Last<'_, M>,
        flags: RenameFlags,
    ) -> Answer<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let source = self.fs.lookup(cred, &from.dir, from.name)?.kind();
        let target = match self.fs.lookup(cred, &to.dir, to.name) {
            Ok(_) if flags.contains(RenameFlags::NO_REPLACE) => {
                return Err(Failure::Kernel(libc::EEXIST));
            }
            Ok(node) => Some(node.kind()),
            Err(Error::NotFound) if !exchange => None,
            Err(error) => return Err(error.into()),
        };
        let is_dir = |kind| kind == FileKind::Directory;
        let target_fits = !exchange || !to.slash || target.is_some_and(is_dir);
        let source_fits = is_dir(source) || !from.slash && (exchange || !to.slash);
        if target_fits && source_fits {
            Ok(())
        } else {
            Err(Failure::Kernel(libc::ENOTDIR))
        }
    }

    fn set_attributes(&self, op: &Op, cred: &Cred) -> Answer {
        let (path, follow, set) = match op {
            Op::Utimens {
                atime: None,
                mtime: None,
                ..
            } => return Ok(Payload::Done),
            Op::Chmod { path, mode } => (
                path,
                true,
                SetAttr {
                    mode: Some(*mode as u16),
                    ..SetAttr::default()
                },
            ),
            Op::Chown {
                path,
                uid,
                gid,
                follow,
            } => (
                path,
                *follow,
                SetAttr {
                    uid: *uid,
                    gid: *gid,
                    ..SetAttr::default()
                },
            ),
            Op::Utimens {
                path,
                atime,
                mtime,
                follow,
            } => {
                let (atime, mtime) = (atime.map(set_time), mtime.map(set_time));
                (
                    path,
                    *follow,
                    SetAttr {
                        atime,
                        mtime,
                        ..SetAttr::default()
                    },
                )
            }
            _ => unreachable!("the caller sends only changes of attributes"),
        };
        let node = self.find(cred, path, follow)?;
        let attr = self.fs.set_attr(cred, &node, &set)?;
        if !matches!(op, Op::Utimens { .. }) {
            return Ok(Payload::Done);
        }
        let explicit =
            |set: Option<SetTime>, value| matches!(set, Some(SetTime::At(_))).then_some(value);
        let times = [
            explicit(set.atime, attr.atime_ns),
            explicit(set.mtime, attr.mtime_ns),
            None,
        ];
        Ok(Payload::Times(times))
    }

    fn open_and(&self, op: &Op, cred: &Cred) -> Answer {
        let (path, flags) = match op {
            Op::Write { path, .. } | Op::Fallocate { path, .. } => (path, libc::O_WRONLY),
            Op::Append { path, .. } => (path, libc::O_WRONLY | libc::O_APPEND),
            Op::Readdir { path } => (path, libc::O_RDONLY | libc::O_DIRECTORY),
            Op::Read { path, .. }
            | Op::SeekData { path, .. }
            | Op::SeekHole { path, .. }
            | Op::Fsync { path } => (path, libc::O_RDONLY),
            _ => unreachable!("the caller sends only operations that open a path"),
        };
        let handle = self.open(cred, path, flags, 0)?;
        self.with_handle(&handle, op)
    }

    fn with_handle(&self, handle: &Handle<M>, op: &Op) -> Answer {
        Ok(match op {
            Op::Write {
                offset, seed, len, ..
            }
            | Op::WriteSlot {
                offset, seed, len, ..
            } => Payload::Count(handle.write_at(*offset, &pattern(*seed, *len))? as u64),
            Op::Append { seed, len, .. } => {
                Payload::Count(handle.append(&pattern(*seed, *len))?.1 as u64)
            }
            Op::Read { range, .. } | Op::ReadSlot { range, .. } => {
                let mut bytes = vec![0xA5; range.len as usize];
                let len = handle.read_at(range.offset, &mut bytes)?;
                bytes.truncate(len);
                Payload::Bytes(bytes)
            }
            Op::Fallocate { mode, range, .. } | Op::FallocateSlot { mode, range, .. } => {
                self.allocate(handle, *mode, *range)?;
                Payload::Done
            }
            Op::TruncateSlot { size, .. } => {
                handle.truncate(*size)?;
                Payload::Done
            }
            Op::SeekData { offset, .. } => Payload::Offset(handle.seek_data(*offset)?),
            Op::SeekHole { offset, .. } => Payload::Offset(handle.seek_hole(*offset)?),
            Op::StatSlot { .. } => view(&handle.attr()?),
            Op::Readdir { .. } | Op::ReaddirSlot { .. } => self.list(handle.node())?,
            Op::Fsync { .. } | Op::FsyncSlot { .. } => {
                handle.sync()?;
                Payload::Done
            }
            _ => unreachable!("the caller sends only operations on handles"),
        })
    }

    fn allocate(&self, handle: &Handle<M>, mode: i32, range: Range) -> Answer<()> {
        if range.len == 0 {
            return Err(Failure::Kernel(libc::EINVAL));
        }
        Ok(handle.allocate(allocate_mode(mode)?, range.offset, range.len)?)
    }

    fn list(&self, dir: &Node<M>) -> Answer {
        let mut names = BTreeMap::new();
        self.fs
            .list(dir, 0, &mut ListPosition::default(), &mut |entry| {
                let before = names.insert(entry.name.to_vec(), kind_of(entry.kind));
                assert!(before.is_none(), "a name was listed twice");
                true
            })?;
        if self.fs.attr(dir)?.nlink == 0 {
            // The kernel lists no directory that was removed.
            return Err(Failure::Kernel(libc::ENOENT));
        }
        names.insert(b".".to_vec(), Kind::Dir);
        names.insert(b"..".to_vec(), Kind::Dir);
        Ok(Payload::Names(names))
    }
}
