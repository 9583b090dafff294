#!/usr/bin/env bash
# Every case of the tests from which make test takes a slice.
set -euo pipefail

VELLUM_WHOLE=1 cargo test -q -p vellum-fuzz --test fuzz
VELLUM_WHOLE=1 cargo test -q -p vellum-crash --lib --test explorer
printf 'ok whole\n'
