#!/usr/bin/env bash
# Real trees, copied into the mount by tar and rsync, and compared byte for byte and attribute for attribute.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
need tar rsync

# The larger one of two trees that is small enough for a quick test.
readonly TREE_MAX_KIB=$((500 << 10))
tree=/usr/share
[[ "$(du -sk --one-file-system "$tree" | cut -f 1)" -le "$TREE_MAX_KIB" ]] || tree=/usr/share/doc
readonly tree

# Prints differences in contents, kinds, modes, owners, times and links. Only root can keep all of them.
differences() { rsync -aHnic --delete "$tree/" "$1/"; }

same() {
    local found
    found="$(differences "$1")"
    [[ -z "$found" ]] || die "$1 differs from $tree:"$'\n'"$(head -n 20 <<<"$found")"
    diff -r --no-dereference "$tree" "$1" >"$WORK/diff" || die "$(head -n 20 "$WORK/diff")"
}

verify() {
    same tar
    same rsync
    [[ "$(find tar | wc -l)" -eq "$(find "$tree" | wc -l)" ]] || die "another number of files"
}

begin 2G
mkdir tar
tar -C "$tree" -cf - . | tar -C tar -xpf -
say "tar: $(find tar | wc -l) files, $(du -sm tar | cut -f 1) MiB"
rsync -aH "$tree/" rsync/
verify

# Copied out of the mount again, and removed.
mkdir "$WORK/back"
tar -C tar -cf - . | tar -C "$WORK/back" -xpf -
diff -r --no-dereference "$tree" "$WORK/back" >/dev/null || die "what came out of the mount differs"
rm -r "$WORK/back"
cp -a tar removed
mv removed moved
rm -r moved
[[ ! -e moved ]] || die "rm left something"
finish verify
