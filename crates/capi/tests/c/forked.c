/*
 * A child of fork is refused on the pool of its parent, may use a pool of its own, and changes nothing for the parent.
 * The argument is the path of a new pool. Prints "ok" at the end.
 */
#define _GNU_SOURCE
#include <sys/wait.h>

#include "check.h"

static vellum_handle pool, file, dir, volume, view;

static void child(void)
{
    char byte;
    struct vellum_stat st;
    struct vellum_dirent entry;
    FAILS(EBUSY, vellum_open(pool, "/f", O_RDONLY, 0));
    EQ(1, strstr(vellum_last_error(), "open pools after the fork") != NULL);
    FAILS(EBUSY, vellum_open(volume, "/f", O_RDWR | O_CREAT, 0600));
    FAILS(EBUSY, vellum_stat(dir, "f", &st, sizeof st));
    FAILS(EBUSY, vellum_fstat(file, &st, sizeof st));
    FAILS(EBUSY, vellum_read(file, &byte, 1));
    FAILS(EBUSY, vellum_pread(file, &byte, 1, 0));
    FAILS(EBUSY, vellum_write(file, "x", 1));
    FAILS(EBUSY, vellum_pwrite(file, "x", 1, 0));
    FAILS(EBUSY, vellum_lseek(file, 0, SEEK_SET));
    FAILS(EBUSY, vellum_ftruncate(file, 0));
    FAILS(EBUSY, vellum_fsync(file));
    FAILS(EBUSY, vellum_sync(pool));
    FAILS(EBUSY, vellum_readdir(dir, &entry, sizeof entry));
    FAILS(EBUSY, vellum_mkdir(pool, "/of-child", 0700));
    FAILS(EBUSY, vellum_unlink(pool, "/f"));
    FAILS(EBUSY, vellum_rename(pool, "/f", pool, "/g", 0));
    FAILS(EBUSY, vellum_volume_open(pool, NULL, 0));

    vellum_handle own = OK(vellum_pool_memory(16 << 20));
    put(own, "/f", "of the child");
    OK(vellum_pool_close(own));

    FAILS(EBUSY, vellum_close(file));
    FAILS(EBADF, vellum_close(file));
    FAILS(EBUSY, vellum_close(volume));
    OK(vellum_view_release(view));
    FAILS(EBUSY, vellum_pool_close(pool));
    FAILS(EBADF, vellum_pool_close(pool));
    _exit(0); /* what belongs to the parent is forgotten here, not freed: no leak to be reported */
}

int main(int argc, char **argv)
{
    int status;
    char byte;
    const void *shown;
    size_t length;
    pool = OK(vellum_pool_create(argc > 1 ? argv[1] : "", NULL, 0));
    volume = OK(vellum_volume_open(pool, NULL, 0));
    file = OK(vellum_open(pool, "/f", O_RDWR | O_CREAT, 0600));
    dir = OK(vellum_opendir(pool, "/"));
    EQ(1, vellum_write(file, "p", 1));
    view = OK(vellum_view(file, 0, 1, &shown, &length));
    pid_t of_child = (pid_t)OK(fork());
    if (of_child == 0)
        child();
    EQ(of_child, waitpid(of_child, &status, 0));
    EQ(0, status);

    EQ('p', *(const char *)shown);
    FAILS(EDEADLK, vellum_pwrite(file, "q", 1, 0));
    OK(vellum_view_release(view));
    EQ(1, vellum_pwrite(file, "q", 1, 0));
    EQ(1, vellum_pread(file, &byte, 1, 0));
    EQ('q', byte);
    FAILS(ENOENT, vellum_rmdir(volume, "/of-child"));
    OK(vellum_closedir(dir));
    OK(vellum_close(file));
    OK(vellum_close(volume));
    OK(vellum_pool_close(pool));
    printf("ok\n");
    return 0;
}
