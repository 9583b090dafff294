#!/usr/bin/env bash
# Extended attributes and access control lists: the same answers as the file system below the pool gives; through tar and rsync; and after a remount.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
need setfattr getfattr setfacl getfacl setpriv tar rsync

LARGEST="$(head -c 65536 /dev/zero | tr '\0' 'y')"
LONG_NAME="$(head -c 250 /dev/zero | tr '\0' 'n')"
readonly LARGEST LONG_NAME

# Each changes an attribute of `file`, `dir`, `tmp` or `link`.
readonly CHANGES=(
    "setfattr -n user.note -v one file"
    "setfattr -n user.empty file"
    "setfattr -n user.note -v two file"
    "setfattr -n trusted.note -v hidden file"
    "setfattr -n security.label -v secret file"
    "setfattr -n user.$LONG_NAME -v long file"
    "setfattr -n user.n$LONG_NAME -v too-long file"
    "setfattr -n user. -v none file"
    "setfattr -n note -v none file"
    "setfattr -n system.note -v none file"
    "setfattr -x user.empty file"
    "setfattr -x user.empty file"
    "setfattr -n user.dir -v of-a-directory dir"
    "setfattr -n user.tmp -v sticky tmp"
    "setfattr -h -n user.link -v none link"
    "setfattr -h -n trusted.link -v of-a-link link"
    "mv file moved"
    "ln moved file"
    "chmod 600 file"
    "getfattr --only-values -n user.note file"
    "getfattr --only-values -n trusted.note file"
)
readonly USERS=(0 1000)

# shown: the attributes of everything, as root sees them, and the user.
shown() {
    getfattr -h -d -m - -- file moved dir tmp link 2>/dev/null | cksum
    setpriv --reuid=1000 --regid=1000 --clear-groups getfattr -h -d -m - -- file dir tmp link 2>/dev/null | cksum
}

# outcomes DIR: what each change by each user answers, and leaves.
outcomes() {
    local change user said
    cd "$1"
    for user in "${USERS[@]}"; do
        rm -rf ./*
        touch file
        mkdir dir
        mkdir -m 1777 tmp
        ln -s file link
        for change in "${CHANGES[@]}"; do
            # A change and its words.
            # shellcheck disable=SC2086
            said="$(setpriv --reuid="$user" --regid="$user" --clear-groups -- $change 2>&1)" || said+=" failed"
            printf '%s: %.60s: %.80s\n%s\n' "$user" "$change" "${said##*: }" "$(shown)"
        done
        chown -R 1000:1000 . && chmod 755 tmp
    done
    cd "$MNT"
}

# Each by everybody in a directory of user 1000, whose group is 1000, and with a list for new files.
readonly LIST_CHANGES=(
    "setfacl -m u:500:rw file"
    "setfacl -m u:500:rwx,g:600:r,m::r file"
    "chmod 751 file"
    "setfacl -b file"
    "setfacl -m d:u:500:rwx,d:g::r-x,d:o::- dir"
    "setfacl -m d:u:500:rwx file"
    "touch dir/made"
    "mkdir dir/below"
    "mknod dir/pipe p"
    "ln -s made dir/link"
    "sh -c umask\04077;exec\040touch\040dir/masked"
    "setfacl -k dir"
    "setfacl -m u:500:- open"
    "setfacl -m g:600:rx closed"
    "chmod 2755 file"
    "setfacl -m u:500:r file"
    "cat open/file"
    "cat closed/file"
    "cp -a dir copy"
)

# permitted USER: which of these that user may read, write or search.
permitted() {
    local what
    for what in file dir open closed open/file closed/file; do
        # shellcheck disable=SC2016
        setpriv --reuid="$1" --regid="$1" --groups="$1,600" -- \
            sh -c 'for bit in r w x; do ! test -$bit "$1" || printf %s $bit; done; printf " "' - "$what"
    done
    printf '\n'
}

# lists DIR: what each change of lists by each user answers, and leaves.
lists() {
    local change user said
    cd "$1"
    for user in 0 1000 500; do
        rm -rf ./*
        mkdir -m 755 dir open && mkdir -m 700 closed
        echo text | tee file open/file closed/file >/dev/null
        chown -R 1000:1000 .
        for change in "${LIST_CHANGES[@]}"; do
            # A change and its words; \040 is a space in one.
            read -r -a words <<<"$change"
            words=("${words[@]//\\040/ }")
            said="$(setpriv --reuid="$user" --regid="$user" --clear-groups -- "${words[@]}" 2>&1)" || said+=" failed"
            printf '%s: %s: %.80s\n' "$user" "$change" "${said##*: }"
            find . ! -type l | sort | getfacl -n -p - 2>/dev/null
            find . -printf '%p %M %U %G\n' | sort
            permitted 500
            permitted 700
        done
    done
    cd "$MNT"
}

readonly CAPABILITY=0sAQAAAgAgAAAAAAAAAAAAAAAAAAA=

# A capability ends with the content for which it was given, whoever changes that.
capabilities() {
    local change
    cd "$1"
    for change in "dd if=/dev/null of=program status=none" "dd if=$WORK/page of=program conv=notrunc status=none" \
        "truncate --size=9 program" "chown 5 program" "chmod 755 program" "touch program" "mv program gone"; do
        head -c 8192 /dev/zero >program
        setfattr -n user.note -v kept program
        setfattr -n security.capability -v "$CAPABILITY" program
        $change
        [[ -e program ]] || mv gone program
        printf '%s: %s\n' "${change/$WORK/}" "$(getfattr -d -m - program 2>/dev/null | cksum)"
        rm program
    done
    cd "$MNT"
}

# same DIR: its attributes are those of the tree of which it is a copy.
same() {
    diff <(cd dir && getfattr -R -h -d -m - . 2>/dev/null) <(cd "$1" && getfattr -R -h -d -m - . 2>/dev/null) \
        >/dev/null || die "attributes of $1 differ"
}

verify() {
    same tar
    same rsync
}

if [[ "$(id -u)" -ne 0 ]]; then
    say "SKIPPED: only root can act as several users"
    printf 'ok %s\n' "$NAME"
    exit 0
fi
chmod 755 "$WORK"
head -c 4K /dev/urandom >"$WORK/page"
begin 128M
mkdir -m 777 dir "$WORK/dir"
setfattr -n user.probe "$WORK/dir" 2>/dev/null || die "the file system of $WORK has no extended attributes"
setfattr -x user.probe "$WORK/dir"
outcomes "$WORK/dir" >"$WORK/expected"
outcomes "$MNT/dir" | diff "$WORK/expected" - || die "answers differ"
capabilities "$WORK" >"$WORK/expected"
capabilities "$MNT" | diff "$WORK/expected" - || die "capabilities differ"
chown 1000:1000 dir "$WORK/dir"
lists "$WORK/dir" >"$WORK/expected"
lists "$MNT/dir" | diff "$WORK/expected" - || die "access control lists differ"
outcomes "$MNT/dir" >/dev/null
say "$((${#CHANGES[@]} * ${#USERS[@]})) changes"


# More than ext4 has room for.
setfattr -n user.largest -v "$LARGEST" dir/moved
setfattr -n user.more -v "$LARGEST" dir/moved
[[ "$(getfattr --only-values -n user.largest dir/moved)" == "$LARGEST" ]] || die "a value of 64 KiB differs"
! setfattr -n user.more -v "${LARGEST}z" dir/moved 2>/dev/null || die "a value of more than 64 KiB"

mkdir tar rsync
tar -C dir --xattrs --xattrs-include='*' -cf - . | tar -C tar --xattrs --xattrs-include='*' -xpf -
rsync -aX dir/ rsync/
finish verify
