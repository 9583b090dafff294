#!/usr/bin/env bash
# The process that serves the mount is killed while programs work in it. Everything that had returned must be there when
# the pool is mounted again, and the pool must be sound.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

readonly ROUNDS=6
readonly WRITERS=3

# Every line of the log is one operation that returned.
work() {
    local writer="$1" dir="round-$2/writer-$1" log="$WORK/done-$1" i
    mkdir -p "$dir/moved" || return 0
    for ((i = 0; ; i++)); do
        printf '%s of %s\n' "$i" "$writer" >"$dir/file-$i" || return 0
        echo "$dir/file-$i" >>"$log"
        if ((i % 3 == 0)); then
            mv "$dir/file-$i" "$dir/moved/file-$i" || return 0
            echo "$dir/moved/file-$i $dir/file-$i" >>"$log"
        elif ((i % 5 == 0)); then
            rm "$dir/file-$i" || return 0
            echo "- $dir/file-$i" >>"$log"
        fi
    done
} 2>/dev/null

# Files that must be there, and must not, by the logs. The operation after the last line may have happened or not.
verify_round() {
    local log path gone last
    for log in "$WORK"/done-*; do
        last="$(tail -n 1 "$log" | tr ' ' '\n' | grep -oE '[0-9]+$' | tail -n 1)"
        while read -r path gone; do
            if [[ "$path" == - ]]; then
                [[ ! -e "$gone" ]] || die "$gone was removed and is back"
            elif [[ -n "$gone" ]]; then
                [[ ! -e "$gone" ]] || die "$gone was renamed and is back"
                [[ "$(cat "$path")" == "${path##*-} of "* ]] || die "$path is not what was written"
            elif [[ "${path##*-}" -lt "$last" && $((${path##*-} % 3)) -ne 0 && $((${path##*-} % 5)) -ne 0 ]]; then
                [[ "$(cat "$path")" == "${path##*-} of "* ]] || die "$path is not what was written"
            fi
        done <"$log"
    done
}

verify() { [[ "$(find . -name 'round-*' | wc -l)" -eq "$ROUNDS" ]] || die "rounds are missing"; }

begin 256M
for round in $(seq "$ROUNDS"); do
    rm -f "$WORK"/done-*
    writers=()
    for writer in $(seq "$WRITERS"); do
        touch "$WORK/done-$writer"
        work "$writer" "$round" &
        writers+=($!)
    done
    sleep "1.$((RANDOM % 10))"
    server="$(vellum info --json "$POOL" | sed -n 's/.*"pid": \([0-9]*\).*/\1/p')"
    kill -9 "$server"
    for writer in "${writers[@]}"; do
        wait "$writer" || true
    done
    cd /
    umount -l "$MNT"
    report="$(vellum check "$POOL")" || die "after the kill: $report"
    vellum mount "$POOL" "$MNT"
    cd "$MNT"
    verify_round
    say "round $round: $(cat "$WORK"/done-* | wc -l) operations"
done
finish verify
