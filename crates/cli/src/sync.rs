//! `vellum sync`: makes durable what was done in a mount, which `sync(2)` and `syncfs(2)` do not
//! reach.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use vellum_fuse::mounts::{self, Mounted, Others};
use vellum_terminal::{Failure, Outcome};

use crate::args::Sync;
use crate::umount;

/// Where the kernel tells of the mounts that processes serve.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Syncs each mount that is named; the first failure is given.
pub(crate) fn run(args: &Sync) -> Outcome {
    let mut outcome = Ok(());
    for mounted in named(&args.dir)? {
        let synced = mounted.open().and_then(|root| sync(&root));
        outcome = outcome.and(synced.map_err(|error| cannot(&mounted, &error)));
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
        _ if Others::of(error).is_some() => umount::in_the_way(failure, error),
        true => failure.advise(format!(
            "the process that served it has ended: mount {} again; `vellum info` of it says what \
             survives a killed process",
            mounted.pool.display()
        )),
        false => failure,
    }
}

/// Writes back what was stored to mapped files, and syncs the mounted file system that a file or
/// directory is in.
pub(crate) fn sync(root: &File) -> io::Result<()> {
    // What was stored to mapped files is in the kernel's pages until they are written back. Where
    // that fails, all else is to be durable all the same.
    let begun = rustix::fs::syncfs(root);
    wait_for_writes(root);
    root.sync_all()?;
    begun?;
    // What the writes were answered is known now.
    Ok(rustix::fs::syncfs(root)?)
}

/// The kernel has syncfs(2) begin to write back, and not wait for that where a process serves the
/// mount. So this waits for an instant in which no request is under way; on a mount that is never
/// without one for as long as those that were there can take.
fn wait_for_writes(root: &File) {
    const LONGEST: Duration = Duration::from_secs(2);
    const PAUSE: Duration = Duration::from_micros(500);
    const ROUNDS: u32 = 3;
    let Ok(stat) = rustix::fs::fstat(root) else {
        return;
    };
    let connection = rustix::fs::minor(stat.st_dev).to_string();
    let requests = Path::new(CONNECTIONS).join(connection).join("waiting");
    let began = Instant::now();
    // Not everybody may look, and it need not be there.
    while let Ok(waiting) = std::fs::read_to_string(&requests) {
        if waiting.trim() == "0" || began.elapsed() > LONGEST {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    // A request behind theirs is answered when they have been taken; they are finished soon then.
    for _ in 0..ROUNDS {
        let _ = root.sync_all();
        std::thread::sleep(PAUSE);
    }
}
