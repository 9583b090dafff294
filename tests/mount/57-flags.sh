#!/usr/bin/env bash
# Flags and project ids: chattr and lsattr; the same answers as ext4 gives, where loop devices can be mounted, with
# project ids where the kernel has quotas; stores to mapped files; and after a remount.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
need chattr lsattr setpriv setfattr setfacl gcc
[[ "$(id -u)" -eq 0 ]] || { say "skipped: only the superuser sets flags"; printf 'ok %s\n' "$NAME"; exit 0; }

undo() { umount -l "$WORK/below" 2>/dev/null || true; }

cat >"$WORK/store.c" <<'C'
// store FILE BYTE: stores through a mapping, then runs the command on standard input, and says what msync answers.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char command[200] = "";
    int fd = open(argv[1], O_RDWR | O_APPEND);
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (argc != 3 || fd < 0 || page == MAP_FAILED || !fgets(command, sizeof command, stdin)) {
        perror("store");
        return 1;
    }
    page[0] = argv[2][0];
    if (system(command) != 0) {
        return 1;
    }
    printf("%s\n", msync(page, 4096, MS_SYNC) ? strerror(errno) : "done");
    return 0;
}
C
gcc -O2 -Wall -Werror -o "$WORK/store" "$WORK/store.c"

# Each is tried on `file` and `dir/in`, with these flags of `file` and `dir`.
CHANGES=(
    "echo x >file"
    "printf x | tee -a file >/dev/null"
    "printf y | dd of=file conv=notrunc status=none"
    "cat file"
    "truncate -s 3 file"
    "truncate -s 9000 file"
    "fallocate -p -o 0 -l 1 file"
    "chmod 600 file"
    "chown 1000 file"
    "touch file"
    "touch -d 2001-01-01 file"
    "setfattr -n user.a -v one file"
    "setfacl -m u:1000:rw file"
    "ln file link"
    "mv file moved"
    "rm -f file"
    "mv other file"
    "chattr +d file"
    "chattr +A dir"
    "chattr -p 3 file"
    "echo x >dir/new"
    "mkdir dir/below"
    "ln -s in dir/symlink"
    "mkfifo dir/pipe"
    "ln other dir/link"
    "mv other dir/other"
    "mv dir/in dir/moved"
    "mv dir/in moved"
    "echo x >>dir/in"
    "chmod 600 dir/in"
    "rm -f dir/in"
    "rmdir dir/sub"
    "chmod 700 dir"
    "touch dir"
    "mv dir moved"
)
FLAGS=(- i a ai d A P)
PROJECTS=yes
readonly USERS=(0 1000)

# as USER COMMAND...
as() {
    local user="$1"
    shift
    setpriv --reuid="$user" --regid="$user" --clear-groups -- "$@"
}

flags_of() { lsattr -d -p "$1" | awk '{ gsub("[-eI]", "", $2); print $2 "," $1 }'; }

# shown: every file, its flags and its project.
shown() {
    local path
    while read -r path; do
        printf '%s %s ' "$path" "$(stat -c '%A %u %h %s' "$path")"
        [[ ! -d "$path" && ! -f "$path" || -L "$path" ]] || flags_of "$path"
    done < <(find . -mindepth 1 ! -name lost+found | sort)
}

# outcomes DIR: what each change answers, and leaves.
outcomes() {
    local change flags user said
    cd "$1"
    for flags in "${FLAGS[@]}"; do
        for user in "${USERS[@]}"; do
            for change in "${CHANGES[@]}"; do
                chattr -R -f -ia . || true
                find . -mindepth 1 ! -name lost+found -delete
                echo text | tee file other >/dev/null
                mkdir -p dir/sub && echo text >dir/in
                chown -R 1000:1000 file other dir
                [[ -z "$PROJECTS" ]] || chattr -p 7 dir
                [[ "$flags" == - ]] || chattr "+$flags" dir
                [[ "$flags" == - || "$flags" == P ]] || chattr "+$flags" file
                said="$(as "$user" sh -c "$change" 2>&1)" || said+=" failed"
                said="${said//.$'\n'*/}"
                printf '%s %s: %s: %s\n%s\n' "$flags" "$user" "$change" "${said##*: }" "$(shown)"
            done
        done
    done
    chattr -R -f -ia . || true
    find . -mindepth 1 ! -name lost+found -delete
    cd "$MNT"
}

# refused TEXT COMMAND...
refused() {
    local answer text="$1"
    shift
    ! answer="$("$@" 2>&1)" || die "allowed: $*"
    said "$text" "$answer"
}
readonly EPERM='Operation not permitted'

# is FILE FLAGS PROJECT
is() { [[ "$(flags_of "$1")" == "$2,$3" ]] || die "$1 has $(flags_of "$1"), not $2,$3"; }

begin 64M
mkdir same "$WORK/below"
truncate -s 64M "$WORK/ext4.img"

# below [OPTIONS OF MKFS...]: mounts ext4.
below() {
    mkfs.ext4 -q -F -b 4096 "$@" "$WORK/ext4.img" && mount -o loop "$WORK/ext4.img" "$WORK/below" 2>"$WORK/why"
}

# without_projects: mounts ext4, and leaves out what needs project ids.
without_projects() {
    PROJECTS=
    FLAGS=("${FLAGS[@]/P/-}")
    CHANGES=("${CHANGES[@]/chattr -p */true}")
    below
}

if below -O project || without_projects; then
    chmod 777 same "$WORK/below"
    outcomes "$WORK/below" >"$WORK/expected"
    outcomes "$MNT/same" >"$WORK/found"
    umount "$WORK/below"
    diff "$WORK/expected" "$WORK/found" >"$WORK/difference" || die "$(head -n 20 "$WORK/difference")"
    say "$((${#CHANGES[@]} * ${#FLAGS[@]} * ${#USERS[@]})) changes as on ext4"
else
    say "not compared with ext4: $(cat "$WORK/why")"
fi

echo text >fixed && chattr +i fixed
is fixed i 0
refused "$EPERM" tee fixed <<<other
refused "$EPERM" rm -f fixed
refused "$EPERM" truncate -s 0 fixed
refused "$EPERM" touch fixed
refused "$EPERM" chattr +d fixed
refused "$EPERM" as 1000 chattr -i fixed
refused 'not supported' chattr +s fixed
refused 'not supported' chattr +P fixed
[[ "$(cat fixed)" == text ]] || die "fixed has changed"
say "an immutable file"

echo one >log && chattr +a log
echo two >>log
refused "$EPERM" tee log <<<other
refused "$EPERM" dd if=fixed of=log conv=notrunc status=none
refused "$EPERM" mv log gone
[[ "$(cat log)" == $'one\ntwo' ]] || die "log has changed"
say "an append-only file"

mkdir -p project/old && touch project/old/file
chattr -p 42 project && chattr +P project
mkdir project/new && touch project/new/file other
is project P 42
is project/new P 42
is project/new/file "" 42
is project/old/file "" 0
refused 'cross-device' ln other project/other
mv other project/other # which copies
is project/other "" 42
say "projects"

chattr +A project/other
touch -a -d 2001-01-01 project/other
chattr -i fixed
for options in "" "+i" "+a"; do
    printf text >mapped
    answer="$("$WORK/store" mapped T <<<"[ -z '$options' ] || chattr $options mapped")"
    [[ "$answer" == "done" ]] || die "msync after chattr '$options': $answer"
    [[ "$(cat mapped)" == Text ]] || die "a store before chattr '$options' was lost"
    if [[ -n "$options" ]]; then
        answer="$("$WORK/store" mapped X <<<true)"
        [[ "$answer" == "$EPERM" ]] || die "msync after a store to a file with $options: $answer"
    fi
    echo 1 >/proc/sys/vm/drop_caches
    [[ "$(cat mapped)" == Text ]] || die "a store to a file with $options arrived"
    chattr -ia mapped
done
chattr +i fixed
say "stores to mapped files"

everything() {
    is fixed i 0
    is log a 0
    is project P 42
    is project/new P 42
    is project/other A 42
    [[ "$(stat -c %X project/other)" == "$(date -d 2001-01-01 +%s)" ]] || die "reads moved the access time"
    cat project/other
    [[ "$(stat -c %X project/other)" == "$(date -d 2001-01-01 +%s)" ]] || die "a read moved the access time"
    refused "$EPERM" rm -f fixed
}
finish everything
