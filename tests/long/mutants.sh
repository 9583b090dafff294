#!/usr/bin/env bash
# Every mutant of the engine's persistent steps; make test tries those of some sites.
set -euo pipefail

VELLUM_WHOLE=1 cargo test -q -p vellum-crash --test mutants -- --nocapture
printf 'ok mutants\n'
