#!/usr/bin/env bash
# SQLite: rollback journals and the write-ahead log, several writers, and the integrity check.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
need sqlite3

readonly MODES=(delete truncate persist wal)
readonly WRITERS=3
readonly ROWS=2000

sql() { sqlite3 -bail -cmd '.timeout 60000' "$@"; }

fill() {
    local db="$1" writer="$2" batch
    for batch in $(seq 5); do
        # Each connection sets the mode, because only the write-ahead log is persistent.
        sql "$db" "
            PRAGMA journal_mode = $mode;
            BEGIN IMMEDIATE;
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $ROWS)
                INSERT INTO t (writer, batch, i, text) SELECT $writer, $batch, i, hex(randomblob(50)) FROM n;
            UPDATE t SET text = text || '!' WHERE writer = $writer AND i % 7 = $batch;
            DELETE FROM t WHERE writer = $writer AND batch = $batch AND i % 5 = 0;
            COMMIT;" >/dev/null
    done
}

verify() {
    local mode result
    for mode in "${MODES[@]}"; do
        result="$(sql "$mode.db" 'PRAGMA integrity_check; SELECT count(*) FROM t;')"
        [[ "$result" == "ok"$'\n'"$((WRITERS * 5 * ROWS * 4 / 5))" ]] || die "$mode: $result"
        result="$(sql "$mode.db" 'SELECT writer, batch, i, text FROM t ORDER BY 1, 2, 3;' | sha256sum)"
        [[ "$result" == "${SUMS[$mode]}" ]] || die "$mode: other rows"
    done
}

begin 512M
declare -A SUMS
for mode in "${MODES[@]}"; do
    [[ "$(sql "$mode.db" "PRAGMA journal_mode = $mode;")" == "$mode" ]] || die "no journal mode $mode"
    sql "$mode.db" "CREATE TABLE t (writer INT, batch INT, i INT, text TEXT);
        CREATE INDEX by_text ON t (text);" >/dev/null
    writers=()
    for writer in $(seq "$WRITERS"); do
        fill "$mode.db" "$writer" &
        writers+=($!)
    done
    for writer in "${writers[@]}"; do
        wait "$writer" || die "$mode: a writer failed"
    done
    sql "$mode.db" "BEGIN; DELETE FROM t WHERE i % 3 = 0; ROLLBACK; VACUUM;"
    SUMS[$mode]="$(sql "$mode.db" 'SELECT writer, batch, i, text FROM t ORDER BY 1, 2, 3;' | sha256sum)"
    say "$mode"
done
verify
finish verify
