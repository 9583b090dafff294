//! Finds Vellum mounts in the kernel's table of mounts, and ends them.

mod file;
mod others;

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::num::ParseIntError;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use vellum::PoolPath;
use vellum::media::processes;
use vellum_transport::unmount_by_helper;

use crate::config::MountConfig;
use crate::session::kernel_flags;

pub use file::PoolFile;
pub use others::Others;

/// The type that the kernel's table shows.
pub const FS_TYPE: &str = "fuse.vellum";
/// The prefix of the name of a thread that serves a mount, before its device. The kernel keeps 15
/// bytes of a name, which is just enough.
const SERVES: &str = "fuse-";

/// A mounted pool or dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The directory.
    pub dir: PathBuf,
    /// The pool's path, or `POOL:NAME`.
    pub pool: PathBuf,
    /// Whether it is mounted read-only.
    pub read_only: bool,
    /// Its device number, which no other mounted file system has.
    pub device: Device,
    /// The kernel's ID of this mount.
    id: u64,
}

/// The device number of a mounted file system. All its mounts have this number, wherever they are
/// moved or copied to, and no other file system has it while one of them exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    major: u32,
    minor: u32,
}

impl Device {
    /// The device number of the file system at a path. No request goes to the server.
    ///
    /// # Errors
    /// Fails if the path does not exist or access is denied.
    pub fn at(path: &Path) -> io::Result<Self> {
        Self::of(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn of(dir: impl AsFd, path: &Path, flags: AtFlags) -> io::Result<Self> {
        let flags = flags | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let found = rustix::fs::statx(dir, path, flags, StatxFlags::empty())?;
        Ok(Self {
            major: found.stx_dev_major,
            minor: found.stx_dev_minor,
        })
    }
}

impl FromStr for Device {
    type Err = ParseIntError;

    /// Parses `MAJOR:MINOR`, as in the kernel's table.
    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let (major, minor) = text.split_once(':').unwrap_or((text, ""));
        Ok(Self {
            major: major.parse()?,
            minor: minor.parse()?,
        })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl Mounted {
    /// Whether its server has ended without unmounting it, so that nothing there can be used. If
    /// another mount hides it: whether no process that is visible here serves it.
    pub fn is_dead(&self) -> bool {
        match self.reach() {
            Ok(_) => is_dead(&self.dir),
            Err(error) if Others::of(&error).is_some() => server_of(self.device).is_none(),
            Err(_) => false,
        }
    }

    /// Whether another mount hides it.
    pub fn is_hidden(&self) -> bool {
        self.reach()
            .is_err_and(|error| Others::of(&error).is_some())
    }

    /// Opens its root, and never another file system that is at its path by now.
    ///
    /// # Errors
    /// Fails if something else is mounted over it ([`Others`]), if it is gone, if its server has
    /// ended, or with the error of the operating system.
    pub fn open(&self) -> io::Result<File> {
        reopened(&self.reach()?)
    }

    /// Finds its root, as [`Mounted::open`] does. The descriptor is good for paths only.
    ///
    /// # Errors
    /// As [`Mounted::open`].
    pub fn reach(&self) -> io::Result<OwnedFd> {
        self.reach_at(&self.dir, "self")
    }

    /// Opens its root at `path`, which leads into the mount namespace of a process.
    fn reach_at(&self, path: &Path, process: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(root) => root,
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(self.hidden(process)),
            Err(errno) => return Err(errno.into()),
        };
        match Device::of(&root, Path::new(""), AtFlags::EMPTY_PATH)? == self.device {
            true => Ok(root),
            false => Err(self.hidden(process)),
        }
    }

    /// The error if its path leads to another file system.
    fn hidden(&self, process: &str) -> io::Error {
        let table = match table_of(process) {
            Ok(table) => table,
            Err(error) => return error,
        };
        if !is_in(&table, self) {
            return gone();
        }
        match Others::find(self.id, &table).and_then(Others::over) {
            Some(over) => over.into(),
            None => io::Error::other("another file system is at its path"),
        }
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "it is no longer mounted there")
}

fn is_in(table: &[u8], mounted: &Mounted) -> bool {
    let mut lines = table.split(|&b| b == b'\n').filter_map(Line::of);
    lines.any(|line| line.id == mounted.id && line.device == mounted.device)
}

/// Opens a found file for reading.
fn reopened(found: &OwnedFd) -> io::Result<File> {
    File::open(exactly(found))
}

/// A path to the open file itself, whatever is mounted at its own path.
fn exactly(found: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", found.as_raw_fd())
}

/// Whether the path leads to a mount whose server has ended.
pub fn is_dead(path: &Path) -> bool {
    rustix::fs::statfs(path).is_err_and(|errno| has_ended(&errno.into()))
}

/// Whether a call on a mount failed because its server has ended.
pub fn has_ended(error: &io::Error) -> bool {
    // A request that is in flight while the server ends gets the second error.
    let ended = [Some(Errno::NOTCONN), Some(Errno::CONNABORTED)];
    ended.contains(&Errno::from_io_error(error))
}

/// A mount in another mount namespace, and a process of that namespace.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// The mount, as that process sees it.
    pub mounted: Mounted,
    /// The process, the first of its namespace.
    pub pid: u32,
}

impl Elsewhere {
    /// A path to the mount that works in this mount namespace.
    pub fn root(&self) -> PathBuf {
        let below = self.mounted.dir.strip_prefix("/").unwrap_or(Path::new(""));
        PathBuf::from(format!("/proc/{}/root", self.pid)).join(below)
    }

    /// Opens its root, as [`Mounted::open`] does.
    ///
    /// # Errors
    /// As [`Mounted::open`].
    pub fn open(&self) -> io::Result<File> {
        let process = self.pid.to_string();
        reopened(&self.mounted.reach_at(&self.root(), &process)?)
    }
}

/// All Vellum mounts, oldest first.
///
/// # Errors
/// Fails if the kernel's table cannot be read.
pub fn list() -> io::Result<Vec<Mounted>> {
    list_of("self")
}

fn list_of(process: &str) -> io::Result<Vec<Mounted>> {
    let table = table_of(process)?;
    Ok(table.split(|&b| b == b'\n').filter_map(parse).collect())
}

fn table_of(process: &str) -> io::Result<Vec<u8>> {
    std::fs::read(format!("/proc/{process}/mountinfo"))
}

/// All Vellum mounts in other mount namespaces that this user may inspect.
///
/// # Errors
/// Fails if the processes cannot be listed.
pub fn elsewhere() -> io::Result<Vec<Elsewhere>> {
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt"));
    let mut seen = vec![namespace("self")?];
    let mut found = Vec::new();
    for pid in processes()? {
        let name = pid.to_string();
        // It may belong to another user, or its process may have ended.
        let Ok(other) = namespace(&name) else {
            continue;
        };
        if seen.contains(&other) {
            continue;
        }
        let mounts = list_of(&name).unwrap_or_default().into_iter();
        found.extend(mounts.map(|mounted| Elsewhere { mounted, pid }));
        seen.push(other);
    }
    Ok(found)
}

/// The name of the thread that serves a mount. If no mount namespace shows the mount any more, this
/// name shows which process serves it.
pub(crate) fn thread_that_serves(device: Device) -> String {
    format!("{SERVES}{device}")
}

/// The file systems that a process serves.
pub fn served_by(pid: u32) -> Vec<Device> {
    let names = threads_of(pid).into_iter();
    let devices = names.filter_map(|name| name.strip_prefix(SERVES)?.parse().ok());
    devices.collect()
}

/// The process that serves a file system, if it is visible here.
fn server_of(device: Device) -> Option<u32> {
    let mut pids = processes().into_iter().flatten();
    pids.find(|&pid| served_by(pid).contains(&device))
}

/// The names of the threads of a process.
pub fn threads_of(pid: u32) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let name = |thread: io::Result<std::fs::DirEntry>| {
        let name = std::fs::read_to_string(thread.ok()?.path().join("comm")).ok()?;
        Some(name.trim_end().to_owned())
    };
    threads.into_iter().flatten().filter_map(name).collect()
}

/// A process that uses files of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The process.
    pub pid: u32,
    /// The links in `/proc` to these files, with the file system of each.
    pub links: Vec<(Device, PathBuf)>,
}

/// The processes other than this one that use files of these file systems, in all mount namespaces,
/// as far as this user may see them. No request goes to a server.
pub fn users(devices: &[Device]) -> Vec<User> {
    let own = std::process::id();
    let pids = processes().into_iter().flatten();
    let user = |pid: u32| {
        let links = links_to(devices, pid);
        (pid != own && !links.is_empty()).then_some(User { pid, links })
    };
    pids.filter_map(user).collect()
}

fn links_to(devices: &[Device], pid: u32) -> Vec<(Device, PathBuf)> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let open = std::fs::read_dir(process.join("fd")).into_iter().flatten();
    let open = open.filter_map(|entry| Some(entry.ok()?.path()));
    let open = open.chain(["cwd", "root"].map(|name| process.join(name)));
    let open = open.filter_map(|link| Some((Device::of(CWD, &link, AtFlags::empty()).ok()?, link)));
    let maps = std::fs::read_to_string(process.join("maps")).unwrap_or_default();
    let mapped = maps.lines().filter_map(|line| {
        // Addresses, permissions, offset, device, inode, path.
        let mut words = line.split(' ');
        let range = words.next()?;
        let (major, minor) = words.nth(2)?.split_once(':')?;
        let number = |digits| u32::from_str_radix(digits, 16).ok();
        let device = Device {
            major: number(major)?,
            minor: number(minor)?,
        };
        Some((device, process.join("map_files").join(range)))
    });
    let is_meant = |(device, _): &(Device, PathBuf)| devices.contains(device);
    open.chain(mapped).filter(is_meant).collect()
}

/// The mount on a directory, the latest if there are several.
///
/// # Errors
/// As [`list`].
pub fn at(dir: &Path) -> io::Result<Option<Mounted>> {
    Ok(list()?.into_iter().rev().find(|mounted| mounted.dir == dir))
}

/// The mount of this mount namespace that contains a path.
///
/// # Errors
/// Fails if the path does not exist, or as [`list`].
pub fn around(path: &Path) -> io::Result<Option<Mounted>> {
    let path = path.canonicalize()?;
    let device = Device::at(&path)?;
    let is_around = |mounted: &Mounted| mounted.device == device && path.starts_with(&mounted.dir);
    Ok(list()?.into_iter().rev().find(is_around))
}

/// The mounts of a dataset, oldest first. The path must be absolute.
///
/// # Errors
/// As [`list`].
pub fn of_pool(place: &PoolPath) -> io::Result<Vec<Mounted>> {
    let path = place.path();
    // The pool may have had another name when it was mounted.
    let is_plain = |mounted: &Mounted| {
        let found = PoolPath::of(&mounted.pool);
        found.name.is_none() && !mounted.pool.as_os_str().as_encoded_bytes().contains(&b':')
    };
    let mut found = of_file(&place.pool)?;
    found.retain(|mounted| mounted.pool == path || place.name.is_none() && is_plain(mounted));
    Ok(found)
}

/// The mounts of all datasets of the pool in a file, oldest first. The path must be absolute.
///
/// # Errors
/// As [`list`].
pub fn of_file(pool: &Path) -> io::Result<Vec<Mounted>> {
    let file = PoolFile::at(pool);
    Ok(list()?
        .into_iter()
        .filter(|mounted| file.is_of(mounted))
        .collect())
}

/// Whether a mount of this mount namespace still exists.
///
/// # Errors
/// As [`list`].
pub fn is_there(mounted: &Mounted) -> io::Result<bool> {
    Ok(is_in(&table_of("self")?, mounted))
}

/// Checks that nothing is mounted over or below a mount of this mount namespace.
///
/// # Errors
/// Fails with [`Others`] if something is, or as [`list`].
pub fn stands_alone(mounted: &Mounted) -> io::Result<()> {
    match Others::find(mounted.id, &table_of("self")?) {
        Some(others) => Err(others.into()),
        None => Ok(()),
    }
}

/// Unmounts a mount that is not in use.
///
/// # Errors
/// Fails if it is in use (EBUSY; [`Others`] if something is mounted over or below it), if it is
/// gone, or without permission.
pub fn unmount(mounted: &Mounted) -> io::Result<()> {
    // An open root would keep the mount busy.
    drop(mounted.reach()?);
    let dir = &mounted.dir;
    match vellum_transport::unmount(dir, UnmountFlags::NOFOLLOW) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            stands_alone(mounted).and(Err(error))
        }
        done => done,
    }
}

/// Changes the kernel's flags of a mount: whether it is read-only, and [`MountConfig::flags`]. What
/// its server decides stays as it was. Only root may do that.
///
/// # Errors
/// Fails if it becomes read-only while files are open for writing (EBUSY), if something else is
/// mounted over it ([`Others`]), if it is gone, or without permission.
pub fn remount(mounted: &Mounted, config: &MountConfig) -> io::Result<()> {
    let root = mounted.reach()?;
    let flags = kernel_flags(config);
    // By the descriptor, so that a newer mount at the path stays as it is.
    Ok(rustix::mount::mount_remount(exactly(&root), flags, c"")?)
}

/// Detaches a mount at once, and never another one that is at its path by now.
///
/// # Errors
/// Fails if something else is mounted over or below it ([`Others`]), if it is gone, or without
/// permission.
pub fn detach(mounted: &Mounted) -> io::Result<()> {
    // The kernel would detach such mounts too.
    stands_alone(mounted)?;
    let root = mounted.reach()?;
    // By the descriptor, so that a newer mount at the path stays.
    match rustix::mount::unmount(exactly(&root), UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => unmount_by_helper(&mounted.dir, true),
        Err(errno) => Err(errno.into()),
    }
}

/// Detaches all mounts of a file system of this pool in this mount namespace, wherever they have
/// been moved. (The device number alone is not enough: it is reused as soon as the last mount is
/// gone.)
///
/// # Errors
/// As [`list`] and [`detach`]. A failure does not stop the others; the first one is returned.
pub fn detach_all(device: Device, pool: &Path) -> io::Result<()> {
    for_all(device, pool, detach)
}

/// Ends the connection of a file system of this pool by force: its users are cut off, and its
/// server too.
///
/// # Errors
/// As [`list`] and [`abort`].
pub(crate) fn abort_all(device: Device, pool: &Path) -> io::Result<()> {
    for_all(device, pool, abort)
}

fn for_all(
    device: Device,
    pool: &Path,
    end: impl Fn(&Mounted) -> io::Result<()>,
) -> io::Result<()> {
    let mut outcome = Ok(());
    for mounted in list()?
        .iter()
        .rev()
        .filter(|mounted| mounted.device == device && mounted.pool == pool)
    {
        let done = end(mounted);
        // Another process may have been quicker.
        if done.is_err() && !is_there(mounted)? {
            continue;
        }
        outcome = outcome.and(done);
    }
    outcome
}

/// Ends a mount by force: its users in all mount namespaces are cut off, and its server too.
///
/// # Errors
/// Fails if something else is mounted over or below it ([`Others`]), if it is gone, or if the user
/// is not root.
pub fn abort(mounted: &Mounted) -> io::Result<()> {
    stands_alone(mounted)?;
    drop(mounted.reach()?);
    let flags = UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    Ok(rustix::mount::unmount(&mounted.dir, flags)?)
}

/// A line of the kernel's table: number, parent, device, root, directory, options, further fields,
/// `-`, type, source, options of the file system.
struct Line<'t> {
    id: u64,
    parent: u64,
    device: Device,
    dir: &'t [u8],
    options: &'t [u8],
    fs_type: &'t [u8],
    source: &'t [u8],
}

impl<'t> Line<'t> {
    fn of(line: &'t [u8]) -> Option<Self> {
        let text = |word| std::str::from_utf8(word).ok();
        let mut words = line.split(|&b| b == b' ');
        let id = text(words.next()?)?.parse().ok()?;
        let parent = text(words.next()?)?.parse().ok()?;
        let device = text(words.next()?)?.parse().ok()?;
        let dir = words.nth(1)?;
        let options = words.next()?;
        let mut words = words.skip_while(|&word| word != b"-").skip(1);
        Some(Self {
            id,
            parent,
            device,
            dir,
            options,
            fs_type: words.next()?,
            source: words.next()?,
        })
    }
}

/// The mount of a line, if it is a Vellum mount.
fn parse(line: &[u8]) -> Option<Mounted> {
    let line = Line::of(line).filter(|line| line.fs_type == FS_TYPE.as_bytes())?;
    let mut options = line.options.split(|&b| b == b',');
    Some(Mounted {
        dir: path(line.dir),
        pool: path(line.source),
        read_only: options.any(|option| option == b"ro"),
        device: line.device,
        id: line.id,
    })
}

/// Decodes a path in which the table writes some bytes as a backslash and three octal digits.
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
        let line = b"36 25 0:41 / /mnt/a\\040b rw,nosuid shared:9 - fuse.vellum /srv/p\\134.img \
             rw,user_id=0";
        let expected = Mounted {
            dir: "/mnt/a b".into(),
            pool: "/srv/p\\.img".into(),
            read_only: false,
            device: Device {
                major: 0,
                minor: 41,
            },
            id: 36,
        };
        assert_eq!(parse(line), Some(expected));
        let other = b"36 25 0:41 / /mnt ro - tmpfs none rw";
        assert_eq!(parse(other), None);
        assert_eq!(parse(b""), None);
        let line = b"36 25 0:41 / /mnt ro,nodev - fuse.vellum /p rw";
        assert!(parse(line).is_some_and(|mounted| mounted.read_only));
    }
}
