//! The serving side of mounts: the child process.

use std::io::{self, BufRead, Write};
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};
use vellum::PoolOptions;
use vellum::media::count::{self, Counts};
use vellum_fuse::MountConfig;
use vellum_transport::{Mount, Session, Wanted};

use crate::Result;
use crate::error::{Error, doing};
use crate::interrupt::Interrupt;
use crate::library::settle;
use crate::null_fs::NullFs;

/// Stands for the null file system in place of a pool.
pub(crate) const NULL_FS: &str = "do-nothing";
/// The file system type in rows.
pub(crate) const NULL_FS_KIND: &str = "fuse";
/// The server's message after it has mounted.
pub(crate) const READY: &str = "ready";
/// The request for the server's counts.
pub(crate) const ASK_COUNTS: &str = "counts";

/// Mounts `what` on `dir`, reports that, answers requests, and unmounts at the end of its input.
/// Reports why it cannot mount.
pub(crate) fn serve(what: &Path, dir: &Path, files: usize) -> Result<()> {
    // The parent process decides when to end: an interrupt from the terminal reaches both.
    let _ignored = Interrupt::watch();
    if what == Path::new(NULL_FS) {
        return serve_null_fs(dir, files);
    }
    let options = PoolOptions::new().populate(true);
    let pool = told(options.open(what).map_err(Error::from))?;
    let session = vellum_fuse::mount(pool.fs(), dir, &MountConfig::default());
    let session = told(session.map_err(Error::from))?;
    let fs = pool.fs();
    answer(|| {
        settle(&fs)?;
        Ok(count::snapshot())
    })?;
    session.stopper().stop();
    session.wait()?;
    drop(fs);
    pool.close()?;
    Ok(())
}

/// Reports an error to the process that waits for [`READY`].
fn told<T>(result: Result<T>) -> Result<T> {
    result.inspect_err(|error| println!("{error}"))
}

/// The same for the null file system, with the options of a mounted pool.
fn serve_null_fs(dir: &Path, files: usize) -> Result<()> {
    let defaults = MountConfig::default();
    let mount = Mount {
        source: NULL_FS,
        fs_type: NULL_FS_KIND,
        allow_other: defaults.allow_other,
        flags: MountFlags::NOSUID | MountFlags::NODEV,
    };
    let wanted = Wanted {
        ring: true,
        ..Wanted::default()
    };
    let connection = vellum_transport::mount(dir, &mount).map_err(io::Error::other);
    let session = connection.and_then(|connection| Session::start(connection, wanted));
    let session = told(session.map_err(doing("mount the file system that does nothing")))?;
    let null_fs = NullFs::new(files);
    let failed = || drop(vellum_transport::unmount(dir, UnmountFlags::FORCE));
    std::thread::scope(|scope| {
        let served = scope.spawn(|| session.run(&null_fs, defaults.threads, &failed));
        let answered = answer(|| Ok(Counts::default()));
        vellum_transport::unmount(dir, UnmountFlags::empty()).map_err(doing("unmount"))?;
        let served = served
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a panic")));
        answered.and(served.map_err(doing("serve the file system that does nothing")))
    })
}

fn answer(counts: impl Fn() -> Result<Counts>) -> Result<()> {
    let mut out = std::io::stdout();
    let mut say = |line: String| {
        writeln!(out, "{line}")
            .and_then(|()| out.flush())
            .map_err(doing("answer"))
    };
    say(READY.into())?;
    for line in std::io::stdin().lock().lines() {
        if line.map_err(doing("read a question"))? == ASK_COUNTS {
            say(line_of(counts()?))?;
        }
    }
    Ok(())
}

fn line_of(counts: Counts) -> String {
    format!(
        "{} {} {} {} {} {}",
        counts.lines_flushed,
        counts.fences,
        counts.pool_bytes_written,
        counts.probes,
        counts.allocations,
        counts.syncs
    )
}

/// Parses the counts in a reply.
pub(crate) fn counts_of(line: &str) -> Option<Counts> {
    let numbers: Vec<u64> = line
        .split(' ')
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    let &[
        lines_flushed,
        fences,
        pool_bytes_written,
        probes,
        allocations,
        syncs,
    ] = numbers.as_slice()
    else {
        return None;
    };
    Some(Counts {
        lines_flushed,
        fences,
        pool_bytes_written,
        probes,
        allocations,
        syncs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_travel_as_a_line() {
        let counts = Counts {
            lines_flushed: 1,
            fences: 2,
            pool_bytes_written: 3,
            probes: 4,
            allocations: 5,
            syncs: 6,
        };
        assert_eq!(counts_of(&line_of(counts)), Some(counts));
        assert_eq!(counts_of("1 2 3"), None);
        assert_eq!(counts_of("ready"), None);
    }
}
