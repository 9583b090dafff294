//! Answers the requests of the kernel with the engine. The adapter handles the transport.

#[cfg(test)]
mod tests;
mod xattrs;

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use rustix::io::Errno;
use vellum::media::Real;
use vellum::{
    Allocate, Attr, Cred, Error, FileFlags, FileKind, Handle, ListEntry, Node, OpenOptions, RealFs,
    RenameFlags, SetAttr, StatFs,
};
use vellum_transport::Through;

use crate::convert::errno;
use crate::set_ids::Changer;
use crate::table::{Known, Table, by};

/// The outcome of a request.
pub(crate) type Answer<T> = Result<T, Errno>;

/// The most bytes that one copy request copies, so that a copy can be interrupted between requests.
const COPY_BYTES: u64 = 16 << 20;
/// The size of the copy buffer.
const COPY_PIECE_BYTES: usize = 1 << 20;
/// The number of entries whose attributes are read at once.
const LIST_BATCH: usize = 16;
/// The cookie of `.`. The cookies of names are higher than those of `.` and `..`.
const COOKIE_DOT: u64 = 1;
/// The cookie of `..`.
const COOKIE_DOT_DOT: u64 = 2;

/// An entry of a listing, kept until its attributes are read.
struct Listed {
    ino: u64,
    cookie: u64,
    kind: FileKind,
    name: Vec<u8>,
}

impl Listed {
    fn entry(&self) -> ListEntry<'_> {
        let Self {
            ino,
            cookie,
            kind,
            ref name,
        } = *self;
        ListEntry {
            ino,
            cookie,
            kind,
            name,
        }
    }

    /// The answer for a file whose attributes cannot be read. `known`: the file, if the kernel
    /// knows it.
    fn without_attr(&self, known: Option<&Known>) -> EntryAttr {
        let attr = Attr {
            generation: known.map_or(0, |known| known.node.generation()),
            ..attr_of(self.ino, self.kind)
        };
        EntryAttr {
            attr,
            is_true: false,
        }
    }
}

/// The attributes of a file of which only number and kind are known.
pub(crate) fn attr_of(ino: u64, kind: FileKind) -> Attr {
    Attr {
        ino,
        generation: 0,
        kind,
        mode: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        device: 0,
        size: 0,
        blocks_512: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
    }
}

/// The attributes of a file in a listing.
pub(crate) struct EntryAttr {
    pub(crate) attr: Attr,
    /// True if these are the file's attributes. If false, they could not be read, and a request for
    /// them returns the error.
    pub(crate) is_true: bool,
}

/// Whether a file that is open with these flags is only appended to.
fn appends(flags: u32) -> bool {
    flags as i32 & libc::O_APPEND != 0
}

/// What a seek looks for: data or a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seek {
    Data,
    Hole,
}

/// One mounted file system.
pub(crate) struct Server {
    pub(crate) fs: Arc<RealFs>,
    table: Table,
    /// Held for reading by every request. True: requests are no longer answered.
    closed: RwLock<bool>,
}

impl Server {
    pub(crate) fn new(fs: Arc<RealFs>) -> Self {
        let table = Table::new(fs.root());
        Self {
            fs,
            table,
            closed: RwLock::new(false),
        }
    }

    /// Admits a request, unless the server is closed.
    fn enter(&self) -> Answer<RwLockReadGuard<'_, bool>> {
        let closed = self.closed.read().unwrap_or_else(PoisonError::into_inner);
        if *closed {
            // The kernel returns the same error when the process has ended.
            Err(Errno::NOTCONN)
        } else {
            Ok(closed)
        }
    }

    /// Waits for the requests in flight, rejects further ones, and releases all files.
    pub(crate) fn close(&self) {
        let mut closed = self.closed.write().unwrap_or_else(PoisonError::into_inner);
        *closed = true;
        self.table.clear();
    }

    /// The number of files that the kernel knows.
    pub(crate) fn known_files(&self) -> usize {
        self.table.len()
    }

    fn known(&self, ino: u64) -> Answer<Arc<Known>> {
        self.table.get(ino).ok_or(Errno::STALE)
    }

    /// Counts a lookup, and returns the attributes of the file.
    fn entry(&self, node: Node<Real>) -> Answer<Attr> {
        let attr = self.fs.attr(&node).map_err(|e| errno(&e))?;
        self.table.count(node);
        Ok(attr)
    }

    /// `None`: there is no such name.
    pub(crate) fn lookup(&self, dir: u64, name: &[u8]) -> Answer<Option<Attr>> {
        let _open = self.enter()?;
        if name == b"." || name == b".." {
            return self.by_number(dir, name == b"..").map(Some);
        }
        let dir = self.known(dir)?;
        match self.fs.lookup(&Cred::root(), &dir.node, name) {
            Ok(node) => self.entry(node).map(Some),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(errno(&error)),
        }
    }

    /// A file that the kernel has forgotten, or the directory above one that it knows. If the file
    /// has no name any more, it is gone: the kernel does not ask for those that are open. It
    /// compares the generation with that of its handle.
    fn by_number(&self, ino: u64, above: bool) -> Answer<Attr> {
        let node = self.fs.node_of(ino);
        let found = match above {
            true => node
                .and_then(|node| match node.kind() {
                    FileKind::Directory => self.fs.parent_ino(&node),
                    _ => Err(Error::NotDirectory),
                })
                .and_then(|ino| self.fs.node_of(ino)),
            false => node,
        };
        self.entry(found.map_err(|e| errno(&e))?)
    }

    pub(crate) fn forget(&self, ino: u64, lookups: u64) {
        if let Ok(_open) = self.enter() {
            self.table.forget(ino, lookups);
        }
    }

    pub(crate) fn attr(&self, ino: u64) -> Answer<Attr> {
        let _open = self.enter()?;
        self.fs.attr(&self.known(ino)?.node).map_err(|e| errno(&e))
    }

    /// The attributes, the time of birth in nanoseconds since 1970 if it is readable (it lies on
    /// the medium alone), and the flags.
    pub(crate) fn statx(&self, ino: u64) -> Answer<(Attr, Option<i64>, FileFlags)> {
        let _open = self.enter()?;
        let known = self.known(ino)?;
        let attr = self.fs.attr(&known.node).map_err(|e| errno(&e))?;
        let born = self.fs.birth_time_ns(&known.node).ok();
        Ok((attr, born, known.node.flags()))
    }

    /// The flags and the project id.
    pub(crate) fn flags(&self, ino: u64) -> Answer<(FileFlags, u32)> {
        let _open = self.enter()?;
        let known = self.known(ino)?;
        let project = self.fs.project(&known.node).map_err(|e| errno(&e))?;
        Ok((known.node.flags(), project))
    }

    pub(crate) fn generation(&self, ino: u64) -> Answer<u32> {
        Ok(self.known(ino)?.node.generation())
    }

    pub(crate) fn set_flags(
        &self,
        ino: u64,
        flags: FileFlags,
        project: Option<u32>,
        uid: u32,
    ) -> Answer<()> {
        let _open = self.enter()?;
        let known = self.known(ino)?;
        let (cred, node) = (by(uid), &known.node);
        let set = match project {
            Some(project) => self.fs.set_flags_and_project(&cred, node, flags, project),
            None => self.fs.set_flags(&cred, node, flags),
        };
        set.map_err(|e| errno(&e))
    }

    /// Whether the flags of a file forbid changes.
    pub(crate) fn is_guarded(&self, ino: u64) -> bool {
        let known = self.table.get(ino);
        known.is_some_and(|known| known.node.flags().intersects(FileFlags::GUARDED))
    }

    /// Checks what the kernel does not know of a file that it opens with these flags.
    pub(crate) fn check_open(&self, ino: u64, flags: u32) -> Answer<()> {
        let _open = self.enter()?;
        let has = self.known(ino)?.node.flags();
        let writes = flags as i32 & libc::O_ACCMODE != libc::O_RDONLY;
        let refused = has.contains(FileFlags::IMMUTABLE)
            || has.contains(FileFlags::APPEND_ONLY) && !appends(flags);
        if writes && refused {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    /// Changes neither owner nor group: a `chown` without them, or what the kernel requests before
    /// it changes the content. It has not checked who asks.
    pub(crate) fn chown_to_same(&self, ino: u64, changer: Changer) -> Answer<Attr> {
        let _open = self.enter()?;
        let known = self.known(ino)?;
        let attr = self.fs.attr(&known.node).map_err(|e| errno(&e))?;
        let mode = changer.mode_after(&attr);
        // Before a change of the content the kernel removes the capabilities, then requests this,
        // and says with the change itself whether that drops set-id bits.
        let precedes_change = known.was_stripped(changer.pid);
        if precedes_change || mode.is_some() && !changer.owns(&attr) {
            return Ok(attr);
        }
        let set = SetAttr::new().chown(true).mode(mode);
        let done = self.fs.set_attr(&Cred::root(), &known.node, &set);
        done.map_err(|e| errno(&e))
    }

    /// Changes attributes for user `uid`. `changer`: who does it, if that drops set-id bits.
    pub(crate) fn set_attr(
        &self,
        ino: u64,
        set: &SetAttr,
        uid: u32,
        changer: Option<Changer>,
    ) -> Answer<Attr> {
        let _open = self.enter()?;
        let known = self.known(ino)?;
        let mut set = *set;
        if let Some(changer) = changer {
            match self.mode_after(&known, changer)? {
                // Before the content changes.
                Some(mode) if set.size.is_some() => self.set_mode(&known, mode)?,
                mode => set.mode = set.mode.or(mode),
            }
        }
        self.fs
            .set_attr(&by(uid), &known.node, &set)
            .map_err(|e| errno(&e))
    }

    /// The mode of a file after a change that drops set-id bits, if there are any. No other request
    /// changes them meanwhile: the kernel locks the file.
    fn mode_after(&self, known: &Known, changer: Changer) -> Answer<Option<u16>> {
        let attr = self.fs.attr(&known.node).map_err(|e| errno(&e))?;
        Ok(changer.mode_after(&attr))
    }

    fn set_mode(&self, known: &Known, mode: u16) -> Answer<()> {
        let set = SetAttr::new().mode(Some(mode));
        let done = self.fs.set_attr(&Cred::root(), &known.node, &set);
        done.map(drop).map_err(|e| errno(&e))
    }

    pub(crate) fn read_link(&self, ino: u64) -> Answer<Vec<u8>> {
        let _open = self.enter()?;
        self.fs
            .read_link(&self.known(ino)?.node)
            .map_err(|e| errno(&e))
    }

    pub(crate) fn mknod(
        &self,
        cred: &Cred,
        dir: u64,
        name: &[u8],
        kind: FileKind,
        mode: u32,
        device: u32,
    ) -> Answer<Attr> {
        let _open = self.enter()?;
        let dir = self.known(dir)?;
        let mode = (mode & 0o7777) as u16;
        let node = self
            .fs
            .mknod(cred, &dir.node, name, kind, mode, u64::from(device));
        self.entry(node.map_err(|e| errno(&e))?)
    }

    /// The kernel decides whether the file may get a name.
    pub(crate) fn create_unnamed(&self, cred: &Cred, dir: u64, mode: u32) -> Answer<Attr> {
        let _open = self.enter()?;
        let dir = self.known(dir)?;
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .mode((mode & 0o7777) as u16);
        let made = self.fs.create_unnamed(cred, &dir.node, &options);
        self.entry(made.map_err(|e| errno(&e))?.node().clone())
    }

    pub(crate) fn mkdir(&self, cred: &Cred, dir: u64, name: &[u8], mode: u32) -> Answer<Attr> {
        let _open = self.enter()?;
        let dir = self.known(dir)?;
        let node = self.fs.mkdir(cred, &dir.node, name, (mode & 0o7777) as u16);
        self.entry(node.map_err(|e| errno(&e))?)
    }

    pub(crate) fn symlink(
        &self,
        cred: &Cred,
        dir: u64,
        name: &[u8],
        target: &[u8],
    ) -> Answer<Attr> {
        let _open = self.enter()?;
        let dir = self.known(dir)?;
        let node = self.fs.symlink(cred, &dir.node, name, target);
        self.entry(node.map_err(|e| errno(&e))?)
    }

    pub(crate) fn link(&self, cred: &Cred, ino: u64, dir: u64, name: &[u8]) -> Answer<Attr> {
        let _open = self.enter()?;
        let (known, dir) = (self.known(ino)?, self.known(dir)?);
        self.fs
            .link(cred, &known.node, &dir.node, name)
            .map_err(|e| errno(&e))?;
        self.entry(known.node.clone())
    }

    pub(crate) fn unlink(&self, cred: &Cred, dir: u64, name: &[u8]) -> Answer<()> {
        let _open = self.enter()?;
        self.fs
            .unlink(cred, &self.known(dir)?.node, name)
            .map_err(|e| errno(&e))
    }

    pub(crate) fn rmdir(&self, cred: &Cred, dir: u64, name: &[u8]) -> Answer<()> {
        let _open = self.enter()?;
        self.fs
            .rmdir(cred, &self.known(dir)?.node, name)
            .map_err(|e| errno(&e))
    }

    pub(crate) fn rename(
        &self,
        cred: &Cred,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
    ) -> Answer<()> {
        let _open = self.enter()?;
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        let (from_dir, to_dir) = (self.known(from.0)?, self.known(to.0)?);
        let done = self
            .fs
            .rename(cred, &from_dir.node, from.1, &to_dir.node, to.1, flags);
        done.map_err(|e| errno(&e))
    }

    /// Reads into `out`. Returns the number of bytes.
    pub(crate) fn read(
        &self,
        ino: u64,
        offset: u64,
        out: &mut [u8],
        no_atime: bool,
        through: Through,
    ) -> Answer<usize> {
        let _open = self.enter()?;
        let known = self.known(ino)?;
        if through == Through::Cache {
            known.note_cached();
        }
        let handle = known.handle(&self.fs, no_atime).map_err(|e| errno(&e))?;
        handle.read_at(offset, out).map_err(|e| errno(&e))
    }

    /// The handle of a file, for a change of its bytes by user `uid`.
    fn handle_to_change<'k>(&self, known: &'k Known, uid: u32) -> Answer<&'k Handle<Real>> {
        if self.fs.is_damaged() {
            return Err(Errno::ROFS);
        }
        known.handle_by(&self.fs, uid).map_err(|e| errno(&e))
    }

    /// Drops the set-id bits that a change of the content drops. Returns whether there were any.
    pub(crate) fn drop_set_ids(&self, ino: u64, changer: Changer) -> Answer<bool> {
        let _open = self.enter()?;
        let known = self.known(ino)?;
        match self.mode_after(&known, changer)? {
            Some(mode) => self.set_mode(&known, mode).map(|()| true),
            None => Ok(false),
        }
    }

    pub(crate) fn write(
        &self,
        ino: u64,
        offset: u64,
        data: &[u8],
        (flags, through): (u32, Through),
        uid: u32,
    ) -> Answer<u32> {
        let _open = self.enter()?;
        let known = self.known(ino)?;
        if !appends(flags) && known.node.flags().contains(FileFlags::APPEND_ONLY) {
            return Err(Errno::PERM);
        }
        if through == Through::Cache {
            known.note_cached();
        }
        let handle = self.handle_to_change(&known, uid)?;
        let len = handle.write_at(offset, data).map_err(|e| errno(&e))?;
        Ok(len as u32)
    }

    /// Writes what somebody wrote into the kernel's page cache earlier. Quotas take it for the
    /// owner's.
    pub(crate) fn write_back(&self, ino: u64, offset: u64, data: &[u8]) -> Answer<u32> {
        let _open = self.enter()?;
        let known = self.known(ino)?;
        known.note_cached();
        if known.node.flags().contains(FileFlags::APPEND_ONLY) {
            self.check_keeps(&known, offset, data)?;
        }
        let uid = known.written_by(&self.fs).map_err(|e| errno(&e))?;
        let handle = self.handle_to_change(&known, uid)?;
        // The kernel takes a short write for a complete one.
        match handle.write_back_at(offset, data).map_err(|e| errno(&e))? {
            len if len == data.len() => Ok(len as u32),
            _ if self.fs.has_quotas() => Err(Errno::DQUOT),
            _ => Err(Errno::NOSPC),
        }
    }

    /// Checks that bytes leave those of the file as they are: the kernel writes whole pages back.
    fn check_keeps(&self, known: &Known, offset: u64, data: &[u8]) -> Answer<()> {
        let handle = known.handle(&self.fs, true).map_err(|e| errno(&e))?;
        let mut old = vec![0; data.len()];
        let len = handle.read_at(offset, &mut old).map_err(|e| errno(&e))?;
        match old[..len] == data[..len] {
            true => Ok(()),
            false => Err(Errno::PERM),
        }
    }

    /// Whether the kernel's page cache may hold bytes of a file that a finished direct write has
    /// replaced.
    pub(crate) fn may_be_cached(&self, ino: u64) -> bool {
        self.table
            .get(ino)
            .is_some_and(|known| known.may_be_cached())
    }

    pub(crate) fn sync(&self) -> Answer<()> {
        let _open = self.enter()?;
        self.fs.sync().map_err(|e| errno(&e))
    }

    pub(crate) fn allocate(
        &self,
        ino: u64,
        mode: i32,
        (offset, len): (u64, u64),
        uid: u32,
    ) -> Answer<()> {
        const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        const ZERO_KEEP_SIZE: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        let _open = self.enter()?;
        let mode = match mode {
            0 => Allocate::Grow,
            libc::FALLOC_FL_KEEP_SIZE => Allocate::KeepSize,
            PUNCH_HOLE => Allocate::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => Allocate::Zero,
            ZERO_KEEP_SIZE => Allocate::ZeroKeepSize,
            _ => return Err(Errno::OPNOTSUPP),
        };
        let known = self.known(ino)?;
        let handle = self.handle_to_change(&known, uid)?;
        handle.allocate(mode, offset, len).map_err(|e| errno(&e))
    }

    pub(crate) fn seek(&self, ino: u64, offset: u64, seek: Seek) -> Answer<u64> {
        let _open = self.enter()?;
        let known = self.known(ino)?;
        let handle = known.handle(&self.fs, false).map_err(|e| errno(&e))?;
        let found = match seek {
            Seek::Data => handle.seek_data(offset),
            Seek::Hole => handle.seek_hole(offset),
        };
        found.map_err(|e| errno(&e))
    }

    /// The number of bytes of a file from `offset` on; 0 if that cannot be found out.
    pub(crate) fn bytes_from(&self, ino: u64, offset: u64) -> u64 {
        let size = self.attr(ino).map_or(0, |attr| attr.size);
        size.saturating_sub(offset)
    }

    /// Copies bytes inside the engine. Returns their number, which may be less than `len`.
    pub(crate) fn copy_range(
        &self,
        from: (u64, u64),
        to: (u64, u64),
        len: u64,
        uid: u32,
    ) -> Answer<u32> {
        let _open = self.enter()?;
        let (source, target) = (self.known(from.0)?, self.known(to.0)?);
        let source = source.handle(&self.fs, false).map_err(|e| errno(&e))?;
        // The kernel copies into no file that is open for appending.
        if target.node.flags().contains(FileFlags::APPEND_ONLY) {
            return Err(Errno::PERM);
        }
        let target = self.handle_to_change(&target, uid)?;
        let left = self.fs.attr(source.node()).map_err(|e| errno(&e))?.size;
        let len = len.min(COPY_BYTES).min(left.saturating_sub(from.1));
        let mut buffer = vec![0; COPY_PIECE_BYTES.min(len as usize)];
        let mut done = 0;
        while done < len {
            let want = buffer.len().min((len - done) as usize);
            let copied = source.read_at(from.1 + done, &mut buffer[..want]);
            let copied = copied.and_then(|got| match got {
                0 => Ok(0),
                got => target.write_at(to.1 + done, &buffer[..got]),
            });
            match copied {
                Ok(0) => break,
                Ok(copied) => done += copied as u64,
                Err(_) if done > 0 => break,
                Err(error) => return Err(errno(&error)),
            }
        }
        Ok(done as u32)
    }

    /// Passes the entries of a directory after a cookie to `add`, with `.` and `..`, until `add`
    /// reports that its buffer is full. That entry is not consumed.
    pub(crate) fn list(
        &self,
        ino: u64,
        after: u64,
        add: &mut dyn FnMut(ListEntry<'_>) -> bool,
    ) -> Answer<()> {
        let _open = self.enter()?;
        let dir = self.known(ino)?;
        for dot in self.dots(ino, &dir, after)?.into_iter().flatten() {
            if !add(dot) {
                return Ok(());
            }
        }
        let mut position = dir.position();
        let after = after.max(COOKIE_DOT_DOT);
        let done = self.fs.list(&dir.node, after, &mut position, add);
        dir.set_position(position);
        done.map_err(|e| errno(&e))
    }

    /// The same with attributes. Each consumed name except `.` and `..` counts as looked up. A name
    /// is listed even if its file is lost.
    pub(crate) fn list_plus(
        &self,
        ino: u64,
        after: u64,
        add: &mut dyn FnMut(ListEntry<'_>, &EntryAttr) -> bool,
    ) -> Answer<()> {
        let _open = self.enter()?;
        let dir = self.known(ino)?;
        for dot in self.dots(ino, &dir, after)?.into_iter().flatten() {
            // The kernel uses only the number and the kind of these two.
            let attr = self.fs.attr(&dir.node).map_err(|e| errno(&e))?;
            let attr = Attr {
                ino: dot.ino,
                ..attr
            };
            if !add(
                dot,
                &EntryAttr {
                    attr,
                    is_true: true,
                },
            ) {
                return Ok(());
            }
        }
        let mut after = after.max(COOKIE_DOT_DOT);
        let mut batch = Vec::with_capacity(LIST_BATCH);
        loop {
            let before = dir.position();
            let collected = self.collect(&dir, after, &mut batch);
            for listed in &batch {
                if !self.add_with_attr(&dir, listed, add)? {
                    // The next request finds here where to go on.
                    let mut position = before;
                    let stop = listed.cookie;
                    let mut skip = |entry: ListEntry<'_>| entry.cookie < stop;
                    let done = self.fs.list(&dir.node, after, &mut position, &mut skip);
                    dir.set_position(position);
                    return done.map_err(|e| errno(&e));
                }
            }
            match batch.last() {
                Some(last) if batch.len() == LIST_BATCH => after = last.cookie,
                _ => return collected,
            }
        }
    }

    /// Collects up to [`LIST_BATCH`] entries, because a lookup cannot run inside a listing.
    fn collect(&self, dir: &Known, after: u64, batch: &mut Vec<Listed>) -> Answer<()> {
        batch.clear();
        let mut position = dir.position();
        let done = self.fs.list(&dir.node, after, &mut position, &mut |entry| {
            let room = batch.len() < LIST_BATCH;
            if room {
                let ListEntry {
                    ino,
                    cookie,
                    kind,
                    name,
                } = entry;
                batch.push(Listed {
                    ino,
                    cookie,
                    kind,
                    name: name.to_vec(),
                });
            }
            room
        });
        dir.set_position(position);
        done.map_err(|e| errno(&e))
    }

    fn add_with_attr(
        &self,
        dir: &Known,
        listed: &Listed,
        add: &mut dyn FnMut(ListEntry<'_>, &EntryAttr) -> bool,
    ) -> Answer<bool> {
        let node = match self.fs.lookup(&Cred::root(), &dir.node, &listed.name) {
            // It was removed since it was listed.
            Err(Error::NotFound) => return Ok(true),
            found => found,
        };
        let attr = match &node {
            Ok(node) => self.fs.attr(node).map_err(|e| errno(&e)),
            Err(error) => Err(errno(error)),
        };
        let told = match attr {
            Ok(attr) => EntryAttr {
                attr,
                is_true: true,
            },
            // The kernel gets the error when it requests the file.
            Err(_) => listed.without_attr(self.table.get(listed.ino).as_deref()),
        };
        let added = add(listed.entry(), &told);
        if added {
            // The kernel counts a lookup for every returned name, so this does too. A file that
            // cannot be looked up may be known by another name; without this count, the kernel's
            // next forget would release it too early.
            let node = node.ok();
            let known = || Some(self.table.get(listed.ino)?.node.clone());
            if let Some(node) = node.or_else(known) {
                self.table.count(node);
            }
        }
        Ok(added)
    }

    /// The entries `.` and `..`, if they come after a cookie.
    fn dots(&self, ino: u64, dir: &Known, after: u64) -> Answer<[Option<ListEntry<'static>>; 2]> {
        let dot = |ino, cookie, name| {
            let kind = FileKind::Directory;
            (after < cookie).then_some(ListEntry {
                ino,
                cookie,
                kind,
                name,
            })
        };
        if after >= COOKIE_DOT_DOT {
            return Ok([None, None]);
        }
        let above = self.fs.parent_ino(&dir.node).map_err(|e| errno(&e))?;
        Ok([
            dot(ino, COOKIE_DOT, b"."),
            dot(above, COOKIE_DOT_DOT, b".."),
        ])
    }

    pub(crate) fn stat_fs(&self, ino: u64) -> Answer<StatFs> {
        let _open = self.enter()?;
        Ok(self.fs.stat_fs_of(&self.known(ino)?.node))
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("known_files", &self.known_files())
            .finish_non_exhaustive()
    }
}
