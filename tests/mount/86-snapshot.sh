#!/usr/bin/env bash
# Snapshots and checks of a mounted pool under SQLite and git: no check has a finding, and in each snapshot the database
# is whole and has its sum, and the repository every commit that was done before.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
need sqlite3 git

readonly ROUNDS=4
readonly ACCOUNTS=500
readonly SUM=$((ACCOUNTS * 100))

export HOME="$WORK/home" GIT_CONFIG_NOSYSTEM=1
mkdir "$HOME"
git config --global safe.directory '*'
git config --global user.name Tester
git config --global user.email tester@example.org
git config --global gc.autoDetach false

sql() { sqlite3 -bail -cmd '.timeout 60000' "$@"; }

# Moves money between accounts until the file `stop` is there.
pay() {
    local db="$1"
    while [[ ! -e "$WORK/stop" ]]; do
        sql "$db" "BEGIN IMMEDIATE;
            UPDATE a SET has = has - 1 WHERE id % 7 = abs(random()) % 7;
            UPDATE a SET has = has + ($SUM - (SELECT sum(has) FROM a)) WHERE id = 1;
            COMMIT;"
    done
}

commit() {
    local number
    for ((number = 1; ; number++)); do
        [[ ! -e "$WORK/stop" ]] || return 0
        seq "$number" "$((number + 500))" >"repo/file-$((number % 10))"
        git -C repo add -A
        git -C repo commit -qm "$number"
        git -C repo rev-parse HEAD >"$WORK/head.new"
        mv "$WORK/head.new" "$WORK/head"
    done
}

undo() {
    touch "$WORK/stop"
    wait
}

verify() {
    local mode
    for mode in wal delete; do
        [[ "$(sql "$mode.db" 'PRAGMA integrity_check; SELECT sum(has) FROM a;')" == "ok"$'\n'"$SUM" ]] ||
            die "$mode: another sum"
    done
    git -C repo fsck --full --strict 2>&1 | { ! grep -E '^(error|missing|broken|fatal)'; } || die "fsck found damage"
}

begin 512M
for mode in wal delete; do
    sql "$mode.db" "PRAGMA journal_mode = $mode; CREATE TABLE a (id INTEGER PRIMARY KEY, has INT);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $ACCOUNTS)
            INSERT INTO a SELECT i, 100 FROM n;" >/dev/null
done
git init -q repo
workers=()
for work in 'pay wal.db' 'pay delete.db' commit; do
    $work &
    workers+=($!)
done
until [[ -e "$WORK/head" ]]; do sleep 0.1; done
heads=()
for ((round = 0; round < ROUNDS; round++)); do
    vellum check --online "$MNT" >"$WORK/report" || die "$(cat "$WORK/report")"
    heads+=("$(cat "$WORK/head")")
    if [[ "$MEDIUM" =~ ^(external|split|grown)$ ]]; then
        ! vellum snapshot "$POOL" "$WORK/$round.img" 2>"$WORK/why" || die "half a pool was copied"
        said "vellum export" "$(cat "$WORK/why")"
        continue
    fi
    vellum snapshot "$POOL" "$WORK/$round.img"
done
touch "$WORK/stop"
for worker in "${workers[@]}"; do
    wait "$worker" || die "a writer failed"
done
verify
for ((round = 0; round < ROUNDS; round++)); do
    [[ -e "$WORK/$round.img" ]] || continue
    vellum check "$WORK/$round.img" >"$WORK/report" || die "snapshot $round: $(cat "$WORK/report")"
    vellum export "$WORK/$round.img:/" "$WORK/copy" --quiet
    cd "$WORK/copy"
    # The repository is the one of a kill in the middle of a commit.
    rm -f repo/.git/*.lock repo/.git/refs/heads/*.lock
    verify
    git -C repo merge-base --is-ancestor "${heads[round]}" HEAD || die "snapshot $round: a commit is missing"
    cd "$MNT"
    rm -rf "$WORK/copy" "$WORK/$round.img"
done
finish verify
