//! The nodes that the kernel knows, by inode number.
//!
//! The kernel counts the lookups of each inode, and later forgets as many. Until then it may send
//! requests for the inode, whatever happened to its names. So this table holds a node as long as
//! the kernel knows it, which includes the time in which a file of it is open. Requests therefore
//! need no file handles: the inode number is enough.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use vellum::media::Real;
use vellum::{Cred, Handle, ListPosition, Node, OpenOptions, RealFs, Result};

/// Parts of the table, each with its own lock.
const SHARDS: usize = 64;

/// A file that the kernel knows.
pub(crate) struct Known {
    pub(crate) node: Node<Real>,
    /// The handle for reading and, if possible, writing. It is created at the first use.
    handle: OnceLock<Handle<Real>>,
    /// The handle for files opened with `O_NOATIME`.
    quiet: OnceLock<Handle<Real>>,
    /// The handle for changes by users whom quotas bind, whoever they are. Few files have one.
    bound: OnceLock<Box<Handle<Real>>>,
    /// Where the latest listing stopped. This is only a hint, so listings may share it.
    position: Mutex<ListPosition>,
    /// See [`Known::note_cached`].
    cached: AtomicBool,
    /// See [`Known::note_stripped`].
    stripped_by: AtomicU32,
}

/// The credentials for changes of existing files by a user, whose permissions the kernel has
/// checked.
pub(crate) fn by(uid: u32) -> Cred {
    Cred {
        uid,
        ..Cred::root()
    }
}

impl Known {
    fn new(node: Node<Real>) -> Self {
        Self {
            node,
            handle: OnceLock::new(),
            quiet: OnceLock::new(),
            bound: OnceLock::new(),
            position: Mutex::default(),
            cached: AtomicBool::new(false),
            stripped_by: AtomicU32::new(0),
        }
    }

    /// The handle of the file. The kernel has checked the mode in which each of its files was
    /// opened.
    pub(crate) fn handle(&self, fs: &Arc<RealFs>, no_atime: bool) -> Result<&Handle<Real>> {
        let slot = if no_atime { &self.quiet } else { &self.handle };
        if let Some(handle) = slot.get() {
            return Ok(handle);
        }
        let opened = self.opened(fs, &Cred::root(), no_atime)?;
        Ok(slot.get_or_init(|| opened))
    }

    /// The handle of the file for changes by a user.
    pub(crate) fn handle_by(&self, fs: &Arc<RealFs>, uid: u32) -> Result<&Handle<Real>> {
        if uid == 0 || !fs.has_quotas() {
            return self.handle(fs, false);
        }
        if let Some(handle) = self.bound.get() {
            return Ok(handle);
        }
        let opened = Box::new(self.opened(fs, &by(uid), false)?);
        Ok(self.bound.get_or_init(|| opened))
    }

    /// The user for whom quotas take what the kernel writes back: the owner.
    pub(crate) fn written_by(&self, fs: &RealFs) -> Result<u32> {
        match fs.has_quotas() {
            true => fs.attr(&self.node).map(|attr| attr.uid),
            false => Ok(0),
        }
    }

    fn opened(&self, fs: &Arc<RealFs>, cred: &Cred, no_atime: bool) -> Result<Handle<Real>> {
        let options = OpenOptions::new()
            .read(true)
            .write(!fs.is_read_only() && !fs.is_damaged())
            .no_atime(no_atime);
        fs.open_checked(cred, &self.node, &options)
    }

    /// Records, before bytes are read or written through the kernel's page cache, that the cache
    /// may hold some from here on.
    pub(crate) fn note_cached(&self) {
        if !self.cached.load(Ordering::Relaxed) {
            self.cached.store(true, Ordering::Relaxed);
        }
        // Pairs with the fence below: either the cached bytes are those of the direct write, or the
        // direct write sees this flag.
        fence(Ordering::SeqCst);
    }

    /// Whether the kernel's page cache may hold bytes that a direct write has just replaced.
    pub(crate) fn may_be_cached(&self) -> bool {
        fence(Ordering::SeqCst);
        self.cached.load(Ordering::Relaxed)
    }

    /// Records which thread has removed the capabilities.
    pub(crate) fn note_stripped(&self, by: u32) {
        self.stripped_by.store(by, Ordering::Relaxed);
    }

    /// Whether this thread was the last to remove the capabilities, for the first request that
    /// asks.
    pub(crate) fn was_stripped(&self, by: u32) -> bool {
        by != 0 && self.stripped_by.swap(0, Ordering::Relaxed) == by
    }

    /// A copy of the listing hint.
    pub(crate) fn position(&self) -> ListPosition {
        *locked(&self.position)
    }

    /// Stores where a listing stopped.
    pub(crate) fn set_position(&self, position: ListPosition) {
        *locked(&self.position) = position;
    }
}

struct Counted {
    known: Arc<Known>,
    lookups: u64,
}

type Shard = HashMap<u64, Counted>;

/// The files that the kernel knows.
pub(crate) struct Table {
    shards: Vec<Mutex<Shard>>,
}

impl Table {
    /// A table that always contains the root.
    pub(crate) fn new(root: Node<Real>) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let table = Self { shards };
        table.count(root);
        table
    }

    fn shard(&self, ino: u64) -> MutexGuard<'_, Shard> {
        locked(&self.shards[ino as usize % SHARDS])
    }

    /// The file with this number, if the kernel may know it.
    pub(crate) fn get(&self, ino: u64) -> Option<Arc<Known>> {
        self.shard(ino)
            .get(&ino)
            .map(|counted| Arc::clone(&counted.known))
    }

    /// Counts one lookup of a file.
    pub(crate) fn count(&self, node: Node<Real>) -> Arc<Known> {
        let ino = node.ino();
        let mut shard = self.shard(ino);
        if let Some(counted) = shard.get_mut(&ino) {
            counted.lookups += 1;
            return Arc::clone(&counted.known);
        }
        let known = Arc::new(Known::new(node));
        shard.insert(
            ino,
            Counted {
                known: Arc::clone(&known),
                lookups: 1,
            },
        );
        known
    }

    /// Subtracts `lookups`. Releases the file when none is left.
    pub(crate) fn forget(&self, ino: u64, lookups: u64) {
        if ino == vellum_transport::ROOT {
            return;
        }
        let mut shard = self.shard(ino);
        let Some(counted) = shard.get_mut(&ino) else {
            tracing::warn!(ino, "the kernel forgets a file that it did not know");
            return;
        };
        counted.lookups = counted.lookups.saturating_sub(lookups);
        let gone = if counted.lookups == 0 {
            shard.remove(&ino)
        } else {
            None
        };
        drop(shard);
        // Dropped outside the lock, because dropping the last node of a file runs the engine.
        drop(gone);
    }

    /// Releases all files.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let taken = std::mem::take(&mut *locked(shard));
            drop(taken);
        }
    }

    /// The number of files that the kernel knows.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| locked(shard).len()).sum()
    }
}

/// Locks a map. Poisoning is ignored: these maps change by single insertions and removals, so a
/// panic leaves them consistent.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
