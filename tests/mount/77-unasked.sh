#!/usr/bin/env bash
# Without --medium, mkfs creates a pool with a log in an ordinary file, and on a block device if there is one, and says
# so. The mount's process is killed, with and without its image in memory, and synced changes are there; the pool is
# inspected, repaired and converted like any other.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
# shellcheck source-path=SCRIPTDIR source=kill.bash
source "$ROOT/tests/mount/kill.bash"

[[ "$MEDIUM" == logged ]] || { printf 'ok %s\n' "$NAME"; exit 0; }
COUNT=0

# make_unasked MKFS OPTIONS...
make_unasked() {
    local text
    text="$(vellum mkfs "$POOL" "$@")"
    said 'medium *logged: ' "$text"
    said 'survives *a power cut: once fsync' "$text"
    COUNT=0
}

# In place of the function that sets the medium.
make_pool() { make_unasked --size "$1"; }

work() {
    COUNT=$((COUNT + 1))
    seq "$COUNT" 50000 >"$MNT/file$COUNT"
    sync "$MNT/file$COUNT"
}

verify() {
    local number
    for ((number = 1; number <= COUNT; number++)); do
        cmp <(seq "$number" 50000) "$MNT/file$number" || die "file $number"
    done
}

stop() {
    vellum umount "$MNT"
    wait "$SERVER" || die "the server failed"
    check
}

# Uses the mounted pool.
use() {
    said '^medium *logged' "$(vellum info "$POOL")"
    work
    printf 'not synced\n' >"$MNT/later"
    kill_server
    check_killed "with what it had in memory"
    serve
    verify
    rm "$MNT/later"
    work
    printf 'not synced\n' >"$MNT/later"
    kill_server
    forget_image
    said 'is gone: the pool is in the state of its last commit' "$(vellum check "$POOL")"
    serve
    verify
    [[ ! -e "$MNT/later" ]] || die "what nobody synced is there"
    stop
    said 'nothing was changed' "$(vellum repair "$POOL")"
    vellum convert --quiet "$POOL" --namespace tree
    said '^namespace *tree' "$(vellum info --verbose "$POOL")"
    serve
    verify
    work
    stop
}

if [[ "$(stat --file-system --format=%T "$WORK")" == tmpfs ]]; then
    say "no ordinary file: $WORK is in memory"
    make_pool() { vellum mkfs "$POOL" --medium disk --size "$1" --quiet; }
fi
begin_killing 32M
use

if [[ "$(id -u)" -eq 0 ]]; then
    truncate -s 32M "$WORK/device.img"
    LOOP="$(losetup --find --show "$WORK/device.img" 2>/dev/null || true)"
fi
if [[ -n "$LOOP" ]]; then
    ln -sf "$LOOP" "$POOL"
    make_unasked
    serve
    use
else
    say "SKIPPED: no block device: loop devices cannot be had"
fi
printf 'ok %s\n' "$NAME"
