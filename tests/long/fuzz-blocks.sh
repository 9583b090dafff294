#!/usr/bin/env bash
# Fuzzing of superblock, journals and mapping table, and of everything at once; with coverage to guide it.
set -euo pipefail

scripts/fuzz -t 85 superblock journal mapping everything
printf 'ok fuzz-blocks\n'
