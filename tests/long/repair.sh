#!/usr/bin/env bash
# Pools with random damage are repaired, with power cuts during the repair: more cases than in make test.
# Parts: 3
set -euo pipefail

case "${1%/*}" in
    1) chosen=(damage::repair::structures) ;;
    2) chosen=(damage::repair::cuts) ;;
    *) chosen=(damage::repair:: --skip repair::structures --skip repair::cuts) ;;
esac
VELLUM_WHOLE=1 VELLUM_CASES=10000 cargo test -q -p vellum-fuzz --test fuzz -- "${chosen[@]}"
printf 'ok repair %s\n' "$1"
