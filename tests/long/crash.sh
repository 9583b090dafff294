#!/usr/bin/env bash
# The crash explorer over everything, with a sample of the states on disks. Its report is kept beside the log; the
# reports of all parts add up to that of the whole.
# Parts: 16
# Report: vellum crash sum
# Whole: vellum crash sum --least 20000000 --least-on-disks 500000
set -euo pipefail

# 0: no violations. 1: violations, which the sum shows.
vellum crash run --all --budget long --part "$1" --json >"$VELLUM_REPORT" || [[ $? -eq 1 ]]
vellum crash sum "$VELLUM_REPORT"
printf 'ok crash %s\n' "$1"
