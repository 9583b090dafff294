/* Calls every function: what it does, and each error that it can have. Prints "ok" at the end. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sys/file.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <time.h>

#include "check.h"

enum { USER = 54321 };

/* The pool in memory, its file system as root, and as an ordinary user. */
static vellum_handle pool, root, user;
/* Handles of every kind that is not open any more, or never was. */
static vellum_handle stale[8];
static size_t stale_count;

static vellum_handle open_of(const char *path, int flags)
{
    return OK(vellum_open(root, path, flags, 0600));
}

static uint64_t size_of(const char *path)
{
    struct vellum_stat st;
    OK(vellum_stat(root, path, &st, sizeof st));
    return st.size_bytes;
}

static void opening(void)
{
    vellum_handle file = open_of("/f", O_RDWR | O_CREAT | O_EXCL);
    FAILS(EEXIST, vellum_open(root, "/f", O_RDWR | O_CREAT | O_EXCL, 0600));
    FAILS(ENOENT, vellum_open(root, "/none", O_RDONLY, 0));
    FAILS(ENOENT, vellum_open(root, "", O_RDONLY, 0));
    FAILS(ENOTDIR, vellum_open(root, "/f/x", O_RDONLY, 0));
    FAILS(ENOTDIR, vellum_open(root, "/f", O_RDONLY | O_DIRECTORY, 0));
    FAILS(ENOTDIR, vellum_open(file, "x", O_RDONLY, 0));
    FAILS(EISDIR, vellum_open(root, "/", O_WRONLY, 0));
    FAILS(EACCES, vellum_open(user, "/f", O_RDONLY, 0));
    FAILS(EACCES, vellum_open(user, "/new", O_WRONLY | O_CREAT, 0600));
    FAILS(EINVAL, vellum_open(root, "/f", O_ACCMODE, 0));
    FAILS(EINVAL, vellum_open(root, "/f", O_RDONLY | O_DIRECT, 0));
    FAILS(EINVAL, vellum_open(root, "/f", O_PATH, 0));
    FAILS(EINVAL, vellum_open(root, "/d", O_RDONLY | O_DIRECTORY | O_CREAT, 0));
    FAILS(EFAULT, vellum_open(root, NULL, O_RDONLY, 0));
    char name[5000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    FAILS(ENAMETOOLONG, vellum_open(root, name, O_RDONLY, 0));
    name[256] = 0;
    FAILS(ENAMETOOLONG, vellum_open(root, name, O_WRONLY | O_CREAT, 0600));
    OK(vellum_symlink("/f", root, "/link"));
    FAILS(ELOOP, vellum_open(root, "/link", O_RDONLY | O_NOFOLLOW, 0));
    OK(vellum_close(open_of("/link", O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)));
    OK(vellum_mknod(root, "/pipe", S_IFIFO | 0600, 0));
    FAILS(ENXIO, vellum_open(root, "/pipe", O_RDONLY, 0));

    OK(vellum_mkdir(root, "/dir", 0755));
    put(root, "/dir/inner", "inner");
    vellum_handle dir = OK(vellum_open(root, "/dir", O_RDONLY | O_DIRECTORY, 0));
    vellum_handle inner = OK(vellum_open(dir, "inner", O_RDONLY, 0));
    vellum_handle above = OK(vellum_open(dir, "../f", O_RDONLY, 0));
    vellum_handle absolute = OK(vellum_open(dir, "/f", O_RDONLY, 0));
    OK(vellum_close(dir));
    OK(vellum_close(inner));
    OK(vellum_close(above));
    OK(vellum_close(absolute));
    FAILS(EBADF, vellum_open(inner, "x", O_RDONLY, 0));
    OK(vellum_close(file));
    FAILS(EBADF, vellum_close(file));
    stale[stale_count++] = file;
    stale[stale_count++] = dir;
}

static void reading_and_writing(void)
{
    char out[16] = "";
    vellum_handle file = open_of("/rw", O_RDWR | O_CREAT);
    EQ(7, vellum_write(file, "one two", 7));
    EQ(0, vellum_read(file, out, sizeof out));
    EQ(4, vellum_lseek(file, 4, SEEK_SET));
    EQ(3, vellum_read(file, out, sizeof out));
    EQ(0, memcmp(out, "two", 3));
    EQ(3, vellum_pread(file, out, 3, 0));
    EQ(0, memcmp(out, "one", 3));
    EQ(3, vellum_pwrite(file, "ONE", 3, 0));
    EQ(7, vellum_lseek(file, 0, SEEK_CUR));
    EQ(0, vellum_read(file, NULL, 0));
    EQ(0, vellum_write(file, NULL, 0));
    FAILS(EFAULT, vellum_read(file, NULL, 1));
    FAILS(EFAULT, vellum_write(file, NULL, 1));
    FAILS(EFAULT, vellum_pread(file, NULL, 1, 0));
    FAILS(EFAULT, vellum_pwrite(file, NULL, 1, 0));
    FAILS(EINVAL, vellum_read(file, out, SIZE_MAX));
    FAILS(EINVAL, vellum_pread(file, out, 1, -1));
    FAILS(EINVAL, vellum_pwrite(file, out, 1, -1));
    FAILS(EFBIG, vellum_pwrite(file, out, 1, INT64_C(1) << 50));

    struct iovec parts[3] = {{out, 2}, {out + 4, 3}, {NULL, 0}};
    EQ(5, vellum_preadv(file, parts, 3, 1));
    EQ(0, memcmp(out, "NE", 2) || memcmp(out + 4, " tw", 3));
    EQ(5, vellum_pwritev(file, parts, 3, 7));
    EQ(12, size_of("/rw"));
    EQ(0, vellum_preadv(file, NULL, 0, 0));
    EQ(0, vellum_pwritev(file, NULL, 0, 0));
    EQ(0, vellum_preadv(file, parts, 3, 100));
    FAILS(EFAULT, vellum_preadv(file, NULL, 1, 0));
    FAILS(EFAULT, vellum_pwritev(file, NULL, 1, 0));
    FAILS(EINVAL, vellum_preadv(file, parts, -1, 0));
    FAILS(EINVAL, vellum_pwritev(file, parts, 1025, 0));
    FAILS(EINVAL, vellum_preadv(file, parts, 1, -1));
    struct iovec huge[2] = {{out, SIZE_MAX - 5}, {out, 6}};
    FAILS(EINVAL, vellum_pwritev(file, huge, 2, 0));
    struct iovec null = {NULL, 1};
    FAILS(EFAULT, vellum_preadv(file, &null, 1, 0));
    FAILS(EFAULT, vellum_pwritev(file, &null, 1, 0));
    OK(vellum_close(file));

    file = open_of("/rw", O_WRONLY | O_APPEND | O_SYNC);
    EQ(1, vellum_write(file, "!", 1));
    EQ(13, vellum_lseek(file, 0, SEEK_CUR));
    EQ(1, vellum_pwrite(file, "!", 1, 0));
    EQ(14, size_of("/rw"));
    FAILS(EBADF, vellum_read(file, out, 1));
    OK(vellum_close(file));
    file = open_of("/rw", O_RDONLY);
    FAILS(EBADF, vellum_write(file, "x", 1));
    FAILS(EBADF, vellum_pwritev(file, parts, 1, 0));
    OK(vellum_close(file));
    vellum_handle dir = OK(vellum_opendir(root, "/"));
    FAILS(EISDIR, vellum_read(dir, out, 1));
    FAILS(EISDIR, vellum_lseek(dir, 0, SEEK_SET));
    FAILS(EBADF, vellum_write(dir, out, 1));
    OK(vellum_closedir(dir));
}

/* More than a mebibyte is gathered from segments in several writes. */
static void large_segments(void)
{
    enum { PART = 700 << 10 };
    char *bytes = malloc(4 * PART), *read = calloc(4, PART);
    for (int i = 0; i < 4 * PART; i++)
        bytes[i] = (char)(i % 251);
    struct iovec parts[4], back[4];
    for (int i = 0; i < 4; i++) {
        parts[i] = (struct iovec){bytes + i * PART, PART};
        back[i] = (struct iovec){read + i * PART, PART};
    }
    vellum_handle file = open_of("/large", O_RDWR | O_CREAT);
    EQ(4 * PART, vellum_pwritev(file, parts, 4, 3));
    EQ(4 * PART, vellum_preadv(file, back, 4, 3));
    EQ(0, memcmp(bytes, read, 4 * PART));
    OK(vellum_close(file));
    free(bytes);
    free(read);
}

static void seeking(void)
{
    vellum_handle file = open_of("/sparse", O_RDWR | O_CREAT);
    OK(vellum_ftruncate(file, 1 << 20));
    EQ(1, vellum_pwrite(file, "x", 1, 64 << 10));
    EQ(64 << 10, vellum_lseek(file, 0, SEEK_DATA));
    EQ(68 << 10, vellum_lseek(file, 64 << 10, SEEK_HOLE));
    EQ(68 << 10, vellum_lseek(file, 0, SEEK_CUR));
    EQ((1 << 20) - 1, vellum_lseek(file, -1, SEEK_END));
    EQ(INT64_MAX, vellum_lseek(file, INT64_MAX, SEEK_SET));
    FAILS(EINVAL, vellum_lseek(file, 1, SEEK_CUR));
    FAILS(EINVAL, vellum_lseek(file, -1, SEEK_SET));
    FAILS(EINVAL, vellum_lseek(file, -(2 << 20), SEEK_END));
    FAILS(EINVAL, vellum_lseek(file, 0, 99));
    FAILS(ENXIO, vellum_lseek(file, 1 << 20, SEEK_DATA));
    FAILS(ENXIO, vellum_lseek(file, -1, SEEK_HOLE));
    EQ(INT64_MAX, vellum_lseek(file, 0, SEEK_CUR));

    struct vellum_stat st;
    OK(vellum_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20));
    OK(vellum_fstat(file, &st, sizeof st));
    EQ(0, st.blocks_512);
    OK(vellum_fallocate(file, 0, 0, 2 << 20));
    OK(vellum_fallocate(file, FALLOC_FL_COLLAPSE_RANGE, 0, 4096));
    OK(vellum_fallocate(file, FALLOC_FL_INSERT_RANGE, 0, 8192));
    OK(vellum_fallocate(file, FALLOC_FL_ZERO_RANGE, 0, 8192));
    EQ((2 << 20) + 4096, size_of("/sparse"));
    FAILS(EINVAL, vellum_fallocate(file, 0, 0, 0));
    FAILS(EINVAL, vellum_fallocate(file, 0, -1, 1));
    FAILS(EOPNOTSUPP, vellum_fallocate(file, FALLOC_FL_PUNCH_HOLE, 0, 1));
    FAILS(ENOSPC, vellum_fallocate(file, 0, 0, INT64_C(1) << 30));

    OK(vellum_truncate(root, "/sparse", 10));
    FAILS(EINVAL, vellum_truncate(root, "/sparse", -1));
    FAILS(EINVAL, vellum_ftruncate(file, -1));
    FAILS(EISDIR, vellum_truncate(root, "/", 0));
    FAILS(EACCES, vellum_truncate(user, "/sparse", 0));
    FAILS(EFAULT, vellum_truncate(root, NULL, 0));
    OK(vellum_fsync(file));
    OK(vellum_fdatasync(file));
    OK(vellum_sync(pool));
    OK(vellum_sync(file));
    OK(vellum_close(file));
    file = open_of("/sparse", O_RDONLY);
    FAILS(EINVAL, vellum_ftruncate(file, 0));
    FAILS(EBADF, vellum_fallocate(file, 0, 0, 1));
    OK(vellum_close(file));
}

static void attributes(void)
{
    struct vellum_stat st, other;
    put(root, "/attr", "four");
    OK(vellum_symlink("attr", root, "/to-attr"));
    OK(vellum_stat(root, "/to-attr", &st, sizeof st));
    EQ(1, S_ISREG(st.mode) && st.size_bytes == 4 && st.nlink == 1 && st.blocks_512 == 8 && st.uid == 0);
    OK(vellum_lstat(root, "to-attr", &other, sizeof other));
    EQ(1, S_ISLNK(other.mode) && other.ino != st.ino);
    OK(vellum_stat(root, "/", &other, sizeof other));
    EQ(1, S_ISDIR(other.mode));
    FAILS(ENOENT, vellum_stat(root, "/none", &st, sizeof st));
    FAILS(ENOTDIR, vellum_lstat(root, "/attr/", &st, sizeof st));
    FAILS(EFAULT, vellum_stat(root, "/attr", NULL, sizeof st));
    FAILS(EINVAL, vellum_stat(root, "/attr", &st, sizeof st - 1));

    /* A structure of a later release: what this one lacks becomes zero. */
    struct {
        struct vellum_stat known;
        uint64_t later;
    } wide = {.later = 7};
    OK(vellum_stat(root, "/attr", &wide.known, sizeof wide));
    EQ(1, wide.known.ino == st.ino && wide.later == 0);

    vellum_handle file = open_of("/attr", O_RDWR);
    OK(vellum_fstat(file, &other, sizeof other));
    EQ(st.ino, other.ino);
    FAILS(EFAULT, vellum_fstat(file, NULL, sizeof st));
    FAILS(EINVAL, vellum_fstat(file, &st, 0));

    OK(vellum_chmod(root, "/attr", 0640));
    OK(vellum_fchmod(file, S_ISUID | 0755));
    OK(vellum_fstat(file, &st, sizeof st));
    EQ(S_IFREG | S_ISUID | 0755, st.mode);
    FAILS(EPERM, vellum_chmod(user, "/attr", 0777));
    FAILS(ENOENT, vellum_chmod(root, "/none", 0777));
    OK(vellum_chown(root, "/to-attr", USER, (uint32_t)-1));
    OK(vellum_lchown(root, "/to-attr", 7, 8));
    OK(vellum_fchown(file, (uint32_t)-1, 9));
    OK(vellum_fstat(file, &st, sizeof st));
    EQ(1, st.uid == USER && st.gid == 9 && st.mode == (S_IFREG | 0755));
    OK(vellum_lstat(root, "/to-attr", &st, sizeof st));
    EQ(1, st.uid == 7 && st.gid == 8);
    FAILS(EPERM, vellum_chown(user, "/attr", 0, 0));
    FAILS(EPERM, vellum_lchown(user, "/to-attr", 0, 0));

    struct timespec times[2] = {{1, 2}, {-3, 4}};
    OK(vellum_utimens(root, "/to-attr", times));
    OK(vellum_fstat(file, &st, sizeof st));
    EQ(1000000002, st.atime_ns);
    EQ(-2999999996, st.mtime_ns);
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_nsec = UTIME_NOW;
    OK(vellum_futimens(file, times));
    OK(vellum_fstat(file, &st, sizeof st));
    EQ(1, st.atime_ns == 1000000002 && st.mtime_ns > 1000000002);
    OK(vellum_lutimens(root, "/to-attr", NULL));
    times[1].tv_nsec = UTIME_OMIT;
    OK(vellum_utimens(root, "/none", times));
    times[1].tv_nsec = 1000000000;
    FAILS(EINVAL, vellum_utimens(root, "/attr", times));
    FAILS(EINVAL, vellum_futimens(file, times));
    FAILS(ENOENT, vellum_utimens(root, "/none", NULL));
    OK(vellum_chown(root, "/attr", 0, 0));
    times[1].tv_nsec = 0;
    FAILS(EPERM, vellum_utimens(user, "/attr", times));
    FAILS(EACCES, vellum_utimens(user, "/attr", NULL));

    OK(vellum_access(root, "/attr", F_OK));
    OK(vellum_access(user, "/attr", R_OK | X_OK));
    FAILS(EACCES, vellum_access(user, "/attr", W_OK));
    FAILS(ENOENT, vellum_access(root, "/none", F_OK));
    FAILS(EINVAL, vellum_access(root, "/attr", 8));
    FAILS(EINVAL, vellum_access(root, "/attr", -1));

    struct vellum_statfs fs;
    OK(vellum_statfs(pool, &fs, sizeof fs));
    EQ(1, fs.block_bytes == 4096 && fs.blocks_free < fs.blocks && fs.files_free < fs.files && fs.name_max_bytes == 255);
    OK(vellum_statfs(file, &fs, sizeof fs));
    FAILS(EFAULT, vellum_statfs(pool, NULL, sizeof fs));
    FAILS(EINVAL, vellum_statfs(pool, &fs, 8));
    OK(vellum_close(file));
}

static void names(void)
{
    OK(vellum_mkdir(root, "/names", 0777));
    OK(vellum_mkdir(root, "/names/a/", 0777));
    FAILS(EEXIST, vellum_mkdir(root, "/names/a", 0777));
    FAILS(EEXIST, vellum_mkdir(root, "/", 0777));
    FAILS(ENOENT, vellum_mkdir(root, "/none/a", 0777));
    FAILS(ENOENT, vellum_mkdir(root, "", 0777));
    FAILS(EACCES, vellum_mkdir(user, "/denied", 0777));
    FAILS(EFAULT, vellum_mkdir(root, NULL, 0777));
    put(root, "/names/f", "f");
    FAILS(ENOTDIR, vellum_mkdir(root, "/names/f/x", 0777));

    OK(vellum_mknod(root, "/names/plain", S_IFREG | 0600, 0));
    OK(vellum_mknod(root, "/names/device", S_IFCHR | 0600, 0x103));
    struct vellum_stat st;
    OK(vellum_stat(root, "/names/device", &st, sizeof st));
    EQ(1, S_ISCHR(st.mode) && st.rdev == 0x103);
    FAILS(EEXIST, vellum_mknod(root, "/names/f", S_IFIFO, 0));
    FAILS(EPERM, vellum_mknod(root, "/names/x", S_IFDIR, 0));
    FAILS(EINVAL, vellum_mknod(root, "/names/x", S_IFLNK, 0));
    FAILS(EPERM, vellum_mknod(user, "/names/x", S_IFBLK, 5));

    OK(vellum_link(root, "/names/f", root, "/names/g", 0));
    OK(vellum_symlink("f", root, "/names/s"));
    OK(vellum_link(root, "/names/s", root, "/names/h", AT_SYMLINK_FOLLOW));
    OK(vellum_stat(root, "/names/h", &st, sizeof st));
    EQ(3, st.nlink);
    FAILS(EEXIST, vellum_link(root, "/names/f", root, "/names/g", 0));
    FAILS(ENOENT, vellum_link(root, "/names/none", root, "/names/x", 0));
    FAILS(ENOENT, vellum_link(root, "/names/f", root, "/names/x/", 0));
    FAILS(EPERM, vellum_link(root, "/names/a", root, "/names/x", 0));
    FAILS(EINVAL, vellum_link(root, "/names/f", root, "/names/x", 1));
    FAILS(EFAULT, vellum_link(root, "/names/f", root, NULL, 0));

    char target[8];
    memset(target, '-', sizeof target);
    EQ(1, vellum_readlink(root, "/names/s", target, sizeof target));
    EQ('f', target[0]);
    EQ('-', target[1]);
    OK(vellum_symlink("longer than the buffer", root, "/names/t"));
    EQ(8, vellum_readlink(root, "/names/t", target, sizeof target));
    FAILS(EINVAL, vellum_readlink(root, "/names/f", target, sizeof target));
    FAILS(EINVAL, vellum_readlink(root, "/names/s", target, 0));
    FAILS(EFAULT, vellum_readlink(root, "/names/s", NULL, 8));
    FAILS(ENOENT, vellum_readlink(root, "/none", target, sizeof target));
    FAILS(EEXIST, vellum_symlink("f", root, "/names/s"));
    FAILS(ENOENT, vellum_symlink("", root, "/names/x"));
    FAILS(EFAULT, vellum_symlink(NULL, root, "/names/x"));

    OK(vellum_rename(root, "/names/g", root, "/names/renamed", 0));
    FAILS(EEXIST, vellum_rename(root, "/names/f", root, "/names/plain", RENAME_NOREPLACE));
    OK(vellum_rename(root, "/names/f", root, "/names/plain", RENAME_EXCHANGE));
    OK(vellum_stat(root, "/names/plain", &st, sizeof st));
    EQ(1, st.size_bytes);
    FAILS(EINVAL, vellum_rename(root, "/names/f", root, "/names/x", RENAME_NOREPLACE | RENAME_EXCHANGE));
    FAILS(EINVAL, vellum_rename(root, "/names/f", root, "/names/x", 8));
    FAILS(EINVAL, vellum_rename(root, "/names", root, "/names/a/x", 0));
    FAILS(ENOENT, vellum_rename(root, "/names/none", root, "/names/x", 0));
    FAILS(ENOTDIR, vellum_rename(root, "/names/f/", root, "/names/x", 0));
    FAILS(ENOTEMPTY, vellum_rename(root, "/names/a", root, "/names", 0));
    FAILS(EISDIR, vellum_rename(root, "/names/f", root, "/names/a", 0));
    FAILS(EBUSY, vellum_rename(root, "/", root, "/names/x", 0));
    FAILS(EFAULT, vellum_rename(root, NULL, root, "/names/x", 0));
    FAILS(EACCES, vellum_rename(user, "/names/f", user, "/x", 0));
    vellum_handle dir = OK(vellum_opendir(root, "/names/a"));
    OK(vellum_rename(root, "/names/f", dir, "moved", 0));
    OK(vellum_rename(dir, "moved", root, "/names/f", RENAME_WHITEOUT));
    OK(vellum_unlink(dir, "moved"));

    vellum_handle other = OK(vellum_pool_memory(16 << 20));
    FAILS(EXDEV, vellum_rename(root, "/names/f", other, "/f", 0));
    FAILS(EXDEV, vellum_link(root, "/names/f", other, "/f", 0));
    OK(vellum_pool_close(other));
    FAILS(EBADF, vellum_rename(root, "/names/f", other, "/f", 0));
    stale[stale_count++] = other;

    FAILS(EISDIR, vellum_unlink(root, "/names/a"));
    FAILS(ENOTDIR, vellum_unlink(root, "/names/f/"));
    FAILS(ENOENT, vellum_unlink(root, "/names/none"));
    FAILS(EACCES, vellum_unlink(user, "/f"));
    OK(vellum_unlink(root, "/names/h"));
    FAILS(ENOTDIR, vellum_rmdir(root, "/names/f"));
    FAILS(ENOTEMPTY, vellum_rmdir(root, "/names"));
    FAILS(EINVAL, vellum_rmdir(root, "/names/a/."));
    FAILS(EBUSY, vellum_rmdir(root, "/"));
    OK(vellum_rmdir(root, "/names/a/"));
    FAILS(ENOENT, vellum_rmdir(root, "/names/a"));
    FAILS(ENOENT, vellum_mkdir(dir, "in-removed", 0777));
    OK(vellum_closedir(dir));
}

static void unnamed_files(void)
{
    vellum_handle file = open_of("/", O_RDWR | O_TMPFILE);
    EQ(8, vellum_write(file, "complete", 8));
    OK(vellum_flink(file, root, "/report"));
    EQ(8, size_of("/report"));
    FAILS(EEXIST, vellum_flink(file, root, "/report"));
    FAILS(EFAULT, vellum_flink(file, root, NULL));
    OK(vellum_close(file));
    file = open_of("/", O_RDWR | O_TMPFILE | O_EXCL);
    FAILS(ENOENT, vellum_flink(file, root, "/never"));
    OK(vellum_close(file));
    FAILS(EINVAL, vellum_open(root, "/", O_RDONLY | O_TMPFILE, 0600));
    FAILS(ENOTDIR, vellum_open(root, "/report", O_RDWR | O_TMPFILE, 0600));
}

static void listing(void)
{
    char name[16];
    OK(vellum_mkdir(root, "/list", 0755));
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "/list/%03d", i);
        put(root, name, "");
    }
    struct vellum_dirent entry;
    int seen[300] = {0}, count = 0;
    int64_t middle = 0;
    vellum_handle dir = OK(vellum_opendir(root, "/list"));
    EQ(0, vellum_telldir(dir));
    while (OK(vellum_readdir(dir, &entry, sizeof entry))) {
        EQ(3, entry.name_bytes);
        EQ(3, strlen(entry.name));
        EQ(DT_REG, entry.kind);
        seen[atoi(entry.name)]++;
        EQ(entry.position, vellum_telldir(dir));
        if (++count == 150)
            middle = entry.position;
    }
    for (int i = 0; i < 300; i++)
        EQ(1, seen[i]);
    EQ(0, vellum_readdir(dir, &entry, sizeof entry));
    OK(vellum_seekdir(dir, middle));
    for (count = 150; OK(vellum_readdir(dir, &entry, sizeof entry)); count++)
        ;
    EQ(300, count);
    OK(vellum_seekdir(dir, 0));
    EQ(1, vellum_readdir(dir, &entry, sizeof entry));
    FAILS(EINVAL, vellum_seekdir(dir, -1));
    FAILS(EFAULT, vellum_readdir(dir, NULL, sizeof entry));
    FAILS(EINVAL, vellum_readdir(dir, &entry, sizeof entry - 1));
    OK(vellum_closedir(dir));
    FAILS(EBADF, vellum_readdir(dir, &entry, sizeof entry));
    FAILS(ENOTDIR, vellum_opendir(root, "/list/000"));
    OK(vellum_chmod(root, "/list", 0700));
    FAILS(EACCES, vellum_opendir(user, "/list"));
    vellum_handle file = open_of("/list/000", O_RDONLY);
    FAILS(ENOTDIR, vellum_readdir(file, &entry, sizeof entry));
    FAILS(ENOTDIR, vellum_telldir(file));
    FAILS(ENOTDIR, vellum_seekdir(file, 0));
    OK(vellum_close(file));
}

static void extended_attributes(void)
{
    char value[8];
    put(root, "/x", "");
    OK(vellum_symlink("x", root, "/to-x"));
    vellum_handle file = open_of("/x", O_RDWR);
    OK(vellum_setxattr(root, "/to-x", "user.a", "one", 3, XATTR_CREATE));
    FAILS(EEXIST, vellum_setxattr(root, "/x", "user.a", "two", 3, XATTR_CREATE));
    FAILS(ENODATA, vellum_fsetxattr(file, "user.b", "two", 3, XATTR_REPLACE));
    OK(vellum_fsetxattr(file, "user.b", "two", 3, 0));
    OK(vellum_lsetxattr(root, "/to-x", "trusted.c", "", 0, 0));
    EQ(3, vellum_getxattr(root, "/to-x", "user.a", value, sizeof value));
    EQ(0, memcmp(value, "one", 3));
    EQ(3, vellum_fgetxattr(file, "user.b", NULL, 0));
    EQ(0, vellum_lgetxattr(root, "/to-x", "trusted.c", value, sizeof value));
    FAILS(ERANGE, vellum_getxattr(root, "/x", "user.a", value, 2));
    FAILS(ENODATA, vellum_getxattr(root, "/x", "user.none", value, sizeof value));
    FAILS(ENODATA, vellum_lgetxattr(root, "/to-x", "trusted.d", value, sizeof value));
    FAILS(ENOENT, vellum_getxattr(root, "/none", "user.a", value, sizeof value));
    FAILS(EFAULT, vellum_getxattr(root, "/x", NULL, value, sizeof value));
    FAILS(EFAULT, vellum_fgetxattr(file, "user.a", NULL, 8));
    FAILS(EINVAL, vellum_setxattr(root, "/x", "user.a", "", 0, 99));
    FAILS(EOPNOTSUPP, vellum_setxattr(root, "/x", "nospace.a", "", 0, 0));
    FAILS(ERANGE, vellum_setxattr(root, "/x", "", "", 0, 0));
    FAILS(EFAULT, vellum_setxattr(root, "/x", "user.a", NULL, 1, 0));
    static char long_value[65537];
    FAILS(E2BIG, vellum_fsetxattr(file, "user.a", long_value, sizeof long_value, 0));
    OK(vellum_chmod(root, "/x", 0600));
    FAILS(EACCES, vellum_setxattr(user, "/x", "user.a", "", 0, 0));
    char names[16];
    EQ(14, vellum_listxattr(root, "/to-x", NULL, 0));
    EQ(14, vellum_flistxattr(file, names, sizeof names));
    EQ(0, memcmp(names, "user.a\0user.b", 14) && memcmp(names, "user.b\0user.a", 14));
    EQ(10, vellum_llistxattr(root, "/to-x", names, sizeof names));
    FAILS(ERANGE, vellum_listxattr(root, "/x", names, 13));
    FAILS(EFAULT, vellum_listxattr(root, "/x", NULL, 14));
    OK(vellum_removexattr(root, "/to-x", "user.a"));
    OK(vellum_fremovexattr(file, "user.b"));
    OK(vellum_lremovexattr(root, "/to-x", "trusted.c"));
    FAILS(ENODATA, vellum_removexattr(root, "/x", "user.a"));
    FAILS(ENODATA, vellum_fremovexattr(file, "user.a"));
    FAILS(ENODATA, vellum_lremovexattr(root, "/to-x", "trusted.c"));
    EQ(0, vellum_flistxattr(file, NULL, 0));
    OK(vellum_close(file));
}

static void locks(void)
{
    put(root, "/lock", "0123456789");
    vellum_handle one = open_of("/lock", O_RDWR), two = open_of("/lock", O_RDWR);
    OK(vellum_flock(one, LOCK_SH));
    OK(vellum_flock(two, LOCK_SH | LOCK_NB));
    FAILS(EWOULDBLOCK, vellum_flock(two, LOCK_EX | LOCK_NB));
    OK(vellum_flock(one, LOCK_UN));
    OK(vellum_flock(two, LOCK_EX));
    FAILS(EINVAL, vellum_flock(one, 0));
    FAILS(EINVAL, vellum_flock(one, LOCK_SH | LOCK_EX));

    struct vellum_lock_range range = {.kind = F_WRLCK, .whence = SEEK_SET, .start = 2, .length = 3};
    OK(vellum_lock(one, F_OFD_SETLK, &range));
    FAILS(EAGAIN, vellum_lock(two, F_OFD_SETLK, &range));
    FAILS(EAGAIN, vellum_lock(two, F_SETLK, &range));
    struct vellum_lock_range asked = {.kind = F_RDLCK, .whence = SEEK_END, .start = -10, .length = 0};
    OK(vellum_lock(two, F_OFD_GETLK, &asked));
    EQ(1, asked.kind == F_WRLCK && asked.start == 2 && asked.length == 3 && asked.pid == -1);
    asked = (struct vellum_lock_range){.kind = F_RDLCK, .whence = SEEK_SET, .start = 5, .length = 1};
    OK(vellum_lock(two, F_GETLK, &asked));
    EQ(F_UNLCK, asked.kind);
    range.kind = F_UNLCK;
    OK(vellum_lock(one, F_OFD_SETLK, &range));
    range.kind = F_RDLCK;
    EQ(2, vellum_lseek(one, 2, SEEK_SET));
    range.whence = SEEK_CUR;
    OK(vellum_lock(one, F_SETLKW, &range));
    asked = (struct vellum_lock_range){.kind = F_WRLCK, .whence = SEEK_SET};
    OK(vellum_lock(two, F_OFD_GETLK, &asked));
    EQ(1, asked.kind == F_RDLCK && asked.start == 4 && asked.pid == getpid());
    FAILS(EFAULT, vellum_lock(one, F_SETLK, NULL));
    FAILS(EINVAL, vellum_lock(one, 99, &range));
    range = (struct vellum_lock_range){.kind = 99};
    FAILS(EINVAL, vellum_lock(one, F_SETLK, &range));
    range = (struct vellum_lock_range){.whence = 99};
    FAILS(EINVAL, vellum_lock(one, F_SETLK, &range));
    range = (struct vellum_lock_range){.start = -1};
    FAILS(EINVAL, vellum_lock(one, F_SETLK, &range));
    range = (struct vellum_lock_range){.whence = SEEK_END, .start = INT64_MAX};
    FAILS(EOVERFLOW, vellum_lock(one, F_SETLK, &range));
    range = (struct vellum_lock_range){.start = INT64_MAX, .length = 2};
    FAILS(EOVERFLOW, vellum_lock(one, F_SETLK, &range));
    range = (struct vellum_lock_range){.kind = F_UNLCK};
    FAILS(EINVAL, vellum_lock(one, F_GETLK, &range));
    OK(vellum_close(one));
    one = open_of("/lock", O_RDONLY);
    range = (struct vellum_lock_range){.kind = F_WRLCK, .length = 1};
    FAILS(EBADF, vellum_lock(one, F_OFD_SETLK, &range));
    OK(vellum_close(one));
    OK(vellum_close(two));
}

static void copies(void)
{
    char out[16];
    put(root, "/from", "0123456789");
    vellum_handle from = open_of("/from", O_RDWR), to = open_of("/to", O_RDWR | O_CREAT);
    int64_t from_offset = 4, to_offset = 1;
    EQ(6, vellum_copy_file_range(from, &from_offset, to, &to_offset, 100, 0));
    EQ(1, from_offset == 10 && to_offset == 7);
    EQ(0, vellum_copy_file_range(from, &from_offset, to, &to_offset, 100, 0));
    EQ(7, vellum_pread(to, out, sizeof out, 0));
    EQ(0, memcmp(out, "\000456789", 7));
    EQ(10, vellum_copy_file_range(from, NULL, to, NULL, 100, 0));
    EQ(10, vellum_lseek(from, 0, SEEK_CUR));
    EQ(10, vellum_lseek(to, 0, SEEK_CUR));
    from_offset = 0;
    to_offset = 5;
    EQ(5, vellum_copy_file_range(from, &from_offset, from, &to_offset, 5, 0));
    EQ(5, vellum_pread(from, out, 5, 5));
    EQ(0, memcmp(out, "01234", 5));
    from_offset = 1;
    FAILS(EINVAL, vellum_copy_file_range(from, &from_offset, from, &to_offset, 10, 0));
    FAILS(EINVAL, vellum_copy_file_range(from, NULL, to, NULL, 1, 1));
    from_offset = -1;
    FAILS(EINVAL, vellum_copy_file_range(from, &from_offset, to, NULL, 1, 0));
    vellum_handle appends = open_of("/to", O_WRONLY | O_APPEND);
    FAILS(EBADF, vellum_copy_file_range(from, NULL, appends, NULL, 1, 0));
    FAILS(EBADF, vellum_copy_file_range(appends, NULL, to, NULL, 1, 0));
    OK(vellum_close(appends));
    vellum_handle dir = OK(vellum_opendir(root, "/"));
    FAILS(EISDIR, vellum_copy_file_range(dir, NULL, to, NULL, 1, 0));
    OK(vellum_closedir(dir));
    OK(vellum_close(from));
    OK(vellum_close(to));
}

static void views(void)
{
    static char page[64 << 10];
    const void *bytes;
    size_t shown;
    memset(page, 'p', sizeof page);
    vellum_handle file = open_of("/view", O_RDWR | O_CREAT);
    EQ(sizeof page, vellum_pwrite(file, page, sizeof page, 0));
    vellum_handle view = OK(vellum_view(file, 4096, 8192, &bytes, &shown));
    EQ(8192, shown);
    EQ(0, memcmp(bytes, page, shown));
    FAILS(EDEADLK, vellum_pwrite(file, "x", 1, 4096));
    EQ(1, vellum_pwrite(file, "x", 1, 0));
    OK(vellum_view_check(view));

    /* The view outlives the handle of the file, and its name. */
    OK(vellum_close(file));
    OK(vellum_unlink(root, "/view"));
    EQ('p', ((const char *)bytes)[8191]);
    OK(vellum_view_release(view));
    FAILS(EBADF, vellum_view_release(view));
    FAILS(EBADF, vellum_view_check(view));
    stale[stale_count++] = view;

    file = open_of("/f", O_RDWR);
    view = OK(vellum_view(file, 0, 100, &bytes, &shown));
    EQ(1, bytes == NULL && shown == 0);
    FAILS(EBADF, vellum_close(view));
    FAILS(EBADF, vellum_open(view, "/f", O_RDONLY, 0));
    OK(vellum_view_release(view));
    FAILS(EINVAL, vellum_view(file, -1, 1, &bytes, &shown));
    FAILS(EFAULT, vellum_view(file, 0, 1, NULL, &shown));
    FAILS(EFAULT, vellum_view(file, 0, 1, &bytes, NULL));
    FAILS(EBADF, vellum_view_check(file));
    FAILS(EBADF, vellum_view_release(file));
    OK(vellum_close(file));
    file = open_of("/f", O_WRONLY);
    FAILS(EBADF, vellum_view(file, 0, 1, &bytes, &shown));
    OK(vellum_close(file));
}

/* Every function refuses a handle that is not open, and one of another kind. */
static void refuses(vellum_handle bad)
{
    char out[8];
    struct vellum_stat st;
    struct vellum_statfs fs;
    struct vellum_dirent entry;
    struct vellum_lock_range range = {0};
    struct iovec part = {out, 1};
    const void *bytes;
    size_t shown;
    FAILS(EBADF, vellum_read(bad, out, 1));
    FAILS(EBADF, vellum_write(bad, out, 1));
    FAILS(EBADF, vellum_pread(bad, out, 1, 0));
    FAILS(EBADF, vellum_pwrite(bad, out, 1, 0));
    FAILS(EBADF, vellum_preadv(bad, &part, 1, 0));
    FAILS(EBADF, vellum_pwritev(bad, &part, 1, 0));
    FAILS(EBADF, vellum_lseek(bad, 0, SEEK_SET));
    FAILS(EBADF, vellum_fsync(bad));
    FAILS(EBADF, vellum_fdatasync(bad));
    FAILS(EBADF, vellum_fstat(bad, &st, sizeof st));
    FAILS(EBADF, vellum_fchmod(bad, 0));
    FAILS(EBADF, vellum_fchown(bad, 0, 0));
    FAILS(EBADF, vellum_futimens(bad, NULL));
    FAILS(EBADF, vellum_ftruncate(bad, 0));
    FAILS(EBADF, vellum_flink(bad, root, "/x"));
    FAILS(EBADF, vellum_readdir(bad, &entry, sizeof entry));
    FAILS(EBADF, vellum_telldir(bad));
    FAILS(EBADF, vellum_seekdir(bad, 0));
    FAILS(EBADF, vellum_fgetxattr(bad, "user.a", out, 8));
    FAILS(EBADF, vellum_fsetxattr(bad, "user.a", out, 8, 0));
    FAILS(EBADF, vellum_flistxattr(bad, out, 8));
    FAILS(EBADF, vellum_fremovexattr(bad, "user.a"));
    FAILS(EBADF, vellum_flock(bad, LOCK_SH));
    FAILS(EBADF, vellum_lock(bad, F_SETLK, &range));
    FAILS(EBADF, vellum_fallocate(bad, 0, 0, 1));
    FAILS(EBADF, vellum_copy_file_range(bad, NULL, bad, NULL, 1, 0));
    FAILS(EBADF, vellum_view(bad, 0, 1, &bytes, &shown));
    FAILS(EBADF, vellum_view_check(bad));
    FAILS(EBADF, vellum_view_release(bad));
    if (bad == pool || bad == root)
        return;
    FAILS(EBADF, vellum_close(bad));
    FAILS(EBADF, vellum_closedir(bad));
    FAILS(EBADF, vellum_pool_close(bad));
    FAILS(EBADF, vellum_volume_open(bad, NULL, 0));
    FAILS(EBADF, vellum_sync(bad));
    FAILS(EBADF, vellum_statfs(bad, &fs, sizeof fs));
    FAILS(EBADF, vellum_open(bad, "/", O_RDONLY, 0));
    FAILS(EBADF, vellum_opendir(bad, "/"));
    FAILS(EBADF, vellum_stat(bad, "/", &st, sizeof st));
    FAILS(EBADF, vellum_lstat(bad, "/", &st, sizeof st));
    FAILS(EBADF, vellum_access(bad, "/", F_OK));
    FAILS(EBADF, vellum_chmod(bad, "/", 0));
    FAILS(EBADF, vellum_chown(bad, "/", 0, 0));
    FAILS(EBADF, vellum_lchown(bad, "/", 0, 0));
    FAILS(EBADF, vellum_utimens(bad, "/", NULL));
    FAILS(EBADF, vellum_lutimens(bad, "/", NULL));
    FAILS(EBADF, vellum_truncate(bad, "/", 0));
    FAILS(EBADF, vellum_mkdir(bad, "/x", 0));
    FAILS(EBADF, vellum_mknod(bad, "/x", 0, 0));
    FAILS(EBADF, vellum_rmdir(bad, "/x"));
    FAILS(EBADF, vellum_unlink(bad, "/x"));
    FAILS(EBADF, vellum_rename(bad, "/x", root, "/y", 0));
    FAILS(EBADF, vellum_rename(root, "/x", bad, "/y", 0));
    FAILS(EBADF, vellum_link(bad, "/x", root, "/y", 0));
    FAILS(EBADF, vellum_link(root, "/x", bad, "/y", 0));
    FAILS(EBADF, vellum_symlink("x", bad, "/y"));
    FAILS(EBADF, vellum_readlink(bad, "/x", out, 8));
    FAILS(EBADF, vellum_getxattr(bad, "/", "user.a", out, 8));
    FAILS(EBADF, vellum_lgetxattr(bad, "/", "user.a", out, 8));
    FAILS(EBADF, vellum_setxattr(bad, "/", "user.a", out, 8, 0));
    FAILS(EBADF, vellum_lsetxattr(bad, "/", "user.a", out, 8, 0));
    FAILS(EBADF, vellum_listxattr(bad, "/", out, 8));
    FAILS(EBADF, vellum_llistxattr(bad, "/", out, 8));
    FAILS(EBADF, vellum_removexattr(bad, "/", "user.a"));
    FAILS(EBADF, vellum_lremovexattr(bad, "/", "user.a"));
}

static void bad_handles(void)
{
    const vellum_handle never[] = {0, 1, -1, 3, INT64_MAX, INT64_MIN, root + (INT64_C(1) << 20), root + (INT64_C(1) << 62)};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        refuses(never[i]);
    for (size_t i = 0; i < stale_count; i++)
        refuses(stale[i]);
    refuses(pool);
    refuses(root);
}

/* The errors of vellum_volume_open, and what users and umasks do. */
static void volumes(void)
{
    uint32_t groups[2] = {100, 200};
    struct vellum_cred cred = {.uid = USER, .gid = 7, .groups = groups, .group_count = 2, .umask = 027};
    vellum_handle member = OK(vellum_volume_open(root, &cred, sizeof cred));
    OK(vellum_mkdir(root, "/of-group", 0770));
    OK(vellum_chown(root, "/of-group", 0, 200));
    vellum_handle file = OK(vellum_open(member, "/of-group/f", O_RDWR | O_CREAT, 0666));
    struct vellum_stat st;
    OK(vellum_fstat(file, &st, sizeof st));
    EQ(1, st.uid == USER && st.gid == 7 && st.mode == (S_IFREG | 0640));
    FAILS(EACCES, vellum_stat(user, "/of-group/f", &st, sizeof st));
    FAILS(EBADF, vellum_volume_open(file, NULL, 0));
    OK(vellum_close(file));
    OK(vellum_close(member));
    stale[stale_count++] = member;
    vellum_handle same = OK(vellum_volume_open(pool, NULL, 0));
    OK(vellum_close(same));
    cred.umask = 01000;
    FAILS(EINVAL, vellum_volume_open(pool, &cred, sizeof cred));
    cred = (struct vellum_cred){.reserved = 1};
    FAILS(EINVAL, vellum_volume_open(pool, &cred, sizeof cred));
    cred = (struct vellum_cred){.group_count = 1};
    FAILS(EFAULT, vellum_volume_open(pool, &cred, sizeof cred));
    struct {
        struct vellum_cred known;
        uint64_t later;
    } wide = {.later = 1};
    FAILS(E2BIG, vellum_volume_open(pool, &wide.known, sizeof wide));
    wide.later = 0;
    OK(vellum_close(OK(vellum_volume_open(pool, &wide.known, sizeof wide))));
}

int main(void)
{
    EQ(0, strlen(vellum_last_error()));
    pool = OK(vellum_pool_memory(64 << 20));
    root = as_user(pool, 0);
    OK(vellum_chown(root, "/", 0, 0));
    user = as_user(pool, USER);
    opening();
    reading_and_writing();
    large_segments();
    seeking();
    attributes();
    names();
    unnamed_files();
    listing();
    extended_attributes();
    locks();
    copies();
    views();
    volumes();
    bad_handles();

    /* After its pool was closed, a handle is open, and every use of it fails. */
    struct vellum_stat st;
    char byte;
    vellum_handle file = open_of("/f", O_RDWR), dir = OK(vellum_opendir(root, "/"));
    struct vellum_dirent entry;
    OK(vellum_pool_close(pool));
    FAILS(EBADF, vellum_pool_close(pool));
    FAILS(EBADF, vellum_stat(root, "/f", &st, sizeof st));
    FAILS(EBADF, vellum_fstat(file, &st, sizeof st));
    FAILS(EBADF, vellum_read(file, &byte, 1));
    FAILS(EBADF, vellum_write(file, &byte, 1));
    FAILS(EBADF, vellum_readdir(dir, &entry, sizeof entry));
    EQ(1, strstr(vellum_last_error(), "the pool is closed") != NULL);
    FAILS(EBADF, vellum_fsync(file));
    FAILS(EBADF, vellum_volume_open(root, NULL, 0));
    OK(vellum_close(file));
    OK(vellum_closedir(dir));
    OK(vellum_close(user));
    OK(vellum_close(root));
    printf("ok\n");
    return 0;
}
