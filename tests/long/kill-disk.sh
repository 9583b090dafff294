#!/usr/bin/env bash
# Kills during operations of the model, with pools on the disk: a new pool every 8 rounds, as many as seven minutes
# allow.
set -euo pipefail
export VELLUM_MAPPING=any VELLUM_NAMESPACE=any

while ((SECONDS < 420)); do
    VELLUM_ROUNDS=8 tests/mount/70-kill.sh
done
printf 'ok kill-disk\n'
