//! Logs that make several stores durable as one: the redo log of logged pools, whose metadata are
//! changed in memory, and the undo log of split pools, whose metadata lie in persistent memory and
//! whose data lie elsewhere.

pub(crate) mod changed;
pub(crate) mod redo;
pub(crate) mod undo;

use vellum_media::{Disk, PoolMemory, Site};

use crate::disk_sites;
use crate::error::{Error, Result};
use redo::{Epoch, Log};
use undo::{Transaction, UndoLog};

/// How a pool commits whose operations do not become durable by themselves.
pub(crate) enum Commits {
    /// A logged pool: metadata are changed in memory.
    Log(Box<Log>),
    /// A split pool: metadata lie in persistent memory, and data elsewhere.
    UndoLog(UndoLog),
}

/// What a commit makes durable.
pub(crate) enum Cut {
    Epoch(Epoch),
    Transaction(Transaction),
}

impl Commits {
    /// Returns the redo log, if there is one.
    pub(crate) fn log(&self) -> Option<&Log> {
        match self {
            Self::Log(log) => Some(log),
            Self::UndoLog(_) => None,
        }
    }

    /// Returns the undo log, if there is one.
    pub(crate) fn undo_log(&self) -> Option<&UndoLog> {
        match self {
            Self::Log(_) => None,
            Self::UndoLog(undo) => Some(undo),
        }
    }

    /// Whether the pool was closed, so nothing is committed any more.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Log(log) => log.is_over(),
            Self::UndoLog(undo) => undo.is_over(),
        }
    }

    /// Fails if a commit failed.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Log(log) => log.check(),
            Self::UndoLog(undo) => undo.check(),
        }
    }

    /// Ends committing after an error.
    pub(crate) fn fail<P: PoolMemory>(&self, pool: &P) {
        match self {
            Self::Log(log) => log.fail(),
            Self::UndoLog(undo) => undo.fail(pool),
        }
    }

    pub(crate) fn note_answer(&self) {
        match self {
            Self::Log(log) => log.note_answer(),
            Self::UndoLog(undo) => undo.note_answer(),
        }
    }

    /// The order after which a freed block may be overwritten.
    pub(crate) fn block_free(&self) -> Site {
        match self {
            Self::Log(_) => disk_sites::LOG_BLOCK_FREE,
            Self::UndoLog(_) => disk_sites::VERSIONS_BLOCK_FREE,
        }
    }

    /// Ends committing, because the pool was closed.
    ///
    /// # Errors
    /// Fails if the disk fails.
    pub(crate) fn finish<P: PoolMemory>(&self, pool: &P) -> Result<()> {
        match self {
            Self::Log(log) => log.finish(disk_of(pool)?),
            Self::UndoLog(undo) => {
                undo.finish();
                Ok(())
            }
        }
    }

    /// Makes a cut durable.
    pub(crate) fn settle<P: PoolMemory>(&self, pool: &P, cut: &Cut) -> Result<()> {
        match (self, cut) {
            (Self::Log(log), Cut::Epoch(epoch)) => log.append(disk_of(pool)?, epoch),
            (Self::UndoLog(undo), Cut::Transaction(transaction)) => undo.commit(pool, transaction),
            _ => Err(Error::Unsupported("a cut of another kind")),
        }
    }
}

fn disk_of<P: PoolMemory>(pool: &P) -> Result<&dyn Disk> {
    pool.disk()
        .ok_or(Error::Unsupported("commits without a disk"))
}
