#!/usr/bin/env bash
# Fuzzing of what callers choose: paths, names, positions, offsets; with coverage to guide it.
set -euo pipefail

scripts/fuzz -t 85 arguments::paths arguments::names arguments::positions arguments::offsets
printf 'ok fuzz-arguments\n'
