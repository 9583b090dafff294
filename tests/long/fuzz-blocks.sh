#!/usr/bin/env bash
# Fuzzing of superblock, journals and mapping table, and of everything at once; guided by coverage.
set -euo pipefail

scripts/fuzz -t 85 structures::superblock structures::journal structures::mapping structures::everything
printf 'ok fuzz-blocks\n'
