#!/usr/bin/env bash
# A mount as the upper layer of an overlay file system, as containers have it: the merged tree, and what lies in the
# upper layer, are the same as with an upper layer on the file system below the pool.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
need setfattr getfattr tar

if [[ "$(id -u)" -ne 0 ]] || ! { modprobe overlay 2>/dev/null || grep -qw overlay /proc/filesystems; }; then
    say "SKIPPED: overlay file systems need root, and a kernel that has them"
    printf 'ok %s\n' "$NAME"
    exit 0
fi

readonly LOWER="$WORK/lower"

# Two layers of an image, the second of which hides and replaces parts of the first.
make_layers() {
    mkdir -p "$LOWER/base/etc/init.d" "$LOWER/base/usr/bin" "$LOWER/base/var/empty"
    cp -a /usr/share/perl5 "$LOWER/base/usr/share" 2>/dev/null || cp -a /usr/share/doc/gcc* "$LOWER/base/usr/" || true
    seq 1 500 | while read -r n; do printf '%s\n' "$n" >"$LOWER/base/etc/$n"; done
    printf '#!/bin/sh\n' >"$LOWER/base/usr/bin/tool"
    chmod 755 "$LOWER/base/usr/bin/tool"
    ln "$LOWER/base/usr/bin/tool" "$LOWER/base/usr/bin/linked"
    ln -s tool "$LOWER/base/usr/bin/alias"
    mkdir -p "$LOWER/layer/etc" "$LOWER/layer/opt"
    printf 'replaced\n' >"$LOWER/layer/etc/1"
    mknod "$LOWER/layer/etc/2" c 0 0
    printf 'new\n' >"$LOWER/layer/opt/app"
}

# use DIR: works in a merged tree.
use() {
    cd "$1"
    rm etc/3 etc/1
    rm -r etc/init.d && mkdir etc/init.d && touch etc/init.d/only
    mv etc/4 etc/moved
    mv etc/5 etc/6
    mv opt/app usr/bin/app
    mv opt opt2 2>/dev/null || cp -a opt opt2
    chmod 700 etc/7 var
    chown 5:6 etc/8
    printf 'more\n' >>etc/9
    ln etc/9 etc/9-linked
    ln usr/bin/linked usr/bin/linked2
    printf 'x' >usr/bin/tool
    setfattr -n user.note -v text etc/10
    touch -d @1000000000 etc/11
    mkdir -p home/user/deep && printf '%01000d' 0 >home/user/deep/file
    tar -C "$LOWER/base" -cf - usr | tar -C home -xpf -
    for n in $(seq 100 300); do rm "etc/$n"; done
    for n in $(seq 200 250); do printf 'again\n' >"etc/$n"; done
    truncate --size=3 etc/12
    cd "$WORK"
}

# shown DIR: everything in a tree, but the times of what the test itself made.
shown() {
    (
        cd "$1"
        find . -printf '%p %y %#m %U %G %n %l\n' | sed 's/ d \(.*\) [0-9]* $/ d \1/' | sort
        find . -type f ! -path './home/*' -print0 | sort -z | xargs -0 cksum
        find . \( -type f -o -type d \) -print0 | sort -z | xargs -0 getfattr -d -m 'user|opaque|whiteout' 2>/dev/null
    )
}

# overlaid UPPER: makes an overlay with layers in UPPER, uses it, and leaves what was there in $WORK/NAME-*.
overlaid() {
    local upper="$1" name="$2"
    mkdir -p "$upper/upper" "$upper/work" "$WORK/merged"
    mount -t overlay overlay -o "lowerdir=$LOWER/layer:$LOWER/base,upperdir=$upper/upper,workdir=$upper/work" "$WORK/merged"
    use "$WORK/merged"
    shown "$WORK/merged" >"$WORK/$name-merged"
    umount "$WORK/merged"
    mount -t overlay overlay -o "lowerdir=$LOWER/layer:$LOWER/base,upperdir=$upper/upper,workdir=$upper/work" "$WORK/merged"
    shown "$WORK/merged" | diff "$WORK/$name-merged" - || die "$name: another tree after a remount of the overlay"
    umount "$WORK/merged"
    shown "$upper/upper" >"$WORK/$name-upper"
}

undo() { ! mountpoint -q "$WORK/merged" || umount -l "$WORK/merged"; }

verify() { shown "$MNT/upper" | diff "$WORK/vellum-upper" - || die "another upper layer after a remount"; }

make_layers
begin 512M -o suid,dev
overlaid "$WORK/beside" beside
overlaid "$MNT" vellum
for what in merged upper; do
    diff "$WORK/beside-$what" "$WORK/vellum-$what" || die "$what differs"
done
grep -q ' c 0*0 ' "$WORK/vellum-upper" || die "no whiteout"
say "$(wc -l <"$WORK/vellum-merged") lines of the merged tree, $(wc -l <"$WORK/vellum-upper") of the upper layer"
finish verify
