#!/usr/bin/env bash
# Fuzzing of what callers choose: paths, names, positions, offsets; with coverage to guide it.
set -euo pipefail

scripts/fuzz -t 85 paths names positions offsets
printf 'ok fuzz-arguments\n'
