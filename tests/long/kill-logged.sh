#!/usr/bin/env bash
# Kills during operations of the model, with logged pools, with pools that have an external data device, and with
# metadata in memory: a new pool every 8 rounds, as many as seven minutes allow.
set -euo pipefail
export VELLUM_MAPPING=any VELLUM_NAMESPACE=any

while ((SECONDS < 420)); do
    for medium in logged external split; do
        VELLUM_COMBINATION="extent direct $medium" VELLUM_ROUNDS=8 tests/mount/70-kill.sh
    done
done
printf 'ok kill-logged\n'
