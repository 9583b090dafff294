//! Executes the model's operations on the engine.
//!
//! A [`Driver`] applies an [`Op`] to a file system, and answers as the model does. It also does the
//! part of path handling that a kernel does around calls by node and name (trailing slashes, `.`
//! and `..` as last components): see `paths`.
#![forbid(unsafe_code)]

mod convert;
mod paths;
mod quotas;
mod xattr;

use std::collections::BTreeMap;
use std::sync::Arc;

use vellum::media::Memories;
use vellum::{
    Access, Attr, Cred, Error, FileFlags, Fs, Handle, ListPosition, LockWait, Node, OpenOptions,
    Result, SetAttr, SetTime,
};
use vellum_model::{Kind, Op, Payload, pattern};

use convert::{
    allocate_mode, file_kind, held_lock, lock_kind, lock_owner, lock_range, open_options, view,
};
pub use convert::{cred_of, kind_of};
pub use quotas::usage_of;
pub use xattr::xattrs_of;

/// A file system with numbered handles.
pub struct Driver<M: Memories> {
    fs: Arc<Fs<M>>,
    /// Where relative paths start, if that is not the root.
    start: Option<Node<M>>,
    slots: BTreeMap<u8, Handle<M>>,
}

impl<M: Memories> Driver<M> {
    /// A driver that resolves relative paths from the root.
    pub fn new(fs: Arc<Fs<M>>) -> Self {
        Self {
            fs,
            start: None,
            slots: BTreeMap::new(),
        }
    }

    /// A driver that resolves relative paths from `start`.
    pub fn below(fs: Arc<Fs<M>>, start: Node<M>) -> Self {
        Self {
            start: Some(start),
            ..Self::new(fs)
        }
    }

    /// The file system.
    pub fn fs(&self) -> &Arc<Fs<M>> {
        &self.fs
    }

    /// Closes every handle.
    pub fn close_all(&mut self) {
        self.slots.clear();
    }

    /// Releases the locks of this process, as closing another handle of each file does.
    ///
    /// # Errors
    /// Fails if the file system was closed.
    pub fn end_process_locks(&self) -> Result<()> {
        let process = std::process::id().into();
        let mut handles = self.slots.values();
        handles.try_for_each(|handle| handle.release_process_locks(process))
    }

    /// Applies one operation.
    ///
    /// # Errors
    /// Fails with the engine's errors, or with the engine's equivalents of errors of the kernel.
    pub fn apply(&mut self, op: &Op, cred: &Cred) -> Result<Payload> {
        if let Some(slot) = op.handle_slot() {
            return self.on_handle(self.slots.get(&slot).ok_or(Error::BadHandle)?, op);
        }
        if let Some((path, flags)) = op.opens() {
            let handle = self.open(cred, path, flags, 0)?;
            return match op {
                Op::SetFlags { .. } | Op::SetProject { .. } | Op::GetFlags { .. } => {
                    self.of_flags(handle.node(), op, cred)
                }
                _ => self.on_handle(&handle, op),
            };
        }
        match op {
            Op::Create { .. }
            | Op::Mkdir { .. }
            | Op::Mknod { .. }
            | Op::Symlink { .. }
            | Op::Link { .. } => self.make(op, cred)?,
            Op::Unlink { path } => self.unlink(cred, path)?,
            Op::Rmdir { path } => self.rmdir(cred, path)?,
            Op::Rename { from, to, flags } => self.rename(cred, from, to, *flags)?,
            // The kernel returns without looking for the file.
            Op::Utimens {
                atime: None,
                mtime: None,
                ..
            } => {}
            Op::Truncate { .. } | Op::Chmod { .. } | Op::Chown { .. } | Op::Utimens { .. } => {
                return self.set([op], cred);
            }
            Op::SetXattr { .. } | Op::RemoveXattr { .. } => self.change_xattr(op, cred)?,
            Op::GetXattr { .. } | Op::ListXattr { .. } => return self.read_xattr(op, cred),
            Op::SetQuotas { .. } | Op::SetQuota { .. } | Op::GetQuota { .. } => {
                return self.on_quotas(op, cred);
            }
            Op::Sync => self.fs.sync()?,
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
            _ => return self.look(op, cred),
        }
        Ok(Payload::Done)
    }

    /// Applies all `ops` on the attributes of one file in one call.
    ///
    /// # Errors
    /// Fails with the engine's errors, if no operation changes attributes, or if they are about
    /// several files.
    pub fn set<'o>(&self, ops: impl IntoIterator<Item = &'o Op>, cred: &Cred) -> Result<Payload> {
        let mut set = SetAttr::default();
        let mut file = None;
        for op in ops {
            let found = convert::attributes(op, &mut set);
            let found = found.ok_or(Error::Invalid("no operation on attributes"))?;
            if *file.get_or_insert(found) != found {
                return Err(Error::Invalid("one call changes one file"));
            }
        }
        let (path, follow) = file.ok_or(Error::Invalid("no operation"))?;
        if set.size.is_some_and(|size| size > i64::MAX as u64) {
            return Err(Error::Invalid("a negative size"));
        }
        let node = self.find(cred, path, follow)?;
        let attr = self.fs.set_attr(cred, &node, &set)?;
        let explicit = |set| matches!(set, Some(SetTime::At(_)));
        let times = [
            explicit(set.atime).then_some(attr.atime_ns),
            explicit(set.mtime).then_some(attr.mtime_ns),
            None,
        ];
        match (set.atime, set.mtime) {
            (None, None) => Ok(Payload::Done),
            _ => Ok(Payload::Times(times)),
        }
    }

    /// Creates the file of the first operation without a name, applies the second to it, and gives
    /// it its name.
    ///
    /// # Errors
    /// Fails with the engine's errors, or if the first operation creates no file.
    pub fn name_when_written(&self, [create, write]: &[Op; 2]) -> Result<()> {
        let Op::Create { path, mode, .. } = create else {
            return Err(Error::Invalid("no creation of a file"));
        };
        let cred = Cred::root();
        let last = self.new_name(&cred, path)?;
        let options = OpenOptions::new().append(true).mode(*mode as u16);
        let handle = self.fs.create_unnamed(&cred, &last.dir, &options)?;
        self.on_handle(&handle, write)?;
        self.fs.link(&cred, handle.node(), &last.dir, last.name)
    }

    fn of_flags(&self, node: &Node<M>, op: &Op, cred: &Cred) -> Result<Payload> {
        match op {
            Op::SetFlags { flags, .. } => {
                let flags = FileFlags::from_bits_retain(*flags);
                self.fs.set_flags(cred, node, flags)?;
            }
            Op::SetProject { project, .. } => self.fs.set_project(cred, node, *project)?,
            _ => {
                let flags = node.flags().bits();
                return Ok(Payload::Flags(flags, self.fs.project(node)?));
            }
        }
        Ok(Payload::Done)
    }

    fn make(&self, op: &Op, cred: &Cred) -> Result<()> {
        match op {
            Op::Create {
                path,
                mode,
                exclusive,
            } => {
                let exclusive = if *exclusive { libc::O_EXCL } else { 0 };
                let flags = libc::O_CREAT | libc::O_WRONLY | exclusive;
                self.open(cred, path, flags, *mode).map(drop)
            }
            Op::Mkdir { path, mode } => {
                let last = self.last_or(cred, path, Error::Exists)?;
                let made = self.fs.mkdir(cred, &last.dir, last.name, *mode as u16);
                made.map(drop)
            }
            Op::Mknod {
                path,
                kind,
                mode,
                device,
            } => {
                let last = self.new_name(cred, path)?;
                let (kind, mode) = (file_kind(*kind), *mode as u16);
                let made = self
                    .fs
                    .mknod(cred, &last.dir, last.name, kind, mode, *device);
                made.map(drop)
            }
            Op::Symlink { target, path } => {
                paths::check(target)?;
                let last = self.new_name(cred, path)?;
                let made = self.fs.symlink(cred, &last.dir, last.name, target);
                made.map(drop)
            }
            Op::Link { from, to } => {
                let file = self.find(cred, from, false)?;
                let last = self.new_name(cred, to)?;
                self.fs.link(cred, &file, &last.dir, last.name)
            }
            _ => unreachable!("the caller sends only operations that make a name"),
        }
    }

    fn look(&self, op: &Op, cred: &Cred) -> Result<Payload> {
        match op {
            Op::Readlink { path } => {
                let link = self.find(cred, path, false)?;
                Ok(Payload::Bytes(self.fs.read_link(&link)?))
            }
            Op::Stat { path, follow } => Ok(view(&self.stat(cred, path, *follow)?)),
            Op::Times { path } => {
                let attr = self.stat(cred, path, false)?;
                let times = [attr.atime_ns, attr.mtime_ns, attr.ctime_ns];
                Ok(Payload::Times(times.map(Some)))
            }
            Op::Access { path, mask } => {
                let node = self.find(cred, path, true)?;
                let access = Access::from_bits_truncate(*mask as u8);
                self.fs.access(cred, &node, access)?;
                Ok(Payload::Done)
            }
            _ => unreachable!("the caller sends only operations that look at something"),
        }
    }

    fn start(&self) -> Node<M> {
        self.start.clone().unwrap_or_else(|| self.fs.root())
    }

    fn find(&self, cred: &Cred, path: &[u8], follow: bool) -> Result<Node<M>> {
        self.fs.find(cred, &self.start(), path, follow)
    }

    fn stat(&self, cred: &Cred, path: &[u8], follow: bool) -> Result<Attr> {
        match &self.start {
            Some(start) => self.fs.stat(cred, start, path, follow),
            None => self.fs.stat_from_root(cred, path, follow),
        }
    }

    fn open(&self, cred: &Cred, path: &[u8], flags: i32, mode: u32) -> Result<Handle<M>> {
        if flags & libc::O_CREAT != 0 && flags & libc::O_DIRECTORY != 0 {
            return Err(Error::Invalid("a directory is not made by opening it"));
        }
        let options = open_options(flags, mode);
        self.fs.open(cred, &self.start(), path, &options)
    }

    fn on_handle(&self, handle: &Handle<M>, op: &Op) -> Result<Payload> {
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
            Op::Fallocate { range, .. } | Op::FallocateSlot { range, .. } if range.len == 0 => {
                return Err(Error::Invalid("an empty range"));
            }
            Op::Fallocate { mode, range, .. } | Op::FallocateSlot { mode, range, .. } => {
                handle.allocate(allocate_mode(*mode)?, range.offset, range.len)?;
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
            _ => return self.on_locks(handle, op),
        })
    }

    fn on_locks(&self, handle: &Handle<M>, op: &Op) -> Result<Payload> {
        match op {
            Op::FlockSlot {
                kind: Some(kind), ..
            } => handle.lock_file(lock_kind(*kind), LockWait::NO)?,
            Op::FlockSlot { kind: None, .. } => handle.unlock()?,
            Op::LockSlot {
                owner, kind, range, ..
            } => {
                let (owner, range) = (lock_owner(*owner), lock_range(*range)?);
                match kind {
                    Some(kind) => {
                        handle.lock_range(owner, lock_kind(*kind), range, LockWait::NO)?;
                    }
                    None => handle.unlock_range(owner, range)?,
                }
            }
            Op::GetLockSlot {
                owner, kind, range, ..
            } => {
                let (owner, range) = (lock_owner(*owner), lock_range(*range)?);
                let found = handle.find_lock(owner, lock_kind(*kind), range)?;
                return Ok(Payload::Lock(found.map(held_lock)));
            }
            _ => unreachable!("the caller sends only operations on handles"),
        }
        Ok(Payload::Done)
    }

    fn list(&self, dir: &Node<M>) -> Result<Payload> {
        let (mut names, mut again) = (BTreeMap::new(), false);
        let position = &mut ListPosition::default();
        self.fs.list(dir, 0, position, &mut |entry| {
            let before = names.insert(entry.name.to_vec(), kind_of(entry.kind));
            again |= before.is_some();
            true
        })?;
        if again {
            return Err(Error::Invalid("a name was listed twice"));
        }
        // The kernel does not list a removed directory.
        if names.is_empty() && self.fs.attr(dir)?.nlink == 0 {
            return Err(Error::NotFound);
        }
        names.insert(b".".to_vec(), Kind::Dir);
        names.insert(b"..".to_vec(), Kind::Dir);
        Ok(Payload::Names(names))
    }
}
