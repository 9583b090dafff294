#!/usr/bin/env bash
# The pool's file is cut in half under a mount. Files in the lost half return errors, all others their contents; nothing
# more is written; and the next mount says what to do.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

readonly FILES=100

content() { printf 'file %s\n%.0s' "$1" {1..500}; }

begin 16M
mkdir dir
for ((i = 0; i < FILES; i++)); do
    content "$i" >"dir/file-$i"
done
cd /
vellum umount "$MNT"
vellum mount --log "$WORK/log" "$POOL" "$MNT"
cd "$MNT"
truncate -s 8M "$POOL"

look() {
    local i
    for ((i = 0; i < FILES; i++)); do
        if cat "dir/file-$i" >"$WORK/read" 2>"$WORK/why"; then
            content "$i" | cmp - "$WORK/read" || die "file-$i is not what was written"
            printf 'file-%s\n' "$i"
        else
            grep -q 'Input/output error' "$WORK/why" || die "file-$i: $(cat "$WORK/why")"
        fi
    done
}

whole="$(look)"
kept="$(wc -l <<<"$whole")"
((kept > 10 && kept < FILES - 10)) || die "$kept of $FILES files can be read"
say "$kept of $FILES files can be read"
[[ "$(look)" == "$whole" ]] || die "other files can be read the second time"
[[ "$(find dir -type f | wc -l)" -eq "$FILES" ]] || die "names are missing"
for change in 'touch new' 'rm dir/file-1' 'mv dir/file-1 moved' 'mkdir new' 'truncate -s 1 dir/file-1' 'bash -c "echo >> dir/file-1"'; do
    if eval "$change" 2>"$WORK/why"; then
        die "$change: was done"
    fi
    grep -q 'Read-only file system' "$WORK/why" || die "$change: $(cat "$WORK/why")"
done
vellum info "$POOL" | grep -q 'damaged: it no longer writes' || die "$(vellum info "$POOL")"
cd /
vellum umount "$MNT"
grep -Eq 'data block [0-9]+ cannot be read from the medium' "$WORK/log" || die "the log names no place: $(cat "$WORK/log")"
say "unmounted"

if vellum check "$POOL" >"$WORK/report" 2>&1; then
    die "the checker finds nothing: $(cat "$WORK/report")"
fi
if vellum mount "$POOL" "$MNT" 2>"$WORK/why"; then
    die "half a pool was mounted"
fi
grep -Eq 'vellum (check|repair)' "$WORK/why" || die "nothing says what to do: $(cat "$WORK/why")"
printf 'ok %s\n' "$NAME"
