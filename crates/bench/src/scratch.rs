//! Directories of a run.

use std::path::Path;

use tempfile::TempDir;

use crate::Result;
use crate::error::doing;

/// A directory for a run in `parent`, which is removed with all that is in it.
pub(crate) fn dir_in(parent: &Path) -> Result<TempDir> {
    let made = tempfile::Builder::new()
        .prefix("vellum-bench-")
        .tempdir_in(parent);
    made.map_err(doing(format!("make a directory in {}", parent.display())))
}
