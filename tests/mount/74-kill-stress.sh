#!/usr/bin/env bash
# The mount's process is killed while stress-ng works on the file system. The rest must be sound, readable and usable.
# stress-ng does not report its operations, so these are not checked.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
# shellcheck source-path=SCRIPTDIR source=kill.bash
source "$ROOT/tests/mount/kill.bash"
need stress-ng

# Stressors whose operations are all supported by Vellum, or by the kernel on its behalf.
readonly STRESSORS=(access chdir chmod chown copy-file dentry dir dirdeep dirmany dnotify dup fallocate fcntl filename flock fpunch
    fsize fstat getdent handle hdd inotify iomix ioprio lease link locka lockf lockofd metamix mknod open rename revio seek symlink
    sync-file touch unlink utime)

# The other file system stressors of stress-ng, and why they are left out.
readonly -A LEFT_OUT=(
    [bind-mount]="mounts directories, and does nothing with files"
    [binderfs]="is about another file system"
    [chattr]="sets file flags, which Vellum has not"
    [eventfd]="uses no file"
    [fanotify]="watches every mount of the machine"
    [fiemap]="asks for extents, which Vellum does not tell"
    [file-ioctl]="asks by ioctl for what Vellum has not"
    [inode-flags]="sets file flags, which Vellum has not"
    [io]="syncs every file system of the machine"
    [procfs]="reads /proc"
    [verity]="needs fs-verity, which Vellum has not"
)
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

# Prints the reason for each file system stressor that is left out.
tell_left_out() {
    local name
    for name in $(stress-ng --class 'filesystem?' 2>&1 | sed -n "s/^class 'filesystem' stressors: //p"); do
        [[ " ${STRESSORS[*]} " == *" $name "* ]] ||
            say "left out: $name, which ${LEFT_OUT[$name]:-is newer than this test}"
    done
}

tell_left_out
begin_killing 256M
rounds "${VELLUM_ROUNDS:-5}" 2500
finish_killing
printf 'ok %s\n' "$NAME"
