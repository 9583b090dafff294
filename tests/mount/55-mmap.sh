#!/usr/bin/env bash
# Two processes map one file of the mount and write to it in turn, through the mapping and with pwrite. Each sees the
# changes of the other at once, through the mapping and with pread. The library sees them after unmounting. Seeks find
# data that was stored through a mapping. On a full pool, a store into a hole is reported as SEMANTICS says, and a store
# into allocated blocks is kept.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
need gcc

cat >"$WORK/turns.c" <<'C'
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The first page says whose turn it is. */
enum { PAGE = 4096, PAGES = 600, TURNS = 1000, LONGEST_S = 60 };

static void fail(const char *what, unsigned turn) {
    fprintf(stderr, "turn %u: %s\n", turn, what);
    exit(1);
}

static off_t place(unsigned turn) { return (off_t)PAGE * (1 + turn * 7919u % (PAGES - 1)); }

static void fill(unsigned char *page, unsigned turn) { memset(page, 1 + turn % 251, PAGE); }

int main(int argc, char **argv) {
    unsigned char mine[PAGE], read[PAGE];
    if (argc != 3) fail("usage: turns FILE 0|1", 0);
    unsigned first = atoi(argv[2]);
    int fd = open(argv[1], O_RDWR);
    unsigned char *map = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || map == MAP_FAILED) fail("no mapping", 0);
    _Atomic unsigned *now = (_Atomic unsigned *)map;
    alarm(LONGEST_S);
    for (unsigned turn = first; turn < TURNS; turn += 2) {
        while (atomic_load(now) != turn) sched_yield();
        if (turn > 0) {
            off_t at = place(turn - 1);
            fill(mine, turn - 1);
            if (memcmp(map + at, mine, PAGE)) fail("the mapping shows something else", turn);
            if (pread(fd, read, PAGE, at) != PAGE || memcmp(read, mine, PAGE)) fail("pread gives something else", turn);
        }
        fill(mine, turn);
        if (turn % 3 == 0) {
            if (pwrite(fd, mine, PAGE, place(turn)) != PAGE) fail("pwrite", turn);
        } else {
            memcpy(map + place(turn), mine, PAGE);
        }
        atomic_store(now, turn + 1);
    }
    return 0;
}
C
gcc -std=c11 -D_DEFAULT_SOURCE -O1 -Wall -Werror -o "$WORK/turns" "$WORK/turns.c"

cat >"$WORK/full.c" <<'C'
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64 };

static void expect(const char *what, int outcome, int error) {
    if (outcome == (error ? -1 : 0) && (!error || errno == error)) return;
    fprintf(stderr, "%s: %d, %s\n", what, outcome, strerror(errno));
    exit(1);
}

/* Stores to every page of a file as long as this, through its mapping. */
static int store(const char *path, char **map) {
    int fd = open(path, O_RDWR);
    *map = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || *map == MAP_FAILED) expect("mmap", -1, 0);
    for (int i = 0; i < PAGES; i++) memset(*map + i * PAGE, 'x', PAGE);
    return fd;
}

int main(int argc, char **argv) {
    if (argc != 8) return 2;
    char *map;
    int fd = store(argv[1], &map);
    expect("msync", msync(map, PAGES * PAGE, MS_SYNC), ENOSPC);
    expect("close after msync", close(fd), 0);
    fd = store(argv[2], &map);
    expect("munmap", munmap(map, PAGES * PAGE), 0);
    expect("fsync", fsync(fd), ENOSPC);
    expect("close after fsync", close(fd), 0);
    fd = store(argv[3], &map);
    expect("fdatasync", fdatasync(fd), ENOSPC);
    fd = store(argv[4], &map);
    expect("close", close(fd), ENOSPC);
    /* It tells of what the calls above told of, too. */
    if (WEXITSTATUS(system(argv[7])) > 1) expect("vellum sync", -1, 0);
    fd = store(argv[6], &map);
    /* The first call tells, unless the machine is busy and does not say which requests are in flight. */
    int told = 0;
    for (int call = 0; call < 20 && !told; call++) told = WEXITSTATUS(system(argv[7])) == 1;
    if (!told) expect("vellum sync", 0, ENOSPC);
    close(fd);
    fd = store(argv[5], &map);
    expect("msync of what is allocated", msync(map, PAGES * PAGE, MS_SYNC), 0);
    expect("close of what is allocated", close(fd), 0);
    return 0;
}
C
gcc -std=c11 -O1 -Wall -Werror -o "$WORK/full" "$WORK/full.c"

cat >"$WORK/seek.c" <<'C'
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64 };

static void expect(int fd, off_t from, int whence, off_t found) {
    off_t now = lseek(fd, from, whence);
    if (now == found) return;
    const char *name = whence == SEEK_DATA ? "SEEK_DATA" : "SEEK_HOLE";
    fprintf(stderr, "lseek(%jd, %s): %jd, not %jd\n", (intmax_t)from, name, (intmax_t)now, (intmax_t)found);
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    int fd = open(argv[1], O_RDWR);
    char *map = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || map == MAP_FAILED) return 2;
    expect(fd, 0, SEEK_DATA, -1);
    map[5 * PAGE] = 'x';
    expect(fd, 0, SEEK_DATA, 5 * PAGE);
    map[2 * PAGE] = map[3 * PAGE] = 'y';
    expect(fd, 2 * PAGE, SEEK_HOLE, 4 * PAGE);
    expect(fd, 0, SEEK_HOLE, 0);
    map[(PAGES - 1) * PAGE] = 'z';
    expect(fd, 6 * PAGE, SEEK_DATA, (PAGES - 1) * PAGE);
    expect(fd, (PAGES - 1) * PAGE, SEEK_HOLE, PAGES * PAGE);
    /* Both holes before page 6 are filled. */
    map[0] = map[PAGE] = map[4 * PAGE] = 'w';
    expect(fd, 0, SEEK_HOLE, 6 * PAGE);
    return 0;
}
C
gcc -std=c11 -O1 -Wall -Werror -o "$WORK/seek" "$WORK/seek.c"

sum() { sha256sum | cut -d ' ' -f 1; }
verify() {
    [[ "$(sum <file)" == "$SUM" ]] || die "the file is not what was written"
    [[ "$(tr -d x <allocated | wc -c)" -eq 0 ]] || die "stores to allocated blocks are lost"
}

begin 64M
# In a hole, blocks are allocated when the kernel writes pages back.
truncate -s $((600 * 4096)) file
"$WORK/turns" file 0 &
other=$!
"$WORK/turns" file 1 || { kill "$other"; die "the second process failed"; }
wait "$other" || die "the first process failed"
SUM="$(sum <file)"
truncate -s $((64 * 4096)) sought
"$WORK/seek" sought || die "a seek does not see a store"
cd /
vellum umount "$MNT"
[[ "$(vellum cat "$POOL:/file" | sum)" == "$SUM" ]] || die "the library reads something else"
vellum mount "$POOL" "$MNT"
cd "$MNT"
for hole in by-msync by-fsync by-fdatasync by-close by-sync allocated; do truncate -s $((64 * 4096)) "$hole"; done
fallocate -l $((64 * 4096)) allocated
for size in 1M 4k; do
    ! dd if=/dev/zero of="fill-$size" bs="$size" status=none 2>"$WORK/said" || die "the pool is never full"
    said 'No space left' "$(<"$WORK/said")"
done
"$WORK/full" by-msync by-fsync by-fdatasync by-close allocated by-sync \
    "vellum sync '$MNT' 2>'$WORK/said'" || die "a full pool is not reported"
rm fill-*
finish verify
