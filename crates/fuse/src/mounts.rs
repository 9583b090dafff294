//! The kernel's table of mounts: finding the mounts of Vellum, and ending them.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use vellum::PoolPath;

/// The type that the kernel's table shows.
pub const FS_TYPE: &str = "fuse.vellum";

/// A mounted pool, or file system of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Where.
    pub dir: PathBuf,
    /// What: the pool's path, or `POOL:NAME`.
    pub pool: PathBuf,
    /// Whether it is mounted read-only.
    pub read_only: bool,
}

/// Every mount of Vellum, oldest first.
///
/// # Errors
/// The kernel's table cannot be read.
pub fn list() -> io::Result<Vec<Mounted>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|&b| b == b'\n').filter_map(parse).collect())
}

/// The mount at a directory, the latest if there are several.
///
/// # Errors
/// As for [`list`].
pub fn at(dir: &Path) -> io::Result<Option<Mounted>> {
    Ok(list()?.into_iter().rev().find(|mounted| mounted.dir == dir))
}

/// The mount of a pool, by its path in full.
///
/// # Errors
/// As for [`list`].
pub fn of_pool(pool: &Path) -> io::Result<Option<Mounted>> {
    Ok(list()?
        .into_iter()
        .rev()
        .find(|mounted| mounted.pool == pool))
}

/// The mounts of all file systems of the pool in a file, given in full, oldest first.
///
/// # Errors
/// As for [`list`].
pub fn of_file(pool: &Path) -> io::Result<Vec<Mounted>> {
    let is_of = |mounted: &Mounted| PoolPath::of(&mounted.pool).pool == pool;
    Ok(list()?.into_iter().filter(is_of).collect())
}

/// Ends a mount; with `detach` at once from the tree of names, and otherwise once nobody uses it.
///
/// # Errors
/// It is in use (EBUSY), nothing is mounted, no permission.
pub fn unmount(dir: &Path, detach: bool) -> io::Result<()> {
    let flags = if detach {
        UnmountFlags::DETACH
    } else {
        UnmountFlags::empty()
    };
    match rustix::mount::unmount(dir, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        // Only root may; fusermount3 lets the owner of a mount.
        Err(Errno::PERM) => unmount_as_user(dir, detach),
        Err(errno) => Err(errno.into()),
    }
}

fn unmount_as_user(dir: &Path, detach: bool) -> io::Result<()> {
    let mut command = Command::new("fusermount3");
    command
        .arg("-u")
        .args(detach.then_some("-z"))
        .arg("--")
        .arg(dir);
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let busy = said.contains("busy");
    let kind = if busy {
        io::ErrorKind::ResourceBusy
    } else {
        io::ErrorKind::Other
    };
    Err(io::Error::new(kind, said))
}

/// A line: number, parent, device, root, directory, options, further fields, `-`, type, source,
/// options of the file system.
fn parse(line: &[u8]) -> Option<Mounted> {
    let mut words = line.split(|&b| b == b' ');
    let dir = path(words.nth(4)?);
    let options = words.next()?;
    let mut words = words.skip_while(|&word| word != b"-").skip(1);
    if words.next()? != FS_TYPE.as_bytes() {
        return None;
    }
    let pool = path(words.next()?);
    let read_only = options.split(|&b| b == b',').any(|option| option == b"ro");
    Some(Mounted {
        dir,
        pool,
        read_only,
    })
}

/// Puts back what the table writes as a backslash and three octal digits.
fn path(escaped: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\');
        let value = digits.and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        });
        bytes.push(value.unwrap_or(first));
        rest = if value.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table() {
        let line = b"36 25 0:41 / /mnt/a\\040b rw,nosuid shared:9 - fuse.vellum /srv/p\\134.img rw,user_id=0";
        let expected = Mounted {
            dir: "/mnt/a b".into(),
            pool: "/srv/p\\.img".into(),
            read_only: false,
        };
        assert_eq!(parse(line), Some(expected));
        let other = b"36 25 0:41 / /mnt ro - tmpfs none rw";
        assert_eq!(parse(other), None);
        assert_eq!(parse(b""), None);
        let line = b"36 25 0:41 / /mnt ro,nodev - fuse.vellum /p rw";
        assert!(parse(line).is_some_and(|mounted| mounted.read_only));
    }
}
