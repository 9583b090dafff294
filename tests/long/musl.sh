#!/usr/bin/env bash
# The static programs, in a folder that has nothing else, as root.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
make musl

root="$(mktemp -d)"
trap 'rm -rf "$root"' EXIT
cp "${CARGO_TARGET_DIR:-$PWD/target}"/x86_64-unknown-linux-musl/release/vellum{,-bench,-crash} "$root"
alone() { chroot "$root" "$@"; }
alone /vellum version
alone /vellum-bench --version
alone /vellum-crash --version
alone /vellum mkfs --quiet /pool --size 16M
printf 'text' | alone /vellum put - pool:/text
[[ "$(alone /vellum cat pool:/text)" == text ]]
alone /vellum check --strict /pool
printf 'ok musl\n'
