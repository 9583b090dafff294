/*
 * Counts the words of a file of the operating system with several threads. The file is copied into a pool in memory
 * first; then each thread looks at its part of the bytes in place, without copying them.
 *
 *     cc words.c -o words -pthread $(pkg-config --cflags --libs vellum)
 *     ./words README.md
 */
#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <vellum.h>

enum { THREADS = 4, PIECE_BYTES = 32 << 10 };

/* A part of the file, and what its thread finds in it. */
struct part {
    vellum_handle file;
    int64_t begin, end;
    uint64_t words;
};

static void die(const char *what)
{
    fprintf(stderr, "words: %s: %s\n", what, vellum_last_error());
    exit(1);
}

/* Whether the byte before the part belongs to a word: then its first word is counted by the part before. */
static int is_in_word(const struct part *part)
{
    char before;
    if (part->begin == 0)
        return 0;
    if (vellum_pread(part->file, &before, 1, part->begin - 1) != 1)
        die("cannot read");
    return !isspace((unsigned char)before);
}

static void *count(void *argument)
{
    struct part *part = argument;
    int in_word = is_in_word(part);
    for (int64_t at = part->begin; at < part->end; at += PIECE_BYTES) {
        size_t wanted = part->end - at < PIECE_BYTES ? (size_t)(part->end - at) : PIECE_BYTES;
        const void *bytes;
        size_t shown;
        vellum_handle view = vellum_view(part->file, at, wanted, &bytes, &shown);
        if (view < 0)
            die("cannot view");
        for (const char *byte = bytes, *end = byte + shown; byte < end; byte++) {
            int is_space = isspace((unsigned char)*byte);
            part->words += !is_space && !in_word;
            in_word = !is_space;
        }
        if (vellum_view_check(view) < 0 || vellum_view_release(view) < 0)
            die("the bytes were lost");
    }
    return NULL;
}

/* Copies the file `path` into the pool. Returns its size. */
static int64_t copy_in(const char *path, vellum_handle file)
{
    static char buffer[1 << 16];
    FILE *source = fopen(path, "rb");
    int64_t size = 0;
    size_t read;
    if (!source) {
        perror(path);
        exit(1);
    }
    while ((read = fread(buffer, 1, sizeof buffer, source)) > 0) {
        if (vellum_write(file, buffer, read) < 0)
            die("cannot write");
        size += (int64_t)read;
    }
    fclose(source);
    return size;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: words FILE\n");
        return 2;
    }
    vellum_handle pool = vellum_pool_memory(64 << 20);
    vellum_handle file = pool < 0 ? -1 : vellum_open(pool, "/text", O_RDWR | O_CREAT, 0600);
    if (file < 0)
        die("cannot make a file in memory");

    int64_t size = copy_in(argv[1], file);
    pthread_t threads[THREADS];
    struct part parts[THREADS];
    for (int i = 0; i < THREADS; i++) {
        parts[i] = (struct part){file, size * i / THREADS, size * (i + 1) / THREADS, 0};
        if (pthread_create(&threads[i], NULL, count, &parts[i]) != 0)
            return 1;
    }
    uint64_t words = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        words += parts[i].words;
    }
    printf("%llu words\n", (unsigned long long)words);
    if (vellum_close(file) < 0 || vellum_pool_close(pool) < 0)
        die("cannot close");
    return 0;
}
