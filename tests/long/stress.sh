#!/usr/bin/env bash
# The file stressors of stress-ng through a mount, two of each at once, which verify what they find.
# Parts: 2
# shellcheck source-path=SCRIPTDIR source=../mount/lib.bash
[[ "${1%/*}" -eq 1 ]] || export VELLUM_COMBINATION="${VELLUM_COMBINATION:-extent adaptive logged}"
source "$(dirname "${BASH_SOURCE[0]}")/../mount/lib.bash"
need stress-ng
# shellcheck source-path=SCRIPTDIR source=../mount/stressors.bash
source "$ROOT/tests/mount/stressors.bash"

readonly SECONDS_EACH="${VELLUM_STRESS_SECONDS:-7}"

nothing_is_left() { [[ -z "$(ls -A stress)" ]] || die "left behind: $(ls -A stress)"; }

begin 1G
tell_left_out
mkdir stress
failed=()
for stressor in "${STRESSORS[@]}" "${STRESSORS_OF_FLAGS[@]}"; do
    status=0
    stress-ng --temp-path "$MNT/stress" --hdd-bytes 16m --iomix-bytes 16m --revio-bytes 16m --seek-size 16m --fallocate-bytes 16m \
        --timeout "$SECONDS_EACH" --seed "${VELLUM_SEED:-1}" --verify --"$stressor" 2 >"$WORK/log" 2>&1 || status=$?
    if [[ "$status" -ne 0 ]]; then
        say "$stressor: status $status"
        tail -n 8 "$WORK/log"
        failed+=("$stressor")
    fi
done
[[ ${#failed[@]} -eq 0 ]] || die "failed: ${failed[*]}"
finish nothing_is_left
