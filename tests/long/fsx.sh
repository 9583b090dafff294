#!/usr/bin/env bash
# fsx through a mount, with other seeds than in make test, and longer.
set -euo pipefail

seeds="$(seq -s ' ' 1001 1016)"
VELLUM_FSX_SEEDS="$seeds" VELLUM_FSX_OPERATIONS=30000 "$(dirname "${BASH_SOURCE[0]}")/../mount/50-fsx.sh"
printf 'ok fsx\n'
