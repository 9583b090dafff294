//! What takes part: pools on the disk, and a peer, ext4 on a loop device over a file there.

use std::path::Path;

use tempfile::TempDir;
use vellum::media::MediaChoice;
use vellum::{CreateOptions, Pool, Volume};

use super::FsmacOptions;
use super::disk::Disk;
use super::meter::{Grids, Meter, Sheet};
use crate::Result;
use crate::error::doing;
use crate::interrupt::Interrupt;
use crate::peer::{Peer, ext4_on};
use crate::workloads::{KernelDir, Place};

/// The pool with a log.
const LOGGED: &str = "logged";
/// A pool without a log: nothing is promised after a power cut.
const PLAIN: &str = "no log";

/// What a run of this command has to go by.
pub(super) struct Setting<'a> {
    pub(super) options: &'a FsmacOptions,
    pub(super) interrupt: &'a Interrupt,
    disk: Option<Disk>,
}

/// A file system that takes part.
pub(super) struct Subject {
    name: &'static str,
    by: By,
}

enum By {
    Pool(Pooled),
    Peer(
        KernelDir,
        #[expect(dead_code, reason = "is undone when it is dropped")] Box<Peer>,
    ),
}

struct Pooled {
    volume: Volume,
    // Order matters: the pool goes before its directory.
    _pool: Pool,
    _dir: TempDir,
}

/// Something that every side does.
pub(super) trait Work {
    /// Done once, not timed.
    fn fill<P: Place>(&self, _place: &P) -> Result<()> {
        Ok(())
    }

    /// A round.
    fn round<P: Place>(&self, place: &P, meter: &mut Meter<'_>) -> Result<()>;
}

impl<'a> Setting<'a> {
    pub(super) fn new(options: &'a FsmacOptions, interrupt: &'a Interrupt) -> Result<Self> {
        Ok(Self {
            options,
            interrupt,
            disk: Disk::of(&options.disk)?,
        })
    }

    /// The disk's name, for reports.
    pub(super) fn disk_name(&self) -> String {
        let counted = self.disk.as_ref().map(Disk::name);
        counted.unwrap_or("one without counters").to_owned()
    }

    /// A pool with a log, and the peer.
    pub(super) fn usual(&self) -> Result<Vec<Subject>> {
        Ok(vec![self.pool(LOGGED, MediaChoice::Logged)?, self.peer()?])
    }

    /// Pools with and without a log.
    pub(super) fn with_and_without(&self) -> Result<Vec<Subject>> {
        Ok(vec![
            self.pool(LOGGED, MediaChoice::Logged)?,
            self.pool(PLAIN, MediaChoice::File)?,
        ])
    }

    fn pool(&self, name: &'static str, media: MediaChoice) -> Result<Subject> {
        let dir = self.dir()?;
        let options = CreateOptions {
            media,
            // That of pools with a log, with which pools without one are compared.
            mapping: vellum::MappingKind::Extent,
            ..CreateOptions::new(self.options.pool_bytes)
        };
        let pool = Pool::create(dir.path().join("pool"), &options)?;
        let pooled = Pooled {
            volume: pool.volume(),
            _pool: pool,
            _dir: dir,
        };
        Ok(Subject {
            name,
            by: By::Pool(pooled),
        })
    }

    fn dir(&self) -> Result<TempDir> {
        let on: &Path = &self.options.disk;
        tempfile::Builder::new()
            .prefix("vellum-bench-")
            .tempdir_in(on)
            .map_err(doing(format!("make a directory in {}", on.display())))
    }

    /// What the peer is called among peers' directories.
    pub(super) fn peer_name(&self) -> String {
        let named = self.options.peer.clone();
        named.unwrap_or_else(|| ext4_on(&self.options.disk))
    }

    fn peer(&self) -> Result<Subject> {
        let peer = Peer::new(&self.peer_name(), self.options.pool_bytes)?;
        let dir = KernelDir::open(peer.dir())?;
        Ok(Subject {
            name: peer.kind,
            by: By::Peer(dir, Box::new(peer)),
        })
    }

    /// Lets every subject do `work`, round by round. Sentences are about the first of them, ratios are to the last.
    pub(super) fn measure(
        &self,
        sheet: &Sheet,
        subjects: &[Subject],
        work: &impl Work,
    ) -> Result<Grids> {
        let names: Vec<&str> = subjects.iter().map(|subject| subject.name).collect();
        let disk = self.disk.as_ref();
        let mut grids = Grids::new(sheet, &names, names[names.len() - 1], disk);
        for subject in subjects {
            match &subject.by {
                By::Pool(pool) => work.fill(&pool.volume)?,
                By::Peer(dir, _) => work.fill(dir)?,
            }
        }
        for round in 0..=self.options.rounds {
            for (side, subject) in subjects.iter().enumerate() {
                self.interrupt.check()?;
                let grids = &mut grids;
                let mut meter = Meter {
                    grids,
                    disk,
                    round,
                    side,
                };
                match &subject.by {
                    By::Pool(pool) => work.round(&pool.volume, &mut meter)?,
                    By::Peer(dir, _) => work.round(dir, &mut meter)?,
                }
            }
        }
        Ok(grids)
    }
}
