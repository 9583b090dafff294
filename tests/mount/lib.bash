# Shared code of the tests through a mount. Each test creates a pool in a directory of its own, mounts it on $MNT, works
# there, and calls `finish VERIFY`: unmount, check, mount again, run VERIFY, unmount, check, "ok NAME". The mount and
# the directory are removed at the end in any case.
set -euo pipefail
export LC_ALL=C

NAME="$(basename "$0" .sh)"
NAME="${NAME#[0-9][0-9]-}"
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"

# Mapping, namespace and medium of each test's pool. The media (unless TMPDIR sets the directory) are: a file through
# the page cache, memory, a file with a log, the same with data past the page cache (mounted with --direct), a log with
# an external data file, the same with most data on a second one that was added, or memory with an external data file.
# VELLUM_COMBINATION="MAPPING NAMESPACE MEDIUM" overrides them. VELLUM_LIST=1 makes a test print its combinations
# instead of running.
declare -rA POOLS=(
    [git]="extent direct grown"
    [sqlite]="radix tree memory"
    [trees]="cuckoo adaptive split"
    [gcc]="level direct uncached"
    [fsx]="extent-cached tree memory"
    [exercise]="extent direct uncached"
    [mmap]="extent direct file"
    [calls]="extent tree logged"
    [overlay]="hashfs direct memory"
    [xattrs]="extent adaptive logged"
    [flags]="radix adaptive logged"
    [direct-io]="extent tree logged"
    [quiet]="extent direct logged"
    [kill]="hashfs direct file"
    [kill-git]="hashfs tree file"
    [kill-stress]="hashfs adaptive file"
    [damage]="hashfs direct file"
    [unasked]="extent direct logged"
    [image]="extent direct logged"
    [external]="extent direct external"
    [snapshot]="extent direct logged"
    [model]="hashfs direct split"
    [model-tree]="radix tree memory"
    [model-adaptive]="extent adaptive logged"
)
# Media that every machine has. Persistent memory has a test of its own, tests/long/dax-qemu.sh.
readonly MEDIA=(file memory logged uncached external split grown)
# Mappings of pools to which data devices can be added.
readonly GROWING=" hashfs radix extent extent-cached "
read -r MAPPING NAMESPACE MEDIUM <<<"${VELLUM_COMBINATION:-${POOLS[$NAME]:-hashfs direct file}}"

# The way of the kernel's requests: io_uring (auto) where the kernel's switch is on, or /dev/fuse (off).
# VELLUM_DOOR overrides it; the tests have both in turn.
case "${VELLUM_DOOR:-$(($(cksum <<<"$NAME $MAPPING $NAMESPACE $MEDIUM" | cut -d ' ' -f 1) % 2))}" in
    0 | auto) readonly DOOR=auto ;;
    *) readonly DOOR=off ;;
esac

PATH="${VELLUM_BIN:-$ROOT/target/release}:${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

# kinds_of KEY: the values of KEY for `mkfs -O`.
kinds_of() {
    vellum mkfs -O help | sed -n "s/^  $1=//p" | tr '|' ' '
}

# Combinations with each pair of a namespace, a mapping and a medium: as few as there are pairs of a mapping and a
# possible medium. There are no more namespaces than media.
covering_combinations() {
    local namespaces mappings i j medium
    read -r -a namespaces <<<"$(kinds_of namespace)"
    read -r -a mappings <<<"$(kinds_of mapping)"
    [[ ${#namespaces[@]} -gt 0 && ${#mappings[@]} -gt 0 ]] || return 1
    for i in "${!MEDIA[@]}"; do
        for j in "${!mappings[@]}"; do
            medium="${MEDIA[(i + j) % ${#MEDIA[@]}]}"
            [[ "$medium" != grown || "$GROWING" == *" ${mappings[j]} "* ]] || continue
            printf '%s %s %s\n' "${mappings[j]}" "${namespaces[i % ${#namespaces[@]}]}" "$medium"
        done
    done
}

if [[ -n "${VELLUM_LIST:-}" && "$NAME" != pjdfstest ]]; then
    printf '%s %s %s\n' "$MAPPING" "$NAMESPACE" "$MEDIUM"
    exit 0
fi

# A container may have almost no memory.
if [[ "$MEDIUM" =~ ^(memory|split)$ && "$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1)" -ge $((1 << 20)) ]]; then
    readonly PLACE=/dev/shm
else
    readonly PLACE=/tmp
fi
WORK="$(mktemp -d "${TMPDIR:-$PLACE}/vellum-$NAME.XXXXXX")"
POOL="$WORK/pool.img"
MNT="$WORK/mnt"
readonly NAME ROOT WORK POOL MNT

# The block device of the test, if it has one. It is detached at the end.
LOOP=

# This is also true for a mount whose process was killed.
is_mounted() { grep -qF " $MNT fuse" /proc/self/mounts; }

# What else a test has to undo at its end. Tests that do define this.
undo() { :; }

clean_up() {
    local status=$?
    trap - EXIT
    cd /
    undo || true
    if is_mounted; then
        timeout 60 vellum umount "$MNT" || timeout 60 vellum umount --lazy "$MNT" || umount -l "$MNT" || true
    fi
    [[ -z "$LOOP" ]] || losetup -d "$LOOP" || true
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

# said WHAT TEXT
said() { grep -q "$1" <<<"$2" || die "not said: $1: $2"; }

need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null || die "$tool is missing: run scripts/install test"
    done
}

# within SECONDS COMMAND...: ends the test with a message if the command takes longer. A process that waits for an
# answer of the mount cannot be killed before the mount has ended.
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
    # Ends the test, not only a command substitution.
    kill -TERM "$$"
    die "\`$*\` did not end within $seconds s"
}

# The seconds that one git may take: ten times those of the longest one on a slow machine.
readonly GIT_SECONDS=120
git() { within "$GIT_SECONDS" git "$@"; }

# Sets MAPPING and NAMESPACE of the pool to VELLUM_MAPPING and VELLUM_NAMESPACE ("any" draws one), or else to those of
# the test.
choose_pool() {
    local mappings namespaces
    read -r -a mappings <<<"$(kinds_of mapping)"
    read -r -a namespaces <<<"$(kinds_of namespace)"
    MAPPING="${VELLUM_MAPPING:-$MAPPING}"
    [[ "$MAPPING" != any ]] || MAPPING="${mappings[RANDOM % ${#mappings[@]}]}"
    NAMESPACE="${VELLUM_NAMESPACE:-$NAMESPACE}"
    [[ "$NAMESPACE" != any ]] || NAMESPACE="${namespaces[RANDOM % ${#namespaces[@]}]}"
}

# make_pool SIZE
make_pool() {
    choose_pool
    [[ "$MEDIUM" != grown || "$GROWING" == *" $MAPPING "* ]] || MEDIUM=external
    say "mapping $MAPPING, namespace $NAMESPACE, pool in $WORK"
    local media=(--size "$1") bytes
    case "$MEDIUM" in
        file) media=(--medium disk --durability none --size "$1") ;;
        logged | uncached) media=(--medium disk --size "$1") ;;
        external) media=(--data "$WORK/data.img" --data-size "$1") ;;
        grown)
            bytes="$(numfmt --from=iec "$1")"
            media=(--data "$WORK/data.img" --data-size "$((bytes / 64))" -O metadata="$((bytes / 64))")
            ;;
        split)
            media=(--data "$WORK/data.img" --data-size "$1")
            # Without enough memory, a log is used.
            [[ "$(stat --file-system --format=%T "$WORK")" != tmpfs ]] || media+=(--medium memory)
            ;;
    esac
    vellum mkfs "$POOL" -O mapping="$MAPPING",namespace="$NAMESPACE" "${media[@]}" --quiet
    [[ "$MEDIUM" != grown ]] || vellum data add "$POOL" "$WORK/more.img" --size "$((bytes / 64 * 63))" --quiet
}

# begin SIZE [MOUNT OPTIONS...]: creates and mounts the pool. VELLUM_MOUNT_OPTIONS are added.
begin() {
    local size="$1" more
    shift
    read -ra more <<<"${VELLUM_MOUNT_OPTIONS:-}"
    MOUNT_OPTIONS=(-o "uring=$DOOR" "$@" "${more[@]}")
    [[ "$MEDIUM" != uncached || " ${MOUNT_OPTIONS[*]} " == *" --direct "* ]] || MOUNT_OPTIONS+=(--direct)
    mkdir "$MNT"
    make_pool "$size"
    vellum mount "${MOUNT_OPTIONS[@]}" "$POOL" "$MNT"
    cd "$MNT"
}

check() {
    local report
    report="$(vellum check --strict "$POOL")" || die "$report"
    grep -q 'is sound; it was closed cleanly' <<<"$report" || die "$report"
}

# finish VERIFY: everything must still be there after another mount.
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
