#!/usr/bin/env bash
# The crates that users depend on, packaged for crates.io, and built from the packages alone.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly CRATES=(
    vellum-media vellum-layout vellum vellum-check vellum-repair vellum-transport vellum-fuse vellum-terminal vellum-cli
)

cargo publish --dry-run --allow-dirty "${CRATES[@]/#/--package=}"
printf 'ok crates\n'
