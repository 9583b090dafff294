/* What the test programs check, and how they say it. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vellum.h>

/* Fails unless a call succeeded, and returns what it returned. */
#define OK(call) check_ok((int64_t)(call), #call, __LINE__)
/* Fails unless a call returned -1 and this error, with a text. */
#define FAILS(error, call) check_fails(error, (errno = 0, (int64_t)(call)), #call, __LINE__)
/* Fails unless two numbers are equal. */
#define EQ(expected, number) check_equal((int64_t)(expected), (int64_t)(number), #number, __LINE__)

static inline int64_t check_ok(int64_t returned, const char *call, int line)
{
    if (returned < 0) {
        printf("line %d: %s: errno %d (%s): %s\n", line, call, errno, strerror(errno), vellum_last_error());
        exit(1);
    }
    return returned;
}

static inline void check_fails(int error, int64_t returned, const char *call, int line)
{
    int found = errno;
    const char *text = vellum_last_error();
    if (returned == -1 && found == error && strncmp(text, "vellum_", 7) == 0 && strchr(text, ':'))
        return;
    printf("line %d: %s: returned %lld, errno %d (%s), not %d (%s): %s\n", line, call, (long long)returned, found,
           strerror(found), error, strerror(error), text);
    exit(1);
}

static inline void check_equal(int64_t expected, int64_t number, const char *what, int line)
{
    if (expected == number)
        return;
    printf("line %d: %s is %lld, not %lld\n", line, what, (long long)number, (long long)expected);
    exit(1);
}

/* A volume of a pool, as a user with this group and no umask. */
static inline vellum_handle as_user(vellum_handle pool, uint32_t user)
{
    struct vellum_cred cred = {.uid = user, .gid = user};
    return OK(vellum_volume_open(pool, &cred, sizeof cred));
}

/* Makes a file with these bytes. */
static inline void put(vellum_handle at, const char *path, const char *text)
{
    vellum_handle file = OK(vellum_open(at, path, O_WRONLY | O_CREAT | O_TRUNC, 0666));
    EQ(strlen(text), vellum_write(file, text, strlen(text)));
    OK(vellum_close(file));
}

#endif
