//! Pools of more and more empty files.

use super::crowd::{Crowd, Crowds};
use super::instructions::{ABOVE, Instructions};
use super::{Pooled, Setting, pool_of, sizes};
use crate::Result;
use crate::left::DIR_FILES;
use crate::report::Outcome;

/// Bytes of metadata for each file, more than any namespace takes, and in addition.
const METADATA_OF_FILE: u64 = 320;
const METADATA_LEAST: u64 = 16 << 20;
/// Bytes of data, of which nothing is used.
const DATA_BYTES: u64 = 16 << 20;

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let sizes: Vec<[usize; 2]> = sizes(setting.options.files)
        .into_iter()
        .map(|size| [size.div_ceil(DIR_FILES), size.min(DIR_FILES)])
        .collect();
    let totals: Vec<usize> = sizes.iter().map(|[dirs, files]| dirs * files).collect();
    let mut crowds = Crowds::new(
        setting,
        ("files", "files"),
        &totals,
        &format!(
            "Empty files, up to {DIR_FILES} in a directory; a pool of each size. DRAM is private \
             memory and the arena, in the kernel's pages."
        ),
    );
    let ends = [0, totals.len() - 1].map(|at| totals[at]);
    let counts = setting.options.instructions;
    let mut instructions = counts.then(|| Instructions::new(setting, ends));
    for (side, namespace) in setting.options.namespaces().into_iter().enumerate() {
        let progress = setting.progress(namespace.name(), totals.iter().sum());
        let pools = totals.iter().map(|&files| {
            let metadata = files as u64 * METADATA_OF_FILE + METADATA_LEAST;
            setting.pool(&pool_of(namespace, metadata, DATA_BYTES))
        });
        let mut pools: Vec<Pooled> = pools.collect::<Result<_>>()?;
        let filled = pools.iter().zip(&sizes).map(|(pool, &[dirs, files])| {
            let crowd = Crowd {
                library: &pool.library,
                above: ABOVE.into(),
                dirs,
                files,
            };
            let space = crowd.fill(setting, &progress)?;
            Ok((crowd, space))
        });
        let filled: Vec<_> = filled.collect::<Result<_>>()?;
        progress.finish_and_clear();
        crowds.measure(setting, side, &filled)?;
        drop(filled);
        if let Some(counted) = &mut instructions {
            for (end, at) in [0, pools.len() - 1].into_iter().enumerate() {
                counted.count((side, end), &mut pools[at], sizes[at])?;
            }
        }
    }
    let mut outcome = crowds.outcome();
    if let Some(counted) = instructions {
        outcome.join(counted.outcome());
    }
    Ok(outcome)
}
