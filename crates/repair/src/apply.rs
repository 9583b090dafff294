//! Writes a plan.

use std::sync::atomic::Ordering;

use thiserror::Error;
use vellum_media::{PoolMemory, Site, faults};

use crate::plan::{Plan, Stage};

/// Why a plan could not be written.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The medium failed.
    #[error("the medium failed at pool offset {0:#x}; repair it again")]
    Medium(u64),
    /// The operating system failed.
    #[error("the pool could not be made durable: {0}; repair it again")]
    Io(#[from] std::io::Error),
    /// A block can neither be read nor written.
    #[error(
        "the block at pool offset {at:#x} can be neither read nor written ({source}){}: \
         copy what can be read to a sound medium, and repair the copy", if *.changed { "; the pool \
              is left under repair" } else { "; \
              nothing was changed" }
    )]
    Unwritable {
        /// Pool offset of the block.
        at: u64,
        /// Whether earlier blocks were already replaced by zeros.
        changed: bool,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

/// A pool that is watched for losses beyond the known ones.
pub(crate) struct Guard<'p, P> {
    pool: &'p P,
    condition: u64,
    faults: u64,
}

impl<'p, P: PoolMemory> Guard<'p, P> {
    pub(crate) fn of(pool: &'p P) -> Self {
        pool.watch();
        Self {
            pool,
            condition: pool.condition(),
            faults: faults().count,
        }
    }

    /// Makes everything stored so far durable.
    ///
    /// # Errors
    /// Returns the offset of bytes that were lost since, or of a known lost block that was used.
    pub(crate) fn settle(&self) -> Result<std::io::Result<()>, u64> {
        self.pool.fence(Site::UNNAMED);
        let faults = faults();
        if faults.count != self.faults {
            return Err(faults.last);
        }
        if self.pool.condition() != self.condition {
            return Err(self.pool.last_lost());
        }
        Ok(self.pool.sync())
    }
}

/// Called while writing, with the number of words and blocks written, and their total.
pub type Written<'a> = &'a dyn Fn(u64, u64);

/// Counts written words and blocks, and reports them now and then.
pub(crate) struct Meter<'a> {
    written: Written<'a>,
    done: u64,
    of: u64,
}

impl<'a> Meter<'a> {
    /// Words and blocks between two reports.
    const STEP: u64 = 256;

    pub(crate) fn of(of: u64, written: Written<'a>) -> Self {
        written(0, of);
        let done = 0;
        Self { written, done, of }
    }

    pub(crate) fn add_one(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(Self::STEP) || self.done == self.of {
            (self.written)(self.done, self.of);
        }
    }
}

/// Writes a plan, stage by stage; each stage is durable before the next begins.
///
/// # Errors
/// Fails if the medium fails. The pool is then as after a power cut.
pub fn apply(pool: &impl PoolMemory, plan: &Plan) -> Result<(), ApplyError> {
    apply_watched(pool, plan, &|_, _| {})
}

/// As [`apply`], and reports its progress.
///
/// # Errors
/// As [`apply`].
pub fn apply_watched(
    pool: &impl PoolMemory,
    plan: &Plan,
    written: Written<'_>,
) -> Result<(), ApplyError> {
    write_stages(pool, &plan.stages, written)
}

/// Writes words stage by stage.
pub(crate) fn write_stages(
    pool: &impl PoolMemory,
    stages: &[Stage],
    written: Written<'_>,
) -> Result<(), ApplyError> {
    let guard = Guard::of(pool);
    let of_stage = |stage: &Stage| stage.renewed.len() + stage.words.len();
    let all: usize = stages.iter().map(of_stage).sum();
    let mut meter = Meter::of(all as u64, written);
    let mut renewed = 0;
    // The old values of words stored before the first block was renewed.
    let mut begun = Vec::new();
    for stage in stages {
        if let Err((at, source)) = renew(pool, stage, &mut renewed, &mut meter) {
            let changed = renewed > 0;
            if !changed {
                begun.iter().for_each(|&word| store(pool, word));
                guard.settle().map_err(ApplyError::Medium)??;
            }
            return Err(ApplyError::Unwritable {
                at,
                changed,
                source,
            });
        }
        if renewed == 0 {
            let words = stage.words.iter();
            begun.extend(words.map(|&(at, _)| (at, pool.load(at, Ordering::Acquire))));
        }
        for &word in &stage.words {
            store(pool, word);
            meter.add_one();
        }
        guard.settle().map_err(ApplyError::Medium)??;
    }
    Ok(())
}

pub(crate) fn store(pool: &impl PoolMemory, (at, value): (u64, u64)) {
    pool.store(at, value, Ordering::Release);
    pool.flush(Site::UNNAMED, at, 8);
}

/// Replaces the blocks of a stage by zeros; counts those that are done.
fn renew(
    pool: &impl PoolMemory,
    stage: &Stage,
    renewed: &mut u64,
    meter: &mut Meter<'_>,
) -> Result<(), (u64, std::io::Error)> {
    for &at in &stage.renewed {
        pool.renew(at).map_err(|source| (at, source))?;
        *renewed += 1;
        meter.add_one();
    }
    Ok(())
}
