#!/bin/busybox sh
# The first process in the machine of power-cut.sh. It reports its progress on the console.

# shellcheck source=guest.sh
. /guest.sh

# The contents of file N: 1 to 40 000 bytes, none of which another file has at the same offset.
content() { seq "$1" 7919 200000000 | head -c $(($1 * 7001 % 40000 + 1)); }

# is_content N FILE
is_content() { content "$1" | cmp -s - "$2"; }

# Round N moves the last file into a directory, removes an older one, writes a file, and appends its number to the list
# of rounds. Only this list is synced, which makes everything before durable.
work_from() {
    local round="$1"
    while true; do
        [ ! -e "/v/file$((round - 1))" ] || mv "/v/file$((round - 1))" "/v/dir$((round % 3))/kept$((round - 1))" || fail "mv $round"
        rm -f "/v/dir$(((round - 4) % 3))/kept$((round - 5))" || fail "rm $round"
        content "$round" >"/v/file$round" || fail "write $round"
        echo "$round" | dd of=/v/rounds oflag=append conv=notrunc,fsync 2>/dev/null || fail "note $round"
        echo "DONE $round"
        round=$((round + 1))
    done
}

# Writes without a sync. The disk's cache has some of them when the power fails.
make_noise() {
    while true; do
        seq 1 20000 >/v/noise || fail "noise"
    done
}

# verify N: rounds up to N were reported as done. Leaves in $last the last round in the list.
verify() {
    local number
    last="$(tail -n 1 /v/rounds)"
    last="${last:-0}"
    [ "$last" = "$1" ] || [ "$last" = "$(($1 + 1))" ] || fail "the last round is $last, and $1 was done"
    [ "$last" = 0 ] || seq 1 "$last" | cmp -s - /v/rounds || fail "rounds were noted in another order"
    number=1
    while [ "$number" -le "$last" ]; do
        kept="/v/dir$(((number + 1) % 3))/kept$number"
        if [ "$number" = "$last" ] && [ -e "/v/file$number" ]; then
            is_content "$number" "/v/file$number" || fail "file $number has other bytes"
        elif [ "$number" -gt $((last - 4)) ]; then
            is_content "$number" "$kept" || fail "file $number is gone or has other bytes"
        elif [ "$number" -lt $((last - 4)) ]; then
            [ ! -e "$kept" ] || fail "file $number is back"
        fi
        number=$((number + 1))
    done
}

mkdir -p /v
await_block /dev/vda
POOL=/mnt/pool
PLACE="--size 32M"
case "$(value kind)" in
    file) mount -t ext4 /dev/vda /mnt || fail "no mount of the disk" ;;
    disk)
        POOL=/dev/vda
        PLACE=
        ;;
    split)
        await_block /dev/pmem0
        mount -t ext4 -o dax /dev/pmem0 /mnt || fail "no mount with dax"
        PLACE="--medium pmem --data /dev/vda"
        ;;
esac
known="$(value done)"
case "$(value phase)" in
    make)
        # The options are several words, or none.
        # shellcheck disable=SC2086
        vellum mkfs "$POOL" $PLACE >/tmp/said 2>&1 || fail "mkfs: $(cat /tmp/said)"
        vellum info "$POOL"
        ;;
    *) vellum check -q "$POOL" || fail "check says $?" ;;
esac
vellum mount "$POOL" /v || fail "mount"
mkdir -p /v/dir0 /v/dir1 /v/dir2
[ -e /v/rounds ] || dd if=/dev/null of=/v/rounds conv=fsync 2>/dev/null
verify "$known"
echo "VERIFIED $last"
if [ "$(value phase)" = verify ]; then
    vellum umount /v || fail "umount"
    vellum check --strict -q "$POOL" || fail "check after use says $?"
    echo "CLOSED"
    poweroff -f
fi
make_noise &
work_from $((last + 1))
