#!/usr/bin/env bash
# Pools damaged at random and repaired, with power cuts in the repair: more cases than in make test.
# Parts: 3
set -euo pipefail

case "${1%/*}" in
    1) chosen=(structures) ;;
    2) chosen=(cuts) ;;
    *) chosen=(--skip structures --skip cuts) ;;
esac
VELLUM_CASES=10000 cargo test -q -p vellum-fuzz --test repair -- "${chosen[@]}"
printf 'ok repair %s\n' "$1"
