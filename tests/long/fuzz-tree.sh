#!/usr/bin/env bash
# Fuzzing of the structures of the tree: state, inodes, entries, logs, symlinks; guided by coverage.
set -euo pipefail

scripts/fuzz -t 70 structures::state structures::inode structures::entry structures::directory_log structures::symlink
printf 'ok fuzz-tree\n'
