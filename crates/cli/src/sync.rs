//! `vellum sync`: makes durable what was done in a mount, which `sync(2)` and `syncfs(2)` do not reach.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::args::Sync;
use crate::failure::{Failure, Outcome};
use crate::umount;

/// Syncs each mount that is named; the first failure is given.
pub(crate) fn run(args: &Sync) -> Outcome {
    let mut outcome = Ok(());
    for mounted in umount::named(&args.dir)? {
        let synced = sync(&mounted.dir).map_err(|e| Failure::io(mounted.dir.display(), &e));
        outcome = outcome.and(synced);
    }
    outcome
}

fn sync(root: &Path) -> io::Result<()> {
    let root = File::open(root)?;
    // What was stored to mapped files is in the kernel's pages until they are written back. Where that fails, all else is to be durable all the same.
    let written_back = rustix::fs::syncfs(&root);
    root.sync_all()?;
    Ok(written_back?)
}
