#!/usr/bin/env bash
# The process of a mounted logged pool is killed, and leaves its image in memory. Commands that read the pool do not
# misread it, and report the image. The next mount adopts the image, wherever it is, or reports that it is lost.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
# shellcheck source-path=SCRIPTDIR source=kill.bash
source "$ROOT/tests/mount/kill.bash"

[[ "$MEDIUM" == logged ]] || { printf 'ok %s\n' "$NAME"; exit 0; }
readonly SHARED="$WORK/shared"
COUNT=0

# The images of the pool in memory. Images of other tests are beside them.
images() {
    find /dev/shm "$SHARED" -maxdepth 1 -name "vellum-$(pool_uuid)*"
}

# Creates a file without a sync, and kills the mount.
work_and_kill() {
    COUNT=$((COUNT + 1))
    mkdir "$MNT/d$COUNT"
    printf 'number %s\n' "$COUNT" >"$MNT/d$COUNT/file"
    kill_server
}

# verify [LAST]: all files up to number LAST are there, and no later ones.
verify() {
    local number last="${1:-$COUNT}"
    for ((number = 1; number <= last; number++)); do
        [[ "$(cat "$MNT/d$number/file")" == "number $number" ]] || die "file $number is not there"
    done
    [[ ! -e "$MNT/d$((last + 1))" ]] || die "file $((last + 1)) is there"
}

info() { vellum info --verbose "$POOL"; }

mkdir "$SHARED"
begin_killing 32M
said 'a killed process: every operation that returned; the metadata are in /dev/shm' "$(info)"
work_and_kill
said 'image that it left in memory' "$(vellum check "$POOL")"
said 'image of a killed process was adopted' "$(info)"
[[ "$(vellum cat "$POOL:/d1/file")" == 'number 1' ]] || die "vellum cat does not see it"
serve
verify
work_and_kill
if vellum repair --dry-run "$POOL" >"$WORK/said" 2>&1; then die "a repair looked at half of the pool"; fi
said 'a killed process left changes in memory' "$(cat "$WORK/said")"
vellum repair --yes --quiet "$POOL" || die "no repair"
[[ -z "$(images)" ]] || die "left in memory: $(images)"
serve
verify

# An image of another release.
work_and_kill
image="$(images)"
printf '\x09' | dd of="$image" bs=1 seek=8 conv=notrunc status=none
# refused COMMAND...
refused() {
    if vellum "$@" >"$WORK/said" 2>&1; then die "$*: was done"; fi
    said 'another release' "$(cat "$WORK/said")"
}
refused mount "$POOL" "$MNT"
refused check "$POOL"
refused info "$POOL"
refused repair --yes "$POOL"
printf '\x01' | dd of="$image" bs=1 seek=8 conv=notrunc status=none
serve
verify

    # Gone.
sync "$MNT/d1/file"
work_and_kill
rm "$(images)"
said 'is gone: the pool is in the state of its last commit' "$(vellum check "$POOL")"
said 'image of a killed process is lost' "$(info)"
COUNT=$((COUNT - 1))
serve
verify

# Given up.
sync "$MNT/d1/file"
work_and_kill
vellum repair --discard-image --yes --quiet "$POOL" || die "no repair"
COUNT=$((COUNT - 1))
serve
verify

# In another directory, which has no space at first.
vellum umount "$MNT"
wait "$SERVER"
MOUNT_OPTIONS=(--image "$SHARED")
if vellum mount --image "$SHARED" "$POOL" "$MNT" 2>"$WORK/said"; then die "metadata were worked on in $SHARED"; fi
said 'not in memory' "$(cat "$WORK/said")"
if [[ "$(id -u)" -eq 0 ]] && mount -t tmpfs -o size=256k none "$SHARED" 2>/dev/null; then
    if vellum mount --image "$SHARED" "$POOL" "$MNT" 2>"$WORK/said"; then die "256 KiB were enough"; fi
    said 'No space left' "$(cat "$WORK/said")"
    [[ -z "$(images)" ]] || die "left in memory: $(images)"
    mount -o remount,size=64m "$SHARED"
    serve
    said "the metadata are in $SHARED" "$(info)"
    work_and_kill
    MOUNT_OPTIONS=()
    serve
    verify
    [[ -z "$(find "$SHARED" -name 'vellum-*')" ]] || die "left in $SHARED"
else
    MOUNT_OPTIONS=()
    serve
fi

# In the memory of the process.
vellum umount "$MNT"
wait "$SERVER"
MOUNT_OPTIONS=(--image none)
serve
said 'in the memory of the process' "$(info)"
sync "$MNT/d1/file"
work_and_kill
COUNT=$((COUNT - 1))
serve
verify
vellum umount "$MNT"
wait "$SERVER"
umount "$SHARED" 2>/dev/null || true
check
[[ -z "$(images)" ]] || die "left in memory: $(images)"
printf 'ok %s\n' "$NAME"
