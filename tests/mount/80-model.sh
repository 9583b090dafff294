#!/usr/bin/env bash
# Random operations by several users, whose outcomes are all compared with the model's. The same test compares the model
# with ext4.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
need cargo
[[ "$(id -u)" -eq 0 ]] || { say "skipped: becoming other users needs the superuser"; printf 'ok %s\n' "$NAME"; exit 0; }

# With --workspace, so that the features are those of the earlier test builds and nothing is built again.
agrees() {
    TMPDIR="$MNT" PROPTEST_CASES="${VELLUM_MODEL_CASES:-25}" \
        cargo test --manifest-path "$ROOT/Cargo.toml" --workspace --features vellum-model/proptest --test against_kernel -- "$@" --nocapture >"$WORK/log" 2>&1 ||
        die "$(tail -n 60 "$WORK/log")"
    ! grep -q 'skipped: needs' "$WORK/log" || die "$(grep -m 1 'skipped: needs' "$WORK/log")"
}

begin 256M
agrees recorded_steps_agree
say "recorded sequences"
agrees random_sequences_agree
say "random sequences"
agrees fixed_seeds_agree
say "long sequences"
nothing_is_left() { [[ -z "$(ls -A)" ]] || die "left behind: $(ls -A)"; }
finish nothing_is_left
