//! The life of a mount, from mounting to its end.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::MountFlags as KernelFlags;
use thiserror::Error;
use vellum::{AccessPolicy, AccessTimes, RealFs};
use vellum_transport::{Door, Mount, MountError, REQUEST_MAX_BYTES, SWITCH, Switch, Wanted};

use crate::adapter::{Adapter, Waits};
use crate::config::{MountConfig, Uring};
use crate::control::{Connection, ControlChannel};
use crate::mounts::{self, Device, Others};
use crate::server::Server;
use crate::stale::Stale;

/// How long users may finish after a request to end the mount, before they are cut off.
const GRACE: Duration = Duration::from_secs(10);
/// The interval at which an ending mount checks whether something is still mounted over or below
/// it.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Why a directory could not be mounted on.
#[derive(Debug, Error)]
pub enum Error {
    /// The directory cannot be used.
    #[error("cannot mount on {}: {}", dir.display(), plain(source))]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Every process needs the directory, including that of the mount.
    #[error("cannot mount on {}: all processes, including that of the mount, need this directory: \
             choose another one", .0.display())]
    Needed(PathBuf),
    /// A pool is mounted there.
    #[error(
        "{} is mounted on {} already: unmount it first, or choose another directory",
        pool.display(), dir.display()
    )]
    Mounted {
        /// The directory.
        dir: PathBuf,
        /// The pool.
        pool: PathBuf,
    },
    /// A mount whose process has ended is there, and it cannot be cleared.
    #[error(
        "the mount on {} is dead, its process has ended, and it cannot be cleared: {}",
        dir.display(), plain(source)
    )]
    Dead {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A pool is mounted there, and something else is mounted over it.
    #[error("{} is mounted on {} already, and {}", pool.display(), dir.display(), plain(source))]
    Hidden {
        /// The directory.
        dir: PathBuf,
        /// The pool.
        pool: PathBuf,
        /// What is mounted over it ([`Others`]).
        source: io::Error,
    },
    /// The kernel has no FUSE, or the user may not use it.
    #[error("cannot open /dev/fuse ({}): {}", plain(.0), what_it_needs(.0))]
    Device(io::Error),
    /// Users other than root mount by `fusermount3`, which cannot be run.
    #[error("cannot mount on {}: fusermount3 cannot be run: {}", dir.display(), plain(source))]
    Helper {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel refused the mount.
    #[error("the kernel refuses to mount on {}: {}", dir.display(), plain(source))]
    Refused {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Requests were to come by io_uring, and cannot.
    #[error("the kernel does not send requests by io_uring: {0}")]
    Ring(String),
    /// The session with the kernel could not be started, or it failed.
    #[error("the session with the kernel failed: {0}")]
    Session(io::Error),
}

/// The text of an error, without the number that `std` adds.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error ").next().unwrap_or(&text).to_owned()
}

/// What to do if `/dev/fuse` cannot be opened for this reason.
fn what_it_needs(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS) => {
            let has = std::fs::metadata("/dev/fuse").map_or_else(
                |_| String::new(),
                |found| {
                    let mode = found.mode() & 0o7777;
                    format!("its mode is {mode:04o}, its owner {}; ", found.uid())
                },
            );
            format!(
                "{has}this user has no permission for it; root can grant it (chmod 666 /dev/fuse, \
                 which is usual)"
            )
        }
        Some(Errno::PERM) => {
            "a container needs the device (docker run --device /dev/fuse --cap-add SYS_ADMIN)"
                .into()
        }
        _ => "the kernel needs FUSE (modprobe fuse), and a container needs the device (docker run \
             --device /dev/fuse --cap-add SYS_ADMIN)"
            .into(),
    }
}

/// How a mount ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was unmounted, and all users had finished.
    Finished,
    /// It was stopped, and users that did not finish in time were cut off.
    CutOff,
}

enum Event {
    /// The kernel has no more requests.
    Over(io::Result<()>),
    /// The mount is to end.
    Stop,
}

/// A mounted file system, served by threads of this process.
#[derive(Debug)]
pub struct Session {
    server: Arc<Server>,
    dir: PathBuf,
    /// The number by which its mounts are found, wherever they have been moved.
    device: Device,
    fs_name: PathBuf,
    connection: Connection,
    events: Receiver<Event>,
    stopper: Stopper,
}

/// Ends a mount, from any thread.
#[derive(Clone, Debug)]
pub struct Stopper(Sender<Event>);

impl Stopper {
    /// Ends the mount: it is detached, and its users are cut off after ten seconds. A second call
    /// cuts them off at once.
    pub fn stop(&self) {
        // Without a receiver, the mount has ended.
        let _ = self.0.send(Event::Stop);
    }

    /// Ends the mount at once, and cuts its users off.
    pub fn cut_off(&self) {
        self.stop();
        self.stop();
    }

    /// A stopper without a mount.
    #[cfg(test)]
    pub(crate) fn unheard() -> Self {
        Self(channel().0)
    }
}

/// Mounts a file system on a directory and serves it until [`Session::wait`] returns.
///
/// # Errors
/// See [`Error`](enum@Error).
pub fn mount(fs: Arc<RealFs>, dir: &Path, config: &MountConfig) -> Result<Session, Error> {
    let unusable = |source| Error::Directory {
        dir: dir.to_owned(),
        source,
    };
    let dir = dir.canonicalize().map_err(unusable)?;
    if is_needed(&dir) {
        return Err(Error::Needed(dir));
    }
    clear(&dir)?;
    if !dir.is_dir() {
        return Err(unusable(io::ErrorKind::NotADirectory.into()));
    }
    if config.uring == Uring::On {
        turn_on_ring()?;
    }
    let waits = Waits::of(&fs);
    let server = Arc::new(Server::new(fs));
    let (sender, events) = channel();
    let stopper = Stopper(sender.clone());
    let refused = |source| Error::Refused {
        dir: dir.clone(),
        source,
    };
    let asked = Mount {
        source: &config.fs_name,
        fs_type: mounts::FS_TYPE,
        allow_other: config.allow_other,
        flags: kernel_flags(config),
    };
    let connection = vellum_transport::mount(&dir, &asked).map_err(|error| match error {
        MountError::Device(source) => Error::Device(source),
        MountError::Helper(source) => Error::Helper {
            dir: dir.clone(),
            source,
        },
        MountError::Refused(source) => refused(source),
    })?;
    let fs_name = PathBuf::from(&config.fs_name);
    let device = Device::at(&dir).map_err(refused)?;
    let wanted = Wanted {
        ring: config.uring != Uring::Off,
        writeback: config.writeback,
        lists: config.xattrs,
    };
    let started = vellum_transport::Session::start(connection, wanted);
    let session = started.map_err(refused).and_then(|session| {
        if config.uring == Uring::On && session.door() != Door::Ring {
            return Err(Error::Ring("it refuses to".into()));
        }
        Ok(session)
    });
    let session = session.inspect_err(|_| drop(mounts::detach_all(device, &fs_name)))?;
    let (stale, cached) = Stale::new();
    let connection = Connection {
        door: session.door(),
        counts: session.counts(),
    };
    let adapter = Adapter {
        server: Arc::clone(&server),
        open_requests: config.open_requests,
        xattrs: config.xattrs,
        control: ControlChannel::new(config.answers.clone(), connection.clone(), stopper.clone()),
        stale,
        kernel: session.notifier(),
        waits,
        gathers: config.writeback,
    };
    if waits.reads {
        read_ahead(device);
    }
    let kernel = session.notifier();
    let threads = config.threads;
    let (aborted, failed) = (fs_name.clone(), stopper.clone());
    let abort = move || {
        // Only root may abort it. Then its users wait until this process has ended.
        if mounts::abort_all(device, &aborted).is_err() {
            failed.cut_off();
        }
    };
    std::thread::Builder::new()
        .name("vellum-stale".into())
        .spawn(move || cached.serve(&kernel))
        .map_err(Error::Session)?;
    std::thread::Builder::new()
        .name(mounts::thread_that_serves(device))
        .spawn(move || {
            // The receiver may be gone already.
            let _ = sender.send(Event::Over(session.run(&adapter, threads, &abort)));
        })
        .map_err(Error::Session)?;
    Ok(Session {
        server,
        dir,
        device,
        fs_name,
        connection,
        events,
        stopper,
    })
}

/// Turns the kernel's switch on.
fn turn_on_ring() -> Result<(), Error> {
    match Switch::now() {
        Switch::On => Ok(()),
        Switch::Missing => Err(Error::Ring(
            "it needs Linux 6.14, built with CONFIG_FUSE_IO_URING".into(),
        )),
        Switch::Off => {
            let refused = |error| {
                let text = plain(&error);
                Error::Ring(format!("its switch {SWITCH} is off, and stays so: {text}"))
            };
            Switch::turn_on().map_err(refused)?;
            tracing::warn!("turned on {SWITCH}: FUSE mounts from now on can use io_uring");
            Ok(())
        }
    }
}

/// Has the kernel read ahead as much as a request can have. Only root may set this.
fn read_ahead(device: Device) {
    let path = format!("/sys/class/bdi/{device}/read_ahead_kb");
    let kib = REQUEST_MAX_BYTES >> 10;
    if let Err(error) = std::fs::write(&path, kib.to_string()) {
        tracing::debug!(%error, path, "the kernel's read-ahead stays as it is");
    }
}

/// Whether the process of a mount needs this absolute path itself: it finds its own descriptors and
/// mounts in `/proc`.
fn is_needed(dir: &Path) -> bool {
    let is_all_of = |kernels: &str| dir.starts_with(kernels);
    dir == Path::new("/")
        || dir == Path::new("/dev")
        || ["/proc", "/sys"].into_iter().any(is_all_of)
}

/// Checks that no Vellum pool is mounted on a directory. Removes a dead mount there.
fn clear(dir: &Path) -> Result<(), Error> {
    while let Ok(Some(mounted)) = mounts::at(dir) {
        let pool = mounted.pool.clone();
        if !mounted.is_dead() {
            let dir = dir.to_owned();
            return Err(match mounts::stands_alone(&mounted) {
                Err(source) if mounted.is_hidden() => Error::Hidden { dir, pool, source },
                _ => Error::Mounted { dir, pool },
            });
        }
        mounts::detach(&mounted).map_err(|source| Error::Dead {
            dir: dir.to_owned(),
            source,
        })?;
        tracing::warn!(dir = %dir.display(), pool = %pool.display(), "cleared a mount whose \
                                                                      process had ended");
    }
    Ok(())
}

/// The options of a mount that the kernel knows.
pub(crate) fn kernel_flags(config: &MountConfig) -> KernelFlags {
    let mut flags = KernelFlags::empty();
    flags.set(KernelFlags::RDONLY, config.read_only);
    flags.set(KernelFlags::NOSUID, !config.flags.suid);
    flags.set(KernelFlags::NODEV, !config.flags.dev);
    flags.set(KernelFlags::NOEXEC, config.flags.no_exec);
    let AccessTimes {
        policy,
        of_directories,
    } = config.flags.access_times;
    flags.set(KernelFlags::NOATIME, policy == AccessPolicy::Never);
    flags.set(KernelFlags::STRICTATIME, policy == AccessPolicy::Strict);
    flags.set(KernelFlags::NODIRATIME, !of_directories);
    flags.set(KernelFlags::LAZYTIME, config.flags.lazy_times);
    flags.set(KernelFlags::NOSYMFOLLOW, config.flags.no_symlinks);
    flags
}

impl Session {
    /// The directory of the mount.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The device number of its mounts, which no others have.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The way of the kernel's requests, and their counts.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// A handle that ends the mount from any thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// The number of files that the kernel knows.
    pub fn known_files(&self) -> usize {
        self.server.known_files()
    }

    /// Waits until the mount has ended, because it was unmounted or stopped. When this returns, no
    /// request is in flight and no file is held, so that the pool can be closed.
    ///
    /// # Errors
    /// Fails if the session with the kernel failed.
    pub fn wait(self) -> Result<End, Error> {
        let over = match self.events.recv() {
            Ok(Event::Over(result)) => Some(result),
            Ok(Event::Stop) => self.end(),
            // Both senders live in `self` and the session's thread.
            Err(_) => None,
        };
        self.server.close();
        match over {
            Some(Ok(())) => Ok(End::Finished),
            Some(Err(source)) => Err(Error::Session(source)),
            None => Ok(End::CutOff),
        }
    }

    /// Unmounts. Returns `None` if users had to be cut off. As with umount(8), the mount stays
    /// while something is mounted over or below it; after the last attempt it stays there, dead.
    fn end(&self) -> Option<io::Result<()>> {
        let until = Instant::now() + GRACE;
        let mut is_told = false;
        loop {
            let unmounted = mounts::detach_all(self.device, &self.fs_name);
            if let Err(error) = &unmounted
                && !is_told
            {
                tracing::warn!(%error, dir = %self.dir.display(), "cannot unmount");
                is_told = true;
            }
            let is_waited_for = |error: &io::Error| Others::of(error).is_some();
            let left = until.saturating_duration_since(Instant::now());
            let pause = match &unmounted {
                Err(error) if is_waited_for(error) => left.min(LOOK_AGAIN),
                _ => left,
            };
            match self.events.recv_timeout(pause) {
                Ok(Event::Over(result)) => return Some(result),
                Err(RecvTimeoutError::Timeout) if pause < left => {}
                Ok(Event::Stop) | Err(_) => {
                    let left = match unmounted {
                        Err(error) => format!("users cut off, mount left where it is: {error}"),
                        Ok(()) => "files were still in use: users cut off".to_owned(),
                    };
                    tracing::warn!(dir = %self.dir.display(), "{left}");
                    return None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mount fails before anything is mounted.
    #[test]
    fn directories_that_every_process_needs_are_refused() {
        for dir in [
            "/",
            "/dev",
            "/proc",
            "/proc/1",
            "/proc/sys/fs",
            "/sys",
            "/sys/fs",
        ] {
            assert!(is_needed(Path::new(dir)), "{dir}");
        }
        for dir in ["/mnt", "/dev/shm/mnt", "/process", "/system/a", "/srv/proc"] {
            assert!(!is_needed(Path::new(dir)), "{dir}");
        }
        let said = Error::Needed("/proc".into()).to_string();
        assert!(said.contains("cannot mount on /proc"), "{said}");
    }

    #[test]
    fn a_denied_device_is_reported_without_advice_about_modules() {
        let told = |errno: Errno| Error::Device(errno.into()).to_string();
        let denied = told(Errno::ACCESS);
        assert!(denied.contains("no permission"), "{denied}");
        assert!(told(Errno::PERM).contains("--device"));
        for denied in [denied, told(Errno::PERM)] {
            assert!(!denied.contains("modprobe"), "{denied}");
        }
        for missing in [Errno::NOENT, Errno::NODEV, Errno::NXIO] {
            assert!(told(missing).contains("modprobe fuse"));
        }
    }
}
