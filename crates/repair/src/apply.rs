//! Writing a plan.

use std::sync::atomic::Ordering;

use thiserror::Error;
use vellum_media::{Persistent, Site};

use crate::plan::Plan;

/// Why a plan could not be written.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The medium failed.
    #[error("the medium failed at pool offset {0:#x}; repair it again")]
    Medium(u64),
    /// The operating system failed.
    #[error("the pool could not be made durable: {0}; repair it again")]
    Io(#[from] std::io::Error),
}

/// Writes a plan, stage by stage, each durable before the next is begun.
///
/// # Errors
/// The medium failed. What was written until then is what a power cut would have left.
pub fn apply(pool: &impl Persistent, plan: &Plan) -> Result<(), ApplyError> {
    for stage in &plan.stages {
        for &(at, value) in &stage.words {
            pool.store(at, value, Ordering::Release);
            pool.flush(Site::UNNAMED, at, 8);
        }
        pool.fence(Site::UNNAMED);
        if let Some(at) = pool.damaged() {
            return Err(ApplyError::Medium(at));
        }
        pool.sync()?;
    }
    Ok(())
}
