//! What takes part: a pool with every namespace, and directories of other file systems.

use tempfile::TempDir;
use vellum::{CreateOptions, NamespaceKind};

use super::NamespaceOptions;
use crate::Result;
use crate::error::doing;
use crate::interrupt::Interrupt;
use crate::library::Library;
use crate::mapping::{Grid, Sample};
use crate::peer::Peer;
use crate::side::Side;
use crate::stopwatch::Stopwatch;

/// The namespace that ratios are taken to.
pub(super) const BASELINE: &str = "tree";
/// The one that sentences are about.
pub(super) const DEFAULT: &str = "direct";
/// The one that the figures are of.
pub(super) const ADAM: &str = "adaptive";
/// Room in a pool, and in an ext4 in memory, for each name; and beside.
const NAME_BYTES: u64 = 2048;
const POOL_MIN_BYTES: u64 = 64 << 20;

/// What a run of this command has to go by.
pub(super) struct Setting<'a> {
    pub(super) options: &'a NamespaceOptions,
    interrupt: &'a Interrupt,
}

/// A file system that takes part.
pub(super) struct Subject {
    pub(super) name: String,
    by: By,
}

enum By {
    // Boxed, as peers are of another size.
    Library(Box<Pool>),
    Peer(Box<Peer>),
}

struct Pool {
    library: Library,
    // Order matters: the pool goes before its directory.
    _dir: TempDir,
}

/// Something that every side does.
pub(super) trait Work {
    /// Done once, not timed.
    fn fill<S: Side>(&self, side: &S) -> Result<()>;

    /// What a round came to at each label.
    fn round<S: Side>(&self, side: &S) -> Result<Vec<Sample>>;
}

/// Bytes of a pool with room for so many names.
pub(super) fn pool_bytes(names: usize) -> u64 {
    POOL_MIN_BYTES + names as u64 * NAME_BYTES
}

impl<'a> Setting<'a> {
    pub(super) fn new(options: &'a NamespaceOptions, interrupt: &'a Interrupt) -> Self {
        Self { options, interrupt }
    }

    /// Goes on unless the run was interrupted.
    pub(super) fn check(&self) -> Result<()> {
        self.interrupt.check()
    }

    /// A pool for each namespace with room for so many names, then the peers.
    pub(super) fn subjects(&self, names: usize) -> Result<Vec<Subject>> {
        let bytes = pool_bytes(names);
        let mut subjects = Vec::new();
        for namespace in NamespaceKind::ALL {
            subjects.push(self.pool(namespace, bytes)?);
        }
        for name in &self.options.peer {
            let peer = Peer::new(name, bytes)?;
            subjects.push(Subject {
                name: peer.kind.into(),
                by: By::Peer(Box::new(peer)),
            });
        }
        Ok(subjects)
    }

    fn pool(&self, namespace: NamespaceKind, bytes: u64) -> Result<Subject> {
        let dir = tempfile::Builder::new()
            .prefix("vellum-bench-")
            .tempdir_in(&self.options.pool_dir)
            .map_err(doing("make a directory for pools"))?;
        let options = CreateOptions {
            namespace,
            metadata_bytes: Some(bytes / 2),
            ..CreateOptions::new(bytes)
        };
        let library = Library::create_with(dir.path().join("pool"), &options, true)?;
        let pool = Pool { library, _dir: dir };
        Ok(Subject {
            name: namespace.name().into(),
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

/// What is left to the background is not the next one's to pay.
fn rest(library: &Library, samples: Vec<Sample>) -> Result<Vec<Sample>> {
    library.settle()?;
    Ok(samples)
}

/// The time of each of `ops` operations, and what all of them did.
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
