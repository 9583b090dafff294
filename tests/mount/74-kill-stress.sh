#!/usr/bin/env bash
# The mount's process is killed while stress-ng works on the file system. The rest must be sound, readable and usable.
# stress-ng does not report its operations, so these are not checked.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
# shellcheck source-path=SCRIPTDIR source=kill.bash
source "$ROOT/tests/mount/kill.bash"
need stress-ng
# shellcheck source-path=SCRIPTDIR source=stressors.bash
source "$ROOT/tests/mount/stressors.bash"

readonly AT_ONCE=3
STRESS=
CHOSEN=()

begin_work() {
    local i
    CHOSEN=()
    for ((i = 0; i < AT_ONCE; i++)); do
        draw_below ${#STRESSORS[@]}
        CHOSEN+=("--${STRESSORS[DRAWN]}" 1)
    done
    mkdir -p "$MNT/stress"
    stress-ng --temp-path "$MNT/stress" --hdd-bytes 16m --iomix-bytes 16m --revio-bytes 16m --seek-size 16m --fallocate-bytes 16m \
        --timeout 60 --seed "$SEED" "${CHOSEN[@]}" >"$WORK/stress" 2>&1 &
    STRESS=$!
}

# Stressors without a file system end by themselves; the few that try for ever are killed.
end_work() {
    sleep 0.2
    kill -INT "$STRESS" 2>/dev/null || true
    await_end "$STRESS" "stress-ng (${CHOSEN[*]})"
}

verify_work() {
    local what
    what="seed $SEED, round $1 (${CHOSEN[*]})"
    find "$MNT" -type f -size -64M -exec cat {} + >/dev/null || die "$what: a file cannot be read"
    ls -lR "$MNT" >/dev/null || die "$what: a directory cannot be listed"
    rm -rf "$MNT/stress" || die "$what: what is left cannot be removed"
    printf 'round %s\n' "$1" >>"$MNT/rounds"
    mkdir "$MNT/new" && mv "$MNT/new" "$MNT/newer" && rmdir "$MNT/newer" || die "$what: the mount is not usable"
    [[ "$(tail -n 1 "$MNT/rounds")" == "round $1" ]] || die "$what: a file is not what was written"
}

tell_left_out
begin_killing 256M
rounds "${VELLUM_ROUNDS:-5}" 2500
finish_killing
printf 'ok %s\n' "$NAME"
