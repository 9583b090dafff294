//! What is behind handles.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::EBADF;
use vellum::media::Real;
use vellum::{Cred, FileKind, Handle, Node, Pool, RealFs};

use crate::borrowed::HeldView;
use crate::dirs::Listing;
use crate::failure::{Failure, Result};

#[expect(
    clippy::large_enum_variant,
    reason = "a slot holds any, and calls on files are to find them in it"
)]
pub(crate) enum Object {
    Pool(OpenPool),
    Volume(Volume),
    File(OpenFile),
    View(HeldView),
}

pub(crate) struct OpenPool {
    /// Taken by the call that closes it.
    pub(crate) pool: Mutex<Option<Pool>>,
    pub(crate) volume: Volume,
}

/// A file system as one user.
pub(crate) struct Volume {
    pub(crate) root: Node<Real>,
    pub(crate) cred: Arc<Cred>,
}

/// An open file or directory.
pub(crate) struct OpenFile {
    pub(crate) handle: Handle<Real>,
    pub(crate) cred: Arc<Cred>,
    /// Each write is durable when it returns (`O_SYNC`, `O_DSYNC`).
    pub(crate) syncs: bool,
    /// Held from reading the position until it is moved.
    position: Mutex<u64>,
    /// Of a directory.
    listing: Mutex<Listing>,
}

impl OpenFile {
    pub(crate) fn new(handle: Handle<Real>, cred: Arc<Cred>, syncs: bool) -> Self {
        Self {
            handle,
            cred,
            syncs,
            position: Mutex::default(),
            listing: Mutex::default(),
        }
    }

    pub(crate) fn fs(&self) -> &Arc<RealFs> {
        self.handle.node().fs()
    }

    /// Waits for this call's turn at the position. A call that panicked has not moved it, so it is
    /// valid.
    ///
    /// # Errors
    /// Fails in a forked child, where the lock may be held by a thread that is not there.
    pub(crate) fn turn(&self) -> Result<MutexGuard<'_, u64>> {
        self.handle.check_use()?;
        Ok(self.position.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The listing of a directory, when it is this call's turn.
    ///
    /// # Errors
    /// As [`Self::turn`], and if it is no directory.
    pub(crate) fn listing(&self) -> Result<MutexGuard<'_, Listing>> {
        self.handle.check_use()?;
        if self.handle.node().kind() != FileKind::Directory {
            return Err(vellum::Error::NotDirectory.into());
        }
        Ok(self.listing.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Where paths begin, and who uses them.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) start: &'a Node<Real>,
    pub(crate) cred: &'a Arc<Cred>,
}

impl<'a> At<'a> {
    pub(crate) fn fs(&self) -> &'a Arc<RealFs> {
        self.start.fs()
    }
}

impl Object {
    /// # Errors
    /// Fails with `EBADF` if paths cannot begin there.
    #[inline]
    pub(crate) fn at(&self) -> Result<At<'_>> {
        let (start, cred) = match self {
            Self::Pool(OpenPool { volume, .. }) | Self::Volume(volume) => {
                (&volume.root, &volume.cred)
            }
            Self::File(file) => (file.handle.node(), &file.cred),
            Self::View(_) => {
                let text = "the handle of a view, where a pool, volume or directory is needed";
                return Err(Failure::Own(EBADF, text));
            }
        };
        Ok(At { start, cred })
    }

    /// # Errors
    /// Fails with `EBADF` if it is no open file or directory.
    #[inline]
    pub(crate) fn file(&self) -> Result<&OpenFile> {
        match self {
            Self::File(file) => Ok(file),
            _ => Err(Failure::Own(
                EBADF,
                "the handle of a pool, volume or view, where an open file is needed",
            )),
        }
    }

    /// # Errors
    /// Fails with `EBADF` if it is no pool.
    pub(crate) fn pool(&self) -> Result<&OpenPool> {
        match self {
            Self::Pool(pool) => Ok(pool),
            _ => Err(Failure::Own(
                EBADF,
                "the handle of a volume, file or view, where a pool is needed",
            )),
        }
    }

    /// # Errors
    /// Fails with `EBADF` if it is no view.
    pub(crate) fn view(&self) -> Result<&HeldView> {
        match self {
            Self::View(view) => Ok(view),
            _ => Err(Failure::Own(
                EBADF,
                "the handle of a pool, volume or file, where a view is needed",
            )),
        }
    }
}
