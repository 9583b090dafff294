# Kills during operations of the model. Source it after kill.bash. Each thread records its operations and their results,
# from which the expected tree is computed.

[[ "$(id -u)" -eq 0 ]] || { say "skipped: the workers change their root, which needs the superuser"; printf 'ok %s\n' "$NAME"; exit 0; }
need cargo

readonly WORKERS=3
RECORDS="$WORK/records"
WORKLOAD=

killed() { "$KILLED" "$@"; }

begin_work() {
    rm -f "$WORK/load"
    killed load "$MNT" "$RECORDS" $((SEED * 1000 + $1)) >"$WORK/load" 2>&1 &
    WORKLOAD=$!
    until grep -qs working "$WORK/load"; do
        kill -0 "$WORKLOAD" 2>/dev/null || violated "$1" "$WORK/load"
        sleep 0.02
    done
}

end_work() {
    wait "$WORKLOAD" || violated "$1" "$WORK/load"
}

verify_work() {
    killed verify "$MNT" "$RECORDS" >>"$WORK/verified" 2>&1 || violated "$1" "$WORK/verified"
}

# violated ROUND FILE: keeps the records and the pool of a violation beyond the test's directory.
violated() {
    local kept="${CARGO_TARGET_DIR:-$ROOT/target}/killed-$SEED"
    mkdir -p "$kept"
    cp -r "$RECORDS" "$POOL" "$kept"
    die "seed $SEED, round $1: $(cat "$2"); records and pool are kept in $kept"
}

# model_rounds ROUNDS SIZE [MOUNT OPTIONS...]
model_rounds() {
    local count="$1" worker
    shift
    begin_killing "$@"
    mkdir "$RECORDS" "$MNT/shared"
    for ((worker = 0; worker < WORKERS; worker++)); do
        mkdir "$MNT/w$worker"
        : >"$RECORDS/worker-$worker.log"
    done
    rounds "$count" 1500
    finish_killing
    say "$(tail -n 1 "$WORK/verified")"
}

# With --workspace, so that the features are those of the earlier test builds and nothing is built again.
cargo build -q --profile test --manifest-path "$ROOT/Cargo.toml" --workspace --features vellum-model/proptest --example killed
readonly KILLED="${CARGO_TARGET_DIR:-$ROOT/target}/debug/examples/killed"
