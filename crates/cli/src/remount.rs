//! `vellum mount -o remount`: changes the kernel's flags of a mount. The process that serves it
//! stays as it is.

use std::io;

use vellum_fuse::mounts::{self, Mounted};
use vellum_fuse::{ControlRequest, MountConfig};
use vellum_terminal::{Failure, Outcome, quoted, status};

use crate::info::{self, Information};
use crate::mount::Mount;
use crate::sync::sync;
use crate::umount;

/// Changes the mount on the directory.
pub(crate) fn run(args: &Mount, config: &MountConfig) -> Outcome {
    let mounted = umount::named(&args.dir)?;
    let mounted = mounted.last().ok_or_else(|| {
        let dir = args.dir.display();
        Failure::new(format!("{dir}: no Vellum pool is mounted there"))
    })?;
    if config.read_only {
        // What was written survives, as if it had been unmounted.
        let synced = mounted.open().and_then(|root| sync(&root));
        synced.map_err(|error| cannot(mounted, &error))?;
    } else if mounted.read_only && is_open_for_reading(mounted)? {
        let (pool, dir) = (quoted(&mounted.pool), quoted(&mounted.dir));
        return Err(Failure::new(format!(
            "{} is open for reading only: its mount cannot become writable",
            mounted.pool.display()
        ))
        .advise(format!("vellum umount {dir} && vellum mount {pool} {dir}")));
    }
    mounts::remount(mounted, config).map_err(|error| cannot(mounted, &error))
}

/// Whether the process of a mount has opened the pool for reading only.
fn is_open_for_reading(mounted: &Mounted) -> Outcome<bool> {
    let told: Information = info::ask(mounted, ControlRequest::Information)?;
    Ok(told.mount.is_some_and(|mount| mount.read_only))
}

fn cannot(mounted: &Mounted, error: &io::Error) -> Failure {
    let failure = Failure::io(mounted.dir.display(), error);
    match error.kind() {
        io::ErrorKind::ResourceBusy => failure.with_status(status::BUSY).advise(format!(
            "files are open for writing: `fuser -vm {}` lists the processes",
            quoted(&mounted.dir)
        )),
        io::ErrorKind::PermissionDenied => failure.advise("only root may remount"),
        _ => umount::in_the_way(failure, error),
    }
}
