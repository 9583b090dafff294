#!/usr/bin/env bash
# The random tests of make test with other seeds: mappings, files, views and page tables against their models, random
# damage, the fuzz targets without coverage, and the hashes of pools whose probes are counted.
set -euo pipefail

cargo test -q -p vellum -p vellum-check -p vellum-media -p vellum-fuzz --tests --no-run
cargo test -q -p vellum-bench --test figures --no-run
for seed in 201 202 203 204 205 206; do
    printf 'seed %s\n' "$seed"
    export PROPTEST_RNG_SEED="$seed" VELLUM_FUZZ_SEED="$seed" VELLUM_HASH_SEED="$seed"
    cargo test -q -p vellum --lib -- behaves_as
    cargo test -q -p vellum --test fs -- reading:: damage::
    cargo test -q -p vellum --test pools -- views::
    cargo test -q -p vellum-check -p vellum-media --tests
    cargo test -q -p vellum-fuzz --test fuzz -- structures:: arguments::
    cargo test -q -p vellum-bench --test figures -- mapping::
done
printf 'ok seeds\n'
