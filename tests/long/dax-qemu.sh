#!/usr/bin/env bash
# The `dax` medium, on a machine that has it: QEMU's software emulation, Debian's kernel, a part of the memory declared
# persistent (`memmap=`), ext4 mounted on it with `-o dax`, MAP_SYNC. The machine's memory is a file, so this part keeps
# all stores when the machine is killed, as persistent memory does. A pool is created and used; the machine is killed in
# the middle of work, twice; everything that was reported as done must be there after the next boot. Software emulation
# is slow, so nothing is measured.
# shellcheck source-path=SCRIPTDIR source=qemu.bash
source "$(dirname "${BASH_SOURCE[0]}")/qemu.bash"

# start PHASE [DONE]
start() { boot "$1" "vellum.phase=$1 vellum.done=${2:-0}"; }

install_needs
# A tree to import: some sources of this repository.
rm -rf "$WORK/root" "$WORK"/console.*
mkdir -p "$WORK/root/tree"
cp -r crates/layout crates/media docs "$WORK/root/tree/"
make_initramfs dax-guest.sh nd_e820 nd_pmem ext4 crc32c_generic
add_memory $((1 << 30)) $((512 << 20))

start make
await make 'DONE 6'
sleep 0.7
pull_the_plug
known="$(last_done make)"
printf 'killed after round %s\n' "$known"

start again "$known"
await again "DONE $((known + 4))"
sleep 0.3
pull_the_plug
known="$(last_done again)"
printf 'killed after round %s\n' "$known"

start verify "$known"
await verify VERIFIED
wait "$machine" || true
machine=
grep -aho 'medium .*\|check: .*' "$WORK"/console.*
printf 'ok dax-qemu\n'
