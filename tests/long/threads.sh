#!/usr/bin/env bash
# Threads beside each other: models of their own, linearizability of names, listings; twenty times as long as in make test.
set -euo pipefail

VELLUM_LONG_CHECKS=20 cargo test -q -p vellum --test against_model -- linear:: listing:: threads::
printf 'ok threads\n'
