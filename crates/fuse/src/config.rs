//! The options of a mount.

use std::sync::Arc;

use vellum::AccessTimes;

use crate::control::Answers;

/// The options of a mount.
#[derive(Clone)]
pub struct MountConfig {
    /// The kernel rejects every change.
    pub read_only: bool,
    /// The source that the mount table shows: the pool's path, by which a mount is found again.
    pub fs_name: String,
    /// Users other than the mounting one may use the mount. The kernel checks permission bits in
    /// any case.
    pub allow_other: bool,
    /// The number of threads that serve requests, at least one.
    pub threads: usize,
    /// Have the kernel send a request for every `open` and `close`, for measurements. If false, the
    /// first `open` is answered with "not needed", and the kernel then opens files without a
    /// request.
    pub open_requests: bool,
    /// Whether the kernel sends requests by io_uring.
    pub uring: Uring,
    /// The kernel gathers writes to open files in its page cache. What it has not written back is
    /// lost with the process of the mount.
    pub writeback: bool,
    /// The mount has extended attributes and access control lists. Without them the kernel asks for
    /// none before it writes to a file and when it checks permissions.
    pub xattrs: bool,
    /// Further options of the mount.
    pub flags: MountFlags,
    /// The answers to requests on the control channel.
    pub answers: Option<Arc<Answers>>,
}

/// Whether the kernel sends requests by io_uring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Uring {
    /// If it offers that.
    #[default]
    Auto,
    /// Yes, or there is no mount. Its switch is turned on if it is off, which only root may do.
    On,
    /// No.
    Off,
}

/// Options of any mount, as in mount(8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountFlags {
    /// Set-id bits have an effect.
    pub suid: bool,
    /// Device files work.
    pub dev: bool,
    /// Programs cannot be run.
    pub no_exec: bool,
    /// When reading updates access times. The pool has the same option.
    pub access_times: AccessTimes,
    /// Times may be written later than they change.
    pub lazy_times: bool,
    /// Symbolic links are not followed.
    pub no_symlinks: bool,
}

impl Default for MountConfig {
    fn default() -> Self {
        Self {
            read_only: false,
            fs_name: "vellum".into(),
            allow_other: rustix::process::geteuid().is_root(),
            threads: std::thread::available_parallelism()
                .map_or(2, usize::from)
                .clamp(2, 16),
            open_requests: false,
            uring: Uring::Auto,
            writeback: false,
            xattrs: true,
            flags: MountFlags::default(),
            answers: None,
        }
    }
}

impl std::fmt::Debug for MountConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MountConfig")
            .field("read_only", &self.read_only)
            .field("fs_name", &self.fs_name)
            .field("allow_other", &self.allow_other)
            .field("threads", &self.threads)
            .field("open_requests", &self.open_requests)
            .field("uring", &self.uring)
            .field("writeback", &self.writeback)
            .field("xattrs", &self.xattrs)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}
