/*
 * Makes, opens and closes pools in files, with every option, and each error. The argument is the path of an empty folder.
 * Prints "ok" at the end.
 */
#define _GNU_SOURCE
#include "check.h"

static char path[4096], data[4096], other[4096];

static vellum_handle create(const struct vellum_create_options *options)
{
    unlink(path);
    unlink(data);
    return vellum_pool_create(path, options, sizeof *options);
}

static void creating(void)
{
    vellum_handle pool = OK(vellum_pool_create(path, NULL, 0));
    put(pool, "/f", "kept");
    FAILS(EBUSY, vellum_pool_open(path, NULL, 0));
    OK(vellum_pool_close(pool));
    FAILS(EEXIST, vellum_pool_create(path, NULL, 0));
    FAILS(EFAULT, vellum_pool_create(NULL, NULL, 0));
    FAILS(ENOENT, vellum_pool_create("/no/such/folder", NULL, 0));

    for (uint32_t space = VELLUM_NAMESPACE_DEFAULT; space <= VELLUM_NAMESPACE_TREE; space++) {
        struct vellum_create_options options = {
            .size_bytes = 32 << 20, .namespace_kind = space, .mapping = space, .medium = VELLUM_MEDIUM_FILE};
        pool = OK(create(&options));
        put(pool, "/f", "x");
        OK(vellum_pool_close(pool));
    }
    struct vellum_create_options options = {
        .size_bytes = 32 << 20,
        .metadata_bytes = 4 << 20,
        .label = "mail",
        .medium = VELLUM_MEDIUM_LOGGED,
        .thread_slots = 8,
        .flags = VELLUM_CREATE_OWNER,
        .owner_uid = 7,
        .owner_gid = 8,
    };
    struct vellum_stat st;
    pool = OK(create(&options));
    OK(vellum_stat(pool, "/", &st, sizeof st));
    EQ(1, st.uid == 7 && st.gid == 8);
    OK(vellum_pool_close(pool));
    options.flags = VELLUM_CREATE_OVERWRITE;
    OK(vellum_pool_close(OK(vellum_pool_create(path, &options, sizeof options))));

    options = (struct vellum_create_options){.data_path = data, .data_size_bytes = 16 << 20};
    options.flags = VELLUM_CREATE_NO_REPLICA;
    OK(vellum_pool_close(OK(create(&options))));

    options = (struct vellum_create_options){.medium = 99};
    FAILS(EINVAL, create(&options));
    options = (struct vellum_create_options){.namespace_kind = 99};
    FAILS(EINVAL, create(&options));
    options = (struct vellum_create_options){.mapping = 99};
    FAILS(EINVAL, create(&options));
    options = (struct vellum_create_options){.flags = 1u << 31};
    FAILS(EINVAL, create(&options));
    options = (struct vellum_create_options){.reserved = 1};
    FAILS(EINVAL, create(&options));
    options = (struct vellum_create_options){.size_bytes = 1};
    FAILS(EINVAL, create(&options));
    options = (struct vellum_create_options){.label = "\xff"};
    FAILS(EILSEQ, create(&options));
    FAILS(EINVAL, vellum_pool_memory(0));
}

static void opening(void)
{
    OK(vellum_pool_close(OK(create(&(struct vellum_create_options){.medium = VELLUM_MEDIUM_LOGGED}))));
    struct vellum_open_options options = {
        .flags = VELLUM_OPEN_POPULATE | VELLUM_OPEN_NO_BARRIERS | VELLUM_OPEN_NO_IMAGE | VELLUM_OPEN_NO_EVOLVING,
        .durability = VELLUM_DURABILITY_SYNC,
        .access_times = VELLUM_ATIME_STRICT,
        .commit_every_ms = 1000,
        .cache_entries = 1024,
    };
    options.flags &= ~(uint32_t)VELLUM_OPEN_POPULATE;
    vellum_handle pool = OK(vellum_pool_open(path, &options, sizeof options));
    put(pool, "/f", "durable");
    OK(vellum_pool_close(pool));

    options = (struct vellum_open_options){.flags = VELLUM_OPEN_READ_ONLY | VELLUM_OPEN_DISCARD_IMAGE};
    options.access_times = VELLUM_ATIME_NEVER;
    pool = OK(vellum_pool_open(path, &options, sizeof options));
    FAILS(EROFS, vellum_mkdir(pool, "/d", 0700));
    FAILS(EROFS, vellum_open(pool, "/f", O_WRONLY, 0));
    FAILS(EROFS, vellum_access(pool, "/f", W_OK));
    OK(vellum_close(OK(vellum_open(pool, "/f", O_RDONLY, 0))));
    OK(vellum_pool_close(pool));

    FAILS(ENOENT, vellum_pool_open(other, NULL, 0));
    FAILS(EFAULT, vellum_pool_open(NULL, NULL, 0));
    options = (struct vellum_open_options){.flags = 1u << 31};
    FAILS(EINVAL, vellum_pool_open(path, &options, sizeof options));
    options = (struct vellum_open_options){.medium = 99};
    FAILS(EINVAL, vellum_pool_open(path, &options, sizeof options));
    options = (struct vellum_open_options){.durability = 99};
    FAILS(EINVAL, vellum_pool_open(path, &options, sizeof options));
    options = (struct vellum_open_options){.access_times = 99};
    FAILS(EINVAL, vellum_pool_open(path, &options, sizeof options));
    options = (struct vellum_open_options){.data_path_count = 1};
    FAILS(EFAULT, vellum_pool_open(path, &options, sizeof options));
    const char *nothing[] = {NULL};
    options.data_paths = nothing;
    FAILS(EFAULT, vellum_pool_open(path, &options, sizeof options));
    struct {
        struct vellum_open_options known;
        uint32_t later;
    } wide = {.later = 1};
    FAILS(E2BIG, vellum_pool_open(path, &wide.known, sizeof wide));

    FILE *text = fopen(other, "w");
    fputs("no pool", text);
    fclose(text);
    FAILS(EUCLEAN, vellum_pool_open(other, NULL, 0));
}

/* A data device that was moved is named when the pool is opened. */
static void moved_data(void)
{
    struct vellum_create_options options = {.data_path = data, .data_size_bytes = 16 << 20};
    vellum_handle pool = OK(create(&options));
    put(pool, "/f", "on the device");
    OK(vellum_pool_close(pool));
    unlink(other);
    OK(rename(data, other));
    FAILS(ENOENT, vellum_pool_open(path, NULL, 0));
    const char *paths[] = {other};
    struct vellum_open_options moved = {.data_paths = paths, .data_path_count = 1, .image_dir = "/dev/shm"};
    pool = OK(vellum_pool_open(path, &moved, sizeof moved));
    struct vellum_stat st;
    OK(vellum_stat(pool, "/f", &st, sizeof st));
    EQ(13, st.size_bytes);
    OK(vellum_pool_close(pool));
}

/* A pool is closed although a removed file is open, or bytes are shown; the text says what holds then. */
static void closing(void)
{
    static char page[4096];
    const void *shown;
    size_t length;
    vellum_handle pool = OK(create(&(struct vellum_create_options){.size_bytes = 32 << 20}));
    vellum_handle file = OK(vellum_open(pool, "/f", O_RDWR | O_CREAT, 0600));
    EQ(4096, vellum_write(file, page, sizeof page));
    OK(vellum_unlink(pool, "/f"));
    FAILS(EBUSY, vellum_pool_close(pool));
    FAILS(EBADF, vellum_pool_close(pool));
    OK(vellum_close(file));

    pool = OK(vellum_pool_open(path, NULL, 0));
    file = OK(vellum_open(pool, "/f", O_RDWR | O_CREAT, 0600));
    EQ(4096, vellum_write(file, page, sizeof page));
    vellum_handle view = OK(vellum_view(file, 0, 4096, &shown, &length));
    FAILS(EBUSY, vellum_pool_close(pool));
    EQ(1, strstr(vellum_last_error(), "1 view") != NULL);
    EQ(0, memcmp(shown, page, length));
    FAILS(EBUSY, vellum_pool_open(path, NULL, 0));
    OK(vellum_view_release(view));
    OK(vellum_close(file));
    OK(vellum_pool_close(OK(vellum_pool_open(path, NULL, 0))));
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    snprintf(path, sizeof path, "%s/pool", folder);
    snprintf(data, sizeof data, "%s/data", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", VELLUM_VERSION_MAJOR, VELLUM_VERSION_MINOR, VELLUM_VERSION_PATCH);
    EQ(0, strcmp(version, vellum_version()));
    creating();
    opening();
    moved_data();
    closing();
    printf("ok\n");
    return 0;
}
