#!/usr/bin/env bash
# Random sequences of operations, on the engine and on the model: other seeds than in make test, and more cases.
set -euo pipefail

cargo test -q -p vellum --test against_model --no-run
for seed in 101 102 103 104; do
    printf 'seed %s\n' "$seed"
    VELLUM_SEED="$seed" VELLUM_CASES=400 cargo test -q -p vellum --test against_model -- sequences::
done
printf 'ok model\n'
