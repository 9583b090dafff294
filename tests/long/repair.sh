#!/usr/bin/env bash
# Pools damaged at random and repaired, with power cuts in the repair: more cases than in make test.
set -euo pipefail

VELLUM_CASES=10000 cargo test -q -p vellum-fuzz --test repair
