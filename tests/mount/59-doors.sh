#!/usr/bin/env bash
# Both ways of the kernel's requests: their counts and sizes; more requests than a queue of io_uring takes, clients that are
# killed while they wait, a server that is killed, many mounts one after the other. VELLUM_MOUNTS: how many; more than
# a few also take a processor offline.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

readonly SWITCH=/sys/module/fuse/parameters/enable_uring
readonly MOUNTS="${VELLUM_MOUNTS:-8}"
readonly PROCESSOR=/sys/devices/system/cpu/cpu1/online
readonly FILES=24

verify() { [[ "$(cat kept)" == kept ]] || die "what was written is not there"; }

# remount OPTION...
remount() {
    cd /
    vellum umount "$MNT"
    vellum mount "$@" "$POOL" "$MNT"
    cd "$MNT"
}

come_by() { said "requests by $1" "$(vellum info "$MNT")"; }

# requests_of KIND
requests_of() { vellum info --requests "$MNT" | awk -v kind="$1" '$2 == kind { print $1 }'; }

requests_are_counted() {
    local before after
    before="$(requests_of mkdir)"
    mkdir d{1..9}
    after="$(requests_of mkdir)"
    rmdir d{1..9}
    [[ $((after - ${before:-0})) -eq 9 ]] || die "9 directories took ${before:-0} to $after requests"
}

# The kernel reads ahead as much as a request can have, which only root may set.
reads_are_long() {
    local requests
    [[ "$(id -u)" -eq 0 ]] || return 0
    head -c 8M /dev/zero >long
    remount "$@"
    cmp -n 8M long /dev/zero
    requests="$(requests_of read)"
    [[ "$requests" -le 24 ]] || die "8 MiB took $requests reads"
    rm long
}

many_wait_at_once() {
    local i writers=()
    for ((i = 0; i < FILES; i++)); do
        dd if="$WORK/bytes" of="many$i" bs=64K conv=fsync status=none &
        writers+=($!)
    done
    wait "${writers[@]}"
    for ((i = 0; i < FILES; i++)); do
        cmp "many$i" "$WORK/bytes" &
        writers[i]=$!
    done
    wait "${writers[@]}" || die "files differ"
    rm many*
}

clients_are_killed() {
    local i client
    for ((i = 0; i < 20; i++)); do
        dd if="$WORK/bytes" of=killed bs=512K conv=fsync status=none &
        client=$!
        sleep "0.00$((i % 8))"
        kill -INT "$client" 2>/dev/null || true
        kill -KILL "$client" 2>/dev/null || true
        wait "$client" 2>/dev/null || true
    done
    rm -f killed
}

server_is_killed() {
    local server writer
    server="$(vellum info --json "$MNT" | sed -nE 's/.*"pid": ?([0-9]+).*/\1/p')"
    (while printf x >>log 2>/dev/null; do :; done) &
    writer=$!
    sleep 0.1
    kill -KILL "$server"
    wait "$writer" || true
    cd /
    vellum umount "$MNT"
    vellum mount -o uring=on "$POOL" "$MNT"
    cd "$MNT"
    rm log
}

processor_goes_offline() {
    local i
    printf '0\n' >"$PROCESSOR" || return 0
    for ((i = 0; i < 50; i++)); do printf '%s\n' "$i" >"offline$i"; done
    printf '1\n' >"$PROCESSOR"
    for i in 0 1; do [[ "$(taskset -c "$i" cat offline7)" == 7 ]] || die "the file has other bytes"; done
    rm offline*
}

many_mounts() {
    local i
    for ((i = 0; i < MOUNTS; i++)); do remount -o uring=on; done
    [[ "$(grep -cF " $MNT " /proc/self/mounts)" -eq 1 ]] || die "there are several mounts"
    [[ "$(pgrep --full --count "vellum mount .*$POOL")" -eq 1 ]] || die "servers are left"
}

head -c 512K /dev/urandom >"$WORK/bytes"
begin 64M
remount -o uring=off
come_by /dev/fuse
printf 'kept\n' >kept
requests_are_counted
reads_are_long -o uring=off
many_wait_at_once
if [[ ! -w "$SWITCH" ]]; then
    say "SKIPPED: io_uring, for which there is no $SWITCH that this user may turn on"
    finish verify
    exit 0
fi
switched="$(<"$SWITCH")"
undo() { printf '%s\n' "$switched" >"$SWITCH"; }
remount -o uring=on
come_by io_uring
requests_are_counted
reads_are_long -o uring=on
many_wait_at_once
clients_are_killed
server_is_killed
[[ "$MOUNTS" -lt 100 || ! -w "$PROCESSOR" ]] || processor_goes_offline
many_mounts
finish verify
