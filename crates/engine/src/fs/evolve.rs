//! Evolving: splitting and merging areas by how directories are used.

use std::time::{Duration, Instant};

use vellum_media::Memories;

use crate::core::Core;
use crate::core::background::Lease;
use crate::error::Result;
use crate::fs::Fs;
use crate::namespace::{Area, Areas, Decided, MergedArea, NO_AREAS, Outcome};

impl<M: Memories> Fs<M> {
    /// Runs a round of evolving. Large directories that were renamed recently get areas of their
    /// own; small areas that are rarely used are merged into their parents. Directories are moved
    /// one after the other, while operations go on, which see no change. Returns the decisions.
    /// Production calls it from a thread, every five seconds.
    ///
    /// ```
    /// # let options = vellum::CreateOptions::new(32 << 20);
    /// # let pool = options.namespace(vellum::NamespaceKind::Adaptive).create_in_memory()?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// fs.mkdir(&cred, &root, b"d", 0o755)?;
    /// assert!(fs.evolve()?.is_empty()); // nothing was renamed
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the pool's names are not kept in areas, the pool is open for reading only, or media
    /// are damaged.
    pub fn evolve(&self) -> Result<Vec<Decided>> {
        self.evolve_resting(&mut |_| true)
    }

    /// As [`Self::evolve`]. After each move, calls `rest` with the time the move took; `rest`
    /// returns whether to go on.
    ///
    /// # Errors
    /// As [`Self::evolve`].
    pub fn evolve_resting(&self, rest: &mut dyn FnMut(Duration) -> bool) -> Result<Vec<Decided>> {
        let core = &self.core;
        self.core.check_use()?;
        let areas = self.namespace.areas().ok_or(NO_AREAS)?;
        let planned = {
            let _lease = Lease::take_last(core)?;
            core.noting(areas.plan(core))?
        };
        let mut decided: Vec<Decided> = Vec::new();
        for mut one in planned {
            // An earlier move changed the tree below since it was counted. The next round decides.
            let is_above = |done: &Decided| areas.is_above(core, one.ino, done.ino);
            if decided.iter().any(is_above) {
                continue;
            }
            let begin = Instant::now();
            one.outcome = core.noting(carry_out(core, areas, &one))?;
            let spent = begin.elapsed();
            tracing::info!(?one, ?spent, "evolving");
            decided.push(one);
            let goes_on = match one.outcome {
                Outcome::Done => rest(spent),
                outcome => outcome != Outcome::GaveWay,
            };
            if !goes_on {
                break;
            }
        }
        Ok(decided)
    }

    /// The last decisions of rounds, at most 256, the oldest first.
    ///
    /// ```
    /// # let options = vellum::CreateOptions::new(32 << 20);
    /// # let pool = options.namespace(vellum::NamespaceKind::Adaptive).create_in_memory()?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// fs.mkdir(&cred, &root, b"d", 0o755)?;
    /// fs.evolve()?;
    /// assert!(fs.decisions()?.is_empty()); // nothing was renamed
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the pool's names are not kept in areas.
    pub fn decisions(&self) -> Result<Vec<Decided>> {
        self.core.check_use()?;
        let areas = self.namespace.areas().ok_or(NO_AREAS)?;
        let _lease = Lease::take_to_work(&self.core)?;
        Ok(areas.decisions(&self.core))
    }

    /// All areas, ordered by number. Counts every name.
    ///
    /// ```
    /// # let options = vellum::CreateOptions::new(32 << 20);
    /// # let pool = options.namespace(vellum::NamespaceKind::Adaptive).create_in_memory()?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let dir = fs.mkdir(&cred, &root, b"d", 0o755)?;
    /// fs.split(&dir)?;
    /// assert_eq!(fs.areas()?.len(), 2); // those of the root and of `d`
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the pool's names are not kept in areas, or media are damaged.
    pub fn areas(&self) -> Result<Vec<Area>> {
        self.core.check_use()?;
        let areas = self.namespace.areas().ok_or(NO_AREAS)?;
        let _lease = Lease::take_to_work(&self.core)?;
        self.core.noting(areas.list(&self.core))
    }

    /// The merged areas whose numbers have not been reused, ordered by number.
    ///
    /// ```
    /// # let options = vellum::CreateOptions::new(32 << 20);
    /// # let pool = options.namespace(vellum::NamespaceKind::Adaptive).create_in_memory()?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let dir = fs.mkdir(&cred, &root, b"d", 0o755)?;
    /// fs.split(&dir)?;
    /// fs.merge(&dir)?;
    /// assert_eq!(fs.merged_areas()?.len(), 1);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the pool's names are not kept in areas.
    pub fn merged_areas(&self) -> Result<Vec<MergedArea>> {
        self.core.check_use()?;
        let areas = self.namespace.areas().ok_or(NO_AREAS)?;
        let _lease = Lease::take_to_work(&self.core)?;
        Ok(areas.merged(&self.core))
    }
}

/// Carries out a decision, unless somebody waits for the lease, and records the outcome.
fn carry_out<M: Memories>(
    core: &Core<M>,
    areas: &dyn Areas<M>,
    decided: &Decided,
) -> Result<Outcome> {
    let _lease = Lease::take_last(core)?;
    let outcome = match decided.outcome {
        Outcome::Done if core.is_lease_wanted() => Outcome::GaveWay,
        Outcome::Done => areas.carry_out(core, decided)?,
        other => other,
    };
    areas.note(
        core,
        &Decided {
            outcome,
            ..*decided
        },
    );
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use vellum_media::{HeapMemory, Memory, SimPool, Simulated};

    use super::*;
    use crate::checking::small_fs;
    use crate::core::header;
    use crate::fs::{Cred, Node};
    use crate::namespace::Evolution;
    use crate::{FileKind, MappingKind, NamespaceKind, RenameFlags};

    fn link(fs: &Fs<Simulated>, file: &Node<Simulated>, dir: &Node<Simulated>, number: u32) {
        let name = number.to_string();
        let linked = fs.link(&Cred::root(), file, dir, name.as_bytes());
        linked.unwrap();
    }

    /// A pool with a large directory that was just renamed, and a file in it.
    fn hot() -> (Arc<Fs<Simulated>>, Node<Simulated>, Node<Simulated>) {
        let kinds = (NamespaceKind::Adaptive, MappingKind::default());
        let fs = small_fs::<Simulated>(SimPool::new(32 << 20), HeapMemory::new, 4, kinds, None);
        let cred = Cred::root();
        let root = fs.root();
        let dir = fs.mkdir(&cred, &root, b"d", 0o755).unwrap();
        let made = fs.mknod(&cred, &dir, b"f", FileKind::File, 0o644, 0);
        let file = made.unwrap();
        for number in 0..fs.core.geometry.areas.size_max {
            link(&fs, &file, &dir, number);
        }
        let renamed = fs.rename(&cred, &root, b"d", &root, b"e", RenameFlags::empty());
        renamed.unwrap();
        (fs, dir, file)
    }

    fn somebody_waits(fs: &Fs<Simulated>, is_so: bool) {
        let arena = &fs.core.arena;
        arena.store(header::LEASE_WANTED, is_so.into(), Ordering::SeqCst);
    }

    fn outcomes(decided: &[Decided]) -> Vec<(Evolution, Outcome)> {
        decided.iter().map(|one| (one.what, one.outcome)).collect()
    }

    #[test]
    fn a_round_gives_way_to_a_waiter_and_the_next_one_goes_on() {
        let (fs, ..) = hot();
        somebody_waits(&fs, true);
        let decided = fs.evolve().unwrap();
        assert_eq!(outcomes(&decided), [(Evolution::Split, Outcome::GaveWay)]);
        assert_eq!(fs.areas().unwrap().len(), 1);
        assert_eq!(fs.decisions().unwrap(), decided);
        somebody_waits(&fs, false);
        let decided = fs.evolve().unwrap();
        assert_eq!(outcomes(&decided), [(Evolution::Split, Outcome::Done)]);
        assert_eq!(fs.areas().unwrap().len(), 2);
    }

    #[test]
    fn a_move_that_gives_way_leaves_nothing_behind() {
        let (fs, dir, file) = hot();
        let areas = fs.namespace.areas().unwrap();
        let planned = areas.plan(&fs.core).unwrap();
        let free = fs.stat_fs().files_free;
        somebody_waits(&fs, true);
        let outcome = areas.carry_out(&fs.core, &planned[0]).unwrap();
        assert_eq!(outcome, Outcome::GaveWay);
        somebody_waits(&fs, false);
        assert_eq!(fs.areas().unwrap().len(), 1);
        assert_eq!(fs.stat_fs().files_free, free);
        // Names may change again.
        link(&fs, &file, &dir, u32::MAX);
        assert_eq!(
            areas.carry_out(&fs.core, &planned[0]).unwrap(),
            Outcome::Done
        );
        assert_eq!(fs.areas().unwrap().len(), 2);
        assert!(fs.lookup(&Cred::root(), &dir, b"f").is_ok());
    }
}
