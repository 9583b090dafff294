#!/usr/bin/env bash
# The crash explorer, every workload: lines that the setup left unflushed may be lost too, 512 samples at a point.
set -euo pipefail

cargo run --release -q -p vellum-crash --example explore -- --mode lazy --lazy-states 512
printf 'ok crash-lazy\n'
