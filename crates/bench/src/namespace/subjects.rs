//! The file systems to measure: a pool with every namespace, and directories of other file systems.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use vellum::{CreateOptions, NamespaceKind, PoolOptions};

use super::NamespaceOptions;
use crate::Result;
use crate::interrupt::Interrupt;
use crate::library::Library;
use crate::mapping::{Grid, Sample};
use crate::peer::Peer;
use crate::scratch::dir_in;
use crate::side::Side;
use crate::stopwatch::Stopwatch;

/// The namespace that ratios compare with.
pub(super) const BASELINE: &str = "tree";
/// The namespace that sentences are about.
pub(super) const DEFAULT: &str = "direct";
/// The namespace of the paper.
pub(super) const ADAM: &str = "adaptive";
/// The same, with areas that stay as they are.
pub(super) const STILL: &str = "adaptive, not evolving";
/// Space for each name, in a pool and in an ext4 in memory; and space in addition.
const NAME_BYTES: u64 = 2048;
const POOL_MIN_BYTES: u64 = 64 << 20;

/// The options and tools of a run.
pub(super) struct Setting<'a> {
    pub(super) options: &'a NamespaceOptions,
    interrupt: &'a Interrupt,
}

/// A kind of pool to measure.
#[derive(Clone, Copy)]
pub(super) struct PoolKind {
    name: &'static str,
    namespace: NamespaceKind,
    evolve_every: Option<Duration>,
}

impl PoolKind {
    /// One pool for each namespace, with default options.
    pub(super) fn each() -> Vec<Self> {
        let each = NamespaceKind::ALL.map(|namespace| Self {
            name: namespace.name(),
            namespace,
            evolve_every: PoolOptions::default().evolve_every,
        });
        each.into()
    }

    /// The pool with areas, with default options.
    pub(super) fn adam() -> Vec<Self> {
        let each = Self::each().into_iter();
        each.filter(|kind| kind.name == ADAM).collect()
    }

    /// The pool with areas that never evolve.
    pub(super) const STILL: Self = Self {
        name: STILL,
        namespace: NamespaceKind::Adaptive,
        evolve_every: None,
    };

    /// The same, with this interval between rounds of evolving.
    pub(super) fn evolving(self, every: Duration) -> Self {
        Self {
            evolve_every: self.evolve_every.and(Some(every)),
            ..self
        }
    }
}

/// A file system to measure.
pub(super) struct Subject {
    pub(super) name: String,
    by: By,
}

enum By {
    // Boxed, because peers have another size.
    Library(Box<Pool>),
    Peer(Box<Peer>),
}

struct Pool {
    library: Library,
    // Field order: the pool is closed before its directory is removed.
    _dir: TempDir,
}

/// Work that every side does.
pub(super) trait Work {
    /// Runs once, untimed.
    fn fill<S: Side>(&self, side: &S) -> Result<()>;

    /// Runs a round; returns the result at each label.
    fn round<S: Side>(&self, side: &S) -> Result<Vec<Sample>>;
}

/// The space that a file system must have.
#[derive(Clone, Copy)]
pub(super) struct Room {
    names: usize,
    file_bytes: u64,
}

impl Room {
    /// Space for this many names of empty files.
    pub(super) fn for_names(names: usize) -> Self {
        let file_bytes = 0;
        Self { names, file_bytes }
    }

    /// Adds space for this many bytes of files.
    pub(super) fn and_files(self, file_bytes: u64) -> Self {
        Self { file_bytes, ..self }
    }

    /// The size of the file system in bytes. Not all of it can be used.
    fn bytes(self) -> u64 {
        pool_bytes(self.names) + self.file_bytes + self.file_bytes / 4
    }

    /// The options for creating a pool.
    pub(super) fn pool(self, namespace: NamespaceKind) -> CreateOptions {
        CreateOptions::new(self.bytes())
            .namespace(namespace)
            .metadata_bytes(Some(pool_bytes(self.names) / 2))
    }
}

/// The path of a pool in its directory.
pub(super) fn pool_path(dir: &Path) -> PathBuf {
    dir.join("pool")
}

/// A visitor of sides of any type.
pub(super) trait Visit {
    /// The result of a visit.
    type Told;

    /// Visits a side; `library` is set if it is a pool.
    fn visit<S: Side>(&self, side: &S, library: Option<&Library>) -> Result<Self::Told>;
}

/// The size of a pool with space for this many names.
pub(super) fn pool_bytes(names: usize) -> u64 {
    POOL_MIN_BYTES + names as u64 * NAME_BYTES
}

impl Subject {
    /// Passes the side, with its type, to a visitor.
    pub(super) fn show<V: Visit>(&self, to: &V) -> Result<V::Told> {
        match &self.by {
            By::Library(pool) => to.visit(&pool.library, Some(&pool.library)),
            By::Peer(peer) => to.visit(&peer.kernel, None),
        }
    }
}

impl<'a> Setting<'a> {
    pub(super) fn new(options: &'a NamespaceOptions, interrupt: &'a Interrupt) -> Self {
        Self { options, interrupt }
    }

    /// Fails if the run was interrupted.
    pub(super) fn check(&self) -> Result<()> {
        self.interrupt.check()
    }

    /// A pool of each kind, then the peers.
    pub(super) fn subjects(&self, room: Room, kinds: &[PoolKind]) -> Result<Vec<Subject>> {
        let mut subjects = self.pools(room, kinds)?;
        for peer in self.peers(room)? {
            subjects.push(Subject {
                name: peer.kind.into(),
                by: By::Peer(Box::new(peer)),
            });
        }
        Ok(subjects)
    }

    /// A pool of each kind.
    pub(super) fn pools(&self, room: Room, kinds: &[PoolKind]) -> Result<Vec<Subject>> {
        kinds.iter().map(|&kind| self.pool(kind, room)).collect()
    }

    /// The peers; those that are created for the run have enough space.
    pub(super) fn peers(&self, room: Room) -> Result<Vec<Peer>> {
        let peers = self.options.peer.iter();
        peers.map(|name| Peer::new(name, room.bytes())).collect()
    }

    /// A directory for pools.
    pub(super) fn dir(&self) -> Result<TempDir> {
        dir_in(&self.options.pool_dir)
    }

    fn pool(&self, kind: PoolKind, room: Room) -> Result<Subject> {
        let dir = self.dir()?;
        let options = PoolOptions::new()
            .populate(true)
            .evolve_every(kind.evolve_every);
        let made = room.pool(kind.namespace);
        let library = Library::create_with(pool_path(dir.path()), &made, options)?;
        let pool = Pool { library, _dir: dir };
        Ok(Subject {
            name: kind.name.into(),
            by: By::Library(Box::new(pool)),
        })
    }

    /// Lets every subject do `work`, round by round.
    pub(super) fn measure(
        &self,
        grid: &mut Grid,
        subjects: &[Subject],
        work: &impl Work,
    ) -> Result<()> {
        for subject in subjects {
            match &subject.by {
                By::Library(pool) => work.fill(&pool.library)?,
                By::Peer(peer) => work.fill(&peer.kernel)?,
            }
        }
        for round in 0..=self.options.rounds {
            for (side, subject) in subjects.iter().enumerate() {
                self.check()?;
                let samples = match &subject.by {
                    By::Library(pool) => rest(&pool.library, work.round(&pool.library)?)?,
                    By::Peer(peer) => work.round(&peer.kernel)?,
                };
                for (label, sample) in samples.into_iter().enumerate() {
                    grid.add(round, side, label, sample);
                }
            }
        }
        Ok(())
    }
}

/// Finishes background work, so that the next side does not pay for it.
fn rest(library: &Library, samples: Vec<Sample>) -> Result<Vec<Sample>> {
    library.settle()?;
    Ok(samples)
}

/// The time per operation of `ops` operations, and their total counts.
pub(super) fn timed<S: Side>(
    side: &S,
    ops: usize,
    work: impl FnOnce() -> Result<()>,
) -> Result<Sample> {
    let (before, watch) = (side.counts(), Stopwatch::start());
    work()?;
    let time = watch.elapsed();
    Ok(Sample {
        value: time.as_nanos() as f64 / ops as f64,
        ops: ops as u64,
        counts: side.counts() - before,
    })
}

/// The names of subjects.
pub(super) fn names(subjects: &[Subject]) -> Vec<String> {
    subjects
        .iter()
        .map(|subject| subject.name.clone())
        .collect()
}
