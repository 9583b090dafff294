/*
 * Keeps notes in a pool: appends a line to a note, and lists all notes with their sizes.
 *
 *     cc notes.c -o notes $(pkg-config --cflags --libs vellum)
 *     ./notes notes.vellum shopping "one loaf of bread"
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vellum.h>

static void die(void)
{
    fprintf(stderr, "notes: %s\n", vellum_last_error());
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: notes POOL NOTE TEXT\n");
        return 2;
    }
    vellum_handle pool = vellum_pool_open(argv[1], NULL, 0);
    if (pool < 0 && errno == ENOENT)
        pool = vellum_pool_create(argv[1], NULL, 0);
    if (pool < 0)
        die();

    vellum_handle note = vellum_open(pool, argv[2], O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (note < 0 || vellum_write(note, argv[3], strlen(argv[3])) < 0 || vellum_write(note, "\n", 1) < 0)
        die();
    if (vellum_fsync(note) < 0 || vellum_close(note) < 0) /* the note survives a power cut from here on */
        die();

    vellum_handle dir = vellum_opendir(pool, "/");
    struct vellum_dirent entry;
    int more = dir < 0 ? -1 : vellum_readdir(dir, &entry, sizeof entry);
    for (; more > 0; more = vellum_readdir(dir, &entry, sizeof entry)) {
        struct vellum_stat st;
        if (vellum_stat(dir, entry.name, &st, sizeof st) < 0)
            die();
        printf("%s: %" PRIu64 " bytes\n", entry.name, st.size_bytes);
    }
    if (more < 0 || vellum_closedir(dir) < 0 || vellum_pool_close(pool) < 0)
        die();
    return 0;
}
