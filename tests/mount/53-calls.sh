#!/usr/bin/env bash
# System calls that few programs make: files without names, zeroed ranges, handles, the time of birth. The same answers
# as the file system below the pool gives.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
need gcc

cat >"$WORK/calls.c" <<'C'
// calls: prints what calls in the working directory answer. As root.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void said(const char *what, long answer) {
    printf("%s: %s\n", what, answer < 0 ? strerror(errno) : "done");
}

static void show(const char *what, int fd) {
    struct stat st = {0};
    said(what, fstat(fd, &st));
    printf("  mode %o, links %ld, size %ld\n", st.st_mode, (long)st.st_nlink, (long)st.st_size);
}

static int unnamed(const char *what, const char *dir, int flags) {
    int fd = open(dir, O_TMPFILE | flags, 0666);
    said(what, fd);
    return fd;
}

static void files_without_names(void) {
    umask(027);
    int fd = unnamed("O_TMPFILE", ".", O_RDWR);
    said("write", write(fd, "whole", 5));
    show("unnamed", fd);
    said("linkat", linkat(fd, "", AT_FDCWD, "first", AT_EMPTY_PATH));
    said("again", linkat(fd, "", AT_FDCWD, "first", AT_EMPTY_PATH));
    said("second", linkat(fd, "", AT_FDCWD, "second", AT_EMPTY_PATH));
    show("named", fd);
    unlink("first");
    unlink("second");
    show("removed", fd);
    said("after removal", linkat(fd, "", AT_FDCWD, "first", AT_EMPTY_PATH));
    char bytes[8] = {0};
    said("pread", pread(fd, bytes, sizeof bytes, 0));
    printf("  %s\n", bytes);
    close(fd);
    fd = unnamed("O_EXCL", ".", O_RDWR | O_EXCL);
    said("linkat", linkat(fd, "", AT_FDCWD, "first", AT_EMPTY_PATH));
    close(fd);
    unnamed("read only", ".", O_RDONLY);
    unnamed("in a file", "file", O_RDWR);
    unnamed("nowhere", "nowhere", O_RDWR);
    char path[64];
    fd = unnamed("through /proc", ".", O_WRONLY);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    said("linkat", linkat(AT_FDCWD, path, AT_FDCWD, "third", AT_SYMLINK_FOLLOW));
    show("third", fd);
    close(fd);
}

// Zeroed ranges over data, holes and the end, and what is space afterwards.
static void ranges(void) {
    static const int modes[] = {FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
                                FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_KEEP_SIZE, 0};
    static const off_t places[][2] = {{5000, 10000}, {0, 4096}, {19000, 9000}, {40000, 30000}};
    for (size_t mode = 0; mode < sizeof modes / sizeof *modes; mode++) {
        for (size_t place = 0; place < sizeof places / sizeof *places; place++) {
            int fd = open("ranges", O_CREAT | O_TRUNC | O_RDWR, 0644);
            char bytes[20000], back[80000] = {0};
            memset(bytes, 'x', sizeof bytes);
            if (pwrite(fd, bytes, sizeof bytes, 0) != sizeof bytes) exit(3);
            said("fallocate", fallocate(fd, modes[mode], places[place][0], places[place][1]));
            struct stat st;
            fstat(fd, &st);
            ssize_t len = pread(fd, back, sizeof back, 0);
            long sum = 0, last = -1;
            for (ssize_t i = 0; i < len; i++) sum += back[i], last = back[i] ? i : last;
            printf("  size %ld, sum %ld, last %ld, blocks %ld\n", (long)st.st_size, sum, last, (long)st.st_blocks);
            close(fd);
        }
    }
    unlink("ranges");
}

static void births(void) {
    struct statx before, after;
    said("statx", statx(AT_FDCWD, "file", 0, STATX_BTIME | STATX_BASIC_STATS, &before));
    usleep(20000);
    chmod("file", 0600);
    truncate("file", 9);
    rename("file", "renamed");
    said("statx", statx(AT_FDCWD, "renamed", 0, STATX_BTIME | STATX_BASIC_STATS, &after));
    printf("  has %d, same %d, earlier %d, mode %o, size %lld\n", !!(after.stx_mask & STATX_BTIME),
           !memcmp(&before.stx_btime, &after.stx_btime, sizeof before.stx_btime),
           before.stx_ctime.tv_sec * 1000000000 + before.stx_ctime.tv_nsec <
               after.stx_ctime.tv_sec * 1000000000 + after.stx_ctime.tv_nsec,
           after.stx_mode, (long long)after.stx_size);
    rename("renamed", "file");
}

struct handle {
    struct file_handle head;
    unsigned char bytes[MAX_HANDLE_SZ];
};

static void handle_of(const char *path, struct handle *handle) {
    int mount;
    handle->head.handle_bytes = MAX_HANDLE_SZ;
    said(path, name_to_handle_at(AT_FDCWD, path, &handle->head, &mount, 0));
}

static void forget(void) {
    int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);
    if (fd < 0 || write(fd, "2", 1) != 1) exit(2);
    close(fd);
}

static void handles(void) {
    struct handle file, dir, gone;
    mkdir("dir", 0755);
    mkdir("dir/below", 0755);
    close(open("gone", O_CREAT | O_WRONLY, 0644));
    handle_of("file", &file);
    handle_of("dir/below", &dir);
    handle_of("gone", &gone);
    unlink("gone");
    int here = open(".", O_RDONLY | O_DIRECTORY);
    for (int forgotten = 0; forgotten < 2; forgotten++) {
        if (forgotten) forget();
        int fd = open_by_handle_at(here, &file.head, O_RDWR);
        show("file by handle", fd);
        close(fd);
        fd = open_by_handle_at(here, &dir.head, O_RDONLY);
        show("directory by handle", fd);
        said("its parent", openat(fd, "../below", O_RDONLY));
        close(fd);
        said("gone by handle", open_by_handle_at(here, &gone.head, O_RDONLY));
    }
    // The number of the file that is gone goes to another one, sooner or later.
    for (int i = 0; i < 200; i++) {
        char name[16];
        snprintf(name, sizeof name, "new%d", i);
        close(open(name, O_CREAT | O_WRONLY, 0644));
    }
    forget();
    said("gone by handle", open_by_handle_at(here, &gone.head, O_RDONLY));
    close(here);
}

int main(void) {
    close(open("file", O_CREAT | O_WRONLY, 0644));
    files_without_names();
    ranges();
    births();
    handles();
    return 0;
}
C
gcc -std=c11 -O1 -Wall -Werror -Wno-unused-result -o "$WORK/calls" "$WORK/calls.c"

# outcomes DIR
outcomes() { (cd "$1" && "$WORK/calls") || die "$1: calls did not end well"; }

verify() { [[ "$(cat dir/third)" == "" && -d dir/dir/below ]] || die "what was made is not there"; }

if [[ "$(id -u)" -ne 0 ]]; then
    say "SKIPPED: only root opens files by handles"
    printf 'ok %s\n' "$NAME"
    exit 0
fi
begin 64M
mkdir dir "$WORK/dir"
outcomes "$WORK/dir" >"$WORK/expected"
outcomes "$MNT/dir" | diff "$WORK/expected" - || die "answers differ"
finish verify
