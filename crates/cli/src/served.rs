//! What tells that a file system is closed, where its process goes on with others of the same pool and keeps the pool's lock: the process holds a
//! further lock, on a byte of the pool's file that the name stands for. Such a lock is on an open file, need not be on bytes that there are, and keeps
//! nobody from anything.

use std::fs::File;
use std::io;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use vellum::PoolPath;

/// Holds the lock of a file system until the file is closed.
pub(crate) fn hold(place: &PoolPath) -> io::Result<File> {
    let file = File::open(&place.pool)?;
    fcntl(&file, FcntlArg::F_OFD_SETLK(&lock(place, libc::F_RDLCK)))?;
    Ok(file)
}

/// Whether somebody holds the lock of a file system of the pool in this file.
pub(crate) fn is_held(file: &File, place: &PoolPath) -> io::Result<bool> {
    let mut found = lock(place, libc::F_WRLCK);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut found))?;
    Ok(i32::from(found.l_type) != libc::F_UNLCK)
}

fn lock(place: &PoolPath, kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte_of(place.file_system()),
        l_len: 1,
        l_pid: 0,
    }
}

/// A byte that the name of a file system stands for, by FNV-1a: the table of the pool cannot be read on every medium that is in use.
fn byte_of(name: &str) -> i64 {
    let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    });
    (hash >> 2) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_held_apart_from_the_others() {
        let dir = tempfile::tempdir().expect("a directory");
        let pool = dir.path().join("p.img");
        std::fs::write(&pool, "").expect("written");
        let place = |name: &str| PoolPath {
            pool: pool.clone(),
            name: Some(name.to_owned()),
        };
        let looks = File::open(&pool).expect("there");
        let held = |name| is_held(&looks, &place(name)).expect("told");
        let (one, two) = (hold(&place("one")), hold(&place("two")));
        assert!(held("one") && held("two") && !held("main"));
        drop(one);
        assert!(!held("one") && held("two"));
        drop(two);
        assert!(!held("two"));
    }
}
