#!/usr/bin/env bash
# Set-id bits go when ordinary users change a file, as they do on the file system of the pool.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
need setpriv fallocate

readonly OWNER=1000
# User, group and further groups of who changes the file.
readonly -A USERS=(
    [root]="0 0 --clear-groups"
    [stranger]="500 500 --clear-groups"
    [member]="500 $OWNER --clear-groups"
    [further]="500 500 --groups=$OWNER"
    [owner]="$OWNER $OWNER --groups=2000"
    [elsewhere]="$OWNER 7 --clear-groups"
)
readonly MODES=(6777 2767)
readonly CHANGES=(
    "dd if=$WORK/page of=file conv=notrunc status=none"
    "dd if=$WORK/page of=file conv=notrunc status=none bs=4K oflag=direct"
    "dd if=/dev/null of=file status=none"
    "truncate --size=1 file"
    "fallocate --length=9000 file"
    "chgrp 2000 file"
    "chown 3000 file"
    "chown $OWNER file"
    "touch file"
)

# outcomes DIR: the mode of a file after each change by each user.
outcomes() {
    local mode change name user group groups status
    cd "$1"
    for mode in "${MODES[@]}"; do
        for change in "${CHANGES[@]}"; do
            for name in "${!USERS[@]}"; do
                read -r user group groups <<<"${USERS[$name]}"
                head -c 8192 /dev/zero >file
                chown "$OWNER:$OWNER" file
                chmod "$mode" file
                status=0
                # A change and its words.
                # shellcheck disable=SC2086
                setpriv --reuid="$user" --regid="$group" "$groups" -- $change 2>/dev/null || status=1
                printf '%s of %s by the %s: status %s, %s\n' "${change/$WORK/}" "$mode" "$name" "$status" "$(stat --format=%a file)"
                rm -f file
            done
        done
    done
    cd "$MNT"
}

verify() { [[ -d dir ]] || die "the directory is gone"; }

if [[ "$(id -u)" -ne 0 ]]; then
    say "SKIPPED: only root can act as several users"
    printf 'ok %s\n' "$NAME"
    exit 0
fi
chmod 755 "$WORK"
head -c 4K /dev/urandom >"$WORK/page"
begin 64M -o suid
mkdir -m 777 dir "$WORK/dir"
outcomes "$WORK/dir" >"$WORK/expected"
[[ "$(wc -l <"$WORK/expected")" -eq $((${#MODES[@]} * ${#CHANGES[@]} * ${#USERS[@]})) ]] || die "cases are missing"
outcomes "$MNT/dir" | diff "$WORK/expected" - || die "set-id bits differ"
finish verify
