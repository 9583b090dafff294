//! Evolving: areas come and go by how directories are used.

use std::time::{Duration, Instant};

use vellum_media::Memories;

use crate::core::Core;
use crate::error::Result;
use crate::fs::{Fs, Lease};
use crate::namespace::{Area, Areas, Decided, NO_AREAS, Outcome};

impl<M: Memories> Fs<M> {
    /// Runs a round of evolving: large directories that were renamed of late get areas of their own, small areas that are used little go back
    /// into those above. One directory is moved after the other, beside operations, which find nothing changed. Gives what was
    /// decided. Production calls it from a thread, every five seconds.
    ///
    /// # Errors
    /// The pool's names are not kept in areas, or are open for reading only; damaged media.
    pub fn evolve(&self) -> Result<Vec<Decided>> {
        self.evolve_resting(&mut |_| true)
    }

    /// The same; behind each move `rest` is told how long it took, and whether to go on is what it says.
    ///
    /// # Errors
    /// As [`Self::evolve`].
    pub fn evolve_resting(&self, rest: &mut dyn FnMut(Duration) -> bool) -> Result<Vec<Decided>> {
        let core = &self.core;
        let areas = self.namespace.areas().ok_or(NO_AREAS)?;
        let planned = {
            let _lease = Lease::take_last(core);
            core.noting(areas.plan(core))?
        };
        let mut decided: Vec<Decided> = Vec::new();
        for mut one in planned {
            // What is below is no more what it was when it was counted: the next round decides.
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

    /// The last decisions of rounds, 256 at most, the oldest first.
    ///
    /// # Errors
    /// The pool's names are not kept in areas.
    pub fn decisions(&self) -> Result<Vec<Decided>> {
        let areas = self.namespace.areas().ok_or(NO_AREAS)?;
        let _lease = Lease::take(&self.core);
        Ok(areas.decisions(&self.core))
    }

    /// All areas, by their numbers. Every name is counted for it.
    ///
    /// # Errors
    /// The pool's names are not kept in areas; damaged media.
    pub fn areas(&self) -> Result<Vec<Area>> {
        let areas = self.namespace.areas().ok_or(NO_AREAS)?;
        let _lease = Lease::take(&self.core);
        self.core.noting(areas.list(&self.core))
    }
}

/// Does what was decided, if nobody else waits for the lease, and keeps the decision.
fn carry_out<M: Memories>(
    core: &Core<M>,
    areas: &dyn Areas<M>,
    decided: &Decided,
) -> Result<Outcome> {
    let _lease = Lease::take_last(core);
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
