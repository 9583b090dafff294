//! The serving side of mounts: the child process.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};
use vellum::PoolOptions;
use vellum::media::count::{self, Counts};
use vellum_fuse::{MountConfig, Uring};
use vellum_transport::{Door, Mount, RequestCounts, Session, Wanted};

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
/// The request for the counts of the kernel's requests.
pub(crate) const ASK_REQUESTS: &str = "requests";

/// The kernel's requests, by their names.
pub(crate) type Requests = BTreeMap<String, u64>;

/// Mounts `what` on `dir`, reports that, answers requests, and unmounts at the end of its input.
/// Requests come by `door`, or else as the kernel offers it. Reports why it cannot mount.
pub(crate) fn serve(what: &Path, dir: &Path, files: usize, door: Option<Door>) -> Result<()> {
    // The parent process decides when to end: an interrupt from the terminal reaches both.
    let _ignored = Interrupt::watch();
    if what == Path::new(NULL_FS) {
        return serve_null_fs(dir, files, door);
    }
    let options = PoolOptions::new().populate(true);
    let pool = told(options.open(what).map_err(Error::from))?;
    let config = MountConfig {
        uring: match door {
            None => Uring::Auto,
            Some(Door::Ring) => Uring::On,
            Some(Door::Device) => Uring::Off,
        },
        ..MountConfig::default()
    };
    let session = vellum_fuse::mount(pool.fs(), dir, &config);
    let session = told(session.map_err(Error::from))?;
    let fs = pool.fs();
    let counts = || {
        settle(&fs)?;
        Ok(count::snapshot())
    };
    answer(counts, &session.connection().counts)?;
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
fn serve_null_fs(dir: &Path, files: usize, door: Option<Door>) -> Result<()> {
    let defaults = MountConfig::default();
    let mount = Mount {
        source: NULL_FS,
        fs_type: NULL_FS_KIND,
        allow_other: defaults.allow_other,
        flags: MountFlags::NOSUID | MountFlags::NODEV,
    };
    let wanted = Wanted {
        ring: door != Some(Door::Device),
        lists: defaults.xattrs,
        ..Wanted::default()
    };
    let connection = vellum_transport::mount(dir, &mount).map_err(io::Error::other);
    let session = connection
        .and_then(|connection| Session::start(connection, wanted))
        .and_then(
            |session| match door == Some(Door::Ring) && session.door() != Door::Ring {
                true => Err(io::Error::other("the kernel refuses io_uring")),
                false => Ok(session),
            },
        )
        .map_err(doing("mount the file system that does nothing"));
    let session = told(session)?;
    let null_fs = NullFs::new(files);
    let requests = session.counts();
    let failed = || drop(vellum_transport::unmount(dir, UnmountFlags::FORCE));
    std::thread::scope(|scope| {
        let served = scope.spawn(|| session.run(&null_fs, defaults.threads, &failed));
        let answered = answer(|| Ok(Counts::default()), &requests);
        vellum_transport::unmount(dir, UnmountFlags::empty()).map_err(doing("unmount"))?;
        let served = served
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a panic")));
        answered.and(served.map_err(doing("serve the file system that does nothing")))
    })
}

fn answer(counts: impl Fn() -> Result<Counts>, requests: &RequestCounts) -> Result<()> {
    let mut out = std::io::stdout();
    let mut say = |line: String| {
        writeln!(out, "{line}")
            .and_then(|()| out.flush())
            .map_err(doing("answer"))
    };
    say(READY.into())?;
    for line in std::io::stdin().lock().lines() {
        match line.map_err(doing("read a question"))?.as_str() {
            ASK_COUNTS => say(line_of(counts()?))?,
            ASK_REQUESTS => say(line_of_requests(requests))?,
            _ => {}
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

fn line_of_requests(requests: &RequestCounts) -> String {
    let words = requests
        .by_kind()
        .map(|(kind, count)| format!("{kind} {count}"));
    words.collect::<Vec<_>>().join(" ")
}

/// Parses the counts of requests in a reply.
pub(crate) fn requests_of(line: &str) -> Option<Requests> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let pairs = words.chunks(2).map(|pair| {
        let &[kind, count] = pair else { return None };
        Some((kind.to_owned(), count.parse().ok()?))
    });
    pairs.collect()
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

    #[test]
    fn counts_of_requests_travel_as_pairs() {
        let pairs = [("lookup", 3), ("write", 12)].map(|(kind, n)| (kind.to_owned(), n));
        assert_eq!(requests_of("lookup 3 write 12"), Some(pairs.into()));
        assert_eq!(requests_of(""), Some(Requests::new()));
        assert_eq!(requests_of("lookup 3 write"), None);
        assert_eq!(requests_of("lookup many"), None);
    }
}
