#!/usr/bin/env bash
# Kills under operations that the model knows, with pools that have a log: a new pool every 8 rounds, as many as seven minutes allow.
set -euo pipefail
export VELLUM_MAPPING=any VELLUM_NAMESPACE=any VELLUM_COMBINATION="extent direct logged"

while ((SECONDS < 420)); do
    VELLUM_ROUNDS=8 tests/mount/70-kill.sh
done
printf 'ok kill-logged\n'
