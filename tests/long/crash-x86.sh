#!/usr/bin/env bash
# The crash explorer, every workload: every combination of lines in flight, up to 2048 at a point.
set -euo pipefail

cargo run --release -q -p vellum-crash --example explore -- --mode x86 --states 2048
printf 'ok crash-x86\n'
