#!/usr/bin/env bash
# A million random changes of one file through a mount, and as many in the library (over all mappings), with another
# seed in each part.
# Parts: 3
set -euo pipefail

readonly PART="${1%/*}" OPERATIONS=1000000
readonly COMBINATIONS=("" "hashfs direct memory" "extent adaptive memory" "radix tree memory")
VELLUM_COMBINATION="${COMBINATIONS[PART]}" VELLUM_FSX_SEEDS="$((10 + PART))" VELLUM_FSX_OPERATIONS="$OPERATIONS" \
    "$(dirname "${BASH_SOURCE[0]}")/../mount/51-exercise.sh"
VELLUM_SEED="$((20 + PART))" VELLUM_CHANGES="$((OPERATIONS / 6 + 1))" \
    cargo test -q -p vellum --test fs -- exerciser::a_file_in_memory_keeps_its_bytes_through_any_changes
printf 'ok exercise\n'
