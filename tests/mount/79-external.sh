#!/usr/bin/env bash
# A pool with an external data file, and with an external data device if there can be one. The mount's process is
# killed, with and without its image in memory, and synced changes are there, in two files. A wrong data file is refused
# by name, and nothing is changed. The same holds for data past the page cache.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
# shellcheck source-path=SCRIPTDIR source=kill.bash
source "$ROOT/tests/mount/kill.bash"

[[ "$MEDIUM" == external ]] || { printf 'ok %s\n' "$NAME"; exit 0; }
readonly DATA="$WORK/data.img"
COUNT=0

# refused WHAT COMMAND...
refused() {
    local what="$1"
    shift
    if vellum "$@" >"$WORK/said" 2>&1; then die "$*: was done"; fi
    said "$what" "$(cat "$WORK/said")"
}

content() { seq "$1" $(($1 + 200000)); }

# A small file, whose blocks are journaled, and a large one.
work() {
    COUNT=$((COUNT + 1))
    printf 'number %s\n' "$COUNT" >"$MNT/small$COUNT"
    content "$COUNT" >"$MNT/large$COUNT"
    sync "$MNT/small$COUNT"
}

verify() {
    local number
    for ((number = 1; number <= COUNT; number++)); do
        [[ "$(cat "$MNT/small$number")" == "number $number" ]] || die "small file $number"
        cmp <(content "$number") "$MNT/large$number" || die "large file $number"
    done
}

# Kills the mount, then another one whose image is removed, as by a power cut.
kill_twice() {
    work
    kill_server
    check_killed "with an image"
    serve
    verify
    work
    printf 'not synced\n' >"$MNT/later"
    kill_server
    forget_image
    check_killed "without an image"
    serve
    verify
    [[ ! -e "$MNT/later" ]] || die "what nobody synced is there"
    work
}

stop() {
    vellum umount "$MNT"
    wait "$SERVER" || die "the server failed"
    check
}

begin_killing 64M
said "in $DATA" "$(vellum info "$POOL")"
kill_twice
refused 'in use' mkfs --force "$WORK/other" --data "$DATA"
stop
# The data of large files have never been in the pool's file.
grep -qa '^123456$' "$DATA" || die "data are not in their file"
if grep -qa '^123456$' "$POOL"; then die "data are in the pool's file"; fi

refused 'is the external data device of a pool already' mkfs "$WORK/other" --data "$DATA"
[[ ! -e "$WORK/other" ]] || die "half a pool is left"
refused 'a pool without a log cannot' mkfs "$WORK/other" --durability none --data "$WORK/more" --data-size 16M
refused 'the size is missing' mkfs "$WORK/other" --data "$WORK/more"
vellum mkfs "$WORK/other" --data "$WORK/more" --data-size 16M --quiet
before="$(sha256sum "$POOL" "$WORK/more")"
refused 'name the right one with --data' mount --data "$WORK/more" "$POOL" "$MNT"
mv "$DATA" "$WORK/moved.img"
refused "$DATA" mount "$POOL" "$MNT"
refused "$DATA" check "$POOL"
refused "$DATA" info "$POOL"
refused "$DATA" ls "$POOL:/"
refused "$DATA" repair --yes "$POOL"
truncate -s 8M "$WORK/short.img"
dd if="$WORK/moved.img" of="$WORK/short.img" bs=1M count=8 conv=notrunc status=none
refused 'cut short' check --data "$WORK/short.img" "$POOL"
[[ "$(sha256sum "$POOL" "$WORK/more")" == "$before" ]] || die "something was changed"
vellum check --quiet --data "$WORK/moved.img" "$POOL" || die "not sound where it was moved"
MOUNT_OPTIONS=(--data "$WORK/moved.img")
serve
verify
stop
# The pool remembers the new path.
MOUNT_OPTIONS=()
serve
verify
stop

# Past the page cache, with data that were written through it, and the reverse.
MOUNT_OPTIONS=(--direct)
serve
verify
said 'past the page cache' "$(vellum info --verbose "$POOL")"
kill_twice
stop
MOUNT_OPTIONS=()
serve
verify
stop

if [[ "$(id -u)" -eq 0 ]]; then
    truncate -s 64M "$WORK/device.img"
    LOOP="$(losetup --find --show "$WORK/device.img" 2>/dev/null || true)"
fi
if [[ -n "$LOOP" ]]; then
    rm "$POOL"
    COUNT=0
    vellum mkfs "$POOL" --data "$LOOP" --quiet
    refused 'is the external data device of a pool already' mkfs "$WORK/other2" --data "$LOOP"
    serve
    said "in $LOOP" "$(vellum info "$POOL")"
    kill_twice
    stop
    MOUNT_OPTIONS=(--direct)
    serve
    verify
    kill_twice
    stop
else
    say "no block device: loop devices cannot be had"
fi
printf 'ok %s\n' "$NAME"
