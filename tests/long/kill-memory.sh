#!/usr/bin/env bash
# Kills during operations of the model, with pools in memory: a new pool every 15 rounds, as many as seven minutes
# allow.
set -euo pipefail
export VELLUM_MAPPING=any VELLUM_NAMESPACE=any

while ((SECONDS < 420)); do
    TMPDIR=/dev/shm VELLUM_ROUNDS=15 tests/mount/70-kill.sh
done
printf 'ok kill-memory\n'
