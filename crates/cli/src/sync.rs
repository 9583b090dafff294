//! `vellum sync`: makes all changes in a mount durable, because `sync(2)` and `syncfs(2)` do not
//! reach a mount.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use vellum_fuse::mounts::{self, Mounted, Others};
use vellum_terminal::{Failure, Outcome};

use crate::args::Sync;
use crate::umount;

/// Where the kernel lists FUSE connections.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Syncs each named mount. Returns the first failure.
pub(crate) fn run(args: &Sync) -> Outcome {
    let mut outcome = Ok(());
    for mounted in named(&args.dir)? {
        let synced = mounted.open().and_then(|root| sync(&root));
        outcome = outcome.and(synced.map_err(|error| cannot(&mounted, &error)));
    }
    outcome
}

/// The mounts that `path` names, or else the mount that contains `path`.
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
            "the process that served it has ended: mount {} again; `vellum info` shows what \
             survives a killed process",
            mounted.pool.display()
        )),
        false => failure,
    }
}

/// Writes back changes to mapped files, and syncs the mounted file system of `root`.
pub(crate) fn sync(root: &File) -> io::Result<()> {
    // Changes to mapped files are in the kernel's pages until syncfs writes them back. If that
    // fails, everything else must become durable all the same.
    let begun = rustix::fs::syncfs(root);
    wait_for_writes(root);
    root.sync_all()?;
    begun?;
    // This reports errors of the writes, which have been answered by now.
    Ok(rustix::fs::syncfs(root)?)
}

/// Waits until the kernel has written back. On a FUSE mount, syncfs(2) only starts the writes and
/// does not wait for them. So this waits for an instant without requests in flight. On a mount that
/// always has some, it waits as long as the requests of the beginning can take.
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
    // Reading it may be forbidden, and it may be missing.
    while let Ok(waiting) = std::fs::read_to_string(&requests) {
        if waiting.trim() == "0" || began.elapsed() > LONGEST {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    // A later request is answered when the server has received the earlier ones, which it then
    // finishes soon.
    for _ in 0..ROUNDS {
        let _ = root.sync_all();
        std::thread::sleep(PAUSE);
    }
}
