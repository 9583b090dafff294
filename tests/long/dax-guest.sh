#!/bin/busybox sh
# The first process in the machine of dax-qemu.sh. It reports its progress on the console.

# shellcheck source=guest.sh
. /guest.sh

# The contents of file N: 1 to 200 000 bytes, none of which another file has at the same offset.
content() { seq "$1" 7919 200000000 | head -c $(($1 * 7001 % 200000 + 1)); }

# Each round creates a file, replaces another one and imports a tree, then reports that it is done.
work_from() {
    local round="$1"
    while true; do
        content "$round" >/tmp/file
        vellum put --medium pmem /tmp/file "$POOL:/file$round" || fail "put $round"
        vellum put --medium pmem /tmp/file "$POOL:/last" || fail "put last $round"
        vellum import --medium pmem -q /tree "$POOL:/tree$((round % 3))" --overwrite || fail "import $round"
        echo "DONE $round"
        round=$((round + 1))
        # Every second file is removed two rounds later.
        [ $((round % 2)) = 0 ] || [ "$round" -lt 4 ] || vellum rm --medium pmem "$POOL:/file$((round - 3))" || fail "rm $round"
    done
}

# Rounds 1 to N are done: the files that they created exist, and those that they removed do not.
verify() {
    local round=1
    vellum check -q "$POOL" || fail "check says $?"
    echo "check: no damage"
    vellum info --medium pmem "$POOL" | grep -qi dax || fail "not dax after the crash"
    while [ "$round" -le "$1" ]; do
        if vellum get --medium pmem "$POOL:/file$round" - >/tmp/got 2>/tmp/error; then
            content "$round" | cmp -s - /tmp/got || fail "file $round has other bytes"
            # It was removed before a later round was done.
            [ $((round % 2)) = 1 ] || [ $((round + 2)) -ge "$1" ] || fail "file $round is back"
        elif [ $((round % 2)) = 1 ] || [ $((round + 2)) -gt "$1" ]; then
            fail "file $round is gone: $(cat /tmp/error)"
        fi
        round=$((round + 1))
    done
    vellum get --medium pmem "$POOL:/last" /tmp/got || fail "the last file"
    content "$1" | cmp -s - /tmp/got || content "$(($1 + 1))" | cmp -s - /tmp/got || fail "the last file is of no round"
    [ "$1" -lt 3 ] || {
        rm -rf /tmp/out
        vellum export --medium pmem -q "$POOL:/tree$((($1 - 1) % 3))" /tmp/out || fail "export"
        diff -r /tree /tmp/out >/dev/null || fail "the tree that came out is another"
    }
    vellum check -q "$POOL" || fail "check after use says $?"
}

await_block /dev/pmem0
mount -t ext4 -o dax /dev/pmem0 /mnt || fail "no mount with dax"
POOL=/mnt/pool

case "$(value phase)" in
    make)
        # Detection finds the medium without --medium.
        vellum mkfs "$POOL" --size 64M >/tmp/said || fail mkfs
        grep -q 'medium *dax' /tmp/said || fail "mkfs made $(cat /tmp/said)"
        echo "medium: $(vellum info "$POOL" | grep -i -m 1 dax)"
        vellum info "$POOL" | grep -qi dax || fail "info does not say dax"
        work_from 1
        ;;
    again)
        verify "$(value done)"
        work_from "$(($(value done) + 1))"
        ;;
    verify)
        verify "$(value done)"
        umount /mnt
        echo VERIFIED
        poweroff -f
        ;;
esac
