#!/usr/bin/env bash
# A million entries created through a mount, and a tree of 3000 levels. The pool is in memory if there is enough.
set -euo pipefail

[[ ! -w /dev/shm ]] || export TMPDIR=/dev/shm
export VELLUM_ENTRIES=1000000 VELLUM_DEPTH=3000
cargo test -q -p vellum-cli --test cli -- --nocapture many_entries_are_created a_deep_tree
printf 'ok scale-mount-make\n'
