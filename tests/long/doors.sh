#!/usr/bin/env bash
# Every test through a mount, with requests by io_uring (parts 1 and 2) and by /dev/fuse (parts 3 and 4).
# Parts: 4
set -euo pipefail

readonly SWITCH=/sys/module/fuse/parameters/enable_uring
readonly PART="${1%/*}"
if [[ $((PART % 2)) -eq 1 ]]; then
    scripts=(tests/mount/[0-4]*.sh)
else
    scripts=(tests/mount/[5-9]*.sh)
fi
if [[ "$PART" -le 2 ]]; then
    export VELLUM_DOOR=auto VELLUM_MOUNTS=1000
    switched="$(<"$SWITCH")"
    trap 'printf "%s\n" "$switched" >"$SWITCH"' EXIT
    printf 'Y\n' >"$SWITCH"
else
    export VELLUM_DOOR=off
fi
for script in "${scripts[@]}"; do
    printf '%s\n' "$script"
    "$script"
    # Otherwise it tested the other door.
    if [[ "$PART" -le 2 && "$(<"$SWITCH")" != Y ]]; then
        printf 'error: something turned %s off meanwhile\n' "$SWITCH" >&2
        exit 1
    fi
done
printf 'ok doors\n'
