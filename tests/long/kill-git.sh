#!/usr/bin/env bash
# Kills during work of git, with pools on the disk and in memory in turn, as many as seven minutes allow.
set -euo pipefail
export VELLUM_MAPPING=any VELLUM_NAMESPACE=any

while ((SECONDS < 420)); do
    VELLUM_ROUNDS=8 tests/mount/72-kill-git.sh
    TMPDIR=/dev/shm VELLUM_ROUNDS=8 tests/mount/72-kill-git.sh
done
printf 'ok kill-git\n'
