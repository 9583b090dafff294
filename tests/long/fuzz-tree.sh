#!/usr/bin/env bash
# Fuzzing of what makes the tree: state, inodes, entries, logs, symlinks; with coverage to guide it.
set -euo pipefail

scripts/fuzz -t 70 structures::state structures::inode structures::entry structures::directory_log structures::symlink
printf 'ok fuzz-tree\n'
