#!/usr/bin/env bash
# Lock-free code under model checkers: schedules of shuttle ten times as many as in make test, loom with one preemption more.
set -euo pipefail

VELLUM_LONG_CHECKS=10 cargo test -q -p vellum --lib -- checking:: summaries_fit overflow_bucket
