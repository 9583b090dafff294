//! `vellum sync`: makes durable what was done in a mount, which `sync(2)` and `syncfs(2)` do not reach.

use std::fs::File;
use std::io;
use std::path::Path;

use vellum_fuse::mounts::{self, Mounted};
use vellum_terminal::{Failure, Outcome};

use crate::args::Sync;
use crate::umount;

/// Syncs each mount that is named; the first failure is given.
pub(crate) fn run(args: &Sync) -> Outcome {
    let mut outcome = Ok(());
    for mounted in named(&args.dir)? {
        outcome = outcome.and(sync(&mounted.dir).map_err(|error| cannot(&mounted, &error)));
    }
    outcome
}

/// What is named, or else the mount that a path leads into.
fn named(path: &Path) -> Outcome<Vec<Mounted>> {
    umount::named(path).or_else(|failure| match mounts::around(path) {
        Ok(Some(mounted)) => Ok(vec![mounted]),
        _ => Err(failure),
    })
}

fn cannot(mounted: &Mounted, error: &io::Error) -> Failure {
    let failure = Failure::io(mounted.dir.display(), error);
    match mounted.is_dead() {
        true => failure.advise(format!(
            "the process that served it has ended: mount {} again; `vellum info` of it says what survives a killed process",
            mounted.pool.display()
        )),
        false => failure,
    }
}

/// Writes back what was stored to mapped files, and syncs a mounted file system.
pub(crate) fn sync(root: &Path) -> io::Result<()> {
    let root = File::open(root)?;
    // What was stored to mapped files is in the kernel's pages until they are written back. Where that fails, all else is to be durable all the same.
    let written_back = rustix::fs::syncfs(&root);
    root.sync_all()?;
    Ok(written_back?)
}
