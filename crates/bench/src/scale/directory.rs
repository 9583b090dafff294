//! Larger and larger directories, in one pool.

use super::crowd::{Crowd, Crowds};
use super::{Setting, pool_of, sizes};
use crate::Result;
use crate::report::Outcome;

/// Bytes of metadata for each name, more than any namespace takes, and in addition.
const METADATA_OF_NAME: u64 = 320;
const METADATA_LEAST: u64 = 16 << 20;
/// Bytes of data, of which nothing is used.
const DATA_BYTES: u64 = 16 << 20;

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let sizes = sizes(setting.options.names);
    let mut crowds = Crowds::new(
        setting,
        ("directory", "names in the directory"),
        &sizes,
        "Empty files in one directory; the directories of a namespace lie in one pool. DRAM is \
         private memory and the arena, in the kernel's pages.",
    );
    let all: usize = sizes.iter().sum();
    for (side, namespace) in setting.options.namespaces().into_iter().enumerate() {
        let progress = setting.progress(namespace.name(), all);
        let metadata = all as u64 * METADATA_OF_NAME + METADATA_LEAST;
        let pool = setting.pool(&pool_of(namespace, metadata, DATA_BYTES))?;
        let filled = sizes.iter().map(|&files| {
            let crowd = Crowd {
                library: &pool.library,
                above: format!("names-{files}"),
                dirs: 1,
                files,
            };
            let space = crowd.fill(setting, &progress)?;
            Ok((crowd, space))
        });
        let filled: Vec<_> = filled.collect::<Result<_>>()?;
        progress.finish_and_clear();
        crowds.measure(setting, side, &filled)?;
    }
    Ok(crowds.outcome())
}
