#!/usr/bin/env bash
# Lock-free code under model checkers: ten times as many schedules of shuttle as in make test, and loom with one more
# preemption.
set -euo pipefail

VELLUM_LONG_CHECKS=10 cargo test -q -p vellum --lib -- checking:: summaries_fit overflow_bucket
