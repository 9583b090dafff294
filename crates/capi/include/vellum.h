/*
 * Vellum for C: a file system in a file, on a disk or in persistent memory, which this process runs by itself.
 *
 * The functions are those of POSIX, each with a handle in front of its path: a pool, a volume (a pool as one user) or an
 * open directory, from which relative paths begin. Their flags, modes and errors are those of fcntl.h, sys/stat.h and
 * errno.h.
 *
 * On failure a function returns -1 and sets errno, and vellum_last_error() has a text. Every function can fail with
 * EBADF (a handle that is not open or of the wrong kind, or whose pool was closed), EFAULT (a pointer is NULL), EBUSY
 * (the process is a child of fork, and the pool its parent's), EIO and EUCLEAN (the medium is damaged; EIO also after a
 * fault of the library). On success errno means nothing.
 *
 * Any number of threads may use a handle, and close it, at the same time. No function may be called in a signal
 * handler.
 *
 * Offsets, lengths and sizes are in bytes.
 *
 * A structure comes with its size, since later releases may add members: pass sizeof.
 */


#ifndef VELLUM_H
#define VELLUM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct iovec;
struct timespec;


/**
 * Version of this header: major.
 */
#define VELLUM_VERSION_MAJOR 0

/**
 * Version of this header: minor.
 */
#define VELLUM_VERSION_MINOR 1

/**
 * Version of this header: patch.
 */
#define VELLUM_VERSION_PATCH 0

/**
 * Medium: the best that survives a power cut there (the default).
 */
#define VELLUM_MEDIUM_AUTO 0

/**
 * Medium: persistent memory.
 */
#define VELLUM_MEDIUM_PMEM 1

/**
 * Medium: a file or device without a log. A power cut may leave changes in any order.
 */
#define VELLUM_MEDIUM_FILE 2

/**
 * Medium: tmpfs. A power cut loses everything.
 */
#define VELLUM_MEDIUM_MEMORY 3

/**
 * Medium: a file or device with a redo log.
 */
#define VELLUM_MEDIUM_LOGGED 4

/**
 * Namespace: the default, `direct`.
 */
#define VELLUM_NAMESPACE_DEFAULT 0

/**
 * Namespace: one index over all names (DirectFS).
 */
#define VELLUM_NAMESPACE_DIRECT 1

/**
 * Namespace: entries with paths, in areas that evolve (ADAM).
 */
#define VELLUM_NAMESPACE_ADAPTIVE 2

/**
 * Namespace: a tree for each directory (NOVA).
 */
#define VELLUM_NAMESPACE_TREE 3

/**
 * Mapping: that which suits the medium.
 */
#define VELLUM_MAPPING_DEFAULT 0

/**
 * Mapping: one table of blocks (HashFS).
 */
#define VELLUM_MAPPING_HASHFS 1

/**
 * Mapping: a radix tree for each file.
 */
#define VELLUM_MAPPING_RADIX 2

/**
 * Mapping: a tree of extents for each file.
 */
#define VELLUM_MAPPING_EXTENT 3

/**
 * Mapping: a tree of extents for each file, cached.
 */
#define VELLUM_MAPPING_EXTENT_CACHED 4

/**
 * Mapping: cuckoo hashing.
 */
#define VELLUM_MAPPING_CUCKOO 5

/**
 * Mapping: level hashing.
 */
#define VELLUM_MAPPING_LEVEL 6

/**
 * A new pool replaces whatever the file or device holds.
 */
#define VELLUM_CREATE_OVERWRITE 1

/**
 * The external data device is taken whatever it holds.
 */
#define VELLUM_CREATE_OVERWRITE_DATA 2

/**
 * No space for a replica of the metadata on the external data device.
 */
#define VELLUM_CREATE_NO_REPLICA 4

/**
 * `owner_uid` and `owner_gid` own the root directory, and not the caller.
 */
#define VELLUM_CREATE_OWNER 8

/**
 * Opens for reading only; changes nothing in the pool.
 */
#define VELLUM_OPEN_READ_ONLY 1

/**
 * Touches every page first, so that no operation pays for page faults.
 */
#define VELLUM_OPEN_POPULATE 2

/**
 * Discards what a killed process left in memory: the pool is as of its last commit.
 */
#define VELLUM_OPEN_DISCARD_IMAGE 4

/**
 * Commits do not flush the caches of devices, so a power cut may damage the pool.
 */
#define VELLUM_OPEN_NO_BARRIERS 8

/**
 * File data bypass the kernel's page cache.
 */
#define VELLUM_OPEN_DIRECT 16

/**
 * A kill is a power cut: the metadata of a logged pool stay in the memory of this process.
 */
#define VELLUM_OPEN_NO_IMAGE 32

/**
 * Areas of the namespace `adaptive` do not evolve.
 */
#define VELLUM_OPEN_NO_EVOLVING 64

/**
 * An operation that returned is durable after the next sync or commit (the default).
 */
#define VELLUM_DURABILITY_ASYNC 0

/**
 * Creating, linking, removing and renaming include a sync.
 */
#define VELLUM_DURABILITY_DIRSYNC 1

/**
 * Every change includes a sync.
 */
#define VELLUM_DURABILITY_SYNC 2

/**
 * Access times as with `relatime` (the default).
 */
#define VELLUM_ATIME_RELATIVE 0

/**
 * Every read updates the access time.
 */
#define VELLUM_ATIME_STRICT 1

/**
 * No read updates the access time.
 */
#define VELLUM_ATIME_NEVER 2

/**
 * A number that stands for something open: a pool, a volume (a pool as one user), a file or
 * directory, a view. Never negative and never reused within hours, so a stale one is EBADF.
 */
typedef int64_t vellum_handle;

/**
 * How to make a pool. Zero in a member means its default, so begin with
 * `struct vellum_create_options options = {0};`.
 */
struct vellum_create_options {
  /**
   * Bytes of the pool; 1 GiB by default. A file is sparse.
   */
  uint64_t size_bytes;
  /**
   * Bytes of metadata; by default a part of the pool that suits its medium.
   */
  uint64_t metadata_bytes;
  /**
   * A label of at most 64 bytes, or NULL.
   */
  const char *label;
  /**
   * The path of an external data device, or NULL.
   */
  const char *data_path;
  /**
   * The size of the external data device, in bytes; 0: all of a device, or as much as needed.
   */
  uint64_t data_size_bytes;
  /**
   * `VELLUM_MEDIUM_...`
   */
  uint32_t medium;
  /**
   * `VELLUM_NAMESPACE_...`
   */
  uint32_t namespace_kind;
  /**
   * `VELLUM_MAPPING_...`
   */
  uint32_t mapping;
  /**
   * Operations that can run at once.
   */
  uint32_t thread_slots;
  /**
   * `VELLUM_CREATE_...`, any of them.
   */
  uint32_t flags;
  /**
   * Owner of the root directory, with `VELLUM_CREATE_OWNER`.
   */
  uint32_t owner_uid;
  /**
   * Group of the root directory, with `VELLUM_CREATE_OWNER`.
   */
  uint32_t owner_gid;
  /**
   * 0.
   */
  uint32_t reserved;
};

/**
 * How to open a pool. Zero in a member means its default, so begin with
 * `struct vellum_open_options options = {0};`.
 */
struct vellum_open_options {
  /**
   * `VELLUM_OPEN_...`, any of them.
   */
  uint32_t flags;
  /**
   * `VELLUM_MEDIUM_...`: what to treat the pool's medium as.
   */
  uint32_t medium;
  /**
   * `VELLUM_DURABILITY_...`
   */
  uint32_t durability;
  /**
   * `VELLUM_ATIME_...`
   */
  uint32_t access_times;
  /**
   * The interval between commits on logged and split pools, in ms; 5000 by default.
   */
  uint64_t commit_every_ms;
  /**
   * The interval between rounds in which areas of the namespace `adaptive` evolve, in ms; 5000
   * by default.
   */
  uint64_t evolve_every_ms;
  /**
   * Names and files that the caches can hold at once.
   */
  uint64_t cache_entries;
  /**
   * The directory in memory that keeps the metadata of a logged pool for the next process if
   * this one is killed, or NULL for `/dev/shm`.
   */
  const char *image_dir;
  /**
   * The paths of external data devices that were moved, or NULL.
   */
  const char *const *data_paths;
  /**
   * The number of `data_paths`.
   */
  size_t data_path_count;
};

/**
 * A user.
 */
struct vellum_cred {
  /**
   * User. 0 is exempt from permissions.
   */
  uint32_t uid;
  /**
   * Group; that of new files.
   */
  uint32_t gid;
  /**
   * Further groups, or NULL.
   */
  const uint32_t *groups;
  /**
   * The number of `groups`.
   */
  size_t group_count;
  /**
   * Permission bits that new files do not get, as by `umask(2)`.
   */
  uint32_t umask;
  /**
   * 0.
   */
  uint32_t reserved;
};

/**
 * What `vellum_stat` returns. Later releases add members at the end.
 */
struct vellum_stat {
  /**
   * Inode number.
   */
  uint64_t ino;
  /**
   * Size, in bytes.
   */
  uint64_t size_bytes;
  /**
   * Allocated space, in units of 512 bytes.
   */
  uint64_t blocks_512;
  /**
   * Time of the last access (in ns since 1970).
   */
  int64_t atime_ns;
  /**
   * Time of the last change of the content (in ns since 1970).
   */
  int64_t mtime_ns;
  /**
   * Time of the last change of content or attributes (in ns since 1970).
   */
  int64_t ctime_ns;
  /**
   * Device number of a device file.
   */
  uint64_t rdev;
  /**
   * Kind of file and permission bits, as `st_mode`: `S_ISDIR(mode)` works.
   */
  uint32_t mode;
  /**
   * Number of names; of a directory 2, and one more for each directory in it.
   */
  uint32_t nlink;
  /**
   * Owner.
   */
  uint32_t uid;
  /**
   * Group.
   */
  uint32_t gid;
  /**
   * Generation. With the inode number it identifies a file of its pool forever.
   */
  uint32_t generation;
  /**
   * The unit in which reading and writing is best, in bytes.
   */
  uint32_t block_bytes;
};

/**
 * What `vellum_statfs` returns. Later releases add members at the end.
 */
struct vellum_statfs {
  /**
   * Data blocks of `block_bytes`.
   */
  uint64_t blocks;
  /**
   * Free data blocks.
   */
  uint64_t blocks_free;
  /**
   * Files that fit, with those that are there.
   */
  uint64_t files;
  /**
   * Files that can still be made.
   */
  uint64_t files_free;
  /**
   * Distinguishes the file system from others, on any machine.
   */
  uint64_t fs_id;
  /**
   * Size of a block, in bytes.
   */
  uint32_t block_bytes;
  /**
   * The longest name, in bytes.
   */
  uint32_t name_max_bytes;
};

/**
 * An entry of a directory.
 */
struct vellum_dirent {
  /**
   * Inode number.
   */
  uint64_t ino;
  /**
   * The position behind this entry, for `vellum_seekdir`.
   */
  int64_t position;
  /**
   * The length of the name, in bytes, without its zero byte.
   */
  uint16_t name_bytes;
  /**
   * The kind of file: DT_REG, DT_DIR, DT_LNK, DT_FIFO, DT_SOCK, DT_CHR or DT_BLK.
   */
  uint8_t kind;
  /**
   * The name, and a zero byte.
   */
  char name[256];
  /**
   * 0.
   */
  uint8_t reserved[5];
};

/**
 * A range of bytes, and its lock.
 */
struct vellum_lock_range {
  /**
   * F_RDLCK (shared), F_WRLCK (exclusive) or F_UNLCK (none).
   */
  int16_t kind;
  /**
   * What `start` counts from: SEEK_SET, SEEK_CUR or SEEK_END.
   */
  int16_t whence;
  /**
   * The process that has the lock, from F_GETLK; -1 for the lock of a handle.
   */
  int32_t pid;
  /**
   * The offset of the first byte.
   */
  int64_t start;
  /**
   * The number of bytes; 0 for all from there on; negative for those before.
   */
  int64_t length;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns what the last call that failed in this thread has to say: which call and path, what is
 * wrong and where in the pool, and what helps. `errno` has the number for it. Never NULL; empty if
 * no call has failed yet. Calls that succeed do not change it. The text stays until the next call
 * fails in this thread, or the thread ends.
 */
const char *vellum_last_error(void);

/**
 * Returns the version of the library that runs, as `0.1.0`.
 */
const char *vellum_version(void);

/**
 * Makes a pool, in a file or on a device, and opens it. `options` may be NULL; `size` is `sizeof
 * *options`. Returns a handle for `vellum_pool_close`, or -1. Besides those of `open(2)`, errors
 * are EEXIST (something is there already), EINVAL (a size or an option is impossible), ENOSPC,
 * E2BIG (the options are of a later release).
 */
vellum_handle vellum_pool_create(const char *path, const struct vellum_create_options *options, size_t size);

/**
 * Opens a pool, or its dataset `NAME` if the path is `POOL:NAME`, for reading and writing.
 * Recovers it if it was not closed cleanly. `options` may be NULL; `size` is `sizeof *options`.
 * Returns a handle for `vellum_pool_close`, or -1. Besides those of `open(2)`, errors are EBUSY
 * (another process, or this one, has it open), EUCLEAN (it is damaged, or no pool), EOPNOTSUPP (a
 * later format), EINVAL (an impossible option), E2BIG (the options are of a later release).
 */
vellum_handle vellum_pool_open(const char *path, const struct vellum_open_options *options, size_t size);

/**
 * Makes a pool of `size_bytes` in anonymous memory, for tests. It is gone when it is
 * closed or the process ends. Returns a handle for `vellum_pool_close`, or -1 with EINVAL (an
 * impossible size) or ENOMEM.
 */
vellum_handle vellum_pool_memory(uint64_t size_bytes);

/**
 * Closes a pool cleanly: waits for running operations, and makes everything durable. Every call on
 * its volumes and files fails with EBADF from then on; their handles still have to be closed. The
 * handle is gone, whatever this returns: 0, or -1 with EBADF (no open pool), EBUSY (removed files
 * are still open, or views still show bytes of it; `vellum_last_error` says which, and what holds
 * then), EIO (the medium failed: the next opening recovers the pool).
 */
int vellum_pool_close(vellum_handle pool);

/**
 * Opens a volume: the file system of a pool as one user. `pool` is a pool or another volume.
 * `cred` says who; `size` is `sizeof *cred`. NULL is the user of this process, with the umask that
 * it had when it opened the pool: a pool itself is used like this volume. Returns a handle for
 * `vellum_close`, or -1 with EBADF (neither pool nor volume), EINVAL, EFAULT, E2BIG (the structure
 * is of a later release).
 */
vellum_handle vellum_volume_open(vellum_handle pool, const struct vellum_cred *cred, size_t size);

/**
 * Opens a file or directory, as `openat(2)`. `at` is a pool or volume, at whose root the path
 * begins, or an open directory; a path that begins with `/` begins at the root. `flags` are those
 * of `fcntl.h`: O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECTORY,
 * O_NOFOLLOW, O_NOATIME, O_SYNC, O_DSYNC, O_TMPFILE; O_CLOEXEC, O_NOCTTY and O_NONBLOCK mean
 * nothing. `mode` has the permission bits of a new file. The volume's umask takes some of them.
 * Returns a handle for `vellum_close`, or -1 with the errors of `openat(2)`; ENXIO for pipes,
 * sockets and devices; EINVAL for other flags; EMFILE if 1048576 handles are open.
 */
vellum_handle vellum_open(vellum_handle at, const char *path, int flags, uint32_t mode);

/**
 * Closes a file, directory or volume. A call on it that another thread is in ends as if nothing
 * had happened. Process locks on the file are released, as by `close(2)`. Returns 0, or -1 with
 * EBADF if the handle is not open, or is that of a pool (`vellum_pool_close`) or a view
 * (`vellum_view_release`), or EBUSY in a child of `fork`; the handle is gone then, too.
 */
int vellum_close(vellum_handle handle);

/**
 * Reads up to `len` bytes at the file's position, and moves it. Threads that share a handle take
 * turns. Returns the number of bytes, less than `len` only at the end of the file, or -1
 * with EBADF (not open for reading), EISDIR, EFAULT, EINVAL, EIO or EUCLEAN (the medium is
 * damaged).
 */
ssize_t vellum_read(vellum_handle file, void *buffer, size_t len);

/**
 * Reads up to `len` bytes at `offset`, and leaves the position alone. Returns the number
 * of bytes, less than `len` only at the end of the file, or -1 with the errors of `vellum_read`;
 * EINVAL for a negative offset.
 */
ssize_t vellum_pread(vellum_handle file, void *buffer, size_t len, int64_t offset);

/**
 * Writes `len` bytes at the file's position, or with O_APPEND at its end, and moves the position
 * behind them. Returns the number of bytes, or -1 with EBADF (not open for writing), EFBIG,
 * ENOSPC, EDQUOT, EROFS, EPERM (the file's flags forbid it), EDEADLK (this thread has a view of
 * these bytes), EFAULT, EINVAL, EIO or EUCLEAN.
 */
ssize_t vellum_write(vellum_handle file, const void *bytes, size_t len);

/**
 * Writes `len` bytes at `offset`, and leaves the position alone. With O_APPEND it writes
 * at the end, as Linux does. Returns the number of bytes, or -1 with the errors of `vellum_write`;
 * EINVAL for a negative offset.
 */
ssize_t vellum_pwrite(vellum_handle file, const void *bytes, size_t len, int64_t offset);

/**
 * As `vellum_pread`, into up to 1024 buffers, one after the other.
 */
ssize_t vellum_preadv(vellum_handle file, const struct iovec *segments, int count, int64_t offset);

/**
 * As `vellum_pwrite`, from up to 1024 buffers, one after the other. Up to 1 MiB is one write,
 * which other writes, and with O_APPEND other appends, do not divide.
 */
ssize_t vellum_pwritev(vellum_handle file, const struct iovec *segments, int count, int64_t offset);

/**
 * Moves the file's position by `offset` bytes from `whence`: SEEK_SET, SEEK_CUR or SEEK_END; or to
 * the first data (SEEK_DATA) or hole (SEEK_HOLE) at or after `offset`. Returns the new position;
 * or -1 with EBADF, EINVAL (a position before the file, or beyond 2^63 - 1), ENXIO (no data, or no
 * hole, before the end), EISDIR (use `vellum_seekdir`).
 */
int64_t vellum_lseek(vellum_handle file, int64_t offset, int whence);

/**
 * Makes everything that was done before in the file system durable, as far as the medium can: this
 * file, and all others. Returns 0, or -1 with EBADF, EIO (the medium failed).
 */
int vellum_fsync(vellum_handle file);

/**
 * The same as `vellum_fsync`.
 */
int vellum_fdatasync(vellum_handle file);

/**
 * Makes everything that was done before in the file system of a pool, volume, open file or
 * directory durable, as far as the medium can. Returns 0, or -1 with EBADF, EIO (the medium
 * failed).
 */
int vellum_sync(vellum_handle at);

/**
 * Returns the attributes of a file; follows a symbolic link at the end of the path. `size` is
 * `sizeof *out`. Returns 0, or -1 with the errors of `fstatat(2)`; EINVAL for a size that no
 * release has.
 */
int vellum_stat(vellum_handle at, const char *path, struct vellum_stat *out, size_t size);

/**
 * As `vellum_stat`, but of a symbolic link itself.
 */
int vellum_lstat(vellum_handle at, const char *path, struct vellum_stat *out, size_t size);

/**
 * Returns the attributes of an open file or directory. `size` is `sizeof *out`. Returns 0, or -1
 * with EBADF, EFAULT, EINVAL (a size that no release has), EUCLEAN (the medium is damaged).
 */
int vellum_fstat(vellum_handle file, struct vellum_stat *out, size_t size);

/**
 * Checks whether the user of `at` may use a file: `mode` is F_OK, or any of R_OK, W_OK and X_OK.
 * Follows symbolic links. Returns 0, or -1 with EACCES, EROFS, EINVAL, or the errors of `stat(2)`.
 */
int vellum_access(vellum_handle at, const char *path, int mode);

/**
 * Changes permission bits, set-id bits and the sticky bit; follows symbolic links. Returns 0, or
 * -1 with the errors of `fchmodat(2)`.
 */
int vellum_chmod(vellum_handle at, const char *path, uint32_t mode);

/**
 * As `vellum_chmod`, of an open file or directory, as the user who opened it.
 */
int vellum_fchmod(vellum_handle file, uint32_t mode);

/**
 * Changes owner and group; follows symbolic links. `(uint32_t)-1` leaves one as it is. Returns 0,
 * or -1 with the errors of `chown(2)`.
 */
int vellum_chown(vellum_handle at, const char *path, uint32_t uid, uint32_t gid);

/**
 * As `vellum_chown`, but of a symbolic link itself.
 */
int vellum_lchown(vellum_handle at, const char *path, uint32_t uid, uint32_t gid);

/**
 * As `vellum_chown`, of an open file or directory, as the user who opened it.
 */
int vellum_fchown(vellum_handle file, uint32_t uid, uint32_t gid);

/**
 * Sets the times of access and modification, in this order; follows symbolic links. NULL sets both
 * to now; UTIME_NOW and UTIME_OMIT work. Returns 0, or -1 with the errors of `utimensat(2)`.
 */
int vellum_utimens(vellum_handle at, const char *path, const struct timespec *times);

/**
 * As `vellum_utimens`, but of a symbolic link itself.
 */
int vellum_lutimens(vellum_handle at, const char *path, const struct timespec *times);

/**
 * As `vellum_utimens`, of an open file or directory, as the user who opened it.
 */
int vellum_futimens(vellum_handle file, const struct timespec *times);

/**
 * Truncates or extends a file to `size_bytes`; follows symbolic links. Returns 0, or -1
 * with the errors of `truncate(2)`.
 */
int vellum_truncate(vellum_handle at, const char *path, int64_t size_bytes);

/**
 * Truncates or extends an open file to `size_bytes`. Returns 0, or -1 with the errors of
 * `ftruncate(2)`.
 */
int vellum_ftruncate(vellum_handle file, int64_t size_bytes);

/**
 * Returns the space of the file system of a pool, volume, open file or directory: in a directory
 * that hands down its project, that of the project. `size` is `sizeof *out`. Returns 0, or -1 with
 * EBADF, EFAULT, EINVAL (a size that no release has).
 */
int vellum_statfs(vellum_handle at, struct vellum_statfs *out, size_t size);

/**
 * Makes a directory, with the permission bits of `mode` that the volume's umask leaves. Returns 0,
 * or -1 with the errors of `mkdirat(2)`.
 */
int vellum_mkdir(vellum_handle at, const char *path, uint32_t mode);

/**
 * Makes a file, pipe, socket or device: `mode` has S_IFREG, S_IFIFO, S_IFSOCK, S_IFCHR or S_IFBLK
 * and permission bits, `device` the number of a device. The library does not open the last four.
 * Returns 0, or -1 with the errors of `mknodat(2)`.
 */
int vellum_mknod(vellum_handle at, const char *path, uint32_t mode, uint64_t device);

/**
 * Removes an empty directory. Returns 0, or -1 with the errors of `rmdir(2)`.
 */
int vellum_rmdir(vellum_handle at, const char *path);

/**
 * Removes a name that is not a directory's. The file is freed with its last name and its last open
 * handle. Returns 0, or -1 with the errors of `unlinkat(2)`.
 */
int vellum_unlink(vellum_handle at, const char *path);

/**
 * Renames a file or directory, and replaces what has the new name. `flags` are 0, or those of
 * `renameat2(2)`: RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT. The user is that of
 * `from_at`. Returns 0, or -1 with the errors of `renameat2(2)`; EXDEV if the paths are in
 * different pools.
 */
int vellum_rename(vellum_handle from_at, const char *from, vellum_handle to_at, const char *to, uint32_t flags);

/**
 * Makes `to` another name of the file `from`. `flags` are 0, or AT_SYMLINK_FOLLOW: then a symbolic
 * link at the end of `from` is followed. The user is that of `from_at`. Returns 0, or -1 with the
 * errors of `linkat(2)`; EXDEV if the paths are in different pools.
 */
int vellum_link(vellum_handle from_at, const char *from, vellum_handle to_at, const char *to, int flags);

/**
 * Makes a path a name of an open file, which may have none so far: one that was opened with
 * O_TMPFILE, but without O_EXCL. A file that appears this way is complete from the first moment.
 * The user is that of `at`. Returns 0, or -1 with the errors of `linkat(2)`; ENOENT if all names
 * of the file were removed; EXDEV if the file is in another pool.
 */
int vellum_flink(vellum_handle file, vellum_handle at, const char *path);

/**
 * Makes a symbolic link to `target`, a text of 1 to 4095 bytes. Returns 0, or -1 with the errors
 * of `symlinkat(2)`.
 */
int vellum_symlink(const char *target, vellum_handle at, const char *path);

/**
 * Reads the target of a symbolic link: at most `size` bytes, without a zero byte behind
 * them. Returns their number, or -1 with the errors of `readlinkat(2)`.
 */
ssize_t vellum_readlink(vellum_handle at, const char *path, void *buffer, size_t size);

/**
 * Opens a directory for listing: `vellum_open` with O_RDONLY | O_DIRECTORY. The handle works
 * wherever that of an open directory does. Returns a handle for `vellum_closedir`, or -1 with the
 * errors of `vellum_open`.
 */
vellum_handle vellum_opendir(vellum_handle at, const char *path);

/**
 * Returns the next entry of an open directory in `*entry`; `size` is `sizeof *entry`. Entries that
 * exist throughout a listing are returned exactly once, those that were made since it began are
 * not. `.` and `..` are not returned. Threads that share a handle share its listing. Returns 1 for
 * an entry, 0 at the end, or -1 with EBADF, ENOTDIR, EFAULT, EINVAL (a size that no release has),
 * EIO or EUCLEAN (the medium is damaged).
 */
int vellum_readdir(vellum_handle dir, struct vellum_dirent *entry, size_t size);

/**
 * Returns the position behind the entry that was returned last, or -1 with EBADF or ENOTDIR.
 * Positions stay valid, also in later listings.
 */
int64_t vellum_telldir(vellum_handle dir);

/**
 * Continues the listing at a position that `vellum_telldir` or `vellum_readdir` returned; 0 begins
 * it again. Returns 0, or -1 with EBADF, ENOTDIR, EINVAL.
 */
int vellum_seekdir(vellum_handle dir, int64_t position);

/**
 * Closes a directory: `vellum_close`.
 */
int vellum_closedir(vellum_handle dir);

/**
 * Reads an extended attribute, whose name has its prefix, as `user.`; follows symbolic links. With
 * a `size` of 0, only the size is returned. Returns the size of the value, in bytes, or -1 with
 * ENODATA (no such attribute), ERANGE (the buffer is too small), and the errors of `getxattr(2)`.
 */
ssize_t vellum_getxattr(vellum_handle at, const char *path, const char *name, void *value, size_t size);

/**
 * As `vellum_getxattr`, but of a symbolic link itself.
 */
ssize_t vellum_lgetxattr(vellum_handle at, const char *path, const char *name, void *value, size_t size);

/**
 * As `vellum_getxattr`, of an open file or directory.
 */
ssize_t vellum_fgetxattr(vellum_handle file, const char *name, void *value, size_t size);

/**
 * Sets an extended attribute, whose name has its prefix, as `user.`; follows symbolic links.
 * `flags` are 0, XATTR_CREATE or XATTR_REPLACE. Returns 0, or -1 with EEXIST, ENODATA, E2BIG (a
 * value of more than 64 KiB), ENOSPC, and the errors of `setxattr(2)`.
 */
int vellum_setxattr(vellum_handle at, const char *path, const char *name, const void *value, size_t size, int flags);

/**
 * As `vellum_setxattr`, but of a symbolic link itself.
 */
int vellum_lsetxattr(vellum_handle at, const char *path, const char *name, const void *value, size_t size, int flags);

/**
 * As `vellum_setxattr`, of an open file or directory, as the user who opened it.
 */
int vellum_fsetxattr(vellum_handle file, const char *name, const void *value, size_t size, int flags);

/**
 * Lists the names of all extended attributes, a zero byte behind each; follows symbolic links.
 * With a `size` of 0, only the size is returned. Returns the size of the list, in bytes, or -1
 * with ERANGE (the buffer is too small), and the errors of `listxattr(2)`.
 */
ssize_t vellum_listxattr(vellum_handle at, const char *path, void *list_of_names, size_t size);

/**
 * As `vellum_listxattr`, but of a symbolic link itself.
 */
ssize_t vellum_llistxattr(vellum_handle at, const char *path, void *list_of_names, size_t size);

/**
 * As `vellum_listxattr`, of an open file or directory.
 */
ssize_t vellum_flistxattr(vellum_handle file, void *list_of_names, size_t size);

/**
 * Removes an extended attribute; follows symbolic links. Returns 0, or -1 with ENODATA (no such
 * attribute), and the errors of `removexattr(2)`.
 */
int vellum_removexattr(vellum_handle at, const char *path, const char *name);

/**
 * As `vellum_removexattr`, but of a symbolic link itself.
 */
int vellum_lremovexattr(vellum_handle at, const char *path, const char *name);

/**
 * As `vellum_removexattr`, of an open file or directory, as the user who opened it.
 */
int vellum_fremovexattr(vellum_handle file, const char *name);

/**
 * Locks a whole file for this handle, as `flock(2)`: `operation` is LOCK_SH, LOCK_EX or LOCK_UN,
 * and LOCK_NB not to wait. Handles exclude each other within the process, too. Returns 0, or -1
 * with EWOULDBLOCK (another handle has a lock), EBADF, EINVAL, ENOLCK.
 */
int vellum_flock(vellum_handle file, int operation);

/**
 * Locks a range of bytes, as `fcntl(2)`. `command` is F_SETLK, F_SETLKW (which waits) or F_GETLK
 * for locks of the process; F_OFD_SETLK, F_OFD_SETLKW or F_OFD_GETLK for locks of this handle.
 * F_GETLK puts the first lock that is in the way into `*range`, or sets its `kind` to F_UNLCK.
 * Closing any handle of the file releases the process's locks. Returns 0, or -1 with EAGAIN
 * (another owner has a lock), EDEADLK (the process would wait for itself), EBADF (the handle is
 * not open for reading, which F_RDLCK needs, or writing, which F_WRLCK needs), EINVAL, EOVERFLOW,
 * ENOLCK, EFAULT.
 */
int vellum_lock(vellum_handle file, int command, struct vellum_lock_range *range);

/**
 * Allocates, frees, zeroes, removes or inserts a range of a file. `mode` is 0 or has the
 * flags of `fallocate(2)`: FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE (with KEEP_SIZE),
 * FALLOC_FL_ZERO_RANGE, FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE. Returns 0, or -1 with
 * the errors of `fallocate(2)`; EOPNOTSUPP for other modes.
 */
int vellum_fallocate(vellum_handle file, int mode, int64_t offset, int64_t length);

/**
 * Copies up to `length` bytes from one open file to another, of the same or another pool,
 * or within one. An offset that is NULL stands for the file's position; what is used is moved
 * behind the bytes that were copied. `flags` is 0. Returns the number of bytes, 0 at the end of
 * the source, or -1 with the errors of `copy_file_range(2)`: EINVAL if the ranges overlap or a
 * file is no regular one, EBADF if the target is open for appending.
 */
ssize_t vellum_copy_file_range(vellum_handle from,
                               int64_t *from_offset,
                               vellum_handle to,
                               int64_t *to_offset,
                               size_t length,
                               uint32_t flags);

/**
 * Shows `length` bytes of an open file from `offset` on, or as many as the file has: in
 * place if they are contiguous in the pool, else as a copy. `*bytes` and `*shown` become their
 * address (NULL if there are none) and number. They stay, and stay readable, until
 * `vellum_view_release`, also if the file is closed; nobody may write to them. Until then, whoever
 * would change bytes that are shown in place waits; in the thread that took the view such a call
 * fails with EDEADLK. Any thread may release a view. Returns a handle for `vellum_view_release`;
 * or -1 with EBADF (not open for reading), EISDIR, EINVAL, EFAULT, ENOMEM, EMFILE, EIO or EUCLEAN.
 */
vellum_handle vellum_view(vellum_handle file, int64_t offset, size_t length, const void **bytes, size_t *shown);

/**
 * Checks that the medium lost no byte since a view was taken: lost bytes look like zeros. Call it
 * after using them. Returns 0, or -1 with EIO (some bytes of the pool were lost), EBADF.
 */
int vellum_view_check(vellum_handle view);

/**
 * Releases a view. Its bytes must not be looked at any more. Returns 0, or -1 with EBADF.
 */
int vellum_view_release(vellum_handle view);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* VELLUM_H */
