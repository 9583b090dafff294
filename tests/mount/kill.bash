# Shared code of the tests that kill a mount's process. Source it after lib.bash. Instants are drawn from a seed, which
# is printed; VELLUM_SEED=N draws them again, if the machine does the same work in the same time.
#
# A test defines begin_work, end_work and verify_work, and calls `rounds N LONGEST_MS`.

SEED="${VELLUM_SEED:-$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')}"
RANDOM="$SEED"
SERVER=
OPENING_MS=100
DRAWN=
readonly END_SECONDS=60
readonly SEED

# Leaves in DRAWN a number below $1, which is at most 2^30. (A subshell would draw from a seed of its own.)
draw_below() { DRAWN=$(((RANDOM * 32768 + RANDOM) % $1)); }

# sleep_ms MILLISECONDS
sleep_ms() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }

# Starts the mount's process, and leaves its ID in SERVER.
start_server() {
    vellum mount --foreground --ready-fd "$READY" "${MOUNT_OPTIONS[@]}" "$POOL" "$MNT" &
    SERVER=$!
}

# Mounts, and leaves the time that it took in OPENING_MS.
serve() {
    local began="${EPOCHREALTIME/./}"
    start_server
    until read -r -t 1 -u "$READY"; do
        kill -0 "$SERVER" 2>/dev/null || die "seed $SEED: no mount"
    done
    OPENING_MS=$(((${EPOCHREALTIME/./} - began) / 1000))
}

kill_server() {
    kill -9 "$SERVER"
    wait "$SERVER" 2>/dev/null || true
    # The mount that died with it, unless it was killed before mounting.
    ! is_mounted || umount -l "$MNT"
}

# The UUID in the pool's superblock, in hexadecimal digits, as in the names of images in memory.
pool_uuid() { od -An -v -tx1 -j16 -N16 "$POOL" | tr -d ' \n'; }

# Removes the image that a killed process left, as a power cut would.
forget_image() {
    rm /dev/shm/vellum-"$(pool_uuid)"* || die "nothing in memory"
}

check_killed() {
    local report
    report="$(vellum check "$POOL")" || die "seed $SEED, after a kill $1: $report"
}

# Kills openings, so that recovery is interrupted and repeated.
kill_openings() {
    while draw_below 3 && ((DRAWN == 0)); do
        start_server
        draw_below $((OPENING_MS + 10))
        sleep_ms "$DRAWN"
        kill_server
        # It may have been ready.
        while read -r -t 0 -u "$READY"; do read -r -u "$READY"; done
        check_killed "of an opening"
        INTERRUPTED=$((INTERRUPTED + 1))
    done
}

# rounds N LONGEST_MS: N kills, each at most LONGEST_MS after the work began.
rounds() {
    local round
    INTERRUPTED=0
    for ((round = 1; round <= $1; round++)); do
        begin_work "$round"
        draw_below "$2"
        sleep_ms "$DRAWN"
        kill_server
        end_work "$round"
        check_killed "in round $round"
        kill_openings
        serve
        verify_work "$round"
    done
    say "$1 kills under load, $INTERRUPTED of openings"
}

# await_end PROCESS WHAT: waits until the process has ended, which must be soon, as it has nothing left to do.
await_end() {
    timeout "$END_SECONDS" tail --sleep-interval=0.02 --pid="$1" --follow /dev/null ||
        die "seed $SEED: $2 did not end within $END_SECONDS s"
    wait "$1" 2>/dev/null || true
}

# begin_killing SIZE [MOUNT OPTIONS...]: as `begin`, but the server is a child that can be killed.
begin_killing() {
    local size="$1"
    shift
    say "seed $SEED"
    MOUNT_OPTIONS=(-o "uring=$DOOR" "$@")
    mkdir "$MNT"
    mkfifo "$WORK/ready"
    exec {READY}<>"$WORK/ready"
    make_pool "$size"
    serve
}

# After a clean unmount, the pool is closed, and shows the same.
finish_killing() {
    vellum umount "$MNT"
    wait "$SERVER" || die "the server failed"
    check
    serve
    verify_work end
    vellum umount "$MNT"
    wait "$SERVER" || die "the server failed"
    check
}
