#!/usr/bin/env bash
# Concurrent threads: each with its own model, linearizability of names, listings; twenty times as long as in make test.
# Parts: 3
set -euo pipefail

case "${1%/*}" in
    1) chosen=(linear:: --skip under_schedules) ;;
    2) chosen=(under_schedules) ;;
    *) chosen=(listing:: threads::) ;;
esac
VELLUM_LONG_CHECKS=20 cargo test -q -p vellum --test against_model -- "${chosen[@]}"
printf 'ok threads %s\n' "$1"
