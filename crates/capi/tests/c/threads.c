/*
 * Threads open, close and use the same handles at the same time. A call on a handle that another thread closes does what
 * it does, or fails with EBADF; it never meets another file. With a second argument the kernel refuses membarrier(2), by
 * which the library orders closing and calls, and the library has to do without. Prints "ok" at the end.
 */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "check.h"

enum { FILES = 6, READERS = 3, CLOSERS = 2, ROUNDS = 2000, POOLS = 10 };

static vellum_handle pool;
static _Atomic(vellum_handle) files[FILES];
static atomic_int running = 1;

/* Fails unless a call succeeded, or found its handle closed. */
#define OK_OR_CLOSED(call) ok_or_closed((int64_t)(call), #call, __LINE__)

static int64_t ok_or_closed(int64_t returned, const char *call, int line)
{
    return returned == -1 && errno == EBADF ? -1 : check_ok(returned, call, line);
}

static void name_of(int file, char *name)
{
    sprintf(name, "/%d", file);
}

/* Uses each handle in many ways. File number i has bytes i and size 100 + i. */
static void *use(void *argument)
{
    (void)argument;
    while (running) {
        for (int i = 0; i < FILES; i++) {
            vellum_handle file = files[i];
            struct vellum_stat st;
            unsigned char bytes[8];
            if (OK_OR_CLOSED(vellum_fstat(file, &st, sizeof st)) == 0)
                EQ(100 + i, st.size_bytes);
            if (OK_OR_CLOSED(vellum_pread(file, bytes, sizeof bytes, 10)) > 0)
                EQ(1, bytes[0] == i && bytes[7] == i);
            OK_OR_CLOSED(vellum_read(file, bytes, sizeof bytes));
            OK_OR_CLOSED(vellum_lseek(file, 0, SEEK_SET));
            const void *shown;
            size_t length;
            vellum_handle view = OK_OR_CLOSED(vellum_view(file, 0, 100, &shown, &length));
            if (view > 0) {
                EQ(1, length == 100 && *(const unsigned char *)shown == i);
                OK(vellum_view_release(view));
            }
        }
    }
    return NULL;
}

/* Closes each handle and opens its file again, under another number. */
static void *reopen(void *argument)
{
    unsigned random = (unsigned)(uintptr_t)argument;
    char name[8];
    for (int round = 0; round < ROUNDS; round++) {
        int i = rand_r(&random) % FILES;
        name_of(i, name);
        vellum_handle before = atomic_exchange(&files[i], OK(vellum_open(pool, name, O_RDWR, 0)));
        OK(vellum_close(before));
        FAILS(EBADF, vellum_close(before));
    }
    return NULL;
}

static void closing_beside_calls(void)
{
    char name[8], bytes[200];
    pool = OK(vellum_pool_memory(32 << 20));
    for (int i = 0; i < FILES; i++) {
        name_of(i, name);
        memset(bytes, i, sizeof bytes);
        files[i] = OK(vellum_open(pool, name, O_RDWR | O_CREAT, 0600));
        EQ(100 + i, vellum_write(files[i], bytes, 100 + (size_t)i));
    }
    pthread_t readers[READERS], closers[CLOSERS];
    for (int i = 0; i < READERS; i++)
        EQ(0, pthread_create(&readers[i], NULL, use, NULL));
    for (uintptr_t i = 0; i < CLOSERS; i++)
        EQ(0, pthread_create(&closers[i], NULL, reopen, (void *)(i + 1)));
    for (int i = 0; i < CLOSERS; i++)
        EQ(0, pthread_join(closers[i], NULL));
    running = 0;
    for (int i = 0; i < READERS; i++)
        EQ(0, pthread_join(readers[i], NULL));
    for (int i = 0; i < FILES; i++)
        OK(vellum_close(files[i]));
    OK(vellum_pool_close(pool));
}

/* Makes and removes files until the pool is closed. */
static void *work(void *argument)
{
    char name[32];
    struct vellum_stat st;
    for (int i = 0;; i++) {
        snprintf(name, sizeof name, "/%d.%d", *(int *)argument, i);
        vellum_handle file = OK_OR_CLOSED(vellum_open(pool, name, O_RDWR | O_CREAT, 0600));
        if (file < 0)
            return NULL;
        OK_OR_CLOSED(vellum_write(file, "some bytes", 10));
        OK(vellum_close(file));
        OK_OR_CLOSED(vellum_stat(pool, name, &st, sizeof st));
        OK_OR_CLOSED(vellum_unlink(pool, name));
    }
}

static void closing_pools_beside_calls(void)
{
    for (int i = 0; i < POOLS; i++) {
        pthread_t threads[READERS];
        int numbers[READERS];
        pool = OK(vellum_pool_memory(16 << 20));
        for (int t = 0; t < READERS; t++) {
            numbers[t] = t;
            EQ(0, pthread_create(&threads[t], NULL, work, &numbers[t]));
        }
        usleep(5000);
        if (vellum_pool_close(pool) < 0) /* a file was removed and is open */
            EQ(EBUSY, errno);
        for (int t = 0; t < READERS; t++)
            EQ(0, pthread_join(threads[t], NULL));
    }
}

static void *release(void *view)
{
    OK(vellum_view_release(*(vellum_handle *)view));
    EQ(0, *vellum_last_error());
    return NULL;
}

/* Another thread releases a view. The texts of errors are those of a thread. */
static void views_and_errors_of_threads(void)
{
    static char page[4096];
    const void *shown;
    size_t length;
    pthread_t thread;
    pool = OK(vellum_pool_memory(16 << 20));
    vellum_handle file = OK(vellum_open(pool, "/f", O_RDWR | O_CREAT, 0600));
    EQ(4096, vellum_write(file, page, sizeof page));
    vellum_handle view = OK(vellum_view(file, 0, 4096, &shown, &length));
    FAILS(EDEADLK, vellum_pwrite(file, "x", 1, 0));
    EQ(0, pthread_create(&thread, NULL, release, &view));
    EQ(0, pthread_join(thread, NULL));
    EQ(1, vellum_pwrite(file, "x", 1, 0));
    OK(vellum_close(file));
    OK(vellum_pool_close(pool));
}

/* Makes membarrier(2) fail with ENOSYS in this process. */
static void forbid_membarrier(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    EQ(0, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    EQ(0, prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    EQ(-1, syscall(SYS_membarrier, 0, 0, 0));
    EQ(ENOSYS, errno);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 2)
        forbid_membarrier();
    views_and_errors_of_threads();
    closing_beside_calls();
    closing_pools_beside_calls();
    printf("ok\n");
    return 0;
}
