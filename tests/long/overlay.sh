#!/usr/bin/env bash
# The packages of a Debian system are unpacked in three layers through an overlay file system, each layer on a mount;
# a fourth layer removes, replaces, renames and changes parts, and programs run there. Every layer and the merged tree
# are the same as with layers on ext4. Needs a mirror of Debian that debootstrap finds.
# Parts: 2
# shellcheck source-path=SCRIPTDIR source=../mount/lib.bash
[[ "${1%/*}" -eq 1 ]] || export VELLUM_COMBINATION="${VELLUM_COMBINATION:-extent adaptive logged}"
source "$(dirname "${BASH_SOURCE[0]}")/../mount/lib.bash"
need debootstrap dpkg-deb getfattr mkfs.ext4

readonly SUITE=bookworm LAYERS=3
readonly DEBS="$WORK/boot/var/cache/apt/archives" EXT4="$WORK/ext4" MERGED="$WORK/merged"

# merge DIR LAYER: mounts the overlay whose upper layer is DIR/LAYER, and whose lower ones are those before it.
merge() {
    local layer lower=
    for ((layer = 1; layer < $2; layer++)); do lower="$1/$layer/upper${lower:+:$lower}"; done
    mkdir -p "$1/$2/upper" "$1/$2/work" "$WORK/empty"
    mount -t overlay overlay -o "lowerdir=${lower:-$WORK/empty},upperdir=$1/$2/upper,workdir=$1/$2/work" "$MERGED"
}

unmerge() { ! mountpoint -q "$MERGED" || umount "$MERGED" || umount -l "$MERGED"; }

# change: what a user's layer does. No file with set-id bits is copied up (docs/SEMANTICS.md).
change() {
    cd "$MERGED"
    rm -r usr/share/doc usr/share/man usr/share/locale
    rm -r etc/apt && mkdir etc/apt && printf 'deb http://example.org stable main\n' >etc/apt/sources.list
    rm -r usr/share/perl5 && cp -a usr/lib/x86_64-linux-gnu/perl-base usr/share/perl5
    mv usr/share/zoneinfo usr/share/zones
    mv usr/share/bash-completion usr/share/common-licenses usr/lib
    mv etc/debian_version etc/version
    mv usr/bin/perl usr/bin/perl-moved
    ln usr/bin/perl-moved usr/bin/perl
    ln -s version etc/debian_version
    find etc -type f -exec chmod o-r {} +
    find usr/share -exec chown -h 5:6 {} +
    find usr/lib -name '*.so*' -type f -size -64k -exec chmod g+w {} +
    find usr/share -type f -name '*.list' -exec sh -c 'printf "more\n" >>"$1"' - {} \;
    find usr/sbin -type f ! -perm /6000 -exec touch -d @1000000000 {} +
    find usr/bin -type f -size +100k -exec setfattr -n user.large -v yes {} +
    for tool in usr/bin/b*; do mv "$tool" "$tool-old" && cp -a "$tool-old" "$tool"; done
    truncate --size=100 usr/lib/os-release
    mknod -m 666 dev/null c 1 3
    # Programs run from it, with its libraries.
    chroot . /usr/bin/perl -e 'open my $out, ">", "/etc/written"; print $out map { "$_\n" } sort </usr/bin/*>;'
    chroot . /bin/sh -c 'tar -C /etc -cf - . | gzip -n >/etc.tar.gz; sha256sum /usr/bin/* | sort >/sums; rm /etc.tar.gz'
    cd "$WORK"
}

# shown DIR: names, kinds, modes, owners, links, times of files that packages brought, bytes, attributes.
shown() {
    (
        cd "$1"
        find . -printf '%p %y %#m %U %G %l' \( -type f -printf ' %s %n' -o -true \) \
            \( -type f ! -newer "$WORK/begun" -printf ' %T@\n' -o -printf '\n' \) | sort
        find . -type f -print0 | sort -z | xargs -0 cksum
        find . \( -type f -o -type d \) -print0 | sort -z | xargs -0 getfattr -d -m 'user|opaque|whiteout|capability' 2>/dev/null
    )
}

# build DIR NAME: makes all layers in DIR, and leaves what they have in $WORK/NAME-*.
build() {
    local layer i packages=("$DEBS"/*.deb)
    for ((layer = 1; layer <= LAYERS; layer++)); do
        merge "$1" "$layer"
        for ((i = layer - 1; i < ${#packages[@]}; i += LAYERS)); do
            dpkg-deb --fsys-tarfile "${packages[i]}" | tar -C "$MERGED" -xpf - --keep-directory-symlink
        done
        unmerge
    done
    merge "$1" $((LAYERS + 1))
    change
    shown "$MERGED" >"$WORK/$2-merged"
    unmerge
    merge "$1" $((LAYERS + 1))
    shown "$MERGED" | diff "$WORK/$2-merged" - || die "$2: another tree after a remount of the overlay"
    unmerge
    for ((layer = 1; layer <= LAYERS + 1; layer++)); do shown "$1/$layer/upper" >"$WORK/$2-$layer"; done
}

verify() {
    local layer
    for ((layer = 1; layer <= LAYERS + 1; layer++)); do
        shown "$MNT/$layer/upper" | diff "$WORK/vellum-$layer" - || die "another layer $layer after a remount"
    done
}

undo() {
    unmerge
    ! mountpoint -q "$EXT4" || umount "$EXT4" || umount -l "$EXT4"
}

: >"$WORK/begun"
debootstrap --variant=minbase --download-only "$SUITE" "$WORK/boot" >"$WORK/log" 2>&1 || die "$(tail -n 5 "$WORK/log")"
truncate --size=2G "$WORK/ext4.img"
mkfs.ext4 -q "$WORK/ext4.img"
mkdir "$EXT4" "$MERGED"
mount -o loop "$WORK/ext4.img" "$EXT4"
begin 1G -o suid,dev
build "$EXT4" ext4
build "$MNT" vellum
for what in merged $(seq $((LAYERS + 1))); do
    diff "$WORK/ext4-$what" "$WORK/vellum-$what" || die "$what differs"
done
grep -q ' c 0*0 ' "$WORK/vellum-$((LAYERS + 1))" || die "no whiteout"
grep -q opaque "$WORK/vellum-$((LAYERS + 1))" || die "no opaque directory"
say "$(wc -l <"$WORK/vellum-merged") lines of the merged tree, $(wc -l <"$WORK/vellum-$((LAYERS + 1))") of the last layer"
finish verify
