//! Peers: directories of other file systems, and ext4 file systems created for the run.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Result;
use crate::error::doing;
use crate::kernel::Kernel;
use crate::ops::Label;
use crate::scratch::dir_in;

/// Stands for an ext4 in memory in the list of peers.
pub(crate) const EXT4_RAM: &str = "ext4-ram";
/// The prefix of a directory that stands for an ext4 on a loop device over a file there.
const EXT4_ON: &str = "ext4-on:";

/// Where the ext4 in memory keeps its image.
pub(crate) const MEMORY_DIR: &str = "/dev/shm";

/// The name of an ext4 on a loop device over a file in `dir`, for the list of peers.
pub(crate) fn ext4_on(dir: &Path) -> String {
    format!("{EXT4_ON}{}", dir.display())
}

/// The kind of an ext4 on a loop device.
pub(crate) const EXT4_LOOP: &str = "ext4 on loop";

const TMPFS_MAGIC: u64 = 0x0102_1994;
const EXT4_MAGIC: u64 = 0xEF53;
const XFS_MAGIC: u64 = 0x5846_5342;
const BTRFS_MAGIC: u64 = 0x9123_683E;
const OVERLAY_MAGIC: u64 = 0x794C_7630;
const FUSE_MAGIC: u64 = 0x6573_5546;
/// The device number of loop devices.
const LOOP_MAJOR: u32 = 7;

/// A file system to compare with.
pub(crate) struct Peer {
    /// The name that the user gave.
    pub(crate) name: String,
    /// The type of file system; `ext4 on loop` differs from `ext4`.
    pub(crate) kind: &'static str,
    pub(crate) kernel: Kernel,
    // Field order: the directory is removed before the file system that holds it.
    dir: TempDir,
    _ext4: Option<Ext4Loop>,
}

impl Peer {
    /// Creates a directory in the directory `name`, or in a new ext4 of `image_bytes`, in memory or
    /// where the name says.
    pub(crate) fn new(name: &str, image_bytes: u64) -> Result<Self> {
        Self::mounted(name, image_bytes, Mounting::default())
    }

    /// The same, where a new ext4 is mounted with `how`. An existing directory is used as it is
    /// mounted.
    pub(crate) fn mounted(name: &str, image_bytes: u64, how: Mounting<'_>) -> Result<Self> {
        let image_dir = match name {
            EXT4_RAM => Some(MEMORY_DIR),
            _ => name.strip_prefix(EXT4_ON),
        };
        let ext4 = image_dir
            .map(|dir| Ext4Loop::new(Path::new(dir), image_bytes, how))
            .transpose()?;
        let parent = ext4.as_ref().map_or(Path::new(name), Ext4Loop::dir);
        let dir = dir_in(parent)?;
        let kind = kind_of(dir.path())?;
        Ok(Self {
            name: name.to_owned(),
            kind,
            kernel: Kernel::new(dir.path().to_owned()),
            dir,
            _ext4: ext4,
        })
    }
}

impl Peer {
    /// The directory for the measurement.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The label of rows.
    pub(crate) fn label(&self) -> Label {
        Label {
            name: self.name.clone(),
            kind: self.kind.into(),
        }
    }
}

fn kind_of(dir: &Path) -> Result<&'static str> {
    let what = || format!("look at {}", dir.display());
    let stat = rustix::fs::stat(dir).map_err(doing(what()))?;
    let magic = rustix::fs::statfs(dir).map_err(doing(what()))?.f_type as u64;
    Ok(match magic {
        TMPFS_MAGIC => "tmpfs",
        EXT4_MAGIC if rustix::fs::major(stat.st_dev) == LOOP_MAJOR => EXT4_LOOP,
        EXT4_MAGIC => "ext4",
        XFS_MAGIC => "xfs",
        BTRFS_MAGIC => "btrfs",
        OVERLAY_MAGIC => "overlay",
        FUSE_MAGIC => "fuse",
        _ => "other",
    })
}

/// How a new ext4 is created and mounted.
#[derive(Clone, Copy)]
pub(crate) struct Mounting<'o> {
    /// Options of mount(8).
    pub(crate) options: &'o str,
    /// Whether the loop device bypasses the cache of the underlying file, so that only the cache of
    /// ext4 itself is in memory.
    pub(crate) is_cached_once: bool,
    /// The number of inodes, if not the default for the size.
    pub(crate) inodes: Option<usize>,
}

impl Default for Mounting<'_> {
    fn default() -> Self {
        Self {
            options: "defaults",
            is_cached_once: false,
            inodes: None,
        }
    }
}

/// An ext4 on a loop device over a file. When it is dropped, every step of its setup that was done
/// is undone.
pub(crate) struct Ext4Loop {
    image: PathBuf,
    device: Option<String>,
    mount: PathBuf,
    is_mounted: bool,
}

impl Ext4Loop {
    pub(crate) fn new(dir: &Path, image_bytes: u64, how: Mounting<'_>) -> Result<Self> {
        let mut ext4 = Self::of(dir, "ext4");
        ext4.make(image_bytes, how.inodes)?;
        ext4.attach(how)?;
        Ok(ext4)
    }

    /// An ext4 of this name, before its setup.
    fn of(dir: &Path, name: &str) -> Self {
        let mount = dir.join(format!("vellum-bench-{name}-{}", std::process::id()));
        Self {
            image: mount.with_extension("img"),
            device: None,
            mount,
            is_mounted: false,
        }
    }

    fn make(&self, image_bytes: u64, inodes: Option<usize>) -> Result<()> {
        let image = self.image.display().to_string();
        let file = File::create_new(&self.image).map_err(doing(format!("make {image}")))?;
        // Makes every page present before anything is timed.
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&file, flags, 0, image_bytes)
            .map_err(doing(format!("allocate {image_bytes} bytes for {image}")))?;
        drop(file);
        let at_once = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        let inodes = inodes.map(|inodes| format!("-N{inodes}"));
        let mut options = vec!["-q", "-F", "-E", at_once];
        options.extend(inodes.as_deref());
        options.push(&image);
        tool("mkfs.ext4", &options).map(drop)
    }

    /// Mounts the image; returns the time of mounting, without that of the loop device.
    fn attach(&mut self, how: Mounting<'_>) -> Result<Duration> {
        let image = self.image.display().to_string();
        let passing = if how.is_cached_once { "on" } else { "off" };
        let direct = format!("--direct-io={passing}");
        let device = tool("losetup", &["--find", "--show", &direct, &image])?;
        self.device = Some(device.clone());
        std::fs::create_dir(&self.mount).map_err(doing("make a mount point"))?;
        let mount = self.mount.display().to_string();
        let begin = Instant::now();
        tool("mount", &["-t", "ext4", "-o", how.options, &device, &mount])?;
        let time = begin.elapsed();
        self.is_mounted = true;
        Ok(time)
    }

    /// Unmounts, and detaches the loop device.
    fn detach(&mut self) -> Result<()> {
        if self.is_mounted {
            tool("umount", &[&self.mount.display().to_string()])?;
            self.is_mounted = false;
        }
        if let Some(device) = &self.device {
            tool("losetup", &["--detach", device])?;
            self.device = None;
        }
        std::fs::remove_dir(&self.mount).map_err(doing("remove a mount point"))
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.mount
    }

    /// Unmounts, changes the image, and mounts again; returns the time of mounting.
    pub(crate) fn remount(
        &mut self,
        between: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Duration> {
        self.detach()?;
        between(&self.image)?;
        self.attach(Mounting::default())
    }

    /// The time of mounting what a power cut would leave now: the current image, once `change` was
    /// applied to it.
    pub(crate) fn mount_as_cut(
        &self,
        before: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Duration> {
        let dir = self.mount.parent().unwrap_or(Path::new(""));
        let mut cut = Self::of(dir, "ext4-cut");
        let [from, to] = [&self.image, &cut.image].map(|image| image.display().to_string());
        tool("cp", &[&from, &to])?;
        before(&cut.image)?;
        cut.attach(Mounting::default())
    }
}

impl Drop for Ext4Loop {
    fn drop(&mut self) {
        if let Err(error) = self.detach()
            && self.mount.exists()
        {
            crate::report::note(error);
        }
        // A file that was never created cannot be removed.
        let _ = std::fs::remove_file(&self.image);
    }
}

/// Runs a program of the system, which may be the superuser's; returns its trimmed output.
fn tool(program: &str, arguments: &[&str]) -> Result<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{path}:/usr/sbin:/sbin:/usr/bin:/bin");
    crate::tool::run(Command::new(program).args(arguments).env("PATH", path))
}
