//! Finds the processes that have a pool locked, as far as `/proc` shows them.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a killed process may take to release its locks.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// The bit of SIGKILL in a set of signals, as `/proc` shows it.
const KILLED: u64 = 1 << 8;
/// A flag of a process that the kernel is ending (`PF_EXITING`).
const EXITING: u64 = 4;

/// A file, as the kernel names it in its list of locks.
#[derive(Clone, Copy)]
pub(crate) struct Locked {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// The processes that have the file at a path locked as a whole (`flock`). A lock belongs to an
/// open file, which children inherit: the process that took it may have ended or closed it. If the
/// holder cannot be found because this user may not look, the process that took the lock is
/// returned.
pub fn lock_holders(path: &Path) -> Vec<u32> {
    let found = rustix::fs::stat(path).map(|stat| Locked {
        device: stat.st_dev,
        inode: stat.st_ino,
    });
    found.map_or(Vec::new(), Locked::holders)
}

/// The numbers of the running processes.
///
/// # Errors
/// Fails if they cannot be listed.
pub fn processes() -> io::Result<impl Iterator<Item = u32>> {
    let entries = std::fs::read_dir("/proc")?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
}

/// Whether a process has ended, even if its status was not collected yet.
pub fn has_ended(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // The fields behind the name of the program, which is in brackets and may contain brackets
        // itself.
        Ok(stat) => stat
            .rsplit_once(") ")
            .is_some_and(|(_, state)| state.starts_with(['Z', 'X'])),
        Err(_) => Path::new("/proc/self").exists() && !Path::new(&format!("/proc/{pid}")).exists(),
    }
}

/// Whether a process is just ending, so that its locks are about to be released.
fn is_ending(pid: u32) -> bool {
    let read = |name| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let is_killed = |line: &str| {
        let set = ["SigPnd:", "ShdPnd:"]
            .iter()
            .find_map(|set| line.strip_prefix(set));
        let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        set.is_some_and(|set| set & KILLED != 0)
    };
    // Behind the name: state, parent, group, session, terminal, its group, flags.
    let flags = |stat: &str| {
        let flags = stat.rsplit_once(") ")?.1.split(' ').nth(6)?;
        flags.parse::<u64>().ok()
    };
    let stat = read("stat");
    // The locks of a process that is gone are gone too, or a child has them.
    let is_there = !stat.is_empty();
    is_there
        && (has_ended(pid)
            || flags(&stat).is_some_and(|flags| flags & EXITING != 0)
            || read("status").lines().any(is_killed))
}

/// Retries to lock a file as long as all processes in the way are just ending.
pub(crate) fn lock_when_they_end(
    file: &impl AsFd,
    mut lock: impl FnMut() -> io::Result<bool>,
) -> io::Result<bool> {
    let began = Instant::now();
    while !lock()? {
        let stat = rustix::fs::fstat(file)?;
        let holders = Locked {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
        .holders();
        let are_ending = !holders.is_empty() && holders.into_iter().all(is_ending);
        if !are_ending || began.elapsed() >= ENDS_WITHIN {
            // They may have ended since the last attempt.
            return lock();
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(true)
}

impl Locked {
    /// As [`lock_holders`], for a known file, with this process first.
    pub(crate) fn holders(self) -> Vec<u32> {
        let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        let mut takers: Vec<u32> = locks.lines().filter_map(|line| self.taker(line)).collect();
        takers.dedup();
        // Usually the process that took the lock still has it.
        let is_another = |&pid: &u32| has_ended(pid) || self.is_held_by(pid) == Some(false);
        if takers.is_empty() || takers.iter().any(is_another) {
            let found = self.all_holders();
            if !found.is_empty() {
                takers = found;
            }
        }
        let own = std::process::id();
        takers.sort_by_key(|&pid| pid != own);
        takers
    }

    fn all_holders(self) -> Vec<u32> {
        let pids = processes().into_iter().flatten();
        pids.filter(|&pid| self.is_held_by(pid) == Some(true))
            .collect()
    }

    /// Whether a process has the locked open file; `None` if this user may not look.
    fn is_held_by(self, pid: u32) -> Option<bool> {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).ok()?;
        let is_it = |line: &str| {
            let lock = line.strip_prefix("lock:");
            lock.is_some_and(|lock| self.pid_in(lock).is_some())
        };
        let mut told = entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
        Some(told.any(|told| told.lines().any(is_it)))
    }

    /// The process that took the lock of a line, if the line is about this file. The kernel shows 0
    /// or -1 for other process namespaces.
    fn taker(self, line: &str) -> Option<u32> {
        let pid = self.pid_in(line)?;
        u32::try_from(pid).ok().filter(|&pid| pid > 0)
    }

    /// The process number in a line such as `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`, if
    /// the line is about this file. Waiting locks have `->` after the first number.
    fn pid_in(self, line: &str) -> Option<i64> {
        let mut words = line.split_whitespace().skip(1);
        if words.next()? != "FLOCK" {
            return None;
        }
        let pid = words.nth(2)?.parse().ok()?;
        let mut file = words.next()?.split(':');
        let major = u32::from_str_radix(file.next()?, 16).ok()?;
        let minor = u32::from_str_radix(file.next()?, 16).ok()?;
        let device = (
            rustix::fs::major(self.device),
            rustix::fs::minor(self.device),
        );
        let is_it = (major, minor) == device && file.next()?.parse() == Ok(self.inode);
        is_it.then_some(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FlockOperation;
    use rustix::io::Errno;
    use std::process::{Child, Command, Stdio};

    #[test]
    fn lock_lines() {
        let device = rustix::fs::makedev(8, 0x1f);
        let of = |line, device, inode| Locked { device, inode }.taker(line);
        let line = "1: FLOCK  ADVISORY  WRITE 1234 08:1f:5678 0 EOF";
        assert_eq!(of(line, device, 5678), Some(1234));
        assert_eq!(of(line, device, 5679), None);
        assert_eq!(of(line, device + 1, 5678), None);
        for other in [
            "1: -> FLOCK ADVISORY WRITE 7 08:1f:5678 0 EOF",
            "1: POSIX ADVISORY WRITE 7 08:1f:5678 0 EOF",
            "2: FLOCK ADVISORY READ 0 08:1f:5678 0 EOF",
            "",
        ] {
            assert_eq!(of(other, device, 5678), None, "{other}");
        }
    }

    /// A process that has a file locked.
    fn holder_of(path: &Path) -> Child {
        let mut holder = Command::new("sh")
            .args([
                "-c",
                r#"exec 9<>"$1" && flock 9 && echo && read -r _"#,
                "sh",
            ])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh runs");
        let output = holder.stdout.as_mut().expect("a pipe");
        std::io::Read::read_exact(output, &mut [0]).expect("it is locked");
        holder
    }

    #[test]
    fn only_killed_processes_are_waited_for() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let lock = || {
            let operation = FlockOperation::NonBlockingLockExclusive;
            match rustix::fs::flock(file.as_file(), operation) {
                Err(Errno::WOULDBLOCK) => Ok(false),
                done => done.map(|()| true).map_err(io::Error::from),
            }
        };
        for _ in 0..20 {
            let mut holder = holder_of(file.path());
            let began = Instant::now();
            assert!(!lock_when_they_end(file.as_file(), lock).expect("an answer"));
            assert!(began.elapsed() < ENDS_WITHIN);
            holder.kill().expect("killed");
            assert!(lock_when_they_end(file.as_file(), lock).expect("an answer"));
            holder.wait().expect("it ends");
            let unlocked = rustix::fs::flock(file.as_file(), FlockOperation::Unlock);
            unlocked.expect("unlocked");
        }
    }

    #[test]
    fn a_child_holds_the_inherited_lock_of_an_ended_process() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(lock_holders(file.path()), []);
        // A separate process takes it, and ends.
        let mut holder = holder_of(file.path());
        assert_eq!(lock_holders(file.path()), [holder.id()]);
        assert!(!has_ended(holder.id()));
        holder.kill().expect("killed");
        while !has_ended(holder.id()) {
            std::thread::yield_now();
        }
        holder.wait().expect("it ends");
        assert_eq!(lock_holders(file.path()), []);
        assert!(has_ended(u32::MAX) && !has_ended(std::process::id()));
    }
}
