//! Limits memory, so that a file can be larger than what the kernel can cache of it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::error::doing;

const GROUPS: &str = "/sys/fs/cgroup";
/// The file that lists the processes of a group; writing to it adds one.
const MEMBERS: &str = "cgroup.procs";

/// While it lives, limits the memory of this process, including what the kernel caches for it: a
/// control group of its own, in either version.
pub(crate) struct MemoryLimit {
    group: PathBuf,
    before: PathBuf,
}

impl MemoryLimit {
    /// # Errors
    /// The user is not the superuser, the groups do not exist, or a system call failed.
    pub(crate) fn new(bytes: u64) -> Result<Self> {
        let own = "/proc/self/cgroup";
        let list = fs::read_to_string(own).map_err(doing(format!("read {own}")))?;
        let first = Path::new(GROUPS).join("memory");
        let (root, file, own) = match group_in(&list, "memory").filter(|_| first.is_dir()) {
            Some(own) => (first, "memory.limit_in_bytes", Some(own)),
            None => (PathBuf::from(GROUPS), "memory.max", group_in(&list, "")),
        };
        let group = root.join(format!("vellum-bench-{}", std::process::id()));
        let what = |what: &str| format!("{what} {}, to bound memory (superuser)", group.display());
        fs::create_dir(&group).map_err(doing(what("make")))?;
        let limit = Self {
            before: root.join(own.unwrap_or_default().trim_start_matches('/')),
            group: group.clone(),
        };
        fs::write(group.join(file), bytes.to_string()).map_err(doing(what("set up")))?;
        enter(&group).map_err(doing(what("enter")))?;
        Ok(limit)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // A group that cannot be left goes away with the process in it.
        if enter(&self.before).is_ok() {
            let _ = fs::remove_dir(&self.group);
        }
    }
}

fn enter(group: &Path) -> std::io::Result<()> {
    fs::write(group.join(MEMBERS), std::process::id().to_string())
}

/// The group of the hierarchy with this controller, in a process's list; without a controller, the
/// one of version 2.
fn group_in<'a>(list: &'a str, controller: &str) -> Option<&'a str> {
    list.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let mut all = controllers.split(',');
        all.any(|known| known == controller).then_some(group)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_that_of_its_hierarchy() {
        let mixed = "5:cpu,memory:/a/b:c\n1:name=systemd:/d\n0::/e\n";
        assert_eq!(group_in(mixed, "memory"), Some("/a/b:c"));
        assert_eq!(group_in(mixed, ""), Some("/e"));
        assert_eq!(group_in("0::/e\n", "memory"), None);
    }
}
