#!/usr/bin/env bash
# The mount's process is killed while git commits. Every commit that returned must be there completely, and the
# repository must still work.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
# shellcheck source-path=SCRIPTDIR source=kill.bash
source "$ROOT/tests/mount/kill.bash"
need git

export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_TERMINAL_PROMPT=0
export GIT_AUTHOR_NAME=Vellum GIT_AUTHOR_EMAIL=test@example.org
export GIT_COMMITTER_NAME=Vellum GIT_COMMITTER_EMAIL=test@example.org
REPO="$MNT/repo"
COMMITS="$WORK/commits"
COMMITTER=
readonly REPO COMMITS

# Commits until the mount is dead. Each line of the list is a commit that returned.
commit() {
    local i file
    # The caller limits the time of each commit.
    unset -f git
    cd "$REPO" || return 0
    for ((i = 0; ; i++)); do
        file="dir-$((i % 7))/file-$((i % 23))"
        mkdir -p "${file%/*}" && printf '%s\n' "$1" "$i" "$RANDOM" >>"$file" || return 0
        ((i % 5)) || git mv "$file" "$file-$1-$i" || { git add -A && git mv "$file" "$file-$1-$i"; } || return 0
        git add -A && git commit -q -m "$i of round $1" || return 0
        git rev-parse HEAD >>"$COMMITS" || return 0
        ((i % 40 != 39)) || git gc -q || return 0
    done
} >/dev/null 2>&1

# In a process group of its own.
begin_work() {
    set -m
    commit "$1" &
    COMMITTER=$!
    set +m
}

# Without its file system, git can do nothing more, and a git that was reading directories (gc) tries for ever.
end_work() {
    kill -9 -- "-$COMMITTER" 2>/dev/null || true
    await_end "$COMMITTER" "git, whose file system is gone,"
}

verify_work() {
    local last lost
    # Files that a git without its file system could not remove any more.
    find "$REPO/.git" -name '*.lock' -delete
    git -C "$REPO" fsck --strict --no-dangling --no-progress >"$WORK/fsck" 2>&1 || die "seed $SEED, round $1: $(cat "$WORK/fsck")"
    lost="$(git -C "$REPO" cat-file --batch-check <"$COMMITS" | grep -v ' commit ' || true)"
    [[ -z "$lost" ]] || die "seed $SEED, round $1: commits are lost: $lost"
    last="$(tail -n 1 "$COMMITS")"
    git -C "$REPO" merge-base --is-ancestor "$last" HEAD || die "seed $SEED, round $1: HEAD is older than the last commit that returned"
    git -C "$REPO" status --porcelain >"$WORK/status" 2>&1 || die "seed $SEED, round $1: $(cat "$WORK/status")"
    git -C "$REPO" reset -q --hard
    git -C "$REPO" clean -qfd
}

begin_killing 256M
git init -q -b main "$REPO"
git -C "$REPO" commit -q --allow-empty -m first
git -C "$REPO" rev-parse HEAD >"$COMMITS"
rounds "${VELLUM_ROUNDS:-5}" 3000
finish_killing
say "$(wc -l <"$COMMITS") commits had returned, all are there"
printf 'ok %s\n' "$NAME"
