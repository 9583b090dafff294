#!/usr/bin/env bash
# A directory of a million entries (listed, looked up, reopened after a clean close and after a kill, removed) and a
# tree of 20 000 levels, through the library.
set -euo pipefail

export VELLUM_ENTRIES=1000000 VELLUM_DEPTH=20000
cargo test -q -p vellum --test fs -- --nocapture scale::a_directory_of_many_entries scale::a_deep_tree
printf 'ok scale-library\n'
