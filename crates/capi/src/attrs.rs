//! Attributes: `stat` and its relatives, `access`, `chmod`, `chown`, `utimens`, `truncate`,
//! `statfs`.

use libc::{UTIME_NOW, UTIME_OMIT, c_int, timespec};
use vellum::{Access, Attr, SetAttr, SetTime, StatFs};
use zerocopy::{Immutable, IntoBytes};

use crate::borrowed::{CPath, In, Out};
use crate::failure::{Failure, Result, call};
use crate::files::offset_of;
use crate::{table, vellum_handle};

/// What `vellum_stat` returns. Later releases add members at the end.
#[repr(C)]
#[derive(Clone, Copy, IntoBytes, Immutable)]
pub struct vellum_stat {
    /// Inode number.
    pub ino: u64,
    /// Size, in bytes.
    pub size_bytes: u64,
    /// Allocated space, in units of 512 bytes.
    pub blocks_512: u64,
    /// Time of the last access (in ns since 1970).
    pub atime_ns: i64,
    /// Time of the last change of the content (in ns since 1970).
    pub mtime_ns: i64,
    /// Time of the last change of content or attributes (in ns since 1970).
    pub ctime_ns: i64,
    /// Device number of a device file.
    pub rdev: u64,
    /// Kind of file and permission bits, as `st_mode`: `S_ISDIR(mode)` works.
    pub mode: u32,
    /// Number of names; of a directory 2, and one more for each directory in it.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Generation. With the inode number it identifies a file of its pool forever.
    pub generation: u32,
    /// The unit in which reading and writing is best, in bytes.
    pub block_bytes: u32,
}

/// The size of [`vellum_stat`] in the first release.
const STAT_LEAST: usize = 80;

/// What `vellum_statfs` returns. Later releases add members at the end.
#[repr(C)]
#[derive(Clone, Copy, IntoBytes, Immutable)]
pub struct vellum_statfs {
    /// Data blocks of `block_bytes`.
    pub blocks: u64,
    /// Free data blocks.
    pub blocks_free: u64,
    /// Files that fit, with those that are there.
    pub files: u64,
    /// Files that can still be made.
    pub files_free: u64,
    /// Distinguishes the file system from others, on any machine.
    pub fs_id: u64,
    /// Size of a block, in bytes.
    pub block_bytes: u32,
    /// The longest name, in bytes.
    pub name_max_bytes: u32,
}

/// The size of [`vellum_statfs`] in the first release.
const STATFS_LEAST: usize = 48;

const BLOCK_BYTES: u32 = 4096;
const NAME_MAX: u32 = 255;

impl From<Attr> for vellum_stat {
    #[inline]
    fn from(attr: Attr) -> Self {
        Self {
            ino: attr.ino,
            size_bytes: attr.size,
            blocks_512: attr.blocks_512,
            atime_ns: attr.atime_ns,
            mtime_ns: attr.mtime_ns,
            ctime_ns: attr.ctime_ns,
            rdev: attr.device,
            mode: u32::from(attr.kind as u8) << 12 | u32::from(attr.mode),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            generation: attr.generation,
            block_bytes: BLOCK_BYTES,
        }
    }
}

impl From<StatFs> for vellum_statfs {
    fn from(found: StatFs) -> Self {
        Self {
            blocks: found.blocks,
            blocks_free: found.blocks_free,
            files: found.files,
            files_free: found.files_free,
            fs_id: found.fs_id,
            block_bytes: BLOCK_BYTES,
            name_max_bytes: NAME_MAX,
        }
    }
}

#[inline]
fn stat(
    (at, path): (vellum_handle, CPath),
    follow: bool,
    (mut out, size): (Out<vellum_stat>, usize),
) -> Result<c_int> {
    let held = table::get(at)?;
    let at = held.at()?;
    let attr = at.fs().stat(at.cred, at.start, path.bytes()?, follow)?;
    out.set_sized(size, STAT_LEAST, &attr.into())?;
    Ok(0)
}

/// Returns the attributes of a file; follows a symbolic link at the end of the path. `size` is
/// `sizeof *out`. Returns 0, or -1 with the errors of `fstatat(2)`; EINVAL for a size that no
/// release has.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_stat(
    at: vellum_handle,
    path: CPath,
    out: Out<vellum_stat>,
    size: usize,
) -> c_int {
    call("vellum_stat", &[path], || {
        stat((at, path), true, (out, size))
    })
}

/// As `vellum_stat`, but of a symbolic link itself.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_lstat(
    at: vellum_handle,
    path: CPath,
    out: Out<vellum_stat>,
    size: usize,
) -> c_int {
    call("vellum_lstat", &[path], || {
        stat((at, path), false, (out, size))
    })
}

/// Returns the attributes of an open file or directory. `size` is `sizeof *out`. Returns 0, or -1
/// with EBADF, EFAULT, EINVAL (a size that no release has), EUCLEAN (the medium is damaged).
#[unsafe(no_mangle)]
pub extern "C" fn vellum_fstat(
    file: vellum_handle,
    mut out: Out<vellum_stat>,
    size: usize,
) -> c_int {
    call("vellum_fstat", &[], || {
        let held = table::get(file)?;
        let file = held.file()?;
        file.handle.check_use()?;
        let attr = file.handle.attr()?;
        out.set_sized(size, STAT_LEAST, &attr.into())?;
        Ok(0)
    })
}

/// Checks whether the user of `at` may use a file: `mode` is F_OK, or any of R_OK, W_OK and X_OK.
/// Follows symbolic links. Returns 0, or -1 with EACCES, EROFS, EINVAL, or the errors of `stat(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_access(at: vellum_handle, path: CPath, mode: c_int) -> c_int {
    call("vellum_access", &[path], || {
        let want = u8::try_from(mode).ok().and_then(Access::from_bits);
        let want = want.ok_or(Failure::invalid("an unknown mode of access"))?;
        let held = table::get(at)?;
        let at = held.at()?;
        let node = at.find(path.bytes()?, true)?;
        at.fs().access(at.cred, &node, want)?;
        Ok(0)
    })
}

fn set((at, path): (vellum_handle, CPath), follow: bool, set: SetAttr) -> Result<c_int> {
    let held = table::get(at)?;
    let at = held.at()?;
    let node = at.find(path.bytes()?, follow)?;
    at.fs().set_attr(at.cred, &node, &set)?;
    Ok(0)
}

fn set_open(file: vellum_handle, set: SetAttr) -> Result<c_int> {
    let held = table::get(file)?;
    held.file()?.handle.set_attr(&set)?;
    Ok(0)
}

fn mode_of(mode: u32) -> SetAttr {
    SetAttr::new().mode(Some((mode & 0o7777) as u16))
}

/// Changes permission bits, set-id bits and the sticky bit; follows symbolic links. Returns 0, or
/// -1 with the errors of `fchmodat(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_chmod(at: vellum_handle, path: CPath, mode: u32) -> c_int {
    call("vellum_chmod", &[path], || {
        set((at, path), true, mode_of(mode))
    })
}

/// As `vellum_chmod`, of an open file or directory, as the user who opened it.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_fchmod(file: vellum_handle, mode: u32) -> c_int {
    call("vellum_fchmod", &[], || set_open(file, mode_of(mode)))
}

fn owner_of(uid: u32, gid: u32) -> SetAttr {
    let given = |id: u32| (id != u32::MAX).then_some(id);
    SetAttr::new().uid(given(uid)).gid(given(gid)).chown(true)
}

/// Changes owner and group; follows symbolic links. `(uint32_t)-1` leaves one as it is. Returns 0,
/// or -1 with the errors of `chown(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_chown(at: vellum_handle, path: CPath, uid: u32, gid: u32) -> c_int {
    call("vellum_chown", &[path], || {
        set((at, path), true, owner_of(uid, gid))
    })
}

/// As `vellum_chown`, but of a symbolic link itself.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_lchown(at: vellum_handle, path: CPath, uid: u32, gid: u32) -> c_int {
    call("vellum_lchown", &[path], || {
        set((at, path), false, owner_of(uid, gid))
    })
}

/// As `vellum_chown`, of an open file or directory, as the user who opened it.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_fchown(file: vellum_handle, uid: u32, gid: u32) -> c_int {
    call("vellum_fchown", &[], || set_open(file, owner_of(uid, gid)))
}

/// The times of `utimensat`: of access, of modification. NULL means now.
fn times_of(times: In<timespec>) -> Result<SetAttr> {
    if times.is_null() {
        let now = Some(SetTime::Now);
        return Ok(SetAttr::new().atime(now).mtime(now));
    }
    let &[atime, mtime] = times.array(2)? else {
        return Err(Failure::NULL);
    };
    Ok(SetAttr::new().atime(time_of(atime)?).mtime(time_of(mtime)?))
}

/// A time; `None` leaves the file's time as it is. What the file system cannot store becomes the
/// first or last instant that it can.
fn time_of(time: timespec) -> Result<Option<SetTime>> {
    const NS_OF_SECOND: i64 = 1_000_000_000;
    match time.tv_nsec {
        UTIME_NOW => Ok(Some(SetTime::Now)),
        UTIME_OMIT => Ok(None),
        ns @ 0..NS_OF_SECOND => {
            let at = i128::from(time.tv_sec) * i128::from(NS_OF_SECOND) + i128::from(ns);
            let at = at.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
            Ok(Some(SetTime::At(at)))
        }
        _ => Err(Failure::invalid("nanoseconds that are more than a second")),
    }
}

fn utimens(place: (vellum_handle, CPath), times: In<timespec>, follow: bool) -> Result<c_int> {
    let times = times_of(times)?;
    match (times.atime, times.mtime) {
        // As the kernel, which does not look for the file then.
        (None, None) => Ok(0),
        _ => set(place, follow, times),
    }
}

/// Sets the times of access and modification, in this order; follows symbolic links. NULL sets both
/// to now; UTIME_NOW and UTIME_OMIT work. Returns 0, or -1 with the errors of `utimensat(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_utimens(at: vellum_handle, path: CPath, times: In<timespec>) -> c_int {
    call("vellum_utimens", &[path], || {
        utimens((at, path), times, true)
    })
}

/// As `vellum_utimens`, but of a symbolic link itself.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_lutimens(at: vellum_handle, path: CPath, times: In<timespec>) -> c_int {
    call("vellum_lutimens", &[path], || {
        utimens((at, path), times, false)
    })
}

/// As `vellum_utimens`, of an open file or directory, as the user who opened it.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_futimens(file: vellum_handle, times: In<timespec>) -> c_int {
    call("vellum_futimens", &[], || set_open(file, times_of(times)?))
}

/// Truncates or extends a file to `size_bytes`; follows symbolic links. Returns 0, or -1
/// with the errors of `truncate(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_truncate(at: vellum_handle, path: CPath, size_bytes: i64) -> c_int {
    call("vellum_truncate", &[path], || {
        let size = offset_of(size_bytes)?;
        set((at, path), true, SetAttr::new().size(Some(size)))
    })
}

/// Truncates or extends an open file to `size_bytes`. Returns 0, or -1 with the errors of
/// `ftruncate(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_ftruncate(file: vellum_handle, size_bytes: i64) -> c_int {
    call("vellum_ftruncate", &[], || {
        let held = table::get(file)?;
        held.file()?.handle.truncate(offset_of(size_bytes)?)?;
        Ok(0)
    })
}

/// Returns the space of the file system of a pool, volume, open file or directory: in a directory
/// that hands down its project, that of the project. `size` is `sizeof *out`. Returns 0, or -1 with
/// EBADF, EFAULT, EINVAL (a size that no release has).
#[unsafe(no_mangle)]
pub extern "C" fn vellum_statfs(
    at: vellum_handle,
    mut out: Out<vellum_statfs>,
    size: usize,
) -> c_int {
    call("vellum_statfs", &[], || {
        let held = table::get(at)?;
        let at = held.at()?;
        at.fs().check_use()?;
        let found = at.fs().stat_fs_of(at.start);
        out.set_sized(size, STATFS_LEAST, &found.into())?;
        Ok(0)
    })
}
