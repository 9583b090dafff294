# Shared code of the tests in an emulated machine: QEMU's software emulation, Debian's kernel, an initial RAM disk with
# vellum, busybox and the test's first process. Missing packages are installed with apt (as root); the kernel is kept in
# target/long/kernel. The test sets MACHINE to further options of the machine, and calls `install_needs`,
# `make_initramfs`, `boot`, `await`, `pull_the_plug`.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
NAME="$(basename "$0" .sh)"
LONG="${CARGO_TARGET_DIR:-$PWD/target}/long"
WORK="$LONG/$NAME"
KERNEL="$LONG/kernel"
VELLUM="${VELLUM_BIN:-${CARGO_TARGET_DIR:-$PWD/target}/release}/vellum"
readonly NAME LONG WORK KERNEL VELLUM
readonly BOOT_SECONDS=180

MACHINE=()
MEMORY_WORDS=
machine=
# No process of the test may outlive it.
trap '[[ -z "$machine" ]] || kill -9 "$machine" 2>/dev/null || true' EXIT

die() {
    printf '%s: error: %s\n' "$NAME" "$*" >&2
    exit 1
}

install_needs() {
    local kernel needs=()
    command -v qemu-system-x86_64 >/dev/null || needs+=(qemu-system-x86)
    command -v cpio >/dev/null || needs+=(cpio)
    [[ -x /bin/busybox ]] || needs+=(busybox-static)
    command -v depmod >/dev/null || needs+=(kmod)
    command -v mkfs.ext4 >/dev/null || needs+=(e2fsprogs)
    command -v strip >/dev/null || needs+=(binutils)
    if [[ ${#needs[@]} -gt 0 ]]; then
        apt-get -qq update
        DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${needs[@]}" </dev/null
    fi
    mkdir -p "$WORK" "$KERNEL"
    if ! compgen -G "$KERNEL/boot/vmlinuz-*" >/dev/null; then
        kernel="$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -n 1)"
        (cd "$KERNEL" && apt-get -qq download "$kernel")
        dpkg-deb -x "$KERNEL/$kernel"_*.deb "$KERNEL"
    fi
    [[ -x "$VELLUM" ]] || die "no $VELLUM: cargo build --release -p vellum-cli"
}

# make_initramfs GUEST MODULE...: creates an initial RAM disk whose first process is the script GUEST, with these
# modules of the kernel and the contents of $WORK/root/tree.
make_initramfs() {
    local guest="$1" root="$WORK/root" version library module file
    shift
    version="$(basename "$KERNEL"/lib/modules/*)"
    mkdir -p "$root"/{bin,dev,proc,sys,tmp,mnt,tree,lib/modules}
    cp /bin/busybox "$root/bin/"
    strip --strip-debug -o "$root/bin/vellum" "$VELLUM"
    for library in $(ldd "$VELLUM" | grep -o '/[^ ]*'); do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done
    depmod -b "$KERNEL" "$version"
    : >"$root/lib/modules/order"
    for module in "$@"; do
        for file in $(modprobe -d "$KERNEL" -S "$version" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p'); do
            [[ -e "$root/lib/modules/$(basename "$file")" ]] || {
                cp "$file" "$root/lib/modules/"
                basename "$file" >>"$root/lib/modules/order"
            }
        done
    done
    cp tests/long/guest.sh "$root/guest.sh"
    cp "tests/long/$guest" "$root/init"
    chmod +x "$root/init"
    (cd "$root" && find . | cpio --quiet -o -H newc) >"$WORK/initramfs"
}

# add_memory BYTES PERSISTENT: gives the machine BYTES of memory and, behind them, PERSISTENT bytes of persistent memory
# with ext4. It is a file, which keeps all stores when the machine is killed. Behind it is space for what QEMU and the
# firmware put at the end of memory at every start, above all the initial RAM disk, so call this after make_initramfs.
# Leaves in MEMORY_WORDS the arguments for the kernel.
add_memory() {
    local bytes="$1" persistent="$2" behind
    behind=$((($(stat --format=%s "$WORK/initramfs") >> 20) + 64 << 20))
    rm -f "$WORK/memory"
    truncate -s $((bytes + persistent + behind)) "$WORK/memory"
    mkfs.ext4 -q -F -b 4096 -E "offset=$bytes" "$WORK/memory" $((persistent >> 10))k
    MACHINE+=(-machine "q35,memory-backend=mem" -m "$((bytes + persistent + behind >> 20))M"
        -object "memory-backend-file,id=mem,share=on,mem-path=$WORK/memory,size=$((bytes + persistent + behind))")
    MEMORY_WORDS="memmap=$persistent!$bytes"
}

# boot PHASE [WORDS]: starts the machine with these arguments for its kernel. Its output goes to $WORK/console.PHASE.
boot() {
    local phase="$1" words="${2:-}"
    rm -f "$WORK/console.$phase"
    qemu-system-x86_64 -accel tcg -cpu max -nographic -no-reboot -net none -monitor none "${MACHINE[@]}" \
        -serial "file:$WORK/console.$phase" -kernel "$KERNEL"/boot/vmlinuz-* -initrd "$WORK/initramfs" \
        -append "console=ttyS0 quiet panic=-1 no_timer_check $MEMORY_WORDS $words" </dev/null >"$WORK/qemu.log" 2>&1 &
    machine=$!
}

# await PHASE LINE: waits until the machine prints LINE.
await() {
    local console="$WORK/console.$1" began=$SECONDS
    until grep -aq "^$2" "$console" 2>/dev/null; do
        ! grep -aq '^FAILED' "$console" 2>/dev/null || { tail -n 30 "$console" && die "phase $1 failed"; }
        kill -0 "$machine" 2>/dev/null || { tail -n 30 "$console" "$WORK/qemu.log" && die "the machine stopped in phase $1"; }
        [[ $((SECONDS - began)) -lt "$BOOT_SECONDS" ]] || { tail -n 30 "$console" && die "phase $1 takes too long"; }
        sleep 0.2
    done
}

# Cuts the power of the machine.
pull_the_plug() {
    kill -9 "$machine"
    wait "$machine" 2>/dev/null || true
    machine=
}

# Prints the number of the last round that phase $1 reported as done.
last_done() {
    grep -a '^DONE ' "$WORK/console.$1" | tail -n 1 | tr -cd '0-9'
}
