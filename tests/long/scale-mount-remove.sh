#!/usr/bin/env bash
# A million entries looked up and removed through a mount. The pool is in memory if there is enough.
set -euo pipefail

[[ ! -w /dev/shm ]] || export TMPDIR=/dev/shm
export VELLUM_ENTRIES=1000000 VELLUM_DEPTH=3000
cargo test -q -p vellum-cli --test cli -- --nocapture many_entries_are_found_and_removed
printf 'ok scale-mount-remove\n'
