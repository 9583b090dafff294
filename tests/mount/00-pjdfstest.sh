#!/usr/bin/env bash
# pjdfstest: the POSIX rules for every system call on names and attributes. The whole suite runs on each combination of
# a covering array, which has every pair of a namespace, a mapping and a medium.
#
# The suite itself skips read-only remounts and other file systems (they need an fstab entry), and LINK_MAX, for which
# it asks pathconf. It must not skip others.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
need pjdfstest

readonly MAY_SKIP='::(lchown::)?(erofs_named|erofs_new_file|exdev_target|link_count_max) '

if [[ -n "${VELLUM_LIST:-}" ]]; then
    covering_combinations
    exit 0
fi
if [[ "$(id -u)" -ne 0 ]]; then
    say "SKIPPED: only root can act as several users"
    printf 'ok %s\n' "$NAME"
    exit 0
fi

if [[ -z "${VELLUM_COMBINATION:-}" ]]; then
    combinations="$(covering_combinations)" || die "mkfs does not say what there is"
    while read -r combination; do
        VELLUM_COMBINATION="$combination" "$0" </dev/null || die "with $combination"
    done <<<"$combinations"
    printf 'ok %s\n' "$NAME"
    exit 0
fi

verify() { [[ -z "$(ls -A suite)" ]] || die "the suite left files"; }

cat >"$WORK/config.toml" <<'EOF'
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
EOF
chmod 755 "$WORK"
begin 256M -o suid,dev
chmod 777 .
mkdir -m 777 suite
pjdfstest -c "$WORK/config.toml" -p "$MNT/suite" >"$WORK/log" 2>&1 ||
    die "$(grep -vE ' (ok|skipped)$' "$WORK/log" | tail -n 60)"
skipped="$(grep -E ' skipped$' "$WORK/log" | grep -vE "$MAY_SKIP" || true)"
[[ -z "$skipped" ]] || die "skipped, though they need not be:"$'\n'"$skipped"
say "$(grep '^Summary' "$WORK/log")"
finish verify
