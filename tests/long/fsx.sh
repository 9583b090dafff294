#!/usr/bin/env bash
# fsx through a mount, with other seeds than in make test, and longer.
# Parts: 4
set -euo pipefail
export VELLUM_MAPPING="${VELLUM_MAPPING:-any}" VELLUM_NAMESPACE="${VELLUM_NAMESPACE:-any}"

# Each part has four.
first=$((1000 + 4 * (${1%/*} - 1)))
seeds="$(seq -s ' ' $((first + 1)) $((first + 4)))"
VELLUM_FSX_SEEDS="$seeds" VELLUM_FSX_OPERATIONS=30000 "$(dirname "${BASH_SOURCE[0]}")/../mount/50-fsx.sh"
printf 'ok fsx\n'
