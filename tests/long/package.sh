#!/usr/bin/env bash
# The Debian package on a fresh Debian 12, made by debootstrap in target/long/package: installed, used through fstab by
# root and by users, upgraded below a mount, and purged (package-guest.sh). Before that, what `make install` puts into a
# folder is used, the library for C too, and removed by `make uninstall`. Needs root. Missing tools are installed with
# apt.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
WORK="${CARGO_TARGET_DIR:-$PWD/target}/long/package"
readonly WORK
readonly DEBIAN="$WORK/debian"
readonly PACKAGES=fuse3,file,fdisk,kmod,man-db,systemd,udev

if ! command -v debootstrap >/dev/null; then
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends debootstrap </dev/null
fi
scripts/install deb

mkdir -p "$WORK"
if [[ ! -f "$WORK/made" ]]; then
    rm -rf "$DEBIAN"
    debootstrap --variant=minbase --include="$PACKAGES" bookworm "$DEBIAN" >"$WORK/debootstrap.log"
    touch "$WORK/made"
fi
printf 'a fresh Debian %s\n' "$(<"$DEBIAN/etc/debian_version")"

make --silent install PREFIX=/opt/vellum DESTDIR="$WORK/installed"
"$WORK/installed/opt/vellum/bin/vellum" version
library="$WORK/installed/opt/vellum/lib"
names="$(nm -D --defined-only --with-symbol-versions "$library/libvellum.so.0" | awk '$2 == "T" { print $3 }')"
[[ "$(grep -c '^vellum_[a-z_]*@@VELLUM_0$' <<<"$names")" -gt 60 && "$(grep -vc '@@VELLUM_0$' <<<"$names")" -eq 0 ]] || {
    printf 'package: error: libvellum.so exports: %s\n' "$names" >&2
    exit 1
}
link() {
    PKG_CONFIG_PATH="$library/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$WORK/installed" pkg-config "$@" vellum
}
example="$WORK/installed/opt/vellum/share/doc/vellum/examples/notes.c"
rm -f "$WORK/notes.vellum"
# shellcheck disable=SC2046
cc "$example" -o "$WORK/notes" $(link --cflags --libs)
LD_LIBRARY_PATH="$library" "$WORK/notes" "$WORK/notes.vellum" shared "a line"
# shellcheck disable=SC2046
cc "$example" "$library/libvellum.a" -o "$WORK/notes" $(link --cflags) $(link --static --libs-only-l | sed 's/-lvellum//')
"$WORK/notes" "$WORK/notes.vellum" static "a line"
make --silent uninstall PREFIX=/opt/vellum DESTDIR="$WORK/installed"
left="$(find "$WORK/installed" -not -type d)"
[[ -z "$left" ]] || {
    printf 'package: error: left behind: %s\n' "$left" >&2
    exit 1
}

version="$(sed -n '/^\[workspace.package\]/,/^\[/ s/^version *= *"\(.*\)"/\1/p' Cargo.toml)"
for deb in "$version~1" "$version"; do
    made="$(DEB_VERSION="$deb" scripts/make-deb | tail -n 1)"
    cp "$made" "$WORK/vellum_$deb.deb"
    dpkg-deb --info "$made" | sed -n 's/^ \(Version\|Installed-Size\|Depends\)/\1/p'
done

# The guest's copy of the system is thrown away, and so is everything that runs in it.
guest="$(mktemp -d "$WORK/guest.XXXXXX")"
trap 'rm -rf "$guest"' EXIT
cp -a "$DEBIAN/." "$guest"
mkdir "$guest/packages"
cp "$WORK/vellum_$version~1.deb" "$guest/packages/old.deb"
cp "$WORK/vellum_$version.deb" "$guest/packages/new.deb"
cp tests/long/package-guest.sh "$guest/packages"
# shellcheck disable=SC2016
unshare --mount --pid --fork --kill-child --propagation private bash -c '
    set -euo pipefail
    mount -t tmpfs -o mode=755 tmpfs "$1/dev"
    for node in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0" "fuse 10 229"; do
        read -r name major minor <<<"$node"
        mknod -m 666 "$1/dev/$name" c "$major" "$minor"
    done
    ln -s /proc/self/fd "$1/dev/fd"
    mkdir "$1/dev/shm"
    mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
    mount -t proc proc "$1/proc"
    exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C bash /packages/package-guest.sh
' bash "$guest"
printf 'ok package\n'
