#!/usr/bin/env bash
# Ten million creations and removals by two threads in one directory: metadata, memory, probes of a lookup and stored
# lines stay as they were after the first million.
set -euo pipefail

VELLUM_PAIRS=10000000 cargo test -q -p vellum --test fs -- --nocapture scale::creations_and_removals
printf 'ok soak\n'
