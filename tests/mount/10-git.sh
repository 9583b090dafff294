#!/usr/bin/env bash
# git: this repository cloned into the mount, commits, branches, a merge, gc, fsck.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
need git

# A home directory of its own, so that only this configuration applies, and ownership is not checked.
export HOME="$WORK/home" GIT_CONFIG_NOSYSTEM=1
mkdir "$HOME"
git config --global safe.directory '*'
git config --global user.name Tester
git config --global user.email tester@example.org
git config --global init.defaultBranch main
git config --global advice.detachedHead false
# A gc that a commit starts would run beside the test's own, and after its end.
git config --global gc.autoDetach false

# Sources that came without their history are turned into a repository.
source_repository() {
    if git -C "$ROOT" rev-parse --verify --quiet HEAD >/dev/null; then
        printf '%s\n' "$ROOT"
        return
    fi
    mkdir "$WORK/source"
    cp -r "$ROOT"/crates "$ROOT"/scripts "$ROOT"/tests "$WORK/source"
    git -C "$WORK/source" init -q
    git -C "$WORK/source" add -A
    git -C "$WORK/source" commit -qm "the sources"
    printf '%s\n' "$WORK/source"
}

verify() {
    git -C clone fsck --full --strict 2>&1 | { ! grep -E '^(error|missing|broken|fatal)'; } || die "fsck found damage"
    [[ -z "$(git -C clone status --porcelain)" ]] || die "the work tree changed"
    [[ "$(git -C clone rev-parse HEAD)" == "$HEAD" ]] || die "another commit"
}

SOURCE="$(source_repository)"
begin 1G
git clone -q --no-hardlinks "$SOURCE" clone
cd clone
git checkout -qb work
for round in $(seq 40); do
    mkdir -p "many/$((round % 7))"
    seq "$((round * 100))" >"many/$((round % 7))/file-$round"
    git add -A
    git commit -qm "round $round"
done
git mv many renamed
git commit -qm "renamed"
git checkout -q -b side HEAD~20
echo aside >aside
git add aside
git commit -qm "aside"
git checkout -q work
git merge -q -m "merged" side
git rm -rqf renamed/3
git commit -qm "removed"
git stash list >/dev/null
git gc -q --prune=now
git repack -adq
git clone -q . ../second
diff -r --exclude=.git . ../second
git worktree add -q ../worktree HEAD~1
git worktree remove ../worktree
HEAD="$(git rev-parse HEAD)"
cd ..
finish verify
