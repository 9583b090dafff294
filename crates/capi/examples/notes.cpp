// Keeps notes in a pool, as notes.c does: handles are closed by destructors, errors are exceptions.
//
//     c++ notes.cpp -o notes $(pkg-config --cflags --libs vellum)
//     ./notes notes.vellum shopping "one loaf of bread"
#include <cerrno>
#include <fcntl.h>
#include <iostream>
#include <string>
#include <system_error>
#include <vellum.h>

template <typename Number> Number check(Number returned)
{
    if (returned < 0)
        throw std::system_error(errno, std::generic_category(), vellum_last_error());
    return returned;
}

template <int (*close)(vellum_handle)> class Handle {
    vellum_handle handle;

public:
    explicit Handle(vellum_handle opened) : handle(check(opened)) {}
    ~Handle() { close(handle); }
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;
    operator vellum_handle() const { return handle; }
};

static vellum_handle open_or_create(const char *path)
{
    vellum_handle pool = vellum_pool_open(path, nullptr, 0);
    return pool < 0 && errno == ENOENT ? vellum_pool_create(path, nullptr, 0) : pool;
}

int main(int argc, char **argv)
try {
    if (argc != 4) {
        std::cerr << "usage: notes POOL NOTE TEXT\n";
        return 2;
    }
    Handle<vellum_pool_close> pool(open_or_create(argv[1]));
    {
        Handle<vellum_close> note(vellum_open(pool, argv[2], O_WRONLY | O_CREAT | O_APPEND, 0666));
        const std::string line = argv[3] + std::string("\n");
        check(vellum_write(note, line.data(), line.size()));
        check(vellum_fsync(note));
    }
    Handle<vellum_closedir> dir(vellum_opendir(pool, "/"));
    struct vellum_dirent entry;
    while (check(vellum_readdir(dir, &entry, sizeof entry)) > 0) {
        struct vellum_stat st;
        check(vellum_stat(dir, entry.name, &st, sizeof st));
        std::cout << entry.name << ": " << st.size_bytes << " bytes\n";
    }
} catch (const std::exception &error) {
    std::cerr << "notes: " << error.what() << '\n';
    return 1;
}
