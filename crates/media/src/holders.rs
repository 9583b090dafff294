//! Who has a pool locked, as far as `/proc` tells.

use std::io;
use std::path::Path;

/// A file, as the kernel names it where it tells of locks.
#[derive(Clone, Copy)]
pub(crate) struct Locked {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// The processes that have the file at a path locked as a whole (`flock`). A lock is of an open
/// file, which children inherit: who took it may have ended, or closed it. Who cannot be found by
/// that, because this user may not look, is told as the one who took it.
pub fn lock_holders(path: &Path) -> Vec<u32> {
    let found = rustix::fs::stat(path).map(|stat| Locked {
        device: stat.st_dev,
        inode: stat.st_ino,
    });
    found.map_or(Vec::new(), Locked::holders)
}

/// The numbers of the processes that there are.
///
/// # Errors
/// They cannot be listed.
pub fn processes() -> io::Result<impl Iterator<Item = u32>> {
    let entries = std::fs::read_dir("/proc")?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
}

/// Whether a process has ended, though perhaps nobody has asked how.
pub fn has_ended(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // What follows the name of the program, which is in brackets and may have some itself.
        Ok(stat) => stat
            .rsplit_once(") ")
            .is_some_and(|(_, state)| state.starts_with(['Z', 'X'])),
        Err(_) => Path::new("/proc/self").exists() && !Path::new(&format!("/proc/{pid}")).exists(),
    }
}

impl Locked {
    /// The same of what was found out about it, this process before all others.
    pub(crate) fn holders(self) -> Vec<u32> {
        let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        let mut takers: Vec<u32> = locks.lines().filter_map(|line| self.taker(line)).collect();
        takers.dedup();
        // Most often who took it has it.
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

    /// Whether a process has the open file that is locked; nothing if this user may not look.
    fn is_held_by(self, pid: u32) -> Option<bool> {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).ok()?;
        let is_it = |line: &str| {
            let lock = line.strip_prefix("lock:");
            lock.is_some_and(|lock| self.pid_in(lock).is_some())
        };
        let mut told = entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
        Some(told.any(|told| told.lines().any(is_it)))
    }

    /// Who took the lock of a line, if it is about this file. The kernel shows 0 or -1 for those of
    /// other process namespaces.
    fn taker(self, line: &str) -> Option<u32> {
        let pid = self.pid_in(line)?;
        u32::try_from(pid).ok().filter(|&pid| pid > 0)
    }

    /// The number in a line such as `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`, if it is
    /// about this file. Waiting locks have `->` after the first number.
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
    use std::process::{Command, Stdio};

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

    #[test]
    fn who_inherited_a_lock_holds_it_when_who_took_it_has_ended() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(lock_holders(file.path()), []);
        // A process of its own takes it, and ends.
        let mut holder = Command::new("sh")
            .args([
                "-c",
                r#"exec 9<>"$1" && flock 9 && echo && read -r _"#,
                "sh",
            ])
            .arg(file.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh runs");
        let output = holder.stdout.as_mut().expect("a pipe");
        std::io::Read::read_exact(output, &mut [0]).expect("it is locked");
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
