//! The medium that a new pool would lie on.

use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::MediaKind;
use crate::backing::{Node, fs_type, is_memory, node_at};

/// The kind of medium of a pool at `path`, whether it exists or not. This only informs the choice
/// of how to create a pool: if in doubt, the result is an ordinary file.
pub fn kind_at(path: &Path) -> MediaKind {
    match node_at(path) {
        Some(Node::Dax) => MediaKind::Dax,
        Some(Node::Block) => MediaKind::File,
        Some(Node::File) | None => {
            let sample = sample_in(&directory_of(path));
            sample.map_or(MediaKind::File, |sample| kind_of_file(&sample))
        }
    }
}

/// The directory that the file is in, or would be in.
fn directory_of(path: &Path) -> PathBuf {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// An unnamed file of one page in a directory, which vanishes with its descriptor.
fn sample_in(dir: &Path) -> Option<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let sample = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR).ok()?;
    rustix::fs::ftruncate(&sample, rustix::param::page_size() as u64).ok()?;
    Some(sample)
}

fn kind_of_file(file: &OwnedFd) -> MediaKind {
    if is_memory(fs_type(file)) {
        MediaKind::Memory
    } else if grants_sync(file, rustix::param::page_size()) {
        MediaKind::Dax
    } else {
        MediaKind::File
    }
}

/// Whether the kernel grants `MAP_SYNC` for the first `bytes` of a file, whole pages: then a
/// flushed line is a durable line.
pub(crate) fn grants_sync(file: impl AsFd, bytes: usize) -> bool {
    let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    // SAFETY: the kernel chooses a free range, which is unmapped unseen.
    unsafe {
        let granted = rustix::mm::mmap(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ,
            flags,
            file.as_fd(),
            0,
        );
        granted
            .and_then(|base| rustix::mm::munmap(base, bytes))
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_memory_is_memory_and_one_on_a_disk_is_a_file() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("pool");
        assert_eq!(kind_at(&path), MediaKind::Memory);
        std::fs::write(&path, "").unwrap();
        assert_eq!(kind_at(&path), MediaKind::Memory);
        // Nothing is left of the sample.
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(kind_at(Path::new("/proc/self/no")), MediaKind::File);
        assert_eq!(kind_at(Path::new("no/such/directory")), MediaKind::File);
        let here = std::env::current_dir().unwrap();
        if !is_memory(fs_type(std::fs::File::open(here).unwrap())) {
            assert_ne!(kind_at(Path::new("pool")), MediaKind::Memory);
            let link = dir.path().join("link");
            std::os::unix::fs::symlink(std::env::current_exe().unwrap(), &link).unwrap();
            assert_ne!(kind_at(&link), MediaKind::Memory);
        }
    }
}
