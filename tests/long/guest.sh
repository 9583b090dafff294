# Shared code of the first processes of the emulated machines: file systems, modules of the kernel, arguments from
# outside. They source it as /guest.sh. Their output goes to the console.

export PATH=/bin
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
exec </dev/null >/dev/ttyS0 2>&1

fail() {
    echo "FAILED: $*"
    dmesg | tail -n 5
    poweroff -f
}

# value NAME: the value of vellum.NAME on the kernel's command line.
value() { sed -n "s/.*vellum\.$1=\([^ ]*\).*/\1/p" /proc/cmdline; }

# await_block FILE
await_block() {
    local tries=0
    until [ -b "$1" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 50 ] || fail "no $1"
        sleep 0.2
    done
}

for module in $(cat /lib/modules/order); do
    insmod "/lib/modules/$module" || echo "module $module: $?"
done
