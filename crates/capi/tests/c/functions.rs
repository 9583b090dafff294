//! The functions of `vellum.h`, declared as C sees them. Their own parameters, pointers that C
//! lends, cannot be made in Rust.

use std::ffi::{c_char, c_int, c_void};

use libc::{iovec, ssize_t, timespec};
use vellum_c::{vellum_dirent, vellum_handle, vellum_lock_range};

unsafe extern "C" {
    pub(crate) fn vellum_last_error() -> *const c_char;
    pub(crate) fn vellum_pool_memory(size_bytes: u64) -> vellum_handle;
    pub(crate) fn vellum_pool_close(pool: vellum_handle) -> c_int;
    pub(crate) fn vellum_volume_open(
        at: vellum_handle,
        cred: *const c_void,
        size: usize,
    ) -> vellum_handle;
    pub(crate) fn vellum_open(
        at: vellum_handle,
        path: *const c_char,
        flags: c_int,
        mode: u32,
    ) -> vellum_handle;
    pub(crate) fn vellum_close(handle: vellum_handle) -> c_int;
    pub(crate) fn vellum_read(file: vellum_handle, buffer: *mut c_void, len: usize) -> ssize_t;
    pub(crate) fn vellum_pread(
        file: vellum_handle,
        buffer: *mut c_void,
        len: usize,
        offset: i64,
    ) -> ssize_t;
    pub(crate) fn vellum_write(file: vellum_handle, bytes: *const c_void, len: usize) -> ssize_t;
    pub(crate) fn vellum_pwrite(
        file: vellum_handle,
        bytes: *const c_void,
        len: usize,
        offset: i64,
    ) -> ssize_t;
    pub(crate) fn vellum_preadv(
        file: vellum_handle,
        parts: *const iovec,
        count: c_int,
        offset: i64,
    ) -> ssize_t;
    pub(crate) fn vellum_pwritev(
        file: vellum_handle,
        parts: *const iovec,
        count: c_int,
        offset: i64,
    ) -> ssize_t;
    pub(crate) fn vellum_lseek(file: vellum_handle, offset: i64, whence: c_int) -> i64;
    pub(crate) fn vellum_fsync(file: vellum_handle) -> c_int;
    pub(crate) fn vellum_fdatasync(file: vellum_handle) -> c_int;
    pub(crate) fn vellum_sync(at: vellum_handle) -> c_int;
    pub(crate) fn vellum_stat(
        at: vellum_handle,
        path: *const c_char,
        out: *mut vellum_c::vellum_stat,
        size: usize,
    ) -> c_int;
    pub(crate) fn vellum_lstat(
        at: vellum_handle,
        path: *const c_char,
        out: *mut vellum_c::vellum_stat,
        size: usize,
    ) -> c_int;
    pub(crate) fn vellum_fstat(
        file: vellum_handle,
        out: *mut vellum_c::vellum_stat,
        size: usize,
    ) -> c_int;
    pub(crate) fn vellum_access(at: vellum_handle, path: *const c_char, mode: c_int) -> c_int;
    pub(crate) fn vellum_chmod(at: vellum_handle, path: *const c_char, mode: u32) -> c_int;
    pub(crate) fn vellum_fchmod(file: vellum_handle, mode: u32) -> c_int;
    pub(crate) fn vellum_chown(at: vellum_handle, path: *const c_char, uid: u32, gid: u32)
    -> c_int;
    pub(crate) fn vellum_lchown(
        at: vellum_handle,
        path: *const c_char,
        uid: u32,
        gid: u32,
    ) -> c_int;
    pub(crate) fn vellum_utimens(
        at: vellum_handle,
        path: *const c_char,
        times: *const timespec,
    ) -> c_int;
    pub(crate) fn vellum_lutimens(
        at: vellum_handle,
        path: *const c_char,
        times: *const timespec,
    ) -> c_int;
    pub(crate) fn vellum_futimens(file: vellum_handle, times: *const timespec) -> c_int;
    pub(crate) fn vellum_truncate(at: vellum_handle, path: *const c_char, size: i64) -> c_int;
    pub(crate) fn vellum_ftruncate(file: vellum_handle, size: i64) -> c_int;
    pub(crate) fn vellum_statfs(
        at: vellum_handle,
        out: *mut vellum_c::vellum_statfs,
        size: usize,
    ) -> c_int;
    pub(crate) fn vellum_mkdir(at: vellum_handle, path: *const c_char, mode: u32) -> c_int;
    pub(crate) fn vellum_mknod(
        at: vellum_handle,
        path: *const c_char,
        mode: u32,
        device: u64,
    ) -> c_int;
    pub(crate) fn vellum_rmdir(at: vellum_handle, path: *const c_char) -> c_int;
    pub(crate) fn vellum_unlink(at: vellum_handle, path: *const c_char) -> c_int;
    pub(crate) fn vellum_rename(
        at: vellum_handle,
        from: *const c_char,
        to_at: vellum_handle,
        to: *const c_char,
        flags: u32,
    ) -> c_int;
    pub(crate) fn vellum_link(
        at: vellum_handle,
        from: *const c_char,
        to_at: vellum_handle,
        to: *const c_char,
        flags: c_int,
    ) -> c_int;
    pub(crate) fn vellum_flink(
        file: vellum_handle,
        at: vellum_handle,
        path: *const c_char,
    ) -> c_int;
    pub(crate) fn vellum_symlink(
        target: *const c_char,
        at: vellum_handle,
        path: *const c_char,
    ) -> c_int;
    pub(crate) fn vellum_readlink(
        at: vellum_handle,
        path: *const c_char,
        buffer: *mut c_void,
        size: usize,
    ) -> ssize_t;
    pub(crate) fn vellum_opendir(at: vellum_handle, path: *const c_char) -> vellum_handle;
    pub(crate) fn vellum_readdir(
        dir: vellum_handle,
        entry: *mut vellum_dirent,
        size: usize,
    ) -> c_int;
    pub(crate) fn vellum_telldir(dir: vellum_handle) -> i64;
    pub(crate) fn vellum_seekdir(dir: vellum_handle, position: i64) -> c_int;
    pub(crate) fn vellum_getxattr(
        at: vellum_handle,
        path: *const c_char,
        name: *const c_char,
        value: *mut c_void,
        size: usize,
    ) -> ssize_t;
    pub(crate) fn vellum_lgetxattr(
        at: vellum_handle,
        path: *const c_char,
        name: *const c_char,
        value: *mut c_void,
        size: usize,
    ) -> ssize_t;
    pub(crate) fn vellum_setxattr(
        at: vellum_handle,
        path: *const c_char,
        name: *const c_char,
        value: *const c_void,
        size: usize,
        flags: c_int,
    ) -> c_int;
    pub(crate) fn vellum_lsetxattr(
        at: vellum_handle,
        path: *const c_char,
        name: *const c_char,
        value: *const c_void,
        size: usize,
        flags: c_int,
    ) -> c_int;
    pub(crate) fn vellum_fsetxattr(
        file: vellum_handle,
        name: *const c_char,
        value: *const c_void,
        size: usize,
        flags: c_int,
    ) -> c_int;
    pub(crate) fn vellum_listxattr(
        at: vellum_handle,
        path: *const c_char,
        names: *mut c_void,
        size: usize,
    ) -> ssize_t;
    pub(crate) fn vellum_llistxattr(
        at: vellum_handle,
        path: *const c_char,
        names: *mut c_void,
        size: usize,
    ) -> ssize_t;
    pub(crate) fn vellum_removexattr(
        at: vellum_handle,
        path: *const c_char,
        name: *const c_char,
    ) -> c_int;
    pub(crate) fn vellum_lremovexattr(
        at: vellum_handle,
        path: *const c_char,
        name: *const c_char,
    ) -> c_int;
    pub(crate) fn vellum_flock(file: vellum_handle, operation: c_int) -> c_int;
    pub(crate) fn vellum_lock(
        file: vellum_handle,
        command: c_int,
        range: *mut vellum_lock_range,
    ) -> c_int;
    pub(crate) fn vellum_fallocate(
        file: vellum_handle,
        mode: c_int,
        offset: i64,
        length: i64,
    ) -> c_int;
    pub(crate) fn vellum_copy_file_range(
        from: vellum_handle,
        from_offset: *mut i64,
        to: vellum_handle,
        to_offset: *mut i64,
        length: usize,
        flags: u32,
    ) -> ssize_t;
    pub(crate) fn vellum_view(
        file: vellum_handle,
        offset: i64,
        length: usize,
        bytes: *mut *const c_void,
        shown: *mut usize,
    ) -> vellum_handle;
    pub(crate) fn vellum_view_check(view: vellum_handle) -> c_int;
    pub(crate) fn vellum_view_release(view: vellum_handle) -> c_int;
}
