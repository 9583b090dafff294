#!/usr/bin/env bash
# Fuzzing of what makes the tree: state, inodes, entries, logs, symlinks; with coverage to guide it.
set -euo pipefail

scripts/fuzz -t 70 state inode entry directory_log symlink
printf 'ok fuzz-tree\n'
