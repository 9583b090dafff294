//! The kernel's table of mounts: finding the mounts of Vellum, and ending them.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::num::ParseIntError;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use vellum::PoolPath;
use vellum::media::processes;

/// The type that the kernel's table shows.
pub const FS_TYPE: &str = "fuse.vellum";
/// How the name of a thread that serves a mount begins; its device follows. The kernel keeps 15
/// bytes of a name, which is just enough.
const SERVES: &str = "fuse-";

/// A mounted pool, or file system of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Where.
    pub dir: PathBuf,
    /// What: the pool's path, or `POOL:NAME`.
    pub pool: PathBuf,
    /// Whether it is mounted read-only.
    pub read_only: bool,
    /// By which it is told from all others.
    pub device: Device,
    /// The kernel's number of this mount.
    id: u64,
}

/// What is mounted below a mount, in its mount namespace: nobody may take it away with that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Below {
    /// In the order in which they can be unmounted.
    mounts: Vec<Other>,
}

/// A mount of whatever type.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Other {
    dir: PathBuf,
    fs_type: String,
}

impl Below {
    /// What is below a mount by the kernel's table, which names the parent of each; gives nothing
    /// if nothing is.
    fn find(id: u64, table: &[u8]) -> Option<Self> {
        let lines = table.split(|&b| b == b'\n');
        let all: Vec<Line<'_>> = lines.filter_map(Line::of).collect();
        let mut found: Vec<&Line<'_>> = Vec::new();
        let mut parent = Some(id);
        let mut next = 0;
        while let Some(of) = parent {
            found.extend(all.iter().filter(|line| line.parent == of && line.id != of));
            parent = found.get(next).map(|line| line.id);
            next += 1;
        }
        let other = |line: &Line<'_>| Other {
            dir: path(line.dir),
            fs_type: String::from_utf8_lossy(line.fs_type).into_owned(),
        };
        // What lies deeper comes first.
        let mounts: Vec<_> = found.into_iter().rev().map(other).collect();
        (!mounts.is_empty()).then_some(Self { mounts })
    }

    /// The one that an error is about.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// The commands that take it off.
    pub fn commands(&self) -> String {
        let command = |other: &Other| {
            let program = match other.fs_type.as_str() {
                FS_TYPE => "vellum umount",
                _ => "umount",
            };
            format!("`{program} {}`", other.dir.display())
        };
        let commands: Vec<_> = self.mounts.iter().map(command).collect();
        commands.join(", ")
    }
}

impl fmt::Display for Below {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |other: &Other| format!("{} ({})", other.dir.display(), other.fs_type);
        let names: Vec<_> = self.mounts.iter().map(named).collect();
        let are = if names.len() == 1 { "is" } else { "are" };
        write!(f, "{} {are} mounted below it", names.join(", "))
    }
}

impl std::error::Error for Below {}

impl From<Below> for io::Error {
    fn from(below: Below) -> Self {
        Self::new(io::ErrorKind::ResourceBusy, below)
    }
}

/// The device number of a mounted file system. All its mounts have it, wherever they are moved or
/// copied to, and no other file system has as long as there is one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    major: u32,
    minor: u32,
}

impl Device {
    /// Of what is at a path now; no server is asked.
    ///
    /// # Errors
    /// There is nothing, or no permission to look.
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

    /// `MAJOR:MINOR`, as the kernel's table has it.
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
    /// Whether its server has ended without unmounting it: nothing there can be used.
    pub fn is_dead(&self) -> bool {
        is_dead(&self.dir)
    }
}

/// Whether a mount is at a path whose server has ended.
pub fn is_dead(path: &Path) -> bool {
    // The second is what who asked is told while it ends.
    let ended = [Errno::NOTCONN, Errno::CONNABORTED];
    rustix::fs::statfs(path).is_err_and(|errno| ended.contains(&errno))
}

/// A mount in another mount namespace, and a process that has it there.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// The mount, as that process sees it.
    pub mounted: Mounted,
    /// The process, the first of its namespace.
    pub pid: u32,
}

impl Elsewhere {
    /// Where the mount is found from here.
    pub fn root(&self) -> PathBuf {
        let below = self.mounted.dir.strip_prefix("/").unwrap_or(Path::new(""));
        PathBuf::from(format!("/proc/{}/root", self.pid)).join(below)
    }
}

/// Every mount of Vellum, oldest first.
///
/// # Errors
/// The kernel's table cannot be read.
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

/// Every mount of Vellum in other mount namespaces, as far as this user may look into them.
///
/// # Errors
/// The processes cannot be listed.
pub fn elsewhere() -> io::Result<Vec<Elsewhere>> {
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt"));
    let mut seen = vec![namespace("self")?];
    let mut found = Vec::new();
    for pid in processes()? {
        let name = pid.to_string();
        // Others' are not shown to everybody, and processes end.
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

/// What the thread that serves a mount is called: where no mount namespace shows the mount any
/// more, this is how others know whose process it is, and what it serves.
pub(crate) fn thread_that_serves(device: Device) -> String {
    format!("{SERVES}{device}")
}

/// The file systems that a process serves.
pub fn served_by(pid: u32) -> Vec<Device> {
    let names = threads_of(pid).into_iter();
    let devices = names.filter_map(|name| name.strip_prefix(SERVES)?.parse().ok());
    devices.collect()
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
    /// The links in `/proc` that lead to these files, with the file system of each.
    pub links: Vec<(Device, PathBuf)>,
}

/// The processes, beside the one that asks, that use files of these file systems, in whatever mount
/// namespace, as far as this user may look. No server is asked.
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

/// The mount at a directory, the latest if there are several.
///
/// # Errors
/// As for [`list`].
pub fn at(dir: &Path) -> io::Result<Option<Mounted>> {
    Ok(list()?.into_iter().rev().find(|mounted| mounted.dir == dir))
}

/// The mount that a path leads into, of this mount namespace.
///
/// # Errors
/// There is nothing at the path. As for [`list`].
pub fn around(path: &Path) -> io::Result<Option<Mounted>> {
    let path = path.canonicalize()?;
    let device = Device::at(&path)?;
    let is_around = |mounted: &Mounted| mounted.device == device && path.starts_with(&mounted.dir);
    Ok(list()?.into_iter().rev().find(is_around))
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

/// Makes sure that nothing is mounted below a mount of this mount namespace.
///
/// # Errors
/// Something is: [`Below`]. As for [`list`].
pub fn nothing_below(mounted: &Mounted) -> io::Result<()> {
    match Below::find(mounted.id, &table_of("self")?) {
        Some(below) => Err(below.into()),
        None => Ok(()),
    }
}

/// Ends a mount, if nobody uses it.
///
/// # Errors
/// It is in use (EBUSY; [`Below`] if something is mounted below it), something else is mounted over
/// it or it is gone, no permission.
pub fn unmount(mounted: &Mounted) -> io::Result<()> {
    let dir = &mounted.dir;
    if Device::at(dir)? != mounted.device {
        return Err(covered());
    }
    let done = match rustix::mount::unmount(dir, UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        // Only root may; fusermount3 lets the owner of a mount.
        Err(Errno::PERM) => unmount_as_user(dir, false),
        Err(errno) => Err(errno.into()),
    };
    match done {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            nothing_below(mounted).and(Err(error))
        }
        done => done,
    }
}

/// Takes a mount from the tree of names at once, and no other that is at its path by now.
///
/// # Errors
/// Something else is mounted over it or below it ([`Below`]), or it is gone, no permission.
pub fn detach(mounted: &Mounted) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(&mounted.dir, flags, Mode::empty())?;
    if Device::of(&root, Path::new(""), AtFlags::EMPTY_PATH)? != mounted.device {
        return Err(covered());
    }
    // The kernel would take that along.
    nothing_below(mounted)?;
    // By the descriptor: what is mounted at the path meanwhile is left alone.
    let exactly = format!("/proc/self/fd/{}", root.as_raw_fd());
    match rustix::mount::unmount(exactly, UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => unmount_as_user(&mounted.dir, true),
        Err(errno) => Err(errno.into()),
    }
}

/// Takes every mount of a file system, of this pool, that is in this mount namespace from the tree
/// of names, wherever it has been moved. (The number alone is another's as soon as the last mount
/// is gone.)
///
/// # Errors
/// As for [`list`] and [`detach`]; the first that fails does not keep the others.
pub fn detach_all(device: Device, pool: &Path) -> io::Result<()> {
    let mut outcome = Ok(());
    for mounted in list()?
        .iter()
        .rev()
        .filter(|mounted| mounted.device == device && mounted.pool == pool)
    {
        outcome = outcome.and(detach(mounted));
    }
    outcome
}

/// Ends a mount by force: whoever uses it, in whatever namespace, is cut off, its server too.
///
/// # Errors
/// Something else is mounted over it or below it ([`Below`]), or it is gone, no permission: only
/// root may.
pub fn abort(mounted: &Mounted) -> io::Result<()> {
    if Device::at(&mounted.dir)? != mounted.device {
        return Err(covered());
    }
    nothing_below(mounted)?;
    let flags = UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    Ok(rustix::mount::unmount(&mounted.dir, flags)?)
}

fn covered() -> io::Error {
    io::Error::other("something else is mounted over it: unmount that first")
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

/// The mount of a line, if it is one of ours.
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

    #[test]
    fn what_is_below_a_mount_can_be_unmounted_in_the_order_it_is_told_in() {
        let table = b"\
            36 25 0:41 / /m rw shared:9 - fuse.vellum /p.img rw\n\
            38 37 0:43 / /m/a/b rw - fuse.vellum /q.img rw\n\
            37 36 0:42 / /m/a\\040c rw - tmpfs none rw\n\
            39 25 0:44 / /n rw - tmpfs none rw\n\
            1 1 0:2 / / rw - rootfs none rw\n";
        let below = Below::find(36, table).expect("two");
        assert_eq!(
            below.to_string(),
            "/m/a/b (fuse.vellum), /m/a c (tmpfs) are mounted below it"
        );
        assert_eq!(below.commands(), "`vellum umount /m/a/b`, `umount /m/a c`");
        for nothing in [38, 39, 1] {
            assert_eq!(Below::find(nothing, table), None);
        }
        let error = io::Error::from(below.clone());
        assert_eq!(Below::of(&error), Some(&below));
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(Below::of(&io::ErrorKind::ResourceBusy.into()), None);
    }
}
