//! Nodes: references that keep files alive even without names.

use std::sync::Arc;

use vellum_layout::{FileKind, InodeState};
use vellum_media::Memories;

use crate::core::cachelet::{Cachelet, REF_ONE, field, flag};
use crate::error::{Error, Result};
use crate::fs::open::{check_kind, check_not_special};
use crate::fs::{Access, Cred, Fs, Handle, OpenOptions};

/// A reference to a file or directory, counted in its cachelet. An unlinked file lives until its
/// last node is dropped.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
/// let node = fs.mkdir(&cred, &root, b"d", 0o755)?;
/// fs.rename(&cred, &root, b"d", &root, b"e", Default::default())?;
/// assert_eq!(fs.path_of(&node)?, b"/e");
/// # Ok::<(), vellum::Error>(())
/// ```
pub struct Node<M: Memories> {
    pub(crate) fs: Arc<Fs<M>>,
    pub(crate) cachelet: Cachelet,
}

impl<M: Memories> Node<M> {
    /// Takes a reference. The caller is in the operation that found the cachelet, or holds another
    /// reference.
    pub(crate) fn hold(fs: &Arc<Fs<M>>, cachelet: Cachelet) -> Self {
        fs.core.add_refs(cachelet, REF_ONE);
        Self {
            fs: Arc::clone(fs),
            cachelet,
        }
    }

    /// The inode number.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let dir = fs.mkdir(&cred, &root, b"d", 0o755)?;
    /// assert_eq!(dir.ino(), fs.lookup(&cred, &root, b"d")?.ino());
    /// assert_ne!(dir.ino(), root.ino());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn ino(&self) -> u64 {
        self.fs.core.ino(self.cachelet)
    }

    /// The generation. With the inode number it identifies this file for ever.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let (ino, generation) = (root.ino(), root.generation());
    /// assert_eq!(fs.node(ino, generation)?.ino(), ino);
    /// assert!(matches!(fs.node(ino, generation + 1), Err(vellum::Error::Stale)));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn generation(&self) -> u32 {
        self.fs.core.identity(self.cachelet).generation()
    }

    /// The kind of file.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// assert_eq!(pool.fs().root().kind(), vellum::FileKind::Directory);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn kind(&self) -> FileKind {
        self.fs.core.kind(self.cachelet)
    }

    /// The file system it belongs to.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// let root = pool.fs().root();
    /// assert_eq!(root.fs().attr(&root)?.ino, root.ino());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn fs(&self) -> &Arc<Fs<M>> {
        &self.fs
    }
}

impl<M: Memories> Clone for Node<M> {
    fn clone(&self) -> Self {
        Self::hold(&self.fs, self.cachelet)
    }
}

impl<M: Memories> Drop for Node<M> {
    fn drop(&mut self) {
        self.fs.release_ref(self.cachelet);
    }
}

impl<M: Memories> std::fmt::Debug for Node<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({}:{})", self.ino(), self.generation())
    }
}

impl<M: Memories> Fs<M> {
    /// Drops a reference. The last one of an unlinked file queues the file for the background.
    pub(crate) fn release_ref(&self, cachelet: Cachelet) {
        // Without references the cachelet may be evicted, but not before this operation ends. A
        // process that may not use the pool holds no references.
        let Ok(_op) = self.core.op_begin() else {
            return;
        };
        // Looked at only now: a file without a name may have got one before.
        if self.core.drop_refs(cachelet, REF_ONE) == 0
            && self.core.has_flag(cachelet, flag::UNLINKED)
        {
            self.core.queue_work(cachelet);
        }
    }

    /// The file with this inode number and generation, if it still exists.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let dir = fs.mkdir(&cred, &root, b"d", 0o755)?;
    /// let (ino, generation) = (dir.ino(), dir.generation());
    /// fs.rmdir(&cred, &root, b"d")?;
    /// assert!(matches!(fs.node(ino, generation), Err(vellum::Error::Stale)));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Stale`] if it is gone or another file has its number.
    pub fn node(self: &Arc<Self>, ino: u64, generation: u32) -> Result<Node<M>> {
        self.with_op(|op| {
            // Looks no closer at an inode that is being recreated under this number. A free one may
            // be recreated at any moment; one in use stays until this operation ends.
            let found = op
                .core
                .is_inode_slot(ino)
                .then(|| op.core.identity_on_pool(ino))
                .filter(|found| found.state() != Some(InodeState::Free));
            if found.is_none_or(|found| found.generation() != generation) {
                return Err(Error::Stale);
            }
            let cachelet = op.core.load_cachelet(op, ino)?;
            let identity = op.core.identity(cachelet);
            let flags = op.core.get(cachelet, field::FLAGS);
            let has_name = flags & (flag::UNLINKED | flag::NAMING) == 0;
            if identity.generation() != generation || !has_name {
                return Err(Error::Stale);
            }
            Ok(Node::hold(self, cachelet))
        })
    }

    /// Opens a file for somebody whose permission was checked elsewhere, as a kernel does before it
    /// asks a mount. The file's flags count at each change of its bytes, not here. Cuts nothing.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// use vellum::{Error, FileFlags, FileKind, OpenOptions};
    ///
    /// let file = fs.mknod(&cred, &root, b"f", FileKind::File, 0o644, 0)?;
    /// fs.set_flags(&cred, &file, FileFlags::IMMUTABLE)?;
    /// let options = OpenOptions::new().read(true).write(true);
    /// assert!(matches!(fs.open_node(&cred, &file, &options), Err(Error::NotPermitted)));
    /// let handle = fs.open_checked(&cred, &file, &options)?;
    /// assert!(matches!(handle.write_at(0, b"text"), Err(Error::NotPermitted)));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails for symbolic links, pipes, sockets and devices, and if the pool is not open for what
    /// the options ask.
    pub fn open_checked(
        self: &Arc<Self>,
        cred: &Cred,
        node: &Node<M>,
        options: &OpenOptions,
    ) -> Result<Handle<M>> {
        if options.wants().contains(Access::WRITE) {
            self.core.check_writable()?;
        }
        let kind = node.kind();
        check_kind(kind, options)?;
        check_not_special(kind)?;
        Ok(Handle::new(cred, node.clone(), options))
    }

    /// The file that has this inode number now, whatever its generation.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let dir = fs.mkdir(&cred, &root, b"d", 0o755)?;
    /// assert_eq!(fs.node_of(dir.ino())?.generation(), dir.generation());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Stale`] if there is none.
    pub fn node_of(self: &Arc<Self>, ino: u64) -> Result<Node<M>> {
        let found = self.with_op(|op| {
            let is_inode = op.core.is_inode_slot(ino);
            Ok(is_inode.then(|| op.core.identity_on_pool(ino)))
        })?;
        match found.filter(|found| found.state() != Some(InodeState::Free)) {
            Some(found) => {
                // It may be in creation, and a part of it that of an earlier file.
                self.core.wait_for_readers();
                self.node(ino, found.generation())
            }
            None => Err(Error::Stale),
        }
    }
}
