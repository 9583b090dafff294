# What package.sh does in a Debian 12 of its own.
set -euo pipefail

die() {
    printf 'package: error: %s\n' "$*" >&2
    exit 1
}

# fails STATUS COMMAND...: the command ends with this status.
fails() {
    local wanted="$1" status=0
    shift
    "$@" >/tmp/said 2>&1 || status=$?
    [[ "$status" -eq "$wanted" ]] || die "exit status $status, not $wanted: $*: $(</tmp/said)"
}

# is_mounted DIR OPTION...: a pool is mounted there, with these options of the kernel.
is_mounted() {
    local dir="$1" options option
    shift
    options="$(findmnt -n -t fuse.vellum -o OPTIONS "$dir")" || die "nothing is mounted on $dir"
    for option in "$@"; do
        [[ ",$options," == *",$option,"* ]] || die "$dir: $option is not in $options"
    done
}

as() {
    local user="$1"
    shift
    runuser -u "$user" -- "$@"
}

useradd --create-home ann
useradd --create-home bob
ln -sf ../proc/self/mounts /etc/mtab
find / -xdev \( -path /proc -o -path /var/cache/man \) -prune -o -name '*vellum*' -print | sort >/packages/before

printf '== install\n'
dpkg -i /packages/old.deb >/dev/null
vellum version
for page in vellum vellum-mount vellum-bench fsck.vellum mount.vellum umount.vellum mkfs.vellum; do
    man "$page" | grep -qi vellum || die "no manual page $page"
done
man 3 vellum | grep -q vellum_pool_open || die "no manual page of the library"
[[ "$(ldconfig -p)" == *"libvellum.so.0 "* ]] || die "ldconfig does not know the library"
[[ -s /usr/share/bash-completion/completions/vellum && -s /usr/share/zsh/vendor-completions/_vellum ]] ||
    die "no completions"
mkdir -p /etc/vellum
cp /usr/share/doc/vellum/examples/pool.conf /etc/vellum/pool.conf
systemd-analyze verify vellum@pool.service
grep -q '^options fuse enable_uring=1' /usr/lib/modprobe.d/vellum.conf || die "no setting of the module"

printf '== mkfs, file, udev\n'
mkdir -p /srv/pool /srv/dirs /srv/fresh
mkfs -t vellum -q -L 'my pool' /srv/pool/a 16M
mkfs.vellum -q /srv/pool/b 16384
[[ "$(stat -c %s /srv/pool/b)" -eq 16777216 ]] || die "mkfs.vellum counts no KiB"
said="$(file -m /usr/share/vellum/magic:/usr/share/misc/magic /srv/pool/a)"
[[ "$said" == *'Vellum pool'*'"my pool"'* ]] || die "file: $said"
vellum info --udev /srv/pool/a | grep -qx 'ID_FS_LABEL_ENC=my\\x20pool' || die "info --udev tells no label"
fails 1 vellum info --udev /bin/true

printf '== fstab\n'
cat >/etc/fstab <<'FSTAB'
/srv/pool/a     /srv/dirs/a   vellum       nofail,noatime,comment=first                          0 2
/srv/pool/b     /srv/dirs/b   fuse.vellum  ro,_netdev,x-systemd.automount,x-systemd.idle-timeout=9,auto_unmount 0 2
/srv/pool/none  /srv/dirs/c   vellum       defaults,nofail                                       0 0
/srv/pool/user  /srv/dirs/u   vellum       noauto,user,exec                                      0 0
/srv/pool/all   /srv/dirs/all vellum       noauto,users                                          0 0
/srv/pool/own   /srv/dirs/own vellum       noauto,owner,uhelper=vellum                           0 0
FSTAB
mkdir -p /srv/dirs/{a,b,c,u,all,own}
fsck -A -a -T
mount -a
is_mounted /srv/dirs/a rw noatime
is_mounted /srv/dirs/b ro
fails 32 mountpoint -q /srv/dirs/c
mount -a
[[ "$(findmnt -n -t fuse.vellum | wc -l)" -eq 2 ]] || die "mount -a mounted twice"
echo kept >/srv/dirs/a/file
mount -o remount,ro,noexec /srv/dirs/a
is_mounted /srv/dirs/a ro noexec
fails 1 touch /srv/dirs/a/none
mount -o remount,rw /srv/dirs/a
is_mounted /srv/dirs/a rw
fails 32 mount -o remount,rw /srv/dirs/b
fails 8 fsck.vellum -a /srv/pool/a
umount /srv/dirs/b
vellum check -q /srv/pool/b
umount /srv/dirs/a
vellum check -q --strict /srv/pool/a
mount /srv/dirs/a
exec 9>/srv/dirs/a/open
fails 32 umount /srv/dirs/a
fails 32 mount -o remount,ro /srv/dirs/a
umount -l /srv/dirs/a
exec 9>&-
vellum check -q --strict /srv/pool/a
generated=/tmp/generated
mkdir -p "$generated"
/usr/lib/systemd/system-generators/systemd-fstab-generator "$generated" "$generated" "$generated" 2>/tmp/said ||
    die "systemd-fstab-generator: $(</tmp/said)"
grep -q '^Type=fuse.vellum' "$generated/srv-dirs-b.mount" || die "no unit for /srv/dirs/b"
[[ -f "$generated/srv-dirs-b.automount" ]] || die "no automount unit for /srv/dirs/b"

printf '== users\n'
for name in user all own; do
    vellum mkfs -q "/srv/pool/$name" --size 16M
    chown ann "/srv/pool/$name"
done
chown ann /srv/dirs/{u,all,own}
as ann mount /srv/dirs/u
is_mounted /srv/dirs/u nosuid nodev user_id="$(id -u ann)"
as bob bash -c '! umount /srv/dirs/u' 2>/dev/null || die "bob unmounted what ann mounted"
as ann umount /srv/dirs/u
vellum check -q --strict /srv/pool/user
as bob bash -c '! mount /srv/dirs/u' 2>/dev/null || die "bob mounted ann's pool"
as ann mount /srv/dirs/all
is_mounted /srv/dirs/all nosuid nodev noexec
as bob umount /srv/dirs/all
vellum check -q --strict /srv/pool/all
as ann mount /srv/dirs/all
umount /srv/dirs/all
as ann bash -c 'cd && mkdir mnt && vellum mkfs -q p --size 16M && vellum mount p mnt && touch mnt/file && vellum umount mnt'
chmod 600 /dev/fuse
as ann bash -c '! vellum mount ~/p ~/mnt' 2>/tmp/said
grep -q 'chmod 666 /dev/fuse' /tmp/said || die "no word of /dev/fuse: $(</tmp/said)"
chmod 666 /dev/fuse
mv /usr/bin/fusermount3 /usr/bin/away
as ann bash -c '! vellum mount ~/p ~/mnt' 2>/tmp/said
grep -q 'package fuse3' /tmp/said || die "no word of fuse3: $(</tmp/said)"
mv /usr/bin/away /usr/bin/fusermount3

printf '== upgrade below a mount\n'
mount /srv/dirs/a
dpkg -i /packages/new.deb >/dev/null
dpkg -s vellum | sed -n 's/^Version: /version /p'
[[ "$(</srv/dirs/a/file)" == kept ]] || die "a file is lost"
echo more >>/srv/dirs/a/file
vellum info /srv/dirs/a >/dev/null
umount /srv/dirs/a
vellum check -q --strict /srv/pool/a
[[ "$(vellum cat /srv/pool/a:/file)" == $'kept\nmore' ]] || die "a file is lost"

printf '== purge\n'
rm /etc/vellum/pool.conf
dpkg --purge vellum >/dev/null
rm -rf /srv/pool /home/ann "$generated"
find / -xdev \( -path /proc -o -path /var/cache/man \) -prune -o -name '*vellum*' -print | sort | comm -13 /packages/before - >/tmp/left
[[ ! -s /tmp/left ]] || die "left behind: $(</tmp/left)"
