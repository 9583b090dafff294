//! Errors of media: what went wrong, where, and what to do about it.

use std::io;
use std::path::PathBuf;

use crate::holders::has_ended;

/// Why a pool or an arena is not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MediaError {
    /// Another process has the pool open.
    #[error("{} is in use{}", path.display(), owner(*owner_pid))]
    Busy {
        /// The pool.
        path: PathBuf,
        /// The process that holds the lock, if the kernel reports it. It may have ended and left
        /// the lock to an unknown child.
        owner_pid: Option<u32>,
    },
    /// A new pool was requested, but the file exists already.
    #[error(
        "{} exists already: choose another name, or ask for it to be overwritten",
        path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Neither a regular file, nor a block device, nor a device-DAX node.
    #[error(
        "{} is a {found}: a pool is a regular file, a block device or a device-DAX node",
        path.display()
    )]
    NotAPool {
        /// Path of the file.
        path: PathBuf,
        /// Its actual type.
        found: &'static str,
    },
    /// The requested size is not available.
    #[error("{} {}", path.display(), too_large(*len_bytes, *available_bytes))]
    TooLarge {
        /// The file or device.
        path: PathBuf,
        /// Requested bytes.
        len_bytes: u64,
        /// Available bytes; 0: the file system, or a limit of the process, allows no such file.
        available_bytes: u64,
    },
    /// A pool without bytes.
    #[error("{} has no bytes: a pool must be created first", path.display())]
    Empty {
        /// The file or device.
        path: PathBuf,
    },
    /// The file system of the pool is full.
    #[error(
        "no space for the {len_bytes} bytes of {}: free some space, or choose a smaller size",
        path.display()
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Requested bytes.
        len_bytes: u64,
    },
    /// A device ends with the pool on it, or has too little space behind it.
    #[error("{} has {available_bytes} bytes free behind its last dataset, and {len_bytes} are \
         needed: a device has space for further datasets only if its pool was created with a \
         --size smaller than it", path.display())]
    NoRoomBehind {
        /// The device.
        path: PathBuf,
        /// Requested bytes.
        len_bytes: u64,
        /// Available bytes.
        available_bytes: u64,
    },
    /// DAX was required and the medium has none.
    #[error("{} is not on persistent memory (MAP_SYNC is refused): mount its file system with -o \
         dax, or do not ask for dax", path.display())]
    NotDax {
        /// The file.
        path: PathBuf,
    },
    /// Direct I/O was requested but is not available.
    #[error("{} cannot be read past the page cache ({source}): its file system or device has no \
         direct I/O in blocks of 4096 bytes; open the pool without --direct, or move the data to \
         one that has it", path.display())]
    NotDirect {
        /// The file or device with the data.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A device-DAX node cannot be mapped copy-on-write.
    #[error(
        "{} is a device-DAX node, which cannot be opened read-only: open it read-write",
        path.display()
    )]
    ReadOnlyDevice {
        /// The node.
        path: PathBuf,
    },
    /// Too many pools and arenas mapped in this process.
    #[error("more than {limit} pools and arenas are mapped in this process: close some")]
    TooManyMappings {
        /// The maximum number of them.
        limit: usize,
    },
    /// Anonymous memory is not available.
    #[error(
        "cannot get {len_bytes} bytes of shared memory: {source}; ask for less, or raise the \
         memory limit"
    )]
    OutOfMemory {
        /// Requested bytes.
        len_bytes: u64,
        /// The error of the operating system.
        source: io::Error,
    },
    /// This medium cannot have an image in separate memory.
    #[error("a pool with a log cannot lie on this medium")]
    NoImage,
    /// This medium cannot roll changes back.
    #[error("a split pool cannot lie on this medium")]
    NoTransactions,
    /// The image that a killed process left in memory cannot be used.
    #[error("{}, the image of a process that was killed, {why}", path.display())]
    Image {
        /// The file of the image.
        path: PathBuf,
        /// The reason, and what can be done.
        why: &'static str,
    },
    /// Any other error of the operating system.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The failed action, to be read after "cannot".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl MediaError {
    /// The errno, for callers that can report nothing else.
    pub fn to_errno(&self) -> i32 {
        match self {
            Self::Busy { .. } => libc::EBUSY,
            Self::Exists { .. } => libc::EEXIST,
            Self::NotAPool { found, .. } if *found == "directory" => libc::EISDIR,
            Self::NotAPool { .. } | Self::Empty { .. } => libc::EINVAL,
            Self::TooLarge { .. } => libc::EFBIG,
            Self::NoSpace { .. } | Self::NoRoomBehind { .. } => libc::ENOSPC,
            Self::NotDax { .. } | Self::NotDirect { .. } => libc::EOPNOTSUPP,
            Self::ReadOnlyDevice { .. } => libc::EROFS,
            Self::TooManyMappings { .. } => libc::ENFILE,
            Self::OutOfMemory { source, .. } => source.raw_os_error().unwrap_or(libc::ENOMEM),
            Self::NoImage | Self::NoTransactions => libc::EOPNOTSUPP,
            Self::Image { .. } => libc::EBUSY,
            Self::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

fn too_large(len_bytes: u64, available_bytes: u64) -> String {
    match available_bytes {
        0 => format!(
            "cannot have {len_bytes} bytes: its file system, or a limit of the process, allows no \
             file as large as that; choose a smaller size"
        ),
        _ => format!(
            "cannot hold a pool of {len_bytes} bytes (it has {available_bytes}): choose a size \
             within it"
        ),
    }
}

/// The process that has a pool open, and what to do.
fn owner(pid: Option<u32>) -> String {
    let there = "close it there first";
    match pid {
        None => format!(": {there}"),
        Some(pid) if pid == std::process::id() => " by this process itself: close it first, with \
            what is left of it, such as views and open files, which keep it until they are \
            dropped; a child of `fork` has what its parent had open, and keeps it until it ends"
            .into(),
        Some(pid) if has_ended(pid) => {
            format!(" by a child of process {pid}, which has ended: {there}")
        }
        Some(pid) => format!(" by process {pid}: {there}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_pool_and_what_to_do() {
        let told = |owner_pid| {
            let path = PathBuf::from("p");
            MediaError::Busy { path, owner_pid }.to_string()
        };
        assert_eq!(told(None), "p is in use: close it there first");
        assert_eq!(
            told(Some(1)),
            "p is in use by process 1: close it there first"
        );
        assert_eq!(
            told(Some(u32::MAX)),
            format!(
                "p is in use by a child of process {}, which has ended: close it there first",
                u32::MAX
            )
        );
        let own = told(Some(std::process::id()));
        assert!(
            own.contains("by this process itself") && !own.contains("there"),
            "{own}"
        );
    }
}
