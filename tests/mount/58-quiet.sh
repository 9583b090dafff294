#!/usr/bin/env bash
# Everyday events of programs (interrupting signals, poll) leave nothing in a mount's log. Requested messages in the log
# have no colours.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
need gcc

cat >"$WORK/busy.c" <<'C'
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

enum { BYTES = 1000000, ROUNDS = 300 };

static void nothing(int signal) { (void)signal; }

int main(int argc, char **argv) {
    static char bytes[BYTES];
    const struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0644);
    struct pollfd poll_of = {.fd = fd, .events = POLLIN | POLLOUT};
    if (fd < 0 || poll(&poll_of, 1, 0) != 1 || poll_of.revents != (POLLIN | POLLOUT)) return 1;
    signal(SIGALRM, nothing);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        pwrite(fd, bytes, BYTES, 0);
        fsync(fd);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        pread(fd, bytes, BYTES, 0);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    return pwrite(fd, bytes, BYTES, 0) != BYTES;
}
C
gcc -std=c11 -O1 -Wall -Wno-unused-result -Werror -o "$WORK/busy" "$WORK/busy.c"

verify() { [[ "$(stat --format=%s file)" -eq 1000000 ]] || die "the file is not as long as it was"; }

begin 16M --log "$WORK/log"
"$WORK/busy" file || die "the program failed"
cd /
vellum umount "$MNT"
[[ ! -s "$WORK/log" ]] || die "the log says: $(head -n 5 "$WORK/log")"
VELLUM_LOG=debug vellum mount --log "$WORK/log" "$POOL" "$MNT" 2>"$WORK/said"
ls "$MNT" >"$WORK/said"
[[ -s "$WORK/log" ]] || die "the log has nothing, though it was asked for"
! grep -q $'\e' "$WORK/log" || die "the log has colours"
cd "$MNT"
finish verify
