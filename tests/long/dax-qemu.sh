#!/usr/bin/env bash
# The `dax` medium, on a machine that has one: QEMU's software emulation, Debian's kernel, a part of the memory taken for
# persistent (`memmap=`), ext4 mounted on it with `-o dax`, MAP_SYNC. The machine's memory is a file, so that part keeps
# what was stored when the machine is killed, as persistent memory does. A pool is made and used; the machine is killed in
# the middle of work, twice; whatever was said to be done must be there after the next boot.
#
# Installs what it needs with apt (as root). Software emulation is slow, so nothing is measured.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly TARGET="${CARGO_TARGET_DIR:-$PWD/target}"
readonly WORK="$TARGET/long/dax"
readonly VELLUM="${VELLUM_BIN:-$TARGET/release}/vellum"
# Where the persistent part of the machine's memory lies; the firmware keeps a little at the end for itself.
readonly PERSISTENT_AT=$((1 << 30))
readonly PERSISTENT_BYTES=$((512 << 20))
readonly MEMORY_BYTES=$((PERSISTENT_AT + PERSISTENT_BYTES + (128 << 20)))
readonly BOOT_SECONDS=180

machine=
# Nothing of ours may outlive the test.
trap '[[ -z "$machine" ]] || kill -9 "$machine" 2>/dev/null || true' EXIT

die() {
    printf 'dax-qemu: error: %s\n' "$*" >&2
    exit 1
}

install_needs() {
    local kernel needs=()
    command -v qemu-system-x86_64 >/dev/null || needs+=(qemu-system-x86)
    command -v cpio >/dev/null || needs+=(cpio)
    [[ -x /bin/busybox ]] || needs+=(busybox-static)
    command -v depmod >/dev/null || needs+=(kmod)
    command -v mkfs.ext4 >/dev/null || needs+=(e2fsprogs)
    if [[ ${#needs[@]} -gt 0 ]]; then
        apt-get -qq update
        DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${needs[@]}" </dev/null
    fi
    mkdir -p "$WORK"
    if ! compgen -G "$WORK/kernel/boot/vmlinuz-*" >/dev/null; then
        kernel="$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -n 1)"
        (cd "$WORK" && apt-get -qq download "$kernel")
        dpkg-deb -x "$WORK/$kernel"_*.deb "$WORK/kernel"
    fi
}

# An initial RAM disk with vellum, its libraries, busybox and the modules for persistent memory and ext4.
make_initramfs() {
    local root="$WORK/root" version library module
    version="$(basename "$WORK"/kernel/lib/modules/*)"
    rm -rf "$root"
    mkdir -p "$root"/{bin,dev,proc,sys,tmp,mnt,tree,lib/modules}
    cp /bin/busybox "$root/bin/"
    cp "$VELLUM" "$root/bin/vellum"
    for library in $(ldd "$VELLUM" | grep -o '/[^ ]*'); do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done
    depmod -b "$WORK/kernel" "$version"
    for module in nd_e820 nd_pmem ext4 crc32c_generic; do
        for file in $(modprobe -d "$WORK/kernel" -S "$version" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p'); do
            [[ -e "$root/lib/modules/$(basename "$file")" ]] || {
                cp "$file" "$root/lib/modules/"
                basename "$file" >>"$root/lib/modules/order"
            }
        done
    done
    # A tree to carry in: some of our own sources.
    cp -r crates/layout crates/media docs "$root/tree/"
    cp "$(dirname "${BASH_SOURCE[0]}")/dax-guest.sh" "$root/init"
    chmod +x "$root/init"
    (cd "$root" && find . | cpio --quiet -o -H newc) >"$WORK/initramfs"
}

# boot PHASE [DONE]: starts the machine; what it says goes to $WORK/console.PHASE.
boot() {
    local phase="$1" known="${2:-0}"
    local arguments
    arguments="console=ttyS0 quiet panic=-1 memmap=$PERSISTENT_BYTES!$PERSISTENT_AT"
    qemu-system-x86_64 -accel tcg -cpu max -machine q35,memory-backend=mem -m $((MEMORY_BYTES >> 20))M -nographic -no-reboot \
        -object "memory-backend-file,id=mem,share=on,mem-path=$WORK/memory,size=$MEMORY_BYTES" \
        -net none -monitor none -serial "file:$WORK/console.$phase" \
        -kernel "$WORK"/kernel/boot/vmlinuz-* -initrd "$WORK/initramfs" \
        -append "$arguments vellum.phase=$phase vellum.done=$known" </dev/null >/dev/null 2>&1 &
    machine=$!
}

# await PHASE LINE: until the machine says LINE.
await() {
    local console="$WORK/console.$1" began=$SECONDS
    until grep -aq "^$2" "$console" 2>/dev/null; do
        ! grep -aq '^FAILED' "$console" 2>/dev/null || { tail -n 30 "$console" && die "phase $1 failed"; }
        kill -0 "$machine" 2>/dev/null || { tail -n 30 "$console" && die "the machine stopped in phase $1"; }
        [[ $((SECONDS - began)) -lt "$BOOT_SECONDS" ]] || { tail -n 30 "$console" && die "phase $1 takes too long"; }
        sleep 0.2
    done
}

# The machine loses its power; the memory stays.
pull_the_plug() {
    kill -9 "$machine"
    wait "$machine" 2>/dev/null || true
    machine=
}

# The number of the last round that phase $1 said was done.
last_done() {
    grep -a '^DONE ' "$WORK/console.$1" | tail -n 1 | tr -cd '0-9'
}

install_needs
[[ -x "$VELLUM" ]] || die "no $VELLUM: cargo build --release -p vellum-cli"
make_initramfs
rm -f "$WORK"/console.* "$WORK/memory"
truncate -s "$MEMORY_BYTES" "$WORK/memory"
mkfs.ext4 -q -F -b 4096 -E "offset=$PERSISTENT_AT" "$WORK/memory" $((PERSISTENT_BYTES >> 10))k

boot make
await make 'DONE 6'
sleep 0.7
pull_the_plug
known="$(last_done make)"
printf 'killed after round %s\n' "$known"

boot again "$known"
await again "DONE $((known + 4))"
sleep 0.3
pull_the_plug
known="$(last_done again)"
printf 'killed after round %s\n' "$known"

boot verify "$known"
await verify VERIFIED
wait "$machine" || true
machine=
grep -aho 'medium .*\|check: .*' "$WORK"/console.*
printf 'ok dax-qemu\n'
