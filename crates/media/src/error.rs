//! What can go wrong with a medium: what, where, and what to do about it.

use std::io;
use std::path::PathBuf;

use crate::holders::has_ended;

/// Why a pool or an arena could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MediaError {
    /// Somebody else has the pool open.
    #[error("{} is in use{}", path.display(), owner(*owner_pid))]
    Busy {
        /// The pool.
        path: PathBuf,
        /// The process that holds the lock, when the kernel tells; one that has ended where a child
        /// of it, which cannot be told, goes on with it.
        owner_pid: Option<u32>,
    },
    /// A new pool was asked for and the file is there already.
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
        /// The file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// The size asked for cannot be had.
    #[error("{} {}", path.display(), too_large(*len_bytes, *available_bytes))]
    TooLarge {
        /// The file or device.
        path: PathBuf,
        /// Bytes asked for.
        len_bytes: u64,
        /// Bytes there are; 0: the file system, or a limit of the process, allows no such file.
        available_bytes: u64,
    },
    /// A pool of no bytes.
    #[error("{} has no bytes: a pool must be created first", path.display())]
    Empty {
        /// The file or device.
        path: PathBuf,
    },
    /// The file system of the pool is full.
    #[error(
        "no space for the {len_bytes} bytes of {}: free some space, or choose a smaller pool",
        path.display()
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Bytes asked for.
        len_bytes: u64,
    },
    /// A device ends behind the pool on it, or too soon behind it.
    #[error("{} has {available_bytes} bytes behind what is in use of it, and {len_bytes} are \
         needed: a device has room for further file systems only if its pool was made with a \
         --size smaller than it", path.display())]
    NoRoomBehind {
        /// The device.
        path: PathBuf,
        /// Bytes asked for.
        len_bytes: u64,
        /// Bytes there are.
        available_bytes: u64,
    },
    /// DAX was required and the medium has none.
    #[error("{} is not on persistent memory (MAP_SYNC is refused): mount its file system with -o \
         dax, or do not ask for dax", path.display())]
    NotDax {
        /// The file.
        path: PathBuf,
    },
    /// Direct I/O was asked for and is not to be had.
    #[error("{} cannot be read past the page cache ({source}): its file system or device has no \
         direct I/O in blocks of 4096 bytes; open the pool without --direct, or put the data where \
         there is", path.display())]
    NotDirect {
        /// The file or device with the data.
        path: PathBuf,
        /// What the operating system said.
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
        /// How many there may be.
        limit: usize,
    },
    /// Anonymous memory could not be had.
    #[error(
        "cannot get {len_bytes} bytes of shared memory: {source}; ask for less, or raise the \
         memory limit"
    )]
    OutOfMemory {
        /// Bytes asked for.
        len_bytes: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// Metadata cannot be worked on in memory of their own here.
    #[error("a pool with a log cannot lie on this medium")]
    NoImage,
    /// What changes in persistent memory cannot be taken back here.
    #[error("a pool whose data lie elsewhere, without a log, cannot lie on this medium")]
    NoTransactions,
    /// What a killed process left in memory cannot be used.
    #[error("{}, the image of a process that was killed, {why}", path.display())]
    Image {
        /// The file of the image.
        path: PathBuf,
        /// What is the matter, and what can be done.
        why: &'static str,
    },
    /// The operating system refused something else.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, to be read after "cannot".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

impl MediaError {
    /// The errno for callers that can be told nothing else.
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
             file as large as that; choose a smaller pool"
        ),
        _ => format!(
            "cannot hold a pool of {len_bytes} bytes (it has {available_bytes}): choose a size \
             within it"
        ),
    }
}

/// By whom, and what to do.
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
