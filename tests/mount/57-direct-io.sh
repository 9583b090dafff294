#!/usr/bin/env bash
# A process writes a file past the kernel's page cache, asynchronously (io_submit), while others read it through that
# cache. A read after the end of a write sees its bytes, and the cached pages stay right. With O_DSYNC, the written
# bytes are durable then.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
need gcc

cat >"$WORK/direct.c" <<'C'
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 640 << 10, WRITES = 400, READERS = 2, LONGEST_S = 60 };

static void fail(const char *what, int write) {
    fprintf(stderr, "write %d: %s\n", write, what);
    exit(1);
}

static pid_t reader(const char *path) {
    pid_t child = fork();
    if (child) return child;
    alarm(LONGEST_S);
    char *read = malloc(BYTES);
    int fd = open(path, O_RDONLY);
    while (pread(fd, read, BYTES, 0) == BYTES) continue;
    exit(1);
}

static aio_context_t context;

static void write_asynchronously(int fd, const char *bytes, int number) {
    struct iocb write = {
        .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = fd, .aio_buf = (uintptr_t)bytes, .aio_nbytes = BYTES};
    struct iocb *writes = &write;
    struct io_event event;
    if (syscall(SYS_io_submit, context, 1, &writes) != 1) fail("io_submit", number);
    if (syscall(SYS_io_getevents, context, 1, 1, &event, NULL) != 1 || event.res != BYTES) fail("io_getevents", number);
}

int main(int argc, char **argv) {
    char *bytes, *read = malloc(BYTES);
    if (argc < 2 || posix_memalign((void **)&bytes, 4096, BYTES)) fail("usage: direct FILE [durable]", 0);
    if (syscall(SYS_io_setup, 1, &context)) fail("io_setup", 0);
    if (argc > 2) {
        memset(bytes, 'd', BYTES);
        write_asynchronously(open(argv[1], O_WRONLY | O_DIRECT | O_DSYNC), bytes, 1);
        return 0;
    }
    int fd = open(argv[1], O_RDWR | O_CREAT | O_DIRECT, 0644), cached = open(argv[1], O_RDONLY);
    memset(bytes, 0, BYTES);
    /* The first one makes the file as long as it stays: the kernel makes longer ones wait. */
    if (fd < 0 || cached < 0 || pwrite(fd, bytes, BYTES, 0) != BYTES) fail("no file", 0);
    pid_t readers[READERS];
    for (int i = 0; i < READERS; i++) readers[i] = reader(argv[1]);
    int old = 0;
    for (int i = 1; i <= WRITES; i++) {
        memset(bytes, i, BYTES);
        write_asynchronously(fd, bytes, i);
        old += pread(cached, read, BYTES, 0) != BYTES || memcmp(read, bytes, BYTES);
    }
    for (int i = 0; i < READERS; i++) {
        kill(readers[i], SIGKILL);
        waitpid(readers[i], NULL, 0);
    }
    if (pread(cached, read, BYTES, 0) != BYTES || memcmp(read, bytes, BYTES)) fail("its pages are stale", WRITES);
    if (old) fprintf(stderr, "%d of %d reads behind a write saw older bytes\n", old, WRITES);
    return old != 0;
}
C
gcc -std=c11 -O1 -Wall -Werror -o "$WORK/direct" "$WORK/direct.c"

sum() { sha256sum | cut -d ' ' -f 1; }
verify() { [[ "$(sum <file)" == "$SUM" ]] || die "the file is not what was written"; }

begin 64M --commit-every 1000
"$WORK/direct" file || die "readers saw replaced bytes"
SUM="$(sum <file)"
if [[ "$MEDIUM" =~ ^(logged|uncached)$ ]]; then
    truncate -s 655360 durable
    sync durable
    "$WORK/direct" durable durable
    # The state of the pool after a power cut.
    cp "$POOL" "$WORK/copy.img"
    [[ "$(vellum cat "$WORK/copy.img:/durable" 2>/dev/null | tr -d d | wc -c)" -eq 0 ]] || die "what was written with O_DSYNC is not durable"
fi
finish verify
