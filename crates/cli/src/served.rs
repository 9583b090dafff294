//! Pools that a mount's process still serves although they are not mounted here: because of a mount
//! in another mount namespace, or because of open files.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use vellum::PoolPath;
use vellum::media::{is_in_use, lock_holders};
use vellum_fuse::mounts::{self, Device};
use vellum_terminal::output::warn_line;
use vellum_terminal::{Failure, Outcome, plain, quoted, status};

use crate::location::process;
use crate::sync::sync;

/// The thread of `vellum mount` that ends mounts on signals. Other programs that serve mounts do
/// not have it.
pub(crate) const ENDS_ON_SIGNALS: &str = "vellum-signals";
/// How long writing back the changes to mapped files may take.
const WRITTEN_BACK: Duration = Duration::from_secs(10);
/// How long a mount that has ended may take to close its pool.
const CLOSED: Duration = Duration::from_secs(60);
/// How long the process of a mount may take to notice its end.
const TOLD: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A process that serves mounts of a pool.
pub(crate) struct Server {
    pid: u32,
    pub(crate) devices: Vec<Device>,
}

/// The processes that serve mounts of a pool or dataset.
pub(crate) fn servers(named: &Path) -> Vec<Server> {
    let place = PoolPath::of(named).resolved();
    let server = |pid| {
        let devices = mounts::served_by(pid);
        (!devices.is_empty()).then_some(Server { pid, devices })
    };
    let holders = lock_holders(&place.pool).into_iter();
    let servers: Vec<_> = holders.filter_map(server).collect();
    if servers.is_empty() || place.name.is_none() {
        return servers;
    }
    // Perhaps only other datasets of the pool are open.
    let file = File::open(&place.pool).ok();
    let is_open = file.is_none_or(|file| is_in_use(&file, place.dataset()).unwrap_or(true));
    if is_open { servers } else { Vec::new() }
}

/// Opens a pool. As long as a mount that has ended is closing it, tries again: umount(8) returns
/// before the process of a mount knows of the end.
pub(crate) fn once_closed<T>(named: &Path, open: impl Fn() -> Outcome<T>) -> Outcome<T> {
    let began = Instant::now();
    loop {
        match open() {
            Err(failure)
                if failure.status == status::BUSY && is_closing(named, began.elapsed()) =>
            {
                std::thread::sleep(LOOK_AGAIN);
            }
            done => return done,
        }
    }
}

/// Whether all processes that have a pool open are mounts that have ended, and may still close it
/// after this time.
fn is_closing(named: &Path, waited: Duration) -> bool {
    let pool = PoolPath::of(named).resolved().pool;
    let holders = lock_holders(&pool);
    let has_ended = |&pid: &u32| {
        if !threads_end_on_signals(pid) {
            return waited < CLOSED && is_exiting(pid);
        }
        let all = mounts::list().unwrap_or_default();
        let here = mounts::of_file(&pool).unwrap_or_default();
        // The number of its device may belong to a mount of another pool by now.
        let mut devices = mounts::served_by(pid);
        devices.retain(|device| {
            let is_of = |mounted: &mounts::Mounted| mounted.device == *device;
            here.iter().any(is_of) || !all.iter().any(is_of)
        });
        let is_here = |mounted: &mounts::Mounted| devices.contains(&mounted.device);
        match devices.is_empty() {
            true => waited < CLOSED,
            // It will know soon, unless a user who is invisible here keeps the mount.
            false => waited < TOLD && !here.iter().any(is_here) && why(&devices).is_none(),
        }
    };
    match holders.is_empty() {
        // It was closed meanwhile, or the process is invisible here.
        true => waited < TOLD,
        false => holders.iter().all(has_ended),
    }
}

/// Whether a process is ending: its threads go before it closes its files.
fn is_exiting(pid: u32) -> bool {
    const PF_EXITING: u32 = 4;
    // The flags are the seventh word behind the name, which is in parentheses.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let words = stat.rsplit(')').next().unwrap_or_default();
    let flags = words.split_whitespace().nth(6);
    flags.is_some_and(|flags| {
        flags
            .parse()
            .is_ok_and(|flags: u32| flags & PF_EXITING != 0)
    })
}

/// Whether a process is a `vellum mount` whose mounts end on signals.
fn threads_end_on_signals(pid: u32) -> bool {
    let threads = mounts::threads_of(pid);
    threads.iter().any(|name| name == ENDS_ON_SIGNALS)
}

/// The failure for a pool or dataset that a mount's process serves although it is not mounted here.
pub(crate) fn unseen(named: &Path) -> Option<Failure> {
    let server = servers(named).into_iter().next()?;
    let pool = PoolPath::of(named).resolved().path();
    let why = why(&server.devices).unwrap_or("its user is invisible here".into());
    let failure = Failure::new(format!(
        "{} is in use (EBUSY): {} serves a mount of it that is not visible here: {why}",
        named.display(),
        process(server.pid),
    ));
    Some(failure.with_status(status::BUSY).advise(advice(&pool)))
}

/// What to do about users of a pool that is no longer mounted here.
pub(crate) fn advice(pool: &Path) -> String {
    format!(
        "it is closed when they end or unmount it; `vellum umount --force {}` closes it now",
        quoted(pool)
    )
}

/// What to do about a process that was asked to end and has not ended yet.
pub(crate) fn while_it_lasts(pid: u32) -> String {
    format!(
        "{} is writing it back, has opened it since, or hangs; `kill -9 {pid}` ends it, with the \
         losses of any kill (see `vellum info`)",
        process(pid)
    )
}

/// Why datasets that are not mounted here are still in use, if that is visible.
pub(crate) fn why(devices: &[Device]) -> Option<String> {
    mounted_elsewhere(devices).or_else(|| used(devices))
}

/// The processes that have datasets mounted in another mount namespace.
pub(crate) fn mounted_elsewhere(devices: &[Device]) -> Option<String> {
    let mut others = mounts::elsewhere().unwrap_or_default();
    others.retain(|other| devices.contains(&other.mounted.device));
    others.retain(|other| !mounts::is_dead(&other.root()));
    let pids: BTreeSet<u32> = others.iter().map(|other| other.pid).collect();
    let first = others.first()?;
    let more = match pids.len() - 1 {
        0 => String::new(),
        1 => ", and one more namespace has it".into(),
        more => format!(", and {more} more namespaces have it"),
    };
    Some(format!(
        "{} has it mounted on {} in another mount namespace{more}",
        process(first.pid),
        first.mounted.dir.display()
    ))
}

/// The processes that have files of datasets open.
pub(crate) fn used(devices: &[Device]) -> Option<String> {
    let users = mounts::users(devices);
    let first = users.first()?;
    let (others, have) = match users.len() - 1 {
        0 => (String::new(), "has"),
        1 => (" and one more process".into(), "have"),
        more => (format!(" and {more} more processes"), "have"),
    };
    Some(format!(
        "{}{others} {have} files of it open",
        process(first.pid)
    ))
}

/// Ends these processes although their mounts may be in use, and waits until they have closed the
/// pool.
pub(crate) fn end(named: &Path, servers: &[Server], limit: Duration) -> Outcome {
    for server in servers {
        server.end(named, limit)?;
    }
    Ok(())
}

impl Server {
    fn end(&self, named: &Path, limit: Duration) -> Outcome {
        let who = process(self.pid);
        let failed = |error: io::Error| Failure::io(format!("ending {who}"), &error);
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| failed(errno.into()))?;
        // The pidfd pins the process. This check shows that its number was not reused before.
        if !servers(named).iter().any(|server| server.pid == self.pid) {
            return Ok(());
        }
        if !threads_end_on_signals(self.pid) {
            return Err(Failure::new(format!(
                "{} is served by {who}, which is not a `vellum mount`",
                named.display()
            ))
            .with_status(status::BUSY)
            .advise("close it there"));
        }
        let is_written_back = self.write_back();
        let send = |signal| pidfd_send_signal(&pidfd, signal);
        send(Signal::TERM).map_err(|errno| failed(errno.into()))?;
        // The first signal lets users finish; the second one ends the mount at once. It is another
        // signal because two equal ones may be merged. An error means that the process has ended
        // already.
        if is_written_back {
            let _ = send(Signal::INT);
        }
        let began = Instant::now();
        let pool = PoolPath::of(named).resolved().pool;
        while lock_holders(&pool).contains(&self.pid) {
            if began.elapsed() >= limit {
                return Err(Failure::new(format!(
                    "{} is still in use {} s after {who} was asked to end",
                    named.display(),
                    limit.as_secs()
                ))
                .with_status(status::BUSY)
                .advise(while_it_lasts(self.pid)));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Makes the kernel write back changes to mapped files, through the open files of the users.
    /// Returns true if something was synced and nothing failed.
    fn write_back(&self) -> bool {
        let users = mounts::users(&self.devices);
        let links: Vec<_> = users.into_iter().flat_map(|user| user.links).collect();
        let (answered, wait) = channel();
        // In a thread of its own, because a server that hangs does not answer.
        std::thread::spawn(move || {
            let mut written = Vec::new();
            let mut is_failed = false;
            for (device, link) in links {
                let is_fit = |found: Metadata| found.is_file() || found.is_dir();
                if written.contains(&device) || !std::fs::metadata(&link).is_ok_and(is_fit) {
                    continue;
                }
                match File::open(&link).and_then(|file| sync(&file)) {
                    Ok(()) => written.push(device),
                    Err(error) => {
                        is_failed = true;
                        warn_line!(
                            "vellum: {}: changes to mapped files may not be written back: {}",
                            link.display(),
                            plain(&error)
                        );
                    }
                }
            }
            answered.send(!written.is_empty() && !is_failed)
        });
        wait.recv_timeout(WRITTEN_BACK).unwrap_or(false)
    }
}
