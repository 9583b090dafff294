#!/usr/bin/env bash
# Fuzzing of callers' arguments: paths, names, positions, offsets; guided by coverage.
set -euo pipefail

scripts/fuzz -t 85 arguments::paths arguments::names arguments::positions arguments::offsets
printf 'ok fuzz-arguments\n'
