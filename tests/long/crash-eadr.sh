#!/usr/bin/env bash
# The crash explorer, every workload: caches survive, a cut after every store.
set -euo pipefail

cargo run --release -q -p vellum-crash --example explore -- --mode eadr --states 100000
printf 'ok crash-eadr\n'
