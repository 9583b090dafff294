#!/usr/bin/env bash
# Every test through a mount, with requests by io_uring (part 1) and by /dev/fuse (part 2).
# Parts: 2
set -euo pipefail

readonly SWITCH=/sys/module/fuse/parameters/enable_uring
if [[ "${1%/*}" -eq 1 ]]; then
    export VELLUM_DOOR=auto VELLUM_MOUNTS=1000
    switched="$(<"$SWITCH")"
    trap 'printf "%s\n" "$switched" >"$SWITCH"' EXIT
    printf 'Y\n' >"$SWITCH"
else
    export VELLUM_DOOR=off
fi
for script in tests/mount/*.sh; do
    printf '%s\n' "$script"
    "$script"
done
printf 'ok doors\n'
