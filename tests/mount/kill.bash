# What the tests share that kill the process behind a mount: sourced after lib.bash. Instants are drawn from a seed, which is
# printed; VELLUM_SEED=N draws them again, as far as the machine does the same work in the same time.
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

# Starts the process behind the mount, and leaves its id in SERVER.
start_server() {
    vellum mount --foreground --ready-fd "$READY" "${MOUNT_OPTIONS[@]}" "$POOL" "$MNT" &
    SERVER=$!
}

# Mounts, and leaves in OPENING_MS how long that took.
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
    # The mount that died with it; none if it was killed before.
    ! is_mounted || umount -l "$MNT"
}

# The uuid of the pool, as its superblock has it: in hexadecimal digits, by which images in memory are called.
pool_uuid() { od -An -v -tx1 -j16 -N16 "$POOL" | tr -d ' \n'; }

# What a killed process left of a pool with a log is gone, as a power cut takes it.
forget_image() {
    rm /dev/shm/vellum-"$(pool_uuid)"* || die "nothing in memory"
}

check_killed() {
    local report
    report="$(vellum check "$POOL")" || die "seed $SEED, after a kill $1: $report"
}

# Kills openings, so that recovery begins again where it was.
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

# rounds N LONGEST_MS: so many kills, each at most so long after the work began.
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

# await_end PROCESS WHAT: waits until it is gone, which it has to be soon: nothing of it is left to do.
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
    MOUNT_OPTIONS=("$@")
    mkdir "$MNT"
    mkfifo "$WORK/ready"
    exec {READY}<>"$WORK/ready"
    make_pool "$size"
    serve
}

# Unmounted in order, the pool is closed, and shows the same.
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
