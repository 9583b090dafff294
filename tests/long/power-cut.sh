#!/usr/bin/env bash
# Power cuts, from outside: an emulated machine works in a mounted pool, records and syncs each of its rounds, reports
# them on its console, and is killed at random. Its disk loses its cache: QEMU's `blklogwrites` records every write and
# flush. The next start finds everything written before the last flush, and some of the sectors written after it. Then
# everything that was reported as synced must be there, in the order in which it was done, and the checker must find no
# damage. A part has a dozen starts. The pool is in turn a file on ext4 with the defaults of mkfs, a whole disk, and
# persistent memory with its data on a disk. VELLUM_SEED=N draws the same instants again, if the machine does the same
# work in the same time.
# Parts: 9
# shellcheck source-path=SCRIPTDIR source=qemu.bash
source "$(dirname "${BASH_SOURCE[0]}")/qemu.bash"

readonly PART="${1:-1/9}"
readonly STARTS=12
readonly KINDS=(file disk split)
readonly DISK_BYTES=$((96 << 20))
readonly SEED="${VELLUM_SEED:-$((${PART%/*} * 7919 + SECONDS + $$))}"
RANDOM=$SEED

kind="${KINDS[(${PART%/*} - 1) % ${#KINDS[@]}]}"
disk="$WORK/disk"
cut_disk="${CARGO_TARGET_DIR:-$PWD/target}/debug/examples/cut_disk"

# start PHASE [DONE]: starts on the present disk. Writes go to a copy that is not used again.
start() {
    cp --sparse=always "$disk" "$disk.running"
    rm -f "$disk.log"
    truncate -s $((128 << 20)) "$disk.log"
    boot "$1" "vellum.phase=$1 vellum.kind=$kind vellum.done=${2:-0}"
}

# cut_power N: the disk gets the state that a power cut leaves.
cut_power() {
    local status=0 said
    said="$("$cut_disk" "$disk" "$disk.log" $((SEED + $1)))" || status=$?
    case "$status" in
        0) printf 'start %d: killed after round %s; %s\n' "$1" "$known" "$said" ;;
        3)
            cp --sparse=always "$disk.running" "$disk"
            printf 'start %d: killed after round %s; everything arrived\n' "$1" "$known"
            ;;
        *) die "the disk's log cannot be read" ;;
    esac
}

install_needs
cargo build -q --profile test -p vellum-crash --example cut_disk
rm -rf "$WORK/root" "$WORK"/console.* "$disk"*
make_initramfs power-cut-guest.sh virtio_pci virtio_blk nd_e820 nd_pmem ext4 crc32c_generic fuse
truncate -s "$DISK_BYTES" "$disk"
[[ "$kind" != file ]] || mkfs.ext4 -q -F -b 4096 "$disk"
add_memory $((512 << 20)) $((64 << 20))
MACHINE+=(-blockdev "driver=file,filename=$disk.running,node-name=base"
    -blockdev "driver=file,filename=$disk.log,node-name=log"
    -blockdev "driver=blklogwrites,node-name=disk,file=base,log=log,log-sector-size=512"
    -device virtio-blk-pci,drive=disk)

printf 'power-cut: part %s, kind %s, seed %s\n' "$PART" "$kind" "$SEED"
phase=make
known=0
for ((number = 1; number <= STARTS; number++)); do
    start "$phase" "$known"
    await "$phase" 'VERIFIED'
    await "$phase" 'DONE'
    sleep "$((RANDOM % 4)).$((RANDOM % 1000))"
    # Everything on the console was printed before the power cut.
    pull_the_plug
    known="$(last_done "$phase")"
    cut_power "$number"
    phase=again
done
start verify "$known"
await verify CLOSED
wait "$machine" || true
machine=
printf 'ok power-cut\n'
