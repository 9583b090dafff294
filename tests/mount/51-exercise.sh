#!/usr/bin/env bash
# Random changes of one file, checked byte by byte, as fsx makes them, with what fsx has not: zeroed ranges, preallocation
# behind the end, reads and writes past the kernel's page cache, holes, truncation by O_TRUNC, mappings that stay.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
need gcc

# VELLUM_FSX_SEEDS and VELLUM_FSX_OPERATIONS set the seeds and the number of operations.
read -ra SEEDS <<<"${VELLUM_FSX_SEEDS:-1 2}"
readonly SEEDS OPERATIONS="${VELLUM_FSX_OPERATIONS:-8000}"

cat >"$WORK/exercise.c" <<'C'
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 1 << 20, BLOCK = 4096, TOLD = 40 };

typedef struct {
    const char *name;
    size_t at, length, to;
} Step;

static Step told[TOLD];
static unsigned long number;
static unsigned seed;
static uint64_t state;
/* What the file should have, and its size. */
static unsigned char bytes[FILE_MAX];
static size_t size;
static unsigned char *buffer, *map;
static const char *path;
/* Through the page cache, and past it. */
static int file, direct;

static _Noreturn void fail(const char *what, size_t at) {
    fprintf(stderr, "seed %u, step %lu: %s at %#zx (%s); the last steps:\n", seed, number, what, at, strerror(errno));
    for (unsigned long i = number < TOLD ? 0 : number - TOLD + 1; i <= number; i++) {
        Step *step = &told[i % TOLD];
        fprintf(stderr, "%9lu %-16s %#8zx, %#8zx bytes, to %#zx\n", i, step->name, step->at, step->length, step->to);
    }
    exit(1);
}

static uint64_t word(void) {
    uint64_t next = state += 0x9E3779B97F4A7C15;
    next = (next ^ (next >> 30)) * 0xBF58476D1CE4E5B9;
    next = (next ^ (next >> 27)) * 0x94D049BB133111EB;
    return next ^ (next >> 31);
}

static size_t below(size_t end) { return word() % end; }

static void fill(unsigned char *to, size_t length) {
    unsigned char with = word();
    for (size_t i = 0; i < length; i++) to[i] = (unsigned char)(i % 251) ^ with;
}

/* The file has at least `end` bytes. */
static void grow(size_t end) {
    if (end <= size) return;
    memset(bytes + size, 0, end - size);
    size = end;
}

static void put(size_t at, size_t length) {
    grow(at + length);
    memcpy(bytes + at, buffer, length);
}

static void zero(size_t at, size_t end) {
    if (end > size) end = size;
    if (at < end) memset(bytes + at, 0, end - at);
}

static void compare(const unsigned char *found, size_t at, size_t length) {
    if (!memcmp(found, bytes + at, length)) return;
    size_t i = 0;
    while (found[i] == bytes[at + i]) i++;
    fail("another byte", at + i);
}

static void read_by(int by, size_t at, size_t length) {
    size_t expected = at >= size ? 0 : at + length > size ? size - at : length;
    if (pread(by, buffer, length, at) != (ssize_t)expected) fail("read", at);
    compare(buffer, at, expected);
}

static void write_by(int by, size_t at, size_t length) {
    fill(buffer, length);
    if (pwrite(by, buffer, length, at) != (ssize_t)length) fail("write", at);
    put(at, length);
}

static void allocate(int mode, size_t at, size_t length) {
    if (fallocate(file, mode, at, length)) fail("fallocate", at);
}

static void copy(size_t from, size_t to, size_t length) {
    off_t in = from, out = to;
    memcpy(buffer, bytes + from, length);
    for (size_t left = length; left;) {
        ssize_t done = copy_file_range(file, &in, file, &out, left, 0);
        if (done <= 0) fail("copy_file_range", to);
        left -= done;
    }
    put(to, length);
}

/* Between data are zeros. SEEK_DATA of a mount does not know of stores to mappings before they are written back. */
static void look_for_holes(void) {
    if (msync(map, FILE_MAX, MS_SYNC)) fail("msync", 0);
    for (off_t at = 0; at < (off_t)size;) {
        off_t data = lseek(file, at, SEEK_DATA);
        if (data < 0 && errno != ENXIO) fail("SEEK_DATA", at);
        if (data < 0) data = size;
        for (off_t i = at; i < data; i++)
            if (bytes[i]) fail("data in a hole", i);
        if (data == (off_t)size) return;
        at = lseek(file, data, SEEK_HOLE);
        if (at <= data || at > (off_t)size) fail("SEEK_HOLE", data);
    }
}

static void open_file(int flags) {
    file = open(path, O_RDWR | O_CREAT | flags, 0644);
    direct = open(path, O_RDWR | O_DIRECT);
    if (file < 0 || direct < 0) fail("open", 0);
    map = mmap(NULL, FILE_MAX, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) fail("mmap", 0);
}

static void close_file(void) {
    if (munmap(map, FILE_MAX) || close(direct) || close(file)) fail("close", 0);
}

static void step(size_t file_max, size_t change_max) {
    size_t at = below(file_max), length = 1 + below(change_max);
    if (length > file_max - at) length = file_max - at;
    size_t end = at + length, block = at / BLOCK * BLOCK;
    size_t blocks = (length + BLOCK - 1) / BLOCK * BLOCK;
    size_t there = at >= size ? 0 : end > size ? size - at : length;
    size_t to = below(file_max - length + 1), kind = below(1000);
    Step *now = &told[number % TOLD];
    *now = (Step){"", at, length, to};
    struct stat found;
    switch (kind / 10) {
    case 0 ... 14:
        now->name = "read";
        read_by(file, at, length);
        break;
    case 15 ... 24:
        now->name = "read direct";
        read_by(direct, block, blocks);
        break;
    case 25 ... 34:
        now->name = "read mapped";
        compare(map + at, at, there);
        break;
    case 35 ... 46:
        now->name = "write";
        write_by(file, at, length);
        break;
    case 47 ... 55:
        now->name = "write direct";
        if (block + blocks <= file_max) write_by(direct, block, blocks);
        break;
    case 56 ... 63:
        now->name = "write mapped";
        fill(buffer, there);
        memcpy(map + at, buffer, there);
        if (there) put(at, there);
        break;
    case 64 ... 68:
        now->name = "truncate";
        if (ftruncate(file, at)) fail("truncate", at);
        grow(at);
        size = at;
        break;
    case 69 ... 72:
        now->name = "allocate";
        allocate(0, at, length);
        grow(end);
        break;
    case 73 ... 74:
        now->name = "allocate behind";
        allocate(FALLOC_FL_KEEP_SIZE, at, length);
        break;
    case 75 ... 79:
        now->name = "punch";
        allocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, length);
        zero(at, end);
        break;
    case 80 ... 82:
        now->name = "zero";
        allocate(FALLOC_FL_ZERO_RANGE, at, length);
        grow(end);
        zero(at, end);
        break;
    case 83 ... 84:
        now->name = "zero in the size";
        allocate(FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, at, length);
        zero(at, end);
        break;
    case 85 ... 91:
        now->name = "copy";
        /* The kernel refuses ranges that overlap. */
        if (there && (to >= at + there || to + there <= at)) copy(at, to, there);
        break;
    case 92 ... 94:
        now->name = "holes";
        look_for_holes();
        break;
    case 95:
        now->name = "sync";
        if (kind % 2 ? fsync(file) : msync(map, FILE_MAX, MS_SYNC)) fail("sync", 0);
        break;
    case 96 ... 97:
        now->name = "drop pages";
        if (fdatasync(file) || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED)) fail("fadvise", 0);
        break;
    case 98:
        now->name = "open";
        close_file();
        open_file(0);
        break;
    default:
        if (kind % 10) break;
        now->name = "open and cut";
        close_file();
        open_file(O_TRUNC);
        size = 0;
    }
    if (fstat(file, &found) || (size_t)found.st_size != size) fail("another size", found.st_size);
}

int main(int argc, char **argv) {
    if (argc != 4 || posix_memalign((void **)&buffer, BLOCK, FILE_MAX + BLOCK)) return 2;
    path = argv[1];
    state = seed = atoi(argv[2]);
    open_file(O_TRUNC);
    for (unsigned long operations = strtoul(argv[3], NULL, 10); number < operations; number++) {
        /* Most work is done with large changes, and most bounds met with small ones. */
        if (number / 1000 % 2) step(40000, 5000);
        else step(FILE_MAX, 128 << 10);
    }
    read_by(file, 0, FILE_MAX);
    close_file();
    return 0;
}
C
gcc -std=gnu11 -O1 -Wall -Werror -o "$WORK/exercise" "$WORK/exercise.c"

verify() { sha256sum --quiet -c "$WORK/sums"; }

begin 64M
for seed in "${SEEDS[@]}"; do
    "$WORK/exercise" "file-$seed" "$seed" "$OPERATIONS" 2>"$WORK/log" || die "$(cat "$WORK/log")"
    say "seed $seed"
done
sha256sum file-* >"$WORK/sums"
finish verify
