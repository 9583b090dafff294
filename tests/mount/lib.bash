# What the tests through a mount share. Each makes a pool in a directory of its own, mounts it on $MNT, does its work
# there, and calls `finish VERIFY`: unmount, check, mount again, run VERIFY, unmount, check, "ok NAME".
# Whatever happens, the mount and the directory are gone at the end.
set -euo pipefail
export LC_ALL=C

NAME="$(basename "$0" .sh)"
NAME="${NAME#[0-9][0-9]-}"
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"

# The mapping of each test's pool, and where that lies unless TMPDIR says so: each mapping and both media under some.
declare -rA POOLS=(
    [git]="extent disk"
    [sqlite]="radix memory"
    [trees]="cuckoo disk"
    [gcc]="level disk"
    [fsx]="extent-cached memory"
    [mmap]="extent disk"
    [pjdfstest]="hashfs disk"
    [damage]="hashfs disk"
    [model]="hashfs memory"
)
read -r MAPPING PLACE <<<"${POOLS[$NAME]:-hashfs disk}"
# A container may have next to none.
if [[ "$PLACE" == memory && "$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1)" -ge $((1 << 20)) ]]; then
    PLACE=/dev/shm
else
    PLACE=/tmp
fi
WORK="$(mktemp -d "${TMPDIR:-$PLACE}/vellum-$NAME.XXXXXX")"
POOL="$WORK/pool.img"
MNT="$WORK/mnt"
readonly NAME ROOT WORK POOL MNT
PATH="${VELLUM_BIN:-$ROOT/target/release}:${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

# Also true of a mount whose process was killed.
is_mounted() { grep -qF " $MNT fuse" /proc/self/mounts; }

clean_up() {
    local status=$?
    trap - EXIT
    cd /
    if is_mounted; then
        timeout 60 vellum umount "$MNT" || timeout 60 vellum umount --lazy "$MNT" || umount -l "$MNT" || true
    fi
    rm -rf --one-file-system "$WORK"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

say() { printf '%s: %s\n' "$NAME" "$*"; }

die() {
    printf '%s: error: %s\n' "$NAME" "$*" >&2
    exit 1
}

need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null || die "$tool is missing: run scripts/install test"
    done
}

# within SECONDS COMMAND...: ends the test, and says so, if that takes longer. Who waits for an answer of the mount cannot be killed before the
# mount has ended.
within() {
    local seconds="$1" status=0 worker
    shift
    (exec "$@") <&0 &
    worker=$!
    if timeout "$seconds" tail --sleep-interval=0.02 --pid="$worker" --follow /dev/null; then
        wait "$worker" || status=$?
        return "$status"
    fi
    disown "$worker"
    kill -9 "$worker" 2>/dev/null || true
    umount -f "$MNT" 2>/dev/null || true
    # Of the test, not only of a command substitution.
    kill -TERM "$$"
    die "\`$*\` did not end within $seconds s"
}

# Seconds that one git may take: that of the longest, on a slow machine, ten times over.
readonly GIT_SECONDS=120
git() { within "$GIT_SECONDS" git "$@"; }

# Leaves in MAPPING what the pool is to have: that of VELLUM_MAPPING, of which "any" draws one, or else the test's.
choose_mapping() {
    local all=(hashfs cuckoo extent radix extent-cached level)
    MAPPING="${VELLUM_MAPPING:-$MAPPING}"
    [[ "$MAPPING" != any ]] || MAPPING="${all[RANDOM % ${#all[@]}]}"
}

# begin SIZE [MOUNT OPTIONS...]
begin() {
    local size="$1"
    shift
    choose_mapping
    say "mapping $MAPPING, pool in $WORK"
    MOUNT_OPTIONS=("$@")
    mkdir "$MNT"
    vellum mkfs "$POOL" --size "$size" --mapping "$MAPPING" --quiet
    vellum mount "$@" "$POOL" "$MNT"
    cd "$MNT"
}

check() {
    local report
    report="$(vellum check --strict "$POOL")" || die "$report"
    grep -q 'is sound; it was closed in order' <<<"$report" || die "$report"
}

# finish VERIFY: everything must be there again after a mount anew.
finish() {
    cd /
    vellum umount "$MNT"
    check
    vellum mount "${MOUNT_OPTIONS[@]}" "$POOL" "$MNT"
    cd "$MNT"
    "$1"
    cd /
    vellum umount "$MNT"
    check
    printf 'ok %s\n' "$NAME"
}
