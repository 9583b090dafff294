//! Mounts and unmounts: by the system call, or by `fusermount3` for users who may not use that.

use std::ffi::CString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use thiserror::Error;

/// The helper that mounts for users. It sends the connection to the socket that
/// `_FUSE_COMMFD` names.
const HELPER: &str = "fusermount3";

/// What the kernel knows of a mount.
#[derive(Clone, Debug)]
pub struct Mount<'m> {
    /// The source that the mount table shows.
    pub source: &'m str,
    /// The type that the mount table shows: `fuse`, or `fuse.` with a name.
    pub fs_type: &'m str,
    /// Users other than the mounting one may use the mount.
    pub allow_other: bool,
    /// The flags of any mount.
    pub flags: MountFlags,
}

/// Why a directory could not be mounted on.
#[derive(Debug, Error)]
pub enum MountError {
    /// `/dev/fuse` cannot be opened.
    #[error("cannot open /dev/fuse: {0}")]
    Device(io::Error),
    /// `fusermount3` is missing, or cannot be run.
    #[error("cannot run fusermount3: {0}")]
    Helper(io::Error),
    /// The kernel or `fusermount3` refused the mount.
    #[error(transparent)]
    Refused(io::Error),
}

/// Mounts on a directory, by the system call or else by `fusermount3`. Returns the connection to
/// the kernel. The kernel checks permissions.
///
/// # Errors
/// See [`MountError`].
pub fn mount(dir: &Path, mount: &Mount<'_>) -> Result<OwnedFd, MountError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/fuse", flags, Mode::empty())
        .map_err(|errno| MountError::Device(errno.into()))?;
    match mount_directly(&device, dir, mount) {
        Ok(()) => Ok(device),
        // Only root may do that.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => {
            drop(device);
            mount_by_helper(dir, mount)
        }
        Err(error) => Err(MountError::Refused(error)),
    }
}

fn mount_directly(device: &OwnedFd, dir: &Path, mount: &Mount<'_>) -> io::Result<()> {
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if mount.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data)?;
    let Mount {
        source,
        fs_type,
        flags,
        ..
    } = *mount;
    Ok(rustix::mount::mount(
        source,
        dir,
        fs_type,
        flags,
        data.as_c_str(),
    )?)
}

/// The same options for the helper, which knows fewer of them.
fn options(mount: &Mount<'_>) -> String {
    let source = mount.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut options = format!("fsname={source}");
    if let Some(subtype) = mount.fs_type.strip_prefix("fuse.") {
        options += ",subtype=";
        options += subtype;
    }
    let has = |flag| mount.flags.contains(flag);
    for (wanted, option) in [
        (true, ",default_permissions"),
        (has(MountFlags::RDONLY), ",ro"),
        (!has(MountFlags::NOSUID), ",suid"),
        (!has(MountFlags::NODEV), ",dev"),
        (has(MountFlags::NOEXEC), ",noexec"),
        (has(MountFlags::NOATIME), ",noatime"),
        (has(MountFlags::NOSYMFOLLOW), ",nosymfollow"),
        (mount.allow_other, ",allow_other"),
    ] {
        if wanted {
            options += option;
        }
    }
    options
}

fn mount_by_helper(dir: &Path, mount: &Mount<'_>) -> Result<OwnedFd, MountError> {
    let refused = MountError::Refused;
    let (ours, theirs) = UnixStream::pair().map_err(refused)?;
    let mut command = Command::new(HELPER);
    command
        .args(["-o", &options(mount), "--"])
        .arg(dir)
        // Its standard input is the socket.
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let helper = command.spawn().map_err(MountError::Helper)?;
    // Only the helper holds the socket now, so that its end is seen.
    drop(command);
    let received = receive(&ours);
    drop(ours);
    let output = helper.wait_with_output().map_err(refused)?;
    received.map_err(refused)?.ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        refused(io::Error::other(said))
    })
}

/// The descriptor that arrives at a socket; `None` if the other side has ended without one.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    rustix::io::retry_on_intr(|| {
        let parts = &mut [IoSliceMut::new(&mut byte)];
        rustix::net::recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let received = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(received)
}

/// Unmounts a directory, by the system call or else by `fusermount3`, which does it for the owner
/// of a mount.
///
/// # Errors
/// Fails if nothing is mounted there, if it is in use (`ResourceBusy`), or without permission.
pub fn unmount(dir: &Path, flags: UnmountFlags) -> io::Result<()> {
    match rustix::mount::unmount(dir, flags) {
        Err(Errno::PERM) => unmount_by_helper(dir, flags.contains(UnmountFlags::DETACH)),
        done => Ok(done?),
    }
}

/// The same by `fusermount3` alone.
///
/// # Errors
/// As [`unmount`].
pub fn unmount_by_helper(dir: &Path, detach: bool) -> io::Result<()> {
    let mut command = Command::new(HELPER);
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

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::os::fd::AsFd;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

    use super::*;

    #[test]
    fn the_helper_gets_the_flags_as_options() {
        let mut mount = Mount {
            source: r"/a,b\c",
            fs_type: "fuse.vellum",
            allow_other: false,
            flags: MountFlags::NOSUID | MountFlags::NODEV,
        };
        let start = r"fsname=/a\,b\\c,subtype=vellum,default_permissions";
        assert_eq!(options(&mount), start);
        mount.allow_other = true;
        mount.flags = MountFlags::RDONLY | MountFlags::NOEXEC | MountFlags::NOATIME;
        let all = format!("{start},ro,suid,dev,noexec,noatime,allow_other");
        assert_eq!(options(&mount), all);
        (mount.fs_type, mount.source) = ("fuse", "x");
        assert!(options(&mount).starts_with("fsname=x,default_permissions,"));
    }

    #[test]
    fn a_descriptor_is_received_or_the_end_is_seen() {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let sent = [theirs.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&sent)));
        let parts = [IoSlice::new(&[0])];
        rustix::net::sendmsg(&theirs, &parts, &mut control, SendFlags::empty()).expect("sent");
        assert!(receive(&ours).expect("received").is_some());
        drop(theirs);
        assert!(receive(&ours).expect("the end").is_none());
    }
}
