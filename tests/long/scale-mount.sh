#!/usr/bin/env bash
# A directory of a million entries and a tree of 3000 levels, through a mount. The pool lies in memory, where there is some.
set -euo pipefail

[[ ! -w /dev/shm ]] || export TMPDIR=/dev/shm
export VELLUM_ENTRIES=1000000 VELLUM_DEPTH=3000
cargo test -q -p vellum-cli --test scale -- --nocapture
printf 'ok scale-mount\n'
